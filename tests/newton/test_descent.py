"""Steps with full gradients on the host, and the proximal steps over linearised constraints."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.methods import dual
from mossp.newton.descent import Descent, evaluated
from mossp.newton.linearized import constrained_prox
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT

RNG = np.random.default_rng(0)
n = 6
REGULARIZERS = {
    "l1": mossp.L1(0.3),
    "a box": mossp.Box(mossp.Zero(), -0.5, 0.4),
    "groups": mossp.Group(mossp.L1(0.3), [0, 0, 1, 1, 2, 2]),
    "nothing": mossp.Zero(),
}


@pytest.mark.parametrize("name", REGULARIZERS)
@pytest.mark.parametrize("m, m_E", [(1, 1), (1, 0), (3, 1)])
def test_the_step_is_that_of_the_compiled_dual(name, m, m_E):
    """Two implementations of one formula, and its optimality conditions."""
    reg, rng = REGULARIZERS[name], np.random.default_rng(m + 10 * m_E)
    w, x0, J = rng.normal(size=n), 0.1 * rng.normal(size=n), rng.normal(size=(m, n))
    c, mu, q0 = 0.3 * rng.normal(size=m), 0.7, np.zeros(m)
    host = jax.tree.map(np.asarray, reg)
    mine = constrained_prox(host, w, mu, x0, c, J, m_E, q0, 1e4)
    with jax.enable_x64(True):
        theirs = dual.constrained_prox(
            reg.h, reg.prox_h, *map(jnp.asarray, (w, mu, x0, c, J)), m_E, jnp.asarray(q0), 1e4
        )
    np.testing.assert_allclose(mine.x, np.asarray(theirs.x), atol=1e-8)
    np.testing.assert_allclose(mine.q, np.asarray(theirs.y), atol=1e-6)
    left = c + J @ (mine.x - x0)
    np.testing.assert_allclose(left[:m_E], 0, atol=1e-8)
    assert (left[m_E:] <= 1e-8).all() and (mine.q[m_E:] >= 0).all()
    np.testing.assert_allclose(mine.q[m_E:] * left[m_E:], 0, atol=1e-6)


def test_constraints_that_contradict_each_other_leave_bounded_multipliers():
    J = np.array([[1.0, 0.0], [1.0, 0.0]])
    met = constrained_prox(
        on_zero(), np.zeros(2), 1.0, np.zeros(2), np.array([1.0, -1.0]), J, 2, np.zeros(2), 50.0
    )
    assert np.isfinite(met.x).all() and (np.abs(met.q) <= 50).all()


def on_zero():
    return jax.tree.map(np.asarray, mossp.Zero())


def bent(x, rows):
    """The logistic loss, in a form that is not known to be linear in x."""
    A, b = rows
    return jnp.mean(jnp.logaddexp(0.0, -b * (A @ x)))


X = RNG.normal(size=(80, n))
Y = np.sign(X[:, 0] - 0.5 * X[:, 1] + 0.3 * RNG.normal(size=80))


def problem(loss):
    return mossp.Problem(loss, (X, Y), mossp.L1MinusL2(0.02), equality=lambda x: x @ x - 1.0)


def descent_of(loss, x):
    kkt = KKT(problem(loss).oracles(x), np.dtype(np.float64))
    return Descent(kkt, Meter(), x)


@pytest.mark.parametrize("loss", [mossp.losses.logistic, bent], ids=["linear", "any"])
def test_the_penalty_falls_and_the_end_is_nearly_stationary(loss):
    x = np.full(n, n**-0.5)
    with jax.enable_x64(True):
        descent = descent_of(loss, x)
        values = [descent._value(descent.at)]
        for k in range(1, 60):
            goes_on = descent.go_on(k)
            values.append(descent._value(descent.at))
            if not goes_on:
                break
        at = descent.at
    # nu may rise, but the start and all that follows is feasible to second order.
    assert (np.diff(values[1:]) <= 1e-12).all() and values[-1] < values[0] - 0.1
    assert at.violation <= 1e-6
    assert mossp.stationarity(problem(loss), at.x) <= 1e-4
    assert descent.meter.gradients % 80 == 0 and descent.meter.gradients >= 80 * descent.steps


def test_steps_end_where_newtons_method_has_less_to_do():
    x = np.full(n, n**-0.5)
    with jax.enable_x64(True):
        descent = descent_of(mossp.losses.logistic, x)
        assert not descent.go_on(512) and 2 < descent.steps < 64
        last = descent.at
        assert descent._step() and not np.array_equal(descent.at.x, last.x)  # it was no dead end
        answer = mossp.solve(problem(mossp.losses.logistic), x)
    assert abs(descent.at.F - last.F) <= 1e-5 * abs(last.F - descent.begin)
    assert answer.success and np.array_equal(np.sign(last.x), np.sign(answer.x))


def test_a_second_descent_ends_as_soon_as_it_is_known_where_it_leads():
    x, seen = np.full(n, n**-0.5), []
    with jax.enable_x64(True):
        first = descent_of(mossp.losses.logistic, x)
        first.go_on(4)
        second = Descent(first.kkt, Meter(), x, first_mu=first.first_mu)
        second.settle(lambda x: seen.append(x) or len(seen) == 2)
    assert second.steps == len(seen) == 2
    assert first.meter.gradients - 2 * 80 == second.meter.gradients + 80  # its length was known


def test_both_ways_to_evaluate_agree():
    x = RNG.normal(size=n)
    with jax.enable_x64(True):
        linear, other = (
            evaluated(KKT(problem(loss).oracles(x), np.dtype(np.float64)), x)
            for loss in (mossp.losses.logistic, bent)
        )
    for name in ("f", "F", "gradient", "s_g", "c", "J", "violated"):
        np.testing.assert_allclose(getattr(linear, name), getattr(other, name), atol=1e-13)


def test_a_start_that_is_not_finite_goes_nowhere():
    p = mossp.Problem(lambda x: jnp.sum(jnp.log(x)), equality=lambda x: x @ x - 1.0)
    with jax.enable_x64(True):
        kkt = KKT(p.oracles(np.full(n, -1.0)), np.dtype(np.float64))
        descent = Descent(kkt, Meter(), np.full(n, -1.0))
        assert not descent.go_on(5) and descent.steps == 0
