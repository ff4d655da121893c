"""Where the first choice of method="auto" fails, another way is tried."""

from __future__ import annotations

import dataclasses
import importlib
import os
import signal

import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import mossp
from mossp import Status
from mossp.newton.residual import KKT
from mossp.oracles import Oracles
from mossp.solving.ways import better, no_minimiser
from tests.solving.logistic import X0, is_sentence, on_sphere, same, unbroken

pytestmark = pytest.mark.slow


def volume(x):
    return -x[0] * x[1] * x[2]


def ellipsoid(D, r, x):
    return D @ x**2 - r


LONG = np.random.default_rng(1).uniform(1, 5, 3)


@pytest.mark.parametrize("seed", range(4))
def test_a_product_under_an_ellipsoid(seed):
    """Its steps are measured where the loss is flat; the optimum is known."""
    D, r = np.random.default_rng(seed).uniform(1, 5, 3), [10.0, 48.0, 200.0, 1000.0][seed]
    problem = mossp.Problem(volume, inequality=Partial(ellipsoid, D, r))
    best = -np.sqrt((r / 3) ** 3 / np.prod(D))
    at_once = mossp.solve(problem, np.ones(3))  # by full gradients, whose length is searched for
    assert at_once.success and at_once.fun == pytest.approx(best, rel=1e-9), at_once.message
    result = mossp.solve(problem, np.ones(3), steps=2000)
    assert result.fun == pytest.approx(best, rel=1e-6) and result.violation <= 1e-6 * r
    assert "DIVERGED first: this is the answer of" in result.message or seed == 0
    assert is_sentence(result.message)


def slope(a, x):
    return a @ x


def growth(r, x):
    return jnp.sum(jnp.exp(x) + jnp.exp(-x)) - r


def test_exponentials_in_a_constraint():
    a = np.array([3.0, -1.0, 0.5])
    result = mossp.solve(
        mossp.Problem(Partial(slope, a), inequality=Partial(growth, 30.0)), np.zeros(3)
    )
    assert result.success, result.message
    q = result.certificate.multipliers["inequality"]
    np.testing.assert_allclose(a + q * 2 * np.sinh(result.x), 0, atol=1e-9)
    assert abs(np.sum(2 * np.cosh(result.x)) - 30) <= 1e-9


def entropy_like(w, x):
    return x @ jnp.arange(1.0, 5.0) - w @ jnp.log(x)


def test_a_log_loss_that_is_finite_at_the_start():
    """x_i = w_i / i; the first step leads where it is NaN."""
    w = np.array([0.1, 2.0, 0.3, 1.0])
    result = mossp.solve(mossp.Problem(Partial(entropy_like, w)), np.full(4, 5.0))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, w / np.arange(1, 5), atol=1e-9)


def sum_to(total, x):
    return jnp.sum(x) - total


def test_phase_one_does_not_leave_where_the_loss_is_finite():
    """The feasible point next to x0 has a negative entry."""
    w = np.ones(4)
    x0 = np.array([0.1, 9.0, 9.0, 9.0])
    problem = mossp.Problem(Partial(entropy_like, w), equality=Partial(sum_to, 4.0))
    result = mossp.solve(problem, x0)
    assert result.success and (result.x > 0).all(), result.message
    assert "not finite at the feasible point" in result.message


def test_the_first_way_is_left_alone_where_it_succeeds(monkeypatch):
    ways = importlib.import_module("mossp.solving.ways")
    monkeypatch.setattr(ways, "further", None)
    same(mossp.solve(on_sphere(), X0, seed=0), unbroken())


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_during_the_first_way_is_not_forgotten(monkeypatch):
    """Where programs are large Newton's method comes first: steps would not know of the signal."""
    evaluate, sent = KKT.evaluate, []

    def interrupted(self, x, q, t):
        if not sent:
            sent.append(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        return evaluate(self, x, q, t)

    monkeypatch.setattr(Oracles, "large", True)
    monkeypatch.setattr(KKT, "evaluate", interrupted)
    result = mossp.solve(on_sphere(), X0, seed=0)
    assert sent and result.status is Status.INTERRUPTED and result.steps == 0


def test_a_named_method_is_not_followed_by_others():
    problem = mossp.Problem(volume, inequality=Partial(ellipsoid, LONG, 48.0))
    result = mossp.solve(problem, np.ones(3), method=mossp.SQPDC(momentum=mossp.Full()))
    assert result.status is Status.DIVERGED and "answer of" not in result.message


def test_other_ways_are_counted():
    problem = mossp.Problem(volume, inequality=Partial(ellipsoid, LONG, 48.0))
    found, costs = [], importlib.import_module("mossp.solving.ways")
    summed_up = costs.summed_up

    def listen(a, first, best, name, tried):
        found.extend(tried)
        return summed_up(a, first, best, name, tried)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "summed_up", listen)
        result = mossp.solve(problem, np.ones(3), steps=2000)
    assert len(found) >= 2 and found[0].status is Status.DIVERGED
    assert result.gradients == sum(r.gradients for r in found)
    assert result.seconds == pytest.approx(sum(r.seconds for r in found))


def outside_box(x):
    return jnp.sum(jnp.log(x - 3.0)) * jnp.nan


def test_points_outside_the_domain_are_never_returned():
    problem = mossp.Problem(outside_box, regularizer=mossp.Box(mossp.L1(0.1), -1.0, 1.0))
    result = mossp.solve(problem, np.full(3, 5.0))
    assert result.status is Status.NONFINITE and not result.success
    assert (np.abs(result.x) <= 1.0).all()


def test_shorter_steps():
    bare = {"method": "sqp-dc", "steps": 5, "polish": False}
    whole = mossp.solve(on_sphere(), X0, **bare)
    short = mossp.solve(on_sphere(), X0, **bare, schedule=mossp.schedules.Auto(shorten=1e-3))
    same(whole, mossp.solve(on_sphere(), X0, **bare, schedule=mossp.schedules.Auto()))
    assert np.linalg.norm(short.x - whole.x) > 1e-3
    with pytest.raises(ValueError, match="shorten > 0"):
        mossp.schedules.Auto(shorten=0.0)


def missed(x, A):
    return jnp.mean(jnp.logaddexp(0.0, -(A @ x)))


def alarms(b, x, A):
    return jnp.mean(1 / (1 + jnp.exp(-(A @ x)))) - b


def test_a_loss_that_falls_for_ever_is_not_traded_for_a_point_on_the_way():
    """All of one class and few of the other can be on one side: the infimum is 0, at infinity."""
    rng = np.random.default_rng(3)
    one = np.c_[rng.uniform(0.1, 1, (40, 2)), np.ones(40)]
    zero = np.c_[rng.uniform(-1, 0.0, (60, 2)), np.ones(60)]
    problem = mossp.Problem(missed, one, inequality=mossp.Expected(Partial(alarms, 0.2), data=zero))
    result = mossp.solve(problem, np.zeros(3))
    assert result.status is Status.DIVERGED or result.success, result.message
    assert result.fun <= 1e-6 and result.violation <= 1e-10


def test_what_has_no_minimiser_stands_against_a_budget_that_was_used_up():
    problem = mossp.Problem(loss=lambda x: jnp.exp(-x[0]) + x[1] ** 2)
    endless = mossp.solve(problem, np.zeros(2))
    assert endless.status is Status.DIVERGED and no_minimiser(endless), endless.message
    short = mossp.solve(problem, np.zeros(2), method="mossp-r", steps=30)
    assert short.fun > endless.fun
    rough = dataclasses.replace(short.certificate, criticality=1e-3)
    short = dataclasses.replace(short, status=Status.BUDGET, success=False, certificate=rough)
    assert not better(short, endless)
    assert better(dataclasses.replace(short, fun=endless.fun - 1), endless)
