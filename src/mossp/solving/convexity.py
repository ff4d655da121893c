"""Whether a concave part is what its name says: -g with g convex, and derivatives that support it.

g must be convex in x on every row, and what differentiation gives must be a subgradient,

    g(y) >= g(x) + <s(x), y - x>    for all y,

which at kinks is not a matter of course: the derivative of jnp.where(t == 0, 5 t, |t|) at 0 is 5.
Both are tested at random points, at points where kinks are likely (0, points with zeros, the rows
themselves), and at kinks that are found by halving segments across which the slope jumps.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import keys
from mossp._base.device import on_device
from mossp._base.printing import warn
from mossp._base.programs import compiled
from mossp._base.types import Array, PyTree, Vector
from mossp.data import is_rows, map_rows
from mossp.functions import is_own
from mossp.oracles import Oracles
from mossp.problem import CONCAVE, Problem
from mossp.solving.means import some_rows

SEGMENTS = 6  # random ones, on each of which a kink is sought
HALVINGS = 60  # of a segment: to the resolution of numbers
SINGLE = 16  # rows that are looked at one by one
# What rounding may spoil, relative to the terms of an inequality.
ROUNDING = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}
SHOWN = 4  # entries of a point in a message


def check_concave(problem: Problem, oracles: Oracles, x0: Vector, dtype: Any) -> None:
    """Warn where g is not convex on a segment, or where its derivative is no subgradient."""
    concave = problem.concave
    if oracles.concave is None or is_own(getattr(concave, "function", concave)):
        return
    source = problem.source(dtype, oracles.concave.rows)
    rows = None if source.deterministic else some_rows(source)
    rng = keys.generator(0, keys.Purpose.CHECK, number=2)
    points = candidates(rows, np.asarray(x0, np.float64), rng)
    ends = on_device(points[: 2 * SEGMENTS], dtype)
    every, values, slopes, alone = _looked_at(oracles, on_device(points, dtype), ends, rows)
    x, g, s, rows = (np.asarray(a, np.float64) for a in (every, values, slopes, alone))
    message = not_convex(x, rows, dtype) or no_subgradient(x, g, s, dtype)
    if message:
        warn(message)


def candidates(rows: PyTree, x0: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ends of segments, two by two, and then points where kinks are likely."""
    n, size = len(x0), max(1.0, float(np.abs(x0).max()))
    ends = x0 + size * rng.standard_normal((2 * SEGMENTS, n))
    zeros = ends[:SEGMENTS] * (rng.random((SEGMENTS, n)) < 0.5)
    special = [x0, np.zeros(n), np.ones(n), *zeros]
    for leaf in jax.tree.leaves(rows, is_leaf=is_rows):
        if not is_rows(leaf) and np.ndim(leaf) == 2 and np.shape(leaf)[1] == n:
            special += list(np.asarray(leaf, np.float64)[:2])
    return np.concatenate([ends, np.array(special)])


@compiled
def _looked_at(
    oracles: Oracles, points: Array, ends: Array, rows: PyTree
) -> tuple[Array, Array, Array, Array]:
    """(points and kinks, g and its derivative there, g of single rows on segments).

    The last has the axes (first end, middle, second end), segments, rows.
    """
    value = jax.value_and_grad(lambda x: oracles.g(x, rows))
    a, b = ends[::2], ends[1::2]

    def kink(a: Vector, b: Vector) -> Array:
        """The point of a segment where the slope of g jumps most: the ends of what is left."""
        slope = lambda t: value(a + t * (b - a))[1] @ (b - a)  # noqa: E731

        def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            low, high = ends
            middle = (low + high) / 2
            first = slope(middle) - slope(low) > slope(high) - slope(middle)
            return jnp.where(first, low, middle), jnp.where(first, middle, high)

        zero = jnp.zeros((), a.dtype)
        low, high = jax.lax.fori_loop(0, HALVINGS, halve, (zero, zero + 1))
        return jnp.stack([a + low * (b - a), a + high * (b - a)])

    kinks = jax.lax.map(lambda pair: kink(*pair), (a, b)).reshape(-1, points.shape[1])
    every = jnp.concatenate([points, kinks])
    values, slopes = jax.lax.map(value, every)
    thirds = jnp.stack([a, (a + b) / 2, b])
    return (
        every,
        values,
        slopes,
        jax.lax.map(lambda each: jax.lax.map(lambda x: one_by_one(oracles, x, rows), each), thirds),
    )


def one_by_one(oracles: Oracles, x: Vector, rows: PyTree) -> Array:
    """g on single rows, and last on all of them together."""
    together = oracles.g(x, rows)[None]
    leaves = jax.tree.leaves(rows, is_leaf=is_rows)
    counts = {leaf.shape[0] if jnp.ndim(leaf) or is_rows(leaf) else 0 for leaf in leaves}
    if len(counts) != 1 or counts & {0, 1}:  # a sampler may hand out anything
        return together
    places = jnp.arange(min(SINGLE, counts.pop()))[:, None]
    alone = jax.lax.map(lambda p: oracles.g(x, map_rows(lambda a: a[p], rows)), places)
    return jnp.concatenate([alone, together])


def not_convex(every: np.ndarray, alone: np.ndarray, dtype: Any) -> str:
    """A sentence with the segment on which g is above its chord; "" where there is none."""
    first, middle, second = alone
    with np.errstate(invalid="ignore"):
        above = middle - (first + second) / 2
        size = np.abs(first) + np.abs(middle) + np.abs(second)
        over = np.nan_to_num(above - ROUNDING[np.dtype(dtype)] * size, nan=-np.inf)
    segment, row = np.unravel_index(np.argmax(over), over.shape)
    if not over[segment, row] > 0:
        return ""
    a, b = every[2 * segment], every[2 * segment + 1]
    where = "" if row == over.shape[1] - 1 else " on one of the rows"
    return (
        f"{CONCAVE} is -E[g] with g convex, but g is not convex{where}: between x = {listed(a)} "
        f"and {listed(b)} it is {middle[segment, row]:.6g} in the middle, above the mean "
        f"{(first + second)[segment, row] / 2:.6g} of its ends. Move what is not convex into the "
        "loss."
    )


def no_subgradient(every: np.ndarray, values: np.ndarray, slopes: np.ndarray, dtype: Any) -> str:
    """A sentence with a point at which the derivative is no subgradient; "" where there is none."""
    lost = np.isfinite(values) & ~np.isfinite(slopes).all(axis=1)
    if lost.any():
        at = listed(every[np.argmax(lost)])
        return (
            f"{CONCAVE} has the derivative NaN or infinity at x = {at}, where g is finite: write "
            "jnp.abs(t) for jnp.sqrt(t**2), or take the parts of mossp.smoothing."
        )
    with np.errstate(invalid="ignore"):
        # Row i, column j: g(x_i) + <s_i, x_j - x_i> against g(x_j).
        inner = slopes @ every.T
        along = inner - np.diag(inner)[:, None]
        length = np.linalg.norm(slopes, axis=1)[:, None] * (
            np.linalg.norm(every, axis=1)[:, None] + np.linalg.norm(every, axis=1)
        )
        size = np.abs(values)[:, None] + np.abs(values) + length
        over = values[:, None] + along - values - ROUNDING[np.dtype(dtype)] * size
        over = np.nan_to_num(over, nan=-np.inf, posinf=-np.inf)
    i, j = np.unravel_index(np.argmax(over), over.shape)
    if not over[i, j] > 0:
        return ""
    return (
        f"The derivative of the concave part is no subgradient of g at x = {listed(every[i])}: "
        f"g there plus its slope times the way to {listed(every[j])} is "
        f"{values[i] + along[i, j]:.6g}, which is above g = {values[j]:.6g}. At kinks, "
        "differentiation may give anything: take the parts of mossp.smoothing, or a "
        "jax.custom_jvp that gives a subgradient."
    )


def listed(x: np.ndarray) -> str:
    more = ", ..." if len(x) > SHOWN else ""
    return "[" + ", ".join(f"{value:.4g}" for value in x[:SHOWN]) + more + "]"
