"""Table 4: l1 - l2 on the sphere, sparse rows against the same rows stored densely.

The sparse set, 50,000 x 300 with 4 % filled, from a random unit vector, defaults of `mossp.solve`.
Second calls in turns, building the problem included.

    ratio   sparse rows / dense rows        at most 0.5
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np
import sets
from settings import Settings, flag
from worker import NotAvailable, Worker

SET = "sparse"
MOST = 0.5


class Solved(NamedTuple):
    """One solve."""

    seconds: float
    F: float
    nonzeros: int
    stationarity: float  # the certificate's, relative
    violation: float


def solved(dense: bool, part: float, quick: bool) -> Solved:
    import mossp

    X, y = sets.load(SET, quick)
    lam = sets.largest_strength(X, y) / part
    x0 = np.random.default_rng(0).standard_normal(X.shape[1])
    rows = X.toarray() if dense else X
    began = time.perf_counter()
    problem = mossp.Problem(
        mossp.losses.logistic, (rows, y), mossp.L1MinusL2(lam), equality=mossp.constraints.Sphere()
    )
    r = mossp.solve(problem, x0 / np.linalg.norm(x0))
    seconds = time.perf_counter() - began
    x = np.asarray(r.x)
    F = np.logaddexp(0, -y * (X @ x)).mean() + lam * (np.abs(x).sum() - np.linalg.norm(x))
    worst = r.certificate.worst_relative
    return Solved(seconds, float(F), int(np.count_nonzero(x)), worst, abs(float(x @ x) - 1))


def main(settings: Settings) -> None:
    X, _ = sets.load(SET, settings.quick)
    print(f"\nl1 - l2 on the sphere, {X.shape[0]:,} x {X.shape[1]:,}, sparse rows and dense rows")
    print(f"  {'lam':12} {'rows':7} {'F':>12} {'nonzeros':>8} {'KKT':>8} {'|x|^2-1':>8} "
          f"{'second s':>9} {'ratio':>6}")  # fmt: skip
    for part in settings.parts:
        try:
            compare(part, settings)
        except NotAvailable as reason:
            print(f"  lam_max/{part:<4.0f} N/A: {reason}", flush=True)


def compare(part: float, settings: Settings) -> None:
    runs: dict[bool, list[Solved]] = {True: [], False: []}
    with Worker() as worker:
        for _ in range(settings.runs + 1):
            for dense in runs:
                args = (dense, part, settings.quick)
                runs[dense].append(worker.call(solved, *args, limit=settings.limit))
    seconds = {d: statistics.median(r.seconds for r in runs[d][1:]) for d in runs}
    for dense in runs:
        end = runs[dense][-1]
        ratio = seconds[False] / seconds[True]
        compared = "" if dense else f"{ratio:6.2f}{flag(ratio > MOST)}"
        print(
            f"  lam_max/{part:<4.0f} {'dense' if dense else 'sparse':7} {end.F:12.9f} "
            f"{end.nonzeros:8d} {end.stationarity:8.1e} {end.violation:8.1e} "
            f"{seconds[dense]:9.3f} {compared}",
            flush=True,
        )
