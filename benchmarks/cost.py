"""Cost per gradient of every method, as a ratio to that of mossp-p in the same round.

    python benchmarks/cost.py          (uses a9a from the folder MOSSP_DATA if it is there)

Logistic loss with l1 - l2 on the sphere; methods that cannot take that run on a problem of their
own class: the ball ||x||^2 <= 1, five linear equalities, or l1 alone. `solve` is timed whole, after
a warm-up, and divided by the samples that it differentiated.
"""

from __future__ import annotations

import time

import numpy as np
from workload import a9a_or_like, unit_start

import mossp

STEPS, FULL_STEPS, ROUNDS, LAM, BOUND = 20_000, 300, 7, 0.01, 2.0


def main() -> None:
    X, y, name = a9a_or_like()
    n = X.shape[1]
    x0 = unit_start(n)
    A = np.random.default_rng(0).normal(size=(5, n)) / np.sqrt(n)
    dc, logistic = mossp.L1MinusL2(LAM), mossp.losses.logistic
    on_sphere, in_ball = mossp.constraints.Sphere(), lambda x: x @ x - 1.0
    problems = {
        "sphere": mossp.Problem(logistic, (X, y), dc, equality=on_sphere),
        "sphere, l1": mossp.Problem(logistic, (X, y), mossp.L1(LAM), equality=on_sphere),
        "linear": mossp.Problem(logistic, (X, y), dc, equality=lambda x: A @ x - A @ x0),
        "ball": mossp.Problem(logistic, (X, y), dc, inequality=in_ball),
    }
    own = {"mlalm": "sphere, l1", "clcdc-alm": "linear", "imba-dc": "ball", "scp-ls": "ball"}

    def run(method: str) -> tuple[float, int]:
        full = mossp.METHODS[method]().momentum.full
        began = time.perf_counter()
        # A tolerance that is never met: exact methods stop early otherwise.
        result = mossp.solve(
            problems[own.get(method, "sphere")], x0, method=method,
            steps=FULL_STEPS if full else STEPS, tol=1e-13 if full else None,
        )  # fmt: skip
        return time.perf_counter() - began, result.gradients

    costs: dict[str, list[float]] = {method: [] for method in mossp.METHODS}
    for round_ in range(ROUNDS + 1):
        for method in mossp.METHODS:
            seconds, gradients = run(method)
            if round_:  # the first is the warm-up
                costs[method].append(seconds / gradients)
    print(f"{name}, {STEPS:,} steps, batch 32; median of {ROUNDS} rounds")
    print(f"{'':<14}  ns a gradient   / mossp-p   (bound {BOUND:g})")
    for method, each in costs.items():
        ratio = float(np.median(np.divide(each, costs["mossp-p"])))
        short = "   SHORT" if ratio > BOUND else ""
        print(f"{method:<14}  {1e9 * np.median(each):10.1f}   {ratio:8.2f}{short}")


if __name__ == "__main__":
    main()
