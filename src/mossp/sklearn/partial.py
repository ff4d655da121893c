"""Linear scores for the first part of the ROC curve: false positive rates in [min_fpr, max_fpr]."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from mossp._base.disk import on_by_default
from mossp._base.printing import shown
from mossp._base.types import HostArray, PyTree, Scalar
from mossp._base.validation import check_choice, whole
from mossp.data import Sampler, SparseRows, is_sparse
from mossp.expected import Expected
from mossp.problem import Problem
from mossp.result import Result
from mossp.sklearn.answers import coefficients_of, set_result
from mossp.sklearn.formulation import constraints_of, penalty_of, settings_of, start_of
from mossp.sklearn.levels import level
from mossp.sklearn.linear import LinearEstimator
from mossp.sklearn.promises import has_rates
from mossp.sklearn.ranks import BlockLoss, Blocks, Range, Ranked, TopShare, block_shape
from mossp.sklearn.rows import Rows, checked_rows
from mossp.sklearn.strengths import is_plain, of_ranks
from mossp.smoothing import Smooth
from mossp.solving.solve import solve

SURROGATES = ("mixed", "wide", "range")
FULL = "full"  # passes over all rows
MOST = 50_000_000  # entries of X that full passes look at unless asked
BLOCK = 1024  # rows of a mini-batch of pairs


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
    # The area above the curve up to a rate is a broken line's integral; of a perfect ranking it is
    # 0, without rounding.
    missed = 1 - tpr
    area = np.append(0, np.cumsum(np.diff(fpr) * (missed[1:] + missed[:-1]) / 2))

    def up_to(rate: float) -> float:
        k = int(np.searchsorted(fpr, rate, side="right")) - 1
        if k == len(fpr) - 1:
            return float(area[-1])
        length, rise = fpr[k + 1] - fpr[k], missed[k + 1] - missed[k]
        part = rate - fpr[k]
        return float(area[k] + part * (missed[k] + rise * part / (2 * length)))

    return 1 - (up_to(max_fpr) - up_to(min_fpr)) / (max_fpr - min_fpr)


class Classes(NamedTuple):
    """Rows of positives and of negatives, and their weights, which have the sum 1 in each."""

    positives: Any
    negatives: Any
    u: HostArray
    v: HostArray
    ratio: HostArray  # of the sums of weights, negatives by positives

    @classmethod
    def of(cls, rows: Rows) -> Classes:
        positive, X = rows.labels > 0, rows.X
        P, Q = (
            SparseRows.of(X[k]) if is_sparse(X) else np.asarray(X[k], np.float64)
            for k in (positive, ~positive)
        )
        u, v = rows.weights[positive], rows.weights[~positive]
        return cls(P, Q, u / u.sum(), v / v.sum(), np.array(v.sum() / u.sum()))

    def top(self, part: Range, delta: float) -> TopShare:
        return TopShare(*self, Ranked.of(part, delta))


class PartialAUCClassifier(ClassifierMixin, LinearEstimator):
    """Linear scores with the largest partial AUC, regularised and under constraints.

    Parameters
    ----------
    max_fpr, min_fpr : float
        The range of false positive rates, 0 <= min_fpr < max_fpr <= 1.
    surrogate : {"mixed", "wide", "range"}
        "range": that of the range alone, a difference of convex functions unless `min_fpr` is 0.
        "wide": the surrogate's mean over the rates up to `max_fpr` and those up to twice as many,
        which is convex and looks at more negatives than the range has. "mixed", the default: a
        fifth of "wide", and four fifths of the logistic loss of all rows, which has the smallest
        variance where labels follow a logistic model. (Of separable rows it has no minimum without
        a regulariser.)
    delta : float
        Smooths which negatives count, in units of the squared hinge.
    regularizer, lam, equality, inequality, nonnegative, feature_weights
        As for `MoSSPClassifier`, except that the regulariser is a ridge unless asked otherwise
        (`regularizer="l1"` has exact zeros), and `lam` left out is measured by what chance makes of
        the gradient (Notes).
    rates : None
        Not taken: a rate is of decisions at one threshold, and a partial AUC of ranks over a range
        of them. Use `MoSSPClassifier(rates="fpr <= 0.1")` for a bound, or constraints, bounds of
        `mossp.fairness` among them.
    batch_size : int or "full", optional
        "full": every pass looks at all rows. A number: so many rows are a mini-batch of pairs.
        Left out, "full" for up to 5e7 entries of X, and 1024 for more.
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
    A full pass costs a sort of the scores, O(N log N). The surrogate is convex, and the answer its
    minimum, but for a "range" that does not begin at 0: then the certificate is of a critical
    point. It is of the smoothed surrogate.

    A mini-batch is a block of some positives and some negatives, drawn anew for every step, with
    all pairs between them. The mean over all blocks is what is minimised then: the share `max_fpr`
    of a block's negatives stands for that of all, with a bias of order 1 / (max_fpr batch_size).
    The certificate is of that mean, from fresh blocks, at `tol` = 1e-2 unless asked otherwise;
    `surrogate_`, `partial_auc_` and the intercept are of all rows in either case.

    Left out, `lam` is sum_j Var(x_j) k for a ridge, where `k = 1/n_+ + 1/(length n_-)` for `n_+`
    positives and `n_-` negatives, and the length is max_fpr - min_fpr of a "range", 4/3 max_fpr of
    "wide", as long as 2 max_fpr <= 1, and of "mixed" 1 / (0.8 + 0.2 / that); for every other
    regulariser 0.2 (2 log(2 n_features) k)^{1/2} times the usual scale of a feature.

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

    class_weight = None  # a class as a whole has no weight: ranks between classes matter

    def __init__(
        self,
        max_fpr: float = 0.1,
        min_fpr: float = 0.0,
        *,
        surrogate: str = "mixed",
        delta: float = 0.05,
        regularizer: Any = "ridge",
        lam: float | None = None,
        equality: Any = None,
        inequality: Any = None,
        rates: Any = None,
        nonnegative: bool = False,
        feature_weights: Any = None,
        method: Any = "auto",
        steps: int | None = None,
        batch_size: int | str | None = None,
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
            rates=rates, nonnegative=nonnegative, feature_weights=feature_weights,
            method=method, steps=steps, batch_size=batch_size, polish=polish, tol=tol,
            n_starts=n_starts, n_replicas=n_replicas, warm_start=warm_start,
            random_state=random_state, dtype=dtype,
        )  # fmt: skip
        self.max_fpr = max_fpr
        self.min_fpr = min_fpr
        self.surrogate = surrogate
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
        negative, counts = rows.labels < 0, rows.weights > 0
        cut = level(scores[negative], rows.weights[negative], high, others=scores[counts])
        self.intercept_ = np.array([-cut])
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
        if has_rates(vars(self)):
            raise ValueError(
                "PartialAUCClassifier takes no rates: a rate is of decisions at one threshold, and "
                "a partial AUC of ranks over a range of them. predict has the false positive rate "
                "max_fpr on the training rows; for other bounds use MoSSPClassifier(rates=...)."
            )
        if rows.outputs:
            raise ValueError("Only binary classification is supported: a ROC curve is of two.")
        check_choice("surrogate", self.surrogate, SURROGATES)
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
        params = {**vars(self), "fit_intercept": False, "batch_size": None}
        if self.surrogate == "range":
            of = Range.alone(low, high)
        else:
            of = Range.wide(high) if self.surrogate == "wide" else Range.mixed(high)
        if self.lam is None and is_plain(self.regularizer):
            params["lam"] = of_ranks(rows, of.length, self.regularizer)
        size = self._block_size(rows)
        parts = Classes.of(rows)
        added, taken = of.parts()
        upper, lower = parts.top(added, delta), taken and parts.top(taken, delta)
        stated: dict[str, Any] = {"loss": upper, "concave": lower and Smooth(lower)}
        if size is not None:
            loss = BlockLoss(parts.positives, parts.negatives, parts.ratio, Ranked.of(of, delta))
            shape = block_shape(size, high)
            stated = {"loss": loss, "data": Sampler(Blocks.of(parts.u, parts.v, *shape))}
            params["batch_size"] = 1  # block a step
        problem = Problem(
            **stated, regularizer=penalty_of(params, rows, params["lam"]),
            **given_rows(constraints_of(params, rows), rows.data(rows.labels)),
        )  # fmt: skip
        start = coefficients_of(self) if self.warm_start else None
        result = solve(problem, start_of(params, rows, start), **settings_of(params))
        with jax.enable_x64(True):
            x = jax.tree.map(jnp.asarray, result.x)
            surrogate = float(value(upper, x)) - (0.0 if lower is None else float(value(lower, x)))
        return result, surrogate

    def _block_size(self, rows: Rows) -> int | None:
        """Rows of a mini-batch; None for full passes."""
        if self.batch_size is None:
            entries = rows.X.nnz if is_sparse(rows.X) else rows.X.size
            return BLOCK if entries > MOST else None
        if isinstance(self.batch_size, str):
            if self.batch_size != FULL:
                raise ValueError(
                    f"batch_size must be a whole number or 'full', but {shown(self.batch_size)} "
                    "was given."
                )
            return None
        return whole("batch_size", self.batch_size, 2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@jax.jit
def value(share: TopShare, x: PyTree) -> Scalar:
    """share(x) as one program: by themselves, some 35 operations are compiled one by one."""
    return share(x)


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
