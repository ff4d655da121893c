"""The rows of a file as a linear model takes them, encoded block by block as they are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mossp.app.features import Features
from mossp.app.fitting.request import Request
from mossp.app.streaming.blocks import Blocks, SparseBlocks, blocks_of
from mossp.app.streaming.learning import TEST, Parts, Usable
from mossp.app.tables import Table, offset_of, target_of
from mossp.data.forms import Dense, Form, HostRows, Sparse
from mossp.data.storage import Storage


@dataclasses.dataclass(frozen=True)
class Encoding:
    """How rows become (X, targets, weights), and offsets after them where there are any."""

    request: Request
    features: Features
    known: Any  # a target that rows have
    classes: np.ndarray | None  # sorted; None where the target is a number
    class_weights: np.ndarray | None  # what a row of each class counts; 1 where it is None
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

    def weights(self, part: np.ndarray, y: np.ndarray) -> np.ndarray:
        w = np.where(np.isin(part, self.kept), self.weight, 0.0)
        if self.class_weights is not None and self.classes is not None:
            w = w * self.class_weights[np.searchsorted(self.classes, y)]
        return w

    def rows(self, whole: Table, start: int) -> list[HostRows]:
        """Of a table that begins with this row of the file; rows of no use are 0, weights too."""
        request = self.request
        table, keep = Usable(request).of(whole)
        y = target_of(table, request.target)
        weights = self.weights(self.parts.of(start, start + whole.rows)[keep], y)
        found = [self.features.matrix(table), self.labels(y), weights]
        if request.offset is not None:
            found.append(offset_of(table, request.offset))
        if keep.all():
            return found
        # A loss may refuse a target of 0.
        blank = [0.0, self.labels(np.array([self.known]))[0], 0.0, 0.0]
        return [spread(a, keep, value) for a, value in zip(found, blank, strict=False)]


def spread(some: np.ndarray, places: np.ndarray, blank: Any) -> np.ndarray:
    """Rows at the places that are marked, the same ones at all others."""
    whole = np.empty((len(places), *some.shape[1:]), some.dtype)
    whole[:] = blank
    whole[places] = some
    return whole


class Encoded(Storage):
    """Rows of a table in blocks, encoded."""

    random_access = False

    def __init__(
        self, blocks: Blocks, encoding: Encoding, told: Callable[[int, int], None] | None = None,
        beside: Sequence[np.ndarray] = (),
    ) -> None:  # fmt: skip
        self.blocks, self.encoding, self.told = blocks, encoding, told
        self.beside = tuple(beside)  # arrays in memory, with a row for each
        self.rows = blocks.rows
        count = 3 if encoding.request.offset is None else 4
        self.treedef = jax.tree.structure((0,) * (count + len(self.beside)))
        self.names = [blocks.path.name, "the target", "the weight", "the offset"][:count]
        self.names += [f"array {k} beside the rows" for k in range(len(self.beside))]

    @property
    def features(self) -> int:
        return len(self.encoding.features.names)

    def with_beside(self, beside: Sequence[np.ndarray]) -> Encoded:
        """The same rows, with more arrays."""
        return Encoded(self.blocks, self.encoding, self.told, beside)

    def each(self) -> Iterator[tuple[int, list[HostRows]]]:
        """(the number of its first row, the rows) of every block."""
        for start in range(0, self.rows, self.blocks.length):
            yield start, self.read(start, min(start + self.blocks.length, self.rows))

    def forms(self, length: int) -> tuple[Form, ...]:
        n, C = self.features, self.encoding.outputs
        X: Form = Dense((n,), "<f8")
        if isinstance(self.blocks, SparseBlocks):
            X = Sparse.of(self.entry_counts(0), n, np.float64, length)
        targets = Dense((), "<f8")
        if C is not None:
            targets = Dense((C,), "<f8") if self.encoding.one_against_rest else Dense((), "<i8")
        offset = [] if self.encoding.request.offset is None else [Dense((), "<f8")]
        beside = [Dense(a.shape[1:], a.dtype.str) for a in self.beside]
        return X, targets, Dense((), "<f8"), *offset, *beside

    def entry_counts(self, leaf: int) -> np.ndarray:
        assert isinstance(self.blocks, SparseBlocks)
        return self.blocks.storage.entry_counts(0)

    def read(self, start: int, stop: int) -> list[HostRows]:
        if self.told is not None:
            self.told(start, stop)
        rows = self.encoding.rows(self.blocks.table(start, stop), start)
        return [*rows, *(a[start:stop] for a in self.beside)]

    def entry(self, leaf: int, row: int, place: tuple[int, ...]) -> str:
        what = self.encoding.features.names[place[0]] if leaf == 0 else self.names[leaf]
        return f"{what} in row {row + 1} of {self.blocks.path.name}"

    def reopened(self) -> tuple[Any, ...]:
        return _encoded, (self.blocks.path, self.blocks.format, self.encoding, self.beside)


def _encoded(path: Any, format: str | None, encoding: Encoding, beside: Any) -> Encoded:
    return Encoded(blocks_of(path, format, encoding.request.target), encoding, None, beside)


def is_train(part: np.ndarray) -> np.ndarray:
    """Rows that a model is fitted to, whether or not a strength was chosen by some of them."""
    return part != TEST
