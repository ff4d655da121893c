"""The strength of a regulariser where none is given: from what chance makes of a gradient.

Of n normal deviations the largest is about (2 log 2n)^{1/2} times as large as one. An l1 norm of
the strength s that chance makes of the largest entry of a gradient at 0 keeps all coefficients at
zero that only chance speaks for; a part of it keeps more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mossp._base.types import HostArray
from mossp.data import is_sparse
from mossp.sklearn.rows import Rows

HALF, QUARTER, TENTH = 0.5, 0.25, 0.1
TWICE = 2.0


def is_plain(regularizer: Any) -> bool:
    """Whether it is a name that says nothing of its strength."""
    return isinstance(regularizer, str) and ":" not in regularizer and regularizer != "none"


def of_risk(rows: Rows, prior: float) -> float:
    """For a risk of labelled and unlabelled rows.

    Half of what chance makes of the largest entry of prior (mean over the labelled rows). With all
    of it as the strength of an l1 norm, pi E_+[m] of the labelled rows exceeds that of the
    population by less than the penalty for every m = w'x, and the risk is bounded below.
    """
    return float(HALF * prior * usual_scale(rows) * largest(rows) / np.sqrt(labelled(rows)))


def of_likelihood(rows: Rows, share: float, regularizer: str) -> float:
    """For the likelihood of the labels, of which a share is positive.

    For a ridge 2 sum_j Var(x_j) / N: coefficients of N(0, s^2), of which this ridge is the
    logarithm, with s such that scores have the variance 1/2 where features do not depend on each
    other. Else a quarter of what chance makes of the largest entry of share (mean over the labelled
    rows).
    """
    if regularizer == "ridge":
        return float(TWICE * variances(rows).sum() / counted(rows).sum()) or 1.0
    return float(QUARTER * share * usual_scale(rows) * largest(rows) / np.sqrt(labelled(rows)))


def of_ranks(rows: Rows, share: float, regularizer: str) -> float:
    """For the surrogate of a partial AUC over a share of the negatives.

    Its gradient at 0 is 2 (mean over negatives of the range - mean over positives), and chance
    makes of that a vector of the mean square 4 sum_j Var(x_j) (1/n_+ + 1/(share n_-)). For a ridge
    this over the squared length of the coefficients, as in ridge regression, for which 4 stands.
    Else a tenth of what chance makes of the largest entry.
    """
    negatives = counted(rows)[rows.labels < 0].sum()
    few = 1 / labelled(rows) + 1 / (share * negatives)
    if regularizer == "ridge":
        return float(variances(rows).sum() * few) or 1.0
    return float(TENTH * 2 * usual_scale(rows) * largest(rows) * np.sqrt(few))


def largest(rows: Rows) -> float:
    """Of one normal deviation for each feature, either way."""
    return float(np.sqrt(2 * np.log(2 * max(rows.features, 1))))


def usual_scale(rows: Rows) -> float:
    """The median standard deviation of a feature; 1 if that is 0."""
    return float(np.median(np.sqrt(variances(rows)))) or 1.0


def variances(rows: Rows) -> HostArray:
    """Of the features."""
    share = counted(rows) / counted(rows).sum()
    square = rows.X.multiply(rows.X) if is_sparse(rows.X) else rows.X**2
    return np.maximum(np.ravel(share @ square) - np.ravel(share @ rows.X) ** 2, 0.0)


def labelled(rows: Rows) -> float:
    """How many rows are labelled positive: a weight is a number of equal rows."""
    return float(max(counted(rows)[rows.labels > 0].sum(), 1.0))


def counted(rows: Rows) -> HostArray:
    return np.ones(len(rows.labels)) if rows.counted is None else rows.counted
