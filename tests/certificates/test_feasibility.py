"""Restore: a feasible point nearby, with the same zeros."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.certificates.stationarity import shortest_certificate
from tests.certificates.points import LAM, ZEROS, away, line, tree_away, two_sided
from tests.problems import n, sphere


@pytest.mark.parametrize("reg", [mossp.L1(LAM), mossp.Nonnegative(mossp.L1(LAM))], ids=["L1", "N"])
@pytest.mark.parametrize("constraint", [sphere, line])
def test_restore_keeps_zeros_and_reaches_full_precision(constraint, reg):
    problem = mossp.Problem(loss=away, regularizer=reg, equality=constraint)
    x = np.array([0.8, 0.0, 0.3, 0.0, 0.0, 0.1])
    given = x.copy()
    y = mossp.restore(problem, x)
    assert abs(float(constraint(y))) < 1e-12
    assert (y[x == 0] == 0).all() and (y[x != 0] != 0).all()
    assert np.array_equal(x, given) and np.linalg.norm(y - x) < 0.5
    np.testing.assert_allclose(mossp.restore(problem, y), y, atol=1e-14)


def test_restore_with_inequalities_and_pytrees():
    problem = mossp.Problem(loss=away, inequality=two_sided)
    inside = np.full(n, 0.1)
    assert np.array_equal(mossp.restore(problem, inside), inside)
    outside = mossp.restore(problem, np.full(n, 2.0))
    assert outside @ outside - 1 <= 1e-12
    tree = {"a": np.array([0.7, 0.0]), "b": np.array([[0.0, -1.2], [0.0, 0.2]])}
    unit = mossp.Problem(
        loss=tree_away, equality=lambda x: x["a"] @ x["a"] + jnp.sum(x["b"] ** 2) - 1
    )
    y = mossp.restore(unit, tree)
    assert y["b"].shape == (2, 2) and y["a"][1] == 0
    assert abs(y["a"] @ y["a"] + np.sum(y["b"] ** 2) - 1) < 1e-12


def test_restore_from_zero_uses_every_entry():
    y = mossp.restore(mossp.Problem(loss=away, equality=line), np.zeros(n))
    assert abs(y.sum() - 1) < 1e-12


def test_restore_without_constraints_changes_nothing():
    assert np.array_equal(mossp.restore(mossp.Problem(loss=away), ZEROS), ZEROS)


def test_an_exponential_far_from_its_bound_is_not_feasible_relative_to_its_slope():
    """c / (x c') is 1 / x for c = exp(x) - 1: small where the violation is huge."""
    problem = mossp.Problem(lambda x: -1e-3 * x[0], inequality=lambda x: jnp.exp(x[0]) - 1.0)
    oracles = problem.oracles(np.zeros(1))
    with jax.enable_x64(True):
        far = shortest_certificate(oracles, jnp.array([200.0]), jnp.array([-1e-3]))
    assert far.relative("feasibility") <= 1e-2 and far.feasibility > 1e80
    assert not far.is_kkt(1e-2, relative=True) and far.worst_relative > 1e80
