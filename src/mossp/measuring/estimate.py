"""The constants of the paper's Assumptions, estimated near a point.

Smoothness constants are largest absolute eigenvalues of Hessians, found by power iteration on
Hessian-vector products; no Hessian and no Jacobian is ever formed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base import keys
from mossp._base.device import on_device
from mossp._base.power import POWER_ITERATIONS, leading, spectral_norm, start_vector
from mossp._base.programs import compiled
from mossp._base.structure import Structure
from mossp._base.types import Vector
from mossp.constants import Constants
from mossp.oracles import Oracles
from mossp.problem import Problem

MINI_BATCHES = 16  # whose smoothness is looked at one by one
POOLED_ROWS = 512  # rows whose mean stands for f


def estimate_constants(problem: Problem, x0: Any, batch_size: int = 32, seed: int = 0) -> Constants:
    """The constants of the paper's assumptions near x0, as floats.

    Bounds over all of R^n do not exist for most problems (`||x||^2 - 1` has no bounded gradient):
    the constants of the constraints are the largest seen at x0 and at points around it, at half the
    distance of `max(||x0||, 1)`.

    Parameters
    ----------
    problem : Problem
        Whose constants.
    x0 : pytree of arrays
        Near which.
    batch_size : int
        Samples of a mini-batch whose noise and smoothness are measured.
    seed : int
        Of the mini-batches.

    Returns
    -------
    Constants
        The estimates.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: 1.5 * x @ x, equality=lambda x: x @ x - 1.0)
    >>> constants = mossp.estimate_constants(problem, np.array([1.0, 0.0]))
    >>> round(constants.L_f, 6), round(constants.L_c, 6)
    (3.0, 2.0)
    """
    with jax.enable_x64(True):
        oracles = problem.oracles(x0)
        draws = sample_draws(problem, batch_size, seed, np.float64)
        return estimate_at(oracles, Structure.of(x0).ravel(x0), draws, batch_size)


def sample_draws(problem: Problem, batch_size: int, seed: Any, dtype: Any) -> Any:
    """What the source makes mini-batches from, for those on which constants are measured."""
    number = max(MINI_BATCHES, -(-POOLED_ROWS // batch_size))
    rng = keys.generator(seed, keys.Purpose.CONSTANTS)
    return problem.source(dtype).sample(rng, number, batch_size)


def estimate_at(oracles: Oracles, x: Any, draws: Any, batch_size: int) -> Constants:
    return Constants(*map(float, _estimate(oracles, on_device(x), draws, batch_size)))


def hessian_products(draws: Any, batch_size: int) -> int:
    """Samples behind the Hessian-vector products that one look at the smoothness of f takes."""
    if draws is None:
        return POWER_ITERATIONS
    return POWER_ITERATIONS * min(count(draws), MINI_BATCHES) * batch_size


@compiled(static_argnums=3)
def _estimate(oracles: Oracles, x: Vector, draws: Any, batch_size: int) -> Constants:
    L_f, sigma, G = smoothness(oracles, x, draws, batch_size)
    oracles = oracles.on_pools()
    L_batch = jnp.maximum(batch_smoothness(oracles, x, draws, batch_size), L_f)
    reach = 0.5 * jnp.maximum(jnp.linalg.norm(x), 1.0)
    directions = start_vector(2 * x.size, x.dtype).reshape(2, x.size)
    directions = reach * directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    points = jnp.concatenate([x[None], x + directions, x - directions])
    if oracles.m == 0:
        zero = jnp.zeros((), x.dtype)
        return Constants(L_f, L_batch, sigma, G, zero, zero, zero)

    def at(point: Vector) -> tuple[Any, Any, Any]:
        return (
            jnp.sqrt(oracles.jacobian_norm_squared(point)),
            oracles.violation(point),
            constraint_smoothness(oracles, point),
        )

    G_c, C, L_c = (jnp.max(v) for v in lax.map(at, points))
    return Constants(L_f, L_batch, sigma, G, G_c, C, L_c)


def gradient_on(
    oracles: Oracles, draws: Any, j: Any, batch_size: int
) -> Callable[[Vector], Vector]:
    """x -> the gradient on the j-th of the given mini-batches."""
    draw = jax.tree.map(lambda d: d[j], draws)
    batch = oracles.source.batch(draw, batch_size)
    return lambda x: oracles.gradient(x, batch)


def batch_smoothness(oracles: Oracles, x: Vector, draws: Any, batch_size: int) -> jax.Array:
    """The largest smoothness constant of a mini-batch's loss, over some mini-batches."""

    def at(j: Any) -> jax.Array:
        gradient = gradient_on(oracles, draws, j, batch_size)
        return spectral_norm(lambda v: oracles.along(gradient, x, v), x.size, x.dtype)

    return jnp.max(lax.map(at, jnp.arange(min(count(draws), MINI_BATCHES))))


def smoothness(oracles: Oracles, x: Vector, draws: Any, batch_size: int) -> tuple[Any, ...]:
    """(L_f, sigma, ||grad f||), the mean over all the given mini-batches standing for f."""

    def mean(function: Callable[[Any], Any]) -> Any:
        add = lambda j, total: total + function(j)  # noqa: E731
        return lax.fori_loop(0, count(draws), add, jnp.zeros_like(x)) / count(draws)

    def gradient_at(j: Any) -> Callable[[Vector], Vector]:
        return gradient_on(oracles, draws, j, batch_size)

    pooled = lambda v: mean(lambda j: oracles.along(gradient_at(j), x, v))  # noqa: E731
    L_f = spectral_norm(pooled, x.size, x.dtype)
    g = mean(lambda j: gradient_at(j)(x))
    spread = lax.map(lambda j: jnp.sum((gradient_at(j)(x) - g) ** 2), jnp.arange(count(draws)))
    return L_f, jnp.sqrt(jnp.mean(spread)), jnp.linalg.norm(g)


def count(draws: Any) -> int:
    """How many mini-batches; a deterministic loss has one."""
    leaves = jax.tree.leaves(draws)
    return leaves[0].shape[0] if leaves else 1


def constraint_curvature(oracles: Oracles, x: Vector, q: Vector) -> jax.Array:
    """|| sum_j q_j Hess c_j(x) ||."""
    return leading_curvature(oracles, x, q)[1]


def batch_curvature(oracles: Oracles, x: Vector, q: Vector, batch_size: int) -> jax.Array:
    """The same on mini-batches in place of all rows: the largest over some, source by source."""

    def on(number: Any, rows: Any) -> jax.Array:
        pull = lambda x: oracles.terms.pull(number, x, rows, q)  # noqa: E731
        return spectral_norm(lambda v: oracles.along(pull, x, v), x.size, x.dtype)

    def of(number: Any) -> jax.Array:
        if number is None:
            return on(None, None)
        return oracles.pool_of(number).largest(functools.partial(on, number), batch_size)

    return sum((of(number) for number in oracles.terms.numbers), start=jnp.zeros((), x.dtype))


def leading_curvature(oracles: Oracles, x: Vector, q: Vector) -> tuple[Vector, jax.Array]:
    """The direction in which sum_j q_j c_j bends most, and by how much."""
    return leading(lambda v: oracles.bend(x, q, v), x.size, x.dtype)


def constraint_smoothness(oracles: Oracles, x: Vector) -> jax.Array:
    """The largest || sum_j q_j Hess c_j || over unit vectors q, by turns in q and in x.

    For a direction v the best q is along (v' Hess c_j v)_j, the second derivative of c along v.
    """

    def improve(_: Any, q: Vector) -> Vector:
        v, _length = leading_curvature(oracles, x, q)
        better = oracles.bend_along(x, v)
        return better / jnp.maximum(jnp.linalg.norm(better), jnp.finfo(x.dtype).tiny)

    q = lax.fori_loop(0, 4, improve, start_vector(oracles.m, x.dtype))
    return constraint_curvature(oracles, x, q)


def least_squares_multipliers(oracles: Oracles, x: Vector, r: Vector, rows: Any) -> jax.Array:
    """argmin_q || r + J q || over the given rows, by conjugate gradients on J' J."""
    forward, (_, pull) = oracles.tangent(x), oracles.linearized(x)

    def normal(q: Vector) -> Vector:
        # The small multiple of the identity keeps rank-deficient constraints from blowing up.
        return rows * forward(pull(rows * q)) + 1e-10 * q

    q, _ = jax.scipy.sparse.linalg.cg(normal, -rows * forward(r), maxiter=min(oracles.m, 50))
    return rows * q
