"""Sums A' diag(w) A over sparse rows for many w: one product with the pairs of every row's entries.

    (A' diag(w) A)_jk = sum_i w_i a_ij a_ik = (P w)_jk,    P_(jk),i = a_ij a_ik,  j <= k

P is as sparse as rows are short, and is formed once, row by row, in as long as one such matrix is
formed anew, for which the place of each product is looked for. A product with P reads its entries
in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

MOST = 6 * 10**6  # pairs, 12 bytes each; and numbers in a matrix of all columns, 8 bytes each
# To form P takes as long as so many matrices of all columns that are formed anew, each of which
# takes as long as so many products with it.
DEAR, FASTER = 1.5, 5


class Pairs(NamedTuple):
    """The pairs of entries of the rows of a matrix with n columns."""

    P: Any  # by columns, of one row of the matrix each; a row for every pair of columns j <= k
    order: np.ndarray  # the rows of the matrix in that order
    n: int

    @classmethod
    def of(cls, rows: Any) -> Pairs:
        """Of a matrix of scipy.sparse by rows.

        Examples
        --------
        >>> A = np.array([[1.0, 2.0], [0.0, 3.0]])
        >>> Pairs.of(scipy.sparse.csr_array(A)).sums(np.array([1.0, 10.0])).tolist()
        [[1.0, 2.0], [2.0, 94.0]]
        """
        rows, n = rows.sorted_indices(), rows.shape[1]
        lengths = np.diff(rows.indptr)
        order = np.argsort(lengths, kind="stable").astype(np.int32)  # alike ones together
        ends = np.cumsum(lengths[order] * (lengths[order].astype(np.int64) + 1) // 2)
        total = int(ends[-1]) if len(ends) else 0
        product, place = np.empty(total, rows.dtype), np.empty(total, np.int32)
        first = at = 0
        for length, count in enumerate(np.bincount(lengths).tolist()):
            alike = order[first : first + count]
            first += count
            here = rows.indptr[alike][:, None] + np.arange(length, dtype=np.int32)
            values, columns = rows.data[here], rows.indices[here].astype(np.int32)
            j, k = np.triu_indices(length)
            end = at + count * len(j)
            own = (count, len(j))
            np.multiply(values.take(j, 1), values.take(k, 1), out=product[at:end].reshape(own))
            before = (columns * np.int32(n)).take(j, 1)
            np.add(before, columns.take(k, 1), out=place[at:end].reshape(own))
            at = end
        starts = np.append(0, ends).astype(np.int32)
        P = scipy.sparse.csc_array((product, place, starts), shape=(n * n, rows.shape[0]))
        return cls(P, order, n)

    def sums(self, w: np.ndarray) -> np.ndarray:
        """A' diag(w) A."""
        upper = (self.P @ w[self.order]).reshape(self.n, self.n)
        whole = upper + upper.T
        np.fill_diagonal(whole, upper.diagonal())
        return whole


def pair_count(lengths: np.ndarray) -> int:
    """Pairs of entries, each with itself included, of rows of these lengths.

    Examples
    --------
    >>> pair_count(np.array([2, 1]))
    4
    """
    lengths = lengths.astype(np.int64)
    return int((lengths * (lengths + 1)).sum() // 2)
