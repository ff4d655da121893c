"""Arrays on their way between the host and a running program.

A program reaches the host by a callback, which runs in a thread of the compiler. There JAX narrows
what has 8 bytes to 4, since float64 is a setting of the thread that called: numbers of 8 bytes
cross as pairs of 4 bytes, and are put together again on the other side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from mossp._base.types import PyTree

# From the host into a program -----------------------------------------------------------------


def called(function: Callable[..., PyTree], shapes: PyTree, *arguments: Any) -> PyTree:
    """What the function returns on the host, arrays of these shapes; in compiled code."""
    leaves, treedef = jax.tree.flatten(shapes)

    def host(*given: Any) -> list[np.ndarray]:
        found = jax.tree.leaves(function(*given))
        return [split(a, leaf) for a, leaf in zip(found, leaves, strict=True)]

    got = jax.pure_callback(host, [crossed(leaf) for leaf in leaves], *arguments)
    return jax.tree.unflatten(treedef, [joined(*pair) for pair in zip(got, leaves, strict=True)])


def is_wide(a: Any) -> bool:
    return np.dtype(a.dtype).itemsize == 8


def crossed(like: Any) -> jax.ShapeDtypeStruct:
    """What crosses in place of an array of this shape and type."""
    if is_wide(like):
        return jax.ShapeDtypeStruct((*like.shape, 2), np.uint32)
    return jax.ShapeDtypeStruct(like.shape, like.dtype)


def split(a: Any, like: Any) -> np.ndarray:
    """An array of the host in the type of `like`, as pairs where that has 8 bytes."""
    a = np.ascontiguousarray(np.asarray(a, like.dtype)).reshape(like.shape)
    return a.reshape(*a.shape, 1).view(np.uint32) if is_wide(a) else a


def joined(a: Any, like: Any) -> Any:
    """The array inside of the program."""
    return lax.bitcast_convert_type(a, like.dtype) if is_wide(like) else a


# From a program to the host -------------------------------------------------------------------


def as_words(tree: PyTree) -> tuple[PyTree, tuple[np.dtype[Any], ...]]:
    """(arrays that may cross, their own types)."""
    kinds = tuple(np.dtype(leaf.dtype) for leaf in jax.tree.leaves(tree))
    words = lambda a: lax.bitcast_convert_type(a, np.uint32) if is_wide(a) else a  # noqa: E731
    return jax.tree.map(words, tree), kinds


def from_words(tree: PyTree, kinds: tuple[np.dtype[Any], ...]) -> PyTree:
    """The arrays again, in NumPy and as copies of what the program has."""

    def join(a: Any, kind: np.dtype[Any]) -> np.ndarray:
        a = np.array(a)
        return a.view(kind)[..., 0] if kind.itemsize == 8 else a

    leaves, treedef = jax.tree.flatten(tree)
    return jax.tree.unflatten(treedef, [join(*pair) for pair in zip(leaves, kinds, strict=True)])
