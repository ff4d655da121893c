"""A finite data set: rows that stay on the device, mini-batches by index, full means by blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base.device import on_device
from mossp._base.keys import Purpose, generator
from mossp._base.module import Module
from mossp._base.structure import with_dtype
from mossp._base.types import PyTree
from mossp.data.protocol import Source
from mossp.data.sparse import SparseRows, is_sparse, padded_length

# Of few rows, so many that data sets of a few more or less are padded alike.
FEW = 32
# Rows that a full mean takes at a time: its memory is that of one such block.
ROWS_AT_ONCE = 4096
BATCHES = 16  # whose largest value is looked for
PARTS = 32  # from whose means it is seen how far single rows scatter


def is_rows(leaf: Any) -> bool:
    return isinstance(leaf, SparseRows)


def map_rows(function: Callable[[Any], Any], arrays: PyTree) -> PyTree:
    """Apply a gather, a slice or the like to every array's leading axis, sparse rows included."""
    return jax.tree.map(
        lambda a: a.map_rows(function) if is_rows(a) else function(a), arrays, is_leaf=is_rows
    )


def places_of_some(N: int, count: int) -> np.ndarray:
    """Of so many rows that stand for N, in ascending order; always the same."""
    return np.sort(generator(0, Purpose.POOL).choice(N, min(count, N), replace=False))


class Finite(Module, Source):
    """N rows, padded with copies of the first one; the true N is traced."""

    arrays: PyTree
    N: Any  # below 2^31: indices are 32-bit
    stride: Any  # means are over every stride-th block of rows: 1, but where `thinned`

    @classmethod
    def of(cls, arrays: PyTree, N: int, dtype: Any) -> Finite:
        """From checked NumPy arrays and scipy.sparse matrices with a common leading axis N."""
        length = max(padded_length(N), -(-N // FEW) * FEW if N <= 4 * FEW else 0)
        if N == 1:
            length = 1  # one row cannot tell a sum from a mean: no copies of it

        def copied(a: Any) -> Any:
            if is_sparse(a):
                return SparseRows.of(a, dtype, length=length)
            a = np.asarray(a)
            a = a.astype(dtype, copy=False) if a.dtype.kind == "f" else a
            return np.concatenate([a, np.broadcast_to(a[:1], (length - N, *a.shape[1:]))])

        padded = jax.tree.map(copied, arrays, is_leaf=is_sparse)
        count, one = (on_device(number, np.int32) for number in (N, 1))
        return cls(jax.tree.map(on_device, padded), count, one)

    @classmethod
    def whole(cls, batch: PyTree) -> Finite:
        """The rows of a batch as they are, at most ROWS_AT_ONCE of them."""
        rows = map_rows(lambda a: jnp.asarray(a)[:ROWS_AT_ONCE], batch)
        N = jax.tree.leaves(rows, is_leaf=is_rows)[0].shape[0]
        count, one = (on_device(number, np.int32) for number in (N, 1))
        return cls(rows, count, one)

    @property
    def finite_sum(self) -> bool:
        return True

    @property
    def rows(self) -> int:
        return int(self.N)

    @property
    def columns(self) -> int | None:
        first = jax.tree.leaves(self.arrays, is_leaf=is_rows)[0]
        return first.shape[1] if len(first.shape) == 2 else None

    @property
    def filled_part(self) -> float:
        leaves = jax.tree.leaves(self.arrays, is_leaf=is_rows)
        dense = [a for a in leaves if not is_rows(a)]
        each = sum(math.prod(a.shape[1:]) for a in dense)  # entries of a dense row
        entries = each * self.rows + sum(a.entries(self.rows) for a in leaves if is_rows(a))
        places = each + sum(a.columns for a in leaves if is_rows(a))
        return entries / (places * self.rows) if places else 1.0

    def astype(self, dtype: Any) -> Finite:
        return with_dtype(self, dtype)

    def checked_by(self, check: Callable[[PyTree], None]) -> Finite:
        check(self.on_host())
        return self

    def as_given(self) -> PyTree:
        """The rows as arrays of NumPy and matrices of scipy.sparse."""
        N = self.rows
        return jax.tree.map(
            lambda a: a.to_csr(N) if is_rows(a) else np.asarray(a)[:N], self.arrays, is_leaf=is_rows
        )

    def on_host(self) -> PyTree:
        """The rows in NumPy, without the copies that fill them up."""
        return map_rows(lambda a: np.asarray(a)[: self.rows], self.arrays)

    def take_rows(self, places: np.ndarray) -> PyTree:
        return map_rows(lambda a: on_device(np.asarray(a)[places]), self.arrays)

    def some_rows(self, count: int) -> PyTree:
        return self.take_rows(places_of_some(self.rows, count))

    def extreme_rows(self) -> np.ndarray:
        leaves = jax.tree.leaves(self.arrays, is_leaf=is_rows)
        dense = [np.asarray(a) for a in leaves if not is_rows(a) and a.size]
        ends = [a.reshape(len(a), -1)[: self.rows, place] for a in dense for place in (0, -1)]
        found = [row for column in ends for row in (column.argmax(), column.argmin())]
        return np.array(found, int)

    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        starts = range(0, min(count * rows, self.rows), rows)
        return [self.take_rows(np.arange(s, min(s + rows, self.rows))) for s in starts]

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> np.ndarray:
        """Indices of `count` mini-batches, independent and uniform, with replacement."""
        return rng.integers(0, int(self.N), (count, batch_size), np.int32)

    def batch(self, draw: jax.Array, batch_size: int) -> PyTree:
        return map_rows(lambda a: a[draw], self.arrays)

    def batch_shapes(self, size: int) -> PyTree:
        def of_rows(a: Any) -> Any:
            return jax.ShapeDtypeStruct((size, *a.shape[1:]), a.dtype)

        batch = map_rows(of_rows, self.arrays)  # what sparse rows share is still an array
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), batch)

    def batches(self, draws: jax.Array, batch_size: int) -> PyTree:
        return self.batch(draws, batch_size)

    @property
    def rows_at_once(self) -> int:
        """A power of two that divides the padded length, which has four leading digits."""
        padded = jax.tree.leaves(self.arrays, is_leaf=is_rows)[0].shape[0]
        return padded if padded <= ROWS_AT_ONCE else min(ROWS_AT_ONCE, padded & -padded)

    def thinned(self, rows: int) -> Finite:
        """Whole blocks from all over the data, none of them filled up with copies."""
        length, N = self.rows_at_once, self.rows
        stride = max(1, N // max(rows, length))
        if stride == 1:
            return self
        count = (N // length - 1) // stride + 1
        change = lambda s: (s.N, s.stride)  # noqa: E731
        values = (on_device(v, np.int32) for v in (count * length, stride))
        return eqx.tree_at(change, self, tuple(values))

    def deviation(self, function: Callable[[PyTree], jax.Array]) -> jax.Array:
        """The standard deviation of a row's value, where `function` is a mean over rows.

        From PARTS parts of the rows, whose means scatter by that over the root of their length.
        """
        length = max(self.rows_at_once // PARTS, 1)

        def part(b: Any) -> jax.Array:
            places = (b * length + jnp.arange(length)) % self.N
            return function(map_rows(lambda a: a[places], self.arrays))

        return jnp.std(lax.map(part, jnp.arange(PARTS)), axis=0, ddof=1) * length**0.5

    def largest(self, function: Callable[[PyTree], jax.Array], batch_size: int) -> jax.Array:
        """The largest value of a function of a mini-batch, over some that are always the same."""
        rng = generator(0, Purpose.CONSTANTS)
        drawn = rng.integers(0, np.iinfo(np.int32).max, (BATCHES, batch_size), np.int32)

        def at(places: jax.Array) -> jax.Array:
            return function(map_rows(lambda a: a[places], self.arrays))

        return jnp.max(lax.map(at, jnp.asarray(drawn) % self.N))

    def mean(self, function: Callable[[PyTree], PyTree]) -> PyTree:
        """The mean over all N rows, or over those that are left where it is `thinned`.

        Blocks of equal length; the copies of row 0 that fill the last one are taken off again:
            N mean = sum_blocks length function(block) - copies function(row 0).
        """
        length = self.rows_at_once
        blocks = (self.N + length - 1) // length
        copies = blocks * length - self.N

        def at(start: Any, rows: int) -> PyTree:
            slice_ = lambda a: lax.dynamic_slice_in_dim(a, start, rows)  # noqa: E731
            return function(map_rows(slice_, self.arrays))

        def add(b: Any, total: PyTree) -> PyTree:
            start = b * self.stride * length
            return jax.tree.map(lambda t, v: t + length * v, total, at(start, length))

        zero = jax.tree.map(
            lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(lambda: at(0, length))
        )
        total = lax.fori_loop(0, blocks, add, zero)
        return jax.tree.map(lambda t, v: (t - copies * v) / self.N, total, at(0, 1))
