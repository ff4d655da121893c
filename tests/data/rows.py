"""Rows of numbers, and JAX in the precision that they have."""

from __future__ import annotations

import jax
import numpy as np


def exact(dtype):
    """JAX with doubles, or without."""
    return jax.enable_x64(dtype == np.float64)


def stored(rows):
    return sum(np.size(leaf) for leaf in jax.tree.leaves(rows))


def data_set(N, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, 3)) + 1.0, rng.normal(size=N)
