"""The threshold, that is the intercept, at which a model of two classes keeps rates best."""

from __future__ import annotations

import numpy as np

from mossp._base.types import PyTree
from mossp.rates.bounded import LOSS, OWN, Bounded
from mossp.sklearn.promises import Promise, decisions_of

SOME = 200  # thresholds that are looked at where a loss depends on them


def best_threshold(promise: Promise, x: PyTree, temperature: float) -> PyTree | None:
    """The point with that intercept which comes nearest to all bounds, or meets them.

    None without an intercept, for several classes, and where all rows score alike.
    """
    if promise.rows.classes is None or "intercept" not in x or np.ndim(x["intercept"]):
        return None
    scores = promise.scores(x)
    levels = np.unique(scores)
    if len(levels) < 2:
        return None
    between = (levels[1:] + levels[:-1]) / 2
    if LOSS in promise.bounded.kinds:
        between = between[:: max(len(between) // SOME, 1)]
        worst = [promise.judged(scores - level, temperature).excess.max() for level in between]
    else:
        bounded = promise.tightened(decisions_of(scores, promise.rows))
        worst = excess_above(bounded, scores, between).max(axis=1)
    return {**x, "intercept": np.asarray(x["intercept"] - between[int(np.argmin(worst))])}


def excess_above(bounded: Bounded, scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The excess of every row of the bounds where scores above a level are decided for, by level.

    Sums over rows in the order of their scores give all levels at once.
    """
    order = np.argsort(-scores, kind="stable")
    weights = bounded.weights[order]
    above = np.searchsorted(-scores[order], -levels, side="left")  # rows with a higher score
    sums = np.concatenate([np.zeros((1, weights.shape[1])), np.cumsum(weights, axis=0)])
    positive = sums[above]
    negative = sums[-1] - positive
    means = np.empty_like(positive)
    for k, kind in enumerate(bounded.kinds):
        if kind == OWN and bounded.labels is not None:
            own = np.where(bounded.labels[order] == 1, weights[:, k], 0.0)
            right = np.concatenate([[0.0], np.cumsum(own)])
            wrong = np.concatenate([[0.0], np.cumsum(weights[:, k] - own)])
            means[:, k] = right[above] + wrong[-1] - wrong[above]
        else:
            means[:, k] = positive[:, k] if kind == 1 else negative[:, k]
    means /= len(scores)
    found = means @ bounded.matrix.T + bounded.constant
    for j, ratio in bounded.ratios.items():
        below = means[:, ratio.below]
        share = np.divide(found[:, j], below, out=np.full(len(below), -1.0), where=below > 0)
        found[:, j] = share
    return found
