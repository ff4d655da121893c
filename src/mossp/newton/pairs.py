"""Sums A' diag(w) A over sparse rows for many w: one product with the pairs of every row's entries.

    (A' diag(w) A)_jk = sum_i w_i a_ij a_ik = (P w)_jk,    P_(jk),i = a_ij a_ik,  j <= k

P is as sparse as rows are short, and is formed once. A product with it reads its entries in order,
some six times as fast as A' (diag(w) A) is formed anew, which looks for the place of each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

MOST = 6 * 10**6  # pairs, 12 bytes each
# To form P takes as long as so many matrices of all columns that are formed anew, each of which
# takes as long as so many products with it.
DEAR, FASTER = 2, 6


class Pairs(NamedTuple):
    """The pairs of entries of the rows of a matrix with n columns."""

    P: Any  # by rows, one for every pair of columns j <= k
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
        # The longest rows first: those with a k-th entry are then the first of them, for every k.
        order = np.argsort(-lengths, kind="stable").astype(np.int32)
        falling, starts = -lengths[order], rows.indptr[order]
        having = [int(np.searchsorted(falling, -k)) for k in range(int(-falling.min(initial=0)))]
        values = [rows.data[starts[:m] + k] for k, m in enumerate(having)]
        columns = [rows.indices[starts[:m] + k].astype(np.int32) for k, m in enumerate(having)]
        before = [column * np.int32(n) for column in columns]
        total, at = sum(m * (k + 1) for k, m in enumerate(having)), 0
        product, place = np.empty(total, rows.dtype), np.empty(total, np.int32)
        owner = np.empty(total, np.int32)
        for k, m in enumerate(having):
            for j in range(k + 1):
                here = slice(at, at + m)
                np.multiply(values[j][:m], values[k], out=product[here])
                np.add(before[j][:m], columns[k], out=place[here])
                owner[here] = order[:m]
                at += m
        P = scipy.sparse.coo_array((product, (place, owner)), shape=(n * n, rows.shape[0]))
        P.has_canonical_format = True  # no place occurs twice: a search for such would be dear
        return cls(P.tocsr(), n)

    def sums(self, w: np.ndarray) -> np.ndarray:
        """A' diag(w) A."""
        upper = (self.P @ w).reshape(self.n, self.n)
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
