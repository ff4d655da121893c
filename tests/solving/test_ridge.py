"""A ridge where answers are known otherwise: best subsets, separable data, many columns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mossp

rng = np.random.default_rng(0)
N, n = 80, 8
A = rng.normal(size=(N, n))
B = A @ np.r_[1.0, -1.0, 0.8, np.zeros(n - 3)] + 0.5 * rng.normal(size=N)
APART = np.sign(A[:, 0])  # labels that a plane separates


def test_the_best_subset_with_a_ridge_is_that_of_trying_all():
    found = mossp.solve(
        mossp.Problem(
            mossp.losses.squared, (A, B), mossp.PlusRidge(mossp.TruncatedL1(5.0, 3), 0.3)
        ),
        np.zeros(n),
    )
    values = []
    for S in map(list, itertools.combinations(range(n), 3)):
        x = np.linalg.solve(A[:, S].T @ A[:, S] / N + 0.3 * np.eye(3), A[:, S].T @ B / N)
        values.append((np.mean((A[:, S] @ x - B) ** 2) / 2 + 0.15 * x @ x, S))
    value, S = min(values)
    assert found.success and found.fun == pytest.approx(value, rel=1e-10)
    assert np.flatnonzero(found.x).tolist() == S


@pytest.mark.parametrize(
    ("reg", "ends"),
    [
        (mossp.PlusRidge(mossp.MCP(0.05), 1e-3), True),
        (mossp.Ridge(1e-6), True),
        (mossp.Ridge(0.0), False),
        (mossp.PlusRidge(mossp.MCP(0.05), 0.0), False),
    ],
    ids=repr,
)
def test_separable_data_have_a_minimiser_where_there_is_a_ridge(reg, ends):
    found = mossp.solve(mossp.Problem(mossp.losses.logistic, (A, APART), reg), np.zeros(n))
    assert found.success is ends
    assert ends or found.status is mossp.Status.DIVERGED


def test_more_columns_than_a_matrix_is_formed_for():
    """x = A'u with (A A'/N + lam) u = b/N: 60 equations for 3,000 unknowns."""
    wide = np.random.default_rng(1).normal(size=(60, 3000))
    b = wide[:, :5].sum(axis=1)
    found = mossp.solve(mossp.Problem(mossp.losses.squared, (wide, b), mossp.Ridge(0.5)),
                        np.zeros(3000))  # fmt: skip
    expected = wide.T @ np.linalg.solve(wide @ wide.T / 60 + 0.5 * np.eye(60), b / 60)
    assert found.certificate.is_kkt(1e-10) and found.x.all()
    np.testing.assert_allclose(found.x, expected, atol=1e-9)
