"""Rows as compiled code takes them from the host: in shapes that do not depend on the rows.

A block of rows that is read from disk is handed to a program that was compiled once. Dense rows are
filled up to the length of a block with copies of the first one; sparse rows have a fixed width and
a fixed number of further segments (`data.sparse`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

from mossp.data.sparse import SparseRows, best_width, is_sparse, padded_length

HostRows: TypeAlias = Any  # a NumPy array, or a matrix of scipy.sparse


class Dense(NamedTuple):
    """Rows of an array."""

    shape: tuple[int, ...]  # of one row
    dtype: str

    @property
    def places(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def bytes(self) -> int:
        """Of one row in a mini-batch."""
        return self.places * np.dtype(self.dtype).itemsize

    def block(self, rows: HostRows, length: int) -> np.ndarray:
        """Filled up to this length."""
        missing = length - len(rows)
        if missing:
            rows = np.concatenate([rows, np.broadcast_to(rows[:1], (missing, *self.shape))])
        return rows

    def batches(self, rows: HostRows, shape: tuple[int, int]) -> np.ndarray:
        """Mini-batches of rows that were drawn one after the other."""
        return rows.reshape(*shape, *self.shape)


class Sparse(NamedTuple):
    """Rows of a sparse matrix."""

    columns: int
    dtype: str
    width: int
    further: int  # segments that the longest row has beyond its first
    segments: int  # that all rows of a block have together, at most

    @classmethod
    def of(
        cls, counts: np.ndarray, columns: int, dtype: Any, length: int, width: int = 0
    ) -> Sparse:
        """For rows with so many nonzeros, in blocks of so many rows."""
        width = width or best_width(counts)
        extra = np.maximum(-(-(counts - width) // width), 0)
        blocks = np.add.reduceat(extra, np.arange(0, len(counts), length))
        segments = padded_length(int(blocks.max()) + 1)
        return cls(columns, np.dtype(dtype).str, width, int(extra.max()), segments)

    @property
    def bytes(self) -> int:
        return self.width * (1 + self.further) * (np.dtype(self.dtype).itemsize + 4)

    def block(self, rows: HostRows, length: int) -> SparseRows:
        return self.fitted(rows, self.segments).map_rows(lambda a: Dense.block(
            Dense(a.shape[1:], a.dtype.str), a, length
        ))  # fmt: skip

    def loose(self, rows: HostRows) -> SparseRows:
        """As many as there are."""
        return self.fitted(rows, padded_length(rows.shape[0] * self.further + 1))

    def fitted(self, rows: HostRows, segments: int) -> SparseRows:
        """With a table of so many further segments."""
        made = SparseRows.of(rows, self.dtype, self.width)
        if not self.further:
            return made
        start = extra = np.zeros(rows.shape[0], np.int32)
        indices = np.zeros((segments, self.width), np.int32)
        values = np.zeros((segments, self.width), self.dtype)
        if made.extra is not None:
            start, extra, count = made.start, made.extra, int(made.extra.sum())
            indices[:count], values[:count] = made.tail_indices[:count], made.tail_values[:count]
        return SparseRows(made.indices, made.values, start, extra, indices, values, self.columns)

    def batches(self, rows: HostRows, shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
        """Indices and values of whole rows, and how many further segments each has."""
        csr = rows.tocsr()
        counts = np.diff(csr.indptr)
        whole = self.width * (1 + self.further)
        indices = np.zeros((len(counts), whole), np.int32)
        values = np.zeros((len(counts), whole), self.dtype)
        row = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(csr.nnz) - np.repeat(csr.indptr[:-1], counts)
        indices[row, place], values[row, place] = csr.indices, csr.data
        extra = np.maximum(-(-(counts - self.width) // self.width), 0).astype(np.int32)
        return (
            indices.reshape(*shape, whole), values.reshape(*shape, whole), extra.reshape(shape),
        )  # fmt: skip

    def rows(self, drawn: tuple[Any, Any, Any]) -> SparseRows:
        """What `batches` made, as rows; in compiled code. Any number of leading axes."""
        indices, values, extra = drawn
        W = self.width
        head = indices[..., :W], values[..., :W]
        if not self.further:
            return SparseRows(*head, None, None, None, None, self.columns)
        # The further segments of a row lie one after the other, and an empty one comes last.
        count = int(np.prod(extra.shape, dtype=int))
        start = jnp.arange(count, dtype=jnp.int32).reshape(extra.shape) * self.further

        def tail(a: Any) -> Any:
            further = a[..., W:].reshape(count * self.further, W)
            return jnp.concatenate([further, jnp.zeros((1, W), a.dtype)])

        return SparseRows(*head, start, extra, tail(indices), tail(values), self.columns)


Form: TypeAlias = Dense | Sparse


def row_bytes(forms: tuple[Form, ...]) -> int:
    """Of one row of all arrays together."""
    return max(sum(form.bytes for form in forms), 1)


def concatenated(parts: list[HostRows]) -> HostRows:
    """Rows one after the other."""
    if is_sparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    return np.concatenate(parts)
