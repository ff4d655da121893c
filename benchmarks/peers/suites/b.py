"""Constraints about data on a9a: fairness and Neyman-Pearson, all rows at hand, and by samples.

loss            |mean loss of A - mean loss of B| <= 0.005
selection       |selection of A - selection of B| <= 0.02, by sigmoid(margin / 0.5)
Neyman-Pearson  the loss of class 1 with 1e-3 (||x||_1 - ||x||_2), the mean of sigmoid(margin / 0.5)
                over class 0 at most 0.1; with a column of ones

Where all rows are at hand a peer's run, of those that are tuned too, has ten times as long as ours.
Logistic loss on unit rows from x = 0; groups A and B are the rows in which column 71 or 72 (counted
from 0) is not 0. fairlearn bounds the true selection rates of a mixture of classifiers: its
objective and violation are the mixture's means, no KKT point is meant, and it is deterministic.
In "by samples" rows are drawn anew for ever, in batches of 32, and an equal number of samples is
differentiated, for f and for c; ours also evaluates c on samples that it does not differentiate,
six times as many: in the row "values counted" these are within the budget, too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import mossp
from benchmarks.peers import data, scoring
from benchmarks.peers.asked import Asked, Job, Outcome, compare
from benchmarks.peers.results import Row
from benchmarks.peers.running import COOPER, FAIRLEARN, OURS, PBM, SSL_ALM, Peer
from benchmarks.peers.statement import Statement, stated

COLUMNS = 71, 72
BOUNDS = {"loss": 0.005, "selection": 0.02}
FALSE_ALARMS = 0.1
LAM = 1e-3
SECONDS, TIMES = 2.0, 10.0  # of a peer's run: at least, and in units of what ours takes
BY_SAMPLES = (
    OURS,
    Peer("mossp, values counted", "ours", "ours", ("auto", "values")),
    Peer("mossp-al", "ours", "ours", ("mossp-al",)),
)


def problems(asked: Asked) -> list[Statement]:
    found = data.dataset("a9a")
    if found is None:
        print("  left out, set MOSSP_DATA to a folder that has a9a")
        return []
    X, y = found
    A, B = (mossp.group_weights(X[:, column] > 0) for column in COLUMNS)
    starts = np.zeros((asked.seeds + 1, X.shape[1]))
    fair = [
        stated(f"a9a, {kind}", X, y, starts, d=A - B, sides=(1.0, -1.0), bound=bound,
               kind="loss" if kind == "loss" else "sigmoid")
        for kind, bound in BOUNDS.items()
    ]  # fmt: skip
    one, zero = y > 0, y < 0
    alarms = stated(
        "a9a, Neyman-Pearson", np.c_[X, np.ones(len(y))], y,
        np.zeros((asked.seeds + 1, X.shape[1] + 1)), lam=LAM, w=one / one.sum(),
        d=zero / zero.mean(), sides=(1.0,), bound=FALSE_ALARMS,
    )  # fmt: skip
    return [*fair, alarms]


def endless(given: list[Statement]) -> list[Statement]:
    return [
        dataclasses.replace(g, name=f"{g.name}, by samples", endless=True)
        for g in given if not g.lam
    ]  # fmt: skip


def run(asked: Asked) -> Outcome:
    given = problems(asked)

    def peers(problem: Statement) -> list[Peer]:
        tried = [COOPER, SSL_ALM, PBM]
        return [*tried, FAIRLEARN] if problem.name == "a9a, selection" else tried

    def job(problem: Statement, ours: float) -> Job:
        return asked.job(max(SECONDS, TIMES * ours) if np.isfinite(ours) else SECONDS)

    def by_samples(problem: Statement, _: float) -> Job:
        return asked.job(asked.limit, samples=asked.samples // 10 if asked.quick else asked.samples)

    found = compare(asked, "b", given, peers, job, judge=judged).rows
    noisy = endless(given[:1] if asked.quick else given)
    found += compare(
        asked, "b", noisy, lambda _: [COOPER, SSL_ALM, PBM], by_samples, BY_SAMPLES
    ).rows  # fmt: skip
    return Outcome(found)


def judged(
    given: Statement, problem: mossp.Problem, suite: str, solver: str, answer: dict[str, Any],
    job: Job, **more: Any,
) -> list[Row]:  # fmt: skip
    """As all, but for a mixture: the means of the loss, and of the decisions."""
    if solver != FAIRLEARN.name:
        return scoring.rows(given, problem, suite, solver, answer, job, **more)
    xs, weights = answer["others0"], answer["weights0"]
    chosen = ((given.X @ xs.T) > 0) @ weights
    violation = max(float(abs(np.mean(given.d * chosen))) - given.bound, 0.0)
    objective = float(weights @ [given.objective(x) for x in xs])
    return [Row(suite, given.name, solver, 0, objective, violation,
                **scoring.common(answer, 0, job), **more)]  # fmt: skip
