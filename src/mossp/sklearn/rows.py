"""Checked rows: what a user gave as X, y, weights and protected attributes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from mossp._base.printing import shown
from mossp._base.surroundings import refuse_traced
from mossp.sklearn.attributes import Columns, attributes_of


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows that were checked.

    Attributes
    ----------
    X : array or csr matrix
        Features.
    labels : array
        Targets; of classes -1 and +1, or 0, ..., C - 1 if there are more than two.
    weights : array
        One a row.
    classes : array, optional
        Of a classifier, sorted.
    names : sequence of str, optional
        Of the columns, if they have any.
    sensitive : dict of arrays, optional
        Protected attributes by name.
    counted : array, optional
        What each row counts in a rate: its sample weight, without the weight of its class. 1 if
        left out.
    offset : array, optional
        What is added to the scores: one number a row, or one for each class of more than two.
    """

    X: Any
    labels: np.ndarray
    weights: np.ndarray
    classes: np.ndarray | None = None
    names: Sequence[str] | None = None
    sensitive: dict[str, np.ndarray] | None = None
    counted: np.ndarray | None = None
    offset: np.ndarray | None = None

    @property
    def features(self) -> int:
        return int(self.X.shape[1])

    @property
    def outputs(self) -> int | None:
        """C where there are so many scores a row; None for one."""
        return None if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @property
    def columns(self) -> Columns:
        """What groups of rows are made of, by name."""
        return Columns(self.sensitive, self.X, self.names)

    @property
    def class_numbers(self) -> np.ndarray | None:
        """For every row the number of its class; None for a target that is a number."""
        if self.classes is None:
            return None
        return self.labels if self.outputs else (self.labels > 0).astype(int)

    def data(self, targets: np.ndarray, *beside: np.ndarray) -> Any:
        """What `LinearModel` reads: X, targets, weights, the offset if there is one; and more."""
        offset = [] if self.offset is None else [self.offset]
        return (self.X, targets, self.weights, *offset, *beside)

    def pieces(self) -> Iterator[Rows]:
        """The rows, some at a time: all of them at once, where they are in memory."""
        yield self

    def balanced(self) -> Rows:
        """With weights whose mean is 1: the strength of a regulariser keeps its meaning."""
        weights = self.weights * (len(self.weights) / self.weights.sum())
        return dataclasses.replace(self, weights=weights)

    def at(self, rows: np.ndarray) -> Rows:
        """Some of the rows, their weights with mean 1."""
        if not self.weights[rows].sum() > 0:
            raise ValueError("sample_weight is zero for all rows of a fold: use fewer folds.")
        return self.only(rows).balanced()

    def only(self, rows: np.ndarray) -> Rows:
        """Some of the rows as they are."""
        return dataclasses.replace(
            self, X=self.X[rows], labels=self.labels[rows], weights=self.weights[rows],
            sensitive=None if self.sensitive is None else {
                name: values[rows] for name, values in self.sensitive.items()
            },
            counted=None if self.counted is None else self.counted[rows],
            offset=None if self.offset is None else self.offset[rows],
        )  # fmt: skip


def checked_matrix(
    estimator: Any, X: Any, y: Any = "no_validation", reset: bool = True, **how: Any
) -> Any:
    """`validate_data` as all linear models need it: X in float64, dense or csr; with y a pair."""
    refuse_traced(X, y)
    return validate_data(
        estimator, X, y, reset=reset, accept_sparse="csr", dtype=np.float64,
        accept_large_sparse=False, **how,
    )  # fmt: skip


def checked_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None,
    offset: Any = None, reset: bool = True,
) -> Rows:  # fmt: skip
    """Rows for an estimator; sets n_features_in_, classes_ and with_offset_.

    Parameters
    ----------
    reset : bool
        False: the rows are to suit the estimator as it is, a batch of a stream.
    """
    check = checked_classes if is_classifier(estimator) else checked_numbers
    rows = check(estimator, X, y, sample_weight, reset)
    if reset:
        estimator.with_offset_ = offset is not None
    return dataclasses.replace(
        rows,
        sensitive=attributes_of(sensitive, len(rows.labels)),
        offset=checked_offset(estimator, offset, len(rows.labels), rows.outputs),
    )


def checked_offset(
    estimator: Any, offset: Any, rows: int, outputs: int | None
) -> np.ndarray | None:
    """The offset of every row in the shape of the scores; None where the model has none.

    One number stands for all rows.
    """
    if (offset is not None) != getattr(estimator, "with_offset_", False):
        name = type(estimator).__name__
        raise ValueError(
            f"This {name} was fitted with an offset, which its rows need here, too: give offset=, "
            "or offset=0.0 for none."
            if offset is None
            else f"This {name} was fitted without an offset, so that none can be added here."
        )
    if offset is None:
        return None
    given, need = np.asarray(offset), (rows,) if outputs is None else (rows, outputs)
    if given.dtype.kind not in "biuf" or not np.isfinite(given).all():
        raise ValueError(f"offset must be finite numbers, but {shown(offset)} was given.")
    if given.ndim and given.shape != need:
        what = "one number for each row" + (" and class" if outputs else "")
        raise ValueError(
            f"offset must have {what}, the shape {need}, but its shape is {given.shape}."
        )
    return np.array(np.broadcast_to(given, need), np.float64)


def checked_numbers(estimator: Any, X: Any, y: Any, sample_weight: Any, reset: bool) -> Rows:
    X, y = checked_matrix(estimator, X, y, reset=reset, y_numeric=True)
    y = np.asarray(y, np.float64)
    names = getattr(estimator, "feature_names_in_", None)
    weights = checked_weights(X, sample_weight)
    return Rows(X, y, weights, names=names, counted=weights)


def checked_classes(estimator: Any, X: Any, y: Any, sample_weight: Any, reset: bool) -> Rows:
    X, y = checked_matrix(estimator, X, y, reset=reset)
    check_classification_targets(y)
    classes = np.unique(y) if reset else estimator.classes_
    if len(classes) < 2:
        raise ValueError(
            "The classifier needs samples of at least 2 classes, but y has one class only: "
            f"{shown(classes.tolist()[0])}."
        )
    number = np.searchsorted(classes, y)
    unknown = classes[np.minimum(number, len(classes) - 1)] != y
    if unknown.any():
        raise ValueError(
            f"y has the class {shown(y[unknown].tolist()[0])}, but the classes are "
            f"{shown(classes.tolist())}."
        )
    counted = weights = checked_weights(X, sample_weight)
    if estimator.class_weight is not None:
        weights = checked_weights(X, weights * compute_sample_weight(estimator.class_weight, y))
    present = np.unique(y[weights > 0])
    if reset and len(present) < 2:
        raise ValueError(
            "The classifier needs samples of at least 2 classes, but only one class has rows "
            f"whose weight is not 0: {shown(present.tolist()[0])}."
        )
    estimator.classes_ = classes
    labels = number if len(classes) > 2 else np.where(number == 1, 1.0, -1.0)
    names = getattr(estimator, "feature_names_in_", None)
    return Rows(X, labels, weights, classes, names, counted=counted)


def checked_weights(X: Any, sample_weight: Any) -> np.ndarray:
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.sum() > 0:
        raise ValueError("sample_weight is zero for every sample: at least one must count.")
    return weights
