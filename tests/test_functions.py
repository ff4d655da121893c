"""A result is about the user's functions as they are when `solve` is called.

JAX keeps programs by the identity of a function; a changed global, attribute or list would go
unnoticed.
"""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp._base import programs
from mossp._base.programs import Store

pytestmark = pytest.mark.slow


X0 = np.zeros(3)
TARGET = np.array([1.0, 2.0, 3.0])
OTHER = np.array([7.0, 8.0, 9.0])


def answer(problem, **settings):
    result = mossp.solve(problem, X0, **settings)
    assert result.success, result.message
    return result.x


def near_target(x):
    return jnp.sum((x - TARGET) ** 2)


def test_a_changed_global(monkeypatch):
    np.testing.assert_allclose(answer(mossp.Problem(near_target)), TARGET, atol=1e-9)
    monkeypatch.setitem(globals(), "TARGET", OTHER)
    np.testing.assert_allclose(answer(mossp.Problem(near_target)), OTHER, atol=1e-9)


def test_a_changed_global_of_the_same_problem(monkeypatch):
    problem = mossp.Problem(near_target)
    answer(problem)
    monkeypatch.setitem(globals(), "TARGET", OTHER)
    np.testing.assert_allclose(answer(problem), OTHER, atol=1e-9)
    assert mossp.stationarity(problem, OTHER) <= 1e-9


def test_a_changed_attribute():
    class Center:
        at = 1.0

        def __call__(self, x):
            return jnp.sum((x - self.at) ** 2)

    center = Center()
    np.testing.assert_allclose(answer(mossp.Problem(center)), np.ones(3), atol=1e-9)
    center.at = 5.0
    np.testing.assert_allclose(answer(mossp.Problem(center)), np.full(3, 5.0), atol=1e-9)


def test_a_changed_list_in_a_constraint():
    bounds = [1.0]
    problem = mossp.Problem(near_target, inequality=lambda x: x.sum() - bounds[0])
    np.testing.assert_allclose(answer(problem).sum(), 1.0, atol=1e-9)
    bounds[0] = 2.0
    np.testing.assert_allclose(answer(problem).sum(), 2.0, atol=1e-9)
    bounds.append(0.0)  # of another shape: another program
    bounds[:] = [2.0]
    np.testing.assert_allclose(answer(problem).sum(), 2.0, atol=1e-9)


def test_changed_control_flow(monkeypatch):
    power = [2]
    problem = mossp.Problem(lambda x: jnp.sum((x - 1.0) ** power[0]) + jnp.sum((x - 2.0) ** 2))
    np.testing.assert_allclose(answer(problem), np.full(3, 1.5), atol=1e-9)
    power[0] = 4
    x = answer(problem)
    np.testing.assert_allclose(4 * (x - 1) ** 3 + 2 * (x - 2), 0, atol=1e-9)


def test_a_changed_rule_of_differentiation():
    """A jaxpr shows a custom rule by its name alone."""

    def made(slope):
        @jax.custom_jvp
        def odd(t):
            return t * 1.0

        odd.defjvp(lambda p, t: (odd(p[0]), slope * t[0]))
        return lambda x: jnp.sum((x - 2.0) ** 2) + jnp.sum(odd(x))

    # The "gradient" is 2 (x - 2) + slope.
    for slope in (1.0, 2.0):
        x0 = np.zeros(3)
        x = mossp.solve(mossp.Problem(made(slope)), x0, method="mossp-p", steps=3000).x
        np.testing.assert_allclose(x, 2 - slope / 2, atol=1e-3)


def test_the_same_rule_of_differentiation_is_the_same_program():
    @jax.custom_jvp
    def own(t):
        return t * 1.0

    own.defjvp(lambda p, t: (own(p[0]), 3.0 * t[0]))

    @jax.custom_vjp
    def back(t):
        return t * 2.0

    back.defvjp(lambda t: (back(t), None), lambda _, g: (2.0 * g,))
    problem = mossp.Problem(lambda x: jnp.sum(own(x) ** 2), inequality=lambda x: back(x).sum())
    first = problem.oracles(X0)
    assert problem.oracles(X0).programs is first.programs


def test_callbacks_are_told_apart_by_what_they_hold():
    """JAX wraps a callback anew at every trace; it is still the same one."""

    def problem(seen):
        def loss(x):
            jax.debug.callback(lambda value: seen.append(float(value)), x[0])
            return jnp.sum((x - 1.0) ** 2)

        return mossp.Problem(loss)

    lists = [], []
    first, second = problem(lists[0]), problem(lists[1])
    kept = first.oracles(X0)
    assert first.oracles(X0).programs is kept.programs
    assert second.oracles(X0).programs is not kept.programs
    for one, other in ((0, 1), (1, 0)):
        before = len(lists[other])
        result = mossp.solve((first, second)[one], X0, method="mossp-p", steps=50)
        jax.effects_barrier()
        assert result.status is not mossp.Status.CHANGED
        assert lists[one] and len(lists[other]) == before


def test_a_changed_sampler():
    mean = [1.0]
    sampler = mossp.Sampler(lambda key, size: mean[0] + 0.01 * jax.random.normal(key, (size, 3)))
    problem = mossp.Problem(lambda x, batch: jnp.mean(jnp.sum((x - batch) ** 2, axis=1)), sampler)
    settings = {"method": "mossp-r", "steps": 2000}
    np.testing.assert_allclose(mossp.solve(problem, X0, **settings).x, 1.0, atol=0.01)
    mean[0] = 3.0
    np.testing.assert_allclose(mossp.solve(problem, X0, **settings).x, 3.0, atol=0.01)


SHRINK = [0.5]


class Own(mossp.regularizers.Regularizer):
    """A regulariser that looks at a global."""

    def h(self, x):
        return SHRINK[0] * abs(x).sum()

    def g(self, x):
        return 0.0 * x.sum()

    def prox_h(self, v, mu):
        return v - v.clip(-mu * SHRINK[0], mu * SHRINK[0])

    def prox_g(self, v, mu):
        return v

    def subgradient_g(self, x):
        return 0.0 * x


def test_a_changed_regulariser(monkeypatch):
    problem = mossp.Problem(lambda x: 0.5 * jnp.sum((x - 2.0) ** 2), regularizer=Own())
    np.testing.assert_allclose(answer(problem), 1.5, atol=1e-9)
    monkeypatch.setitem(globals(), "SHRINK", [1.0])
    np.testing.assert_allclose(answer(problem), 1.0, atol=1e-9)


def test_a_function_that_changes_during_the_run_is_no_success():
    target = [1.0]

    def change(progress):
        target[0] = 2.0

    problem = mossp.Problem(lambda x: jnp.sum((x - target[0]) ** 2))
    result = mossp.solve(problem, X0, callback=change, method="mossp-p", steps=2000)
    assert result.status is mossp.Status.CHANGED and not result.success
    assert "changed during the run" in result.message
    # All of the run saw one function.
    np.testing.assert_allclose(result.x, 1.0, atol=1e-2)


@pytest.mark.parametrize("where", ["a closure", "a module", "a regulariser"])
def test_an_array_that_is_overwritten_during_the_run_is_no_success(where):
    """The array is the same object then, and only its contents tell."""

    class Near(eqx.Module):
        target: np.ndarray

        def __call__(self, x):
            return jnp.sum((x - self.target) ** 2)

    array = np.ones(3)

    def change(progress):
        array[:] = 2.0

    problem = {
        "a closure": lambda: mossp.Problem(lambda x: jnp.sum((x - array) ** 2)),
        "a module": lambda: mossp.Problem(Near(array)),
        "a regulariser": lambda: mossp.Problem(
            lambda x: jnp.sum((x - 1.5) ** 2), regularizer=mossp.Weighted(mossp.L1(1.0), array)
        ),
    }[where]()
    result = mossp.solve(problem, X0, callback=change, method="mossp-p", steps=2000)
    assert result.status is mossp.Status.CHANGED and not result.success
    np.testing.assert_allclose(result.x, 1.0, atol=1e-2)


def test_modules_with_functions_among_their_leaves():
    """As the layers of equinox have."""

    class Layer(eqx.Module):
        activation: object
        center: object

        def __call__(self, x):
            return jnp.sum(self.activation(x - self.center))

    for center in (1.0, 4.0):
        problem = mossp.Problem(Layer(jnp.square, np.full(3, center)))
        np.testing.assert_allclose(answer(problem), center, atol=1e-9)


# Numbers that are arguments of programs -------------------------------------------------------


def test_numbers_of_each_precision_and_place():
    """Scalars, arrays, float32 and whole numbers: shared programs give each its own answer."""
    single = np.float32(0.1)

    def made(a, v, w):
        return lambda x: (
            jnp.sum((x - a) ** 2)
            + jnp.sum((x - v) ** 2)
            + jnp.where(x.sum() > 1e9, w, single * x.sum())
        )

    sets = []
    for a, v, w in ((1.0, np.ones(3), 0.0), (2.0, np.arange(3.0), 5.0), (-1.0, -np.ones(3), 1.0)):
        problem = mossp.Problem(made(a, v, w))
        expected = (a + v) / 2 - float(single) / 4
        np.testing.assert_allclose(answer(problem), expected, atol=1e-9)
        sets.append(problem.oracles(X0).programs)
    assert sets[0] is sets[1] and sets[1] is sets[2]


def by_size(number):
    """A loss whose numbers stand elsewhere for some sizes of a batch."""

    def loss(x, batch):
        value = jnp.mean((batch[0] @ x - batch[1]) ** 2) + number * jnp.sum(x)
        return value + 0.0 * number * jnp.cos(x[0] * 0.0) if len(batch[1]) == 1 else value

    return loss


def test_numbers_that_a_batch_size_hides_are_not_shared():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40, 3))
    b = A.sum(axis=1)
    for number in (0.1, 0.3):
        x = answer(mossp.Problem(by_size(number), (A, b)))
        expected = np.linalg.solve(2 * A.T @ A / 40, 2 * A.T @ b / 40 - number)
        np.testing.assert_allclose(x, expected, atol=1e-9)


# Memory ---------------------------------------------------------------------------------------


def memory_maps():
    with Path("/proc/self/maps").open("rb") as lines:
        return sum(1 for _ in lines)


def oracles_of(k):
    """Those of a problem that is a different program for each k."""
    return mossp.Problem(lambda x: jnp.sum(x**2) + jnp.sum(jnp.sin(x) ** (k + 2))).oracles(X0)


@programs.compiled
def gradient(oracles, x):
    return oracles.full_gradient(x)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_programs_that_fall_out_free_their_memory(monkeypatch):
    store = Store(most=4)
    monkeypatch.setattr("mossp.problem.store", store)

    def use(k):
        with jax.enable_x64(True):
            np.testing.assert_allclose(gradient(oracles_of(k), X0 + 0.1).shape, 3)

    for k in range(8):
        use(k)
    gc.collect()
    before = memory_maps()
    for k in range(8, 40):
        use(k)
    gc.collect()
    assert memory_maps() - before <= 30


def test_oracles_are_taken_apart_once_and_freed():
    with jax.enable_x64(True):
        oracles = oracles_of(0)
        known = [programs.known_of(oracles) for _ in range(2)]
        assert known[0] is known[1]
        before = len(programs._known)
        del oracles, known
        gc.collect()
        assert len(programs._known) == before - 1


def test_the_sets_that_were_used_last_are_kept(monkeypatch):
    store = Store(most=2)
    monkeypatch.setattr("mossp.problem.store", store)
    with jax.enable_x64(True):
        sets = []
        for k in (0, 1, 0, 2, 0):
            oracles = oracles_of(k)
            gradient(oracles, X0)
            sets.append(oracles.programs)
    assert sets[0] is sets[2] and sets[2] is sets[4]
    assert len(store) <= 3


def test_a_function_that_keeps_arriving_new_is_said_once(monkeypatch):
    store = Store(most=1)
    monkeypatch.setattr("mossp.problem.store", store)
    with jax.enable_x64(True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(30):
            gradient(oracles_of(k), X0)
    said = [str(w.message) for w in caught]
    assert len(said) == 1
    assert "oracles_of" in said[0] and "equinox module" in said[0] and "20 times" in said[0]


def test_a_long_program_is_said_once():
    """A run traces its functions again at its end, and the second solve compiles nothing."""

    def loss(x):
        return sum((i * x[0] for i in range(600)), x @ x)

    problem = mossp.Problem(loss)
    with pytest.warns(UserWarning, match="takes long to compile") as said:
        kept = [problem.oracles(X0), problem.oracles(X0)]
    assert len(said) == 1 and kept[0].programs is kept[1].programs
