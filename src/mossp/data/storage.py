"""What it takes to read rows from disk; and the plainest case, arrays in .npy files.

    read(start, stop)   consecutive rows, for full passes
    take(places)        any rows, where that is cheap (`random_access`)

Both give NumPy arrays or matrices of scipy.sparse, one for each leaf of the data.
"""

from __future__ import annotations

import abc
import hashlib
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp._base.printing import shown
from mossp._base.types import PyTree
from mossp.data.forms import Dense, Form, HostRows, row_bytes

MARKED = 1024  # rows that a checkpoint knows the data by


class Storage(abc.ABC):
    """Rows on disk."""

    rows: int
    treedef: Any  # of the data
    names: list[str]  # of its arrays, as an error names them
    random_access = True

    @abc.abstractmethod
    def forms(self, length: int) -> tuple[Form, ...]:
        """Of the arrays, in blocks of so many rows."""

    @property
    def bytes_per_row(self) -> float:
        """In a block."""
        return row_bytes(self.forms(1))

    @abc.abstractmethod
    def read(self, start: int, stop: int) -> list[HostRows]:
        """Rows start, ..., stop - 1."""

    def entry_counts(self, leaf: int) -> np.ndarray:
        """Nonzeros of each row of a sparse array."""
        raise NotImplementedError(f"{type(self).__name__} has no sparse rows.")

    def take(self, places: np.ndarray) -> list[HostRows]:
        """The rows at these places, in this order."""
        raise NotImplementedError(f"{type(self).__name__} is read in blocks.")

    @abc.abstractmethod
    def reopened(self) -> tuple[Any, ...]:
        """A function and its arguments that make this storage again, in another process."""

    def entry(self, leaf: int, row: int, place: tuple[int, ...]) -> str:
        """One number, as an error names it."""
        at = ", ".join(map(str, (row, *place)))
        return f"{self.names[leaf]} at [{at}]"

    def mark(self) -> str:
        """What tells the rows from others: a digest of some of them, from all over."""
        places = np.unique(np.linspace(0, self.rows - 1, MARKED).astype(np.int64))
        found = self.take(places) if self.random_access else self.read(0, min(self.rows, MARKED))
        digest = hashlib.sha256(str(self.rows).encode())
        for rows in found:
            parts = [rows] if isinstance(rows, np.ndarray) else [rows.indices, rows.data]
            for part in parts:
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


class Arrays(Storage):
    """A pytree of .npy files, or of arrays that are mapped into memory."""

    def __init__(self, data: PyTree) -> None:
        given, self.treedef = jax.tree.flatten(data)
        if not given:
            raise ValueError("OnDisk needs at least one file, but no file was given.")
        self.given = [self._named(leaf) for leaf in given]
        self.arrays = [self._opened(leaf) for leaf in self.given]
        self.names = [
            leaf.name if isinstance(leaf, Path) else f"the array of shape {array.shape}"
            for leaf, array in zip(self.given, self.arrays, strict=True)
        ]
        rows = {len(a) for a in self.arrays}
        if len(rows) > 1:
            shapes = ", ".join(str(a.shape) for a in self.arrays)
            raise ValueError(
                "The arrays of data must have the same number of rows, but their shapes are "
                f"{shapes}."
            )
        self.rows = rows.pop()

    @staticmethod
    def _named(leaf: Any) -> Any:
        """A path, or an array that is mapped into memory; of one that is a whole file, its path."""
        if isinstance(leaf, (str, os.PathLike)):
            return Path(leaf)
        if isinstance(leaf, np.ndarray):
            return leaf
        raise TypeError(
            "OnDisk needs names of files, or arrays such as np.memmap, but it was given "
            f"{shown(leaf)}."
        )

    @staticmethod
    def _opened(leaf: Any) -> np.ndarray:
        array: np.ndarray = leaf
        if isinstance(leaf, Path):
            if not leaf.is_file():
                raise FileNotFoundError(f"There is no file {leaf}.")
            try:
                array = np.load(leaf, mmap_mode="r", allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ValueError(
                    f"{leaf} is not an array that numpy.save wrote ({error}): give .npy files in a "
                    "tuple, the name of a Parquet or Arrow file, or that of a LIBSVM file."
                ) from None
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or not array.ndim:
            raise TypeError(
                "data must be numeric arrays with one row a sample, but "
                f"{leaf if isinstance(leaf, Path) else 'an array'} has the type "
                f"{getattr(array, 'dtype', type(array).__name__)} and the shape "
                f"{getattr(array, 'shape', ())}."
            )
        if not len(array):
            raise ValueError("data has no rows: at least one sample is needed.")
        return array

    def forms(self, length: int) -> tuple[Form, ...]:
        native = (a.dtype.newbyteorder("=") for a in self.arrays)
        return tuple(
            Dense(a.shape[1:], dtype.str) for a, dtype in zip(self.arrays, native, strict=True)
        )

    def read(self, start: int, stop: int) -> list[HostRows]:
        return [np.array(a[start:stop], a.dtype.newbyteorder("=")) for a in self.arrays]

    def take(self, places: np.ndarray) -> list[HostRows]:
        order = np.argsort(places, kind="stable")  # in the order of the file, then in that asked
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        ascending = places[order]
        return [np.asarray(a[ascending], a.dtype.newbyteorder("="))[back] for a in self.arrays]

    def reopened(self) -> tuple[Any, ...]:
        files = [
            Path(str(a.filename))
            if isinstance(a, np.memmap) and not isinstance(g, Path) and is_whole(a)
            else g
            for g, a in zip(self.given, self.arrays, strict=True)
        ]
        return Arrays, (jax.tree.unflatten(self.treedef, files),)


def is_whole(array: np.memmap) -> bool:
    """Whether a mapped array is all of a .npy file, so that its name says what it holds."""
    try:
        same = np.load(str(array.filename), mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return False
    return (same.shape, same.dtype, same.offset) == (array.shape, array.dtype, array.offset)
