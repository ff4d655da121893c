"""Answers that a person would accept: none at infinity, and the best of those that count."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.newton.candidates import from_strong, strength_at_zero
from mossp.newton.globalization import polish
from mossp.newton.meter import Meter
from mossp.newton.recession import leads_to_infinity
from mossp.regularizers.strength import strengthened
from mossp.result import Status

pytestmark = pytest.mark.slow


rng = np.random.default_rng(0)
X = rng.standard_normal((60, 4))
SEPARABLE = np.where(X @ [1.0, -1.0, 0.5, 0.0] > 0, 1.0, -1.0)
NOISY = np.where(X @ [1.0, -1.0, 0.5, 0.0] + rng.standard_normal(60) > 0, 1.0, -1.0)
logistic = mossp.losses.logistic


def endless(problem: mossp.Problem, x, tol: float = 1e-10, dtype=np.float64) -> bool:
    with jax.enable_x64(dtype == np.float64):
        x = np.asarray(x, dtype)
        oracles = problem.oracles(x, dtype)
        return leads_to_infinity(oracles, x, np.zeros(oracles.m), tol, Meter())


# Infinity ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reg", [mossp.Zero(), mossp.MCP(0.01)], ids=lambda r: type(r).__name__)
def test_separable_data_are_no_success(reg):
    result = mossp.solve(mossp.Problem(logistic, (X, SEPARABLE), reg), np.zeros(4))
    assert result.status is Status.DIVERGED and not result.success
    assert "no minimiser" in result.message and "mossp.L1" in result.message


def test_nor_are_they_for_a_method_that_is_not_polished():
    problem = mossp.Problem(logistic, (X, SEPARABLE))
    result = mossp.solve(problem, np.zeros(4), method="mossp-r", steps=3000, tol=0.5)
    assert result.status is Status.DIVERGED and not result.success


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "reg, expected",
    [
        (mossp.Zero(), True),
        (mossp.MCP(0.01), True),
        (mossp.SCAD(0.01), True),
        (mossp.CappedL1(0.01), True),
        (mossp.TruncatedL1(0.01, 3), True),
        (mossp.Nonnegative(mossp.MCP(0.01)), False),
        (mossp.Group(mossp.MCP(0.01), [0, 0, 1, 1]), True),
        (mossp.L1(0.01), False),
        (mossp.LogSum(0.01), False),
        (mossp.TransformedL1(0.01), False),
        (mossp.L1MinusL2(0.01), False),
        (mossp.Ball(mossp.Zero(), 100.0), False),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_ray_on_which_nothing_grows(reg, expected, dtype):
    x = 20 * np.array([1.0, -1.0, 0.5, 0.0])
    assert endless(mossp.Problem(logistic, (X, SEPARABLE), reg), x, 1e-2, dtype) is expected
    assert not endless(mossp.Problem(logistic, (X, NOISY), reg), x, 1e-2, dtype)


def test_a_loss_that_has_come_to_zero_by_underflow():
    far = 1e6 * np.array([1.0, -1.0, 0.5, 0.0])
    assert float(logistic(far, (X, SEPARABLE))) == 0
    assert endless(mossp.Problem(logistic, (X, SEPARABLE)), far)
    assert not endless(mossp.Problem(mossp.losses.huberized_hinge, (X, SEPARABLE)), far)


def test_only_some_entries_go_to_infinity():
    """An indicator of rows that are all positive: its coefficient grows, the others do not."""
    mark = np.arange(60) % 4 == 0
    rows, y = np.c_[X, mark], np.where(mark, 1.0, NOISY)
    result = mossp.solve(mossp.Problem(logistic, (rows, y)), np.zeros(5))
    assert result.status is Status.DIVERGED and np.abs(result.x[:4]).max() < 10 < result.x[4]
    assert not endless(mossp.Problem(logistic, (rows, y)), 0.3 * result.x[[0, 1, 2, 3, 3]])


@pytest.mark.parametrize(
    "constraint, expected",
    [
        ({"equality": lambda x: x[3]}, True),
        ({"inequality": lambda x: x[1]}, True),
        ({"inequality": lambda x: x @ x - 1e3}, False),
        ({"equality": lambda x: x[0] - 20.0}, False),
    ],
)
def test_constraints_may_stop_it(constraint, expected):
    x = 20 * np.array([1.0, -1.0, 0.5, 0.0])
    assert endless(mossp.Problem(logistic, (X, SEPARABLE), **constraint), x, 1e-8) is expected


@pytest.mark.parametrize(
    "loss, x, expected",
    [
        (lambda x: jnp.exp(-x[0]) + x[1] ** 2, [25.0, 0.0], True),
        (lambda x: 1 / x[0] + x[1] ** 2, [1e5, 0.0], True),
        (lambda x: jnp.sum((x - 1e3) ** 2) * 1e-6, [0.01, 0.01], False),
        (lambda x: x[0] ** 2 / (x @ x), [0.0, 3.0], False),
        (lambda x: jnp.maximum(1 - x[0], 0.0) ** 2, [1 - 1e-13, 0.0], False),
        (lambda x: (x[0] + x[1] - 1.0) ** 2, [0.5, 0.5], False),
    ],
)
def test_rays_of_plain_losses(loss, x, expected):
    assert endless(mossp.Problem(loss), x) is expected


def wide(seed: int = 0):
    """More columns than rows: separable, three of them true."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((60, 90))
    y = np.where(A[:, :3] @ [1.2, -1.2, 1.2] + rng.logistic(size=60) > 0, 1.0, -1.0)
    return mossp.Problem(logistic, (A, y), mossp.MCP(0.1))


def test_the_path_from_strong_regularisation_is_preferred_to_infinity():
    problem = wide()
    result = mossp.solve(problem, np.zeros(90))
    assert result.status is Status.CONVERGED and result.success
    assert np.abs(result.x).max() < 3 and np.count_nonzero(result.x) < 12
    assert set(np.flatnonzero(result.x)) >= {0, 1, 2}
    assert not endless(problem, result.x)
    assert "on its way to infinity" in result.message
    with jax.enable_x64(True):  # whose start has a lower objective than that answer
        oracles = problem.oracles(np.zeros(90))
        far = polish(oracles.relaxed(np.asarray(0.1)), np.zeros(90), 1e-10).witness.x
        assert polish(oracles, far, 1e-10).value < result.fun


def test_a_path_needs_a_strength():
    with jax.enable_x64(True):
        oracles = mossp.Problem(logistic, (X, NOISY)).oracles(np.zeros(4))
        assert strength_at_zero(oracles, np.zeros(4)) is None
        assert from_strong(oracles, np.zeros(4), lambda *a: None) is None
        penalised = mossp.Problem(logistic, (X, NOISY), mossp.MCP(0.01)).oracles(np.zeros(4))
        factor = strength_at_zero(penalised, np.zeros(4))
        largest = np.abs(X.T @ NOISY).max() / (2 * 60)
        assert factor is not None and 0.01 * factor / 2 <= largest <= 0.01 * factor


# Regularisers that count ------------------------------------------------------------------


def correlated(seed: int, N: int = 80, n: int = 10):
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((N, 2))
    A = common @ rng.standard_normal((2, n)) + 0.5 * rng.standard_normal((N, n))
    return A, A @ np.where(np.arange(n) % 4 == 0, 1.0, 0.0) + 0.3 * rng.standard_normal(N)


def best_subset(A: np.ndarray, b: np.ndarray, sets) -> float:
    def loss(S) -> float:
        rows = A[:, list(S)]
        return float(np.mean((rows @ np.linalg.lstsq(rows, b, rcond=None)[0] - b) ** 2) / 2)

    return min(loss(S) for S in sets)


@pytest.mark.parametrize("lam", [0.5, 5.0, 50.0])
def test_truncated_l1_finds_the_best_entries_at_every_strength(lam):
    for seed in range(3):
        A, b = correlated(seed)
        least = best_subset(A, b, itertools.combinations(range(10), 3))
        problem = mossp.Problem(mossp.losses.squared, (A, b), mossp.TruncatedL1(lam, 3))
        result = mossp.solve(problem, np.zeros(10))
        assert result.success and result.fun <= least * (1 + 1e-9)


def test_truncated_l1_l2_and_groups():
    A, b = correlated(7)
    least = best_subset(A, b, itertools.combinations(range(10), 3))
    problem = mossp.Problem(mossp.losses.squared, (A, b), mossp.TruncatedL1MinusL2(5.0, 2))
    assert mossp.solve(problem, np.zeros(10)).fun <= least * (1 + 1e-9)
    pairs = [(2 * i, 2 * i + 1) for i in range(5)]
    least = best_subset(A, b, [p + q for p, q in itertools.combinations(pairs, 2)])
    reg = mossp.Group(mossp.TruncatedL1(5.0, 2), np.arange(10) // 2)
    result = mossp.solve(mossp.Problem(mossp.losses.squared, (A, b), reg), np.zeros(10))
    assert result.success and result.fun <= least * (1 + 1e-9)


def test_with_a_constraint():
    """On the sphere, the best two entries of a quadratic form."""
    A = correlated(3)[0]
    Q = A.T @ A / len(A)
    problem = mossp.Problem(
        lambda x: -0.5 * x @ jnp.asarray(Q) @ x, regularizer=mossp.TruncatedL1(5.0, 2),
        equality=lambda x: x @ x - 1.0,
    )  # fmt: skip
    result = mossp.solve(problem, np.eye(10)[np.argmin(np.diag(Q))])
    pairs = itertools.combinations(range(10), 2)
    least = min(-np.linalg.eigvalsh(Q[np.ix_(S, S)])[-1] / 2 for S in pairs)
    assert result.success and result.fun == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize(
    "reg, units, k",
    [
        (mossp.TruncatedL1(1.0, 2), [0, 1, 2, 3], 2),
        (mossp.TruncatedL1MinusL2(1.0, 2), [0, 1, 2, 3], 3),
        (mossp.Nonnegative(mossp.TruncatedL1(1.0, 2)), [0, 1, 2, 3], 2),
        (mossp.Weighted(mossp.TruncatedL1(1.0, 2), [0.0, 1.0, 1.0, 1.0]), [-1, 1, 2, 3], 2),
        (mossp.Group(mossp.TruncatedL1(1.0, 1), [0, 0, 1, 1]), [0, 0, 1, 1], 1),
        (
            mossp.Blocks({"w": mossp.TruncatedL1(1.0, 1)}).on({"b": (0, 1), "w": (1, 4)}),
            [-1, 0, 1, 2],
            1,
        ),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_counted(reg, units, k):
    (found,) = reg.counted(4)
    assert found.units.tolist() == units and found.k == k
    for count in range(5):  # zero exactly up to k units, whichever they are
        for S in itertools.combinations(sorted(set(units) - {-1}), count):
            x = np.where(np.isin(units, S), 2.0, 0.0)
            assert bool(abs(float(reg(x))) <= 1e-12) is (count <= k)


@pytest.mark.parametrize(
    "reg", [mossp.L1(1.0), mossp.MCP(1.0), mossp.L1MinusL2(1.0), mossp.Zero()],
    ids=lambda r: type(r).__name__,
)  # fmt: skip
def test_what_is_not(reg):
    assert reg.counted(4) == []


def test_strengths_are_multiplied_wherever_they_are():
    reg = mossp.Blocks({"a": mossp.MCP(0.5), "b": mossp.Group(mossp.L1(2.0), [0, 1])})
    stronger = strengthened(reg, 3.0)
    assert stronger.blocks["a"] == mossp.MCP(1.5) and stronger.blocks["b"].reg == mossp.L1(6.0)
    assert strengthened(mossp.Zero(), 3.0) == mossp.Zero()
