"""Linear scores for the first part of the ROC curve: false positive rates in [min_fpr, max_fpr].

Let m_i be the scores of positives, n_j those of negatives, and

    G_j(w) = mean_i (1 - m_i + n_j)_+^2        how far negative j is above the positives

A partial AUC up to the rate b looks at the share b of negatives with the highest scores. G_j grows
with n_j, so that these have the largest G_j whatever the positives are: the surrogate is the mean
of the largest G_j, one sort of the scores. A range [a, b] is a difference of two such sums,

    ( T_b(G) - T_a(G) ) / (b - a),    T_s(G) = max over 0 <= q_j <= 1/N, sum_j q_j = s of q'G

which is a difference of convex functions of w: T_a is the concave part. All G_j take O(N log N) by
sums over the sorted positives. T_s has kinks where scores are tied; it is smoothed by

    min_t  s t + mean_j delta log(1 + exp((G_j - t) / delta)).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from mossp._base.disk import on_by_default
from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.types import Array, HostArray, Number, PyTree, Scalar
from mossp.data import SparseRows, is_sparse
from mossp.expected import Expected
from mossp.problem import Problem
from mossp.result import Result
from mossp.sklearn.answers import coefficients_of, set_result
from mossp.sklearn.formulation import constraints_of, penalty_of, settings_of, start_of
from mossp.sklearn.linear import LinearEstimator
from mossp.sklearn.positive import is_plain
from mossp.sklearn.rows import Rows, checked_rows
from mossp.smoothing import HALVINGS, Smooth
from mossp.solving.solve import solve

WEAK = 1e-3  # a strength that suits features of unit scale


class TopShare(Module):
    """factor T_s(G), of x = {"coef"} and all rows."""

    positives: Any  # rows
    negatives: Any
    u: Any  # weights of the positives, with sum 1
    v: Any  # and of the negatives
    share: Number  # s
    factor: Number
    delta: Number

    def __call__(self, x: PyTree) -> Any:
        m, n = self.positives @ x["coef"], self.negatives @ x["coef"]
        return self.factor * smoothed_top(above(m, n, self.u), self.v, self.share, self.delta)


def above(m: Array, n: Array, u: Array) -> Array:
    """G: for each negative the mean of (1 - m_i + n_j)_+^2 over positives with weights u.

    Examples
    --------
    >>> above(jnp.array([1.0, 3.0]), jnp.array([0.0, 1.0]), jnp.array([0.5, 0.5])).tolist()
    [0.0, 0.5]
    """
    order = jnp.argsort(m)
    m, u = m[order], u[order]
    zero = jnp.zeros(1, m.dtype)
    # Sums over the positives below each place, from which the square is put together.
    sums = [jnp.concatenate([zero, jnp.cumsum(u * m**power)]) for power in (0, 1, 2)]
    t = 1 + n
    below = jnp.searchsorted(lax.stop_gradient(m), lax.stop_gradient(t))
    weight, first, second = (each[below] for each in sums)
    return jnp.maximum(t * t * weight - 2 * t * first + second, 0.0)


def smoothed_top(G: Array, v: Array, share: Number, delta: Number) -> Scalar:
    """min_t share t + sum_j v_j delta log(1 + exp((G_j - t) / delta)), twice differentiable."""
    fixed = lax.stop_gradient(G)
    wide = delta * jnp.abs(jnp.log(share / (1 - share)))

    def halve(_: Any, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        more = jnp.sum(v * jax.nn.sigmoid((fixed - middle) / delta)) > share
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    low, high = lax.fori_loop(0, HALVINGS, halve, (jnp.min(fixed) - wide, jnp.max(fixed) + wide))
    t = (low + high) / 2
    each = jax.nn.sigmoid((fixed - t) / delta)
    slope = jnp.maximum(jnp.sum(v * each * (1 - each)) / delta, jnp.finfo(G.dtype).tiny ** 0.5)
    # One Newton step changes nothing, but has the derivative of t.
    t = t + (jnp.sum(v * jax.nn.sigmoid((G - t) / delta)) - share) / slope
    return share * t + jnp.sum(v * delta * jax.nn.softplus((G - t) / delta))


def partial_auc(
    y: Any, scores: Any, max_fpr: float = 1.0, min_fpr: float = 0.0, sample_weight: Any = None
) -> float:
    """The area under the ROC curve over false positive rates in a range, divided by its length.

    Parameters
    ----------
    y : array
        Whether a row is positive, or labels whose larger one is.
    scores : array
        High for positives.
    max_fpr, min_fpr : float
        The range.
    sample_weight : array, optional
        One a row.

    Returns
    -------
    float
        The mean true positive rate over the range: 1 for a perfect ranking.

    Examples
    --------
    >>> y, scores = [0, 0, 0, 0, 1, 1], [0.1, 0.2, 0.3, 0.6, 0.5, 0.9]
    >>> partial_auc(y, scores), partial_auc(y, scores, max_fpr=0.25)
    (0.875, 0.5)
    """
    y, scores = np.asarray(y), np.asarray(scores, np.float64)
    positive = y == np.unique(y)[-1]
    weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)  # of rows that are tied
    tpr = np.append(0, np.cumsum((weights * positive)[order])[last] / weights[positive].sum())
    fpr = np.append(0, np.cumsum((weights * ~positive)[order])[last] / weights[~positive].sum())
    # The area up to a rate is a broken line's integral.
    area = np.append(0, np.cumsum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2))

    def up_to(rate: float) -> float:
        k = int(np.searchsorted(fpr, rate, side="right")) - 1
        if k == len(fpr) - 1:
            return float(area[-1])
        length, rise = fpr[k + 1] - fpr[k], tpr[k + 1] - tpr[k]
        part = rate - fpr[k]
        return float(area[k] + part * (tpr[k] + rise * part / (2 * length)))

    return (up_to(max_fpr) - up_to(min_fpr)) / (max_fpr - min_fpr)


class PartialAUCClassifier(ClassifierMixin, LinearEstimator):
    """Linear scores with the largest partial AUC, sparse and under constraints.

    Parameters
    ----------
    max_fpr, min_fpr : float
        The range of false positive rates, 0 <= min_fpr < max_fpr <= 1.
    delta : float
        Smooths which negatives count, in units of the squared hinge.
    regularizer, lam, equality, inequality, nonnegative, feature_weights
        As for `MoSSPClassifier`; `lam` left out is 1e-3, which suits features of unit scale.
    method, steps, polish, tol, n_starts, n_replicas, warm_start, random_state, dtype
        As for `MoSSPClassifier`.

    Attributes
    ----------
    coef_ : array of shape (1, n_features)
        Coefficients of the scores.
    intercept_ : array of shape (1,)
        Such that `predict` calls the share `max_fpr` of the training negatives positive.
    classes_ : array
        Two; positives are the second.
    partial_auc_ : float
        The true partial AUC on the training rows, divided by the length of the range.
    surrogate_ : float
        What was minimised in its place, without the regulariser.
    certificate_, violation_, result_, n_iter_
        As for `MoSSPClassifier`.

    Notes
    -----
    A pass costs a sort of the scores, O(N log N), and all rows are looked at in every one. The
    surrogate is convex for `min_fpr = 0`; else it is a difference of convex functions, and the
    certificate is of a critical point. It is of the smoothed surrogate.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> y = (X[:, 0] + 0.5 * rng.normal(size=500) > 1).astype(int)
    >>> model = PartialAUCClassifier(max_fpr=0.1).fit(X, y)
    >>> bool(model.partial_auc_ > 0.6), bool(model.certificate_.is_kkt(1e-8))
    (True, True)
    >>> round(float(model.predict(X)[y == 0].mean()), 2)
    0.1
    """

    class_weight = None  # rows are weighed within their class: only ranks between classes matter

    def __init__(
        self,
        max_fpr: float = 0.1,
        min_fpr: float = 0.0,
        *,
        delta: float = 0.05,
        regularizer: Any = "l1",
        lam: float | None = None,
        equality: Any = None,
        inequality: Any = None,
        nonnegative: bool = False,
        feature_weights: Any = None,
        method: Any = "auto",
        steps: int | None = None,
        polish: bool | None = None,
        tol: float | None = None,
        n_starts: int = 1,
        n_replicas: int = 1,
        warm_start: bool = False,
        random_state: Any = None,
        dtype: str = "float64",
    ) -> None:
        super().__init__(
            regularizer=regularizer, lam=lam, equality=equality, inequality=inequality,
            nonnegative=nonnegative, feature_weights=feature_weights, method=method, steps=steps,
            polish=polish, tol=tol, n_starts=n_starts, n_replicas=n_replicas,
            warm_start=warm_start, random_state=random_state, dtype=dtype,
        )  # fmt: skip
        self.max_fpr = max_fpr
        self.min_fpr = min_fpr
        self.delta = delta

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None, offset: Any = None
    ) -> PartialAUCClassifier:
        """Fit to rows X with two classes y.

        Parameters
        ----------
        X, y
            Rows and their classes.
        sample_weight : array, optional
            One a row.
        sensitive : optional
            Attributes of the rows, for bounds of `mossp.fairness`.
        offset : None
            Not taken.
        """
        if offset is not None:
            raise ValueError("PartialAUCClassifier takes no offset: make it a column of X.")
        rows = checked_rows(self, X, y, sample_weight, sensitive).balanced()
        low, high, delta = self._checked(rows)
        result, surrogate = self._minimised(rows, low, high, delta)
        set_result(self, result, rows)
        scores = np.asarray(rows.X @ self.coef_[0])
        self.partial_auc_ = partial_auc(rows.labels, scores, high, low, rows.weights)
        self.surrogate_ = surrogate
        self.intercept_ = np.array([-threshold(scores, rows, high)])
        return self

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """The score of every row, positive for classes_[1]."""
        return self._scores(X, offset)

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """The class of every row, at the false positive rate `max_fpr` of the training rows."""
        scores = self._scores(X, offset)
        return self.classes_[(scores > 0).astype(int)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy on these rows; `mossp.sklearn.partial_auc` tells more."""
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    def _checked(self, rows: Rows) -> tuple[float, float, float]:
        if rows.outputs:
            raise ValueError("Only binary classification is supported: a ROC curve is of two.")
        for name in ("max_fpr", "min_fpr", "delta"):
            given = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, (int, float, np.number)):
                raise TypeError(f"{name} must be a number, but {shown(given)} was given.")
        low, high, delta = float(self.min_fpr), float(self.max_fpr), float(self.delta)
        if not 0 <= low < high <= 1:
            raise ValueError(
                "The range of false positive rates needs 0 <= min_fpr < max_fpr <= 1, but "
                f"min_fpr = {low:g} and max_fpr = {high:g} were given."
            )
        if not 0 < delta < np.inf:
            raise ValueError(f"delta must be positive, but {delta:g} was given.")
        return low, high, delta

    @on_by_default()
    def _minimised(self, rows: Rows, low: float, high: float, delta: float) -> tuple[Result, float]:
        """(the answer, the surrogate at it)."""
        params = {**vars(self), "fit_intercept": False}
        if self.lam is None and is_plain(self.regularizer):
            params["lam"] = WEAK
        most = 1 - 1e-9  # all negatives: smoothing has nothing to choose from
        loss = self._top(rows, min(high, most), 1 / (high - low), delta)
        concave = Smooth(self._top(rows, low, 1 / (high - low), delta)) if low else None
        problem = Problem(
            loss, regularizer=penalty_of(params, rows, params["lam"]), concave=concave,
            **given_rows(constraints_of(params, rows), rows.data(rows.labels)),
        )  # fmt: skip
        start = coefficients_of(self) if self.warm_start else None
        result = solve(problem, start_of(params, rows, start), **settings_of(params))
        with jax.enable_x64(True):
            x = jax.tree.map(jnp.asarray, result.x)
            surrogate = float(loss(x)) - (float(concave(x)) if concave is not None else 0.0)
        return result, surrogate

    def _top(self, rows: Rows, share: float, factor: float, delta: float) -> TopShare:
        positive = rows.labels > 0
        X = rows.X
        P, Q = (
            SparseRows.of(X[k]) if is_sparse(X) else np.asarray(X[k], np.float64)
            for k in (positive, ~positive)
        )
        u, v = (rows.weights[k] / rows.weights[k].sum() for k in (positive, ~positive))
        return TopShare(P, Q, u, v, np.array(share), np.array(factor), np.array(delta))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def given_rows(constraints: dict[str, Any], arrays: tuple[Any, ...]) -> dict[str, Any]:
    """Means over rows among the constraints get the rows that are fitted to, as rows of their own.

    (The loss is no mean over rows, and has none to share.)
    """

    def with_rows(part: Any) -> Any:
        own = isinstance(part, Expected) and part.data is None
        return Expected(part.function, arrays, part.batch_size) if own else part

    return {
        side: {name: with_rows(part) for name, part in given.items()}
        if isinstance(given, dict)
        else given
        for side, given in constraints.items()
    }


def threshold(scores: HostArray, rows: Rows, rate: float) -> float:
    """The score that the share `rate` of the negatives exceed; between two that occur."""
    negative = (rows.labels < 0) & (rows.weights > 0)
    levels, place = np.unique(-scores[negative], return_inverse=True)  # the highest first
    weights = np.bincount(place, rows.weights[negative])
    above = np.cumsum(weights) / weights.sum()
    k = int(np.searchsorted(above, rate + 1e-12, side="right"))
    if k == 0:  # not even one negative may be above: between it and the next row
        higher = scores[(scores > -levels[0]) & (rows.weights > 0)]
        return float((higher.min() - levels[0]) / 2 if len(higher) else 1.0 - levels[0])
    return float(-levels[-1] - 1.0) if k == len(levels) else float(-(levels[k - 1] + levels[k]) / 2)
