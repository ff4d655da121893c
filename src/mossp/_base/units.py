"""Coefficients of standardised columns in the units of the columns as they were."""

from __future__ import annotations

import jax.numpy as jnp

from mossp._base.module import Module
from mossp._base.types import Array, ArrayLike


class Units(Module):
    """Units in which a constraint speaks of the coefficients of standardised columns.

    A column v is standardised to (v - centre) / scale. In units of v its coefficient is x / scale,
    and the intercept what is left of it at v = 0.

    Examples
    --------
    >>> import numpy as np
    >>> units = Units(np.array([40.0]), np.array([10.0]))
    >>> [np.asarray(part).tolist() for part in units.of(jnp.array([2.0]), jnp.array(30.0))]
    [[0.2], 22.0]
    """

    centre: ArrayLike
    scale: ArrayLike

    def of(self, x: Array, intercept: Array | None) -> tuple[Array, Array | None]:
        """The coefficients and the intercept in these units."""
        centre, scale = jnp.asarray(self.centre, x.dtype), jnp.asarray(self.scale, x.dtype)
        raw = (x.T / scale).T
        return raw, None if intercept is None else intercept - centre @ raw
