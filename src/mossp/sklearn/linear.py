"""What the linear models share: parameters, fitting, scores of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mossp.result import Result
from mossp.sklearn.answers import coefficients_of, set_result
from mossp.sklearn.captured import rows_before_folds, warn_of_captured
from mossp.sklearn.inference import check_inference, inference
from mossp.sklearn.paths import solution
from mossp.sklearn.rows import Rows, checked_matrix, checked_offset, checked_rows
from mossp.sklearn.streams import Streaming

# The docstrings of both models from their second parameter on, written once.
PARAMETERS = """\
    regularizer : str or Regularizer
        "l1", "ridge", "elastic-net:0.1,0.5", "l1-l2", "mcp", "scad", "capped-l1", "log-sum",
        "transformed-l1", "truncated-l1:0.1,5", "truncated-l1-l2:0.1,5" or "none", or an object
        such as mossp.Group(...); of all coefficients as one vector.
    lam : float, optional
        Its strength, which wins over one in the name or the object; left out, 0.01 for a name
        without one.
    max_features : int, optional
        At most so many features have coefficients that are not zero, a hard limit in place of the
        regulariser: the best ones are searched for (`mossp.Cardinality`).
    equality, inequality : callable, str, Expected, or a list or dict of these, optional
        `c(x) = 0` and `c(x) <= 0` on the coefficients x, of shape (n_features,), or
        (n_features, n_classes) for more than two classes: a function in JAX, text such as
        "sum(x**2) = 1" or "age <= 0.5", a mean over rows, `mossp.Expected(c)` with c(x, batch)
        and batches (X, targets, weights) of the rows that are fitted to, and the offset after
        them where there is one, or a list or a dict of these; as inequality a bound of
        `mossp.fairness`, too. Targets of two classes are -1 and +1.
    rates : str, Bound or list of these, optional
        Bounds of `mossp.rates` that the true rates on the training rows are to meet, such as
        `"fpr <= 0.05"` or `"|selection[sex=F] - selection[sex=M]| <= 0.02"`; of a regressor
        `"mean loss[sex=F] <= 0.4"`. Groups are columns of X by name, or of `sensitive`.
    rates_margin : float, optional
        A confidence such as 0.95: the bounds are tightened so that new rows meet each of them with
        it, by a binomial bound on the number of its rows.
    nonnegative : bool
        Coefficients >= 0.
    fit_intercept : bool
        Whether there is an intercept, which is neither penalised nor constrained unless the next
        two say so.
    penalize_intercept : bool
        The regulariser is of the intercept as well.
    constrain_intercept : bool
        Functions among the constraints see the intercept as the last entry of x. Text may always
        speak of `intercept`.
    feature_weights : array of shape (n_features,), optional
        A weight of the regulariser for each feature; 0: not penalised.
    inference : bool
        Standard errors of the coefficients that are not zero, in `inference_`.
    method, steps, batch_size, polish, tol, dtype
        Those of `mossp.solve`.
    n_starts, n_replicas : int
        So many runs from different starts, or from one; the best is kept.
    warm_start : bool
        Start from the coefficients of the last fit.
    random_state : int or RandomState, optional
        None is 0: the same data give the same answer.

    Attributes
    ----------
    coef_ : array
        Coefficients, of shape (n_features,) for a regressor, (1, n_features) for two classes and
        (n_classes, n_features) for more.
    intercept_ : float or array
        One for each row of `coef_`.
    classes_ : array
        Of a classifier. Of two classes, positive scores are for the second.
    n_iter_ : int
        Steps taken.
    certificate_ : Certificate
        How well the answer meets the KKT conditions.
    violation_ : float
        Of the constraints, at the answer.
    with_offset_ : bool
        Whether `fit` was given an offset, so that `predict` needs one.
    result_ : Result
        The whole of `mossp.solve`'s answer.
    inference_ : Inference
        Standard errors, intervals and p values on the support, conditional on the selection, where
        `inference` asked for them.
    rates_ : dict
        The true rates on the training rows by the text that asked for them, where there are
        `rates`; `result_.settings["rates"]` has the smooth ones beside them. After `partial_fit`,
        running estimates.
    rates_error_ : dict
        Of these estimates, the standard errors; after `partial_fit` only.

    Notes
    -----
    Scale the features first: a penalty compares coefficients. A ConvergenceWarning says that the
    certificate does not hold.
"""


class LinearEstimator(Streaming, BaseEstimator):
    """A linear model under a regulariser and constraints."""

    def __init__(
        self,
        loss: Any = None,
        *,
        regularizer: Any = "l1",
        lam: float | None = None,
        max_features: int | None = None,
        equality: Any = None,
        inequality: Any = None,
        rates: Any = None,
        rates_margin: float | None = None,
        nonnegative: bool = False,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        constrain_intercept: bool = False,
        feature_weights: Any = None,
        inference: bool = False,
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
        self.loss = loss
        self.regularizer = regularizer
        self.lam = lam
        self.max_features = max_features
        self.equality = equality
        self.inequality = inequality
        self.rates = rates
        self.rates_margin = rates_margin
        self.nonnegative = nonnegative
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.constrain_intercept = constrain_intercept
        self.feature_weights = feature_weights
        self.inference = inference
        self.method = method
        self.steps = steps
        self.batch_size = batch_size
        self.polish = polish
        self.tol = tol
        self.n_starts = n_starts
        self.n_replicas = n_replicas
        self.warm_start = warm_start
        self.random_state = random_state
        self.dtype = dtype

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None, offset: Any = None
    ) -> Any:
        """Fit to rows X with targets y.

        Parameters
        ----------
        X, y
            Rows and their targets.
        sample_weight : array, optional
            One a row.
        sensitive : array, data frame, named series or dict of columns, optional
            Attributes of the rows that need not be columns of X, for `rates` and for bounds of
            `mossp.fairness`. An array is the column "sensitive".
        offset : array of shape (n_samples,), or (n_samples, n_classes) for several, optional
            What is added to each row's score, in `fit` and then in `predict`, too: the logarithm
            of the exposure for counts, or the scores of another model.
        """
        rows = checked_rows(self, X, y, sample_weight, sensitive, offset)
        warn_of_captured(vars(self), rows_before_folds())
        if self.inference:
            check_inference(vars(self))
        start = coefficients_of(self) if self.warm_start else None
        rows = rows.balanced()
        result = self._solved(self._parameters(rows), rows, start)
        self._online = self._state = self._running = None  # a stream begins anew
        self.__dict__.pop("inference_", None)  # of an earlier fit
        set_result(self, result, rows)
        if self.inference:
            self.inference_ = inference(vars(self), rows.balanced(), result)
        return self

    def _parameters(self, rows: Rows) -> dict[str, Any]:
        """What the problem on these rows is made from: the parameters, and what follows of them."""
        return dict(vars(self))

    def _solved(self, params: dict[str, Any], rows: Rows, start: Any) -> Result:
        return solution(params, rows, start)

    def _scores(self, X: Any, offset: Any = None) -> np.ndarray:
        check_is_fitted(self, "coef_")
        X = checked_matrix(self, X, reset=False)
        coef = np.atleast_2d(self.coef_)
        scores = np.asarray(X @ coef.T) + self.intercept_
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        outputs = None if scores.ndim == 1 else scores.shape[1]
        added = checked_offset(self, offset, len(scores), outputs)
        return scores if added is None else scores + added

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
