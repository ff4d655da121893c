"""How far central differences reach."""

from __future__ import annotations

import jax.numpy as jnp

from mossp._base.types import AnyArray, AnyVector


def difference_step(x: AnyVector, v: AnyVector) -> AnyArray:
    """t for (f(x + t v) - f(x - t v)) / (2 t): eps^{1/3} balances truncation and rounding.

    Examples
    --------
    >>> x = jnp.ones(1)
    >>> t = difference_step(x, x)
    >>> round(float(((x + t) ** 3 - (x - t) ** 3)[0] / (2 * t)), 3)
    3.0
    """
    size = jnp.finfo(x.dtype).eps ** (1 / 3) * jnp.maximum(jnp.linalg.norm(x), 1.0)
    return size / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(x.dtype).tiny)
