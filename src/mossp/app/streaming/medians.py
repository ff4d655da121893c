"""Medians of columns whose values come in blocks, exactly, from four or six passes.

A float64 is a whole number of 64 bits in the same order, once the bits of negative ones are turned.
Each pass counts the next bits of those values that begin as the value of the wanted rank does, so
that it is known bit for bit after the last; of an even number of values there are two such ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

BITS, FEW_BITS = 16, 11  # that a pass counts, and where there are many columns
MANY = 128  # columns

Each = Callable[[], Iterable[np.ndarray]]  # a pass: arrays of rows, NaN where a value is missing


def keys_of(X: np.ndarray) -> np.ndarray:
    """Whole numbers in the order of these.

    Examples
    --------
    >>> k = keys_of(np.array([-np.inf, -2.0, -1e-300, 0.0, 3.0, np.inf]))
    >>> bool((np.diff(k.astype(float)) > 0).all()), values_of(k)[1].item()
    (True, -2.0)
    """
    bits = np.ascontiguousarray(X + 0.0, np.float64).view(np.uint64)  # -0 is 0
    negative = bits >> np.uint64(63) == 1
    return np.where(negative, ~bits, bits | np.uint64(1 << 63))


def values_of(keys: np.ndarray) -> np.ndarray:
    positive = keys >> np.uint64(63) == 1
    bits = np.where(positive, keys & np.uint64((1 << 63) - 1), ~keys)
    return np.ascontiguousarray(bits, np.uint64).view(np.float64)


def medians(each: Each, counts: np.ndarray) -> np.ndarray:
    """The median of every column, of so many values that are not NaN each.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [np.nan, -5.0], [7.0, 4.0], [np.nan, 3.0]])
    >>> medians(lambda: [X[:1], X[1:]], np.array([2, 4])).tolist()
    [4.0, 2.5]
    """
    n = len(counts)
    step = BITS if n <= MANY else FEW_BITS
    ranks = np.stack([(counts - 1) // 2, counts // 2])  # of the values in the middle, from 0
    begun = np.zeros((2, n), np.uint64)  # the bits that are known
    for high in range(64, 0, -step):
        low = max(high - step, 0)
        size = 1 << (high - low)
        seen = np.zeros((2, n, size), np.int64)
        same = (begun[0] == begun[1]).all()
        for X in each():
            keys, there = keys_of(X), ~np.isnan(X)
            for j in range(n):
                k = keys[there[:, j], j]
                for side in range(1 if same else 2):
                    mine = k if high == 64 else k[k >> np.uint64(high) == begun[side, j]]
                    part = mine >> np.uint64(low) & np.uint64(size - 1)
                    seen[side, j] += np.bincount(part.astype(np.int64), minlength=size)
        if same:
            seen[1] = seen[0]
        ends = seen.cumsum(axis=2)
        digit = (ends <= ranks[:, :, None]).sum(axis=2)
        digit = np.minimum(digit, size - 1)
        before = np.take_along_axis(ends - seen, digit[:, :, None], 2)[:, :, 0]
        ranks = ranks - before
        begun = (begun << np.uint64(high - low)) | digit.astype(np.uint64)
    low_value, high_value = values_of(begun[0]), values_of(begun[1])
    return np.where(low_value == high_value, low_value, 0.5 * low_value + 0.5 * high_value)
