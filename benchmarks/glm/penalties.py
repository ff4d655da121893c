"""Table 2: MCP (gamma = 3) and SCAD (a = 3.7), the same sets and strengths, without an intercept.

skglm's time is that of its faster solver among those that get to a KKT residual of 1e-8 lam: the
problems are not convex, and there is no gap. Both solvers start at zero, as ours does.

A point from which F falls on without end, on separable data, is none: its solver is N/A.

    ratio       second call of ours / max(skglm, 0.15 s)              at most 1.0
    F - skglm   (objective - skglm's) / skglm's, of its fastest       at most 0
"""

from __future__ import annotations

import numpy as np
import sets
from calls import Case
from compare import LEAST, Comparison, Entry, best_of
from optimality import criticality, endless, objective
from settings import Settings, flag, number
from solvers import SOLVERS
from worker import NotAvailable, Worker

GOOD = 1e-8
ROUNDING = 1e-9  # objectives that are closer than this, relatively, are equal
NAMES = ("mcp", "scad")


def main(settings: Settings) -> None:
    print(f"\nMCP and SCAD, to a KKT residual of {GOOD:.0e} lam")
    for name in settings.sets:
        if sets.load(name, settings.quick) is None:
            print(f"{name}: left out, set MOSSP_DATA to a folder that has it")
            continue
        for penalty in NAMES:
            for part in settings.parts:
                compare(Case(name, settings.quick, penalty, part), settings)


def compare(case: Case, settings: Settings) -> None:
    X, y = sets.load(case.set, case.quick)
    lam = case.lam()
    print(f"\n{case.penalty} on {case.set}, {X.shape[0]:,} x {X.shape[1]:,}, "
          f"lam = lam_max/{case.part:.0f} = {lam:.3e}")  # fmt: skip
    print(f"  {'solver':12} {'tol':>6} {'KKT/lam':>8} {'F':>12} {'nonzeros':>8} {'second s':>9} "
          f"{'ratio':>6} {'F - skglm':>10}")  # fmt: skip

    def accuracy(w: np.ndarray) -> float:
        if endless(X, y, w, case.penalty, lam):
            raise NotAvailable(f"on its way to infinity, |w| = {np.linalg.norm(w):.0f}")
        return criticality(X, y, w, case.penalty, lam)

    with Worker() as worker:
        comparison = Comparison(worker, case, accuracy, GOOD, settings.limit, settings.runs)
        names = [s for s in settings.solvers if case.penalty in SOLVERS[s].penalties]
        entries = [comparison.enter(solver) for solver in names]
        comparison.time(entries)
    rival = best_of(entries)
    F = {
        e.solver: objective(X, y, e.run.w, case.penalty, lam)
        for e in entries if e.run is not None
    }  # fmt: skip
    for e in entries:
        show(e, F.get(e.solver), rival, None if rival is None else F[rival.solver])


def show(e: Entry, F: float | None, rival: Entry | None, theirs: float | None) -> None:
    if e.run is None or F is None:
        print(f"  {e.solver:12} N/A: {e.reason}", flush=True)
        return
    compared = ""
    if e.ours:
        short = e.accuracy > GOOD
        ratio = higher = None
        if rival is not None and theirs is not None:
            ratio, higher = e.seconds / max(rival.seconds, LEAST), (F - theirs) / theirs
            short |= ratio > 1 or higher > ROUNDING
        compared = f"{number(ratio, '6.2f')} {number(higher, '+10.1e')}{flag(short)}"
    tol = "own" if e.ours else f"{e.tol:.0e}"
    print(
        f"  {e.solver:12} {tol:>6} {e.accuracy:8.1e} {F:12.9f} {np.count_nonzero(e.run.w):8d} "
        f"{e.seconds:9.3f} {'= best' if e is rival else compared}",
        flush=True,
    )
