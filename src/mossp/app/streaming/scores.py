"""What a fitted model is worth on rows that are read block by block: sums, and what they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mossp._base.printing import short

Summed = Callable[[np.ndarray], np.ndarray]  # over processes
SMALLEST = np.finfo(float).eps  # of a probability in a logarithm, as scikit-learn has it


class Regression:
    """Sums of errors, and of y about the model's intercept: what is near its mean."""

    def __init__(self) -> None:
        self.sums = np.zeros(5)  # rows, |e|, e^2, and y and y^2 about the intercept

    def add(self, model: Any, X: Any, y: np.ndarray, offset: Any, z: Any = None) -> None:
        """Take rows into account."""
        e, d = y - model.predict(X, offset), y - model.intercept[0]
        self.sums += len(y), np.abs(e).sum(), (e**2).sum(), d.sum(), (d**2).sum()

    def merge(self, summed: Summed) -> None:
        """With what other processes have found."""
        self.sums = summed(self.sums)

    def result(self) -> dict[str, float]:
        n, absolute, squared, total, squares = self.sums.tolist()
        spread = squares - total**2 / max(n, 1)
        return {
            "R²": 1 - squared / spread if spread > 0 else float("nan"),
            "mean absolute error": absolute / n,
            "root mean squared error": (squared / n) ** 0.5,
        }


class Classification:
    """How many rows of each class, one a row, were taken for which; and the log loss."""

    def __init__(self, classes: np.ndarray) -> None:
        self.classes = classes
        self.sums = np.zeros((len(classes), len(classes)))
        self.log_loss = np.zeros(1)
        self.has_log_loss = False
        self.groups: dict[Any, np.ndarray] = {}  # by value of z: deserving or not, decided for

    def add(self, model: Any, X: Any, y: np.ndarray, offset: Any, z: Any = None) -> None:
        """Take rows into account; z is a protected attribute of theirs."""
        known = np.isin(y, self.classes)
        if not known.all():
            raise ValueError(
                f"The test rows have the class {short(y[~known][0])}, which the training rows do "
                "not have."
            )
        true, taken = (np.searchsorted(self.classes, v) for v in (y, model.predict(X, offset)))
        np.add.at(self.sums, (true, taken), 1)
        last = len(self.classes) - 1  # the favourable class
        for value in [] if z is None else np.unique(z).tolist():
            inside = z == value
            counts = self.groups.setdefault(value, np.zeros((2, 2)))
            np.add.at(counts, ((true[inside] == last) * 1, (taken[inside] == last) * 1), 1)
        probabilities = model.probabilities(X, offset)
        if probabilities is not None:
            self.has_log_loss = True
            own = probabilities[np.arange(len(y)), true]
            self.log_loss -= np.log(np.maximum(own, SMALLEST)).sum()

    def merge(self, summed: Summed) -> None:
        """With what other processes have found."""
        self.sums, self.log_loss = summed(self.sums), summed(self.log_loss)

    @property
    def confusion(self) -> list[list[int]]:
        return [[int(number) for number in row] for row in self.sums]

    def result(self) -> dict[str, float]:
        counts, right = self.sums, np.diag(self.sums)
        present = counts.sum(axis=1) > 0
        recall = right / np.maximum(counts.sum(axis=1), 1)
        found = {
            "accuracy": float(right.sum() / counts.sum()),
            "balanced accuracy": float(recall[present].mean()),
        }
        if len(counts) == 2:
            precision = float(right[1] / max(counts[:, 1].sum(), 1))
            found |= {"recall": float(recall[1]), "precision": precision}
            both = precision + found["recall"]
            found["F1"] = 2 * precision * found["recall"] / both if both else 0.0
        if self.has_log_loss:
            found["log loss"] = float(self.log_loss[0] / counts.sum())
        if self.groups:
            found["gap of selection rates"] = gap([c.sum(axis=0) for c in self.groups.values()])
            deserving = [c[1] for c in self.groups.values() if c[1].sum()]
            if deserving:
                found["gap of true positive rates"] = gap(deserving)
        return found


def gap(counts: list[np.ndarray]) -> float:
    """Between the groups that are decided for most and least often."""
    rates = [c[1] / c.sum() for c in counts]
    return float(max(rates) - min(rates))
