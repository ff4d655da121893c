"""Budgets, callbacks, the trace, and what a run leaves alone."""

from __future__ import annotations

import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import Status, schedules
from mossp.solving.arguments import checked_batch_size
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
from tests.solving.regression import METHODS, bowl, regression, solve

pytestmark = pytest.mark.slow


# Budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [500, 2002, 16_000])
@pytest.mark.parametrize("method", METHODS)
def test_budget_in_gradients(method, budget):
    r = solve(regression(), method=method, steps=None, gradients=budget)
    a_step = BATCH * (2 if method == "mossp-r" else 1)
    assert r.gradients <= budget < r.gradients + a_step + BATCH


@pytest.mark.parametrize("method", METHODS)
def test_budget_in_gradients_and_steps(method):
    """Whichever is used up first."""
    r = solve(regression(), method=method, steps=3000, gradients=1000)
    assert r.gradients <= 1000 and r.steps < 100
    r = solve(regression(), method=method, steps=20, gradients=1_000_000)
    assert r.steps == 20
    with pytest.raises(ValueError, match="gradients"):
        solve(regression(), method=method, steps=3000, gradients=3)


def test_budget_in_gradients_counts_full_gradients():
    svrg = mossp.MoSSP(momentum=mossp.SVRG())
    r = solve(regression(), method=svrg, steps=None, gradients=5000)
    assert 4000 < r.gradients <= 5000


@pytest.mark.parametrize("method", METHODS)
def test_budget_in_seconds(method):
    schedule = schedules.Constant(rho=5.0, mu=0.02, alpha=0.1)
    settings = {"method": method, "schedule": schedule}
    solve(regression(), **settings)
    r = solve(regression(), steps=None, seconds=0.4, **settings)
    assert r.seconds >= 0.4 and r.steps > 256  # an upper bound would measure the machine
    assert r.status in (Status.BUDGET, Status.CONVERGED)
    assert r.trace.steps[-1] == r.steps
    r = solve(regression(), steps=100, seconds=60.0, **settings)
    assert r.steps == 100


def test_budget_in_seconds_needs_a_schedule_without_horizon():
    with pytest.raises(ValueError, match="seconds"):
        solve(regression(), steps=None, seconds=0.4, schedule="theorem")


@pytest.mark.parametrize(
    ("momentum", "a_step", "full"),
    [
        (mossp.Plain(), 1, 0),
        (mossp.Polyak(), 1, 0),
        (mossp.Recursive(), 2, 0),
        (mossp.SVRG(epoch=50), 2, 2),
    ],
    ids=["Plain", "Polyak", "Recursive", "SVRG"],
)
def test_count_of_gradients(momentum, a_step, full):
    """b0 - B samples before the first step, a_step mini-batches a step, N an anchor."""
    method = mossp.MoSSP(momentum=momentum)
    r = solve(regression(), method=method, steps=100)
    assert r.gradients == BATCH + 100 * a_step * BATCH + full * N  # "auto" needs one to start from
    assert r.trace.gradients[-1] == r.gradients
    r = solve(regression(), method=method, steps=100, schedule=schedules.Constant(rho=5.0, mu=0.02))
    assert r.gradients == 100 * a_step * BATCH + full * N


def test_default_budget_and_batch():
    r = mossp.solve(regression(), START, method="mossp-r")
    assert r.steps == 2000 and r.settings["batch_size"] == 32 and r.tol == 1e-2
    r = mossp.solve(regression(), START)
    assert r.success and r.steps < 2000 and r.tol == 1e-10
    assert checked_batch_size(regression(data=(A[:9], b[:9])), None, START.size) == (9, "")
    assert solve(mossp.Problem(loss=bowl, equality=plane), steps=None).steps == 10_000


def test_a_small_budget_of_samples_without_end_is_not_a_few_steps():
    """3,000 samples are 94 mini-batches of 32, after which x is still on its way."""
    target = np.array([1.0, -2.0, 0.5])

    def draw(key, size):
        return jnp.asarray(target) + 0.1 * jax.random.normal(key, (size, 3))

    def stretched(x, batch):
        return 0.5 * jnp.mean((x - batch) ** 2 @ jnp.array([1.0, 0.1, 0.01]))

    problem = mossp.Problem(stretched, mossp.Sampler(draw))
    small = mossp.solve(problem, np.zeros(3), gradients=3000)
    few = mossp.solve(problem, np.zeros(3), gradients=3000, batch_size=32)
    assert small.settings["batch_size"] == 8 and "batches of 8 rows" in small.message
    assert small.gradients <= 3000
    assert np.linalg.norm(small.x - target) < np.linalg.norm(few.x - target)
    assert checked_batch_size(problem, None, 3, 10**6) == (32, "")
    assert checked_batch_size(problem, 16, 3, 100) == (16, "")


@pytest.mark.parametrize(
    "schedule", ["theorem", "corollary", "indexed", "paper", "paper-averaging"]
)
@pytest.mark.parametrize("method", METHODS)
def test_every_schedule_makes_progress(method, schedule):
    r = solve(regression(), method=method, schedule=schedule, steps=4000)
    assert r.status in (Status.BUDGET, Status.CONVERGED)
    assert r.fun < 0.5 * np.mean((A @ START - b) ** 2)
    assert r.violation < 1.0


# Callbacks, output, configuration -------------------------------------------------------------


def test_callback_sees_the_run_and_stops_it():
    seen = []

    def stop_late(progress):
        seen.append(progress)
        return progress.step >= 500

    r = solve(regression(), callback=stop_late, replicas=2)
    assert r.status is Status.STOPPED and r.steps == seen[-1].step >= 500 and r.steps < 3000
    assert [p.step for p in seen] == sorted({p.step for p in seen})
    assert seen[-1].x.shape == (2, n) and seen[-1].objective.shape == (2,)
    assert seen[-1].violation.shape == (2,) and seen[-1].gradients == r.gradients
    assert np.array_equal(seen[-1].x, r.xs)


def test_callback_may_raise_stop_iteration():
    def stop(progress):
        raise StopIteration

    r = solve(regression(), callback=stop)
    assert r.status is Status.STOPPED and r.steps < 3000


@pytest.mark.parametrize("value", [None, False, 0, 1, "yes", np.array([1, 2])])
def test_only_true_stops(value):
    r = solve(regression(), steps=320, callback=lambda progress: value)
    assert r.steps == 320


def test_callback_may_return_a_numpy_bool():
    """`return progress.violation.max() < 1` gives one; it must not be ignored in silence."""
    r = solve(regression(), callback=lambda progress: progress.step > np.float64(0.5))
    assert r.status is Status.STOPPED and r.steps < 3000


def test_errors_in_a_callback_propagate():
    def broken(progress):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        solve(regression(), callback=broken, replicas=2)
    assert not jax.config.jax_enable_x64
    assert solve(regression(), steps=320).steps == 320  # and nothing is left broken


def test_callback_runs_in_the_callers_precision():
    seen = []
    solve(regression(), callback=lambda progress: seen.append(jnp.zeros(2).dtype))
    assert set(seen) == {np.dtype("float32")}
    with jax.enable_x64(True):
        seen.clear()
        solve(
            regression(), dtype="float32",
            callback=lambda progress: seen.append(jnp.zeros(2).dtype),
        )  # fmt: skip
        assert set(seen) == {np.dtype("float64")}
        assert jax.config.jax_enable_x64
    assert not jax.config.jax_enable_x64


def test_the_answer_does_not_depend_on_the_callers_precision():
    problem = regression(regularizer=mossp.L1(0.01))
    outside = {d: solve(problem, dtype=d).x for d in ("float32", "float64")}
    with jax.enable_x64(True):
        for dtype, x in outside.items():
            assert np.array_equal(solve(problem, dtype=dtype).x, x)
            fresh = regression(regularizer=mossp.L1(0.01))
            assert np.array_equal(solve(fresh, dtype=dtype).x, x)


def test_silent_unless_asked(capfd):
    solve(regression(), replicas=2)
    out, err = capfd.readouterr()
    assert out == "" and err == ""
    solve(regression(), progress=True)
    out, err = capfd.readouterr()
    assert out + err != ""


def test_inputs_are_not_modified():
    X, y, x0 = A.copy(), b.copy(), START.copy()
    problem = regression(data=(X, y))
    r = solve(problem, x0)
    assert np.array_equal(X, A) and np.array_equal(y, b) and np.array_equal(x0, START)
    r.x[:] = 7.0  # what is handed out is the caller's
    assert np.array_equal(x0, START)
    X[:] = 0.0  # and what came in is copied
    assert np.array_equal(solve(problem, x0).x, solve(regression()).x)


def test_works_outside_of_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(solve(regression(), replicas=2)))
    thread.start()
    thread.join()
    assert np.array_equal(found[0].xs, solve(regression(), replicas=2).xs)


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-15), ("float32", 1e-6)])
def test_tol_below_precision_warns(dtype, tol):
    with pytest.warns(UserWarning, match="below what float") as caught:
        r = solve(regression(), dtype=dtype, tol=tol, steps=320)
    assert "mossp/" not in caught[0].filename.split("src")[-1]  # the caller's line is shown
    assert not r.success


def test_trace():
    r = solve(regression(), steps=3001, replicas=2)
    t = r.trace
    rows = len(t.steps)
    assert 30 <= rows <= 40 and t.steps[0] == 0 and t.steps[-1] == 3001 and t.rows == N
    assert t.gradients.shape == t.seconds.shape == (rows,)
    assert t.objective.shape == t.violation.shape == t.proximity.shape == (rows, 2)
    assert (np.diff(t.steps) > 0).all() and (np.diff(t.gradients) > 0).all()
    assert (np.diff(t.seconds) >= 0).all() and t.seconds[-1] <= r.seconds
    np.testing.assert_allclose(t.objective[-1], r.funs, atol=1e-12)
    np.testing.assert_allclose(t.violation[-1], r.violations, atol=1e-12)


def test_one_step_has_a_trace():
    r = solve(regression(), steps=1)
    assert r.trace.steps.tolist() == [0, 1] and np.isfinite(r.fun)


def test_trace_of_many_rows_is_sampled_and_fun_is_exact():
    many = np.random.default_rng(5).normal(size=(5000, n))
    target = many @ TRUTH + 1.0
    r = solve(regression(data=(many, target)), steps=320)
    assert r.trace.rows == 2048
    assert r.fun == pytest.approx(0.5 * np.mean((many @ r.x - target) ** 2), rel=1e-12)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_memory_stays_constant():
    sizes = []
    problem = regression(regularizer=mossp.L1(0.01))
    solve(problem, steps=10_000, output="random")
    r = solve(
        problem, steps=100_000, output="random",
        callback=lambda progress: sizes.append(resident_bytes()),
    )  # fmt: skip
    assert r.steps == 100_000 and len(sizes) >= 30
    assert max(sizes) - sizes[2] < 16 * 2**20
