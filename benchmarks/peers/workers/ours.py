"""mossp with its defaults, untuned; a fourth argument names another method than "auto".

Where samples are counted, those that are differentiated are; with `values` as a fifth argument also
those at which constraints are evaluated only. Of B rows that are drawn for f, a step differentiates
4 B, at two points for f and for c, and evaluates 16 B; 8 B more for each step are at the end.
"""

from __future__ import annotations

import sys

import numpy as np

import mossp
from benchmarks.peers.ours import as_endless, as_problem
from benchmarks.peers.statement import Statement
from benchmarks.peers.workers import job
from benchmarks.peers.workers.job import BATCH

METHOD = sys.argv[4] if len(sys.argv) > 4 else "auto"
COUNTED = 7 if "values" in sys.argv[5:] else 1  # samples of all kinds for one that is counted
PROBLEMS: dict[int, mossp.Problem] = {}  # made once, as a user would


def solve(
    given: Statement, _: job.Settings, seed: int, x0: np.ndarray, budget: job.Budget
) -> job.Run:
    if id(given) not in PROBLEMS:
        PROBLEMS[id(given)] = as_endless(given) if given.endless else as_problem(given)
    problem, N, more = PROBLEMS[id(given)], len(given.y), {}
    if given.endless:
        more = {"gradients": int(budget.samples) // COUNTED, "batch_size": BATCH}
    r = mossp.solve(problem, x0, method=METHOD, seed=seed, seconds=budget.seconds, **more)
    passes = r.gradients / N
    if budget.trace:
        on_the_way(problem, x0, seed, passes, N, budget)
    return job.Run(np.asarray(r.x), bool(r.success), passes)


def on_the_way(
    problem: mossp.Problem, x0: np.ndarray, seed: int, passes: float, N: int, budget: job.Budget
) -> None:
    """What solves return whose budget is 1, 2, ... passes: points that a user could have had."""
    began = job.clock()
    budget.points.append((1e-4, 0.0, x0))
    for k in range(1, int(np.ceil(passes)) + 1):
        most = int(1.1 * k * N)  # a tenth for what is measured at the start
        mossp.solve(problem, x0, seed=seed, gradients=most)  # what is compiled is not timed
        start = job.clock()
        r = mossp.solve(problem, x0, seed=seed, gradients=most)
        budget.points.append((job.clock() - start, r.gradients / N, np.asarray(r.x)))
    budget.noted += job.clock() - began


if __name__ == "__main__":
    job.work(["mossp", "jax"], {}, solve, True)
