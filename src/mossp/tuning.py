"""schedule="auto": rho and mu from the problem itself, measured again at a few steps.

A quadratic penalty ends at a violation of ||lam*|| / rho, and its stable step is 1 / L_rho. So:

    lam  = argmin || d + s_h - s_g + J lam ||          the multipliers that the run points to
    L    = smoothness of the mini-batch losses + || sum_j lam_j Hess c_j ||
    rho  = ||lam|| / target                            the violation that is aimed at,
           at least 5 L / ||J||^2                      but strong enough to be felt,
           at most K L / (20 ||J||^2)                  and weak enough that K steps of size mu
    mu   = 1 / (L + 1.3 rho ||J||^2 + curvature)       travel the distance along the constraints

The penalty's own gradient is exact, only d is noisy: alpha is 0.1 while the iterates travel and
falls to 20 / K in the second half, which averages d over the last tenth of the run (an alpha of
a then damps with a time constant of 2 / a steps, which is K / 10).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from mossp.constants import (
    constraint_curvature,
    jacobian_norm_squared,
    least_squares_multipliers,
    smoothness,
)
from mossp.certificate import Witness
from mossp.methods.base import Method
from mossp.problem import Oracles
from mossp.schedules import Schedule

Vector = Any

# Steps, as fractions of K, at which rho and mu are set: often while the iterates still travel.
RETUNE_AT = (0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)


def retune_steps(K: int) -> tuple[int, ...]:
    """Step numbers, which depend on K alone.

    >>> retune_steps(6400)
    (0, 100, 200, 400, 800, 1600, 3200)
    """
    return tuple(sorted({int(fraction * K) for fraction in RETUNE_AT}))


def first_residual(oracles: Oracles, x: Vector, d: Vector, L: Any) -> Vector:
    """d + s_h - s_g from a trial step at x: s_h in dh(x+), s_g in dg(y)."""
    mu = 1 / L
    return (oracles.regularizer.prox_g(x, mu) - oracles.regularizer.prox_h(x - mu * d, mu)) / mu


def retune(
    oracles: Oracles,
    method: Method,
    schedule: Schedule,
    state: Any,
    last: Witness | None,
    reference: Vector,
    draws: Any,
    batch_size: int,
    K: Any,
    target: Any,
) -> tuple[Schedule, Any]:
    """New rho and mu at the current point; `last` is None before the first step."""
    x, d = state.x, state.memory.d
    L = smoothness(oracles, x, draws, batch_size)[1]
    # A loss without curvature still needs a finite step: one that moves x by at most 1000 ||x||.
    L = jnp.maximum(L, 1e-3 * jnp.linalg.norm(d) / jnp.maximum(jnp.linalg.norm(x), 1.0))
    L = jnp.maximum(L, jnp.finfo(x.dtype).tiny ** 0.5)
    if oracles.m == 0:
        return with_steps(method, schedule, state, jnp.zeros_like(L), 1 / L, last is None)
    c = oracles.c(x)
    if last is None:
        r, near = first_residual(oracles, x, d, L), jnp.ones_like(c)
    else:
        r, near = d + last.s_h - last.s_g, rows_that_matter(oracles, x, c, reference)
    felt = jnp.where(jnp.arange(oracles.m) < oracles.m_E, 1.0, c >= 0).astype(x.dtype)
    lam = oracles.active(least_squares_multipliers(oracles, x, r, felt))

    JJ = jnp.maximum(jacobian_norm_squared(oracles, x, near), jnp.finfo(x.dtype).tiny ** 0.5)
    bend = constraint_curvature(oracles, x, lam)
    L = L + bend
    rho = jnp.clip(jnp.linalg.norm(lam) / target, 5 * L / JJ, jnp.maximum(K / 20, 5) * L / JJ)
    curvature = jnp.maximum(rho * constraint_curvature(oracles, x, oracles.active(c)) - bend, 0)
    mu = 1 / (L + 1.3 * rho * JJ + curvature)
    return with_steps(method, schedule, state, rho, mu, last is None)


def with_steps(
    method: Method, schedule: Schedule, state: Any, rho: Any, mu: Any, first: bool
) -> tuple[Schedule, Any]:
    if not first:
        state = method.rescale(state, mu / schedule.mu)
    return eqx.tree_at(lambda s: (s.rho, s.mu), schedule, (rho, mu)), state


def rows_that_matter(oracles: Oracles, x: Vector, c: Vector, reference: Vector) -> Vector:
    """Equalities, and inequalities that are violated or could be before the next retuning.

    A row is far when even 8 times the last stretch of the path would not reach it. Counting far
    rows would make mu needlessly small: ||x||^2 <= 1e4 has a gradient of 200 where it is active.
    """
    if oracles.m == oracles.m_E:
        return jnp.ones_like(c)
    _, backward = jax.vjp(oracles.c, x)
    lengths = lax.map(lambda e: jnp.linalg.norm(backward(e)[0]), jnp.eye(oracles.m, dtype=x.dtype))
    reach = 8 * jnp.linalg.norm(x - reference)
    near = (jnp.arange(oracles.m) < oracles.m_E) | (c + lengths * reach > 0)
    return near.astype(x.dtype)
