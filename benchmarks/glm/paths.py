"""Table 2, paths: 50 strengths from lam_max to lam_max/100, each started from the one before.

Ours is `mossp.path` with its defaults, skglm's is its own solvers with `w_init`, at the loosest
tolerance with which the KKT residual is at most 1e-8 lam at every strength (l1, too).

    ratio       ours / max(skglm, 0.15 s), second calls               at most 1.0
    F - skglm   the largest of (objective - skglm's) / skglm's over the strengths
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sets
from calls import Case, along_path
from compare import LEAST, Comparison, Entry, best_of
from optimality import criticality, objective
from penalties import GOOD, ROUNDING
from settings import Settings, flag, number
from solvers import SOLVERS
from worker import Worker

COUNT, QUICK_COUNT = 50, 8
PART = 100.0
PENALTIES = ("l1", "mcp", "scad")
ALLOWANCE = 3.0  # limits of a single call that a path may take
TOLERANCES = tuple(10.0**-k for k in range(7, 14))


def main(settings: Settings) -> None:
    count = QUICK_COUNT if settings.quick else COUNT
    print(f"\nPaths of {count} strengths, to a KKT residual of {GOOD:.0e} lam at each")
    for name in settings.sets:
        if sets.load(name, settings.quick) is None:
            print(f"{name}: left out, set MOSSP_DATA to a folder that has it")
            continue
        for penalty in PENALTIES:
            compare(Case(name, settings.quick, penalty, PART), count, settings)


def compare(case: Case, count: int, settings: Settings) -> None:
    X, y = sets.load(case.set, case.quick)
    lams = case.lams(count)
    print(f"\n{case.penalty} on {case.set}, {X.shape[0]:,} x {X.shape[1]:,}")
    print(f"  {'solver':12} {'tol':>6} {'KKT/lam':>8} {'nonzeros':>8} {'second s':>9} "
          f"{'ratio':>6} {'F - skglm':>10} {'higher':>6}")  # fmt: skip

    def worst(ws: np.ndarray) -> float:
        return max(criticality(X, y, w, case.penalty, t) for w, t in zip(ws, lams, strict=True))

    with Worker() as worker:
        comparison = Comparison(
            worker, case, worst, GOOD, ALLOWANCE * settings.limit, settings.runs,
            call=along_path, more=(count,), ladder=TOLERANCES,
        )  # fmt: skip
        names = [s for s in settings.solvers if s.startswith("skglm") or s == "ours: solve"]
        entries = [comparison.enter(solver) for solver in names]
        comparison.time(entries)
    rival = best_of(entries)
    F = {e.solver: objectives(X, y, e, case, lams) for e in entries if e.run is not None}
    for e in entries:
        show(e, F.get(e.solver), rival, None if rival is None else F[rival.solver])


def objectives(X: Any, y: np.ndarray, e: Entry, case: Case, lams: np.ndarray) -> np.ndarray:
    pairs = zip(e.run.w, lams, strict=True)
    return np.array([objective(X, y, w, case.penalty, lam) for w, lam in pairs])


def show(
    e: Entry, F: np.ndarray | None, rival: Entry | None, theirs: np.ndarray | None
) -> None:  # fmt: skip
    if e.run is None or F is None:
        print(f"  {e.solver:12} N/A: {e.reason}", flush=True)
        return
    compared = ""
    if SOLVERS[e.solver].ours:
        short, ratio, worst, higher = e.accuracy > GOOD, None, None, None
        if rival is not None and theirs is not None:
            ratio, differences = e.seconds / max(rival.seconds, LEAST), (F - theirs) / theirs
            worst, higher = differences.max(), int((differences > ROUNDING).sum())
            short |= ratio > 1
        compared = (
            f"{number(ratio, '6.2f')} {number(worst, '+10.1e')} {number(higher, '6d')}{flag(short)}"
        )
    tol = "own" if SOLVERS[e.solver].ours else f"{e.tol:.0e}"
    print(
        f"  {e.solver:12} {tol:>6} {e.accuracy:8.1e} {np.count_nonzero(e.run.w[-1]):8d} "
        f"{e.seconds:9.3f} {'= best' if e is rival else compared}",
        flush=True,
    )
