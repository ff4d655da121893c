"""solve: methods on problems with known answers, forms of input, replicas, budgets, callbacks.

Of the cases in "What must not break":
 2 test_bad_input_is_refused_before_any_compilation    (NaN at x0)
 9 test_a_wrong_gradient_is_found
10 test_same_seed_same_bits, test_shards_agree_with_serial
18 test_memory_stays_constant, test_errors_in_a_callback_propagate, test_inputs_are_not_modified;
   no compilation on repeated calls: test_compile.py
19 test_known_answers (float32 and float64), test_tol_below_precision_warns
 1, 3, 4, 5, 6: test_status.py.   12, 13, 14, 15: test_checkpoint.py.
 7: test_prox.py (test_extreme_steps, test_derivatives_are_finite_...).
 8: test_regularizers.py (test_check_finds_planted_mistakes).
"""

from __future__ import annotations

import importlib
import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats

import mossp
import mossp.engine.loop
from mossp import Status, losses, schedules
from mossp.data import NoData
from mossp.engine.draws import Draws
from mossp.solving.arguments import checked_batch_size
from mossp.solving.verdict import best_replica

METHODS = ("mossp-p", "mossp-r")  # the others: test_matrix.py

# One shape for nearly all tests, so that programs are shared.
N, n, BATCH = 200, 6, 16
rng = np.random.default_rng(0)
TRUTH = np.array([1.0, 0.0, 0.0, 2.0, 0.0, -1.0])
A = rng.normal(size=(N, n))
b = A @ TRUTH + 0.1 * rng.normal(size=N)
ORTHONORMAL = np.sqrt(N) * np.linalg.qr(A)[0]  # A'A / N = I
START = np.full(n, 0.3)
SLOPE = [3.0, -1.0, 0.5, 2.0, 0.0, 1.0]
DOWNHILL = -np.array(SLOPE) / np.linalg.norm(SLOPE)
ROWS = np.array([[1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.0, 2.0, 0.0, -1.0]])
LEVELS = np.array([3.0, 1.0])


# A NumPy array that a function captures must not be met in both precisions (a fault of JAX, see
# test_status.py): hence jnp.array of lists here.


def linear(x):
    return jnp.array(SLOPE) @ x


def bowl(x):
    return 0.5 * jnp.sum((x - jnp.array(TRUTH.tolist())) ** 2)


def sphere(x):
    return x @ x - 1.0


def wide_ball(x):
    return x @ x - 100.0


def plane(x):
    return x.sum() - 3.0


def solve(problem, x0=START, **settings):
    defaults = {"method": "mossp-r", "steps": 3000, "batch_size": BATCH, "seed": 0, "tol": 2e-2}
    return mossp.solve(problem, x0, **{**defaults, **settings})


def regression(**changes):
    """L1(0) is no regularisation, but shares its program with L1(0.01)."""
    given = {"loss": losses.squared, "data": (A, b), "equality": plane}
    return mossp.Problem(**{**given, "regularizer": mossp.L1(0.0), **changes})


def kkt_solution(rows, levels):
    """argmin of the squared loss subject to rows x = levels."""
    rows, levels = np.atleast_2d(rows), np.atleast_1d(levels)
    m = len(levels)
    K = np.block([[A.T @ A / N, rows.T], [rows, np.zeros((m, m))]])
    return np.linalg.solve(K, np.concatenate([A.T @ b / N, levels]))[:n]


def in_unit_ball():
    H, c = A.T @ A / N, A.T @ b / N
    at = lambda t: np.linalg.solve(H + 2 * t * np.eye(n), c)  # noqa: E731
    return at(scipy.optimize.brentq(lambda t: at(t) @ at(t) - 1, 0, 1e3))


def soft(v, t):
    return np.sign(v) * np.maximum(np.abs(v) - t, 0)


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
        soft(ORTHONORMAL.T @ b / N, 0.3),
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


def vector_loss(x, batch):
    return 0.5 * jnp.mean((batch[0] @ x - batch[1]) ** 2)


def tree_plane(x):
    return {"sum": x["bias"] + x["w"].sum() - 3.0}


def test_pytree_equals_vector():
    tree = {"bias": np.array(0.3), "w": np.full((5, 1), 0.3)}
    problem = mossp.Problem(loss=tree_loss, data=(A, b), equality=tree_plane)
    r = solve(problem, tree)
    v = solve(mossp.Problem(loss=vector_loss, data=(A, b), equality=plane))
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
    wanted[1:] = soft(wanted[1:], 0.3)
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


# Replicas and random numbers ------------------------------------------------------------------


def test_a_replica_does_not_depend_on_its_company():
    problem = regression(regularizer=mossp.L1(0.01))
    five = solve(problem, replicas=5)
    assert five.xs.shape == (5, n) and five.funs.shape == five.violations.shape == (5,)
    for count in (1, 2):
        fewer = solve(problem, replicas=count)
        np.testing.assert_allclose(fewer.xs, five.xs[:count], atol=1e-10, rtol=0)
    assert len({x.tobytes() for x in five.xs}) == 5


@pytest.mark.parametrize("output", ["last", "random", "best"])
def test_the_best_replica_is_returned(output):
    problem = regression(regularizer=mossp.L1(0.01))
    r = solve(problem, replicas=5, steps=400, output=output)
    feasible = r.violations <= r.tol
    scores = np.where(feasible, r.funs, np.inf) if feasible.any() else r.violations
    best = int(np.argmin(scores))
    assert np.array_equal(r.x, r.xs[best])
    assert (r.fun, r.violation) == (r.funs[best], r.violations[best])
    assert r.certificate.feasibility == pytest.approx(r.violation, abs=1e-12)
    for x, F, v in zip(r.xs, r.funs, r.violations, strict=True):
        assert (
            pytest.approx(F, abs=1e-12) == 0.5 * np.mean((A @ x - b) ** 2) + 0.01 * np.abs(x).sum()
        )
        assert v == pytest.approx(abs(x.sum() - 3), abs=1e-12)


@pytest.mark.parametrize("replicas", [3, 4, 5])
def test_replicas_without_constraints(replicas):
    """With the random outputs, 2 x replicas points are judged, and no multipliers with them."""
    problem = mossp.Problem(loss=bowl, regularizer=mossp.L1(0.0))
    r = solve(problem, replicas=replicas, steps=500)
    assert r.success and r.xs.shape == (replicas, n), r.message


def test_best_replica_rule():
    def best(funs, violations, bad=(0, 0, 0)):
        return best_replica(np.array(funs), np.array(violations), np.array(bad, bool), 0.1)

    assert best([3.0, 1.0, 2.0], [0.0, 0.2, 0.1]) == 2  # 1 is infeasible, 2 just feasible
    assert best([3.0, 1.0, 2.0], [0.5, 0.4, 0.3]) == 2  # none is feasible
    assert best([3.0, 1.0, 2.0], [0.0, 0.0, 0.0], [0, 1, 0]) == 2
    assert best([3.0, np.nan, 2.0], [0.0, 0.0, 0.0]) == 2
    # F is not known where a stream has ended; the violations are.
    assert best([np.nan] * 3, [0.5, 0.0, 0.3]) == 1
    assert best([np.nan] * 3, [0.5, 0.4, 0.3]) == 2
    assert best([np.nan] * 3, [np.nan, 0.2, 0.1], [1, 1, 1]) == 2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_same_seed_same_bits(dtype):
    problem = regression()
    a, c, other = (solve(problem, dtype=dtype, seed=s, replicas=2) for s in (3, 3, 4))
    assert np.array_equal(a.xs, c.xs) and a.fun == c.fun
    assert np.array_equal(a.trace.objective, c.trace.objective)
    assert not np.array_equal(a.xs, other.xs)
    fresh = solve(regression(), dtype=dtype, seed=3, replicas=2)
    assert np.array_equal(a.xs, fresh.xs)


def test_large_seeds_are_told_apart():
    problem = regression(regularizer=mossp.L1(0.01))
    a, c = (solve(problem, seed=s, steps=200) for s in (2**53, 2**53 + 1))
    assert not np.array_equal(a.x, c.x)


def test_shards_agree_with_serial(monkeypatch):
    problem = regression(regularizer=mossp.L1(0.01))
    found = {}
    for cores in (1, 2, 4):
        monkeypatch.setattr(mossp.engine.loop, "available_cores", lambda cores=cores: cores)
        found[cores] = solve(problem, replicas=4, output="random")
    for cores in (2, 4):
        np.testing.assert_allclose(found[cores].xs, found[1].xs, atol=1e-10, rtol=0)
        assert found[cores].steps == found[1].steps


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("output", ["last", "random"])
def test_chunk_length_changes_nothing(monkeypatch, dtype, output):
    problem = regression(regularizer=mossp.L1(0.01))
    settings = {"dtype": dtype, "output": output, "replicas": 2, "steps": 700}
    whole = solve(problem, **settings)
    for length in (1, 7, 10_000):
        monkeypatch.setattr(mossp.engine.loop, "FIRST_CHUNK", length)
        monkeypatch.setattr(mossp.engine.loop, "CHUNK_SECONDS", 0.0)
        r = solve(problem, **settings)
        assert np.array_equal(r.xs, whole.xs)
        assert np.array_equal(r.trace.objective, whole.trace.objective)
        assert r.certificate.criticality == whole.certificate.criticality


def test_estimators_with_alpha_one_are_plain():
    problem = regression(regularizer=mossp.L1MinusL2(0.05), equality=sphere)
    schedule = schedules.Constant(rho=5.0, mu=0.02, alpha=1.0)
    xs = [
        solve(problem, method=mossp.MoSSP(momentum=m), schedule=schedule, steps=400).x
        for m in (mossp.Plain(), mossp.Polyak(), mossp.Recursive())
    ]
    np.testing.assert_allclose(xs[1], xs[0], atol=1e-10)
    np.testing.assert_allclose(xs[2], xs[0], atol=1e-10)


# Outputs --------------------------------------------------------------------------------------


def kept_step(draws, replica, K):
    """The step whose witness is the random output after K steps."""
    found = -1
    for k in range(K):
        block = draws.containing(k)
        if block.kept[replica, k - block.first]:
            found = k
    return found


@pytest.mark.parametrize("batch_size", [1, 2**20])  # K steps in one block, and in three
def test_the_random_step_is_uniform(batch_size):
    K, replicas = 12, 3000
    draws = Draws(NoData(), 0, 0, replicas, batch_size, np.float64)
    assert draws.length >= K if batch_size == 1 else draws.length == 4
    kept = np.concatenate(
        [draws.containing(k).kept[:, k - draws.containing(k).first, None] for k in range(K)], axis=1
    )
    assert kept[:, 0].all()
    last = K - 1 - np.argmax(kept[:, ::-1], axis=1)
    counts = np.bincount(last, minlength=K)
    chi2 = ((counts - replicas / K) ** 2 / (replicas / K)).sum()
    assert chi2 < scipy.stats.chi2.ppf(0.999, K - 1)


def test_the_random_step_is_uniform_over_seeds():
    K, seeds = 5, 2000
    last = []
    for seed in range(seeds):
        kept = Draws(NoData(), seed, 0, 1, 2**18, np.float64).containing(0).kept[0, :K]
        last.append(np.flatnonzero(kept)[-1])
    counts = np.bincount(last, minlength=K)
    chi2 = ((counts - seeds / K) ** 2 / (seeds / K)).sum()
    assert chi2 < scipy.stats.chi2.ppf(0.999, K - 1)


def test_random_output_is_the_iterate_of_its_step():
    problem = regression(regularizer=mossp.L1(0.01))
    schedule = schedules.Constant(rho=5.0, mu=0.02, alpha=0.1)
    source = problem.source(np.float64)
    stops = set()
    for seed in range(4):
        R = kept_step(Draws(source, seed, 0, 1, BATCH, np.float64), 0, 300)
        drawn = solve(problem, seed=seed, steps=300, schedule=schedule, output="random")
        until = solve(problem, seed=seed, steps=R + 1, schedule=schedule)
        assert np.array_equal(drawn.x, until.x)
        stops.add(R)
    assert len(stops) > 1


def test_best_output_is_the_best_traced_point():
    problem = regression(regularizer=mossp.L1(0.01))
    schedule = schedules.Constant(rho=2.0, mu=0.05, alpha=1.0)
    r = solve(problem, steps=320, schedule=schedule, output="best", replicas=2, tol=0.2)
    for j in range(2):
        F, v = r.trace.objective[1:, j], r.trace.violation[1:, j]
        wanted = F[v <= 0.2].min() if (v <= 0.2).any() else F[np.argmin(v)]
        assert r.funs[j] == pytest.approx(wanted, abs=1e-12)
    last = solve(problem, steps=320, schedule=schedule, replicas=2, tol=0.2)
    assert not np.array_equal(last.xs, r.xs)


# Budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [500, 2002, 16_000])
@pytest.mark.parametrize("method", METHODS)
def test_budget_in_gradients(method, budget):
    r = solve(regression(), method=method, steps=None, gradients=budget)
    a_step = BATCH * (2 if method == "mossp-r" else 1)
    assert r.gradients <= budget < r.gradients + a_step + BATCH


@pytest.mark.parametrize("method", METHODS)
def test_budget_in_gradients_and_steps(method):
    """Whichever is used up first."""
    r = solve(regression(), method=method, steps=3000, gradients=1000)
    assert r.gradients <= 1000 and r.steps < 100
    r = solve(regression(), method=method, steps=20, gradients=1_000_000)
    assert r.steps == 20
    with pytest.raises(ValueError, match="gradients"):
        solve(regression(), method=method, steps=3000, gradients=3)


def test_budget_in_gradients_counts_full_gradients():
    svrg = mossp.MoSSP(momentum=mossp.SVRG())
    r = solve(regression(), method=svrg, steps=None, gradients=5000)
    assert 4000 < r.gradients <= 5000


@pytest.mark.parametrize("method", METHODS)
def test_budget_in_seconds(method):
    schedule = schedules.Constant(rho=5.0, mu=0.02, alpha=0.1)
    settings = {"method": method, "schedule": schedule}
    solve(regression(), **settings)
    r = solve(regression(), steps=None, seconds=0.4, **settings)
    assert 0.4 <= r.seconds < 2.0 and r.steps > 256
    assert r.status in (Status.BUDGET, Status.CONVERGED)
    assert r.trace.steps[-1] == r.steps
    r = solve(regression(), steps=100, seconds=60.0, **settings)
    assert r.steps == 100 and r.seconds < 10


def test_budget_in_seconds_needs_a_schedule_without_horizon():
    with pytest.raises(ValueError, match="seconds"):
        solve(regression(), steps=None, seconds=0.4, schedule="theorem")


@pytest.mark.parametrize(
    ("momentum", "a_step", "full"),
    [
        (mossp.Plain(), 1, 0),
        (mossp.Polyak(), 1, 0),
        (mossp.Recursive(), 2, 0),
        (mossp.SVRG(epoch=50), 2, 2),
    ],
    ids=["Plain", "Polyak", "Recursive", "SVRG"],
)
def test_count_of_gradients(momentum, a_step, full):
    """b0 - B samples before the first step, a_step mini-batches a step, N an anchor."""
    method = mossp.MoSSP(momentum=momentum)
    r = solve(regression(), method=method, steps=100)
    assert r.gradients == BATCH + 100 * a_step * BATCH + full * N  # "auto" needs one to start from
    assert r.trace.gradients[-1] == r.gradients
    r = solve(regression(), method=method, steps=100, schedule=schedules.Constant(rho=5.0, mu=0.02))
    assert r.gradients == 100 * a_step * BATCH + full * N


def test_default_budget_and_batch():
    r = mossp.solve(regression(), START, method="mossp-r")
    assert r.steps == 2000 and r.settings["batch_size"] == 32 and r.tol == 1e-2
    r = mossp.solve(regression(), START)
    assert r.success and r.steps < 2000 and r.tol == 1e-10
    assert checked_batch_size(regression(data=(A[:9], b[:9])), None) == 9
    assert solve(mossp.Problem(loss=bowl, equality=plane), steps=None).steps == 10_000


@pytest.mark.parametrize(
    "schedule", ["theorem", "corollary", "indexed", "paper", "paper-averaging"]
)
@pytest.mark.parametrize("method", METHODS)
def test_every_schedule_makes_progress(method, schedule):
    r = solve(regression(), method=method, schedule=schedule, steps=4000)
    assert r.status in (Status.BUDGET, Status.CONVERGED)
    assert r.fun < 0.5 * np.mean((A @ START - b) ** 2)
    assert r.violation < 1.0


# Callbacks, output, configuration -------------------------------------------------------------


def test_callback_sees_the_run_and_stops_it():
    seen = []

    def stop_late(progress):
        seen.append(progress)
        return progress.step >= 500

    r = solve(regression(), callback=stop_late, replicas=2)
    assert r.status is Status.STOPPED and r.steps == seen[-1].step >= 500 and r.steps < 3000
    assert [p.step for p in seen] == sorted({p.step for p in seen})
    assert seen[-1].x.shape == (2, n) and seen[-1].objective.shape == (2,)
    assert seen[-1].violation.shape == (2,) and seen[-1].gradients == r.gradients
    assert np.array_equal(seen[-1].x, r.xs)


def test_callback_may_raise_stop_iteration():
    def stop(progress):
        raise StopIteration

    r = solve(regression(), callback=stop)
    assert r.status is Status.STOPPED and r.steps < 3000


@pytest.mark.parametrize("value", [None, False, 0, 1, "yes", np.array([1, 2])])
def test_only_true_stops(value):
    r = solve(regression(), steps=320, callback=lambda progress: value)
    assert r.steps == 320


def test_callback_may_return_a_numpy_bool():
    """`return progress.violation.max() < 1` gives one; it must not be ignored in silence."""
    r = solve(regression(), callback=lambda progress: progress.step > np.float64(0.5))
    assert r.status is Status.STOPPED and r.steps < 3000


def test_errors_in_a_callback_propagate():
    def broken(progress):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        solve(regression(), callback=broken, replicas=2)
    assert not jax.config.jax_enable_x64
    assert solve(regression(), steps=320).steps == 320  # and nothing is left broken


def test_callback_runs_in_the_callers_precision():
    seen = []
    solve(regression(), callback=lambda progress: seen.append(jnp.zeros(2).dtype))
    assert set(seen) == {np.dtype("float32")}
    with jax.enable_x64(True):
        seen.clear()
        solve(
            regression(), dtype="float32",
            callback=lambda progress: seen.append(jnp.zeros(2).dtype),
        )  # fmt: skip
        assert set(seen) == {np.dtype("float64")}
        assert jax.config.jax_enable_x64
    assert not jax.config.jax_enable_x64


def test_the_answer_does_not_depend_on_the_callers_precision():
    problem = regression(regularizer=mossp.L1(0.01))
    outside = {d: solve(problem, dtype=d).x for d in ("float32", "float64")}
    with jax.enable_x64(True):
        for dtype, x in outside.items():
            assert np.array_equal(solve(problem, dtype=dtype).x, x)
            fresh = regression(regularizer=mossp.L1(0.01))
            assert np.array_equal(solve(fresh, dtype=dtype).x, x)


def test_silent_unless_asked(capfd):
    solve(regression(), replicas=2)
    out, err = capfd.readouterr()
    assert out == "" and err == ""
    solve(regression(), progress=True)
    out, err = capfd.readouterr()
    assert out + err != ""


def test_inputs_are_not_modified():
    X, y, x0 = A.copy(), b.copy(), START.copy()
    problem = regression(data=(X, y))
    r = solve(problem, x0)
    assert np.array_equal(X, A) and np.array_equal(y, b) and np.array_equal(x0, START)
    r.x[:] = 7.0  # what is handed out is the caller's
    assert np.array_equal(x0, START)
    X[:] = 0.0  # and what came in is copied
    assert np.array_equal(solve(problem, x0).x, solve(regression()).x)


def test_works_outside_of_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(solve(regression(), replicas=2)))
    thread.start()
    thread.join()
    assert np.array_equal(found[0].xs, solve(regression(), replicas=2).xs)


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-15), ("float32", 1e-6)])
def test_tol_below_precision_warns(dtype, tol):
    with pytest.warns(UserWarning, match="below what float") as caught:
        r = solve(regression(), dtype=dtype, tol=tol, steps=320)
    assert "mossp/" not in caught[0].filename.split("src")[-1]  # the caller's line is shown
    assert not r.success


def test_trace():
    r = solve(regression(), steps=3001, replicas=2)
    t = r.trace
    rows = len(t.steps)
    assert 30 <= rows <= 40 and t.steps[0] == 0 and t.steps[-1] == 3001 and t.rows == N
    assert t.gradients.shape == t.seconds.shape == (rows,)
    assert t.objective.shape == t.violation.shape == t.proximity.shape == (rows, 2)
    assert (np.diff(t.steps) > 0).all() and (np.diff(t.gradients) > 0).all()
    assert (np.diff(t.seconds) >= 0).all() and t.seconds[-1] <= r.seconds
    np.testing.assert_allclose(t.objective[-1], r.funs, atol=1e-12)
    np.testing.assert_allclose(t.violation[-1], r.violations, atol=1e-12)


def test_one_step_has_a_trace():
    r = solve(regression(), steps=1)
    assert r.trace.steps.tolist() == [0, 1] and np.isfinite(r.fun)


def test_trace_of_many_rows_is_sampled_and_fun_is_exact():
    many = np.random.default_rng(5).normal(size=(5000, n))
    target = many @ TRUTH + 1.0
    r = solve(regression(data=(many, target)), steps=320)
    assert r.trace.rows == 2048
    assert r.fun == pytest.approx(0.5 * np.mean((many @ r.x - target) ** 2), rel=1e-12)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_memory_stays_constant():
    sizes = []
    problem = regression(regularizer=mossp.L1(0.01))
    solve(problem, steps=10_000, output="random")
    r = solve(
        problem, steps=100_000, output="random",
        callback=lambda progress: sizes.append(resident_bytes()),
    )  # fmt: skip
    assert r.steps == 100_000 and len(sizes) >= 30
    assert max(sizes) - sizes[2] < 16 * 2**20


# Bad input ------------------------------------------------------------------------------------

compilations: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compilations.append(event) if "backend_compile" in event else None
)

# A shape of their own, so that no earlier test has compiled for it. A Problem copies its data to
# the device, which counts as a compilation the first time: `on_the_device` does that beforehand.
X7, y7, x7 = rng.normal(size=(33, 7)), rng.normal(size=33), np.zeros(7)


def rows7(x, batch):
    return 0.5 * jnp.mean((batch[0] @ x - batch[1]) ** 2)


def with_numpy(x, batch):
    return np.mean(np.asarray(batch[0] @ x))


def not_a_scalar(x, batch):
    return batch[0] @ x


def equal(x):
    return x @ x == 1.0


def branches(x):
    return x.sum() if x[0] > 0 else x.sum() - 1.0


def seven(problem=None, x0=x7, **settings):
    problem = problem or mossp.Problem(loss=rows7, data=(X7, y7))
    return mossp.solve(problem, x0, **settings)


def stated(**changes):
    return mossp.Problem(**{"loss": rows7, "data": (X7, y7), **changes})


def penalised(regularizer):
    return seven(stated(regularizer=regularizer))


def on_the_device():
    """Copies the data there, for which JAX compiles small programs the first time."""
    stated()
    stated(data=(scipy.sparse.csr_matrix(X7), y7))


BAD = {
    "not a problem": lambda: mossp.solve(rows7, x7),
    "loss is no function": lambda: stated(loss=3.0),
    "constraint is no function": lambda: stated(equality=np.zeros(7)),
    "regulariser is a number": lambda: stated(regularizer=0.1),
    "NaN in data": lambda: stated(data=(np.where(X7 > 2, np.nan, X7), y7)),
    "NaN in sparse data": lambda: stated(data=(scipy.sparse.csr_matrix(X7 * np.nan), y7)),
    "text in data": lambda: stated(data=(X7, y7.astype(str))),
    "lengths differ": lambda: stated(data=(X7, y7[:-1])),
    "no rows": lambda: stated(data=(X7[:0], y7[:0])),
    "labels 0 and 1": lambda: stated(loss=losses.logistic, data=(X7, (y7 > 0).astype(float))),
    "negative lam": lambda: stated(regularizer=mossp.L1(-1.0)),
    "NaN at x0": lambda: seven(x0=np.full(7, np.nan)),
    "infinite x0": lambda: seven(x0=np.full(7, np.inf)),
    "empty x0": lambda: seven(x0=np.zeros(0)),
    "text as x0": lambda: seven(x0="zeros"),
    "complex x0": lambda: seven(x0=np.zeros(7, complex)),
    "x0 of another size": lambda: seven(x0=np.zeros(8)),
    "x0 is a list of numbers": lambda: seven(x0=[0.0] * 7),
    "x0 of another size, ready loss": lambda: seven(stated(loss=losses.squared), np.zeros(8)),
    "x0 of another size, sparse": lambda: seven(
        stated(data=(scipy.sparse.csr_matrix(X7), y7)), np.zeros(8)
    ),
    "weights of another size": lambda: penalised(mossp.Weighted(mossp.L1(1.0), np.ones(8))),
    "groups of another size": lambda: penalised(mossp.Group(mossp.L1(1.0), [0, 0, 1])),
    "bounds of another size": lambda: penalised(
        mossp.Box(mossp.L1(1.0), np.zeros(8), np.ones(8))
    ),
    "block that x has not": lambda: penalised(mossp.Blocks({"w": mossp.L1(1.0)})),
    "loss is not a scalar": lambda: seven(stated(loss=not_a_scalar)),
    "loss with NumPy": lambda: seven(stated(loss=with_numpy)),
    "loss takes no batch": lambda: seven(stated(loss=bowl)),
    "loss needs a batch": lambda: seven(mossp.Problem(loss=rows7)),
    "constraint is a comparison": lambda: seven(stated(equality=equal)),
    "constraint branches": lambda: seven(stated(inequality=branches)),
    "unknown method": lambda: seven(method="mosp"),
    "method is a class": lambda: seven(method=mossp.MoSSP),
    "method is a list": lambda: seven(method=["mossp-r"]),
    "unknown schedule": lambda: seven(schedule="best"),
    "unknown output": lambda: seven(output="first"),
    "unknown dtype": lambda: seven(dtype="float16"),
    "dtype is nonsense": lambda: seven(dtype="quick"),
    "steps = 0": lambda: seven(steps=0),
    "steps = 1.5": lambda: seven(steps=1.5),
    "steps = True": lambda: seven(steps=True),
    "steps infinite": lambda: seven(steps=float("inf")),
    "steps NaN": lambda: seven(steps=float("nan")),
    "steps is text": lambda: seven(steps="many"),
    "gradients = 0": lambda: seven(gradients=0),
    "too few gradients": lambda: seven(gradients=5),
    "seconds = 0": lambda: seven(seconds=0),
    "seconds NaN": lambda: seven(steps=100, seconds=float("nan")),
    "seconds with auto": lambda: seven(seconds=1.0, method="mossp-r"),
    "batch_size = 0": lambda: seven(batch_size=0),
    "batch_size = 2.5": lambda: seven(batch_size=2.5),
    "replicas = 0": lambda: seven(replicas=0),
    "seed = -1": lambda: seven(seed=-1),
    "seed too large": lambda: seven(seed=2**64),
    "seed is None": lambda: seven(seed=None),
    "tol = 0": lambda: seven(tol=0.0),
    "tol < 0": lambda: seven(tol=-1e-3),
    "tol NaN": lambda: seven(tol=float("nan")),
    "tol is text": lambda: seven(tol="small"),
    "callback is no function": lambda: seven(callback=3),
    "resume is nonsense": lambda: seven(resume="maybe"),
    "checkpoint is a folder": lambda: seven(checkpoint="/tmp"),
    "checkpoint in no folder": lambda: seven(checkpoint="/nowhere/at/all.npz"),
    "checkpoint is a number": lambda: seven(checkpoint=3.5),
    "beta = 0": lambda: mossp.MoSSP(beta=0.0),
    "alpha = 2": lambda: mossp.Polyak(2.0),
    "alpha = 0": lambda: mossp.Recursive(0.0),
    "mu = 0": lambda: schedules.Constant(rho=1.0, mu=0.0),
    "Sampler of no function": lambda: mossp.Sampler(3),
    "Stream of no iterable": lambda: mossp.Stream(3),
    "Stream without a batch": lambda: seven(stated(data=mossp.Stream([]))),
    "SVRG on a stream": lambda: seven(
        stated(data=mossp.Stream([(X7, y7)])), method=mossp.MoSSP(momentum=mossp.SVRG())
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_any_compilation(name):
    on_the_device()
    compilations.clear()
    with pytest.raises((ValueError, TypeError)) as caught:
        BAD[name]()
    said = str(caught.value)
    assert len(said) > 20 and " " in said and "Traced" not in said, said
    assert not compilations


def test_a_sum_is_not_a_mean():
    def total(x, batch):
        return 0.5 * jnp.sum((batch[0] @ x - batch[1]) ** 2)

    with pytest.raises(ValueError, match=r"jnp\.mean"):
        solve(regression(loss=total))


@jax.custom_jvp
def bent(x):
    return bowl(x)


@bent.defjvp
def _bent(primals, tangents):
    (x,), (v,) = primals, tangents
    return bent(x), (x - jnp.array(TRUTH.tolist())).at[3].multiply(2.0) @ v  # wrong in entry 3


def test_a_wrong_gradient_is_found():
    with pytest.raises(ValueError, match="3"):
        mossp.check_gradients(mossp.Problem(loss=bent), START)


def test_the_modules_that_tests_patch_exist():
    door = importlib.import_module("mossp.solving.solve")
    assert door.CHECKPOINT_SECONDS > 0 and mossp.loop.FIRST_CHUNK > 0
