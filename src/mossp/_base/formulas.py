"""Formulas as trees of tuples, which NumPy and jax.numpy evaluate; no text runs as Python.

a number
(operation, tree, ...)      one of OPERATORS or FUNCTIONS
(variable, shape, keys)     entries of an array that is given when the tree is evaluated
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np

from mossp._base.types import AnyArray, AnyKey, Array, ArrayLike, Namespace

Shape: TypeAlias = tuple[int, ...]
Key: TypeAlias = int | tuple[AnyKey, ...]  # a place, ("list", ...) or ("slice", ...)
Tree: TypeAlias = float | tuple[AnyKey, ...]  # nested: no static type says more

OPERATORS: dict[str, Callable[..., AnyArray]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "negative": operator.neg,
}
REDUCTIONS = {"sum": 1, "mean": 1, "norm": 1, "dot": 2}  # with the number of their arguments
FUNCTIONS = REDUCTIONS | dict.fromkeys(("exp", "log", "sqrt", "sin", "cos", "tanh"), 1)


def real_array(value: ArrayLike | None) -> Array | None:
    """As an array of JAX with real numbers; None stays None."""
    if value is None:
        return None
    array = jnp.asarray(value)
    real = jnp.issubdtype(array.dtype, jnp.floating)
    return array if real else array.astype(jnp.result_type(float))


def value(tree: Tree, given: Mapping[str, Array | None]) -> AnyArray:
    """The value of a tree with these arrays as its variables."""
    if not isinstance(tree, tuple):
        return tree  # a Python number, which takes the precision of x
    name, *parts = tree
    if name not in given:
        return apply(name, [value(part, given) for part in parts], jnp)
    array, (shape, keys) = given[name], parts
    if array is None:
        raise ValueError(
            f"This constraint speaks of {name}, but no {name} was given: give it, or write the "
            "constraint without."
        )
    if array.shape != shape:
        raise ValueError(
            f"This constraint was read for {name} of shape {shape}, but {name} has shape "
            f"{array.shape}: read it again for that."
        )
    return entries(array, keys)


def entries(array: AnyArray, keys: tuple[Key, ...]) -> AnyArray:
    """The entries of an array that the keys choose."""

    def index(key: Key) -> AnyArray:
        if isinstance(key, int):
            return key
        return slice(*key[1:]) if key[0] == "slice" else np.array(key[1:])

    return array[tuple(map(index, keys))] if keys else array


def apply(name: str, parts: list[AnyArray], xp: Namespace) -> AnyArray:
    """Apply one operation, in jax.numpy, or in NumPy to numbers alone."""
    if name in OPERATORS:
        return OPERATORS[name](*parts)
    if name == "dot":
        return xp.sum(parts[0] * parts[1])
    if name == "norm":
        square = xp.sum(parts[0] * parts[0])
        # The root has no derivative at 0: below `tiny` the norm is 0, and so are its derivatives.
        # Both branches stay finite, as differentiation needs, and NaN stays NaN.
        zero = square < xp.finfo(square.dtype).tiny
        return xp.where(zero, 0.0, xp.sqrt(xp.where(zero, 1.0, square)))
    return getattr(xp, name)(*parts)  # one of FUNCTIONS, nothing else gets here
