"""method="auto", the default: how exact it is, how it ends, and how it is resumed.

Optima come from SciPy's SLSQP on x = p - q, p, q >= 0, where h is linear.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from jax.tree_util import Partial

import mossp
from mossp import Status, losses
from mossp.newton import globalization
from tests.problems import ball, near_rows, sphere
from tests.solving.logistic import (
    LAM,
    X0,
    N,
    X,
    Y,
    is_sentence,
    logistic,
    n,
    on_sphere,
    same,
    stop_after,
    unbroken,
)

pytestmark = pytest.mark.slow


# Exact, and as low as SciPy -------------------------------------------------------------------


def mean_logistic(x, rows=N):
    return float(np.mean(np.logaddexp(0, -Y[:rows] * (X[:rows] @ x))))


def best_of_scipy(reg, kind=None, radius=1.0, nonnegative=False, rows=N):
    """The lowest F of four runs of SLSQP over (p, q); h must be a multiple of |x|_1."""
    slope, A, y = float(reg.h(np.eye(n)[0])), X[:rows], Y[:rows]

    def smooth(v):
        x = v[:n] - v[n:]
        z = y * (A @ x)
        g = -(A.T @ (y * np.exp(-np.logaddexp(0, z)))) / rows - np.asarray(reg.subgradient_g(x))
        F = np.mean(np.logaddexp(0, -z)) - float(reg.g(x)) + slope * v.sum()
        return F, np.concatenate([g + slope, -g + slope])

    def c(v):
        x = v[:n] - v[n:]
        return (radius**2 - x @ x) if kind == "ineq" else (x @ x - radius**2)

    def dc(v):
        x = v[:n] - v[n:]
        return (-2 if kind == "ineq" else 2) * np.concatenate([x, -x])

    found, draws = [], np.random.default_rng(0)
    for x in [X0, *draws.normal(size=(3, n)) / np.sqrt(n)]:
        v = np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)])
        bounds = [(0, None)] * n + [(0, 0 if nonnegative else None)] * n
        o = scipy.optimize.minimize(
            smooth, np.where(nonnegative & (np.arange(2 * n) >= n), 0, v), jac=True,
            method="SLSQP", bounds=bounds, options={"maxiter": 300, "ftol": 1e-13},
            constraints=[{"type": kind, "fun": c, "jac": dc}] if kind else (),
        )  # fmt: skip
        x = o.x[:n] - o.x[n:]
        off = 0.0 if kind is None else abs(c(o.x)) if kind == "eq" else max(-c(o.x), 0.0)
        if off <= 1e-9:
            found.append(mean_logistic(x, rows) + float(reg(x)))
    assert found, "SciPy found no feasible point: choose other starts"
    return min(found)


# With the number of rows.
BY_STEPS = {"steps": 2000}  # as many as by default: where a number is given, stochastic ones come
REGULARIZERS = {
    "L1MinusL2": (mossp.L1MinusL2(LAM), N),
    "CappedL1": (mossp.CappedL1(LAM, 0.3), N),
    "MCP": (mossp.MCP(LAM, 5.0), N),
    "TruncatedL1": (mossp.TruncatedL1(LAM, 3), N),
    "SCAD": (mossp.SCAD(LAM, 3.7), 250),
    "LogSum": (mossp.LogSum(LAM, 0.5), 250),
    "TransformedL1": (mossp.TransformedL1(LAM, 1.0), 250),
    "TruncatedL1MinusL2": (mossp.TruncatedL1MinusL2(LAM, 3), 250),
}


@pytest.mark.parametrize("name", REGULARIZERS)
def test_certified_and_as_low_as_scipy_on_the_sphere(name):
    reg, rows = REGULARIZERS[name]
    problem = logistic(reg, rows, equality=sphere)
    r = mossp.solve(problem, X0)
    assert r.success and r.status is Status.CONVERGED and r.tol == 1e-10, r.message
    assert f"full gradients: {rows} rows" in r.message
    assert r.certificate.is_kkt(1e-10) and mossp.stationarity(problem, r.x) <= 2e-10
    assert abs(r.x @ r.x - 1) <= 1e-10 and r.violation <= 1e-10
    assert r.fun == pytest.approx(mean_logistic(r.x, rows) + float(reg(r.x)), abs=1e-13)
    assert r.fun <= best_of_scipy(reg, "eq", rows=rows) + 1e-8
    assert r.steps < r.settings["steps"]


@pytest.mark.parametrize(("radius", "active"), [(0.7, True), (100.0, False)])
def test_an_inequality_active_or_not(radius, active):
    reg = mossp.L1(LAM)
    problem = logistic(reg, inequality=Partial(ball, np.array(radius)))
    r = mossp.solve(problem, X0)
    assert r.success and r.tol == 1e-10, r.message
    q = float(r.certificate.multipliers["inequality"])
    c = r.x @ r.x - radius**2
    assert c <= 1e-10 and q >= 0
    assert (abs(c) <= 1e-10 and q > 1e-3) if active else (c < -1 and q <= 1e-10)
    assert r.fun <= best_of_scipy(reg, "ineq", radius) + 1e-8
    assert mossp.stationarity(problem, r.x) <= 2e-10


def test_a_nonnegative_problem():
    reg = mossp.L1(LAM)
    r = mossp.solve(logistic(mossp.Nonnegative(reg), equality=sphere), X0)
    assert r.success and r.tol == 1e-10, r.message
    assert (r.x >= 0).all() and (r.x == 0).any() and r.violation <= 1e-10
    assert r.fun <= best_of_scipy(reg, "eq", nonnegative=True) + 1e-8


NORMALS = np.random.default_rng(6).normal(size=(40, 4))
CENTRE = np.array([1.0, -0.6, 0.4, 0.02])


def polytope(x):
    return jnp.asarray(NORMALS) @ x - 0.5


def around_centre(x):
    return 0.5 * jnp.sum((x - jnp.asarray(CENTRE)) ** 2)


def test_forty_constraints():
    """A quadratic program: SciPy solves it over x = p - q as well."""
    problem = mossp.Problem(around_centre, None, mossp.L1(0.1), inequality=polytope)
    r = mossp.solve(problem, np.full(4, 0.5))
    assert r.settings["method"] == "mossp-al" and r.settings["constraints"] == 40
    assert "mossp-al with full gradients: no data, 40 constraints" in r.message
    assert r.success and (NORMALS @ r.x - 0.5).max() <= 1e-10, r.message
    split = lambda v: v[:4] - v[4:]  # noqa: E731
    o = scipy.optimize.minimize(
        lambda v: 0.5 * np.sum((split(v) - CENTRE) ** 2) + 0.1 * v.sum(), np.zeros(8),
        method="SLSQP", bounds=[(0, None)] * 8, options={"ftol": 1e-12, "maxiter": 300},
        constraints=[{"type": "ineq", "fun": lambda v: 0.5 - NORMALS @ split(v)}],
    )  # fmt: skip
    assert (NORMALS @ split(o.x) - 0.5).max() <= 1e-9 and abs(r.fun - o.fun) <= 1e-7


# The run --------------------------------------------------------------------------------------


def test_it_stops_early():
    r = unbroken()
    assert r.steps < r.settings["steps"] and r.trace.steps[-1] == r.steps


def test_it_is_repeatable_and_leaves_its_inputs_alone():
    mine, labels, x0 = X.copy(), Y.copy(), X0.copy()
    problem = mossp.Problem(losses.logistic, (mine, labels), mossp.L1MinusL2(LAM), equality=sphere)
    r = mossp.solve(problem, x0, seed=0)
    same(r, unbroken())
    assert r.gradients == unbroken().gradients
    same(mossp.solve(problem, x0, seed=0), r)
    assert np.array_equal(mine, X) and np.array_equal(labels, Y) and np.array_equal(x0, X0)


def test_another_seed_takes_other_steps_to_the_same_optimum():
    r, by_steps = mossp.solve(on_sphere(), X0, **BY_STEPS, seed=1), unbroken(**BY_STEPS)
    assert r.success and r.fun == pytest.approx(by_steps.fun, abs=1e-10)
    assert not np.array_equal(r.trace.objective, by_steps.trace.objective)
    assert by_steps.fun == pytest.approx(unbroken().fun, abs=1e-10)


def test_a_budget_in_steps():
    """Polishing comes on top of it, and is counted in gradients."""
    bare = mossp.solve(on_sphere(), X0, steps=7, polish=False)
    r = mossp.solve(on_sphere(), X0, steps=7)
    assert bare.steps == r.steps == 7 and not bare.success
    assert bare.status is Status.BUDGET and "Polish" not in bare.message
    more = r.gradients - bare.gradients
    assert more > 0 and more % N == 0
    assert r.hessian_products > bare.hessian_products
    assert r.certificate.worst < bare.certificate.worst


@pytest.mark.parametrize("budget", [1000, 5000])
def test_a_budget_in_gradients(budget):
    bare = mossp.solve(on_sphere(), X0, gradients=budget, polish=False)
    assert 0.8 * budget - N <= bare.gradients <= budget
    r = mossp.solve(on_sphere(), X0, gradients=budget)
    polishing = r.hessian_products - bare.hessian_products  # the rest measures constants
    assert r.steps <= bare.steps and r.gradients + 2 * max(polishing, 0) <= budget


def test_less_than_one_step_is_refused():
    with pytest.raises(ValueError, match="less than one step"):
        mossp.solve(on_sphere(), X0, gradients=10)


def test_a_budget_in_seconds():
    r = mossp.solve(on_sphere(), X0, seconds=1e-6)
    assert r.steps < r.settings["steps"]
    assert not r.success and r.status is Status.BUDGET
    assert "It was not polished: the time was used up." in r.message
    assert mossp.solve(on_sphere(), X0, seconds=100.0).success


def test_a_callback_stops_it():
    seen = []

    def stop(progress):
        seen.append(progress)
        return True

    r = mossp.solve(on_sphere(), X0, callback=stop)
    assert r.status is Status.STOPPED and len(seen) == 1 and r.steps == seen[0].step
    assert np.array_equal(r.x, seen[0].x[0]) and "not polished" in r.message
    assert is_sentence(r.message)


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_resumed_equals_unbroken(tmp_path, looks):
    """The third look is where the unbroken run is polished and ends."""
    saved, whole = {"checkpoint": tmp_path / "run", **BY_STEPS}, unbroken(**BY_STEPS)
    broken = mossp.solve(on_sphere(), X0, **saved, callback=stop_after(looks))
    assert broken.status is Status.STOPPED and broken.steps <= whole.steps
    r = mossp.solve(on_sphere(), X0, **saved)
    same(r, whole)


def test_resumed_before_the_first_step_equals_unbroken(tmp_path):
    saved = {"checkpoint": tmp_path / "run"}
    broken = mossp.solve(on_sphere(), X0, **saved, callback=stop_after(0))
    assert broken.status is Status.STOPPED and 0 < broken.steps <= unbroken().steps
    same(mossp.solve(on_sphere(), X0, **saved), unbroken())


def test_resumed_counts_the_same_gradients(tmp_path, monkeypatch):
    """One Newton step is not enough: polishing is tried in vain, and tried again later."""
    monkeypatch.setattr(globalization, "STEPS", 1)
    saved, given = {"checkpoint": tmp_path / "run"}, {"steps": 600, "seed": 1}
    whole = mossp.solve(on_sphere(), X0, **given)
    mossp.solve(on_sphere(), X0, **given, **saved, callback=stop_after(6))
    r = mossp.solve(on_sphere(), X0, **given, **saved)
    assert r.steps == whole.steps and np.array_equal(r.x, whole.x)
    assert r.gradients == whole.gradients and r.hessian_products == whole.hessian_products


def test_a_finished_run_called_again_gives_the_same_answer(tmp_path):
    saved = {"checkpoint": tmp_path / "run"}
    first = mossp.solve(on_sphere(), X0, **saved)
    same(first, unbroken())
    same(mossp.solve(on_sphere(), X0, **saved), first)


def test_a_finished_run_called_again_is_still_certified(tmp_path):
    saved = {"checkpoint": tmp_path / "run"}
    first = mossp.solve(on_sphere(), X0, **saved)
    again = mossp.solve(on_sphere(), X0, **saved)
    assert again.success and again.fun == pytest.approx(first.fun, abs=1e-10)
    np.testing.assert_allclose(again.x, first.x, atol=1e-8)


def test_three_replicas():
    r = unbroken(replicas=3)
    assert r.success and r.xs.shape == (3, n) and r.funs.shape == (3,)
    assert (r.violations <= 1e-10).all() and r.fun == r.funs.min()
    np.testing.assert_allclose(r.funs, unbroken().fun, atol=1e-9)
    assert r.expectation.replicas == 3


def test_progress_is_shown(capsys):
    r = mossp.solve(on_sphere(), X0, progress=True)
    same(r, unbroken())
    shown = capsys.readouterr()
    assert "step" in shown.err and not shown.out


def test_silent_unless_asked(capsys):
    mossp.solve(on_sphere(), X0)
    shown = capsys.readouterr()
    assert not shown.err and not shown.out


@pytest.mark.parametrize("factor", [0.0, 100.0, -100.0])
def test_any_start_on_the_sphere(factor):
    """Far away, and at 0, where the gradient of the constraint vanishes."""
    r = mossp.solve(on_sphere(), factor * X0)
    assert r.success, r.message
    assert r.fun == pytest.approx(unbroken().fun, abs=1e-8)


# Samplers and streams -------------------------------------------------------------------------

GOAL = np.array([1.0, -0.5, 0.3, 0.0])


def samples(key, size):
    return jnp.asarray(GOAL) + 0.5 * jax.random.normal(key, (size, 4))


def stream():
    draws = GOAL + 0.5 * np.random.default_rng(8).normal(size=(4096, 32, 4))
    return mossp.Stream(list(draws))


@pytest.mark.parametrize("data", [lambda: mossp.Sampler(samples), stream])
def test_samples_without_end_are_far_more_feasible_than_with_a_penalty(data):
    def run(**settings):
        problem = mossp.Problem(near_rows, data(), mossp.L1MinusL2(0.05), equality=sphere)
        return mossp.solve(problem, np.full(4, 0.5), gradients=100_000, seed=2, **settings)

    auto, penalty = run(), run(method="mossp-r")
    assert auto.settings["method"] == "sqp-dc" and "recursive gradients" in auto.message
    assert auto.success and auto.tol == 1e-2, auto.message
    assert auto.gradients <= 100_000 and penalty.gradients <= 100_000
    assert penalty.gradients >= 90_000 and auto.violation <= penalty.violation / 10
    assert "olish" not in auto.message and auto.certificate.samples > 1000
