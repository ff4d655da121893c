"""Polishing within a solve, far from the answer, and what it may cost."""

from __future__ import annotations

import functools
import importlib
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp._base.budget import Budget
from mossp.newton.attempts import Polishing
from mossp.newton.globalization import polish
from tests.newton.cases import (
    AFAR,
    LAM,
    TIGHT,
    TOL,
    data,
    loss,
    n,
    optimality,
    posed,
    rows_of,
    valley,
)
from tests.newton.test_polish import followed

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]

# In a solve -------------------------------------------------------------------------------------


@functools.cache
def solved(polish, **more):
    problem = posed("MCP", tuple(TIGHT))
    given = {"method": "mossp-r", "steps": 300, "batch_size": 16, "tol": 1e-10, **more}
    return mossp.solve(problem, np.full(n, 0.4), polish=polish, **given)


def test_solve_polishes_its_end_point_and_counts_the_cost():
    before, after = solved(False), solved(True)
    found = polish(posed("MCP", tuple(TIGHT)).oracles(before.x), before.x, TOL)
    assert not before.success and after.success, after.message
    assert f"Polished by {found.steps} Newton steps." in after.message
    np.testing.assert_allclose(after.x, found.witness.x, atol=1e-12)
    assert optimality("MCP", after.x, TIGHT)[0] <= 1e-9
    assert after.violation <= 1e-11 and after.steps == before.steps
    assert after.gradients - before.gradients == found.gradients > 0
    assert after.hessian_products - before.hessian_products == found.products > 0


def test_every_replica_is_polished():
    result = solved(True, replicas=3)
    for x in result.xs:
        assert optimality("MCP", x, TIGHT)[0] <= 1e-9
    assert (result.violations <= 1e-11).all()


def stop(progress):
    return progress.step > 0


def press(progress):
    if progress.step > 0:
        signal.raise_signal(signal.SIGINT)


def wait(progress):
    time.sleep(0.05)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"callback": stop}, mossp.Status.STOPPED),
        ({"callback": press}, mossp.Status.INTERRUPTED),
        ({"callback": wait, "seconds": 0.02}, None),
    ],
    ids=["callback", "ctrl-c", "seconds"],
)
def test_a_run_that_ends_early_is_not_polished(more, status):
    result = solved(True, **more)
    assert "not polished" in result.message and "Polished by" not in result.message
    assert status is None or result.status == status
    assert result.steps < 300 and not result.success


@pytest.mark.parametrize("kind", ["sampler", "stream"])
def test_data_without_end_cannot_be_polished(kind):
    def rows(key, count):
        return jax.random.normal(key, (count, n)), jnp.ones(count)

    endless = mossp.Sampler(rows)
    if kind == "stream":
        X, y = data()
        endless = mossp.Stream((X[:16], y[:16]) for _ in range(10))
    problem = mossp.Problem(loss, endless, mossp.L1(LAM))
    with pytest.raises(ValueError, match=r"polish needs all of the data.*has no end: leave it out"):
        mossp.solve(problem, np.zeros(n), method="mossp-r", polish=True)


# Far from the answer ----------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.1, 1e-2, 1e-4])
def test_a_convex_problem_is_solved_at_once(lam):
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(lam))
    result = mossp.solve(problem, np.zeros(30))
    assert result.success and result.steps == 0 and "Polished" in result.message
    assert mossp.stationarity(problem, result.x) < 1e-10


def test_without_the_concave_part_there_is_a_second_start():
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.MCP(0.05, 3.0))
    convex = mossp.solve(mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(0.05)), np.zeros(30))
    from_there = mossp.solve(problem, convex, method="sqp-dc", steps=1, polish=True)
    result = mossp.solve(problem, np.zeros(30))
    assert result.success and result.fun <= from_there.fun + 1e-12


def test_a_signal_while_polishing_is_not_lost(monkeypatch):
    attempt = Polishing.attempt

    def interrupted(self, *given, **settings):
        signal.raise_signal(signal.SIGINT)
        return attempt(self, *given, **settings)

    monkeypatch.setattr(Polishing, "attempt", interrupted)
    X, y = rows_of()
    result = mossp.solve(mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(0.1)), np.zeros(30))
    assert result.status is mossp.Status.INTERRUPTED
    estimators = pytest.importorskip("mossp.sklearn", reason="scikit-learn is optional")
    with pytest.raises(KeyboardInterrupt):
        estimators.MoSSPClassifier(lam=0.1).fit(X, y)


def test_a_resumed_run_keeps_the_answer_of_the_further_starts(tmp_path):
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.MCP(0.05, 3.0))
    asked = {"steps": 2000}  # which are taken then, besides the further starts
    whole = mossp.solve(problem, np.zeros(30), **asked)
    path = tmp_path / "run.ckpt"
    stopped = mossp.solve(
        problem, np.zeros(30), checkpoint=path, callback=lambda p: p.step > 0, **asked
    )
    assert stopped.status is mossp.Status.STOPPED
    resumed = mossp.solve(problem, np.zeros(30), checkpoint=path, **asked)
    assert resumed.success and resumed.fun == pytest.approx(whole.fun, rel=1e-12)


# What it may cost --------------------------------------------------------------------------------


def test_a_budget_in_samples_ends_it():
    oracles = mossp.Problem(valley).oracles(AFAR)
    whole = polish(oracles, AFAR, TOL)
    cost = whole.gradients + 2 * whole.products
    assert whole.residual <= TOL and not whole.ended
    for samples in (20, cost // 3, cost - 20):
        found = polish(oracles, AFAR, TOL, budget=Budget(samples=samples))
        assert found.gradients + 2 * found.products <= samples
        assert found.ended == "the gradients were used up" and found.residual > TOL
        assert found.value <= float(valley(AFAR))


def test_what_others_have_spent_counts():
    oracles = mossp.Problem(valley).oracles(AFAR)
    found = polish(oracles, AFAR, TOL, budget=Budget(samples=1000), before=980)
    assert found.gradients + 2 * found.products <= 20


def test_no_time_is_left():
    oracles = mossp.Problem(valley).oracles(AFAR)
    found = polish(oracles, AFAR, TOL, budget=Budget(limit=0.0))
    assert found.ended == "the time was used up" and found.steps == 0
    assert np.array_equal(found.witness.x, AFAR)


def test_an_attempt_that_does_not_pay_is_given_up():
    oracles = mossp.Problem(valley).oracles(AFAR)
    found = polish(oracles, AFAR, TOL, patience=30)
    assert "did not fall for what it cost" in found.ended and found.residual > TOL
    near = polish(oracles, np.ones(4) + 1e-3, TOL, patience=30)  # falls by more with every step
    assert near.residual <= TOL and near.gradients + 2 * near.products > 30


def test_a_large_loss_is_polished_to_what_rounding_leaves():
    def large(x):
        return 1e7 * valley(x)

    oracles = mossp.Problem(large, equality=lambda x: x @ x - 2.0).oracles(AFAR)
    found = polish(oracles, np.full(4, np.sqrt(0.5)), TOL, last=True)
    assert found.residual <= TOL
    at, s = found.witness, np.linalg.norm(jax.grad(large)(found.witness.x))
    u = np.asarray(jax.grad(large)(at.x)) + 2 * at.lam[0] * at.x
    assert np.linalg.norm(u) <= 1e-10 * max(1.0, s)


def test_the_callback_goes_on_while_polishing(monkeypatch):
    monkeypatch.setattr(importlib.import_module("mossp.solving.observer"), "REPORT_SECONDS", 0.0)
    seen = []
    given = {"method": "sqp-dc", "polish": True, "tol": 1e-10, "steps": 1}
    result = mossp.solve(mossp.Problem(valley), AFAR, callback=seen.append, **given)
    polishing = [p for p in seen if p.doing == "polishing"]
    assert len(polishing) >= 5 and all(p.step == 1 for p in polishing)
    assert np.array_equal(polishing[-1].x[0], result.x)
    assert polishing[-1].objective[0] == pytest.approx(result.fun, abs=1e-12)
    times = [p.seconds for p in seen]
    assert times == sorted(times) and times[-1] <= result.seconds

    def stop(progress):
        return progress.doing == "polishing"

    stopped = mossp.solve(mossp.Problem(valley), AFAR, callback=stop, **given)
    assert stopped.status is mossp.Status.STOPPED and not stopped.success
    assert stopped.gradients < result.gradients and "not polished" not in stopped.message


def test_a_certified_candidate_is_returned_though_no_replica_was_polished():
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.MCP(0.05, 3.0))
    whole = mossp.solve(problem, np.zeros(30))
    after_the_relaxation = lambda progress: progress.doing == "steps"  # noqa: E731
    stopped = mossp.solve(problem, np.zeros(30), callback=after_the_relaxation, steps=2000)
    assert stopped.status is mossp.Status.STOPPED
    assert mossp.stationarity(problem, stopped.x) <= 1e-10
    assert stopped.certificate.is_kkt(1e-10) and stopped.fun <= whole.fun + 0.05
    assert "convex part" in stopped.message and "not polished" not in stopped.message


def test_few_entries_of_many_take_few_columns():
    """Of 5,000 variables with a small support, no 5,000 x 5,000 matrix is made."""
    size = 5000
    target = np.where(np.arange(size) < 3, 2.0, 0.1)
    problem = mossp.Problem(lambda x: 0.5 * jnp.sum((x - target) ** 2), regularizer=mossp.L1(0.5))
    oracles = problem.oracles(np.zeros(size))
    one, path = followed(oracles, np.where(np.arange(size) < 3, 1.0, 0.0), patient=True)
    np.testing.assert_allclose(path.best.x[:3], 1.5)
    assert not path.best.x[3:].any() and one.hessian.columns_known.H.shape[1] <= 64


def test_a_long_step_is_reported_on_its_way(monkeypatch):
    """A step on many variables takes many passes over the data."""
    monkeypatch.setattr(importlib.import_module("mossp.newton.hessian"), "COLUMNS", 32)
    oracles = mossp.Problem(valley).oracles(np.zeros(100))
    seen = []
    given = {"tol": TOL, "budget": Budget(observer=lambda *at: seen.append(at))}
    found = polish(oracles, np.full(100, 0.5), **given)
    assert len(seen) >= 4 * found.steps > 0
    stopped = polish(oracles, np.full(100, 0.5), TOL, budget=Budget(observer=lambda *at: True))
    assert stopped.steps == 0 and stopped.ended == "it was stopped"
