"""method="auto" where something is degenerate, infeasible, unbounded or badly scaled."""

from __future__ import annotations

import numpy as np
import pytest

import mossp
from mossp import Status
from tests.solving.logistic import is_sentence
from tests.solving.small import PLANE, Small

pytestmark = pytest.mark.slow


def test_the_check_itself_finds_what_is_wrong():
    small = Small(A=[PLANE, [0, 0, 1.0, 0]], b=[0.5, 0.0])
    r = small.solve()
    assert r.success and small.distance(r.x, 1e-10)[0] <= 1e-10
    assert small.distance(r.x + 1e-3 * np.array([1, -1, 0, 0]), 1e-10)[0] > 1e-4


def test_the_same_row_twice():
    small = Small(A=[PLANE, PLANE], b=[0.5, 0.5])
    r = small.solve()
    small.honest(r)
    assert r.success and r.violation <= 1e-10, r.message
    single = Small(A=[PLANE, [0.0] * 4], b=[0.5, 0.0]).solve()
    assert r.fun == pytest.approx(single.fun, abs=1e-10)


def test_inconsistent_rows():
    small = Small(A=[PLANE, PLANE], b=[0.5, 1.5])
    x0 = np.full(4, 0.5)
    r = small.solve(x0)
    small.honest(r)
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert r.violation <= small.violation(x0) + 1e-8


def test_an_infeasible_stationary_point():
    """|x|^2 = -1 has no solution; 0 violates it least."""
    small = Small(A=np.zeros((2, 4)), b=[-1.0, -1.0], curve=[1.0, 1.0])
    r = small.solve()
    small.honest(r)
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert np.sqrt(2) - 1e-12 <= r.violation <= small.violation(np.full(4, 0.5))
    assert "cannot" in r.message and "hold" in r.message


def test_an_unbounded_problem():
    small = Small(Q=np.diag([-1.0, 1, 1, 1]))
    r = small.solve()
    assert r.status is Status.DIVERGED and not r.success
    assert is_sentence(r.message) and np.isfinite(r.x).all()


def test_a_loss_that_becomes_nan():
    small = Small(edge=0.7)
    r = small.solve()
    assert r.status is Status.NONFINITE and not r.success
    assert "the loss" in r.message and is_sentence(r.message)
    assert np.isfinite(r.x).all() and np.isfinite(r.fun) and r.x[0] <= 0.7
    assert r.fun <= small.fun(np.array([0.5, 0.5, 0, 0])) + 1e-9


def test_a_loss_that_is_nan_at_the_start():
    r = Small(edge=0.3).solve()
    assert r.status is Status.NONFINITE and not r.success and r.steps == 0
    assert is_sentence(r.message)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("side", ["equality", "inequality"])
def test_the_optimum_at_the_kink_of_capped_l1(side, sign):
    """x_0 = +-theta is where the constraint puts it, and g has a kink there."""
    theta, row = 0.4, [[sign, 0, 0, 0]]
    changes = (
        {"A": [row[0], [0, 0, 1.0, 0]], "b": [theta, 0.0]}
        if side == "equality"
        else {"a": row, "beta": [theta]}
    )
    small = Small(mossp.CappedL1(0.1, theta), t=[sign, -0.6, 0.4, 0.02], **changes)
    r = small.solve((0.1, 0.1, 0.1, 0.1))
    small.honest(r)
    assert r.success, r.message
    assert abs(r.x[0] - sign * theta) <= 1e-10


def test_a_critical_point_at_the_kink_is_not_taken_for_a_minimum():
    """F has a peak between two valleys at |x_1| = theta: no minimum is there."""
    small = Small(mossp.CappedL1(0.1, 0.55), t=[1.0, -0.6, 0.4, 0.02])
    r = small.solve((1.0, -0.55, 0.0, 0.0))
    small.honest(r)
    assert abs(abs(r.x[1]) - 0.55) > 1e-3


def test_a_tie_at_the_last_place_of_truncated_l1():
    small = Small(
        mossp.TruncatedL1(0.1, 2), t=[1.0, 0.5, 0.5, 0.02], A=[[0, 1.0, -1, 0], [0, 0, 0, 1]],
    )  # fmt: skip
    r = small.solve()
    small.honest(r)
    assert abs(r.x[1] - r.x[2]) <= 1e-10
    # x_1 = x_2 = s: one of them pays, whichever; (s - 0.5)^2 + 0.1 s is least at 0.45.
    np.testing.assert_allclose(r.x, [1.0, 0.45, 0.45, 0.0], atol=1e-5)
    assert r.success, r.message


def test_zero_for_l1_minus_l2():
    small = Small(mossp.L1MinusL2(0.1), t=[0.0] * 4)
    for x0 in ((0.5, 0.5, 0.5, 0.5), (0.0, 0.0, 0.0, 0.0), (1e-9, 0.0, 0.0, 0.0)):
        r = small.solve(x0)
        small.honest(r)
        assert r.success, r.message
        np.testing.assert_allclose(r.x, 0.0, atol=1e-9)
        assert r.fun <= 1e-15


def test_badly_scaled_rows():
    A, b = np.array([PLANE, [1.0, -2.0, 0.5, 0]]), np.array([0.5, 0.3])
    scale = np.array([1e-3, 1e3])
    plain, scaled = Small(A=A, b=b), Small(A=scale[:, None] * A, b=scale * b)
    r, good = scaled.solve(), plain.solve()
    scaled.honest(r)
    plain.honest(good)
    assert r.success and good.success, r.message
    np.testing.assert_allclose(r.x, good.x, atol=1e-6)
    assert r.fun == pytest.approx(good.fun, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_badly_scaled_sphere(scale):
    """Both rows say |x|^2 = 1, one of them in another unit."""
    both = {"A": np.zeros((2, 4)), "b": [1.0, scale], "curve": [1.0, scale]}
    small, x0 = Small(**both), np.zeros(4)
    r = small.solve(x0)
    small.honest(r)
    assert r.success and abs(r.x @ r.x - 1) <= 1e-7, r.message
    good = Small(A=np.zeros((2, 4)), b=[1.0, 0.0], curve=[1.0, 0.0]).solve()
    assert r.fun == pytest.approx(good.fun, abs=1e-6)


@pytest.mark.parametrize("factor", [100.0, -100.0])
def test_a_far_start(factor):
    small = Small(A=np.zeros((2, 4)), b=[1.0, 0.0], curve=[1.0, 0.0])
    r = small.solve(np.full(4, 0.5) * factor)
    small.honest(r)
    assert r.success and r.fun == pytest.approx(small.solve().fun, abs=1e-9), r.message


def test_single_precision():
    r = Small().solve(dtype="float32")
    assert r.tol == 1e-4 and r.success and r.settings["dtype"] == "float32", r.message
    np.testing.assert_allclose(r.x, Small().solve().x, atol=1e-4)
