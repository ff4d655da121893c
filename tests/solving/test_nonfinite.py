"""NaN and infinity: found whatever the chunks, and the culprit is named."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
import mossp.engine.loop
from mossp import Status, schedules
from tests.problems import N, bowl, fragile_rows, wide_ball
from tests.solving.short import STEADY, solve

pytestmark = pytest.mark.slow


def breaks(x):
    """NaN, and so is its gradient, where x_0 > 0.5."""
    return bowl(x) * jnp.where(x[0] > 0.5, jnp.nan, 1.0)


def hole(x):
    """NaN where x_0 > 0.5, but its gradient is finite there, as that of a logarithm is."""
    return bowl(x) + jnp.where(x[0] > 0.5, jnp.nan, 0.0)


@jax.custom_jvp
def kinked(x):
    return bowl(x)


@kinked.defjvp
def _kinked(primals, tangents):
    """A finite value with a gradient that is NaN where x_0 > 0.5."""
    (x,), (v,) = primals, tangents
    return bowl(x), jnp.where(x[0] > 0.5, jnp.nan, 1.0) * (x - 1.0) @ v


def broken_constraint(x):
    return 0.01 * x.sum() * jnp.where(x[0] > 0.5, jnp.nan, 1.0)


@jax.custom_jvp
def inner(x):
    return 0.01 * x.sum()


@inner.defjvp
def _inner(primals, tangents):
    (x,), (v,) = primals, tangents
    return inner(x), 0.01 * v.sum() * jnp.where(x[0] > 0.5, jnp.nan, 1.0)


def broken_jacobian(x):
    return inner(x)


TROUBLE = {
    "loss": (mossp.Problem(loss=breaks), "the loss"),
    "value alone": (mossp.Problem(loss=hole), "the loss"),
    "gradient": (mossp.Problem(loss=kinked), "the gradient of the loss"),
    "constraint": (mossp.Problem(loss=bowl, inequality=broken_constraint), "a constraint"),
    "jacobian": (
        mossp.Problem(loss=bowl, inequality=broken_jacobian),
        "the gradient of a constraint",
    ),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_nan_after_some_steps(name):
    problem, culprit = TROUBLE[name]
    r = solve(problem, schedule=STEADY)
    assert r.status is Status.NONFINITE and not r.success
    assert culprit in r.message and "NaN" in r.message
    assert np.isfinite(r.x).all() and np.isfinite(r.xs).all()
    # The last point at which all was well, or the first at which it was not.
    assert 0.4 < r.x[0] < 0.52
    assert r.steps < 500


@pytest.mark.parametrize("name", ["loss", "gradient", "jacobian"])
@pytest.mark.parametrize("steps", [20_000, 1_000_000])
def test_nan_in_a_long_run(name, steps):
    """Several chunks pass between two looks at the run, and NaN may come up in any of them."""
    problem, culprit = TROUBLE[name]
    r = solve(problem, schedule=STEADY, steps=steps)
    assert r.status is Status.NONFINITE and culprit in r.message
    assert np.isfinite(r.x).all() and 0.4 < r.x[0] < 0.52
    assert r.steps < 5000


def test_nan_is_found_whatever_the_chunks(monkeypatch):
    problem, _ = TROUBLE["loss"]
    whole = solve(problem, schedule=STEADY)
    monkeypatch.setattr(mossp.engine.loop, "FIRST_CHUNK", 5)
    monkeypatch.setattr(mossp.engine.loop, "CHUNK_SECONDS", 0.0)
    r = solve(problem, schedule=STEADY)
    assert np.array_equal(r.x, whole.x) and r.message == whole.message


def test_the_last_finite_point_is_one_where_the_loss_is_finite():
    r = solve(TROUBLE["value alone"][0], schedule=STEADY)
    assert r.status is Status.NONFINITE
    assert np.isfinite(r.fun) and r.x[0] <= 0.5


def test_nan_at_the_start():
    r = solve(mossp.Problem(loss=breaks), np.array([0.7, 0.0, 0.0]), schedule=STEADY)
    assert r.status is Status.NONFINITE and "the loss" in r.message
    assert r.steps == 0 and np.array_equal(r.x, [0.7, 0.0, 0.0])


def test_nan_with_auto():
    r = solve(mossp.Problem(loss=breaks))
    assert r.status is Status.NONFINITE and "the loss" in r.message
    assert np.isfinite(r.x).all()


def root_loss(x):
    return bowl(x) + jnp.sqrt(x[0])


def negative(x):
    return x[0] + 1.0


def test_phase_one_leads_to_nan():
    """x_0 = -1 is feasible, and there sqrt(x_0) is NaN."""
    r = solve(mossp.Problem(loss=root_loss, equality=negative))
    assert r.status is Status.NONFINITE and not r.success
    assert np.isfinite(r.x).all() and "the loss" in r.message


def root_constraint(x):
    return jnp.sqrt(x[0] - 0.05) - 1.0


def test_constraint_that_is_nan_at_the_start():
    r = solve(mossp.Problem(loss=bowl, equality=root_constraint), np.zeros(3))
    assert r.status is Status.NONFINITE and "a constraint" in r.message
    assert np.array_equal(r.x, np.zeros(3))


def exponential(x):
    return jnp.exp(x[0]) - 2.0


@pytest.mark.parametrize("start", [-5.2, -7.0, 600.0])
def test_constraint_that_overflows_on_the_way(start):
    """Gauss-Newton would step to exp(360) and further; no warning, no crash, and it gets there."""
    r = solve(mossp.Problem(loss=bowl, equality=exponential), np.array([start, 0.0, 0.0]))
    assert np.isfinite(r.x).all()
    if start < 0:
        assert r.x[0] == pytest.approx(np.log(2), abs=2e-2)


def test_some_replicas_die():
    noise = np.random.default_rng(1).normal(size=(N, 3))
    target = noise @ np.array([0.5, 0.0, 0.0]) + np.random.default_rng(2).normal(size=N)
    problem = mossp.Problem(loss=fragile_rows, data=(noise, target), inequality=wide_ball)
    schedule = schedules.Constant(rho=1.0, mu=0.05, alpha=1.0)
    r = solve(problem, schedule=schedule, method="mossp-p", batch_size=16, steps=60, replicas=8)
    dead = ~np.isfinite(r.trace.objective[-1])
    assert 0 < dead.sum() < 8, "choose another threshold"
    assert f"{dead.sum()} of 8 replicas" in r.message and "the loss" in r.message
    assert r.status in (Status.BUDGET, Status.CONVERGED)  # the best replica lives
    assert np.isfinite(r.fun) and np.isfinite(r.xs).all()
    living = np.flatnonzero(~dead)
    assert r.fun == r.funs[living].min()
    # The living are not disturbed by the dead.
    alone = solve(problem, schedule=schedule, method="mossp-p", batch_size=16, steps=60, replicas=2)
    for j in set(living) & {0, 1}:
        np.testing.assert_allclose(alone.xs[j], r.xs[j], atol=1e-10)
