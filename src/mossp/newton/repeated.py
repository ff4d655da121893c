"""Rows that occur several times in a table: found once, multiplied once.

Tables of categories and counts repeat themselves. With U the distinct rows and r(i) the one that
row i is equal to,

    (A B)_i = (U B)_{r(i)},    A'R = U'R~,  R~_k = sum_{r(i) = k} R_i,    A'diag(w) A = U'diag(w~) U

so that every product takes the distinct rows alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# The part of the rows beyond which the distinct ones are not worth a table of their own.
WORTH = 0.875


class Repeated(NamedTuple):
    first: np.ndarray  # the rows of A that are those of U
    of: np.ndarray  # r

    def summed(self, R: np.ndarray) -> np.ndarray:
        """R~, for a vector or the columns of a matrix."""
        sums = [
            np.bincount(self.of, column, minlength=len(self.first))
            for column in R.reshape(len(R), -1).T
        ]
        return np.stack(sums, axis=1).reshape(-1, *R.shape[1:]).astype(R.dtype, copy=False)


def repeated(A: np.ndarray) -> Repeated | None:
    """Which rows of A are the distinct ones, or None where there are too many of them.

    Equal rows have equal projections, but for rounding: where some have not, they count as
    distinct. That rows with equal projections are equal is checked.

    Examples
    --------
    >>> A = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> found = repeated(A)
    >>> len(found.first), A[found.first][found.of].tolist()
    (2, [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> found.summed(np.array([1.0, 10.0, 100.0]))[found.of].tolist()
    [101.0, 10.0, 101.0]
    """
    N, n = A.shape
    if not n:
        return None
    projected = A @ np.cos(np.arange(1, n + 1, dtype=A.dtype) ** 2)
    if not np.isfinite(projected).all():
        return None
    if len(np.unique(projected)) > WORTH * N:
        return None
    _, first, of = np.unique(projected, return_index=True, return_inverse=True)
    return Repeated(first, of) if np.array_equal(A[first[of]], A) else None
