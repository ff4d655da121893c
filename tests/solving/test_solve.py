"""solve: methods on problems with known answers, forms of input.

Of the cases in "What must not break":
 1, 3, 4, 5, 6: test_status.py, test_nonfinite.py.
 2, 9: test_bad_input.py.
 7: regularizers/test_prox.py (test_extreme_steps, test_derivatives_are_finite_...).
 8: regularizers/test_regularizers.py (test_check_finds_planted_mistakes).
10: test_replicas.py (test_same_seed_same_bits, test_shards_agree_with_serial).
12, 13, 14, 15: engine/test_checkpoint.py, base/test_archive.py.
18: test_run.py; no compilation on repeated calls: engine/test_compile.py.
19: test_known_answers (float32 and float64); test_run.py (test_tol_below_precision_warns).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats

import mossp
from mossp import Status
from tests.compilations import compilations
from tests.problems import (
    BATCH,
    TRUTH,
    A,
    N,
    b,
    n,
    plane,
    shrink,
    sphere,
    squared_rows,
    wide_ball,
)
from tests.solving.regression import METHODS, SLOPE, bowl, kkt_solution, linear, regression, solve

pytestmark = pytest.mark.slow

ORTHONORMAL = np.sqrt(N) * np.linalg.qr(A)[0]  # A'A / N = I
DOWNHILL = -np.array(SLOPE) / np.linalg.norm(SLOPE)
ROWS = np.array([[1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.0, 2.0, 0.0, -1.0]])
LEVELS = np.array([3.0, 1.0])


def in_unit_ball():
    H, c = A.T @ A / N, A.T @ b / N
    at = lambda t: np.linalg.solve(H + 2 * t * np.eye(n), c)  # noqa: E731
    return at(scipy.optimize.brentq(lambda t: at(t) @ at(t) - 1, 0, 1e3))


KNOWN = {
    "sphere, linear loss": (
        mossp.Problem(loss=linear, equality=sphere),
        DOWNHILL,
    ),
    "one linear equality": (regression(), kkt_solution(np.ones(n), 3.0)),
    "two linear equalities": (
        regression(equality=mossp.constraints.Linear(ROWS, LEVELS)),
        kkt_solution(ROWS, LEVELS),
    ),
    "active inequality": (regression(equality=None, inequality=sphere), in_unit_ball()),
    "inactive inequality": (
        regression(equality=None, inequality=wide_ball),
        np.linalg.lstsq(A, b, rcond=None)[0],
    ),
    "lasso": (
        regression(data=(ORTHONORMAL, b), equality=None, regularizer=mossp.L1(0.3)),
        shrink(ORTHONORMAL.T @ b / N, 0.3),
    ),
    "no data": (mossp.Problem(loss=bowl, equality=plane), TRUTH + (3 - TRUTH.sum()) / n),
}


SINGLE = ("sphere, linear loss", "two linear equalities", "lasso")


@pytest.mark.parametrize(
    ("method", "name", "dtype"),
    [(m, k, "float64") for k in KNOWN for m in METHODS]
    + [("mossp-r", k, "float32") for k in SINGLE],
)
def test_known_answers(method, name, dtype):
    problem, answer = KNOWN[name]
    steps = 20_000 if name == "two linear equalities" else 3000
    r = solve(problem, method=method, dtype=dtype, steps=steps, tol=3e-2)
    assert r.status is Status.CONVERGED and r.success, r.message
    np.testing.assert_allclose(r.x, answer, atol=3e-2)
    assert r.violation <= r.tol
    assert r.x.dtype == np.float64 and isinstance(r.x, np.ndarray)
    if name == "lasso":
        assert (r.x[answer == 0] == 0).all()
    if name == "inactive inequality":
        assert np.abs(r.certificate.multipliers["inequality"]) == 0


DIFFERENCES = {
    "l1-l2": mossp.L1MinusL2(0.1),
    "capped l1": mossp.CappedL1(0.1, 0.3),
    "mcp": mossp.MCP(0.1, 2.0),
}


@pytest.mark.parametrize(
    ("method", "name"), [("mossp-p", "l1-l2"), *(("mossp-r", name) for name in DIFFERENCES)]
)
def test_differences_of_convex_functions_on_the_sphere(method, name):
    """SciPy, on the support found and from the point found, must have nothing left to do."""
    reg = DIFFERENCES[name]
    problem = regression(regularizer=reg, equality=sphere)
    r = solve(problem, method=method, steps=6000, tol=4e-2)
    assert r.success, r.message
    on = np.flatnonzero(r.x)
    assert 0 < on.size < n

    def at(v):
        x = np.zeros(n)
        x[on] = v
        return x

    def objective(v):
        x = at(v)
        return 0.5 * np.mean((A @ x - b) ** 2) + float(reg(x))

    best = scipy.optimize.minimize(
        objective, r.x[on], method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
        constraints={"type": "eq", "fun": lambda v: v @ v - 1},
    )  # fmt: skip
    x = at(best.x)
    np.testing.assert_allclose(r.x, x, atol=3e-2)
    assert mossp.stationarity(problem, x) < 1e-4


def test_sparse_equals_dense():
    few = np.where(np.abs(A) > 0.8, A, 0.0)
    few[7] = 0.0  # an empty row
    reg = mossp.L1(0.01)
    dense = solve(regression(data=(few, b), regularizer=reg))
    for convert in (scipy.sparse.csr_matrix, scipy.sparse.csc_array):
        problem = regression(data=(convert(few), b), regularizer=reg)
        compilations.clear()
        sparse = solve(problem)
        assert not compilations or convert is scipy.sparse.csr_matrix
        np.testing.assert_allclose(sparse.x, dense.x, atol=1e-8)
        assert sparse.fun == pytest.approx(dense.fun, abs=1e-10)


def tree_loss(x, batch):
    v = jnp.concatenate([x["bias"][None], x["w"].ravel()])
    return 0.5 * jnp.mean((batch[0] @ v - batch[1]) ** 2)


def tree_plane(x):
    return {"sum": x["bias"] + x["w"].sum() - 3.0}


def test_pytree_equals_vector():
    tree = {"bias": np.array(0.3), "w": np.full((5, 1), 0.3)}
    problem = mossp.Problem(loss=tree_loss, data=(A, b), equality=tree_plane)
    r = solve(problem, tree)
    v = solve(mossp.Problem(loss=squared_rows, data=(A, b), equality=plane))
    assert tree["bias"] == 0.3 and (tree["w"] == 0.3).all()
    assert set(r.x) == {"bias", "w"} and r.x["bias"].shape == () and r.x["w"].shape == (5, 1)
    np.testing.assert_allclose(np.append(r.x["bias"], r.x["w"]), v.x, atol=1e-10)
    assert r.xs["w"].shape == (1, 5, 1) and r.xs["bias"].shape == (1,)
    assert set(r.certificate.multipliers["equality"]) == {"sum"}
    again = solve(problem, r, steps=500)
    np.testing.assert_allclose(again.x["w"], r.x["w"], atol=5e-2)


def test_blocks_leave_the_other_parts_alone():
    tree = {"bias": np.array(0.0), "w": np.zeros((5, 1))}
    problem = mossp.Problem(
        loss=tree_loss, data=(ORTHONORMAL, b), regularizer=mossp.Blocks({"w": mossp.L1(0.3)})
    )
    r = solve(problem, tree)
    wanted = ORTHONORMAL.T @ b / N
    wanted[1:] = shrink(wanted[1:], 0.3)
    np.testing.assert_allclose(np.append(r.x["bias"], r.x["w"]), wanted, atol=3e-2)


def gaussian_rows(key, count):
    Z = jax.random.normal(key, (count, n))
    return Z, Z @ jnp.array(TRUTH.tolist())


def test_sampler():
    problem = regression(data=mossp.Sampler(gaussian_rows))
    r = solve(problem, tol=5e-2)
    np.testing.assert_allclose(r.x, TRUTH + (3 - TRUTH.sum()) / n, atol=5e-2)  # E[Z Z'] = I
    assert r.certificate.samples and r.certificate.form == "witness"
    assert r.success, r.message


def batches():
    return [(A[i : i + BATCH], b[i : i + BATCH]) for i in range(0, N, BATCH)]  # the last is short


def test_stream_of_a_list():
    r = solve(regression(data=mossp.Stream(batches())), batch_size=None, tol=5e-2)
    np.testing.assert_allclose(r.x, kkt_solution(np.ones(n), 3.0), atol=5e-2)
    assert r.steps == 3000 and r.settings["batch_size"] == BATCH


def test_stream_of_a_generator_ends_the_run():
    source = (batches()[i % 12] for i in range(300))
    r = solve(regression(data=mossp.Stream(source)), batch_size=None)
    assert r.status is Status.STOPPED and not r.success
    assert 200 < r.steps <= 300 and "stream" in r.message
    assert np.isnan(r.certificate.criticality)  # nothing fresh is left to judge by
    assert np.isfinite(r.x).all() and np.isfinite(r.violation)
    assert (np.diff(r.trace.steps) >= 0).all()


def test_stream_batch_size_must_agree():
    with pytest.raises(ValueError, match="16 rows"):
        solve(regression(data=mossp.Stream(batches())), batch_size=8)


def test_start_at_the_centre_of_the_sphere():
    r = solve(mossp.Problem(loss=linear, equality=sphere), np.zeros(n))
    assert r.success, r.message
    np.testing.assert_allclose(r.x, DOWNHILL, atol=3e-2)


def test_warm_start():
    problem = regression(regularizer=mossp.L1(0.01))
    first = solve(problem)
    second = solve(problem, first, steps=500)
    cold = solve(problem, first.x, steps=500)
    assert np.array_equal(second.x, cold.x)
    assert second.fun <= first.fun + 1e-3
