"""Models by their pieces: what is handed back is the minimum, and nothing else is."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mossp
from mossp.newton import pieces

NU = 2.0


def model(reg, seed: int, moved: float, m: int = 2, n: int = 20):
    """(x, w, M, c, J, q) of a model with its minimum near x, or at it where nothing is moved."""
    own = np.random.default_rng(seed)
    root = own.standard_normal((4 * n, n))
    M, J, q = root.T @ root / len(root), own.standard_normal((m, n)), np.array([0.5, 0.0])
    x = np.asarray(reg.prox_h(own.standard_normal(n), 3.0))
    slope = np.asarray(reg.nearest_h(x, own.uniform(-0.1, 0.1, n)))
    w = -slope - q @ J + moved * own.standard_normal(n)
    return x, w, M, np.array([0.0, -0.5]), J, q + moved


@pytest.mark.parametrize("regularizer", [mossp.L1(0.2), mossp.Nonnegative(mossp.L1(0.1))])
@pytest.mark.parametrize("moved", [0.0, 1e-3, 0.05])
def test_what_is_found_is_the_minimum(regularizer, moved):
    reg, found, seeds = jax.tree.map(np.asarray, regularizer), 0, range(10)
    for seed in seeds:
        x, w, M, c, J, q = model(reg, seed, moved)
        lower, upper = np.array([-NU, 0.0]), np.full(2, NU)
        answer = pieces.minimum(reg, x, w, M, c, J, lower, upper, q)
        if answer is None:
            continue
        (y, q), found = answer, found + 1
        W, r = w + M @ (y - x) + q @ J, c + J @ (y - x)
        np.testing.assert_allclose(y, reg.prox_h(y - W, 1.0), atol=1e-8)
        np.testing.assert_allclose(q, np.clip(q + r, lower, upper), atol=1e-8)
    assert found >= 0.6 * len(seeds)


def test_multipliers_stop_at_their_bounds():
    reg = jax.tree.map(np.asarray, mossp.L1(0.1))
    y, q = pieces.minimum(
        reg, np.zeros(2), np.zeros(2), np.eye(2), np.array([9.0]), np.array([[1.0, 0.0]]),
        np.zeros(1), np.full(1, NU), np.zeros(1),
    )  # fmt: skip
    np.testing.assert_allclose(q, NU)  # x_1 <= -9 would cost more than NU times its violation
    np.testing.assert_allclose(y, [0.1 - NU, 0.0])


def test_constraints_without_a_step_towards_them_are_left_to_others():
    reg, J = jax.tree.map(np.asarray, mossp.L1(0.1)), np.zeros((1, 2))
    found = pieces.minimum(
        reg, np.ones(2), np.ones(2), np.eye(2), np.ones(1), J, np.full(1, -NU), np.full(1, NU),
        np.zeros(1),
    )  # fmt: skip
    assert found is None or abs(found[1][0]) == NU


@pytest.mark.parametrize("curvature", [0.0, np.inf, np.nan])
def test_no_curvature_or_more_than_numbers_hold_is_left_to_others(curvature):
    reg, M = jax.tree.map(np.asarray, mossp.L1(0.1)), np.diag([curvature, curvature])
    one = np.ones(1)
    assert (
        pieces.minimum(reg, np.ones(2), np.ones(2), M, one, np.ones((1, 2)), -one, one, 0 * one)
        is None
    )


def test_a_model_that_is_nearly_singular_is_led_to_its_minimum():
    """Columns of 0 and 1 that add up to the last one, as those of a category beside an intercept.

    Steps from far away meet a wrong sign wherever they go; the value is that of coordinate descent.
    """
    own, n = np.random.default_rng(0), 24
    A = np.zeros((200, n + 1))
    A[np.arange(200), own.integers(0, n, 200)] = 1.0
    A[:, -1] = 1.0
    M = A.T @ A / 200 + 1e-12 * np.eye(n + 1)
    w, lam = -A.T @ (A @ own.standard_normal(n + 1)) / 200, 1e-3
    reg, none = jax.tree.map(np.asarray, mossp.L1(lam)), np.zeros(0)
    x = own.standard_normal(n + 1)
    found = pieces.minimum(reg, x, w, M, none, np.zeros((0, n + 1)), none, none, none)
    assert found is not None

    def value(y):
        return w @ (y - x) + (y - x) @ M @ (y - x) / 2 + lam * np.abs(y).sum()

    y = x.copy()
    for _ in range(4000):
        for j in range(n + 1):
            v = y[j] - (w + M @ (y - x))[j] / M[j, j]
            y[j] = np.sign(v) * max(abs(v) - lam / M[j, j], 0.0)
    assert value(found[0]) <= value(y) + 1e-6 * (value(x) - value(y))
