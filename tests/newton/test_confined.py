"""Neyman-Pearson classification from the start by Newton's method, where saturated rows mislead."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import mossp

rng = np.random.default_rng(3)
n = 8
ONE = np.c_[rng.normal(0.5, 1.0, (300, n - 1)), np.ones(300)]
ZERO = np.c_[rng.normal(-0.3, 1.0, (500, n - 1)), np.ones(500)]
BOUND = 0.05


def alarms(x, A):
    return jnp.mean(jax.nn.sigmoid(A @ x / 0.5))


def stated(regularizer=None, zero=ZERO, one=ONE) -> mossp.Problem:
    return mossp.Problem(
        mossp.losses.logistic, (one, np.ones(len(one))), regularizer,
        inequality=mossp.Expected(lambda x, A: alarms(x, A) - BOUND, data=zero),
    )  # fmt: skip


def best_of_slsqp() -> float:
    def f(x):
        return np.logaddexp(0, -(ONE @ x)).mean()

    def slack(x):
        return BOUND - (1 / (1 + np.exp(-np.clip(ZERO @ x / 0.5, -500, 500)))).mean()

    starts = [np.zeros(n), np.r_[np.full(n - 1, 0.5), -1.0]]
    found = [
        scipy.optimize.minimize(f, x, method="SLSQP", constraints={"type": "ineq", "fun": slack})
        for x in starts
    ]
    return min(r.fun for r in found if slack(r.x) >= -1e-7)


def test_smooth_no_higher_than_slsqp():
    r = mossp.solve(stated(), np.zeros(n))
    assert r.success
    assert r.steps == 0  # Newton's method alone
    assert r.certificate.is_kkt(1e-10, relative=True)
    assert r.fun <= best_of_slsqp() * (1 + 1e-6)
    np.testing.assert_allclose(alarms(r.x, ZERO), BOUND, atol=1e-6)  # the bound is active


@pytest.mark.parametrize("regularizer", [mossp.L1(1e-2), mossp.L1MinusL2(1e-2)])
def test_sparse(regularizer):
    r = mossp.solve(stated(regularizer), np.zeros(n))
    assert r.success
    assert r.certificate.is_kkt(1e-10, relative=True)


def test_a_ray_to_infinity():
    """A column that only the first class has: its weight grows for ever, and costs nothing.

    It ends promptly, next to the infimum: that of the rows which do not have the column.
    """
    one, zero = ONE.copy(), ZERO.copy()
    one[:, 0], zero[:, 0] = rng.random(len(one)) < 0.3, 0.0
    r = mossp.solve(stated(None, zero, one), np.zeros(n))
    assert r.status in (mossp.Status.DIVERGED, mossp.Status.CONVERGED)
    assert r.steps == 0
    assert r.certificate.is_kkt(1e-10, relative=True)
    rest = one[one[:, 0] == 0]
    limit = mossp.solve(stated(None, zero[:, 1:], rest[:, 1:]), np.zeros(n - 1))
    np.testing.assert_allclose(r.fun, limit.fun * len(rest) / len(one), rtol=1e-8)


def test_a_bound_that_cannot_hold():
    """The mean of a square below 0: no model leads there."""
    problem = mossp.Problem(
        mossp.losses.logistic, (ONE, np.ones(len(ONE))),
        inequality=mossp.Expected(lambda x, A: jnp.mean((A @ x) ** 2) + 0.5, data=ZERO),
    )  # fmt: skip
    r = mossp.solve(problem, np.full(n, 0.1))
    assert r.status is mossp.Status.INFEASIBLE_STATIONARY
