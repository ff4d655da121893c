"""A classifier and a regressor for scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mossp import losses
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, loss_of
from mossp.sklearn.linear import PARAMETERS, LinearEstimator
from mossp.sklearn.rows import checked_matrix, checked_rows


def has_probabilities(model: Any) -> bool:
    loss = loss_of(model.loss, CLASSIFICATION, getattr(model, "classes_", None))
    if isinstance(loss, (losses.Logistic, losses.Softmax)):
        return True
    raise AttributeError(f"probabilities need the logistic loss, and loss is {model.loss!r}.")


class MoSSPClassifier(ClassifierMixin, LinearEstimator):
    """Linear classifier with a sparse regulariser, under constraints, with a certificate.

    Parameters
    ----------
    loss : str or Predictive, optional
        "logistic", the default (softmax for more than two classes), or "huberized-hinge" (one class
        against the rest); or an object, mossp.losses.HuberizedHinge(0.1).
    class_weight : "balanced" or dict, optional
        A weight for each class.
    {PARAMETERS}

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MoSSPClassifier(regularizer="l1-l2", lam=0.02, equality="sum(x**2) = 1")
    >>> model = model.fit(scale(X), y)
    >>> int(np.count_nonzero(model.coef_)), bool(model.certificate_.is_kkt(1e-10))
    (19, True)
    >>> round(float(np.sum(model.coef_**2)), 12), bool(model.score(scale(X), y) > 0.95)
    (1.0, True)
    """

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
        class_weight: Any = None,
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
        super().__init__(
            loss, regularizer=regularizer, lam=lam, max_features=max_features, equality=equality,
            inequality=inequality, rates=rates, rates_margin=rates_margin, nonnegative=nonnegative,
            fit_intercept=fit_intercept, penalize_intercept=penalize_intercept,
            constrain_intercept=constrain_intercept, feature_weights=feature_weights,
            inference=inference, method=method, steps=steps, batch_size=batch_size,
            polish=polish, tol=tol,
            n_starts=n_starts, n_replicas=n_replicas, warm_start=warm_start,
            random_state=random_state, dtype=dtype,
        )  # fmt: skip
        self.class_weight = class_weight

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, offset: Any = None,
        sensitive: Any = None,
    ) -> MoSSPClassifier:  # fmt: skip
        """One step for each mini-batch of these rows, from where the last call ended.

        No certificate is given: the rows that are to come are not known. `rates` are steered by,
        and not promised: `rates_` has running estimates, with standard errors in `rates_error_`.

        Parameters
        ----------
        X, y
            Rows and their classes.
        classes : array, optional
            All classes of the stream; needed in the first call only.
        sample_weight, offset : array, optional
            One a row, as for `fit`.
        sensitive : array, data frame, named series or dict of columns, optional
            As for `fit`, for `rates`. The first call needs rows of every group in them.
        """
        first = not hasattr(self, "coef_")
        if first:
            if classes is None:
                raise ValueError("classes must be given in the first call of partial_fit.")
            checked_matrix(self, X)
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes must stay those of the first call, {self.classes_}.")
        if first:
            self.with_offset_ = offset is not None
        self._feed(checked_rows(self, X, y, sample_weight, sensitive, offset, reset=False))
        return self

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """The score of every row: one, positive for classes_[1]; or one a class."""
        return self._scores(X, offset)

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """The class of every row."""
        scores = self._scores(X, offset)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[best]

    @available_if(has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """The probability of every class, for the logistic loss."""
        return scipy.special.softmax(self._class_scores(X, offset), axis=1)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """The logarithm of `predict_proba`."""
        return scipy.special.log_softmax(self._class_scores(X, offset), axis=1)

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """The accuracy on these rows."""
        return float(accuracy_score(y, self.predict(X, offset), sample_weight=sample_weight))

    def _class_scores(self, X: Any, offset: Any = None) -> np.ndarray:
        """A score for every class: 0 for the first of two."""
        scores = self._scores(X, offset)
        return scores if scores.ndim == 2 else np.stack([0 * scores, scores], axis=1)


class MoSSPRegressor(RegressorMixin, LinearEstimator):
    """Linear regression with a sparse regulariser, under constraints, with a certificate.

    Parameters
    ----------
    loss : str or Predictive, optional
        "squared", the default, "huber", "quantile" (smoothed), "poisson", "gamma" or "tweedie"
        (these three with a logarithmic link: predictions are exp of the score), with parameters
        as in "quantile:0.9,0.05" or "tweedie:1.5"; or an object, mossp.losses.Huber(2.0).
    {PARAMETERS}

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = 3 * X[:, 0] + 1 * X[:, 1] + 0.1 * rng.normal(size=200)
    >>> model = MoSSPRegressor(regularizer="mcp", lam=0.2, inequality="x[0] <= 2").fit(X, y)
    >>> np.round(model.coef_, 1).tolist(), model.violation_ < 1e-10
    ([2.0, 1.0, 0.0, 0.0, 0.0], True)
    """

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, sensitive: Any = None
    ) -> MoSSPRegressor:
        """One step for each mini-batch of these rows, from where the last call ended.

        `rates` are steered by, and not promised: `rates_` has running estimates, with standard
        errors in `rates_error_`. `sensitive` is as for `fit`; the first call needs rows of every
        group.
        """
        first = not hasattr(self, "coef_")
        self._feed(checked_rows(self, X, y, sample_weight, sensitive, offset, reset=first))
        return self

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """The expected target of every row: a quantile for the quantile loss."""
        check_is_fitted(self, "coef_")
        return loss_of(self.loss, REGRESSION).mean(self._scores(X, offset))

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """R^2 on these rows."""
        return float(r2_score(y, self.predict(X, offset), sample_weight=sample_weight))


for _model in (MoSSPClassifier, MoSSPRegressor):
    _model.__doc__ = (_model.__doc__ or "").replace("    {PARAMETERS}\n", PARAMETERS)
