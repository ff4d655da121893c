"""Gradients from fresh samples, in independent blocks, and what they tell of ||u||.

Samplers and streams have no full gradient. ||u||^2 is then the mean inner product of two different
blocks, which has the right expectation; how far these products scatter gives its standard error.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.types import (
    AnyArray,
    Array,
    Batch,
    Draws,
    Index,
    Namespace,
    Scalar,
    Vector,
    Vectors,
)
from mossp.oracles import Oracles, namespace

FRESH_SAMPLES = 16_384  # of a Sampler or a Stream, in BLOCKS
BLOCKS = 8
INTERVAL = 1.96  # standard errors to the end of a 95 % interval
ERRORS = 2.0  # standard errors by which an estimate may be too small: a chance of a few per cent


def value_and_gradients(
    oracles: Oracles, x: Vector, draws: Draws, batch_size: int
) -> tuple[Scalar, Vectors]:
    """(f, grad f in independent blocks, one per row); one row where it is exact."""
    evaluate = jax.value_and_grad(oracles.f)
    if oracles.source.finite_sum:
        f, g = oracles.source.mean(lambda batch: evaluate(x, batch))
        return f, g[None]
    return in_blocks(oracles, evaluate, x, draws, batch_size)


def value_and_subgradients(
    oracles: Oracles, x: Vector, draws: Draws, batch_size: int
) -> tuple[Scalar, Vectors]:
    """The same of a concave part: (E[g], subgradients of it in independent blocks)."""
    evaluate = jax.value_and_grad(oracles.g)
    if oracles.known_concave:
        return oracles.concave_value(x), oracles.concave_slope(x)[None]
    return in_blocks(oracles, evaluate, x, draws, batch_size)


def in_blocks(
    oracles: Oracles, evaluate: Callable[[Vector, Batch], tuple[Scalar, Vector]], x: Vector,
    draws: Draws, batch_size: int,
) -> tuple[Scalar, Vectors]:  # fmt: skip
    """A value and a gradient over the rows of draws, the latter in independent blocks."""
    blocks, length = block_shape(draws)

    def mean(k: Index) -> tuple[Scalar, Vector]:
        def add(j: Index, total: tuple[Scalar, Vector]) -> tuple[Scalar, Vector]:
            draw = jax.tree.map(lambda d: d[k * length + j], draws)
            value = evaluate(x, oracles.steps.batch(draw, batch_size))
            return jax.tree.map(jnp.add, total, value)

        total = jax.lax.fori_loop(0, length, add, (jnp.zeros((), x.dtype), jnp.zeros_like(x)))
        return jax.tree.map(lambda t: t / length, total)

    f, G = jax.lax.map(mean, jnp.arange(blocks))
    return jnp.mean(f), G


def fresh_constraints(
    oracles: Oracles, x: Vector, draws: Draws, batch_size: int
) -> tuple[Vectors, Array]:
    """(c, J) in independent blocks, of constraints with samples without end.

    Means over rows that have an end are exact in every block.
    """
    blocks, length = block_shape(draws)
    terms, endless = oracles.terms, np.zeros(oracles.m, bool)
    for number in oracles.endless:
        endless[terms.places(number)] = True
    exact = oracles.c(x), oracles.jacobian(x)

    def mean(k: Index) -> tuple[Vector, Array]:
        def add(j: Index, total: tuple[Vector, Array]) -> tuple[Vector, Array]:
            draw = jax.tree.map(lambda d: d[k * length + j], draws)
            rows = oracles.steps.batch(draw, batch_size)
            J = oracles.sampled_jacobian(x, rows.gradients)
            return total[0] + oracles.sampled_c(x, rows.values), total[1] + J

        zero = jax.tree.map(jnp.zeros_like, exact)
        c, J = jax.lax.fori_loop(0, length, add, zero)
        c = jnp.where(endless, c / length, exact[0])
        return c, jnp.where(endless[:, None], J / length, exact[1])

    return jax.lax.map(mean, jnp.arange(blocks))


def block_shape(draws: Draws) -> tuple[int, int]:
    """(blocks, batches in each); what is left over is not used."""
    count = jax.tree.leaves(draws)[0].shape[0]
    blocks = min(BLOCKS, count)
    return blocks, count // blocks


def standard_errors(U: AnyArray) -> AnyArray:
    """Of the means over independent estimates, one per row."""
    return namespace(U).std(U, axis=0, ddof=1) / len(U) ** 0.5


def mean_product(U: AnyArray) -> AnyArray:
    """The mean of <u_k, u_l> over k != l."""
    K, total = len(U), U.sum(axis=0)
    return (total @ total - (U * U).sum()) / (K * (K - 1))


def length_of_mean(U: AnyArray) -> tuple[AnyArray, AnyArray]:
    """(||u||, its error) from independent estimates of u, one per row.

    The mean of <u_k, u_l> over k != l is ||u||^2 in expectation. With d_k = u_k - mean, V their
    covariance and K blocks, its variance is 4 u'V u / K + 2 tr(V^2) / (K (K - 1)).
    """
    xp: Namespace = namespace(U)
    K = len(U)
    mean = xp.mean(U, axis=0)
    if K == 1:  # exact
        return xp.linalg.norm(mean), xp.zeros((), U.dtype)
    D = U - mean
    within, across = D @ D.T, D @ mean
    # <d_k, d_l> is -tr(V) / K in the mean, since all d_k sum to 0: that part is no scatter.
    products = within + (xp.trace(within) / (K * (K - 1)) if K > 3 else 0.0)
    apart = (xp.sum(products**2) - xp.sum(xp.diag(products) ** 2)) / (K * (K - 1))
    # Of the mean, and of the mean's part along itself.
    along = xp.sum(across**2) / (K * (K - 1))
    direction = along / xp.maximum(mean @ mean, xp.finfo(U.dtype).tiny)
    square = xp.maximum(mean_product(U), 0.0)
    length = xp.sqrt(square)
    # A mean that is too short by chance also makes 4 u'V u / K too small: never less than the
    # error along the mean.
    bound = xp.sqrt(square + ERRORS * xp.sqrt(4 * along + 2 * apart / (K * (K - 1))))
    return length, xp.maximum(bound - length, ERRORS * xp.sqrt(direction))
