"""Least squares under a plane, which most tests of `solve` run for some steps."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import mossp
from mossp import losses
from tests.problems import (
    BATCH,
    START,
    TRUTH,
    A,
    N,
    b,
    n,
    plane,
)

METHODS = ("mossp-p", "mossp-r")  # the others: methods/test_matrix.py
SLOPE = [3.0, -1.0, 0.5, 2.0, 0.0, 1.0]


# A NumPy array that a function captures must not be met in both precisions (a fault of JAX, see
# test_status.py): hence jnp.array of lists here.


def linear(x):
    return jnp.array(SLOPE) @ x


def bowl(x):
    return 0.5 * jnp.sum((x - jnp.array(TRUTH.tolist())) ** 2)


def solve(problem, x0=START, **settings):
    defaults = {"method": "mossp-r", "steps": 3000, "batch_size": BATCH, "seed": 0, "tol": 2e-2}
    return mossp.solve(problem, x0, **{**defaults, **settings})


def regression(**changes):
    """L1(0) is no regularisation, but shares its program with L1(0.01)."""
    given = {"loss": losses.squared, "data": (A, b), "equality": plane}
    return mossp.Problem(**{**given, "regularizer": mossp.L1(0.0), **changes})


def kkt_solution(rows, levels):
    """argmin of the squared loss subject to rows x = levels."""
    rows, levels = np.atleast_2d(rows), np.atleast_1d(levels)
    m = len(levels)
    K = np.block([[A.T @ A / N, rows.T], [rows, np.zeros((m, m))]])
    return np.linalg.solve(K, np.concatenate([A.T @ b / N, levels]))[:n]
