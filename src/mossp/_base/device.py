"""Arrays of JAX from those of NumPy, without a program to make them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.types import AnyArray, Array, DType

# `jnp.asarray` compiles a program for every shape, which takes longer than to copy so many bytes;
# it may share the memory of the array, which of large ones saves more.
COPIED = 2**24


def on_device(a: AnyArray, dtype: DType | None = None) -> Array:
    """An array of JAX with these numbers. The caller does not change `a` afterwards.

    Examples
    --------
    >>> on_device(np.arange(3.0), np.float32).dtype
    dtype('float32')
    """
    if isinstance(a, jax.Array):
        return a if dtype is None or a.dtype == dtype else jnp.asarray(a, dtype)
    host = np.asarray(a, dtype)
    placed: Array = jax.device_put(host) if host.nbytes <= COPIED else jnp.asarray(host)
    return placed
