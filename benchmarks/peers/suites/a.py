"""The paper's sphere and quadratics: logistic loss on unit rows with 0.01 (||x||_1 - ||x||_2).

Sphere: ||x||^2 = 1. Quadratics: the 20 random equalities of the paper's Appendix D.3, which hold at
a common point; australian has 14 variables, and with 20 equalities that point is alone. Starts are
random unit vectors, one a seed. A peer's run has max(0.5 s, 5 times ours), a trial as much;
SLSQP, trust-constr and PyGRANSO end by themselves, or are stopped after 20 s.
"""

from __future__ import annotations

import numpy as np

from benchmarks.peers import data, figures
from benchmarks.peers.asked import Asked, Job, Outcome, compare
from benchmarks.peers.running import COOPER, GRANSO, SLSQP, SSL_ALM, TRUST
from benchmarks.peers.statement import Statement, stated

SETS = ("a9a", "phishing", "australian")
LAM = 0.01
PEERS = [COOPER, SSL_ALM, GRANSO, SLSQP, TRUST]
SHOWN = "a9a, sphere"


def problems(asked: Asked) -> list[Statement]:
    found = []
    for name in SETS[-1:] if asked.quick else SETS:
        rows = data.dataset(name)
        if rows is None:
            print(f"  {name}: left out, set MOSSP_DATA to a folder that has it")
            continue
        n = rows[0].shape[1]
        starts = np.array([data.unit_start(n, seed) for seed in [*range(asked.seeds), 99]])
        sphere = {"Q": np.full((1, n), 2.0), "p": np.zeros((1, n)), "r": np.ones(1)}
        found.append(stated(f"{name}, sphere", *rows, starts, lam=LAM, **sphere))
        found.append(stated(f"{name}, quadratics", *rows, starts, lam=LAM, **data.quadratics(n)))
    return found


def run(asked: Asked) -> Outcome:
    def job(given: Statement, ours: float) -> Job:
        seconds = max(asked.floor, asked.factor * ours) if np.isfinite(ours) else asked.floor
        return asked.job(seconds, trace=given.name == SHOWN)

    given = problems(asked)
    found = compare(asked, "a", given, lambda _: PEERS, job)

    def draw() -> None:
        for problem in given:
            if problem.name == SHOWN:
                figures.trajectories(problem, found.answers)

    return Outcome(found.rows, draw)
