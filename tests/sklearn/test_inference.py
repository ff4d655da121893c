"""Standard errors on the support, against closed formulas."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.special

from mossp.sklearn import MoSSPClassifier, MoSSPRegressor
from mossp.sklearn.inference import sandwich

rng = np.random.default_rng(0)
N = 200
X = rng.normal(size=(N, 3))
Y = X @ np.array([0.8, -0.5, 0.0]) + (0.5 + np.abs(X[:, 0])) * rng.normal(size=N) + 1.0
SIGN = np.where(X[:, 0] - 0.3 + rng.logistic(size=N) > 0, "yes", "no")


def white(A, e, w):
    """HC0 of least squares with weights: (A'WA)^-1 A'W e e' W A (A'WA)^-1."""
    bread = np.linalg.inv(A.T @ (w[:, None] * A))
    meat = A.T @ ((w * e)[:, None] ** 2 * A)
    return bread @ meat @ bread


@pytest.mark.parametrize("weighted", [False, True])
def test_least_squares_has_whites_errors(weighted):
    w = rng.uniform(0.5, 2.0, N) if weighted else np.ones(N)
    model = MoSSPRegressor(regularizer="none", inference=True).fit(X, Y, sample_weight=w)
    A = np.column_stack([X, np.ones(N)])
    expected = white(A, Y - model.predict(X), w)
    np.testing.assert_allclose(model.inference_.covariance, expected, rtol=1e-6, atol=1e-12)
    found = model.inference_
    assert found.names == ("x[0]", "x[1]", "x[2]", "intercept")
    assert found.p_values[0] < 1e-3 < found.p_values[2]
    np.testing.assert_allclose(found.high - found.coef, 1.959964 * found.standard_errors, rtol=1e-5)
    assert "Conditional on the selected support" in repr(found)


def test_logistic_regression_on_sparse_rows():
    model = MoSSPClassifier(regularizer="none", inference=True).fit(
        scipy.sparse.csr_matrix(X), SIGN
    )
    A, p = np.column_stack([X, np.ones(N)]), model.predict_proba(X)[:, 1]
    bread = np.linalg.inv(A.T @ ((p * (1 - p))[:, None] * A))
    meat = A.T @ (((SIGN == "yes") - p)[:, None] ** 2 * A)
    np.testing.assert_allclose(
        model.inference_.covariance, bread @ meat @ bread, rtol=1e-6, atol=1e-12
    )


def test_active_constraints_take_their_directions_out():
    tied = MoSSPRegressor(regularizer="none", equality="x[0] + x[1] = 1", inference=True).fit(X, Y)
    # y - x1 = b0 (x0 - x1) + b2 x2 + const, and b1 = 1 - b0
    A = np.column_stack([X[:, 0] - X[:, 1], X[:, 2], np.ones(N)])
    small = white(A, Y - tied.predict(X), np.ones(N))
    errors = np.sqrt(np.diag(small))
    np.testing.assert_allclose(tied.inference_.standard_errors, errors[[0, 0, 1, 2]], rtol=1e-6)
    held = MoSSPRegressor(regularizer="none", inequality="x[0] <= 0.1", inference=True).fit(X, Y)
    assert held.inference_.standard_errors[0] == pytest.approx(0, abs=1e-12)
    assert np.isnan(held.inference_.p_values[0])
    free = MoSSPRegressor(regularizer="none", inequality="x[0] <= 99", inference=True).fit(X, Y)
    plain = MoSSPRegressor(regularizer="none", inference=True).fit(X, Y)
    np.testing.assert_allclose(
        free.inference_.covariance, plain.inference_.covariance, rtol=1e-5, atol=1e-10
    )


def test_only_the_support_has_errors():
    model = MoSSPRegressor(lam=0.2, inference=True).fit(X, Y)
    kept = np.flatnonzero(model.coef_)
    assert len(kept) < 3
    A = np.column_stack([X[:, kept], np.ones(N)])
    e = Y - model.predict(X)
    bread = np.linalg.inv(A.T @ A)
    scores = A * e[:, None]
    meat = N * np.cov(scores.T, ddof=0)  # at a penalised answer their mean is not 0
    np.testing.assert_allclose(model.inference_.covariance, bread @ meat @ bread, rtol=1e-6)
    ridge = MoSSPRegressor(regularizer="ridge:0.5", inference=True).fit(X, Y)
    assert (ridge.inference_.standard_errors[:3]
            < MoSSPRegressor(regularizer="none", inference=True).fit(X, Y)
            .inference_.standard_errors[:3]).all()  # fmt: skip


def test_what_rows_do_not_determine_is_nan():
    V = sandwich(np.diag([1.0, 0.0]), np.eye(2), np.eye(2), 10)
    assert V[0, 0] == pytest.approx(0.1) and np.isnan(V[1, 1])


def test_no_errors_under_rates():
    with pytest.raises(ValueError, match="no standard errors under rates"):
        MoSSPClassifier(rates="fpr <= 0.1", inference=True).fit(X, SIGN)
    assert not hasattr(MoSSPRegressor(lam=0.1).fit(X, Y), "inference_")
