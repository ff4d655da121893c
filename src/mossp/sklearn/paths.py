"""A linear model at many strengths of its regulariser, and which strengths these are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import clone

from mossp._base.types import PyTree
from mossp.certificates.stationarity import full_gradient
from mossp.result import Result, Status
from mossp.sklearn.formulation import Parameters, formulate, penalty_of
from mossp.sklearn.promises import has_rates
from mossp.sklearn.rates import rated
from mossp.sklearn.rows import Rows, checked_rows
from mossp.solving.path import Path, checked_strengths, path, with_regularizer
from mossp.solving.solve import solve

SMALLEST = 1e-3  # of the strength that makes all coefficients zero


def regularization_path(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None,
    lams: Any = 20,
) -> Path:  # fmt: skip
    """The model at other strengths, each started from the one before; it is not fitted itself.

    Parameters
    ----------
    estimator : MoSSPClassifier or MoSSPRegressor
        The model; its own `lam` does not matter.
    X, y, sample_weight, sensitive
        As for its `fit`.
    lams : int or sequence of float
        Strengths, or how many: from the one that makes all coefficients zero down to a thousandth
        of it.

    Examples
    --------
    >>> from mossp.sklearn import MoSSPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 3))
    >>> y = X[:, 0] - 0.5 * X[:, 1]
    >>> found = regularization_path(MoSSPRegressor(fit_intercept=False), X, y, lams=[2, 0.7, 0.1])
    >>> found.nonzeros.tolist()
    [0, 1, 2]
    """
    model = clone(estimator)
    rows = checked_rows(model, X, y, sample_weight, sensitive).balanced()
    return path_of(vars(model), rows, strengths(lams, vars(model), rows))


def solution(params: Parameters, rows: Rows, start: PyTree | None = None) -> Result:
    """The model with these parameters, on these rows."""
    if has_rates(params):
        return rated(params, rows, start)
    problem, x0, settings = formulate(params, rows, start)
    return solve(problem, x0, **settings)


def path_of(params: Parameters, rows: Rows, lams: np.ndarray) -> Path:
    """The model with these parameters at every strength, on these rows."""
    if has_rates(params):
        results: list[Result] = []
        for lam in lams.tolist():  # falling
            start = results[-1].x if results and np.isfinite(results[-1].fun) else None
            results.append(rated({**params, "lam": lam}, rows, start, thorough=False))
            if results[-1].status is Status.INTERRUPTED:
                break
        return Path(lams[: len(results)], results)
    problem, x0, settings = formulate({**params, "lam": 1.0}, rows)
    return path(
        problem, lams, x0, regularizer=lambda lam: penalty_of(params, rows, lam), **settings
    )


def strengths(lams: Any, params: Parameters, rows: Rows) -> np.ndarray:
    """The strengths that were given, or so many below the largest that matters; falling."""
    if isinstance(lams, (int, np.integer)) and not isinstance(lams, bool):
        if lams < 1:
            raise ValueError(f"lams must be at least 1, but {lams} was given.")
        top = largest_strength(params, rows)
        return np.geomspace(top, SMALLEST * top, lams)
    return np.sort(checked_strengths(lams))[::-1]


def largest_strength(params: Parameters, rows: Rows) -> float:
    """The strength from which on all coefficients are zero, if no constraint forbids it.

    They are where -grad f, the intercept at its best, is an element of dh(0).
    """
    free = {**params, "lam": 1.0, "equality": None, "inequality": None}
    problem, x0, settings = formulate(free, rows)
    with jax.enable_x64(True):
        oracles = problem.oracles(x0)
        slope = lambda x: np.asarray(full_gradient(oracles, jnp.asarray(x)))  # noqa: E731
        zero = np.zeros(oracles.structure.size)
        steep = 1e3 * float(np.abs(slope(zero)).max()) or 1.0
    alone = solve(with_regularizer(problem, penalty_of(params, rows, steep)), x0, **settings).x
    with jax.enable_x64(True):
        w = -slope(oracles.structure.ravel(alone))
    on_coef = slice(*oracles.structure.slices["coef"])

    def zeros(lam: float) -> bool:
        reg = penalty_of(params, rows, lam).on(oracles.structure.slices)
        left = np.asarray(reg.nearest_h(zero, w), float) - w
        return bool(np.abs(left[on_coef]).max() <= 1e-9 * np.abs(w).max())

    low, high = 0.0, steep
    while high - low > 1e-9 * high:
        middle = (low + high) / 2 if low else high / 2
        if zeros(middle):
            high = middle
        else:
            low = middle
        if high < 1e-12 * steep:  # f is flat
            return 1.0
    return (1 + 1e-6) * high  # safely on the side of zeros
