"""Many starts, and a start that is a solution already."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

import mossp
from mossp import Status
from mossp._base import keys
from mossp.certificates.feasibility import different_starts
from tests.solving.logistic import LAM, X0, is_sentence, logistic, n, on_sphere, same, stop_after
from tests.solving.small import PLANE, Small

pytestmark = pytest.mark.slow


# Many starts ----------------------------------------------------------------------------------


def two_valleys():
    """Minima near x_0 = 1 and, lower, near x_0 = -1."""
    return Small(t=[-0.5, 0.3, 0.0, 0.0], well=1.0)


BAD = (1.0, 0.0, 0.0, 0.0)


@functools.cache
def eight(seed=0):
    return two_valleys().solve(BAD, starts=8, seed=seed)


def test_eight_starts_find_the_better_minimum():
    small = two_valleys()
    alone, many = small.solve(BAD), eight()
    small.honest(alone)
    small.honest(many)
    assert alone.success and many.success
    assert alone.x[0] > 0.7 and many.x[0] < -0.7
    assert many.fun < alone.fun - 0.5


def test_the_best_of_eight_is_returned():
    r = eight()
    assert r.funs.shape == r.violations.shape == (8,) and r.xs.shape == (8, 4)
    feasible = r.violations <= r.tol
    assert feasible.any() and r.fun == r.funs[feasible].min()
    best = int(np.argmin(np.where(feasible, r.funs, np.inf)))
    assert np.array_equal(r.x, r.xs[best])
    assert r.settings["replicas"] == 8
    assert r.expectation is None  # it speaks of replicas that share their start
    arrived = r.xs[np.abs(r.xs[:, 0]) < 10, 0]
    assert len(np.unique(np.round(arrived, 6))) == 2  # both valleys


def test_eight_starts_are_repeatable():
    r = two_valleys().solve(BAD, starts=8)
    same(r, eight())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_eight_starts_are_never_worse_than_one(seed):
    alone, many = two_valleys().solve(BAD, seed=seed), eight(seed)
    assert many.fun <= alone.fun + 1e-9
    assert many.funs[0] == pytest.approx(alone.fun, abs=1e-9)  # x0 is one of the starts


@pytest.mark.parametrize("start", [0.42, 0.5])
def test_a_start_where_the_curvature_is_small(start):
    """A quartic with two valleys is bounded below: no start should run away from it."""
    small = two_valleys()
    r = small.solve((start, 0.0, 0.0, 0.0))
    small.honest(r)
    assert r.success, r.message


@pytest.mark.parametrize("length", [0.1, 3.0])
def test_the_rule_of_the_starts(length):
    """By turns x + s e / 2 and s e, s = max(|x|, 1) / sqrt(n), e the seed's normal vector."""
    x = length * np.ones(n) / np.sqrt(n)
    with jax.enable_x64(True):
        posed = logistic(mossp.L1(LAM)).oracles(x)
        found = different_starts(posed, x, 6, 1e-8, seed=5)
        fewer = different_starts(posed, x, 4, 1e-8, seed=5)
        other = different_starts(posed, x, 4, 1e-8, seed=6)
    assert np.array_equal(found[0], x) and np.array_equal(found[:4], fewer)
    assert not np.isclose(found[1:4], other[1:]).any()
    s = max(length, 1.0) / np.sqrt(n)
    for r in range(1, 6):
        e = keys.generator(5, keys.Purpose.START, r).standard_normal(n)
        np.testing.assert_allclose(found[r], x + s * e / 2 if r % 2 else s * e, atol=1e-12)


def test_the_starts_are_feasible_where_they_can_be():
    x = X0 / np.linalg.norm(X0)
    with jax.enable_x64(True):
        found = different_starts(on_sphere().oracles(x), x, 8, 1e-8)
        inside = different_starts(logistic(mossp.Nonnegative(mossp.L1(LAM))).oracles(x), x, 8, 1e-8)
    assert np.abs(np.sum(found**2, axis=1) - 1).max() <= 1e-8
    assert np.array_equal(found[0], x) and (inside >= 0).all()
    gaps = np.linalg.norm(found[:, None] - found[None], axis=2) + 10 * np.eye(8)
    assert gaps.min() > 0.05


def test_starts_with_constraints_that_cannot_be_met():
    r = Small(A=[PLANE, PLANE], b=[0.5, 1.5]).solve(starts=8)
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert r.violation == r.violations.min() and is_sentence(r.message)


def test_starts_with_replicas_are_refused():
    with pytest.raises(ValueError, match=r"starts = 8 .* replicas = 3 cannot be asked for as well"):
        Small().solve(starts=8, replicas=3)


@pytest.mark.parametrize(
    ("starts", "error"),
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("8", TypeError), (None, TypeError)],
)
def test_wrong_numbers_of_starts_are_refused(starts, error):
    with pytest.raises(error, match="starts must be"):
        Small().solve(starts=starts)


def test_a_checkpoint_of_replicas_is_not_one_of_starts(tmp_path):
    """Eight replicas from x0 and eight starts are different runs."""
    saved = {"checkpoint": tmp_path / "run"}
    two_valleys().solve(BAD, replicas=8, **saved, callback=lambda progress: True)
    with pytest.raises(mossp.CheckpointError, match="other settings"):
        two_valleys().solve(BAD, starts=8, **saved)


def test_starts_resumed(tmp_path):
    saved = {"checkpoint": tmp_path / "run", "starts": 8}
    two_valleys().solve(BAD, **saved, callback=stop_after(0))
    same(two_valleys().solve(BAD, **saved), eight())


# A start that is a solution already ---------------------------------------------------------------


def sphere_problem(**changes):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(400, 6))
    b = np.sign(A[:, 0] + 0.3 * rng.normal(size=400))
    given = {"regularizer": mossp.L1MinusL2(0.01), "equality": mossp.constraints.Sphere()}
    return mossp.Problem(mossp.losses.logistic, (A, b), **{**given, **changes})


@pytest.mark.parametrize(
    "changes",
    [{}, {"equality": None}, {"equality": None, "inequality": lambda x: x @ x - 4.0}],
    ids=["sphere", "none", "inequality"],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_start_that_is_a_solution_ends_at_step_0(changes, dtype):
    problem = sphere_problem(**changes)
    first = mossp.solve(problem, np.ones(6), dtype=dtype)
    again = mossp.solve(problem, first, dtype=dtype)
    assert first.success and again.success and again.steps == 0
    assert "The start is a solution already." in again.message
    np.testing.assert_allclose(again.fun, first.fun, atol=1e-12 if dtype == "float64" else 1e-6)


def test_replicas_of_a_solution_end_at_step_0():
    problem = sphere_problem()
    first = mossp.solve(problem, np.ones(6))
    again = mossp.solve(problem, first, replicas=2)
    assert again.success and again.steps == 0
    np.testing.assert_array_equal(again.xs[0], again.xs[1])


def test_another_candidate_may_still_be_lower_than_a_critical_start():
    """At 0 the truncated l1 norm is critical, whatever the loss."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 8))
    problem = mossp.Problem(
        mossp.losses.squared, (A, A[:, :2] @ [2.0, -1.0]), regularizer=mossp.TruncatedL1(5.0, 2)
    )
    result = mossp.solve(problem, np.zeros(8))
    assert result.success and result.fun <= 1e-12
    assert np.flatnonzero(result.x).tolist() == [0, 1]


def test_a_path_over_equal_strengths_ends_at_once():
    found = mossp.path(sphere_problem(), [0.02, 0.02, 0.02], np.ones(6))
    assert [result.steps > 0 for result in found.results] == [True, False, False]
    assert all(result.success for result in found.results)
