"""Quadratics under linear constraints, against an independent solver."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from mossp.newton.constrained import bounded, minimum

rng = np.random.default_rng(1)


@pytest.mark.parametrize("seed", range(8))
def test_against_slsqp(seed):
    own = np.random.default_rng(seed)
    n, m, equalities = 6, 3, seed % 2
    root = own.normal(size=(n, n))
    M, w, J, c = root @ root.T + 0.1 * np.eye(n), *(own.normal(size=s) for s in (n, (m, n), m))
    is_equality = np.arange(m) < equalities
    nu = 1e6
    d, q = minimum(w, np.linalg.cholesky(M), c, J, np.where(is_equality, -nu, 0.0), nu)
    left = c + J @ d
    assert np.abs(left[is_equality]).max(initial=0.0) < 1e-9
    assert left[~is_equality].max() < 1e-9
    assert q[~is_equality].min() >= 0
    assert np.abs(q * left).max() < 1e-8
    np.testing.assert_allclose(w + M @ d + q @ J, 0, atol=1e-8)
    kinds = [
        {"type": "eq" if e else "ineq", "fun": lambda d, j=j: -(c[j] + J[j] @ d)}
        for j, e in enumerate(is_equality)
    ]
    other = scipy.optimize.minimize(
        lambda d: w @ d + d @ M @ d / 2, np.zeros(n), method="SLSQP", constraints=kinds,
        options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    np.testing.assert_allclose(w @ d + d @ M @ d / 2, other.fun, rtol=1e-6, atol=1e-8)


def test_constraints_that_contradict_each_other_stop_at_nu():
    """y_1 <= -1 and y_1 >= 1: the least of nu times the violation, by symmetry at 0."""
    J, c = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([1.0, 1.0])
    d, q = minimum(np.array([0.0, 1.0]), np.eye(2), c, J, np.zeros(2), 5.0)
    np.testing.assert_allclose(d, [0.0, -1.0], atol=1e-9)
    np.testing.assert_allclose(q[0] - q[1], 0.0, atol=1e-9)
    assert q.max() <= 5.0


def test_bounded_against_enumeration():
    """Of all points with each multiplier at a bound or free, the lowest that is feasible."""
    root = rng.normal(size=(3, 3))
    A, b = root @ root.T, rng.normal(size=3)
    lower, upper = np.zeros(3), np.full(3, 0.7)
    q = bounded(A, b, lower, upper)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 0.7, 36)] * 3), axis=-1).reshape(-1, 3)
    values = np.einsum("ij,jk,ik->i", grid, A, grid) / 2 - grid @ b
    assert q @ A @ q / 2 - b @ q <= values.min() + 1e-12
    assert ((q >= lower) & (q <= upper)).all()
