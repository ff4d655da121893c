"""The rows of a file as a linear model takes them, encoded block by block as they are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mossp.app.features import Features
from mossp.app.streaming.blocks import Blocks, SparseBlocks, blocks_of
from mossp.app.streaming.learning import TEST, Parts
from mossp.app.tables import offset_of, target_of
from mossp.data.forms import Dense, Form, HostRows, Sparse
from mossp.data.storage import Storage


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How rows become (X, targets, weights), and offsets after them where there are any."""

    features: Features
    target: str | None
    classes: np.ndarray | None  # sorted; None where the target is a number
    class_weights: np.ndarray | None  # what a row of each class counts; 1 where it is None
    offset: str | None
    parts: Parts
    kept: tuple[int, ...]  # what rows must be for to have a weight at all
    weight: float  # of these: it makes the mean of all weights 1
    one_against_rest: bool = False  # whether targets are -1 and +1 for each class

    @property
    def outputs(self) -> int | None:
        return None if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def labels(self, y: np.ndarray) -> np.ndarray:
        """Targets as a loss wants them."""
        if self.classes is None:
            return y.astype(np.float64)
        number = np.searchsorted(self.classes, y)
        if self.outputs is None:
            return np.where(number == 1, 1.0, -1.0)
        if self.one_against_rest:
            return np.where(number[:, None] == np.arange(self.outputs), 1.0, -1.0)
        return number

    def weights(self, start: int, y: np.ndarray) -> np.ndarray:
        part = self.parts.of(start, start + len(y))
        w = np.where(np.isin(part, self.kept), self.weight, 0.0)
        if self.class_weights is not None and self.classes is not None:
            w = w * self.class_weights[np.searchsorted(self.classes, y)]
        return w


class Encoded(Storage):
    """Rows of a table in blocks, encoded."""

    random_access = False

    def __init__(
        self, blocks: Blocks, encoding: Encoding, told: Callable[[int, int], None] | None = None
    ) -> None:
        self.blocks, self.encoding, self.told = blocks, encoding, told
        self.rows = blocks.rows
        count = 3 if encoding.offset is None else 4
        self.treedef = jax.tree.structure((0,) * count)
        self.names = [blocks.path.name, "the target", "the weight", "the offset"][:count]

    def forms(self, length: int) -> tuple[Form, ...]:
        n, C = len(self.encoding.features.names), self.encoding.outputs
        X: Form = Dense((n,), "<f8")
        if isinstance(self.blocks, SparseBlocks):
            X = Sparse.of(self.entry_counts(0), n, np.float64, length)
        targets = Dense((), "<f8")
        if C is not None:
            targets = Dense((C,), "<f8") if self.encoding.one_against_rest else Dense((), "<i8")
        offset = [] if self.encoding.offset is None else [Dense((), "<f8")]
        return X, targets, Dense((), "<f8"), *offset

    def entry_counts(self, leaf: int) -> np.ndarray:
        assert isinstance(self.blocks, SparseBlocks)
        return self.blocks.storage.entry_counts(0)

    def read(self, start: int, stop: int) -> list[HostRows]:
        if self.told is not None:
            self.told(start, stop)
        e, table = self.encoding, self.blocks.table(start, stop)
        y = target_of(table, e.target)
        offset = [] if e.offset is None else [offset_of(table, e.offset)]
        return [e.features.matrix(table), e.labels(y), e.weights(start, y), *offset]

    def entry(self, leaf: int, row: int, place: tuple[int, ...]) -> str:
        what = self.encoding.features.names[place[0]] if leaf == 0 else self.names[leaf]
        return f"{what} in row {row + 1} of {self.blocks.path.name}"

    def reopened(self) -> tuple[Any, ...]:
        return _encoded, (self.blocks.path, self.encoding)


def _encoded(path: Any, encoding: Encoding) -> Encoded:
    return Encoded(blocks_of(path), encoding)


def is_train(part: np.ndarray) -> np.ndarray:
    """Rows that a model is fitted to, whether or not a strength was chosen by some of them."""
    return part != TEST
