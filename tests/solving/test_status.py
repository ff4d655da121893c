"""How a solve ends: NaN, divergence, infeasibility, and what success is worth.

Of the cases in "What must not break": 1 the NONFINITE tests, 3 the DIVERGED tests,
4 test_infeasible_constraints, 5 test_success_is_true, 6 test_rank_deficient_jacobian and
test_more_constraints_than_variables.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import mossp
from mossp import Status, losses, schedules
from tests.problems import BATCH, A, N, b, bowl, n, sphere
from tests.solving.short import solve

pytestmark = pytest.mark.slow


# Divergence -----------------------------------------------------------------------------------


def hill(x):
    return -0.5 * x @ x


def slope(x):
    return x.sum()


def fourth(x):
    return -jnp.sum(x**4)


@pytest.mark.parametrize("loss", [hill, slope, fourth])
def test_unbounded_below(loss):
    for output in ("last", "best"):
        r = solve(mossp.Problem(loss=loss), output=output)
        assert r.status is Status.DIVERGED and not r.success
        assert r.steps < 2000


@pytest.mark.parametrize("steps", [2000, 20_000])
@pytest.mark.parametrize("output", ["last", "random", "best"])
def test_mu_too_large(steps, output):
    r = solve(
        mossp.Problem(loss=bowl), steps=steps, output=output,
        schedule=schedules.Constant(rho=1.0, mu=100.0),
    )  # fmt: skip
    assert r.status is Status.DIVERGED and not r.success
    assert np.isfinite(r.x).all()


@pytest.mark.parametrize("output", ["last", "best"])
@pytest.mark.parametrize("steps", [2000, 20_000])
def test_mu_too_large_for_the_penalty(output, steps):
    r = solve(
        mossp.Problem(loss=bowl, equality=sphere), steps=steps, output=output,
        schedule=schedules.Constant(rho=100.0, mu=1.0),
    )  # fmt: skip
    assert r.status is Status.DIVERGED and not r.success
    assert np.isfinite(r.x).all()


# Infeasibility --------------------------------------------------------------------------------


def impossible(x):
    return x @ x + 1.0


@pytest.mark.parametrize("side", ["equality", "inequality"])
def test_infeasible_constraints(side):
    r = solve(mossp.Problem(loss=bowl, **{side: impossible}))
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert r.violation >= 1 and "||c|| = 1" in r.message
    assert r.certificate.feasibility == pytest.approx(r.violation)


def contradiction(x):
    return jnp.stack([x.sum() - 1.0, x.sum() + 1.0])


def test_contradicting_constraints():
    r = solve(mossp.Problem(loss=bowl, equality=contradiction))
    assert r.status is Status.INFEASIBLE_STATIONARY
    assert r.violation == pytest.approx(np.sqrt(2), rel=0.05)


def test_infeasible_but_not_stuck_is_budget():
    """A feasible point exists, the penalty is just too weak to reach it."""
    r = solve(
        mossp.Problem(loss=bowl, equality=sphere), schedule=schedules.Constant(rho=0.05, mu=0.1)
    )
    assert r.status is Status.BUDGET and not r.success
    assert r.violation > r.tol and "feasibility" in r.message


NEGATIVES, POSITIVES = (
    np.random.default_rng(seed).normal(size=(60, 2)) + shift for seed, shift in ((5, 0.0), (6, 0.3))
)


def share(rows, x):
    """A smooth proxy of the share of rows with a positive score."""
    return jnp.mean(jax.nn.sigmoid(jnp.asarray(rows) @ x[:2] + x[2]))


def rates(x):
    return {
        "fpr": share(NEGATIVES, x) - 0.05,
        "recall": 0.8 - share(POSITIVES, x),
        "intercept": x[2] - 50.0,
    }


def score_loss(x, batch):
    rows, y = batch
    return jnp.mean(jax.nn.softplus(-y * (rows @ x[:2] + x[2])))


LABELLED = np.concatenate([NEGATIVES, POSITIVES]), np.repeat([-1.0, 1.0], 60)


def values_of_rates(x):
    with jax.enable_x64(True):
        return {name: float(v) for name, v in rates(jnp.asarray(x)).items()}


def least_violation():
    """The same by SciPy, from several starts."""

    def violated(x):
        return np.maximum(list(values_of_rates(x).values()), 0)

    starts = np.random.default_rng(0).normal(size=(4, 3))
    square = lambda x: float(np.sum(violated(x) ** 2))  # noqa: E731
    found = [scipy.optimize.minimize(square, s, method="Nelder-Mead") for s in starts]
    return np.sqrt(min(one.fun for one in found))


@pytest.mark.parametrize("method", ["auto", "mossp-r"])
def test_rates_that_cannot_both_hold(method):
    """The point of least violation is returned, and the message names the two, with values."""
    problem = mossp.Problem(score_loss, LABELLED, inequality=rates)
    r = solve(problem, np.zeros(3), method=method, steps=300)
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert r.violation <= least_violation() * (1 + 1e-3)
    values = values_of_rates(r.x)
    for name in ("fpr", "recall"):
        assert f"'{name}' (violated by {values[name]:.3g})" in r.message
    assert "cannot both hold" in r.message and "'intercept'" not in r.message
    assert r.certificate.feasibility == pytest.approx(r.violation)
    assert r.certificate.feasibility == pytest.approx(r.violations[0])


def test_a_run_that_diverges_returns_the_best_point_known():
    problem = mossp.Problem(fourth, equality=lambda x: {"up": x[0] - 1.0, "down": x[0] + 1.0})
    r = solve(problem, schedule=schedules.Constant(rho=1.0, mu=0.1))
    assert r.status is Status.INFEASIBLE_STATIONARY
    assert r.violation == pytest.approx(np.sqrt(2)) and r.violations[0] == r.violation
    assert "'down' (violated by 1) and 'up' (violated by 1) cannot both hold" in r.message
    assert np.linalg.norm(r.x) < 1
    feasible = mossp.Problem(fourth, equality=lambda x: x[0] - 1.0)
    x0 = np.array([1.0, 0.2, -0.1])
    r = solve(feasible, x0, schedule=schedules.Constant(rho=1.0, mu=0.1))
    assert r.status is Status.DIVERGED and not r.success
    assert np.array_equal(r.x, x0) and r.violation == 0 and r.fun == pytest.approx(-1.0017)
    assert "the one that the run started from" in r.message


def test_a_constraint_against_a_bound_of_the_regulariser():
    """x >= 0 by h, and the sum is to be negative: nothing but dom h is in the way."""
    problem = mossp.Problem(
        bowl, regularizer=mossp.Nonnegative(mossp.L1(0.1)),
        inequality=lambda x: {"sum": x.sum() + 1.0},
    )  # fmt: skip
    r = solve(problem)
    assert r.status is Status.INFEASIBLE_STATIONARY and (r.x >= 0).all()
    assert "'sum' (violated by 1) cannot hold within the bounds on x" in r.message


def test_large_units_do_not_hide_a_constraint_that_conflicts():
    """x <= -1 in units of a millionth is hardly violated where x >= 1 is violated by 2."""
    problem = mossp.Problem(
        bowl, inequality=lambda x: jnp.stack([1e6 * (x[0] + 1.0), 1.0 - x[0], x[1] - 0.3])
    )
    r = solve(problem)
    assert r.status is Status.INFEASIBLE_STATIONARY
    assert "inequality[0]" in r.message and "inequality[1] (violated by 2)" in r.message
    assert "inequality[2]" not in r.message


# Success --------------------------------------------------------------------------------------


def half_space(x):
    return jnp.stack([x[0] - 0.2, x.sum() - 50.0])


@pytest.mark.parametrize("kind", ["equality", "inequality"])
@pytest.mark.parametrize(
    ("method", "tol", "success"),
    [("auto", 1e-2, True), ("mossp-r", 5e-2, True), ("mossp-r", 1e-3, False)],
)
def test_success_is_true(kind, method, tol, success):
    """Residuals again, from scratch, in NumPy, with the multipliers that are claimed."""
    lam = 0.05
    constraint = sphere if kind == "equality" else half_space
    problem = mossp.Problem(
        loss=losses.squared, data=(A, b), regularizer=mossp.L1(lam), **{kind: constraint}
    )
    settings = {"method": method, "steps": 20_000, "batch_size": BATCH, "tol": tol}
    r = mossp.solve(problem, np.full(n, 0.3), **settings)
    x, q = r.x, np.atleast_1d(r.certificate.multipliers[kind])
    gradient = A.T @ (A @ x - b) / N
    if kind == "equality":
        c, J = np.array([x @ x - 1]), 2 * x[None]
        violation, complementarity = np.linalg.norm(c), 0.0
    else:
        c, J = np.array([x[0] - 0.2, x.sum() - 50]), np.stack([np.eye(n)[0], np.ones(n)])
        violation = np.linalg.norm(np.maximum(c, 0))
        complementarity = np.linalg.norm(np.minimum(q, -c))
        assert (q >= 0).all()
    w = gradient + q @ J
    distance = np.linalg.norm(
        np.where(x != 0, w + lam * np.sign(x), np.sign(w) * np.maximum(np.abs(w) - lam, 0))
    )
    holds = bool(max(distance, violation, complementarity) <= tol)
    assert r.success is holds is success, r.message
    assert r.violation == pytest.approx(violation, abs=1e-10)
    assert r.certificate.proximity == pytest.approx(0.0, abs=tol)
    # What is claimed may be weaker than what is true, never stronger.
    assert r.certificate.criticality >= distance - 1e-8
    assert r.success == (r.status is Status.CONVERGED)


def test_budget_says_what_is_missing():
    problem = mossp.Problem(loss=losses.squared, data=(A, b), regularizer=mossp.L1(0.05))
    r = mossp.solve(problem, np.full(n, 9.0), method="mossp-r", steps=3, batch_size=BATCH)
    assert r.status is Status.BUDGET and not r.success and "criticality" in r.message


def test_stopped_early_is_not_called_converged():
    r = solve(mossp.Problem(loss=bowl), callback=lambda progress: True)
    assert r.status is Status.STOPPED


# Degenerate constraints -----------------------------------------------------------------------


def twice(x):
    return jnp.stack([x.sum() - 1.0, 2 * x.sum() - 2.0, x[0] - x[1]])


def flat(x):
    """The Jacobian vanishes on the feasible set."""
    return (x.sum() - 1.0) ** 2


@pytest.mark.parametrize(
    ("constraint", "kind"), [(twice, "equality"), (flat, "equality"), (flat, "inequality")]
)
def test_rank_deficient_jacobian(constraint, kind):
    r = solve(mossp.Problem(loss=bowl, **{kind: constraint}), steps=5000)
    assert np.isfinite(r.x).all() and np.isfinite(r.fun)
    assert not r.success or r.violation <= r.tol
    if constraint is twice:
        assert r.success, r.message
        np.testing.assert_allclose(r.x, 1 / 3, atol=3e-2)
    x = mossp.restore(mossp.Problem(loss=bowl, **{kind: constraint}), r.x)
    assert np.isfinite(x).all()


def many(x):
    """Seven consistent equations for three unknowns: x = 1/3."""
    rows = jnp.array(
        [[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    )
    return rows @ (x - 1 / 3)


def test_more_constraints_than_variables():
    r = solve(mossp.Problem(loss=bowl, equality=many), steps=5000)
    assert r.success, r.message
    np.testing.assert_allclose(r.x, 1 / 3, atol=2e-2)


# Functions of the user's ----------------------------------------------------------------------


def test_a_closure_may_hold_numpy_or_single_precision():
    goal = np.array([0.5, -0.5, 0.25])
    for held in (goal, jnp.asarray(goal, jnp.float32)):
        loss = lambda x, held=held: 0.5 * jnp.sum((x - jnp.asarray(held)) ** 2)  # noqa: E731
        r = solve(mossp.Problem(loss=loss), steps=500)
        assert r.success, r.message
        np.testing.assert_allclose(r.x, goal, atol=1e-2)


def test_a_loss_may_return_single_precision():
    r = solve(mossp.Problem(loss=lambda x: bowl(x).astype(jnp.float32), equality=sphere), steps=500)
    assert np.isfinite(r.x).all() and r.violation < 0.1


CENTRE = np.array([0.5, -0.5, 0.25])


def around_centre(x):
    return 0.5 * jnp.sum((x - CENTRE) ** 2)


def test_a_numpy_array_may_be_captured_in_both_precisions():
    """Plain JAX 0.10.2 keeps it in the one that it saw first."""
    for dtype in ("float32", "float64"):
        r = solve(mossp.Problem(loss=around_centre), steps=500, dtype=dtype)
        np.testing.assert_allclose(r.x, CENTRE, atol=1e-2)


def test_an_error_in_the_loss_names_the_loss():
    def broken(x):
        raise RuntimeError("the user's own error")

    with pytest.raises(ValueError, match=r"loss.*the user's own error"):
        solve(mossp.Problem(loss=broken))


def test_a_scalar_is_a_point_too():
    r = solve(mossp.Problem(loss=lambda x: (x - 2.0) ** 2), np.array(0.0), steps=500)
    assert r.x.shape == () and r.x == pytest.approx(2.0, abs=1e-2)


def test_a_long_name_of_what_cannot_hold_is_cut():
    name = "\x1b[31m" + "n" * 450
    problem = mossp.Problem(
        loss=lambda x: x @ x, inequality=lambda x: {name: 1.0 - x[0], "low": x[0] + 1.0}
    )
    r = solve(problem, np.zeros(2))
    assert r.status is Status.INFEASIBLE_STATIONARY
    assert "'\\x1b[31mnnn" in r.message and "n" * 60 not in r.message
