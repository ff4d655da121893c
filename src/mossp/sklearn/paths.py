"""A linear model at many strengths of its regulariser, and which strengths these are."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from sklearn.base import clone

from mossp._base.device import on_device
from mossp._base.disk import on_by_default
from mossp._base.power import spectral_norm
from mossp._base.programs import compiled
from mossp._base.types import PyTree, Scalar, Vector
from mossp.newton.descent import evaluated
from mossp.newton.residual import KKT
from mossp.oracles import Oracles
from mossp.result import Result, Status
from mossp.sklearn.formulation import Parameters, formulate, penalty_of
from mossp.sklearn.limited import best_found
from mossp.sklearn.promises import has_rates
from mossp.sklearn.rates import rated
from mossp.sklearn.rows import Rows, checked_rows
from mossp.solving.path import Path, checked_strengths, path, with_regularizer
from mossp.solving.solve import solve

SMALLEST = 1e-3  # of the strength that makes all coefficients zero
MISSED = 2  # strengths in a row at which rates are not met, after which a path ends
# A ridge makes none zero. Of the largest curvature of the loss: at the first, a tenth is left of a
# coefficient at most; at the last, only directions that the data hardly see are held back.
RIDGE = (10.0, 1e-5)


def regularization_path(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None,
    lams: Any = 20, offset: Any = None,
) -> Path:  # fmt: skip
    """The model at other strengths, each started from the one before; it is not fitted itself.

    Parameters
    ----------
    estimator : MoSSPClassifier or MoSSPRegressor
        The model; its own `lam` does not matter.
    X, y, sample_weight, sensitive, offset
        As for its `fit`.
    lams : int or sequence of float
        Strengths, or how many: from the one that makes all coefficients zero down to a thousandth
        of it; of a ridge, which makes none zero, from ten times the largest curvature of the loss
        down to a millionth of that.

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
    rows = checked_rows(model, X, y, sample_weight, sensitive, offset).balanced()
    return path_of(vars(model), rows, strengths(lams, vars(model), rows))


@on_by_default()
def solution(params: Parameters, rows: Rows, start: PyTree | None = None) -> Result:
    """The model with these parameters, on these rows."""
    if has_rates(params):
        return rated(params, rows, start)
    if params["max_features"] is not None:
        found = best_found(params, rows)
        if found is not None and (found.success or found.status is Status.DIVERGED):
            return found
    problem, x0, settings = formulate(params, rows, start)
    return solve(problem, x0, **settings)


@on_by_default()
def path_of(params: Parameters, rows: Rows, lams: np.ndarray) -> Path:
    """The model with these parameters at every strength, on these rows."""
    if has_rates(params):
        return rated_path(params, rows, lams)
    problem, x0, settings = formulate({**params, "lam": 1.0}, rows)
    return path(
        problem, lams, x0, regularizer=lambda lam: penalty_of(params, rows, lam), **settings
    )


def rated_path(params: Parameters, rows: Rows, lams: np.ndarray) -> Path:
    """The same with rates, from the weakest strength on, whose answers meet them most easily.

    Where two in a row do not, stronger ones, which have fewer coefficients to meet them with, are
    not tried: the last answer stands for theirs, and says that it does not meet the rates.
    """
    results: list[Result] = []
    missed = 0
    for lam in lams[::-1].tolist():
        if missed == MISSED:
            results.append(results[-1])
            continue
        start = results[-1].x if results and np.isfinite(results[-1].fun) else None
        results.append(rated({**params, "lam": lam}, rows, start, thorough=False))
        if results[-1].status is Status.INTERRUPTED:
            break
        missed = 0 if results[-1].settings.get("rates", {}).get("met", False) else missed + 1
    return Path(lams[::-1][: len(results)][::-1], results[::-1])


def strengths(lams: Any, params: Parameters, rows: Rows) -> np.ndarray:
    """The strengths that were given, or so many below the largest that matters; falling."""
    if isinstance(lams, (int, np.integer)) and not isinstance(lams, bool):
        if lams < 1:
            raise ValueError(f"lams must be at least 1, but {lams} was given.")
        # Where all coefficients are zero, rows are not told apart: no rate is kept by that.
        useless = 1 if has_rates(params) else 0
        return np.geomspace(*ends_of_strengths(params, rows), lams + useless)[useless:]
    return np.sort(checked_strengths(lams))[::-1]


@on_by_default()
def ends_of_strengths(params: Parameters, rows: Rows) -> tuple[float, float]:
    """The strength from which on all coefficients are zero, no constraint forbidding it, and less.

    They are where -grad f, the intercept at its best, is an element of dh(0).
    """
    free = {**params, "lam": 1.0, "equality": None, "inequality": None}
    problem, x0, settings = formulate(free, rows)
    with jax.enable_x64(True):
        oracles = problem.oracles(x0)
        kkt = KKT.of(oracles, np.float64)
        slope = lambda x: evaluated(kkt, x).gradient  # noqa: E731
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

    if np.abs(w[on_coef]).max() > 0 and not zeros(steep):
        seen = np.zeros(len(zero))
        seen[on_coef] = 1.0
        with jax.enable_x64(True):
            x = on_device(oracles.structure.ravel(alone))
            curvature = float(largest_curvature(oracles, x, on_device(seen)))
        first, last = (part * (curvature or 1.0) for part in RIDGE)
        return first, last
    low, high = 0.0, steep
    while high - low > 1e-9 * high:
        middle = (low + high) / 2 if low else high / 2
        if zeros(middle):
            high = middle
        else:
            low = middle
        if high < 1e-12 * steep:  # f is flat
            return 1.0, SMALLEST
    top = (1 + 1e-6) * high  # safely on the side of zeros
    return top, SMALLEST * top


@compiled
def largest_curvature(oracles: Oracles, x: Vector, seen: Vector) -> Scalar:
    """Of f at x along the entries that are seen, those marked by 1."""

    def product(v: Vector) -> Vector:
        return seen * jax.jvp(oracles.full_gradient, (x,), (seen * v,))[1]

    return spectral_norm(product, x.size, x.dtype)
