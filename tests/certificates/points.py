"""A loss around a centre, constraints, and points with zeros."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np


def two_sided(x):
    return jnp.stack([x @ x - 1.0, x.sum() - 50.0])


CENTRE = np.array([0.9, -0.4, 0.3, -0.8, 0.05, 0.6])


def away(x):
    """grad = x - CENTRE."""
    return 0.5 * jnp.sum((x - jnp.array(CENTRE.tolist())) ** 2)


def line(x):
    return x.sum() - 1.0


def pair(x):
    return jnp.stack([x[0] + x[1] - 0.5, x @ x - 10.0, x[2] - x[3]])


LAM = 0.3
ZEROS = np.array([0.7, 0.0, 0.0, -1.2, 0.0, 0.2])


def tree_away(x):
    return away(jnp.concatenate([x["a"], x["b"].ravel()]))
