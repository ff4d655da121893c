"""A table of rows on the host, for losses of predictions A B: products, and sums over rows.

    A B,    A'R,    A_S' diag(w) A_T

Dense products are BLAS's, with the distinct rows alone where rows repeat themselves. Sparse ones go
by columns, so that what is done on few columns costs their entries and no more.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

from mossp._base.threads import limit
from mossp.data.sparse import SparseRows, is_sparse
from mossp.newton.pairs import DEAR, FASTER, MOST, Pairs, pair_count
from mossp.newton.repeated import Repeated, repeated

# Filled beyond this a table is multiplied as a dense one, and up to it as a sparse one, whatever it
# came as: BLAS is some twenty times as fast by the operation, and takes half of them for squares.
DENSE_FROM = 0.125
# Numbers of dense columns at a time: blocks of rows that stay in the cache.
AT_ONCE = 2**18
# Columns of R that a sparse A' multiplies one after the other: so few take a half to a third of the
# time that SciPy's product with several columns has.
ONE_BY_ONE = 3


# Of so many rows of B on, a product is with those alone that are not 0, where these are few: SciPy
# would multiply all the others by 0.
LONG, FEW = 2**12, 0.125

LARGE_PART = 0.5  # of the columns: matrices of so many are sums by pairs, once these are known
KEPT = 2  # sets of columns that are kept: those of two outputs


class Taken(NamedTuple):
    """Some sparse columns, in both orders."""

    columns: Any
    rows: Any
    owners: np.ndarray  # the row of every entry of `rows`


@dataclasses.dataclass(frozen=True)
class Table:
    """N rows of some features; the last feature may be an intercept's column of ones.

    Examples
    --------
    >>> table = Table(np.array([[1.0, 2.0], [3.0, 4.0]]), ones=True)
    >>> table.times(np.array([[1.0], [1.0], [0.5]])).ravel().tolist()
    [3.5, 7.5]
    >>> table.gram(np.ones(2), np.array([0, 2])).tolist()
    [[10.0, 4.0], [4.0, 2.0]]
    """

    A: Any  # an array, or scipy.sparse by columns
    ones: bool
    rows: Repeated | None = None  # where A has the distinct rows alone
    part_of: tuple[Table, np.ndarray] | None = None  # another table, and which features these are

    @property
    def features(self) -> int:
        return self.A.shape[1] + self.ones

    @property
    def entries(self) -> int:
        """Numbers that are stored."""
        return int(self.A.nnz if self.sparse else self.A.size)

    @property
    def sparse(self) -> bool:
        return is_sparse(self.A)

    def times(self, B: np.ndarray) -> np.ndarray:
        """A B."""
        stored = self.A.shape[1]
        with self._threads(B[0].size * stored):
            product = self._product(B[:stored])
        product = product + B[stored] if self.ones else product
        return product if self.rows is None else product[self.rows.of]

    def _product(self, B: np.ndarray) -> np.ndarray:
        if self.sparse and len(B) >= LONG:
            (held,) = np.nonzero(B.reshape(len(B), -1).any(axis=1))
            if len(held) <= len(B) * FEW:
                return self.A[:, held] @ B[held]
        return self.A @ B

    def transposed(self, R: np.ndarray) -> np.ndarray:
        """A'R."""
        R = self._summed(R)
        with self._threads(R[0].size * self.A.shape[1]):
            if self.sparse and R.ndim == 2 and 1 < R.shape[1] <= ONE_BY_ONE:
                product = np.stack([self._A_T @ r for r in np.ascontiguousarray(R.T)], axis=1)
            else:
                product = self._A_T @ R
        return np.append(product, [R.sum(axis=0)], axis=0) if self.ones else product

    @functools.cached_property
    def _A_T(self) -> Any:  # which scipy takes longer to make than to multiply by, if it is small
        return self.A.T

    def squares(self, w: np.ndarray) -> np.ndarray:
        """The diagonal of A' diag(w) A."""
        A, w = self.A, self._summed(w)
        sums = A.power(2).T @ w if self.sparse else np.einsum("ij,ij,i->j", A, A, w)
        return np.append(sums, w.sum()) if self.ones else sums

    def only(self, features: np.ndarray) -> Table:
        """These features alone, in ascending order, as a table of its own."""
        stored = self.A.shape[1]
        ones = bool(len(features)) and bool(features[-1] == stored)
        kept = features[features < stored]
        if len(kept) == stored:
            return Table(self.A, ones, self.rows)
        if not self.sparse:
            return Table(np.asfortranarray(self.A[:, kept]), ones, self.rows)
        A = self.A[:, kept]
        if is_filled(A.nnz, A):
            return Table(A.toarray(order="F"), ones, self.rows)
        return Table(A, ones, self.rows, part_of=(self, features))

    def gram(self, w: np.ndarray, S: np.ndarray, T: np.ndarray | None = None) -> np.ndarray:
        """A_S' diag(w) A_T; T is S where it is left out, and the result symmetric."""
        w = self._summed(w)
        if not np.isfinite(w).all():  # of a point that is not taken
            return np.full((len(S), len(S if T is None else T)), np.nan)
        if self.sparse:
            return self._sparse_gram(w, S, S if T is None else T)
        with self._threads(len(S) * len(S if T is None else T)):
            return self._symmetric_gram(w, S) if T is None else self._mixed_gram(w, S, T)

    def _threads(self, each: int) -> AbstractContextManager[None]:
        """For a product of so many multiplications a row; sparse ones have none."""
        return limit.for_product(0 if self.sparse else each * self.A.shape[0])

    def _symmetric_gram(self, w: np.ndarray, S: np.ndarray) -> np.ndarray:
        """B'B of the rows with w > 0 less that of those with w < 0: half the work of a product."""
        total, root = np.zeros((len(S), len(S))), np.sqrt(np.abs(w))[:, None]
        low, high = w.min(initial=0.0), w.max(initial=0.0)
        for sign, reached in ((1, high), (-1, -low)):
            if not reached > 0:
                continue
            one_sign = low >= 0 or high <= 0  # as of most losses: no row is left out
            rows = np.arange(len(w)) if one_sign else np.flatnonzero(sign * w > 0)
            for some in self._in_parts(rows, len(S)):
                B = self._columns(some, S) * root[some]
                total += sign * (B.T @ B)
        return total

    def _mixed_gram(self, w: np.ndarray, S: np.ndarray, T: np.ndarray) -> np.ndarray:
        total = np.zeros((len(S), len(T)))
        for some in self._in_parts(np.arange(len(w)), len(S)):
            total += self._columns(some, S).T @ (self._columns(some, T) * w[some, None])
        return total

    def _in_parts(self, rows: np.ndarray, width: int) -> Iterator[np.ndarray | slice]:
        """Some of the rows at a time; a slice, which copies nothing, where all of them are."""
        count = max(1, AT_ONCE // max(width, 1))
        for first in range(0, len(rows), count):
            here = slice(first, first + count)
            yield here if len(rows) == self.A.shape[0] else rows[here]

    def _columns(self, rows: np.ndarray | slice, S: np.ndarray) -> np.ndarray:
        """Some dense columns on some of the rows, those of the intercept included."""
        if self.A.shape[0] * len(S) <= AT_ONCE:
            return self._dense_columns(S)[rows]
        return self._taken_out(self.A[rows], S)

    def _dense_columns(self, S: np.ndarray) -> Any:
        """The same on all rows, where they are few numbers: kept as sparse ones are."""
        found = self._last.get(S.tobytes())
        return self._kept(S, self._taken_out(self.A, S)) if found is None else found

    def _taken_out(self, A: np.ndarray, S: np.ndarray) -> np.ndarray:
        stored = self.A.shape[1]
        if len(S) == self.features and not self.ones:
            return A
        if not self.ones or not (stored == S).any():
            return A[:, S]
        taken = np.ones((len(A), len(S)), A.dtype, order="F")
        taken[:, stored > S] = A[:, S[stored > S]]
        return taken

    def _summed(self, R: np.ndarray) -> np.ndarray:
        """R over equal rows."""
        return R if self.rows is None else self.rows.summed(R)

    def _sparse_gram(self, w: np.ndarray, S: np.ndarray, T: np.ndarray) -> np.ndarray:
        if self.part_of is not None:  # by which pairs and columns are kept
            whole, features = self.part_of
            return whole._sparse_gram(w, features[S], features[T])
        if self._pairs_pay(S, T):
            return self._pairs.sums(w)[np.ix_(S, T)]
        left, right = self._taken(S), self._taken(T)
        weighted = right.rows.copy()
        weighted.data = weighted.data * w[right.owners]
        return (left.columns.T @ weighted).toarray()

    def _taken(self, S: np.ndarray) -> Any:
        """The columns S, kept while the next matrices are on the same: those of a last search."""
        found = self._last.get(S.tobytes())
        if found is None:
            columns = self._by_columns(S)
            rows = columns.tocsr()
            owners = np.repeat(np.arange(rows.shape[0], dtype=np.int32), np.diff(rows.indptr))
            found = self._kept(S, Taken(columns, rows, owners))
        return found

    def _kept(self, S: np.ndarray, columns: Any) -> Any:
        while len(self._last) >= KEPT:
            self._last.pop(next(iter(self._last)), None)
        self._last[S.tobytes()] = columns
        return columns

    @functools.cached_property
    def _last(self) -> dict[bytes, Any]:
        """What was taken out last: dense columns, or sparse ones in both orders."""
        return {}

    @property
    def paired(self) -> bool:
        """Whether matrices are sums by pairs of entries, which take as long for any columns."""
        whole = self if self.part_of is None else self.part_of[0]
        return "_pairs" in vars(whole) and self.features > whole.features * LARGE_PART

    def _pairs_pay(self, S: np.ndarray, T: np.ndarray) -> bool:
        """Whether sums by pairs are less work: from when the others have cost as much as these.

        Matrices of few columns are formed from those, which are few entries.
        """
        if max(self._pair_count, self.features**2) > MOST:  # sums are of all pairs of columns
            return False
        part = self._entry_share(S)
        share = part * (part if T is S else self._entry_share(T))
        # Columns are taken out, by their entries; then these meet each other.
        cost = (part + share) / 2
        self._formed[0] += cost
        return self._formed[0] > DEAR and FASTER * cost > 1

    def _entry_share(self, S: np.ndarray) -> float:
        """The part of all entries that are in the columns S."""
        lengths = np.diff(self.A.indptr)
        ones = self.A.shape[0] * self.ones
        held = np.append(lengths, ones)[S].sum()
        return float(held / max(self.A.nnz + ones, 1))

    @functools.cached_property
    def _formed(self) -> list[float]:
        """Matrices of all columns that were asked for, parts of them included."""
        return [0.0]

    @functools.cached_property
    def _pair_count(self) -> int:
        A = self.A
        return pair_count(np.bincount(A.indices, minlength=A.shape[0]) + self.ones)

    @functools.cached_property
    def _pairs(self) -> Pairs:
        return Pairs.of(self._by_columns(np.arange(self.features)).tocsr())

    def _by_columns(self, S: np.ndarray) -> Any:
        if not self.ones:
            return self.A if len(S) == self.features else self.A[:, S]
        return self._with_ones[:, S]

    @functools.cached_property
    def _with_ones(self) -> Any:
        one = scipy.sparse.csc_array(np.ones((self.A.shape[0], 1), self.A.dtype))
        return scipy.sparse.hstack([self.A, one], format="csc")


def is_filled(count: int, A: Any) -> bool:
    """Whether with so many nonzeros it is better multiplied as a dense matrix."""
    return count > DENSE_FROM * max(A.shape[0] * A.shape[1], 1)


class Known(NamedTuple):
    """What a pass over the data has found: the table without an intercept, and with one."""

    plain: Table
    ones: Table

    @classmethod
    def of(cls, A: Any, rows: Repeated | None) -> Known:
        return cls(Table(A, False, rows), Table(A, True, rows))


_known: dict[tuple[int, int], tuple[weakref.ref[Any], Known | None]] = {}


def table(A: Any, N: int, ones: bool) -> Table:
    """Of the first N rows of an array of JAX, or of sparse rows.

    What takes a pass over the data, sparse rows by columns and the distinct ones of dense rows, is
    found once, and remembered for as long as they live, with the columns taken out last.
    """
    array = A.values if isinstance(A, SparseRows) else A
    key = id(array), N
    if key not in _known:
        forget = weakref.ref(array, lambda _: _known.pop(key, None))
        _known[key] = forget, known_of(A, N)
    found = _known[key][1]
    if found is None:
        return Table(dense(A, N), ones)
    return found.ones if ones else found.plain


def known_of(A: Any, N: int) -> Known | None:
    """None where the rows are best taken as they are, without a copy."""
    if isinstance(A, SparseRows):
        return Known.of(A.by_columns(N), None)
    array = dense(A, N)
    rows = repeated(array)
    distinct = array if rows is None else array[rows.first]
    stored = distinct != 0
    lengths = np.count_nonzero(stored, axis=1)
    if not is_filled(int(lengths.sum()), distinct):
        (places,) = np.nonzero(stored.ravel())  # of which SciPy would have to sort the columns
        columns = (places % distinct.shape[1]).astype(np.int32)
        starts = np.append(0, np.cumsum(lengths)).astype(np.int32)
        by_rows = (distinct.ravel()[places], columns, starts)
        return Known.of(scipy.sparse.csr_array(by_rows, shape=distinct.shape).tocsc(), rows)
    return None if rows is None else Known.of(distinct, rows)


def dense(A: Any, N: int) -> np.ndarray:
    """The first N rows, as floating-point numbers."""
    array = np.asarray(A)[:N]
    return array if array.dtype.kind == "f" else array.astype(np.float64)
