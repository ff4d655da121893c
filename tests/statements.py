"""Data of four rows, and losses to state problems with."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

X = np.arange(12.0).reshape(4, 3) / 10
Y = np.array([1.0, -1.0, 1.0, 1.0])
X0 = np.array([0.5, -0.2, 0.1])


def square(x, batch):
    return jnp.mean((batch[0] @ x - batch[1]) ** 2)


def quadratic(x):
    return x @ x
