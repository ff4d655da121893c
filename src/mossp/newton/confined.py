"""Steps for means of predictions under constraints: no prediction moves further than it may.

Where a row's loss is saturated it bends little, and a Newton step, which believes that it always
will, sends predictions far away: to the wrong side, from where a saturated loss leads nowhere. So
far from a solution the model is the one above the Lagrangian row by row,

    M = sum_i T_i' (|D_i| + kappa |slope_i|) T_i / N

with which no row alone asks for a move beyond 1 / kappa: a trust region in units of predictions,
whatever those of x are. -g is linearised, h and the linearised constraints are as they are. kappa
falls where the model was right and rises where it was not. Newton's step takes over where it does
not move predictions further than that.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from mossp.newton import pieces, proximal
from mossp.newton.constrained import minimum
from mossp.newton.hessian import unit_rows
from mossp.newton.linear import LinearLoss
from mossp.newton.linear_mean import LinearMean
from mossp.newton.quadratic import positive_factor
from mossp.newton.residual import Evaluation
from mossp.newton.search import Reach, Search

TRIES = 12  # models, of ever shorter reach
CHANGE = 4.0  # of kappa at once
POOR, GOOD, ENOUGH = 0.25, 0.75, 1e-2  # parts of the promised decrease that came
LEAST = 1e-6  # kappa: no limit any more
RIDGE = 1e-12  # of M, relative to its largest entry: predictions may not depend on some x at all
# nu is multiplied by RAISE, at most RAISES times at once, while models leave more than LEFT of the
# violation; it is at least FAINT times the gradient.
RAISES, RAISE, LEFT, FAINT = 8, 4.0, 0.1, 1e-2
# Of the way that constraints change along, and of the sum of what changes them: so much beyond them
# is rounding of models.
PUSHED, ROUNDING = 0.1, 1e-6
HALF, RESOLVED = 0.5, 1e-9  # of the residual; of F, that it may rise where the residual halves
ROUGH = 0.05  # of what a model falls by: the rest is not worth another round of its minimisation
FURTHEST = 64  # times a step that a model was right about
# kappa: from here on the curvature of the Lagrangian itself is tried first; from IDENTIFIES on if
# there is an h, of whose pieces Newton's own step knows nothing.
TRUSTED, IDENTIFIES = 1e-3, 0.1
# Of the promised decrease that nu times the bend of constraints may be, without a correction.
CURVED = 0.1
# nu is lowered LOWERINGS times at most where it is TOO_LARGE times a multiplier: the penalty would
# otherwise allow for short steps along the constraints only.
LOWERINGS, TOO_LARGE = 10, 8.0
SMALL = 1e-12  # of |H|, whose least eigenvalues are rounding
# Damping of |H|, in units of the residual: raised up to DAMPINGS times at once.
DAMPINGS, MORE_DAMPING, LEAST_DAMPING = 4, 10.0, 1e-4
MARGIN = 2.0  # by which nu exceeds the multipliers


def within_reach(search: Search, reach: Reach, dx: np.ndarray) -> bool:
    """Whether a step moves no prediction further than models are trusted."""
    linear, terms = search.kkt.linear, search.kkt.terms
    assert linear is not None
    assert terms is not None
    means = [mean for _, mean in terms.means]
    furthest = max([moved(linear, dx), *(mean.moved(dx) for mean in means)])
    return furthest * reach.kappa <= 1.0


class Model(NamedTuple):
    """The convex model around a pair: <w, d> + d'M d / 2 + h(x + d), and linearised constraints."""

    at: Evaluation
    w: np.ndarray
    M: np.ndarray
    c: np.ndarray
    part: float = 0.0  # of what a model falls by, that is not worth another round

    def violated(self, x: np.ndarray) -> float:
        c = self.c + self.at.J @ (x - self.at.x)
        return float(np.abs(np.where(self.at.is_equality, c, np.maximum(c, 0.0))).sum())

    def value(self, reg: Any, x: np.ndarray, nu: float) -> float:
        d = x - self.at.x
        smooth = float(self.w @ d + d @ (self.M @ d) / 2)
        return smooth + float(reg.h(x)) + nu * self.violated(x)


class Minimum(NamedTuple):
    x: np.ndarray
    q: np.ndarray


def confined_step(search: Search, reach: Reach, at: Evaluation) -> Evaluation | None:
    """The first pair at the minimum of a model that lowers the exact penalty as it should."""
    q, w = at.q, at.gradient - at.s_g
    lower_penalty(search, reach, at)
    trusted = TRUSTED if is_smooth(search.kkt.regularizer, at.x) else IDENTIFIES
    trial = trusted_step(search, reach, at, w) if reach.kappa <= trusted else None
    if trial is not None:
        return trial
    for _ in range(TRIES):
        search.meter.check()
        model = Model(at, w, matrix(search, at, q, reach.kappa), at.c, ROUGH)
        if not np.isfinite(model.M).all():
            return None
        found = steered(search, model, q)
        if (found.q[q == 0] != 0).any():  # a constraint of which M knows nothing yet
            q = found.q
            model = model._replace(M=matrix(search, at, q, reach.kappa))
            if not np.isfinite(model.M).all():
                return None
            found = steered(search, model, q)
        trial = taken(search, reach, model, found)
        if trial is not None:
            return trial
        q = found.q
    return None


def trusted_step(search: Search, reach: Reach, at: Evaluation, w: np.ndarray) -> Evaluation | None:
    """By |H| with all entries and some damping.

    Solutions need not be isolated: where multipliers make rows count for nothing, H vanishes along
    what only these rows see, and what is left of the slope there is no reason to move. A damping
    that falls with the residual leaves Newton's rate as it is (Li, Fukushima, Qi and Yamashita).
    """
    H = proximal.positive(search.hessian.square(at, np.arange(len(at.x))))
    kappa = reach.kappa
    for _ in range(DAMPINGS):
        size = SMALL * float(np.diag(H).max(initial=1.0)) + reach.damping * at.residual
        model = Model(at, w, H + size * np.eye(len(H)), at.c)
        found = steered(search, model, at.q)
        trial = None
        if within_reach(search, reach, found.x - at.x):
            trial = taken(search, reach, model, found)
        if trial is not None:
            reach.damping = max(reach.damping / CHANGE, LEAST_DAMPING)
            return trial
        reach.kappa, reach.damping = kappa, reach.damping * MORE_DAMPING
    reach.damping = min(reach.damping, 1.0)
    return None


def taken(search: Search, reach: Reach, model: Model, found: Minimum) -> Evaluation | None:
    """The pair at the minimum of a model, if it is good enough; kappa learns from it."""
    reg, penalty, at = search.kkt.regularizer, search.penalty, model.at
    penalty.require(MARGIN * float(np.abs(found.q).max(initial=0.0)))
    trial = search.evaluate(found.x, found.q, at.t)
    promised = model.value(reg, at.x, penalty.nu) - model.value(reg, found.x, penalty.nu)
    ratio = part_that_came(search, at, trial, promised)
    if ratio < GOOD and penalty.nu * bent(model, found, trial) > CURVED * promised:
        again = corrected(search, model, found, trial)
        if penalty(again) < penalty(trial) or not np.isfinite(trial.residual):
            trial, ratio = again, part_that_came(search, at, again, promised)
    rise = penalty(trial) - penalty(at)
    if trial.residual <= HALF * at.residual and rise <= RESOLVED * (1 + abs(at.F)):
        return trial  # nearer, and what the penalty says is next to rounding
    if ratio < POOR:
        reach.kappa *= CHANGE
    elif ratio > GOOD:
        reach.kappa = max(reach.kappa / CHANGE, LEAST)
        return furthest(search, at, trial)
    return trial if ratio > ENOUGH else None


def bent(model: Model, found: Minimum, trial: Evaluation) -> float:
    """By how much constraints that matter differ from their linear models: to either side."""
    left = trial.c - model.c - model.at.J @ (found.x - model.at.x)
    matters = model.at.is_equality | (found.q != 0) | (trial.c > 0)
    return float(np.abs(left[matters]).sum())


def furthest(search: Search, at: Evaluation, trial: Evaluation) -> Evaluation:
    """On along a good step while the penalty falls.

    Out of where a row is saturated, M, which has its absolute curvature, leads by short steps only.
    """
    size, dx, best = 1.0, trial.x - at.x, trial
    while size < FURTHEST:
        size *= 2
        other = search.evaluate(at.x + size * dx, trial.q, at.t)
        if not search.penalty(other) < search.penalty(best):
            break
        best = other
    return best


def part_that_came(search: Search, at: Evaluation, trial: Evaluation, promised: float) -> float:
    came = search.penalty(at) - search.penalty(trial)
    return came / max(promised, np.finfo(float).tiny) if np.isfinite(trial.residual) else -np.inf


def steered(search: Search, model: Model, q: np.ndarray) -> Minimum:
    """The minimum of a model, with nu raised until it leads towards the constraints."""
    penalty, before = search.penalty, model.violated(model.at.x)
    penalty.require(FAINT * float(np.linalg.norm(model.w)))
    found = minimum_of(search, model, q)
    for _ in range(RAISES):
        J, d = model.at.J, found.x - model.at.x
        pushed = PUSHED * np.abs(J @ d) + ROUNDING * (np.abs(J) @ np.abs(d) + np.abs(model.c))
        at_bound = np.abs(found.q).max(initial=0.0) >= penalty.nu  # else nu is not what keeps it
        if model.violated(found.x) <= LEFT * before + float(pushed.sum()) or not at_bound:
            break
        penalty.require(RAISE * penalty.nu)
        found = minimum_of(search, model, found.q)
    return found


def minimum_of(search: Search, model: Model, q: np.ndarray) -> Minimum:
    """By a factorisation where there is no h, by its pieces else, or by proximal steps."""
    at, nu, reg = model.at, search.penalty.nu, search.kkt.regularizer
    lower = np.where(at.is_equality, -nu, 0.0)
    if is_smooth(reg, at.x):
        factor = positive_factor(model.M)
        if factor is not None:
            d, q = minimum(model.w, factor, model.c, at.J, lower, nu)
            return Minimum(at.x + d, q)
    elif len(model.c) <= proximal.FEW_CONSTRAINTS:
        upper = np.full(len(lower), nu)
        found = pieces.minimum(
            reg, at.x, model.w, model.M, model.c, at.J, lower, upper, q, model.part
        )
        if found is not None:
            return Minimum(*found)
    dtype, lengths = search.kkt.dtype, np.linalg.norm(at.J, axis=1)
    L = float(np.linalg.eigvalsh(model.M)[-1])
    parts: Any = (at.x, at.gradient, model.c, at.J, model.M, 1 / L, nu * lengths)
    convex = proximal.Model(*(np.asarray(a, dtype) for a in parts))
    begin = proximal.Descent.begin(convex.x, np.asarray(q, dtype))
    return Minimum(*proximal.descend(search, convex, begin, proximal.MODEL_STEPS)[:2])


def is_smooth(reg: Any, x: np.ndarray) -> bool:
    """Whether there is no h."""
    return bool(np.array_equal(np.asarray(reg.prox_h(x, 1.0)), x))


def corrected(search: Search, model: Model, found: Minimum, trial: Evaluation) -> Evaluation:
    """A second-order correction: the constraints with the values that they had at the trial.

    Where constraints are curved, a step along their tangent leaves them, and an exact penalty would
    refuse it however good it is (Maratos); so would F where it leads inside of what they allow.
    """
    shifted = model._replace(c=trial.c - model.at.J @ (found.x - model.at.x))
    again = minimum_of(search, shifted, found.q)
    return search.evaluate(again.x, again.q, trial.t)


def lower_penalty(search: Search, reach: Reach, at: Evaluation) -> None:
    """nu as the multipliers call for, where it had to be far larger on the way to feasibility."""
    largest = float(np.abs(at.q).max(initial=0.0))
    if reach.lowered < LOWERINGS and 0 < TOO_LARGE * largest < search.penalty.nu:
        search.penalty.nu = MARGIN * largest
        reach.lowered += 1


def matrix(search: Search, at: Evaluation, q: np.ndarray, kappa: float) -> np.ndarray:
    """M."""
    kkt, n = search.kkt, len(at.x)
    linear, terms, every = kkt.linear, kkt.terms, np.arange(n)
    assert linear is not None
    assert terms is not None
    M = above_loss(linear, at.x, every, kappa)
    for places, mean in terms.means:
        if q[places].any():
            M = M + mean.bounded(at.x, every, q[places], kappa)
    if terms.others is not None and q[terms.left].any():
        bends = search.hessian.bends(dataclasses.replace(at, q=q), unit_rows(every, n))
        M = M + positive_part((bends + bends.T) / 2)
    M[np.diag_indices_from(M)] += RIDGE * max(float(np.diag(M).max(initial=0.0)), RIDGE)
    return M


def above_loss(
    linear: LinearLoss | LinearMean, x: np.ndarray, S: np.ndarray, kappa: float
) -> np.ndarray:
    """The same of f alone."""
    if isinstance(linear, LinearMean):
        return linear.bounded(x, S, np.ones(1), kappa)
    if linear.C > 1:  # convex losses of several outputs bend where they slope
        return linear.block(x, S)
    slopes, D = linear.slopes(x), linear.curvatures(x)
    return linear.table.gram(np.abs(D[:, 0, 0]) + kappa * np.abs(slopes[:, 0]), S) / linear.N


def moved(linear: LinearLoss | LinearMean, dx: np.ndarray) -> float:
    if isinstance(linear, LinearMean):
        return linear.moved(dx)
    return float(np.abs(linear.predictions(dx)).max(initial=0.0))


def positive_part(H: np.ndarray) -> np.ndarray:
    """H without its negative eigenvalues."""
    if positive_factor(H) is not None:
        return H
    values, vectors = np.linalg.eigh(H)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
