"""A table of rows on the host, for losses of predictions A B: products, and sums over rows.

    A B,    A'R,    A_S' diag(w) A_T

Dense products are BLAS's. Sparse ones go by columns, so that what is done on few columns costs
their entries and no more.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from mossp.data.sparse import SparseRows

# Filled beyond this, a sparse table is multiplied as a dense one: BLAS is some twenty times as fast
# by the operation.
DENSE_FROM = 0.1
# Numbers of dense columns at a time: blocks of rows, so that memory stays small.
AT_ONCE = 2**22


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

    @property
    def features(self) -> int:
        return self.A.shape[1] + self.ones

    @property
    def entries(self) -> int:
        """Numbers that are stored."""
        return int(self.A.nnz if self.sparse else self.A.size)

    @property
    def sparse(self) -> bool:
        return bool(scipy.sparse.issparse(self.A))

    def times(self, B: np.ndarray) -> np.ndarray:
        """A B."""
        stored = self.A.shape[1]
        product = self.A @ B[:stored]
        return product + B[stored] if self.ones else product

    def transposed(self, R: np.ndarray) -> np.ndarray:
        """A'R."""
        product = self._A_T @ R
        return np.append(product, [R.sum(axis=0)], axis=0) if self.ones else product

    @functools.cached_property
    def _A_T(self) -> Any:  # which scipy takes longer to make than to multiply by, if it is small
        return self.A.T

    def squares(self, w: np.ndarray) -> np.ndarray:
        """The diagonal of A' diag(w) A."""
        A = self.A
        sums = A.power(2).T @ w if self.sparse else np.einsum("ij,ij,i->j", A, A, w)
        return np.append(sums, w.sum()) if self.ones else sums

    def only(self, features: np.ndarray) -> Table:
        """These features alone, in ascending order, as a table of its own."""
        stored = self.A.shape[1]
        ones = bool(len(features)) and bool(features[-1] == stored)
        kept = features[features < stored]
        if len(kept) == stored:
            return Table(self.A, ones)
        if not self.sparse:
            return Table(np.asfortranarray(self.A[:, kept]), ones)
        A = self.A[:, kept]
        filled = A.nnz > DENSE_FROM * max(A.shape[0] * A.shape[1], 1)
        return Table(A.toarray(order="F") if filled else A, ones)

    def gram(self, w: np.ndarray, S: np.ndarray, T: np.ndarray | None = None) -> np.ndarray:
        """A_S' diag(w) A_T; T is S where it is left out, and the result symmetric."""
        if self.sparse:
            return self._sparse_gram(w, S, S if T is None else T)
        total = np.zeros((len(S), len(S) if T is None else len(T)))
        rows = max(1, AT_ONCE // max(len(S), 1))
        root = np.sqrt(w) if T is None and w.min(initial=0.0) >= 0 else None
        for first in range(0, len(w), rows):
            here = slice(first, first + rows)
            left = self._columns(here, S)
            if root is not None:
                left = left * root[here, None]
                total += left.T @ left
            else:
                right = left if T is None else self._columns(here, T)
                total += left.T @ (right * w[here, None])
        return total

    def _columns(self, rows: slice, S: np.ndarray) -> np.ndarray:
        """Some dense columns on some of the rows, those of the intercept included."""
        stored = self.A.shape[1]
        if len(S) == self.features and not self.ones:
            return self.A[rows]
        A = self.A[rows]
        if not self.ones or not (stored == S).any():
            return A[:, S]
        taken = np.ones((len(A), len(S)), A.dtype, order="F")
        taken[:, stored > S] = A[:, S[stored > S]]
        return taken

    def _sparse_gram(self, w: np.ndarray, S: np.ndarray, T: np.ndarray) -> np.ndarray:
        left, right = self._taken(S), self._taken(T)
        weighted = right.rows.copy()
        weighted.data = weighted.data * w[right.owners]
        return (left.columns.T @ weighted).toarray()

    def _taken(self, S: np.ndarray) -> Taken:
        """The columns S, kept while the next matrices are on the same: those of a last search."""
        key = S.tobytes()
        if key not in self._last:
            while len(self._last) >= KEPT:
                self._last.pop(next(iter(self._last)))
            columns = self._by_columns(S)
            rows = columns.tocsr()
            owners = np.repeat(np.arange(rows.shape[0], dtype=np.int32), np.diff(rows.indptr))
            self._last[key] = Taken(columns, rows, owners)
        return self._last[key]

    @functools.cached_property
    def _last(self) -> dict[bytes, Taken]:
        return {}

    def _by_columns(self, S: np.ndarray) -> Any:
        if not self.ones:
            return self.A if len(S) == self.features else self.A[:, S]
        return self._with_ones[:, S]

    @functools.cached_property
    def _with_ones(self) -> Any:
        one = scipy.sparse.csc_array(np.ones((self.A.shape[0], 1), self.A.dtype))
        return scipy.sparse.hstack([self.A, one], format="csc")


_known: dict[tuple[int, int], tuple[weakref.ref[Any], Any]] = {}


def on_host(A: Any, N: int) -> Any:
    """The first N rows of an array of JAX, or of sparse rows by columns.

    Sparse rows are converted once, and remembered for as long as they live.
    """
    if not isinstance(A, SparseRows):
        array = np.asarray(A)[:N]
        return array if array.dtype.kind == "f" else array.astype(np.float64)
    key = id(A.values), N
    if key not in _known:
        forget = weakref.ref(A.values, lambda _: _known.pop(key, None))
        _known[key] = forget, A.by_columns(N)
    return _known[key][1]
