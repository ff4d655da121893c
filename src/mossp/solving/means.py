"""Whether a loss is what padding, weights and full gradients rely on: a mean over rows.

The loss of some rows together must be the mean of their losses one by one. Rows are taken from all
over the data, since the first ones may be of one class or have no weight; they are looked at
together, in small groups that mix them, and one by one, at random points.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import keys
from mossp._base.device import on_device
from mossp._base.programs import compiled
from mossp._base.types import PyTree, Vector
from mossp.data import Source, is_rows, map_rows
from mossp.functions import is_own
from mossp.oracles import Oracles
from mossp.problem import CONCAVE, Problem

ROWS = 48  # looked at, or all where there are fewer: data of one shape share a program
SPREAD = 24  # of them at equal distances
EXTREME = 12  # with the least and the largest numbers, at most
GROUP = 3  # rows in a small group
# From x0, relative to its size. At x0 a loss may be 0 on every row, far off it may be NaN.
DISTANCES = np.array([[0.1], [0.1], [1e-3], [0.0]])
POINTS = len(DISTANCES)
# How far rounding may part the two, relative to the losses of single rows.
ROUNDING = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-3}
# A loss that cancels large terms rounds more, and is rough: on a short line its second differences
# are not small. So many times as much as these is taken for rounding.
TIMES_ROUNDING = 10
BESIDE = 1e-5  # the distance of points on that line, relative to the size of x0


def check_means(problem: Problem, oracles: Oracles, x0: Vector, dtype: Any) -> None:
    """Raise ValueError where the loss, or a constraint that looks at rows, is no mean over them."""
    if not (oracles.source.deterministic or is_own(problem.loss)):
        check_mean("The loss", None, problem.source(dtype), oracles, x0, dtype)
    if oracles.concave is not None and not oracles.source_of(oracles.concave.rows).deterministic:
        source = problem.source(dtype, oracles.concave.rows)
        check_mean(CONCAVE, "concave", source, oracles, x0, dtype)
    for place, (what, entry, number) in enumerate(problem.entries()):
        if number is not None and not is_own(entry.function):
            check_mean(what, place, problem.source(dtype, number), oracles, x0, dtype)


def check_mean(
    what: str, place: int | str | None, source: Source, oracles: Oracles, x0: Vector, dtype: Any
) -> None:
    """Raise ValueError where the value on some rows is not the mean of the values on each.

    Of the constraint at this place among the terms, of the concave part, or of the loss.
    """
    rows = some_rows(source)
    sizes = {np.shape(a)[0] if np.ndim(a) else 0 for a in jax.tree.leaves(rows, is_leaf=is_rows)}
    if len(sizes) != 1 or sizes & {0, 1}:
        return  # a sampler may hand out anything; for one row a sum is a mean
    count = sizes.pop()
    noise = keys.generator(0, keys.Purpose.CHECK, number=1).standard_normal((POINTS, len(x0)))
    size = max(1.0, float(np.linalg.norm(x0)) / np.sqrt(len(x0)))
    points = np.asarray(x0 + size * DISTANCES * noise, dtype)
    line = [points + k * BESIDE * size * noise for k in (0, 1, 2)]
    every = on_device(np.concatenate(line), dtype)
    *given, slopes = _values(oracles, every, rows, place)
    coarse = np.dtype(min(np.dtype(dtype), given[0].dtype, key=lambda kind: kind.itemsize))
    found = [np.asarray(v, float) for v in given]
    for entry in range(found[0].shape[-1]):
        compare(what, count, coarse, *(values[..., entry] for values in found))
    flat = (
        isinstance(place, int) and not np.any(np.asarray(slopes)) and np.ptp(found[0], axis=0).any()
    )
    if flat:
        raise ValueError(
            f"{what} changes with x, but its derivative is 0 everywhere, as that of a count or of "
            "`A @ x > 0` is: replace steps by a smooth function, jax.nn.sigmoid((A @ x) / 0.1)."
        )


def compare(
    what: str, count: int, dtype: Any, whole: np.ndarray, groups: np.ndarray, single: np.ndarray
) -> None:
    """Of all rows together, in groups, and one by one, at points and on short lines from them."""
    lost = np.isfinite(whole) & ~np.isfinite(single).all(axis=1)
    if lost.any():
        raise ValueError(
            f"{what} must be the mean over the rows of a batch, but it is finite on {count} rows "
            "together and NaN or infinite on one of them. Where it divides by the rows of a group "
            "in the batch, give mossp.group_weights(group) as an array w of the data, and write "
            "jnp.mean(w * value)."
        )
    rounding = second_difference(single)
    whole, groups, single = whole[:POINTS], groups[:POINTS], single[:POINTS]
    enough = ROUNDING[np.dtype(dtype)] * np.abs(single).max(axis=1) + TIMES_ROUNDING * rounding
    in_groups = single[:, : groups.shape[1] * GROUP].reshape(POINTS, GROUP, -1).mean(axis=1)
    for together, apart, number in ((groups, in_groups, GROUP), (whole, single.mean(1), count)):
        together, apart = together.reshape(POINTS, -1), apart.reshape(POINTS, -1)
        with np.errstate(invalid="ignore"):  # infinite losses are left to the run to tell
            off = np.abs(together - apart) - enough[:, None]
        if np.isfinite(off).any() and np.nanmax(np.where(np.isfinite(off), off, -np.inf)) > 0:
            place = np.unravel_index(np.argmax(np.where(np.isfinite(off), off, -np.inf)), off.shape)
            raise ValueError(
                f"{what} must be the mean over the rows of a batch, but on {number} rows it is "
                f"{together[place]:.6g} while the mean of its values row by row is "
                f"{apart[place]:.6g}: use jnp.mean, not jnp.sum. Where it divides by the weights "
                "of the batch, sum(w * l) / sum(w), scale the weights so that their mean over all "
                "rows is 1, give them as an array of data, and write jnp.mean(w * l)."
            )


def second_difference(values: np.ndarray) -> np.ndarray:
    """max |l(x) - 2 l(x + d) + l(x + 2 d)| over rows, of losses at x, x + d and x + 2 d."""
    here, ahead, beyond = values.reshape(3, POINTS, -1)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(here - 2 * ahead + beyond).max(axis=1), posinf=0.0)


def some_rows(source: Source) -> PyTree:
    """Up to ROWS rows, of which every third belongs to one group."""
    N = source.rows
    if N is None:
        batch = source.peek(rows=ROWS)[0]
        return jax.tree.map(lambda a: a[:ROWS] if jnp.ndim(a) else a, batch)
    if not source.reaches_rows:
        return source.some_rows(ROWS)
    rng = keys.generator(0, keys.Purpose.CHECK)
    spread = np.linspace(0, N - 1, SPREAD).astype(int)
    random = rng.choice(N, min(ROWS, N), replace=False)
    every = np.concatenate([source.extreme_rows()[:EXTREME], spread, random])
    _, first = np.unique(every, return_index=True)
    return source.take_rows(np.sort(every[np.sort(first)[:ROWS]]))


@compiled(static_argnums=3)
def _values(oracles: Oracles, points: Any, rows: PyTree, place: int | str | None) -> Any:
    """On all rows, on groups of GROUP, and on single rows, at each point; one column an entry.

    And, of a constraint, a vector that is 0 where all derivatives are.
    """
    count = jax.tree.leaves(rows, is_leaf=is_rows)[0].shape[0]
    groups = count // GROUP

    def value(x: Vector, rows: PyTree) -> Any:
        if place is None:
            return oracles.f(x, rows)[None]
        if place == "concave":
            return oracles.g(x, rows)[None]
        assert isinstance(place, int)
        values = oracles.terms.terms[place].function(oracles.structure.unravel(x), rows)
        return jnp.concatenate([jnp.ravel(v) for v in jax.tree.leaves(values)])

    def of(x: Vector, places: Any) -> Any:
        return value(x, map_rows(lambda a: a[places], rows))

    def at(x: Vector) -> tuple[Any, Any, Any, Any]:
        # Rows of a group lie far apart: i, i + groups, i + 2 groups.
        mixed = jnp.arange(groups * GROUP).reshape(GROUP, groups).T
        single = jnp.arange(count)[:, None]
        each = lambda places: jax.lax.map(lambda p: of(x, p), places)  # noqa: E731
        slope = 0.0 if place is None else jax.grad(lambda x: jnp.sum(value(x, rows) ** 2))(x)
        return value(x, rows), each(mixed), each(single), slope

    return jax.lax.map(at, points)
