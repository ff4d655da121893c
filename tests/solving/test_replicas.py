"""Replicas, random numbers, and which point is returned."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats

import mossp
import mossp.engine.loop
from mossp import schedules
from mossp.data import NoData
from mossp.engine.draws import Draws
from mossp.solving.verdict import best_replica
from tests.problems import (
    BATCH,
    A,
    b,
    n,
    sphere,
)
from tests.solving.regression import bowl, regression, solve

pytestmark = pytest.mark.slow


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
