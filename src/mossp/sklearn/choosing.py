"""Which strength of a path is taken: by scores on folds, or by a criterion on all rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from mossp import losses
from mossp.losses import Predictive
from mossp.sklearn.formulation import targets_of
from mossp.sklearn.promises import losses_of, scores_of
from mossp.sklearn.rows import Rows
from mossp.solving.path import Path

BEST, ONE_ERROR, BIC = "best", "1se", "bic"
CHOICES = (BEST, ONE_ERROR, BIC)
# Losses that are likelihoods as they stand: they have no scale that would have to be estimated.
UNSCALED = (losses.Logistic, losses.Softmax, losses.HuberizedHinge, losses.Poisson)


def checked_choice(given: Any) -> str:
    """One of `CHOICES`.

    Examples
    --------
    >>> checked_choice("aic")
    Traceback (most recent call last):
    ValueError: choose must be one of best, 1se, bic, but 'aic' was given.
    """
    if given not in CHOICES:
        raise ValueError(f"choose must be one of {', '.join(CHOICES)}, but {given!r} was given.")
    return str(given)


def by_scores(scores: np.ndarray, allowed: np.ndarray, choice: str) -> int:
    """The strength of the highest mean score, or the largest within a standard error of it.

    Parameters
    ----------
    scores : array of shape (folds, strengths)
        Strengths fall, so that the first of equals is the simplest model.
    allowed : array of bool
        Strengths among which to choose.

    Examples
    --------
    >>> scores = np.array([[0.1, 0.8, 0.9], [0.1, 0.9, 0.84]])
    >>> [by_scores(scores, np.ones(3, bool), choice) for choice in ("best", "1se")]
    [2, 1]
    """
    mean = np.where(allowed, scores.mean(axis=0), -np.inf)
    best = int(np.argmax(mean))
    if choice == BEST:
        return best
    if len(scores) < 2:
        raise ValueError("choose='1se' needs the scores of at least two folds, but there is one.")
    error = scores[:, best].std(ddof=1) / np.sqrt(len(scores))
    return int(np.argmax(mean >= mean[best] - error))


def bayesian_information(path: Path, loss: Predictive, rows: Rows) -> np.ndarray:
    """Schwarz's criterion at each strength, up to a constant: the lowest is the best.

    It is -2 log(likelihood) + log(N) k, with N rows and k nonzero coefficients. With the mean loss
    f and the least mean loss f* that any predictions have, the first part is

        2 N f                   for likelihoods without a scale: logistic, softmax, Poisson
        N log(2 (f - f*))       for normal errors and dispersions: squared, Huber, gamma, Tweedie
        2 N log(f)              for Laplace's errors: quantile

    where the scale, if there is one, has its most likely value (for gamma and Tweedie by the
    saddlepoint approximation). With as many coefficients as rows anything can be fitted: such
    strengths are infinitely bad.
    """
    targets, counts = targets_of(loss, rows), rows.weights > 0
    N, found = int(counts.sum()), []
    least = float(np.average(loss.least(targets), weights=rows.weights))
    for result in path.results:
        each = losses_of(loss, scores_of(rows, result.x), targets)
        f = float(np.average(each, weights=rows.weights))
        nonzeros = sum(np.count_nonzero(leaf) for leaf in jax.tree.leaves(result.x))
        with np.errstate(divide="ignore"):  # a perfect fit
            if isinstance(loss, UNSCALED):
                misfit = 2 * N * f
            elif isinstance(loss, losses.Quantile):
                misfit = 2 * N * np.log(f)
            else:
                misfit = N * np.log(max(2 * (f - least), 0.0))
        found.append(misfit + np.log(N) * nonzeros if nonzeros < N else np.inf)
    return np.array(found)


def by_information(criterion: np.ndarray, allowed: np.ndarray) -> int:
    """The strength with the lowest value of a criterion, of equals the largest."""
    return int(np.argmin(np.where(allowed, criterion, np.inf)))
