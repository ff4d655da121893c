"""Decisions of a classifier: the threshold they are taken at, and how they turn out."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import sklearn.metrics

from mossp.app.fitting.rows import Sample

CRITERIA = ("balanced", "f1")
BOUND = re.compile(r"\s*(recall|precision|fpr)\s*(>=|<=)\s*([0-9.eE+-]+)\s*")
KINDS = "a number, balanced, f1, recall>=0.8, precision>=0.9 or fpr<=0.05"


def checked_threshold(text: str) -> float | str:
    """A number, or a criterion by which one is found."""
    try:
        return float(text)
    except ValueError:
        pass
    bound = BOUND.fullmatch(text)
    right = bound and (bound[2] == "<=") == (bound[1] == "fpr")
    if text not in CRITERIA and not right:
        raise ValueError(f"--threshold must be {KINDS}, but {text} was given.")
    return text


def threshold_of(text: str, estimator: Any, rows: Sample) -> float:
    """The threshold: a probability of the second class, or a margin where there are none.

    A criterion is of the training rows: "balanced" has the highest balanced accuracy and "f1" the
    highest F1 of the second class; "recall>=0.8" is the highest threshold with that recall,
    "precision>=0.9" and "fpr<=0.05" the lowest with those.

    Examples
    --------
    >>> class Known:
    ...     classes_ = np.array(["no", "yes"])
    ...     def decision_function(self, X, offset):
    ...         return X[:, 0]
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0], [3.0]])
    >>> rows = Sample(X, np.array(["no", "yes", "no", "yes", "yes"]), None, {})
    >>> [threshold_of(t, Known(), rows) for t in ("recall>=0.9", "precision>=0.9", "f1", "0.3")]
    [-1.5, 1.5, -1.5, 0.3]
    """
    given = checked_threshold(text)
    if len(estimator.classes_) != 2:
        raise ValueError("--threshold is for two classes, and the target has more.")
    if isinstance(given, float):
        if hasattr(estimator, "predict_proba") and not 0 < given < 1:
            raise ValueError(f"--threshold must lie between 0 and 1, but {given:g} was given.")
        return given
    return found_threshold(given, scores_of(estimator, rows), rows.y == estimator.classes_[1])


def found_threshold(given: str, scores: np.ndarray, positive: np.ndarray) -> float:
    """The threshold that a criterion finds among these scores."""
    levels = np.unique(scores)
    if len(levels) < 2:
        raise ValueError(f"--threshold {given} needs scores that differ, but all rows score alike.")
    cuts = (levels[1:] + levels[:-1]) / 2
    order = np.sort(scores), np.sort(scores[positive])
    above = len(scores) - np.searchsorted(order[0], cuts)
    right = positive.sum() - np.searchsorted(order[1], cuts)
    recall, precision = right / positive.sum(), right / above
    fpr = (above - right) / (~positive).sum()
    if given in CRITERIA:
        worth = recall - fpr if given == "balanced" else 2 * right / (above + positive.sum())
        return float(cuts[np.argmax(worth)])
    bound = BOUND.fullmatch(given)
    assert bound is not None
    value = float(bound[3])
    good = {"recall": recall >= value, "precision": precision >= value, "fpr": fpr <= value}
    allowed = np.flatnonzero(good[bound[1]])
    if not len(allowed):
        raise ValueError(f"No threshold has {given} on the training rows.")
    return float(cuts[allowed[-1 if bound[1] == "recall" else 0]])


def scores_of(estimator: Any, rows: Sample) -> np.ndarray:
    """What a threshold is compared with: the probability of the second class, or the margin."""
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(rows.X, rows.offset)[:, 1])
    return np.asarray(estimator.decision_function(rows.X, rows.offset))


def decided(estimator: Any, rows: Sample, threshold: float | None) -> np.ndarray:
    """The class of every row, by the estimator or at a threshold."""
    if threshold is None:
        return np.asarray(estimator.predict(rows.X, rows.offset))
    return np.asarray(estimator.classes_[(scores_of(estimator, rows) > threshold).astype(int)])


def confusion(estimator: Any, rows: Sample, threshold: float | None) -> list[list[int]]:
    """How many rows of each class, one a row, were taken for which, one a column."""
    predicted = decided(estimator, rows, threshold)
    table = sklearn.metrics.confusion_matrix(rows.y, predicted, labels=estimator.classes_)
    return [[int(number) for number in row] for row in table]
