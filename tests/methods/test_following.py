"""The step with a concave part that is a mean over rows: against its formulas, and without it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import mossp
from mossp.estimators import Plain
from mossp.methods import MoSSP
from mossp.schedules import Parameters

RNG = np.random.default_rng(1)
ROWS = RNG.normal(size=(8, 4))
X, Y, Z = RNG.normal(size=(3, 4))


def near(x, rows):
    return 0.5 * jnp.mean(jnp.sum((x - rows) ** 2, axis=1))


def kinked(x, rows):
    return jnp.mean(jnp.sum(jnp.abs(x - 2 * rows), axis=1))


def one_step(concave, eta, mu=0.2, rho=3.0):
    problem = mossp.Problem(
        near, ROWS, mossp.L1MinusL2(0.3), equality=lambda x: x @ x - 1.0, concave=concave
    )
    with jax.enable_x64(True):
        oracles, method = problem.oracles(X), MoSSP(momentum=Plain(), beta=0.9)
        state = method.init(oracles, jnp.asarray(X), jnp.zeros(4))
        state = state._replace(y=jnp.asarray(Y), z=jnp.asarray(Z))
        now = Parameters(*(jnp.asarray(v) for v in (mu, rho, 1.0, eta)))
        state = method.step(oracles, now, state, jnp.asarray(ROWS))
        return state, method.witness(oracles, now, state), problem.regularizer


def test_the_step_is_that_of_the_formulas():
    mu, rho, eta = 0.2, 3.0, 0.1
    state, witness, reg = one_step(kinked, eta)
    tau = mu * eta / (mu + eta)
    S = X - ROWS.mean(axis=0) + rho * 2 * X * (X @ X - 1)
    v = np.mean(np.sign(Y - 2 * ROWS), axis=0)
    x = np.asarray(reg.prox_h(tau * (Z / mu + X / eta - S), tau))
    y = np.asarray(reg.prox_g(tau * (Z / mu + Y / eta - v), tau))
    np.testing.assert_allclose(state.x, x, rtol=1e-12)
    np.testing.assert_allclose(state.y, y, rtol=1e-12)
    np.testing.assert_allclose(state.z, Z - 0.9 * (y - x), rtol=1e-12)
    # The witness: subgradients of the regulariser's h and g where it says.
    np.testing.assert_allclose(witness.s_h, Z / mu + X / eta - S - x / tau, rtol=1e-9)
    np.testing.assert_allclose(reg.nearest_h(x, np.asarray(witness.s_h)), witness.s_h, atol=1e-9)
    np.testing.assert_allclose(reg.nearest_g(y, np.asarray(witness.s_g)), witness.s_g, atol=1e-7)


def test_with_eta_infinite_and_g_zero_it_is_the_papers_step():
    with_g, witness, _ = one_step(lambda x, rows: 0.0 * jnp.mean(rows @ x), np.inf)
    without, papers, _ = one_step(None, 0.1)
    assert without.concave is None and without.w is None  # not even a field of it is left
    for name in ("x", "y", "z"):
        np.testing.assert_allclose(getattr(with_g, name), getattr(without, name), rtol=1e-13)
    np.testing.assert_allclose(witness.s_h, papers.s_h, rtol=1e-9)
    np.testing.assert_allclose(witness.s_g, papers.s_g, rtol=1e-9)
