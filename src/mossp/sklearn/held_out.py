"""Scores of rows by models that have not seen them, and what they tell without true labels.

The likelihood of the labels of positive and unlabelled rows is a proper score of a model: on rows
that it has not seen it says how good its scores are, though nobody knows which rows are positive. A
regulariser shrinks scores, by more where labels are few; what matters for decisions are their
ranks. So scores m are judged, and used, as

    sigma(a m + b),    a > 0 most likely,  b such that its mean over the population is the prior

one number that is fitted to scores of rows left out. Two things come of it: the strength of the
regulariser for which such scores have the highest likelihood, and the share of rows whose
probability is above 1/2, which is what the best decisions call positive. It is not the prior: where
classes overlap and positives are fewer, fewer rows are called positive than there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special

from mossp._base.types import HostArray
from mossp.sklearn.formulation import Parameters, seed_of
from mossp.sklearn.paths import solution
from mossp.sklearn.promises import scores_of
from mossp.sklearn.rows import Rows
from mossp.sklearn.unlabelled import PositiveLikelihood

FOLDS = 5
# Of the strength that stands where folds have nothing to say: from scores that are as good as the
# difference of two means to a model that is hardly held back.
FACTORS = np.array([30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01])
SLOPES = (-4.0, 5.0)  # logarithms of a, for scores of the standard deviation 1
CLOSE = 1e-3  # of log a
RIDGE, RELATIVE, MOST = "ridge", 1e-11, 500  # of the search for a ridge


class Calibrated(NamedTuple):
    """What scores of rows left out tell."""

    loss: float  # -log likelihood of the labels, the mean over rows
    share: float  # of the population that is called positive


def held_out(params: Parameters, rows: Rows, lams: Sequence[Any]) -> HostArray:
    """The score of every row at every strength, by the model that is fitted to the other folds.

    Parameters
    ----------
    params : mapping
        Of the model, its loss an object.
    rows : Rows
        All of them.
    lams : sequence
        Strengths, falling; None is the regulariser's own.

    Returns
    -------
    array of shape (strengths, rows)
    """
    folds = folds_of(rows, seed_of(params["random_state"]))
    solved = ridges if is_plain_ridge(params) else general
    scores = np.zeros((len(lams), len(rows.labels)))
    for fold in range(FOLDS):
        left_out = np.flatnonzero(folds == fold)
        if len(left_out):
            found = solved(params, rows.at(np.flatnonzero(folds != fold)), lams)
            scores[:, left_out] = [scores_of(rows.only(left_out), x) for x in found]
    return scores


def enough(rows: Rows) -> bool:
    """Whether every fold leaves labelled and unlabelled rows to fit to."""
    folds = folds_of(rows, 0)
    used, labelled = folds >= 0, rows.labels > 0
    return all(len(np.unique(folds[used & (labelled == side)])) >= 2 for side in (False, True))


def folds_of(rows: Rows, seed: int) -> HostArray:
    """The fold of every row, for rows with weight; -1 for the others.

    Equal rows are in one fold, whichever order they come in: a row twice is a row of weight 2, and
    no model has seen the copy of a row that it is asked for. Labelled rows are as many in all folds
    as they can be.
    """
    rng = np.random.default_rng(seed)
    mantissa, exponent = np.frexp(rows.X @ rng.normal(size=rows.features))
    key = np.round(mantissa * 2**30).astype(np.int64) * 4096 + exponent
    order = scattered(key.astype(np.uint64))
    folds = np.full(len(rows.labels), -1)
    for labelled in (False, True):
        some = np.flatnonzero(((rows.labels > 0) == labelled) & (rows.weights > 0))
        _, place = np.unique(order[some], return_inverse=True)
        weights = np.bincount(place, rows.weights[some])
        before = np.cumsum(weights) - weights / 2
        folds[some] = np.floor(FOLDS * before / weights.sum()).astype(int)[place]
    return folds


def scattered(key: Any) -> HostArray:
    """Numbers that look drawn, the same for the same key (the last mixing of splitmix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(key ^ (key >> np.uint64(31)))


def is_plain_ridge(params: Parameters) -> bool:
    """Whether there is nothing but a smooth function to minimise."""
    free = all(params[name] is None for name in ("equality", "inequality", "feature_weights"))
    held = params["nonnegative"] or params["penalize_intercept"] or params["max_features"]
    return bool(params["regularizer"] == RIDGE and free and not held)


def general(params: Parameters, rows: Rows, lams: Sequence[Any]) -> list[Any]:
    """Answers one after the other, by the solver that the model itself is fitted with."""
    found: list[Any] = [None]
    for lam in lams:
        found.append(solution({**params, "rates": None, "lam": lam}, rows, found[-1]).x)
    return found[1:]


def ridges(params: Parameters, rows: Rows, lams: Sequence[Any]) -> list[Any]:
    """The same under a ridge and no constraint, to six digits, in a tenth of the time."""
    n, weights = rows.features, rows.weights / rows.weights.sum()
    free = 1 if params["fit_intercept"] else 0
    offset = 0.0 if rows.offset is None else rows.offset

    def objective(z: HostArray, lam: float) -> tuple[float, HostArray]:
        w = z[:n]
        each = params["loss"].on_host(rows.X @ w + z[n:].sum() + offset, rows.labels)
        slope = weights * each.slopes
        gradient = np.concatenate([rows.X.T @ slope + lam * w, np.full(free, slope.sum())])
        return float(weights @ each.values + lam / 2 * w @ w), gradient

    found, z = [], np.zeros(n + free)
    for lam in lams:
        z = scipy.optimize.minimize(
            objective, z, (lam,), jac=True, method="L-BFGS-B",
            options={"maxiter": MOST, "ftol": RELATIVE},
        ).x  # fmt: skip
        found.append({"coef": z[:n]} | ({"intercept": z[n]} if free else {}))
    return found


def calibrated(
    loss: PositiveLikelihood, scores: HostArray, rows: Rows, population: HostArray, prior: float
) -> Calibrated:
    """How likely labels are by sigma(a m + b), and the share that is called positive by it.

    Parameters
    ----------
    loss : PositiveLikelihood
        -log likelihood of a label, of the score.
    scores : array
        Of rows left out.
    rows : Rows
        Labels, and weights in the likelihood.
    population : array
        Weights of the rows in the population.
    prior : float
        The share of positives in it.
    """
    weights, population = rows.weights / rows.weights.sum(), population / population.sum()
    centre = population @ scores
    spread = np.sqrt(population @ (scores - centre) ** 2)
    m = (scores - centre) / (spread or 1.0)
    some, w = m[population > 0], population[population > 0]
    largest = np.abs(m).max()

    def logits(slope: float) -> HostArray:
        a = np.exp(slope)
        far = a * largest + abs(scipy.special.logit(prior)) + 1
        excess = lambda b: w @ scipy.special.expit(a * some + b) - prior  # noqa: E731
        return np.asarray(a * m + scipy.optimize.brentq(excess, -far, far, xtol=1e-6))

    def cost(slope: float) -> float:
        return float(weights @ loss.on_host(logits(slope), rows.labels).values)

    found = scipy.optimize.minimize_scalar(
        cost, bounds=SLOPES, method="bounded", options={"xatol": CLOSE}
    )
    share = float(population @ (logits(found.x) > 0))
    return Calibrated(float(found.fun), min(share, 1.0))
