"""Rows in memory, and a part of any rows, read as if they were on disk."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mossp._base.types import PyTree
from mossp.data.forms import Dense, Form, HostRows, Sparse
from mossp.data.sparse import is_sparse
from mossp.data.storage import Storage
from mossp.data.validation import checked_rows


class Memory(Storage):
    """Arrays of NumPy and matrices of scipy.sparse."""

    def __init__(self, data: PyTree) -> None:
        arrays, self.rows = checked_rows(data)
        leaves, self.treedef = jax.tree.flatten(arrays, is_leaf=is_sparse)
        self.arrays = [a.tocsr() if is_sparse(a) else a for a in leaves]
        self.names = [f"the array of shape {a.shape}" for a in self.arrays]

    def forms(self, length: int) -> tuple[Form, ...]:
        return tuple(
            Sparse.of(np.diff(a.indptr), a.shape[1], a.dtype, length)
            if is_sparse(a)
            else Dense(a.shape[1:], a.dtype.str)
            for a in self.arrays
        )

    def entry_counts(self, leaf: int) -> np.ndarray:
        return np.diff(self.arrays[leaf].indptr)

    def read(self, start: int, stop: int) -> list[HostRows]:
        return [a[start:stop] for a in self.arrays]

    def take(self, places: np.ndarray) -> list[HostRows]:
        return [a[places] for a in self.arrays]

    def reopened(self) -> tuple[Any, ...]:
        return Memory, (jax.tree.unflatten(self.treedef, self.arrays),)


class Part(Storage):
    """Consecutive rows of others."""

    def __init__(self, whole: Storage, start: int, stop: int) -> None:
        self.whole, self.start, self.rows = whole, start, stop - start
        self.treedef, self.names = whole.treedef, whole.names
        self.random_access = whole.random_access

    def forms(self, length: int) -> tuple[Form, ...]:
        return self.whole.forms(length)

    def entry_counts(self, leaf: int) -> np.ndarray:
        return self.whole.entry_counts(leaf)[self.start : self.start + self.rows]

    @property
    def bytes_per_row(self) -> float:
        return self.whole.bytes_per_row

    def read(self, start: int, stop: int) -> list[HostRows]:
        return self.whole.read(self.start + start, self.start + stop)

    def take(self, places: np.ndarray) -> list[HostRows]:
        return self.whole.take(self.start + places)

    def entry(self, leaf: int, row: int, place: tuple[int, ...]) -> str:
        return self.whole.entry(leaf, self.start + row, place)

    def reopened(self) -> tuple[Any, ...]:
        kind, arguments = self.whole.reopened()
        return _part, (kind, arguments, self.start, self.start + self.rows)


def _part(kind: Any, arguments: tuple[Any, ...], start: int, stop: int) -> Part:
    return Part(kind(*arguments), start, stop)
