"""Arrays on their way from the host into a running program.

A program asks for them by a callback, which runs in a thread of the compiler. There JAX narrows
what has 8 bytes to 4, since float64 is a setting of the thread that called: numbers of 8 bytes
cross as pairs of 4 bytes, and are put together again inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from mossp._base.types import PyTree


def called(function: Callable[..., PyTree], shapes: PyTree, *arguments: Any) -> PyTree:
    """What the function returns on the host, arrays of these shapes; in compiled code."""
    leaves, treedef = jax.tree.flatten(shapes)
    wide = [np.dtype(leaf.dtype).itemsize == 8 for leaf in leaves]

    def host(*given: Any) -> list[np.ndarray]:
        found = jax.tree.leaves(function(*given))
        return [split(a, leaf) for a, leaf in zip(found, leaves, strict=True)]

    def crossing(leaf: Any, is_wide: bool) -> Any:
        if is_wide:
            return jax.ShapeDtypeStruct((*leaf.shape, 2), np.uint32)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

    each = [crossing(leaf, is_wide) for leaf, is_wide in zip(leaves, wide, strict=True)]
    got = jax.pure_callback(host, each, *arguments)
    whole = [
        lax.bitcast_convert_type(a, leaf.dtype) if is_wide else a
        for a, leaf, is_wide in zip(got, leaves, wide, strict=True)
    ]
    return jax.tree.unflatten(treedef, whole)


def split(a: Any, like: Any) -> np.ndarray:
    """An array in the type of `like`, as pairs where that has 8 bytes."""
    a = np.ascontiguousarray(np.asarray(a, like.dtype)).reshape(like.shape)
    if a.dtype.itemsize < 8:
        return a
    return a.reshape(*a.shape, 1).view(np.uint32)
