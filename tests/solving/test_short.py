"""The short way of "auto": full gradients and polishing before any step is compiled."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp import Status
from mossp.solving import short
from mossp.solving.arguments import checked
from tests.compilations import compilations, compiled_by
from tests.solving.logistic import LAM, X0, N, X, Y, is_sentence, logistic, on_sphere, sphere

STEPS_OF_THE_LOOP = ("_advance", "retune", "refresh_anchor", "first_estimate")


def looped(names):
    return [name for name in names if any(part in name for part in STEPS_OF_THE_LOOP)]


def test_a_first_solve_compiles_few_programs_and_no_steps():
    """A constraint that no other test has, so that nothing is compiled for it yet."""
    problem = logistic(mossp.L1MinusL2(LAM), equality=lambda x: 1.7 * (x @ x) - 1.7)
    found = []
    count = compiled_by(lambda: found.append(mossp.solve(problem, X0)))
    assert found[0].success and 0 < count <= 12, compilations
    assert not looped(compilations)


def test_long_sparse_rows_take_full_gradients():
    """A few entries for each variable: a step's work on vectors would outweigh a full gradient."""
    rng = np.random.default_rng(3)
    rows, columns, entries = 300, 5_000, 4
    places = np.sort(rng.integers(0, columns // 50, (rows, entries)), axis=1)
    A = scipy.sparse.csr_matrix(
        (
            rng.standard_normal(rows * entries),
            places.ravel(),
            np.arange(0, rows * entries + 1, entries),
        ),
        (rows, columns),
    )
    A.sum_duplicates()
    y = np.where(
        np.asarray(A[:, :8].sum(axis=1)).ravel() + 0.1 * rng.standard_normal(rows) > 0, 1.0, -1.0
    )
    problem = mossp.Problem(mossp.losses.logistic, (A, y), mossp.L1MinusL2(0.01), equality=sphere)
    x0 = rng.standard_normal(columns)
    x0 /= np.linalg.norm(x0)
    r, by_steps = (mossp.solve(problem, x0, **given) for given in ({}, {"steps": 2000}))
    assert r.success and "Chosen: sqp-dc with full gradients: 300 rows" in r.message
    assert "SVRG" in by_steps.message and r.fun <= by_steps.fun + 1e-10


def test_what_was_done_is_said_and_counted():
    r = mossp.solve(on_sphere(), X0)
    assert r.success and r.steps > 0 and is_sentence(r.message)
    assert f"After {r.steps} steps with full gradients, polished by" in r.message
    assert "Chosen: sqp-dc with full gradients: 600 rows" in r.message and "SVRG" not in r.message
    assert r.gradients % N == 0 and r.gradients >= N * r.steps
    assert r.trace.rows == N and r.trace.steps[0] == 0 and r.trace.steps[-1] == r.steps
    reg, x = mossp.L1MinusL2(LAM), X0 / np.linalg.norm(X0)
    first = np.logaddexp(0, -Y * (X @ x)).mean() + LAM * (np.abs(x).sum() - 1)
    assert r.trace.objective[0, 0] == pytest.approx(first, abs=1e-12)
    assert r.fun == pytest.approx(
        np.logaddexp(0, -Y * (X @ r.x)).mean() + float(reg(r.x)), abs=1e-12
    )


def test_where_it_does_not_end_the_run_steps_begin_at_the_start(monkeypatch):
    """One step is not enough to settle: what follows is the run that a number of steps asks for."""
    monkeypatch.setattr(short, "MARKS", (1,))
    r, by_steps = (mossp.solve(on_sphere(), X0, **given) for given in ({}, {"steps": 2000}))
    assert r.success and r.steps == by_steps.steps + 1
    assert np.array_equal(r.x, by_steps.x) and r.fun == by_steps.fun
    assert np.array_equal(r.trace.objective, by_steps.trace.objective)
    assert r.gradients > by_steps.gradients
    assert "full gradients: 600 rows, 1 constraint, which did not end it; then" in r.message
    assert "sqp-dc with SVRG gradients" in r.message


def test_an_end_that_the_callback_asks_for_is_where_full_steps_have_led():
    seen = []

    def stop(progress):
        seen.append(progress)
        return True

    r = mossp.solve(on_sphere(), X0, callback=stop)
    assert r.status is Status.STOPPED and r.steps == seen[0].step > 0 and seen[0].doing == "steps"
    assert np.array_equal(r.x, seen[0].x[0]) and r.fun < mossp.solve(on_sphere(), X0).fun + 1e-2
    assert "then" not in r.message and "not polished" in r.message


def test_those_who_look_on_do_not_change_the_answer(tmp_path):
    bare = mossp.solve(on_sphere(), X0)
    seen = mossp.solve(on_sphere(), X0, callback=lambda p: None, checkpoint=tmp_path / "run")
    assert np.array_equal(bare.x, seen.x) and bare.gradients == seen.gradients
    again = mossp.solve(on_sphere(), X0, seed=7)  # no random number plays a part
    assert np.array_equal(bare.x, again.x)


@pytest.mark.parametrize("given", [{"steps": 40}, {"gradients": 4000}, {"replicas": 2}])
def test_it_is_not_taken_where_something_else_is_asked_for(given):
    r = mossp.solve(on_sphere(), X0, **given)
    assert "SVRG gradients" in r.message and "steps with full gradients" not in r.message


def test_nor_for_larger_data():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3000, 100))
    problem = mossp.Problem(
        mossp.losses.logistic, (A, np.sign(A[:, 0])), mossp.L1MinusL2(LAM), equality=sphere
    )
    assert checked(problem, np.ones(100)).first == ""
    assert checked(on_sphere(), X0).first


def test_but_for_sparse_rows_their_entries_count():
    A = scipy.sparse.random(3000, 100, density=0.02, random_state=0, format="csr")
    b = np.where(A[:, [0]].toarray().ravel() > 0, 1.0, -1.0)
    regularizer = mossp.L1MinusL2(LAM)
    for rows, taken in ((A, True), (A.toarray(), False)):
        problem = mossp.Problem(mossp.losses.logistic, (rows, b), regularizer, equality=sphere)
        assert bool(checked(problem, np.ones(100)).first) is taken


def test_two_ends_on_such_rows_are_followed_by_steps(monkeypatch):
    """The lower of the two is kept, and competes with what the steps lead to."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 8))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = np.sign(A @ rng.normal(size=8) + 0.5 * rng.normal(size=200))
    problem = mossp.Problem(mossp.losses.logistic, (A, b), mossp.MCP(0.02, 3.0), equality=sphere)
    x0 = rng.normal(size=8)
    alone = mossp.solve(problem, x0)
    monkeypatch.setattr(short, "steps_are_dear", lambda oracles: False)
    both = mossp.solve(problem, x0)
    assert "which did not end it; then sqp-dc" in both.message
    assert alone.success and both.success and both.fun <= alone.fun + 1e-12


def test_a_second_start_leads_below_the_first(monkeypatch):
    """MCP on the sphere: the valley of the start ends higher than that of an answer without -g."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 8))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    b = np.sign(A @ rng.normal(size=8) + 0.5 * rng.normal(size=200))
    problem = mossp.Problem(mossp.losses.logistic, (A, b), mossp.MCP(0.02, 3.0), equality=sphere)
    starts = rng.normal(size=(2, 8))
    both = [mossp.solve(problem, x0) for x0 in starts]
    monkeypatch.setattr(short, "from_second_start", lambda p, done, first_mu: done)
    first = [mossp.solve(problem, x0) for x0 in starts]
    assert all(r.success for r in (*both, *first))
    assert all(r.fun < one.fun - 1e-4 for r, one in zip(both, first, strict=True))
