"""The solvers that are compared, ours and others', behind one signature, without intercepts.

    solver(X, y, penalty, lam, tol) -> w        X in the format that `rows_for` gives

Limits on iterations are so large that the tolerance, or the limit on time, ends every run; but for
liblinear, which goes round in circles for ever at 1e-9 or so, where its own default ends it. Rows
are given to each in the format that it works on, so that nobody pays for a conversion.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from optimality import MCP_GAMMA, SCAD_A

OUTER = 1_000  # working sets


@dataclasses.dataclass(frozen=True)
class Solver:
    """A way to solve the problem: a function of this module, and what it needs."""

    fit: Callable[..., np.ndarray]
    modules: tuple[str, ...]  # imported before anything is timed
    penalties: tuple[str, ...] = ("l1",)
    columnwise: bool = False  # wants CSC, or Fortran order
    ours: bool = False  # runs with its default tolerance

    @property
    def package(self) -> str:
        return self.modules[0].partition(".")[0]


def liblinear(X: Any, y: np.ndarray, penalty: str, lam: float, tol: float) -> np.ndarray:
    return scikit(X, y, lam, solver="liblinear", tol=tol, max_iter=100)


def saga(X: Any, y: np.ndarray, penalty: str, lam: float, tol: float) -> np.ndarray:
    return scikit(X, y, lam, solver="saga", tol=tol, max_iter=1_000_000)


def scikit(X: Any, y: np.ndarray, lam: float, **settings: Any) -> np.ndarray:
    """C sum_i loss_i + |w|_1: C = 1 / (N lam)."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        l1_ratio=1.0, C=1 / (len(y) * lam), fit_intercept=False, random_state=0, **settings
    )  # fmt: skip
    return model.fit(X, y).coef_[0]


def skglm(
    X: Any, y: np.ndarray, penalty: str, lam: float, tol: float, *, solver: str,
    start: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    from skglm import datafits, penalties, solvers

    penalized = {
        "l1": lambda: penalties.L1(lam),
        "mcp": lambda: penalties.MCPenalty(lam, MCP_GAMMA),
        "scad": lambda: penalties.SCAD(lam, SCAD_A),
    }[penalty]()
    engine = getattr(solvers, solver)(max_iter=OUTER, tol=tol, fit_intercept=False)
    given = () if start is None else (start.copy(), X @ start)
    return engine.solve(X, y, datafits.Logistic(), penalized, *given)[0]


def celer(
    X: Any, y: np.ndarray, penalty: str, lam: float, tol: float, *, newton: bool
) -> np.ndarray:
    from celer import celer_path

    return celer_path(
        X, y, "logreg", alphas=[len(y) * lam], tol=tol, max_iter=OUTER, use_PN=newton
    )[1][:, 0]  # fmt: skip


def regularizer(penalty: str, lam: float) -> Any:
    import mossp

    return {
        "l1": lambda: mossp.L1(lam),
        "mcp": lambda: mossp.MCP(lam, MCP_GAMMA),
        "scad": lambda: mossp.SCAD(lam, SCAD_A),
    }[penalty]()


def ours_fit(X: Any, y: np.ndarray, penalty: str, lam: float, tol: float | None) -> np.ndarray:
    from mossp.sklearn import MoSSPClassifier

    model = MoSSPClassifier(regularizer=regularizer(penalty, lam), fit_intercept=False, tol=tol)
    return model.fit(X, y).coef_[0]


def ours_solve(X: Any, y: np.ndarray, penalty: str, lam: float, tol: float | None) -> np.ndarray:
    import mossp

    problem = mossp.Problem(mossp.losses.logistic, (X, y), regularizer(penalty, lam))
    return np.asarray(mossp.solve(problem, np.zeros(X.shape[1]), tol=tol).x)


ALL = ("l1", "mcp", "scad")
SKGLM = ("skglm.solvers", "skglm.datafits", "skglm.penalties")
SOLVERS = {
    "liblinear": Solver(liblinear, ("sklearn.linear_model",)),
    "saga": Solver(saga, ("sklearn.linear_model",)),
    "skglm CD": Solver(functools.partial(skglm, solver="AndersonCD"), SKGLM, ALL, columnwise=True),
    "skglm PN": Solver(functools.partial(skglm, solver="ProxNewton"), SKGLM, ALL, columnwise=True),
    "celer CD": Solver(functools.partial(celer, newton=False), ("celer",), columnwise=True),
    "celer PN": Solver(functools.partial(celer, newton=True), ("celer",), columnwise=True),
    "ours: fit": Solver(ours_fit, ("mossp.sklearn",), ALL, ours=True),
    "ours: solve": Solver(ours_solve, ("mossp",), ALL, ours=True),
}


def rows_for(solver: Solver, X: Any) -> Any:
    if scipy.sparse.issparse(X):
        return X.tocsc() if solver.columnwise else X.tocsr()
    return np.asfortranarray(X) if solver.columnwise else np.ascontiguousarray(X)


def import_for(solver: Solver) -> None:
    for module in solver.modules:
        importlib.import_module(module)
