"""The strength of the regulariser, chosen along a path of solutions: by folds, or by BIC."""

from __future__ import annotations

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from mossp.regularizers import Ridge, Zero
from mossp.result import Status
from mossp.sklearn.answers import set_result
from mossp.sklearn.captured import warn_of_captured
from mossp.sklearn.choosing import (
    BEST,
    BIC,
    ONE_ERROR,
    bayesian_information,
    by_information,
    by_scores,
    checked_choice,
)
from mossp.sklearn.coefficients import regularizer_of
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, loss_of
from mossp.sklearn.inference import check_inference, inference
from mossp.sklearn.linear import LinearEstimator
from mossp.sklearn.paths import path_of, strengths
from mossp.sklearn.rows import Rows, checked_rows
from mossp.sklearn.scoring import judged_by, score_at, scorer_of
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
    """A linear model whose strength `lam` is chosen along a path, by cross-validation or by BIC.

    All strengths and folds of like size share one compiled program, and a fold's solutions start
    from one another.

    Parameters
    ----------
    estimator : MoSSPClassifier or MoSSPRegressor
        Its own `lam` does not matter.
    lams : int or sequence of float
        Strengths to try, or how many: from the one that makes all coefficients zero down to a
        thousandth of it; of a ridge, which makes none zero, from ten times the largest curvature
        of the loss down to a millionth of that.
    cv, scoring
        Those of scikit-learn's GridSearchCV; `choose="bic"` needs neither. Without a `scoring`, the
        model's own loss on the rows left out decides: the log loss of a classifier; R^2 for the
        squared loss, and accuracy where there are `rates`. Of two classes the second is positive.
    choose : "best", "1se" or "bic"
        The strength of the highest mean score; the largest one whose mean score is within one
        standard error of that, a simpler model that is as good for all one knows; or the one of
        the lowest Bayesian information criterion, on all rows and without folds.
    n_jobs : int, optional
        Folds at a time, in threads of one process, which share what is compiled; -1 takes one a
        core, and left out it is 1. Ctrl-C then ends the search once the folds at work are done.
    verbose : bool
        Say on stderr which fold it is at.

    Attributes
    ----------
    lam_ : float
        The strength that was chosen, of equals the largest; with `rates`, among those that meet
        them on all rows.
    lam_best_, lam_1se_ : float
        What "best" and "1se" choose, whichever was asked; not there for "bic" or a single fold.
    lams_ : array
        The strengths that were tried, falling.
    scores_ : array of shape (n_folds, n_lams)
        Score of each strength on each fold; not there for "bic".
    bic_ : array of shape (n_lams,)
        The criterion at each strength, for "bic".
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
        choose: str = "best", n_jobs: int | None = None, verbose: bool = False,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.lams = lams
        self.cv = cv
        self.scoring = scoring
        self.choose = choose
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None, offset: Any = None
    ) -> PathCV:
        """Choose the strength, and fit with it to all rows."""
        choice = checked_choice(self.choose)
        if not isinstance(self.estimator, LinearEstimator):
            raise TypeError(
                "PathCV needs a MoSSPClassifier or a MoSSPRegressor, but "
                f"{self.estimator!r} was given."
            )
        model = self.estimator_ = clone(self.estimator)
        regularizer = regularizer_of(model.regularizer, 1.0)
        if isinstance(regularizer, Zero):
            raise ValueError("The regulariser 'none' has no strength to choose.")
        if choice == BIC and isinstance(regularizer, Ridge):
            raise ValueError(
                "choose='bic' counts nonzero coefficients, and a ridge makes none zero: use "
                "choose='best' or choose='1se'."
            )
        if model.inference:
            check_inference(vars(model))
        if model.max_features is not None:
            raise ValueError(
                "max_features takes the place of a strength, so that none is to be chosen: fit the "
                "estimator itself, or search over max_features with GridSearchCV."
            )
        rows = checked_rows(model, X, y, sample_weight, sensitive, offset)
        warn_of_captured(vars(model), len(rows.labels))
        self.lams_ = strengths(self.lams, vars(model), rows.balanced())
        for name in ("scores_", "bic_", "lam_best_", "lam_1se_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if choice != BIC:
            self.scores_ = self._scores_of_folds(model, rows, y, sample_weight is not None)
        self.path_ = finished(path_of(vars(model), rows.balanced(), self.lams_))
        if choice == BIC:
            loss = loss_of(model.loss, CLASSIFICATION if is_classifier(model) else REGRESSION,
                           rows.classes)  # fmt: skip
            self.bic_ = bayesian_information(self.path_, loss, rows)
            chosen = by_information(self.bic_, met(self.path_))
        else:
            chosen = by_scores(self.scores_, met(self.path_), choice)
            if len(self.scores_) > 1:
                both = [by_scores(self.scores_, met(self.path_), c) for c in (BEST, ONE_ERROR)]
                self.lam_best_, self.lam_1se_ = (float(self.lams_[k]) for k in both)
        self.lam_ = float(self.lams_[chosen])
        model.set_params(lam=self.lam_)
        set_result(model, self.path_.results[chosen], rows)
        if model.inference:
            model.inference_ = inference(vars(model), rows.balanced(), model.result_)
        return self

    def _scores_of_folds(self, model: Any, rows: Rows, y: Any, weighted: bool) -> np.ndarray:
        """The score of every strength on the rows that each fold has left out."""
        targets = np.asarray(y) if is_classifier(model) else rows.labels
        folds = check_cv(self.cv, targets, classifier=is_classifier(model))
        scorer = scorer_of(model, self.scoring)
        count = folds.get_n_splits(rows.X, targets)

        def scored(number: int, train: Any, test: Any) -> list[float]:
            if self.verbose:
                what = f"{len(self.lams_)} strengths, fold {number} of {count}"
                print(f"cross-validation: {what}", file=sys.stderr, flush=True)
            found = finished(path_of(vars(model), rows.at(train), self.lams_))
            weight = {"sample_weight": rows.weights[test]} if weighted else {}
            offset = None if rows.offset is None else rows.offset[test]
            own = copy.copy(model)  # whose coefficients are those of this fold
            judged, wanted = judged_by(self.scoring, own, targets[test], offset)
            seen = rows.X[test], wanted
            return [score_at(scorer, own, judged, r.x, *seen, weight) for r in found.results]

        each = [(n, *fold) for n, fold in enumerate(folds.split(rows.X, targets), 1)]
        jobs = min(effective_n_jobs(self.n_jobs), len(each))
        if jobs == 1:
            return np.array([scored(*fold) for fold in each])
        # Threads: compiled programs are shared, and let go of Python's lock while they run.
        with ThreadPoolExecutor(jobs) as pool:
            waiting = [pool.submit(scored, *fold) for fold in each]
            try:
                return np.array([future.result() for future in waiting])
            finally:
                pool.shutdown(cancel_futures=True)

    @has("predict")
    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().predict(X, offset)

    @has("decision_function")
    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().decision_function(X, offset)

    @has("predict_proba")
    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().predict_proba(X, offset)

    @has("predict_log_proba")
    def predict_log_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """As the estimator with the chosen strength."""
        return self._fitted().predict_log_proba(X, offset)

    def score(self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> float:
        """By `scoring`, or accuracy for a classifier and R^2 for a regressor."""
        scorer = check_scoring(self._fitted(), scoring=self.scoring)
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        judged, wanted = judged_by(self.scoring, self.estimator_, y, offset)
        return float(scorer(judged, X, wanted, **weight))

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
    inference_ = of_the_estimator("inference_")
    with_offset_ = of_the_estimator("with_offset_")
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
