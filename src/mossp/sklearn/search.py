"""The strength of the regulariser by cross-validation: a warm-started path of solutions a fold."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mossp.regularizers import Zero
from mossp.result import Status
from mossp.sklearn.answers import set_coefficients, set_result
from mossp.sklearn.captured import warn_of_captured
from mossp.sklearn.coefficients import regularizer_of
from mossp.sklearn.linear import LinearEstimator
from mossp.sklearn.paths import path_of, strengths
from mossp.sklearn.rows import checked_rows
from mossp.solving.path import Path


def has(name: str) -> Any:
    """Whether the estimator has this method."""

    def check(search: Any) -> bool:
        getattr(getattr(search, "estimator_", search.estimator), name)
        return True

    return available_if(check)


def of_the_estimator(name: str) -> Any:
    """An attribute of the fitted estimator as one of the search."""

    def get(search: Any) -> Any:
        if "estimator_" not in search.__dict__:
            raise AttributeError(f"{name} is known after fit.")
        return getattr(search.estimator_, name)

    return property(get, doc=f"`{name}` of the fitted estimator.")


class PathCV(MetaEstimatorMixin, BaseEstimator):
    """A linear model whose strength `lam` is chosen by cross-validation along a path.

    All strengths and folds of like size share one compiled program, and a fold's solutions start
    from one another.

    Parameters
    ----------
    estimator : MoSSPClassifier or MoSSPRegressor
        Its own `lam` does not matter.
    lams : int or sequence of float
        Strengths to try, or how many: from the one that makes all coefficients zero down to a
        thousandth of it.
    cv, scoring
        Those of scikit-learn's GridSearchCV.
    verbose : bool
        Say on stderr which fold it is at.

    Attributes
    ----------
    lam_ : float
        The strength of the highest mean score, of equals the largest; with `rates`, among those
        that meet them on all rows.
    lams_ : array
        The strengths that were tried, falling.
    scores_ : array of shape (n_folds, n_lams)
        Score of each strength on each fold.
    path_ : mossp.Path
        The path on all rows.
    estimator_ : MoSSPClassifier or MoSSPRegressor
        The model with the chosen strength, fitted to all rows; its attributes are those of the
        search as well.

    Examples
    --------
    >>> from mossp.sklearn import MoSSPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 10))
    >>> y = X[:, 0] - X[:, 1] + 0.1 * rng.normal(size=300)
    >>> model = PathCV(MoSSPRegressor(regularizer="mcp"), lams=8, cv=3).fit(X, y)
    >>> np.flatnonzero(model.coef_).tolist(), model.lam_ in model.lams_, model.scores_.shape
    ([0, 1], True, (3, 8))
    """

    def __init__(
        self, estimator: Any, *, lams: Any = 20, cv: Any = None, scoring: Any = None,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.lams = lams
        self.cv = cv
        self.scoring = scoring
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None) -> PathCV:
        """Choose the strength, and fit with it to all rows."""
        if not isinstance(self.estimator, LinearEstimator):
            raise TypeError(
                "PathCV needs a MoSSPClassifier or a MoSSPRegressor, but "
                f"{self.estimator!r} was given."
            )
        model = self.estimator_ = clone(self.estimator)
        if isinstance(regularizer_of(model.regularizer, 1.0), Zero):
            raise ValueError("The regulariser 'none' has no strength to choose.")
        rows = checked_rows(model, X, y, sample_weight, sensitive)
        warn_of_captured(vars(model), len(rows.labels))
        targets = np.asarray(y) if is_classifier(model) else rows.labels
        self.lams_ = strengths(self.lams, vars(model), rows.balanced())
        folds = check_cv(self.cv, targets, classifier=is_classifier(model))
        scorer = check_scoring(model, scoring=self.scoring)
        scores = []
        count = folds.get_n_splits(rows.X, targets)
        for number, (train, test) in enumerate(folds.split(rows.X, targets), 1):
            if self.verbose:
                what = f"{len(self.lams_)} strengths, fold {number} of {count}"
                print(f"cross-validation: {what}", file=sys.stderr, flush=True)
            found = finished(path_of(vars(model), rows.at(train), self.lams_))
            weight = {} if sample_weight is None else {"sample_weight": rows.weights[test]}
            seen = rows.X[test], targets[test]
            scores.append([score_at(scorer, model, r.x, *seen, weight) for r in found.results])
        self.scores_ = np.array(scores)
        self.path_ = finished(path_of(vars(model), rows.balanced(), self.lams_))
        best = int(np.argmax(np.where(met(self.path_), self.scores_.mean(axis=0), -np.inf)))
        self.lam_ = float(self.lams_[best])
        model.set_params(lam=self.lam_)
        set_result(model, self.path_.results[best], rows)
        return self

    @has("predict")
    def predict(self, X: Any) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().predict(X)

    @has("decision_function")
    def decision_function(self, X: Any) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().decision_function(X)

    @has("predict_proba")
    def predict_proba(self, X: Any) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().predict_proba(X)

    @has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().predict_log_proba(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """By `scoring`, or accuracy for a classifier and R^2 for a regressor."""
        scorer = check_scoring(self._fitted(), scoring=self.scoring)
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        return float(scorer(self.estimator_, X, y, **weight))

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    coef_ = of_the_estimator("coef_")
    intercept_ = of_the_estimator("intercept_")
    classes_ = of_the_estimator("classes_")
    certificate_ = of_the_estimator("certificate_")
    violation_ = of_the_estimator("violation_")
    result_ = of_the_estimator("result_")
    n_iter_ = of_the_estimator("n_iter_")
    rates_ = of_the_estimator("rates_")
    n_features_in_ = of_the_estimator("n_features_in_")
    feature_names_in_ = of_the_estimator("feature_names_in_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags


def finished(found: Path) -> Path:
    """The path, unless a solution of it was interrupted."""
    if any(result.status is Status.INTERRUPTED for result in found.results):
        raise KeyboardInterrupt
    return found


def met(found: Path) -> np.ndarray:
    """At which strengths bounds on rates are met on all rows; everywhere if they are nowhere.

    A model that breaks them often scores higher, and is not what was asked for.
    """
    good = np.array([r.settings.get("rates", {}).get("met", True) for r in found.results])
    return good | ~good.any()


def score_at(scorer: Any, model: Any, x: Any, X: Any, y: Any, weight: dict[str, Any]) -> float:
    """The score of the model with coefficients x on these rows."""
    set_coefficients(model, x)
    names = model.__dict__.pop("feature_names_in_", None)  # the rows are plain numbers here
    try:
        return float(scorer(model, X, y, **weight))
    finally:
        if names is not None:
            model.feature_names_in_ = names
