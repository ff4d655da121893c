"""How models along a path are scored on the rows that a fold has left out.

Without a `scoring` it is by the model's own loss: the logarithmic one of a classifier, the pinball
loss of a quantile. Accuracy says little where one class is rare, since it hardly changes along a
path. Two models keep scikit-learn's score: squared loss, where R^2 orders them alike, and bounds on
rates, which are about decisions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring, get_scorer_names

from mossp import losses
from mossp._base import naming
from mossp._base.printing import quoted
from mossp.sklearn.answers import set_coefficients
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, loss_of, targets_of
from mossp.sklearn.promises import has_rates, losses_of
from mossp.sklearn.rows import Rows

TAKES_OFFSET = (
    "predict", "decision_function", "predict_proba", "predict_log_proba", "score", "_scores",
)  # fmt: skip
Scorer = Callable[..., float]


def scorer_of(model: Any, scoring: Any) -> Scorer:
    """What scores a model on rows: as asked, or by its own loss."""
    if isinstance(scoring, str) and scoring not in get_scorer_names():
        near = naming.closest(scoring, get_scorer_names())
        hint = f" Did you mean {near!r}?" if near else ""
        raise ValueError(f"There is no scoring {quoted(scoring)} in scikit-learn.{hint}")
    if scoring is not None or has_rates(vars(model)):
        return check_scoring(model, scoring=scoring)
    loss = loss_of(model.loss, CLASSIFICATION if is_classifier(model) else REGRESSION)
    return check_scoring(model) if isinstance(loss, losses.Squared) else minus_loss


def minus_loss(model: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Minus the mean of the model's own loss on rows: the higher, the better."""
    weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
    classes = model.classes_ if is_classifier(model) else None
    labels = np.asarray(y)
    if classes is not None:
        number = np.searchsorted(classes, labels)
        labels = number if len(classes) > 2 else np.where(number == 1, 1.0, -1.0)
    loss = loss_of(model.loss, REGRESSION if classes is None else CLASSIFICATION, classes)
    targets = targets_of(loss, Rows(X, labels, weights, classes))
    return -float(np.average(losses_of(loss, model._scores(X), targets), weights=weights))


class Shifted:
    """A model on rows whose offsets are known, for scorers, which hand over the rows alone."""

    def __init__(self, model: Any, offset: Any) -> None:
        self.model, self.offset = model, offset

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.model, name)
        if name not in TAKES_OFFSET:
            return found

        @functools.wraps(found)  # scorers look at the name
        def shifted(X: Any, *more: Any, **named: Any) -> Any:
            return found(X, *more, offset=self.offset, **named)

        return shifted

    def __sklearn_tags__(self) -> Any:
        return self.model.__sklearn_tags__()


class Numbered:
    """A model of two classes as one of 0 and 1: precision and its like ask which is positive."""

    def __init__(self, model: Any) -> None:
        self.model, self.classes_ = model, np.array([0, 1])

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.model, name)
        if name != "predict":
            return found

        @functools.wraps(found)
        def numbered(X: Any) -> Any:
            return (found(X) == self.model.classes_[1]).astype(int)

        return numbered

    def __sklearn_tags__(self) -> Any:
        return self.model.__sklearn_tags__()


def judged_by(scoring: Any, model: Any, y: Any, offset: Any = None) -> tuple[Any, np.ndarray]:
    """(a model as scorers see it, its targets): two classes are 0 and 1 for a scoring by name."""
    judged = model if offset is None else Shifted(model, offset)
    targets = np.asarray(y)
    two = is_classifier(model) and len(model.classes_) == 2
    if isinstance(scoring, str) and two and model.classes_.tolist() not in ([0, 1], [-1, 1]):
        return Numbered(judged), (targets == model.classes_[1]).astype(int)
    return judged, targets


def score_at(
    scorer: Scorer, model: Any, judged: Any, x: Any, X: Any, y: Any, weight: dict[str, Any]
) -> float:
    """The score of the model with coefficients x on these rows; `judged`: as scorers see it."""
    set_coefficients(model, x)
    names = model.__dict__.pop("feature_names_in_", None)  # the rows are plain numbers here
    try:
        return float(scorer(judged, X, y, **weight))
    finally:
        if names is not None:
            model.feature_names_in_ = names
