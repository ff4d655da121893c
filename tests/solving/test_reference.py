"""The paper's data, untuned, against optima that were computed independently.

Needs the LIBSVM files a9a, phishing and australian in the folder that MOSSP_DATA names.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import pytest

import mossp
from mossp import Status, constraints, losses

pytestmark = pytest.mark.slow


METHODS = ("mossp-p", "mossp-r")  # the others: methods/test_matrix.py

LAM, REPLICAS = 0.01, 5
OPTIMA = {"a9a": 0.590736953, "phishing": 0.644830453, "australian": 0.623845135}
# Full gradients of little data cost less than a program of steps would: twice as many are taken.
PASSES = {"a9a": 40, "phishing": 40, "australian": 80}
NONZEROS = {"a9a": 18, "phishing": 10, "australian": 2}
BATCH = {"a9a": 32, "phishing": 32, "australian": 16}


@functools.cache
def data(name):
    """Rows of unit length, labels -1 and +1."""
    folder = os.environ.get("MOSSP_DATA")
    if not folder:
        pytest.skip("MOSSP_DATA does not name a folder with the paper's data")
    if not (Path(folder) / name).is_file():
        pytest.skip(f"{folder} has no file {name}")
    reader = pytest.importorskip("sklearn.datasets", reason="reads LIBSVM files")
    X, y = reader.load_svmlight_file(str(Path(folder) / name))
    X = X.toarray()
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.where(y > 0, 1.0, -1.0)


def start(size):
    x = np.random.default_rng(0).normal(size=size)
    return x / np.linalg.norm(x)


def objective(X, y, x):
    loss = np.logaddexp(0, -y * (X @ x)).mean()
    return loss + LAM * (np.abs(x).sum() - np.linalg.norm(x))


def honest(r):
    """What is claimed holds: success only when every residual is within tol of its scale."""
    assert r.status in (Status.CONVERGED, Status.BUDGET)
    holds = r.certificate.is_kkt(r.tol, relative=True)
    assert r.success == (r.status is Status.CONVERGED) == holds
    return True


# Every set and every method; all of their pairs with MOSSP_ALL_CHECKS=1, ten seconds more.
PAIRS = [("a9a", "mossp-r"), ("phishing", "mossp-p"), *(("australian", m) for m in METHODS)]
if os.environ.get("MOSSP_ALL_CHECKS"):
    PAIRS = [(name, method) for name in OPTIMA for method in METHODS]


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_sphere(name, method):
    X, y = data(name)
    problem = mossp.Problem(
        loss=losses.logistic, data=(X, y), regularizer=mossp.L1MinusL2(LAM),
        equality=constraints.Sphere(),
    )  # fmt: skip
    r = mossp.solve(
        problem, start(X.shape[1]), method=method, steps=25_000, batch_size=BATCH[name],
        replicas=REPLICAS, seed=0,
    )  # fmt: skip
    F = np.array([objective(X, y, x) for x in r.xs])
    violations = np.abs((r.xs**2).sum(axis=1) - 1)
    np.testing.assert_allclose(F, r.funs, atol=1e-12)
    np.testing.assert_allclose(violations, r.violations, atol=1e-12)
    assert abs(F.mean() - OPTIMA[name]) <= 5e-4
    assert violations.mean() <= 5e-3
    assert (r.xs != 0).sum(axis=1).mean() <= 1.5 * NONZEROS[name] + 2
    assert honest(r)
    # After feasibility is restored, no point can be better than the optimum.
    x = mossp.restore(problem, r.x)
    assert abs(x @ x - 1) < 1e-12 and (x[r.x == 0] == 0).all()
    assert -1e-8 <= objective(X, y, x) - OPTIMA[name] <= 1e-3


def random_quadratics(size, count=20):
    """x'diag(Q_j)x / 2 + a_j'x = b_j with a common solution on the sphere."""
    rng = np.random.default_rng(0)
    Q = rng.uniform(0.5, 1.0, (count, size)) / size
    a = rng.normal(size=(count, size)) / np.sqrt(size)
    x = rng.normal(size=size)
    x /= np.linalg.norm(x)
    return Q, a, 0.5 * Q @ x**2 + a @ x


@pytest.mark.parametrize(("name", "method"), [("a9a", "mossp-r"), ("phishing", "mossp-p")])
def test_twenty_quadratic_equalities(name, method):
    X, y = data(name)
    Q, a, b = random_quadratics(X.shape[1])
    problem = mossp.Problem(
        loss=losses.logistic, data=(X, y), regularizer=mossp.L1MinusL2(LAM),
        equality=constraints.DiagonalQuadratics(Q, a, b),
    )  # fmt: skip
    x0 = start(X.shape[1])
    r = mossp.solve(problem, x0, method=method, steps=20_000, batch_size=32, seed=0)
    c = 0.5 * Q @ r.x**2 + a @ r.x - b
    assert np.abs(c).sum() <= 3e-2
    assert r.violation == pytest.approx(np.linalg.norm(c), abs=1e-12)
    assert objective(X, y, r.x) <= objective(X, y, mossp.restore(problem, x0)) + 1e-3
    assert honest(r)


DIFFERENCES = {
    "mcp": (mossp.MCP(LAM, 3.0), {"equality": constraints.Sphere()}),
    "truncated l1": (mossp.TruncatedL1(LAM, 5), {"equality": constraints.Sphere()}),
    "l1-l2 in a ball": (mossp.L1MinusL2(LAM), {"inequality": constraints.Sphere(2.0)}),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_residuals_fall(name):
    X, y = data("phishing")
    regularizer, kind = DIFFERENCES[name]
    problem = mossp.Problem(loss=losses.logistic, data=(X, y), regularizer=regularizer, **kind)
    medians = []
    for steps in (1000, 8000):
        residuals = []
        for method in METHODS:
            r = mossp.solve(
                problem, start(X.shape[1]), method=method, steps=steps, batch_size=32, seed=0
            )
            assert honest(r)
            residuals.append(max(mossp.stationarity(problem, r.x), r.violation))
            assert r.certificate.worst >= r.violation - 1e-12
        medians.append(np.median(residuals))
    assert medians[1] < medians[0]
    assert medians[1] < 2e-2


@pytest.mark.parametrize("name", OPTIMA)
def test_the_default_is_the_optimum(name):
    """As the independent computation has it, to nine digits, with the same nonzeros."""
    X, y = data(name)
    problem = mossp.Problem(
        loss=losses.logistic, data=(X, y), regularizer=mossp.L1MinusL2(LAM),
        equality=constraints.Sphere(),
    )  # fmt: skip
    r = mossp.solve(problem, start(X.shape[1]))
    assert r.success and r.tol == 1e-10
    assert abs(objective(X, y, r.x) - OPTIMA[name]) <= 1e-9 and abs(r.x @ r.x - 1) <= 1e-12
    assert np.count_nonzero(r.x) == NONZEROS[name]
    assert mossp.stationarity(problem, r.x) <= 1e-10
    assert r.gradients <= PASSES[name] * len(y)
