"""Problems under many constraints: some of them at a time, against all of them and others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.certificates import linearization
from mossp.certificates.stationarity import bounded_least_squares
from mossp.newton import constraint_sets, dca, multipliers

pytestmark = pytest.mark.usefixtures("x64")
rng = np.random.default_rng(5)
N, n, m = 240, 8, 160
A = rng.normal(size=(N, n))
b = np.where(A @ rng.normal(size=n) + rng.normal(size=N) > 0, 1.0, -1.0)
GROUP = np.arange(N) % 80


INSIDE = np.r_[0.3, -0.1, np.zeros(n - 2)]  # where all constraints hold
C = rng.normal(size=(m, n))
ROOM = C @ INSIDE + rng.uniform(0.05, 0.4, m)


def losses_of_groups(x, batch):
    """The mean loss of each of 80 groups of rows, as one vector of means over all rows."""
    A, b, group = batch
    rows = jnp.logaddexp(0.0, -b * (A @ x))
    return jax.ops.segment_sum(rows, group, 80) * (80 / len(b))


BOUNDS = np.asarray(losses_of_groups(INSIDE, (A, b, GROUP))) + 0.02


def stated() -> mossp.Problem:
    """Logistic loss, l1 - l2, a sum, 160 half-spaces and 80 groups."""
    return mossp.Problem(
        mossp.losses.logistic, (A, b), mossp.L1MinusL2(1e-2),
        equality=lambda x: jnp.sum(x) - 0.2,
        inequality={
            "half-spaces": mossp.constraints.Linear(C, ROOM),
            "groups": mossp.Expected(
                lambda x, batch: losses_of_groups(x, batch) - BOUNDS, data=(A, b, GROUP)
            ),
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def oracles():
    with jax.enable_x64(True):
        return stated().oracles(np.zeros(n))


def test_some_constraints_are_those_entries(oracles):
    x, q = jnp.asarray(rng.normal(size=n)), rng.normal(size=35)
    places = np.r_[0, np.sort(rng.choice(np.arange(1, 241), 34, replace=False))]
    c, J = linearization.constraints_and_jacobian(oracles, x)
    few = oracles.under(places)
    c_W, J_W = linearization.constraints_and_jacobian(few, x)
    np.testing.assert_allclose(c_W, np.asarray(c)[places], atol=1e-14)
    np.testing.assert_allclose(J_W, np.asarray(J)[places], atol=1e-14)
    np.testing.assert_allclose(few.pull(x, jnp.asarray(q)), q @ np.asarray(J_W), atol=1e-12)
    assert (few.m, few.m_E) == (35, 1)
    # And the gradients of a few, without the others.
    some = linearization.linearized_on(oracles, x, lambda c: c > np.sort(c)[-20])
    np.testing.assert_allclose(some.J, np.asarray(J)[some.rows], atol=1e-14)
    assert len(some.J) == 19


def test_lengths_of_rows(oracles):
    x = jnp.asarray(rng.normal(size=n))
    J = np.asarray(linearization.constraints_and_jacobian(oracles, x)[1])
    lengths = np.linalg.norm(J, axis=1)
    np.testing.assert_allclose(linearization.row_lengths(oracles, x), lengths, rtol=1e-12)
    rough = np.asarray(jax.jit(lambda x: oracles.row_lengths(x, 6))(x))
    assert 0.6 < np.median(rough / lengths) < 1.5


def test_phase_one_by_products_is_that_by_a_jacobian(oracles, monkeypatch):
    x, free = jnp.asarray(3 * rng.normal(size=n)), np.ones(n)
    dense = linearization.Violated.at(oracles, x, free)
    monkeypatch.setattr(linearization, "MANY", 0)
    products = linearization.Violated.at(oracles, x, free)
    assert dense.J is not None
    assert products.J is None
    assert len(dense.v) > 40
    np.testing.assert_allclose(products.pull(), dense.pull(), rtol=1e-10, atol=1e-10)
    for nu in (1e-8, 1.0):
        np.testing.assert_allclose(products.step(nu), dense.step(nu), rtol=1e-5, atol=1e-7)


def test_working_sets_lead_to_the_point_of_all(oracles):
    every = dca.polish(oracles, INSIDE, 1e-10)
    sets = constraint_sets.polish(oracles, INSIDE, 1e-10)
    assert every.residual <= 1e-10
    assert sets.residual <= 1e-10
    np.testing.assert_allclose(sets.witness.x, every.witness.x, atol=1e-9)
    np.testing.assert_allclose(sets.witness.lam, every.witness.lam, atol=1e-7)
    c = linearization.values(oracles, sets.witness.x)
    assert c[1:].max() <= 1e-12
    assert np.count_nonzero(sets.witness.lam[1:]) >= 2


def test_constraints_that_the_first_set_lacks_join_it(oracles, monkeypatch):
    """From far inside, where the nearest constraints are the wrong ones."""
    taken = []
    before = type(oracles).under
    monkeypatch.setattr(constraint_sets, "FEWEST", 8)
    monkeypatch.setattr(
        type(oracles), "under", lambda self, W: taken.append(len(W)) or before(self, W)
    )
    found = constraint_sets.polish(oracles, INSIDE, 1e-10)
    assert found.residual <= 1e-10
    assert taken[0] < taken[-1] < oracles.m


def test_projection_on_a_thousand_half_spaces():
    """x is that of a on {C x <= 1} if and only if a - x = B'q, q >= 0, B x = 1 for rows B of C."""
    own = np.random.default_rng(7)
    C, a = own.normal(size=(1000, 20)), 4 * own.normal(size=20)
    problem = mossp.Problem(lambda x: 0.5 * jnp.sum((x - a) ** 2), inequality=lambda x: C @ x - 1.0)
    r = mossp.solve(problem, np.zeros(20), tol=1e-9)
    assert r.success, r.message
    active = np.asarray(r.certificate.multipliers["inequality"]) > 0
    B = C[active]
    exact = a - B.T @ np.linalg.solve(B @ B.T, B @ a - 1.0)
    np.testing.assert_allclose(r.x, exact, atol=1e-9)
    assert (C @ r.x).max() <= 1 + 1e-9
    assert np.linalg.solve(B @ B.T, B @ a - 1.0).min() >= 0  # so it is the projection
    assert 1 <= active.sum() <= 20


def test_nonnegative_least_squares_with_free_entries():
    own = np.random.default_rng(8)
    M, v = own.normal(size=(50, 40)), own.normal(size=50)
    lower = np.r_[np.full(5, -np.inf), -own.uniform(0, 0.2, 35)]
    p = bounded_least_squares(M, v, lower)
    slope = M.T @ (M @ p - v)
    assert (p >= lower - 1e-12).all()
    np.testing.assert_allclose(slope[p > lower + 1e-9], 0, atol=1e-10)
    assert slope.min() >= -1e-10


@pytest.mark.parametrize("nu", [1e3, 0.05])
def test_quadratics_with_h_under_many_constraints(nu):
    """The optimality conditions: of a penalty nu |r|, which holds all constraints if it can."""
    own = np.random.default_rng(9)
    root, J = own.normal(size=(n, n)), own.normal(size=(100, n))
    M, x, w = root @ root.T + 0.1 * np.eye(n), own.normal(size=n), 3 * own.normal(size=n)
    is_equality = np.arange(100) < 2
    c = np.where(is_equality, 0.1, -own.uniform(0, 1, 100))
    lower, upper = np.where(is_equality, -nu, 0.0), np.full(100, nu)
    reg = mossp.L1(0.3)
    y, q = multipliers.minimum(reg, x, w, M, c, J, lower, upper, np.zeros(100), 1e-10)
    u = w + M @ (y - x) + q @ J
    np.testing.assert_allclose(u, np.clip(u, -0.3, 0.3), atol=1e-6)
    np.testing.assert_allclose(u[y != 0], -0.3 * np.sign(y[y != 0]), atol=1e-6)
    r = c + J @ (y - x)
    assert ((q >= lower - 1e-12) & (q <= upper + 1e-12)).all()
    between = (q > lower + 1e-9) & (q < upper - 1e-9)
    np.testing.assert_allclose(r[between], 0, atol=1e-7)
    assert r[(q <= 0) & ~is_equality].max() <= 1e-7
    assert r[q >= nu - 1e-9].min(initial=0.0) >= -1e-7
    assert (np.abs(r[is_equality]).max() < 1e-7) == (nu > 1)
