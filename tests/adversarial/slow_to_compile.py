"""A loss that takes long to compile: some hundred terms written out one by one."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import mossp

TERMS = 150


def loss(x):
    total = 0.0
    for i in range(TERMS):
        total = total + jnp.sin(x[i % 5] * (i + 1)) * jnp.exp(-(x[(i + 1) % 5] ** 2)) * x[i % 3] / 9
    return total + x @ x


if __name__ == "__main__":
    print("solving", flush=True)
    result = mossp.solve(mossp.Problem(loss), np.ones(5))
    print(result.status.name, flush=True)
