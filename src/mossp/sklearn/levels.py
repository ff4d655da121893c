"""The score that a share of some rows exceed: where decisions are to be of a certain number."""

from __future__ import annotations

import numpy as np

from mossp._base.types import HostArray


def level(
    scores: HostArray, weights: HostArray, share: float, *, others: HostArray | None = None,
    nearest: bool = False,
) -> float:  # fmt: skip
    """The score that at most the share of these rows exceed, half-way between two that occur.

    Parameters
    ----------
    scores, weights : array
        Of the rows; those without weight do not count.
    share : float
        Between 0 and 1.
    others : array, optional
        Scores of further rows: a level above all of `scores` lies between these and the highest.
    nearest : bool
        The share that comes nearest, which may be larger where scores are tied.

    Examples
    --------
    >>> level(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), 0.5)
    2.5
    >>> tied = np.array([1.0, 3.0, 3.0, 3.0])
    >>> level(tied, np.ones(4), 0.5), level(tied, np.ones(4), 0.5, nearest=True)
    (4.0, 2.0)
    """
    counts = weights > 0
    falling, place = np.unique(-scores[counts], return_inverse=True)
    levels, weights = -falling, np.bincount(place, weights[counts])
    above = np.append(0.0, np.cumsum(weights) / weights.sum())
    k = int(np.searchsorted(above, share + 1e-12, side="right")) - 1
    if nearest and k + 1 < len(above) and above[k + 1] - share < share - above[k]:
        k += 1
    if k == 0:
        higher = np.array([]) if others is None else others[others > levels[0]]
        return float((higher.min() + levels[0]) / 2 if len(higher) else levels[0] + 1)
    return float(levels[-1] - 1 if k == len(levels) else (levels[k - 1] + levels[k]) / 2)
