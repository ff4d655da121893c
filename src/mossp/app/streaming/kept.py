"""What is kept in memory of all rows of a file, where an option looks at all of them at once.

Rates, covariances with a protected attribute and criteria need the targets, weights and groups of
all rows and the scores that a model gives them: some tens of bytes a row, whatever the number of
columns. The features stay on disk, as a linear operator: X v and X' u are passes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from scipy.sparse.linalg import LinearOperator

from mossp.app.fitting.rows import attributes_of
from mossp.app.streaming.encoded import Encoded
from mossp.app.streaming.learning import Usable
from mossp.data import OnDisk, Sharded
from mossp.data.memory import Part
from mossp.sklearn.rows import Rows


class Features(LinearOperator):
    """The features of all rows of a file, which stay there."""

    def __init__(self, storage: Encoded) -> None:
        self.storage = storage
        super().__init__(  # type: ignore[call-arg]
            np.dtype(np.float64), (storage.rows, storage.features)
        )

    def _matmat(self, V: np.ndarray) -> np.ndarray:
        return np.concatenate([np.asarray(X @ V) for _, (X, *_) in self.storage.each()])

    def _rmatmat(self, U: np.ndarray) -> np.ndarray:
        total = np.zeros((self.shape[1], U.shape[1]))
        for start, (X, *_) in self.storage.each():
            total += X.T @ U[start : start + X.shape[0]]
        return total


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedRows(Rows):
    """Rows that stay on disk, as a linear model takes them.

    Labels, weights and groups are empty unless they were asked for.
    """

    storage: Encoded | None = None

    @property
    def source(self) -> Encoded:
        assert self.storage is not None
        return self.storage

    @property
    def features(self) -> int:
        return self.source.features

    def data(self, targets: np.ndarray, *beside: np.ndarray) -> Any:
        """As `Rows.data`, of this process's rows."""
        storage = self.source.with_beside(beside)
        first, end = share(storage.rows)
        if jax.process_count() == 1:
            return OnDisk.of(storage)
        return Sharded(OnDisk.of(Part(storage, first, end)))

    def balanced(self) -> Rows:
        """Weights have the mean 1 as they are read."""
        return self

    def pieces(self) -> Iterator[Rows]:
        """The rows that have a weight, some at a time, their weights with mean 1 over all."""
        encoding = self.source.encoding
        for _, (X, labels, weights, *offset) in self.source.each():
            counts = weights > 0
            if not counts.any():
                continue
            number = labels if labels.ndim == 1 else (labels > 0).argmax(axis=1)
            yield Rows(
                X[counts], number[counts], weights[counts] / encoding.weight, self.classes,
                self.names, offset=offset[0][counts] if offset else None,
            )  # fmt: skip


def share(rows: int) -> tuple[int, int]:
    """The rows of this process: from the first to before the second."""
    ends = np.linspace(0, rows, jax.process_count() + 1).astype(int)
    return int(ends[jax.process_index()]), int(ends[jax.process_index() + 1])


def streamed(storage: Encoded) -> StreamedRows:
    """Rows of which nothing is kept."""
    none = np.zeros(0)
    encoding = storage.encoding
    offset = None if encoding.request.offset is None else none
    return StreamedRows(None, none, none, encoding.classes, offset=offset, storage=storage)


def kept(storage: Encoded) -> StreamedRows:
    """Rows of which all but the features is kept: labels, weights, groups and offsets."""
    encoding, parts, columns = storage.encoding, [], []
    for start, (_, *rest) in storage.each():
        parts.append(rest)
        columns.append(groups_of(storage, start, len(rest[0])))
    labels, weights, *offset = (np.concatenate(each) for each in zip(*parts, strict=True))
    number = labels if labels.ndim == 1 else (labels > 0).argmax(axis=1)
    attributes = {name: np.concatenate([block[name] for block in columns]) for name in columns[0]}
    return StreamedRows(
        Features(storage), number, weights, encoding.classes, None, attributes or None,
        (weights > 0).astype(float), offset[0] if offset else None, storage,
    )  # fmt: skip


def groups_of(storage: Encoded, start: int, count: int) -> dict[str, np.ndarray]:
    """The columns that bounds speak of, of a block; of rows of no use the first value there is."""
    request = storage.encoding.request
    whole = storage.blocks.table(start, start + count)
    table, keep = Usable(request).of(whole)
    found = attributes_of(request, table)
    if keep.all():
        return found
    places = np.maximum(np.cumsum(keep) - 1, 0)
    return {name: values[places] for name, values in found.items()}
