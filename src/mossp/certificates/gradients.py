"""Whether derivatives are right: finite differences against what differentiation gives.

JAX differentiates what it is given; a loss with its own rule (`jax.custom_vjp`), or one that is not
smooth where it is used, can still give wrong gradients.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base import keys
from mossp._base.device import on_device
from mossp._base.printing import quoted
from mossp._base.structure import Structure
from mossp._base.types import HostArray, HostMultipliers, Index, PyTree, Scalar, Vector
from mossp.oracles import Oracles
from mossp.problem import Problem

ROWS = 256  # of the data, on which the loss is checked
COORDINATES = 500  # checked at the most, chosen at random


def check_gradients(problem: Problem, x: PyTree, *, tol: float = 1e-5, seed: int = 0) -> None:
    """Raise ValueError where a derivative of the loss or of a constraint is wrong at x.

    Central differences in float64, relative to the size of the gradient; the worst entry is named.

    Parameters
    ----------
    problem : Problem
        Whose loss and constraints are differentiated.
    x : array or pytree of arrays
        The point.
    tol : float
        Relative difference that is accepted.
    seed : int
        Chooses the entries that are compared where there are many.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, mossp
    >>> mossp.check_gradients(mossp.Problem(loss=lambda x: jnp.sum(x**3)), np.array([1.0, 2.0]))
    >>> @jax.custom_jvp
    ... def wrong(t):
    ...     return t**2
    >>> _ = wrong.defjvp(lambda p, t: (wrong(p[0]), p[0] * t[0]))
    >>> mossp.check_gradients(mossp.Problem(loss=lambda x: wrong(x[1])), np.array([1.0, 2.0]))
    Traceback (most recent call last):
    ...
    ValueError: The gradient of the loss is wrong at x[1]: 2 by differentiation, 4 by differences.
    """
    with jax.enable_x64(True):
        oracles, structure = problem.oracles(x), Structure.of(x)
        point = on_device(structure.ravel(x))
        rng = keys.generator(seed, keys.Purpose.CHECK)
        count = min(structure.size, COORDINATES)
        chosen = np.sort(rng.choice(structure.size, count, replace=False))
        rows = problem.source().peek(rows=ROWS)[0]
        f = lambda v: oracles.f(v, rows)  # noqa: E731
        compare("loss", f, jax.grad(f), structure, point, chosen, tol)
        for name, weights in constraint_weights(oracles, rng):
            combined = lambda v, w=weights: oracles.c(v) @ w  # noqa: E731
            pull = lambda v, w=weights: oracles.linearized(v)[1](jnp.asarray(w))  # noqa: E731
            compare(name, combined, pull, structure, point, chosen, tol)


def constraint_weights(
    oracles: Oracles, rng: np.random.Generator
) -> list[tuple[str, HostMultipliers]]:
    """A random combination of the rows of each kind: wrong rows do not cancel in it."""
    weights = rng.uniform(0.5, 1.5, oracles.m) * rng.choice([-1.0, 1.0], oracles.m)
    is_equality = oracles.is_equality
    kinds = (("equality constraint", is_equality), ("inequality constraint", ~is_equality))
    return [(name, weights * rows) for name, rows in kinds if rows.any()]


def compare(
    name: str,
    function: Callable[[Vector], Scalar],
    gradient: Callable[[Vector], Vector],
    structure: Structure,
    x: Vector,
    chosen: HostArray,
    tol: float,
) -> None:
    g = np.asarray(gradient(x))[chosen]

    def difference(i: Index) -> Scalar:
        h = 1e-5 * jnp.maximum(1.0, jnp.abs(x[i]))
        e = jnp.zeros_like(x).at[i].set(h)
        return (function(x + e) - function(x - e)) / (2 * h)

    by_differences = np.asarray(jax.jit(lambda at: lax.map(difference, at))(jnp.asarray(chosen)))
    error = np.abs(g - by_differences)
    worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    if not error[worst] <= tol * max(1.0, float(np.max(np.abs(by_differences)))):
        raise ValueError(
            f"The gradient of the {name} is wrong at {entry(structure, int(chosen[worst]))}: "
            f"{g[worst]:.6g} by differentiation, {by_differences[worst]:.6g} by differences."
        )


def entry(structure: Structure, place: int) -> str:
    """The name of an entry of the vector in the user's x, such as x['w'][2, 0]."""
    for (path, (start, stop)), shape in zip(
        structure.slices.items(), structure.shapes, strict=True
    ):
        if start <= place < stop:
            index = ", ".join(str(i) for i in np.unravel_index(place - start, shape))
            return f"x[{quoted(path)}][{index}]" if path else f"x[{index}]"
    raise IndexError(place)
