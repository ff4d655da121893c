"""Sparse rows of fixed width, so that a mini-batch of them has a fixed shape.

Row i keeps its first W nonzeros in a table of N rows and the rest, if any, in further segments of
width W in a second table. W is chosen to make the two tables together about as small as possible,
so that one long row costs its own length, not N times it.
"""

from __future__ import annotations

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy  # whose parts take long to import, and are where they are first used
from jax import lax
from jax.custom_batching import custom_vmap

from mossp._base.module import Module

SMALL = 2**14  # places
# Places that may be wasted, relative to the fewest: a segment costs a round of a loop besides.
WASTE = 1.25


def is_sparse(matrix: Any) -> bool:
    """Whether it is a matrix of scipy.sparse, which is a long import: before it there is none."""
    return "scipy.sparse" in sys.modules and bool(scipy.sparse.issparse(matrix))


def padded_length(N: int) -> int:
    """N rounded up so that few lengths exist: at most an eighth is added.

    Data sets whose lengths round to the same value, such as the folds of a cross-validation,
    share one compiled program.

    Examples
    --------
    >>> padded_length(400), padded_length(401), padded_length(32_561)
    (416, 416, 32768)
    """
    unit = max(1, 2 ** (N.bit_length() - 4))
    return -(-N // unit) * unit


class SparseRows(Module):
    """A matrix given by rows; `rows @ x` works as for a dense matrix, for a vector or matrix x.

    Examples
    --------
    >>> import scipy.sparse
    >>> rows = SparseRows.of(scipy.sparse.csr_matrix(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])))
    >>> rows.shape, (rows @ np.array([1.0, 1.0, 1.0])).tolist()
    ((2, 3), [3.0, 3.0])
    """

    indices: Any  # (N, W) columns of the first W nonzeros; unused places hold 0
    values: Any  # (N, W) their values; unused places hold 0.0
    start: Any  # (N,) first further segment of a row, or None when no row has one
    extra: Any  # (N,) number of further segments
    tail_indices: Any  # (M + 1, W) the further segments; the last one is empty
    tail_values: Any
    columns: int = eqx.field(static=True)

    @classmethod
    def of(
        cls, matrix: Any, dtype: Any = np.float64, width: int | None = None, length: int = 0
    ) -> SparseRows:
        """From a scipy.sparse matrix.

        Parameters
        ----------
        matrix : sparse array
            The rows, which are copied.
        dtype : dtype
            Of the values.
        width : int, optional
            W; the best one unless told.
        length : int
            Copies of the first row make it as many rows as this, where there are fewer.
        """
        csr = matrix.tocsr()
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        counts = np.diff(csr.indptr)
        width = width or best_width(counts)
        N, n = csr.shape
        length = max(length, N)
        indices, values = np.zeros((length, width), np.int32), np.zeros((length, width), dtype)
        # Entry p of row i has the place p + (W i - indptr[i]), where it is one of the first W.
        rows = np.arange(N)
        place = np.repeat(width * rows - csr.indptr[:-1], counts)
        place += np.arange(csr.nnz)
        if counts.max(initial=0) <= width:
            indices.ravel()[place], values.ravel()[place] = csr.indices, csr.data
            indices[N:], values[N:] = indices[:1], values[:1]
            return cls(indices, values, None, None, None, None, n)
        head = place < np.repeat(width * (rows + 1), counts)
        place = place[head]
        indices.ravel()[place], values.ravel()[place] = csr.indices[head], csr.data[head]
        indices[N:], values[N:] = indices[:1], values[:1]
        further = np.maximum(counts - width, 0)
        extra = -(-further // width).astype(np.int32)
        start = (np.cumsum(extra) - extra).astype(np.int32)
        # At least one empty segment; more of them, so that like data have like shapes.
        segments = padded_length(int(extra.sum()) + 1)
        tail_indices = np.zeros((segments, width), np.int32)
        tail_values = np.zeros((segments, width), dtype)
        shift = start.astype(np.int64) * width - np.cumsum(further) + further
        place = np.arange(int(further.sum())) + np.repeat(shift, further)
        tail_indices.ravel()[place] = csr.indices[~head]
        tail_values.ravel()[place] = csr.data[~head]
        start, extra = (np.append(a, np.repeat(a[:1], length - N)) for a in (start, extra))
        return cls(indices, values, start, extra, tail_indices, tail_values, n)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.values.shape[0], self.columns)

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def entries(self, rows: int) -> int:
        """Nonzeros of the first so many rows; further segments are all counted."""
        held = [np.asarray(self.values)[:rows]]
        held += [] if self.tail_values is None else [np.asarray(self.tail_values)]
        return sum(int(np.count_nonzero(values)) for values in held)

    def to_csr(self, rows: int) -> Any:
        """The first so many rows, as a matrix of scipy.sparse."""
        W, kept = self.values.shape[1], np.arange(rows)
        entries = [(np.repeat(kept, W), self.indices[:rows], self.values[:rows])]
        if self.extra is not None:
            extra, start = np.asarray(self.extra)[:rows], np.asarray(self.start)[:rows]
            row = np.repeat(kept, extra)
            ends = np.cumsum(extra)
            segment = np.arange(ends[-1]) - np.repeat(ends - extra, extra) + start[row]
            tails = (np.asarray(a)[segment] for a in (self.tail_indices, self.tail_values))
            entries.append((np.repeat(row, W), *tails))
        row, column, value = (np.concatenate([np.ravel(e[i]) for e in entries]) for i in range(3))
        stored = value != 0
        places = row[stored], column[stored]
        return scipy.sparse.csr_matrix((value[stored], places), shape=(rows, self.columns))

    def __len__(self) -> int:
        return self.values.shape[0]

    def by_columns(self, N: int | None = None) -> Any:
        """The first N rows, or all, as a sparse array of SciPy by columns."""
        N = len(self) if N is None else N
        values, indices = np.asarray(self.values)[:N], np.asarray(self.indices)[:N]
        owner = np.arange(N, dtype=np.int32)
        if self.extra is not None:
            start, extra = (np.asarray(a)[:N] for a in (self.start, self.extra))
            further = np.repeat(owner, extra)
            first = np.repeat(start - np.cumsum(extra) + extra, extra)
            segments = first + np.arange(len(further))
            values = np.concatenate([values, np.asarray(self.tail_values)[segments]])
            indices = np.concatenate([indices, np.asarray(self.tail_indices)[segments]])
            owner = np.append(owner, further)
        # All places, as a matrix with a row for each segment: those that are unused are zeros in
        # column 0, which are left out.
        W, kind = values.shape[1], np.int32 if values.size < 2**31 else np.int64
        starts = np.arange(0, values.size + 1, W, dtype=kind)
        places = (values.ravel(), indices.ravel(), starts)
        found = scipy.sparse.csr_array(places, shape=(len(owner), self.columns)).tocsc()
        first = found.data[: found.indptr[1]] != 0
        (kept,) = np.nonzero(first)
        unused = len(first) - len(kept)
        data, rows = found.data[unused:], found.indices[unused:]
        data[: len(kept)], rows[: len(kept)] = found.data[kept], found.indices[kept]
        rows = rows if self.extra is None else owner[rows]
        ends = found.indptr - unused
        ends[0] = 0
        return scipy.sparse.csc_array((data, rows, ends), shape=(N, self.columns))

    def map_rows(self, function: Any) -> SparseRows:
        """Apply `function` to what is stored by row: a gather, a slice, padding."""
        indices, values, start, extra = (
            None if a is None else function(a)
            for a in (self.indices, self.values, self.start, self.extra)
        )
        tail = (self.tail_indices, self.tail_values)
        return SparseRows(indices, values, start, extra, *tail, columns=self.columns)

    def __getitem__(self, index: Any) -> SparseRows:
        return self.map_rows(lambda a: a[index])

    def __matmul__(self, x: Any) -> jax.Array:
        x = jnp.asarray(x)
        if x.shape[0] != self.columns:
            raise TypeError(f"sparse rows of {self.columns} columns cannot multiply {x.shape}.")
        product = weighted_rows(self.indices, self.values, x)
        if self.extra is None:
            return product
        tail = (self.tail_indices, self.tail_values, self.start, self.extra)
        return product + tail_product(*map(jnp.asarray, tail), x)


def best_width(counts: np.ndarray) -> int:
    """The segment width W for rows with so many nonzeros: the widest that wastes few places.

    Of few that come into question, so that the folds of a cross-validation agree in it.

    Examples
    --------
    >>> best_width(np.full(10_000, 20)), best_width(np.array([5_000] + [3] * 10_000))
    (20, 3)
    """
    if counts.size == 0 or counts.max() == 0:
        return 1
    whole = 1 << int(counts.max() - 1).bit_length()
    if counts.size * whole <= SMALL:  # then fewer shapes are worth more than fewer places
        return max(whole, 8)
    widths = np.unique([padded_length(int(w)) for w in np.unique(counts) if w] or [1])
    # Powers of two besides: where most rows are empty, a narrow table costs them little.
    widths = np.union1d(widths, 2 ** np.arange(int(counts.max()).bit_length()))
    sizes = np.array([w * np.maximum(-(-counts // w), 1).sum() for w in widths])
    return int(widths[sizes <= WASTE * sizes.min()].max())


def weighted_rows(indices: Any, values: Any, x: Any) -> jax.Array:
    """sum_w values[i, w] x[indices[i, w]] for each i."""
    return jnp.einsum("iw,iw...->i...", values, jnp.asarray(x)[indices])


@custom_vmap
def rounds(extra: Any) -> Any:
    """As many as the longest row needs; of all batches together where there are several.

    One number for all of them: a loop whose length is each batch's own would copy what it adds to
    in every round, and choose between the two.
    """
    return jnp.max(extra)


@rounds.def_vmap
def _(axis_size: int, in_batched: list[bool], extra: Any) -> tuple[Any, bool]:
    return rounds(extra), False


def add_segments(indices: Any, values: Any, start: Any, extra: Any, x: Any) -> jax.Array:
    """What the further segments add: as many rounds as the longest row *of this batch* needs."""

    def add(j: Any, total: jax.Array) -> jax.Array:
        s = jnp.where(j < extra, start + j, indices.shape[0] - 1)
        return total + weighted_rows(indices[s], values[s], x)

    zero = jnp.zeros(start.shape + x.shape[1:], jnp.result_type(values, x))
    return lax.fori_loop(0, rounds(extra), add, zero)


# The number of rounds is data, and reverse mode cannot go through such a loop; the product is
# linear in x, so that its transpose can be written down. Forward mode goes through both.
tail_product = jax.custom_vjp(add_segments)


def _forward(indices: Any, values: Any, start: Any, extra: Any, x: Any) -> Any:
    return add_segments(indices, values, start, extra, x), (indices, values, start, extra, x)


def _backward(saved: Any, r: Any) -> Any:
    indices, values, start, extra, x = saved

    def add(j: Any, total: jax.Array) -> jax.Array:
        s = jnp.where(j < extra, start + j, indices.shape[0] - 1)
        return total.at[indices[s]].add(jnp.einsum("iw,i...->iw...", values[s], r))

    return None, None, None, None, lax.fori_loop(0, rounds(extra), add, jnp.zeros_like(x))


tail_product.defvjp(_forward, _backward)
