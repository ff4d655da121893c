"""Centres and scales of the columns of a matrix.

Standard deviations are of values scaled by a power of two, which is exact, so that squares neither
overflow nor vanish. A column that varies no more than rounding does is constant: its scale is 1.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

ROUNDING = 8 * np.finfo(float).eps  # what varies no more than this is constant


def moments(X: np.ndarray) -> tuple[list[float], list[float]]:
    """Means and standard deviations of the columns of an array."""
    exponent = np.frexp(np.abs(X).max(axis=0))[1]
    scaled = np.ldexp(X, -exponent)
    shifted = scaled - scaled[0]  # a constant column is exactly 0 from here on
    centre = np.ldexp(scaled[0] + shifted.mean(axis=0), exponent)
    return centre.tolist(), scales_of(shifted.std(axis=0), exponent)


def sparse_moments(X: scipy.sparse.csr_matrix) -> tuple[list[float], list[float]]:
    """Centres of 0, so that the rows stay sparse, and standard deviations about the mean."""
    (rows, n), j = X.shape, X.indices
    exponent = np.frexp(abs(X).max(axis=0).toarray().ravel())[1]
    stored = np.bincount(j, minlength=n)
    lowest = np.where(stored == rows, X.min(axis=0).toarray().ravel(), 0)
    shifted = np.ldexp(X.data, -exponent[j]) - np.ldexp(lowest, -exponent)[j]
    mean = np.bincount(j, shifted, n) / rows
    squares = np.bincount(j, (shifted - mean[j]) ** 2, n) + (rows - stored) * mean**2
    return [0.0] * n, scales_of(np.sqrt(squares / rows), exponent)


def scales_of(deviation: np.ndarray, exponent: np.ndarray) -> list[float]:
    """Standard deviations of values that were scaled by a power of two; 1 of constant columns."""
    scale = np.where(deviation > ROUNDING, np.ldexp(deviation, exponent), 1.0)
    return np.where(scale > 0, scale, 1.0).tolist()
