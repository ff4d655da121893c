"""Table 1: l1 logistic regression to a relative duality gap of 1e-9, without an intercept.

Second calls, medians of 5 (of 1 where a call takes more than 10 s), all solvers in one process and
in turns. First calls in a fresh process each, imports and data excluded: ours without and with the
programs that an earlier process left on disk, and skglm's.

    ratio   second call of ours / max(best peer, 0.15 s)              at most 1.0
    first   first call of ours / first call of skglm, its faster one  at most 1.5
"""

from __future__ import annotations

import numpy as np
import sets
from calls import Case
from compare import LEAST, Comparison, Entry, best_of
from optimality import criticality, gap
from settings import Settings, flag, number
from solvers import SOLVERS
from worker import Worker

GOOD = 1e-9
MOST, MOST_FIRST = 1.0, 1.5


def main(settings: Settings) -> None:
    print(f"\nl1 logistic, to a relative duality gap of {GOOD:.0e}")
    for name in settings.sets:
        found = sets.load(name, settings.quick)
        if found is None:
            print(f"{name}: left out, set MOSSP_DATA to a folder that has it")
            continue
        for part in settings.parts:
            compare(Case(name, settings.quick, "l1", part), settings)


def compare(case: Case, settings: Settings) -> None:
    X, y = sets.load(case.set, case.quick)
    lam = case.lam()
    print(
        f"\n{case.set}, {X.shape[0]:,} x {X.shape[1]:,}, lam = lam_max/{case.part:.0f} = {lam:.3e}"
    )
    print(f"  {'solver':12} {'tol':>6} {'gap':>8} {'KKT/lam':>8} {'nonzeros':>8} {'second s':>9} "
          f"{'first s':>8} {'on disk':>8} {'ratio':>6} {'first':>6}")  # fmt: skip
    with Worker() as worker:
        comparison = Comparison(
            worker, case, lambda w: gap(X, y, w, lam), GOOD, settings.limit, settings.runs
        )
        entries = [comparison.enter(solver) for solver in settings.solvers]
        comparison.time(entries)
    for e in entries:
        if e.run is not None and (e.ours or e.solver.startswith("skglm")):
            e.first = comparison.first(e)
            if e.ours:
                comparison.first(e, settings.cache)  # leaves its programs there
                e.on_disk = comparison.first(e, settings.cache)
    rival = best_of(entries)
    firsts = [e.first for e in entries if e.solver.startswith("skglm") and e.first]
    for e in entries:
        residual = None if e.run is None else criticality(X, y, e.run.w, "l1", lam)
        show(e, residual, rival, min(firsts, default=None))


def show(e: Entry, residual: float | None, rival: Entry | None, first: float | None) -> None:
    if e.run is None:
        print(f"  {e.solver:12} N/A: {e.reason}", flush=True)
        return
    ratio = first_ratio = None
    if e.ours and rival is not None:
        ratio = e.seconds / max(rival.seconds, LEAST)
    if e.ours and first is not None and e.first is not None:
        first_ratio = e.first / first
    short = e.ours and (
        e.accuracy > GOOD or (ratio or 0) > MOST or (first_ratio or 0) > MOST_FIRST
    )  # fmt: skip
    tol = "own" if SOLVERS[e.solver].ours else f"{e.tol:.0e}"
    marks = " ".join(
        "" .rjust(width) if value is None and not e.ours else number(value, form)
        for value, form, width in (
            (e.on_disk, "8.2f", 8), (ratio, "6.2f", 6), (first_ratio, "6.2f", 6),
        )
    )  # fmt: skip
    print(
        f"  {e.solver:12} {tol:>6} {e.accuracy:8.1e} {residual:8.1e} "
        f"{np.count_nonzero(e.run.w):8d} {e.seconds:9.3f} "
        f"{number(e.first, '8.2f') if e.first is not None or e.ours else ' ' * 8} {marks}"
        f"{flag(short)}{' = best' if e is rival else ''}",
        flush=True,
    )
