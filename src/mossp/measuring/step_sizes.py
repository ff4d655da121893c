"""schedule="auto": rho and mu from the problem itself, measured again at a few steps.

A quadratic penalty ends at a violation of ||lam*|| / rho, and its stable step is 1 / L_rho. So:

    lam  = argmin || d + s_h - s_g + J lam ||          the multipliers that the run points to;
                                                       its length is at least that of rho c(x)
    L    = smoothness of the mini-batch losses + || sum_j lam_j Hess c_j ||
    rho  = ||lam|| / target                            the violation that is aimed at,
           at least 5 L / ||J||^2                      but strong enough to matter,
           at most K L / (10 ||J||^2)                  and weak enough that K steps of size mu
    mu   = 1 / (L + 1.3 rho ||J||^2 + curvature)       travel the distance along the constraints;
                                                       a run that has travelled it may go to 4 rho

A method with multipliers leaves no such violation: for it rho is a fixed multiple of
L / ||J||^2, set again only where that has changed by a factor of 2. Methods whose mu or eta is
not the stable step make them from it (`Method.sizes`).

Only d is noisy. alpha is 0.1 while the iterates travel and falls to 20 / K in the second half, so
that d is averaged over the last tenth of the run (an alpha of a damps with a time constant of
2 / a steps). A smaller alpha makes d smoother but leaves the spread of x where it is, at
sigma sqrt(mu / L): so mu falls as well, to K^{-1/2} / L where it is larger than that. Under a
strong penalty it is smaller from the start. An estimator that does not average (Plain) gets all
of this from steps that shrink like alpha; one whose noise vanishes (SVRG, Full) needs none of it.

The subgradients of a sampled concave part are as noisy as the gradients of f, and no difference of
theirs vanishes. With s^2 the variance of d - v in one step, a direction of curvature l in which mu
falls to mu_K by exp(-gamma) a step ends with

    E ||u||^2 = s^2 (l mu_K / 2 + gamma / 4)

With mu_K = K^{-1/2} / L the first term is much the larger one, and of the paper's order K^{-1/2}.
With mu_K = 2 / (K L), which is taken, it is the smaller one: gamma = 2 log(K / 2) / K over the
second half, and ||u|| falls like (log(K) / K)^{1/2}.

Polyak momentum lags behind by 1 / alpha steps, while -g and the constraints act at once. Where
these bend downwards by kappa, small motions obey x'' / mu + (alpha / mu - kappa) x' + ... = 0: they
die out only if mu < alpha / kappa, of which half is taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from mossp._base.power import spectral_norm, start_vector
from mossp._base.types import Vector
from mossp.certificates.certificate import Witness
from mossp.constants import JACOBIAN_MARGIN
from mossp.estimators import Kind
from mossp.measuring.estimate import (
    batch_curvature,
    batch_smoothness,
    constraint_curvature,
    least_squares_multipliers,
)
from mossp.methods.base import Method
from mossp.methods.penalty import NoPenalty, ScaledPenalty
from mossp.oracles import Oracles
from mossp.schedules import Schedule

LAST = 2.0  # mu L K at the end, where x has the noise of subgradients of g
QUIET = 0.5  # of the multipliers may be noise where constraints are sampled
# Steps, as fractions of K, at which rho and mu are set: often while the iterates still travel.
RETUNE_AT = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)


def violation_target(tol: float, K: int) -> float:
    """A quarter of the tolerance, and less from 10,000 steps on, like the K^{-1/4} of Theorem 3.1.

    Examples
    --------
    >>> violation_target(1e-2, 160_000)
    0.00125
    """
    return tol / 4 * min(1.0, (10_000 / K) ** 0.25)


def retune_steps(K: int, epoch: int = 0) -> tuple[int, ...]:
    """Step numbers, which depend on K alone; with an anchor after 1, 2, 3, 4, 6, 8, ... epochs.

    Examples
    --------
    >>> retune_steps(6400)
    (0, 100, 200, 400, 800, 1600, 3200, 4800)
    >>> retune_steps(6400, epoch=500)
    (0, 500, 1000, 1500, 2000, 3000, 4000, 6000)
    """
    if not epoch:
        return tuple(sorted({int(fraction * K) for fraction in RETUNE_AT}))
    doubling = [epoch << j for j in range((K // epoch).bit_length())]
    return tuple(sorted({0, *(k for d in doubling for k in (d, d + d // 2) if k % epoch == 0)}))


class Tuner(NamedTuple):
    """What retuning needs besides the run itself."""

    draws: Any  # mini-batches on which the smoothness of f is measured
    K: Any
    target: Any  # the violation that is aimed at
    arrived: Any  # the criticality below which the run has travelled its distance
    k: Any  # the step that comes next
    shorten: Any  # times the measured step


def retune(
    oracles: Oracles, method: Method, schedule: Schedule, state: Any, last: Witness,
    reference: Vector, tuner: Tuner, batch_size: int,
) -> tuple[Schedule, Any]:  # fmt: skip
    """New rho and mu at the current point; `reference` is where they were set before."""
    x, d, reg, first = state.x, state.memory.d, oracles.regularizer, tuner.k == 0
    if oracles.concave is not None:
        d = d - method.subgradient(state)
    L = smoothness_ahead(oracles, method, x, d, tuner, batch_size)
    oracles = oracles.on_pools()
    if oracles.concave is not None:
        # y follows prox_{mu g} by steps that g must not bend faster than; kinks bend nowhere.
        bent = lambda v: oracles.along(oracles.concave_slope, x, v)  # noqa: E731
        L = jnp.maximum(L, spectral_norm(bent, x.size, x.dtype))
    rho, step, bend = jnp.zeros_like(L), 1 / L, jnp.zeros_like(L)
    if oracles.m:
        c = oracles.c(x)
        trial = reg.prox_h(x - d / L, 1 / L)
        # d + s_h - s_g, from the last step or, before the first, from a trial step of length 1/L
        r = jnp.where(first, L * (reg.prox_g(x, 1 / L) - trial), d + last.s_h - last.s_g)
        acting = oracles.is_equality | (c >= 0) | (last.lam + last.rho * c > 0)
        lam = oracles.positive_part(
            least_squares_multipliers(oracles, x, r, acting.astype(x.dtype))
        )
        if isinstance(method.penalty, NoPenalty):
            bend = constraint_curvature(oracles, x, lam)
            L = L + bend
            step = 1 / L
        else:
            near = acting | first | could_be_met(oracles, x, c, reference)
            weights = method.weights(state)
            # The Lagrangian bends by the first, the penalty rho ||c||^2 / 2 by rho the second.
            bend, penalty_bend = lax.map(
                lambda q: curvature_of_steps(oracles, method, x, q, batch_size),
                jnp.stack([lam, oracles.positive_part(c) * weights]),
            )
            L = L + bend
            rho, JJ = penalty(
                oracles, method, schedule, x, trial, r, lam, near, weights, L, tuner
            )  # fmt: skip
            if noisy(oracles, method):
                averages = method.momentum.averages
                alpha = schedule.at(tuner.k).alpha if averages else jnp.ones_like(L)
                noise = tracked_noise(oracles, x, alpha, batch_size)
                rho = quiet_enough(rho, lam, noise, L / JJ)
            step = 1 / (L + JACOBIAN_MARGIN * rho * JJ + jnp.maximum(rho * penalty_bend - bend, 0))
    mu_end = jnp.ones_like(L)
    if not method.momentum.vanishing:
        mu_end = jnp.minimum(1.0, quiet_step(oracles, method, tuner.K) / (L * step))
        if not method.momentum.averages:
            mu_end = jnp.minimum(mu_end, 200 / tuner.K)
        elif method.momentum.kind is Kind.POLYAK:
            most = 0.5 / (concave_curvature(oracles, x) + bend)  # mu / alpha
            step = jnp.minimum(step, schedule.alpha * most)
            mu_end = jnp.minimum(mu_end, schedule.alpha * schedule.alpha_end * most / step)
    mu_end = mu_end * method.mu_end
    mu, eta = method.sizes(L, step * tuner.shorten)
    change = lambda s: (s.rho, s.mu, s.eta, s.mu_end)  # noqa: E731
    new = eqx.tree_at(change, schedule, (rho, mu, eta, mu_end))
    ratio = new.at(tuner.k).mu / schedule.at(tuner.k).mu
    return new, method.rescale(state, jnp.where(first, 1.0, ratio))


def penalty(
    oracles: Oracles, method: Method, schedule: Schedule, x: Vector, trial: Vector, r: Vector,
    lam: Vector, near: Any, weights: Any, L: Any, tuner: Tuner,
) -> tuple[Any, Any]:  # fmt: skip
    """(rho, ||J||^2 over the rows that are near)."""
    c, first = oracles.c(x), tuner.k == 0
    JJ = jacobian_scale(oracles, x, trial, near * weights)
    if noisy(oracles, method):
        JJ = jnp.maximum(JJ, steepness_uphill(oracles, x, near * weights))
    # rho waits for rows that are met later: where none is near, it is set for them all.
    unit = 1 / JJ
    if oracles.m_E == 0:
        everywhere = jacobian_scale(oracles, x, trial, jnp.ones_like(c) * weights)
        unit = jnp.where(jnp.any(near), unit, 1 / everywhere)
    if not isinstance(method.penalty, ScaledPenalty):
        left = jnp.linalg.norm(r + oracles.linearized(x)[1](lam))
        return strong_enough(schedule, c, lam, left, L * unit, oracles, tuner), JJ
    rho = method.penalty.rho * L * unit
    same = ~first & (jnp.abs(jnp.log(rho / schedule.rho)) < jnp.log(2.0))
    return jnp.where(same, schedule.rho, rho), JJ


def quiet_step(oracles: Oracles, method: Method, K: Any) -> Any:
    """mu L at the end of K steps."""
    return K**-0.5 if oracles.concave is None else LAST / K


def noisy(oracles: Oracles, method: Method) -> bool:
    """Whether steps see constraints through samples whose noise does not vanish."""
    return oracles.samples_constraints and not method.momentum.vanishing


def curvature_of_steps(
    oracles: Oracles, method: Method, x: Vector, q: Vector, batch_size: int
) -> Any:
    """|| sum_j q_j Hess c_j(x) ||, on mini-batches where steps take differences on them.

    Those of recursive momentum, J(x; B) q - J(x_; B) q, grow with the curvature of a mini-batch.
    What cancels in the mean over all rows, as in a difference of two groups, does not on a few.
    """
    if noisy(oracles, method) and method.momentum.kind is Kind.RECURSIVE:
        return batch_curvature(oracles, x, q, batch_size)
    return constraint_curvature(oracles, x, q)


def steepness_uphill(oracles: Oracles, x: Vector, rows: Vector) -> Any:
    """||J||^2 half of max(||x||, 1) away to where the constraints grow.

    Noise takes steps there before anything is measured again, and a mean of sharp sigmoids, nearly
    flat where it is small, may be many times as steep: a penalty that is strong enough for the one
    would throw x far away by the other.
    """
    c, pull = oracles.linearized(x)
    ahead = pull(rows * jnp.ones_like(c))
    length = jnp.linalg.norm(ahead)
    ahead = ahead / jnp.maximum(length, jnp.finfo(x.dtype).tiny ** 0.5)
    point = x + 0.5 * jnp.maximum(jnp.linalg.norm(x), 1.0) * ahead
    return oracles.jacobian_norm_squared(point, rows)


def tracked_noise(oracles: Oracles, x: Vector, alpha: Any, batch_size: int) -> Any:
    """The deviation of an estimate of c that averages with the weight alpha."""
    noise = jnp.linalg.norm(oracles.value_noise(x, batch_size))
    return noise * jnp.sqrt(alpha / (2 - alpha))


def quiet_enough(rho: Any, lam: Vector, noise: Any, unit: Any) -> Any:
    """rho so small that rho times the noise in c stays a part of the multipliers.

    But for `unit` = L / ||J||^2, at which the penalty bends as much as f does: weaker than that it
    would be of no use.
    """
    limit = QUIET * jnp.linalg.norm(lam) / jnp.maximum(noise, jnp.finfo(lam.dtype).tiny)
    return jnp.minimum(rho, jnp.maximum(limit, unit))


def smoothness_ahead(
    oracles: Oracles, method: Method, x: Vector, d: Vector, tuner: Tuner, batch_size: int
) -> Any:
    """Of f at x; where it is more than twice as large a step of that length ahead, there."""
    reach = jnp.maximum(jnp.linalg.norm(x), 1.0)

    def at(point: Vector) -> Any:
        if method.momentum.full:
            hessian = lambda v: oracles.along(oracles.full_gradient, point, v)  # noqa: E731
            return spectral_norm(hessian, x.size, x.dtype)
        return batch_smoothness(oracles, point, tuner.draws, batch_size)

    def look(_: Any, carry: tuple[Any, Vector]) -> tuple[Any, Vector]:
        L, point = carry
        seen = at(point)
        L = jnp.where(seen > 2 * L, seen, L)
        # A loss without curvature still needs a finite step: x moves by at most 1000 ||x||.
        L = jnp.maximum(L, 1e-3 * jnp.linalg.norm(d) / reach)
        L = jnp.maximum(L, jnp.finfo(x.dtype).tiny ** 0.5)
        step = -d / L
        return L, x + step * jnp.minimum(1.0, reach / jnp.maximum(jnp.linalg.norm(step), 1e-300))

    # Ahead only of the first step: later ones are short.
    looks = jnp.where(tuner.k == 0, 2, 1)
    return lax.fori_loop(0, looks, look, (jnp.zeros((), x.dtype), x))[0]


def strong_enough(
    schedule: Schedule, c: Vector, lam: Vector, left: Any, unit: Any, oracles: Oracles,
    tuner: Tuner,
) -> Any:  # fmt: skip
    """rho of a penalty; `unit` is L / ||J||^2 and `left` what the multipliers leave of u."""
    first = tuner.k == 0
    stronger = jnp.where(first | (left > tuner.arrived), 0.0, 4 * schedule.rho)
    strongest = jnp.maximum(jnp.maximum(tuner.K / 10, 5) * unit, stronger)
    # At a standstill rho c(x) is the multiplier, too; the larger estimate is the safer one.
    pushed = jnp.where(first, 0.0, schedule.rho * jnp.linalg.norm(oracles.positive_part(c)))
    length = jnp.maximum(jnp.linalg.norm(lam), pushed)
    return jnp.clip(length / tuner.target, 5 * unit, strongest)


def concave_curvature(oracles: Oracles, x: Vector) -> Any:
    """How much g bends at x: the derivative of v = (x - prox_{t g}(x)) / t for a small t."""
    t = jnp.finfo(x.dtype).eps ** 0.25

    def bent(v: Vector) -> Vector:
        moved = jax.jvp(lambda x: oracles.regularizer.prox_g(x, t), (x,), (v,))[1]
        return (v - moved) / t

    bend = spectral_norm(bent, x.size, x.dtype)
    # Kinks bend by 1 / t, which says nothing of the pieces between them.
    smallest = jnp.finfo(x.dtype).tiny ** 0.5
    return jnp.where(jnp.isfinite(bend) & (bend < 0.5 / t), bend, 0.0) + smallest


def jacobian_scale(oracles: Oracles, x: Vector, trial: Vector, rows: Vector) -> Any:
    """||J||^2 at x; where it vanishes, as at x = 0 for the sphere, at a point a step away."""

    def at(point: Vector) -> Any:
        return oracles.jacobian_norm_squared(point, rows)

    aside = x + 0.1 * jnp.maximum(jnp.linalg.norm(x), 1.0) * start_vector(x.size, x.dtype)
    here, ahead, beside = lax.map(at, jnp.stack([x, trial, aside]))
    smallest = jnp.finfo(x.dtype).tiny ** 0.5
    return jnp.where(here > 1e-8 * beside, here, jnp.maximum(ahead, beside)) + smallest


def could_be_met(oracles: Oracles, x: Vector, c: Vector, reference: Vector) -> Vector:
    """Rows that are violated, or that 8 times the last stretch of the path would reach.

    Counting the others would make mu needlessly small: ||x||^2 <= 1e4 has a gradient of 200 where
    it is active, and a small one where a solution that never meets it lies.
    """
    if oracles.m == oracles.m_E:
        return jnp.ones(oracles.m, bool)
    return c + oracles.row_lengths(x) * 8 * jnp.linalg.norm(x - reference) > 0
