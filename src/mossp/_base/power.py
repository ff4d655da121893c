"""The largest eigenvalue of a symmetric map, by power iteration: no matrix is ever formed."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base.types import DType, HostVector, Index, Scalar, Vector

POWER_ITERATIONS = 12  # within some 10 % of the largest eigenvalue on the spectra met in practice


def start_vector(n: int, dtype: DType) -> Vector:
    """A fixed unit vector without special directions, to start a power iteration from."""
    v = jnp.cos(jnp.arange(1, n + 1, dtype=dtype) ** 2)
    return v / jnp.linalg.norm(v)


def scattered(n: int, first: int = 0) -> HostVector:
    """The same on the host, not normalised: cos(i^2) for n whole numbers i, from `first` on."""
    return np.cos(np.arange(first, first + n) ** 2.0)


def spectral_norm(apply: Callable[[Vector], Vector], n: int, dtype: DType) -> Scalar:
    """The largest absolute eigenvalue of a symmetric linear map."""
    return leading(apply, n, dtype)[1]


def leading(apply: Callable[[Vector], Vector], n: int, dtype: DType) -> tuple[Vector, Scalar]:
    """(an eigenvector of the largest absolute eigenvalue, its absolute value)."""

    def iterate(_: Index, carry: tuple[Vector, Scalar]) -> tuple[Vector, Scalar]:
        v, _ = carry
        w = apply(v)
        length = jnp.linalg.norm(w)
        return w / jnp.maximum(length, jnp.finfo(dtype).tiny), length

    zero = jnp.zeros((), dtype)
    return lax.fori_loop(0, POWER_ITERATIONS, iterate, (start_vector(n, dtype), zero))
