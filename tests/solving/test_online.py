"""A run that is fed goes on where it was."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.solving.online import Online
from tests.problems import sphere

rng = np.random.default_rng(0)
A = rng.normal(size=(640, 4))
b = A @ np.array([1.0, 0.5, 0.0, 0.0]) + 0.1 * rng.normal(size=640)
BATCHES = [(A[i : i + 16], b[i : i + 16]) for i in range(0, 640, 16)]


def run(**changes):
    given = {"regularizer": mossp.L1(0.01), "equality": sphere}
    return Online(mossp.losses.squared, np.array([1.0, 0.0, 0.0, 0.0]), **{**given, **changes})


def test_calls_may_be_cut_anywhere():
    whole, parts = run(), run()
    whole.feed(BATCHES)
    # The first call measures constants from what it sees: the same in both.
    parts.feed(BATCHES[:40])
    assert parts.steps == whole.steps == 40
    np.testing.assert_array_equal(parts.x, whole.x)
    whole.feed(BATCHES)
    for batch in BATCHES:
        parts.feed([batch])
    assert parts.steps == whole.steps == 80
    np.testing.assert_allclose(parts.x, whole.x, rtol=1e-12)


def test_state_is_all_it_takes():
    first = run()
    first.feed(BATCHES)
    second = run(state=pickle.loads(pickle.dumps(first.state)))
    for online in (first, second):
        online.feed(BATCHES[::-1])
    np.testing.assert_allclose(first.x, second.x, rtol=1e-12)
    assert first.steps == second.steps == 80 and second.finite


def test_it_comes_near_to_the_optimum_and_keeps_the_constraint():
    online = run()
    for _ in range(25):
        online.feed(BATCHES)
    problem = mossp.Problem(mossp.losses.squared, (A, b), mossp.L1(0.01), equality=sphere)
    best = mossp.solve(problem, np.ones(4))
    assert abs(sphere(online.x)) < 1e-4
    np.testing.assert_allclose(online.x, best.x, atol=0.05)


def test_many_constraints_and_methods_by_name():
    for settings in ({"method": "mossp-p"}, {"equality": lambda x: jnp.tile(x.sum() - 1.0, 33)}):
        online = run(**settings)
        online.feed(BATCHES)
        assert online.steps == 40 and online.finite


def test_nothing_yet():
    online = run()
    online.feed([])
    assert online.steps == 0 and online.state is None and online.x.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_infinity_is_told():
    online = Online(lambda x, rows: jnp.mean(-jnp.exp(rows @ x)), np.full(4, 5.0))
    online.feed([100 * rows for rows, _ in BATCHES])
    assert not online.finite


def test_a_schedule_with_a_horizon_is_refused():
    with pytest.raises(ValueError, match="number of steps"):
        run(schedule="theorem").feed(BATCHES)
