"""Estimated constants against eigenvalues computed in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp.data import Stream
from mossp.measuring.estimate import (
    MINI_BATCHES,
    batch_curvature,
    constraint_curvature,
    sample_draws,
)

pytestmark = pytest.mark.usefixtures("x64")

N, n = 60, 5


def matrix(*eigenvalues, seed=0):
    """A symmetric matrix with these eigenvalues."""
    size = len(eigenvalues)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))
    return (Q * np.array(eigenvalues)) @ Q.T


def data(scale=1.0):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, n)) * np.array([6.0, 2.0, 1.0, 0.5, 0.2]) * scale
    return X, np.where(rng.random(N) < 0.5, -1.0, 1.0)


def logistic_parts(x, X, y):
    """Gradient and Hessian of the logistic loss on these rows, in NumPy."""
    p = 1 / (1 + np.exp(y * (X @ x)))
    return X.T @ (-y * p) / len(y), (X.T * (p * (1 - p))) @ X / len(y)


def spectral(H):
    return np.abs(np.linalg.eigvalsh(H)).max()


# The loss ---------------------------------------------------------------------------------


@pytest.mark.parametrize("eigenvalues", [(9.0, 2.0, 1.0, 0.1), (-9.0, 4.0, 2.0, 0.0), (3.0,)])
def test_a_quadratic_without_data(eigenvalues):
    H = matrix(*eigenvalues)
    problem = mossp.Problem(lambda x: 0.5 * x @ H @ x)
    x0 = np.arange(1.0, len(eigenvalues) + 1)
    c = mossp.estimate_constants(problem, x0)
    assert c.L_f == pytest.approx(np.abs(eigenvalues).max(), rel=1e-6)
    assert c.L_batch == c.L_f
    assert c.sigma == 0.0
    assert pytest.approx(np.linalg.norm(H @ x0), rel=1e-12) == c.G
    assert (c.G_c, c.C, c.L_c) == (0.0, 0.0, 0.0)
    assert all(type(value) is float for value in c)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("batch_size", [4, 32])
def test_logistic_against_numpy(sparse, batch_size):
    """On the very mini-batches that the estimate is made from."""
    X, y = data()
    rows = scipy.sparse.csr_matrix(X) if sparse else X
    problem = mossp.Problem(mossp.losses.logistic, (rows, y))
    x0 = np.linspace(-0.1, 0.1, n)
    c = mossp.estimate_constants(problem, x0, batch_size=batch_size, seed=3)
    draws = np.asarray(sample_draws(problem, batch_size, 3, np.float64))
    assert draws.shape[1] == batch_size
    assert draws.size >= 512
    parts = [logistic_parts(x0, X[d], y[d]) for d in draws]
    gradients, hessians = (np.stack(part) for part in zip(*parts, strict=True))
    mean = gradients.mean(axis=0)
    assert c.L_f == pytest.approx(spectral(hessians.mean(axis=0)), rel=1e-6)
    assert c.L_batch == pytest.approx(max(map(spectral, hessians[:MINI_BATCHES])), rel=1e-3)
    assert pytest.approx(np.linalg.norm(mean), rel=1e-10) == c.G
    spread = np.sqrt(np.sum((gradients - mean) ** 2, axis=1).mean())
    assert c.sigma == pytest.approx(spread, rel=1e-10)
    # And these stand for the whole data set.
    g, H = logistic_parts(x0, X, y)
    assert c.L_f == pytest.approx(spectral(H), rel=0.15)
    every = np.stack([logistic_parts(x0, X[i : i + 1], y[i : i + 1])[0] for i in range(N)])
    sigma = np.sqrt(np.sum((every - g) ** 2, axis=1).mean() / batch_size)
    # Three standard errors of a deviation that is seen on so few mini-batches.
    assert c.sigma == pytest.approx(sigma, rel=3 / np.sqrt(2 * len(draws)))
    assert c.L_f <= c.L_batch


def test_seeds_give_the_same_estimate_again():
    problem = mossp.Problem(mossp.losses.logistic, data())
    a, b, c = (mossp.estimate_constants(problem, np.ones(n), seed=s) for s in (5, 5, 6))
    assert a == b
    assert a.sigma != c.sigma


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_scale_of_the_data(scale):
    X, _y = data()
    problems = [mossp.Problem(lambda x, b: jnp.mean((b @ x) ** 2) / 2, X * s) for s in (1.0, scale)]
    one, other = (mossp.estimate_constants(p, np.ones(n)) for p in problems)
    assert other.L_f == pytest.approx(scale**2 * one.L_f, rel=1e-10)
    assert other.L_batch == pytest.approx(scale**2 * one.L_batch, rel=1e-10)
    assert other.sigma == pytest.approx(scale**2 * one.sigma, rel=1e-10)
    assert pytest.approx(scale**2 * one.G, rel=1e-10) == other.G
    H = X.T @ X / N
    assert one.L_f == pytest.approx(spectral(H), rel=0.15)


def test_data_of_zeros():
    problem = mossp.Problem(mossp.losses.squared, (np.zeros((10, 3)), np.zeros(10)))
    c = mossp.estimate_constants(problem, np.ones(3))
    assert tuple(c) == (0.0,) * 7
    sparse = mossp.Problem(mossp.losses.squared, (scipy.sparse.csr_matrix((10, 3)), np.zeros(10)))
    assert mossp.estimate_constants(sparse, np.ones(3)) == c


def test_a_tree():
    X, y = data()
    problem = mossp.Problem(
        lambda x, b: mossp.losses.squared(x["w"], b) + 5.0 * x["b"] ** 2,
        (X, y),
        equality=lambda x: x["b"] * 3.0,
    )
    c = mossp.estimate_constants(problem, {"w": np.zeros(n), "b": np.array(0.5)})
    assert c.L_f == pytest.approx(max(10.0, spectral(X.T @ X / N)), rel=0.2)
    assert c.G_c == pytest.approx(3.0, rel=1e-10)
    assert c.L_c == 0.0


# Constraints ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["equality", "inequality"])
def test_the_sphere(kind):
    """Points at a distance of half the length of x0 are looked at."""
    for s in (1.0, 10.0):
        problem = mossp.Problem(lambda x: jnp.sum(x), **{kind: mossp.constraints.Sphere(s)})
        x0 = s * np.ones(4) / 2
        c = mossp.estimate_constants(problem, x0)
        assert c.L_c == pytest.approx(2.0, rel=1e-12)
        # ||x||^2 is at least 1 + 1/4 at one of two opposite points, and at most (3/2)^2.
        assert 2 * np.sqrt(1.25) * s * (1 - 1e-9) <= c.G_c <= 3.0 * s
        assert 0.25 * s**2 * (1 - 1e-9) <= c.C <= 1.25 * s**2
        assert c.L_f == 0.0
        assert pytest.approx(2.0, rel=1e-12) == c.G


def test_the_sphere_inside():
    """An inequality that holds with room to spare has no violation near x0."""
    problem = mossp.Problem(lambda x: x @ x, inequality=mossp.constraints.Sphere(100.0))
    c = mossp.estimate_constants(problem, np.array([1.0, 0.0]))
    assert c.C == 0.0
    assert c.L_c == pytest.approx(2.0, rel=1e-12)


def test_linear_constraints():
    A = matrix(7.0, 2.0, 1.0, 0.5)[:3]
    problem = mossp.Problem(lambda x: x @ x, equality=mossp.constraints.Linear(A, np.zeros(3)))
    c = mossp.estimate_constants(problem, np.zeros(4))
    assert c.G_c == pytest.approx(np.linalg.norm(A, 2), rel=1e-5)
    assert c.L_c == 0.0
    assert 0 < c.C <= 0.5 * np.linalg.norm(A, 2)


@pytest.mark.parametrize("m", [2, 10, 50])
def test_smoothness_of_many_constraints(m):
    """x_i^2 = 1 for every i: ||J(x) - J(y)|| <= 2 ||x - y||, whatever their number."""
    problem = mossp.Problem(lambda x: x @ x, equality=lambda x: x**2 - 1.0)
    assert mossp.estimate_constants(problem, np.ones(m)).L_c == pytest.approx(2.0, rel=0.1)


def test_tilde_and_max():
    c = mossp.Constants(L_f=6.0, L_batch=7.0, sigma=1.0, G=1.0, G_c=2.0, C=0.5, L_c=3.0)
    assert c.L_tilde(2.0) == 6.0 / 2 + 4.0 + 1.5
    assert c.L_max(2.0) == 8.5
    assert c.L_max(100.0) == 6.0


# Streams and samplers ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_stream_is_looked_at_and_left(count):
    X, y = data()
    batches = [(X[8 * i : 8 * i + 8], y[8 * i : 8 * i + 8]) for i in range(count)]
    stream = Stream(iter(batches))
    problem = mossp.Problem(mossp.losses.logistic, stream)
    x0 = np.linspace(-0.1, 0.1, n)
    c = mossp.estimate_constants(problem, x0, batch_size=8)
    parts = [logistic_parts(x0, *batch) for batch in batches[:4]]
    gradients, hessians = (np.stack(part) for part in zip(*parts, strict=True))
    assert c.L_f == pytest.approx(spectral(hessians.mean(axis=0)), rel=1e-3)
    assert c.L_batch == pytest.approx(max(map(spectral, hessians)), rel=1e-3)
    assert pytest.approx(np.linalg.norm(gradients.mean(axis=0)), rel=1e-10) == c.G
    assert (c.sigma == 0.0) == (count == 1)
    left = stream.take(10)
    assert len(left) == count
    np.testing.assert_array_equal(left[0][0], batches[0][0])


def test_a_sampler():
    """Rows with a covariance of diag(16, 4, 1): the Hessian of the squared loss."""
    scale = jnp.array([4.0, 2.0, 1.0])

    def sample(key, size):
        X = jax.random.normal(key, (size, 3)) * scale
        return X, jnp.zeros(size)

    problem = mossp.Problem(mossp.losses.squared, mossp.Sampler(sample))
    x0 = np.array([1.0, 0.0, 0.0])
    c = mossp.estimate_constants(problem, x0, batch_size=64, seed=1)
    assert c.L_f == pytest.approx(16.0, rel=0.15)
    assert pytest.approx(16.0, rel=0.15) == c.G
    # Var(x_1^2) = 2 * 16^2, Var(x_1 x_2) = 64, Var(x_1 x_3) = 16.
    assert c.sigma == pytest.approx(np.sqrt((2 * 256 + 64 + 16) / 64), rel=0.3)
    assert c.L_f <= c.L_batch <= 3 * 16.0


def test_curvature_that_cancels_over_all_rows_is_seen_on_mini_batches():
    """mean_i d_i |x|^2 / 2 with as many d = 1 as d = -1, in any order that the rows may have."""
    d = np.repeat([1.0, -1.0], 300)

    def gap(x, rows):
        return jnp.mean(rows) * (x @ x) / 2

    problem = mossp.Problem(lambda x: x @ x, inequality={
        "gap": mossp.Expected(gap, data=d), "ball": lambda x: x @ x - 9.0
    })  # fmt: skip
    x = np.ones(3)
    oracles = problem.oracles(x)
    x, q = jnp.asarray(x), jnp.array([0.5, 4.0])  # of the ball and the gap
    assert float(constraint_curvature(oracles, x, q)) == pytest.approx(1.0)
    # A mini-batch of 32 has a mean of d of about 1 / sqrt(32), the largest of 16 some two of that.
    on_few = float(batch_curvature(oracles, x, q, 32)) - 1.0
    assert 4 * 0.1 < on_few < 4 * 0.8
    assert float(batch_curvature(oracles, x, q, 600)) - 1.0 < on_few
