"""One timed call of one solver, as it runs in a worker; data are made and kept there."""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import numpy as np
import sets
from solvers import SOLVERS, import_for, regularizer, rows_for


class Case(NamedTuple):
    """A problem: a data set, a penalty, and lam = lam_max / part."""

    set: str
    quick: bool
    penalty: str
    part: float

    def lam(self) -> float:
        return sets.largest_strength(*sets.load(self.set, self.quick)) / self.part

    def lams(self, count: int) -> np.ndarray:
        """From lam_max down to lam_max / part."""
        return np.geomspace(self.part * self.lam(), self.lam(), count)


class Run(NamedTuple):
    """What a call took, and what it returned: w, or one w a strength."""

    seconds: float
    w: np.ndarray


@functools.cache
def prepared(solver: str, name: str, quick: bool) -> tuple[Any, np.ndarray]:
    """(X, y) as the solver wants them; what it imports is imported."""
    import_for(SOLVERS[solver])
    X, y = sets.load(name, quick)
    return rows_for(SOLVERS[solver], X), y


def ready(solver: str, case: Case) -> None:
    prepared(solver, case.set, case.quick)


def single(solver: str, case: Case, tol: float | None) -> Run:
    """One strength, from zeros."""
    X, y = prepared(solver, case.set, case.quick)
    lam = case.lam()
    began = time.perf_counter()
    w = SOLVERS[solver].fit(X, y, case.penalty, lam, tol)
    return Run(time.perf_counter() - began, w)


def along_path(solver: str, case: Case, tol: float | None, count: int) -> Run:
    """So many strengths, from lam_max down, each started from the one before."""
    X, y = prepared(solver, case.set, case.quick)
    lams = case.lams(count)
    began = time.perf_counter()
    if SOLVERS[solver].ours:
        import mossp

        problem = mossp.Problem(mossp.losses.logistic, (X, y), regularizer(case.penalty, lams[0]))
        ws = mossp.path(problem, lams, np.zeros(X.shape[1]), tol=tol).xs
    else:
        ws, w = [], np.zeros(X.shape[1])
        for lam in lams:
            w = SOLVERS[solver].fit(X, y, case.penalty, float(lam), tol, start=w)
            ws.append(w)
    return Run(time.perf_counter() - began, np.asarray(ws))
