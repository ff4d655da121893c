"""A concave part that is a mean over rows: known answers, honest certificates, what is refused.

With f(x) = mean_i |x - t_i|^2 / 2 and g(x) = lam mean_i |x - r_i|_1 the problem falls apart into
one for each coordinate. Between neighbours r_i its slope is x - mean t - lam (2 k - N) / N, with k
of the r_i below x: the critical points between kinks are found by trying every k.
"""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp.methods import METHODS
from mossp.smoothing import Smooth, Smoothable, absolute
from tests.compilations import compilations, compiled_by

N, n, LAM = 300, 3, 0.7
RNG = np.random.default_rng(5)
T = np.array([0.2, -0.4, 0.1]) + 0.5 * RNG.standard_normal((N, n))
R = RNG.choice([-1.0, 0.0, 1.5], (N, n)) + 0.2 * RNG.standard_normal((N, n))


def distance(x, batch):
    return 0.5 * jnp.mean(jnp.sum((x - batch[0]) ** 2, axis=1))


def away(x, batch):
    return LAM * jnp.mean(jnp.sum(jnp.abs(x - batch[1]), axis=1))


def away_from_own(x, rows):
    return LAM * jnp.mean(jnp.sum(jnp.abs(x - rows), axis=1))


def smooth_away(x, batch, delta):
    return LAM * jnp.mean(jnp.sum(absolute(x - batch[1], delta), axis=1))


def F(x, rows=R):
    spread = np.sum((x - T.mean(axis=0)) ** 2) / 2 + np.sum(np.var(T, axis=0)) / 2
    return spread - LAM * np.mean(np.sum(np.abs(x - rows), axis=1))


def critical_points(j, rows=R):
    """Every local minimum of coordinate j, by enumeration."""
    r = np.sort(rows[:, j])
    edges = np.concatenate([[-np.inf], r, [np.inf]])
    k = np.arange(len(r) + 1)
    x = T[:, j].mean() + LAM * (2 * k - len(r)) / len(r)
    return x[(edges[:-1] < x) & (x < edges[1:])]


def is_critical(x, rows=R, within=1e-8):
    return all(np.abs(critical_points(j, rows) - x[j]).min() < within for j in range(n))


def problem(**more):
    return mossp.Problem(distance, (T, R), **{"concave": away, **more})


START = np.array([0.1, 0.3, -0.2])


def test_auto_reaches_a_minimum_that_enumeration_finds_and_compiles_once():
    result = mossp.solve(problem(), START)
    assert result.success and result.tol == 1e-10
    assert is_critical(result.x)
    assert np.isclose(result.fun, F(result.x), rtol=1e-12)
    assert result.certificate.criticality < 1e-10 and result.certificate.proximity == 0
    assert mossp.stationarity(problem(), result.x) < 1e-10
    assert mossp.stationarity(problem(), START) > 0.1
    # Another function with other numbers, the same programs.
    weaker = lambda x, batch: 0.6 * jnp.mean(jnp.sum(jnp.abs(x - batch[1]), axis=1))  # noqa: E731
    again = compiled_by(lambda: mossp.solve(problem(concave=weaker), START + 0.1, seed=1))
    assert again == 0, compilations
    # From its answer nothing is left to do.
    assert mossp.solve(problem(), result).steps == 0


@pytest.mark.parametrize("rows", [R[:120], scipy.sparse.csr_matrix(R[:120])])
def test_rows_of_its_own(rows):
    if scipy.sparse.issparse(rows):  # |A e_j| for rows that only answer A @ x
        g = lambda x, A: LAM * jnp.mean(sum(jnp.abs(x[j] - A @ np.eye(n)[j]) for j in range(n)))  # noqa: E731
    else:
        g = away_from_own
    result = mossp.solve(problem(concave=mossp.Expected(g, data=rows)), START)
    assert result.success and is_critical(result.x, R[:120])


def test_constraints_and_a_regulariser_beside_it():
    given = problem(regularizer=mossp.L1(0.05), equality=lambda x: x @ x - 1.0)
    result = mossp.solve(given, START)
    assert result.success and abs(result.x @ result.x - 1) < 1e-10
    # KKT by hand, in NumPy.
    x, q = result.x, result.certificate.multipliers["equality"]
    slope = x - T.mean(axis=0) - LAM * np.mean(np.sign(x - R), axis=0) + 2 * q * x
    left = np.where(x != 0, slope + 0.05 * np.sign(x), np.maximum(np.abs(slope) - 0.05, 0))
    assert np.linalg.norm(left) < 1e-9


def test_an_expected_constraint_beside_it():
    bound = mossp.Expected(lambda x, batch: jnp.mean(batch[1] @ x) - 0.1)
    result = mossp.solve(problem(inequality=bound), START + 1.0)
    assert result.success and np.mean(R @ result.x) < 0.1 + 1e-9


@pytest.mark.parametrize("name", ("mossp-p", "mossp-r"))
def test_residuals_fall_with_the_steps_and_reach_the_accuracy_without_tuning(name):
    worst = {}
    for K in (500, 8000):
        found = [mossp.solve(problem(), START, method=name, steps=K, seed=s) for s in range(4)]
        worst[K] = np.median([result.certificate.worst for result in found])
    assert all(result.success and result.tol == 1e-2 for result in found)
    assert all(is_critical(result.x, within=1e-2) for result in found)
    assert worst[8000] < worst[500] / 3  # (log(K) / K)^{1/2} makes it 3.3


@pytest.mark.parametrize("name", [m for m in METHODS if METHODS[m]().samples_concave])
def test_methods_come_near_a_minimum(name):
    result = mossp.solve(problem(), START, method=name, steps=3000, tol=0.05)
    assert result.success, result.message
    assert is_critical(result.x, within=0.05)


@pytest.mark.parametrize("name", ["sqp-dc", "mossp-al", "salm-r", "spdc-p", "clcdc-alm", "mlalm"])
def test_others_refuse_in_a_sentence(name):
    with pytest.raises(ValueError, match=f"{name} takes .*: use method='mossp-r'"):
        mossp.solve(problem(), START, method=name)


def test_a_smooth_g_is_a_part_of_the_loss():
    smooth = lambda x, batch: smooth_away(x, batch, 0.3)  # noqa: E731
    result = mossp.solve(problem(concave=Smooth(smooth)), START, steps=40)
    one = lambda x, batch: distance(x, batch) - smooth(x, batch)  # noqa: E731
    same = mossp.solve(mossp.Problem(one, (T, R)), START, steps=40)
    assert result.success and "sqp-dc" in result.message
    np.testing.assert_allclose(result.x, same.x, rtol=1e-12)
    # Every method takes it then; those that know it natively keep it apart.
    assert np.isfinite(mossp.solve(problem(concave=Smooth(smooth)), START, method="salm-r",
                                   steps=5).fun)  # fmt: skip


def test_a_smoothed_g_ends_on_the_problem_itself():
    given = problem(concave=Smoothable(smooth_away, first=1.0, last=0.1))
    result = mossp.solve(given, START)
    assert result.success and is_critical(result.x)
    assert "delta = 1, 0.1" in result.message
    # Smoothed problems lead past poor minima: no worse than from the start alone.
    assert result.fun <= mossp.solve(problem(), START).fun + 1e-9


def test_single_precision_and_a_pytree():
    g = lambda x, batch: away(x["a"], batch) + 0.0 * jnp.sum(x["b"])  # noqa: E731
    f = lambda x, batch: distance(x["a"], batch) + jnp.sum((x["b"] - 1.0) ** 2)  # noqa: E731
    start = {"a": START, "b": np.zeros(2)}
    result = mossp.solve(mossp.Problem(f, (T, R), concave=g), start, dtype="float32")
    assert result.success and is_critical(result.x["a"], within=1e-3)
    np.testing.assert_allclose(result.x["b"], 1.0, atol=1e-4)


def test_without_data():
    given = mossp.Problem(lambda x: x @ x, concave=lambda x: jnp.sum(jnp.abs(x - 0.5)))
    result = mossp.solve(given, np.zeros(2))
    assert result.success
    np.testing.assert_allclose(result.x, -0.5, atol=1e-10)


def test_samples_without_end_are_judged_by_fresh_ones():
    def rows(key, count):
        number = jnp.sum(jax.random.key_data(key) % 1000).astype(float)
        return jnp.cos(number + jnp.arange(count * n).reshape(count, n) ** 2)

    given = mossp.Problem(
        lambda x, rows: 0.5 * jnp.mean(jnp.sum((x - 0.1 * rows) ** 2, axis=1)),
        mossp.Sampler(rows),
        concave=lambda x, rows: 2 * jnp.mean(jnp.sum(jnp.abs(x + rows), axis=1)),
    )  # fmt: skip
    result = mossp.solve(given, START, steps=4000)
    cert = result.certificate
    assert result.success and cert.samples > 0 and cert.criticality_error > 0
    # The rows lie in [-1, 1]: beyond them the slope of g is 2.
    np.testing.assert_allclose(np.abs(result.x), 2.0, atol=0.05)
    short = mossp.solve(given, START, steps=5)
    assert not short.success


# What is found wrong ------------------------------------------------------------------------------


def first_warning(g):
    with pytest.warns(UserWarning) as seen:
        mossp.solve(problem(concave=g), START, method="mossp-r", steps=1)
    return str(seen[0].message)


def test_a_g_that_is_not_convex_is_said_with_the_segment():
    message = first_warning(lambda x, batch: jnp.mean(jnp.sin(x + batch[1])))
    assert "not convex" in message and "between x = [" in message


def test_a_derivative_that_is_no_subgradient_is_said():
    five = lambda x, batch: jnp.sum(jnp.where(x == 0, 5 * x, jnp.abs(x)))  # noqa: E731
    assert "no subgradient" in first_warning(five)
    root = lambda x, batch: jnp.sum(jnp.sqrt(x**2))  # noqa: E731
    assert "NaN" in first_warning(root)


def test_wrong_input_gets_a_sentence():
    with pytest.raises(TypeError, match="concave must be a function"):
        problem(concave=3.0)
    with pytest.raises(ValueError, match="batch_size is for the values of constraints"):
        problem(concave=mossp.Expected(away, batch_size=8))
    with pytest.raises(ValueError, match="concave part must return one real number"):
        mossp.solve(problem(concave=lambda x, batch: x), START)
    with pytest.raises(ValueError, match="concave part must be the mean over the rows"):
        mossp.solve(problem(concave=lambda x, batch: jnp.sum(jnp.abs(x - batch[1]))), START)


def test_a_pickled_problem_and_a_changed_one():
    again = pickle.loads(pickle.dumps(mossp.Problem(distance, (T, R), concave=away)))
    assert mossp.solve(again, START, steps=5, method="mossp-r").steps == 5
    number = [0.5]
    moving = problem(concave=lambda x, batch: number[0] * away(x, batch))

    def change(progress):
        number[0] = 0.6

    result = mossp.solve(moving, START, steps=50, method="mossp-r", callback=change)
    assert result.status is mossp.Status.CHANGED
