"""Certificates against independent computations.

Of the cases in "What must not break": 5, with solving/test_status.py (residuals recomputed from
scratch).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import losses, schedules
from mossp.certificates import certificate as certificates
from mossp.certificates import fresh, residuals
from mossp.certificates.certificate import Certificate, Residuals, Witness, value_and_gradients
from tests.certificates.points import two_sided
from tests.problems import BATCH, START, A, N, b, n, near_rows, sphere

# Residuals of a run ---------------------------------------------------------------------------


def run(reg, replicas=3, **settings):
    problem = mossp.Problem(
        loss=losses.squared, data=(A, b), regularizer=reg,
        **{k: settings.pop(k) for k in ("equality", "inequality") if k in settings},
    )  # fmt: skip
    given = {"steps": 3000, "batch_size": BATCH, "replicas": replicas, "tol": 1e-1}
    return problem, mossp.solve(problem, START, **{**given, **settings})


def constraint_values(x, kind):
    if kind == "equality":
        return np.array([x @ x - 1]), 2 * x[None]
    return np.array([x @ x - 1, x.sum() - 50]), np.stack([2 * x, np.ones(n)])


@pytest.mark.parametrize("kind", ["equality", "inequality"])
def test_residuals_against_numpy(kind):
    constraint = sphere if kind == "equality" else two_sided
    _, r = run(mossp.L1MinusL2(0.05), replicas=1, **{kind: constraint})
    cert, x = r.certificate, r.x
    c, J = constraint_values(x, kind)
    q = np.ravel(cert.multipliers[kind])
    violated = c if kind == "equality" else np.maximum(c, 0)
    assert cert.form == "witness" and cert.samples is None
    assert cert.feasibility == pytest.approx(np.linalg.norm(violated), rel=1e-9, abs=1e-14)
    assert cert.infeasible_stationarity == pytest.approx(np.linalg.norm(violated @ J), abs=1e-12)
    if kind == "inequality":
        assert cert.complementarity == pytest.approx(np.linalg.norm(np.minimum(q, -c)), abs=1e-12)
        assert cert.smallest_multiplier == q.min() >= 0
        assert q[1] == 0  # far from active
    else:
        assert cert.complementarity == 0 and cert.smallest_multiplier == np.inf
    assert r.violation == pytest.approx(cert.feasibility, abs=1e-14)
    # The shortest u over all subgradients at x and y = x is no longer than what is certified,
    # up to the change of grad g between x and y.
    gradient = A.T @ (A @ x - b) / N
    w = gradient + q @ J - 0.05 * x / np.linalg.norm(x)
    distance = np.linalg.norm(
        np.where(x != 0, w + 0.05 * np.sign(x), np.sign(w) * np.maximum(np.abs(w) - 0.05, 0))
    )
    slack = 2 * 0.05 / np.linalg.norm(x) * cert.proximity
    assert distance <= cert.criticality + slack + 1e-10


@pytest.mark.parametrize("kind", ["equality", "inequality"])
@pytest.mark.parametrize("momentum", [mossp.Polyak(), mossp.Recursive()], ids=["P", "R"])
def test_the_papers_inclusion(kind, momentum):
    """u is in grad f(x) + J q + dh(x) - dg(y): each part by its defining inequality."""
    reg = mossp.L1MinusL2(0.05)
    constraint = sphere if kind == "equality" else two_sided
    problem = mossp.Problem(loss=losses.squared, data=(A, b), regularizer=reg, **{kind: constraint})
    method = mossp.MoSSP(momentum=momentum)
    with jax.enable_x64(True):
        oracles = problem.oracles(START)
        now = schedules.Parameters(*(jnp.asarray(v) for v in (0.02, 5.0, 0.3)))
        state = method.init(oracles, jnp.asarray(START), jnp.zeros(n))
        step = jax.jit(method.step)
        draw = np.random.default_rng(3)
        for _ in range(40):
            before = state
            rows = draw.integers(0, N, BATCH)
            state = step(oracles, now, state, (jnp.asarray(A[rows]), jnp.asarray(b[rows])))
        w = jax.tree.map(np.asarray, method.witness(oracles, now, state))
        judged = certificates.residuals(
            oracles, jax.tree.map(lambda a: jnp.asarray(a)[None], w), batch_size=BATCH
        )
        d = np.asarray(state.memory.d)
    x, y = w.x, w.y
    others = np.random.default_rng(4).normal(size=(200, n))
    for v in np.concatenate([others, x + 1e-3 * others, y + 1e-3 * others]):
        assert reg.h(v) >= reg.h(x) + w.s_h @ (v - x) - 1e-12
        assert reg.g(v) >= reg.g(y) + w.s_g @ (v - y) - 1e-12
    c, J = constraint_values(x, kind)
    q = 5.0 * c if kind == "equality" else np.maximum(5.0 * c, 0)
    u = A.T @ (A @ x - b) / N + q @ J + w.s_h - w.s_g
    assert judged.criticality[0] == pytest.approx(np.linalg.norm(u), rel=1e-9)
    assert judged.proximity[0] == pytest.approx(np.linalg.norm(x - y))
    np.testing.assert_allclose(judged.q[0], q, atol=1e-12)
    F = 0.5 * np.mean((A @ x - b) ** 2) + float(reg(x))
    assert judged.objective[0] == pytest.approx(F, rel=1e-12)
    # x and y as the paper has them, from the state before the step.
    z, x0 = np.asarray(before.z), np.asarray(before.x)
    c0, J0 = constraint_values(x0, kind)
    q0 = 5.0 * c0 if kind == "equality" else np.maximum(5.0 * c0, 0)
    v = z - 0.02 * (d + q0 @ J0)
    np.testing.assert_allclose(x, np.sign(v) * np.maximum(np.abs(v) - 0.02 * 0.05, 0), atol=1e-12)
    np.testing.assert_allclose(y, z * max(0, 1 - 0.02 * 0.05 / np.linalg.norm(z)), atol=1e-12)


GOOD = Certificate(
    criticality=1e-3, proximity=1e-3, feasibility=1e-3, infeasible_stationarity=1e-3,
    complementarity=1e-3, multipliers={}, smallest_multiplier=0.0, samples=None, form="witness",
)  # fmt: skip


def test_rules_of_the_verdict():
    assert GOOD.is_kkt(1e-3) and GOOD.is_stationary(1e-3) and GOOD.worst == 1e-3
    for name in ("criticality", "proximity", "complementarity"):
        for bad in (2e-3, np.nan, np.inf):
            cert = dataclasses.replace(GOOD, **{name: bad})
            assert not cert.is_kkt(1e-3) and not cert.is_stationary(1e-3)
    infeasible = dataclasses.replace(GOOD, feasibility=0.5)
    assert not infeasible.is_kkt(1e-3) and infeasible.is_stationary(1e-3)
    assert not dataclasses.replace(GOOD, feasibility=np.nan).is_kkt(1e-3)
    assert not dataclasses.replace(GOOD, infeasible_stationarity=1.0).is_stationary(1e-3)
    negative = dataclasses.replace(GOOD, smallest_multiplier=-1e-9)
    assert not negative.is_kkt(1.0) and not negative.is_stationary(1.0) and negative.worst == np.inf


def test_complementarity_is_not_free():
    """An inequality far from active with a positive multiplier is no KKT point."""
    problem = mossp.Problem(loss=losses.squared, data=(A, b), inequality=two_sided)
    with jax.enable_x64(True):
        oracles = problem.oracles(START)
        one = lambda v: jnp.asarray(v)[None]  # noqa: E731
        w = Witness(
            one(START), one(START), one(np.zeros(n)), one(np.zeros(n)), one([0.0, 2.0]),
            one(0.0),
        )  # fmt: skip
        r = jax.tree.map(
            lambda a: np.asarray(a)[0], certificates.residuals(oracles, w, batch_size=1)
        )
        cert = certificates.certificate(oracles, r, None, "witness")
    assert cert.complementarity == pytest.approx(
        np.linalg.norm([min(0, 1 - START @ START), min(2.0, 50 - START.sum())])
    )
    assert cert.multipliers["inequality"].tolist() == [0.0, 2.0]
    # A negative one is cut off: q = [lam + rho c]_+.
    assert cert.smallest_multiplier == 0


def test_expectation_is_the_root_mean_square():
    values = np.array([1.0, 2.0, 4.0])
    r = Residuals(*[values * s for s in range(1, 9)])
    e = certificates.expectation(r)
    root = np.sqrt(np.mean(values**2))
    assert e.criticality == pytest.approx(3 * root) and e.proximity == pytest.approx(4 * root)
    assert e.feasibility == pytest.approx(5 * root) and e.replicas == 3
    assert e.infeasible_stationarity == pytest.approx(6 * root)
    squares = 9 * values**2
    error = squares.std(ddof=1) / np.sqrt(3) / (2 * 3 * root)
    assert e.criticality_se == pytest.approx(error)
    alone = certificates.expectation(Residuals(*[values[:1]] * 8))
    assert alone.criticality == 1.0 and np.isnan(alone.criticality_se)


def test_expectation_of_a_run():
    """Root mean squares over the replicas' random outputs, whatever output is returned."""
    settings = {"equality": sphere, "steps": 500, "method": "mossp-r"}
    _, drawn = run(mossp.L1(0.05), output="random", **settings)
    _, last = run(mossp.L1(0.05), output="last", **settings)
    assert drawn.expectation == last.expectation
    wanted = np.sqrt(np.mean(drawn.violations**2))
    assert drawn.expectation.feasibility == pytest.approx(wanted, rel=1e-9)
    c = (drawn.xs**2).sum(1) - 1
    wanted = np.sqrt(np.mean((2 * c * np.linalg.norm(drawn.xs, axis=1)) ** 2))
    assert drawn.expectation.infeasible_stationarity == pytest.approx(wanted, rel=1e-9)


# Samplers and streams -------------------------------------------------------------------------

MEAN = [1.0, -1.0, 0.5]


def around_mean(key, size):
    return jnp.array(MEAN) + 2.0 * jax.random.normal(key, (size, 3))


@pytest.mark.parametrize("offset", [0.0, 0.02])
def test_squared_criticality_is_unbiased(offset):
    """grad f(x) = x - MEAN; products of different blocks have the mean |x - MEAN|^2."""
    problem = mossp.Problem(loss=near_rows, data=mossp.Sampler(around_mean))
    x = np.array(MEAN) + offset
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        blocks = jax.jit(lambda draws: value_and_gradients(oracles, jnp.asarray(x), draws, 64)[1])
        products, naive = [], []
        for seed in range(400):
            draws = oracles.source.draw(np.random.default_rng(seed), 8, 64)
            G = np.asarray(blocks(draws))
            products.append(certificates.mean_product(G))
            naive.append(G.mean(axis=0) @ G.mean(axis=0))
    truth = 3 * offset**2
    error = np.std(products) / np.sqrt(len(products))
    assert abs(np.mean(products) - truth) < 3.5 * error
    assert np.mean(naive) > truth + 10 * error  # what the blocks are for


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("truth", [0.0, 1.0, 4.0])
def test_the_error_of_an_estimated_length_is_stated(size, truth):
    """The bound holds but for a few per cent, and is no longer than a few standard errors."""
    draw, u = np.random.default_rng(5), np.zeros(size)
    u[0] = truth
    K = certificates.BLOCKS
    noise = draw.normal(size=(500, K, size)) * np.sqrt(K) / size**0.25
    found = np.array([certificates.length_of_mean(u + e) for e in noise])
    assert np.mean(found.sum(axis=1) < truth) <= 0.1
    assert np.median(found.sum(axis=1)) <= truth + 2.6
    exact = certificates.length_of_mean(u[None])
    assert exact[0] == truth and exact[1] == 0


def noisy_pair(key, size):
    return jnp.array([1.0, -1.0]) + 0.1 * jax.random.normal(key, (size, 2))


def judged_witness(x, s_h, tol, most, seed=0):
    """What is decided of x for min E|x - xi|^2 / 2 + 0.5 |x|_1, whose solution is (0.5, -0.5)."""
    problem = mossp.Problem(near_rows, data=mossp.Sampler(noisy_pair), regularizer=mossp.L1(0.5))
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        one = lambda v: jnp.asarray(v)[None]  # noqa: E731
        w = Witness(one(x), one(x), one(s_h), one(np.zeros(2)), one(np.zeros(0)), one(0.0))

        def draws(number):
            return oracles.source.draw(np.random.default_rng([seed, number]), 64, 8)

        r = certificates.residuals(oracles, w, draws(0), batch_size=8)
        r = jax.tree.map(lambda a: np.asarray(a)[0], r)
        return fresh.decided(oracles, jnp.asarray(x), r, 512, draws, most, tol, 8)


def test_the_noise_of_the_last_step_is_no_part_of_the_certificate():
    """s_h has the noise of a step in it: u is ten times too long, and x is a solution."""
    x, s_h = np.array([0.5, -0.5]), np.array([0.55, -0.45])
    assert not judged_witness(x, s_h, 0.02, most=512).is_kkt(0.02, relative=True)
    found = judged_witness(x, s_h, 0.02, most=2**15)
    assert found.form == "exact" and found.is_kkt(0.02, relative=True)
    assert found.criticality + found.criticality_error <= 0.02
    assert 512 <= found.samples <= 2**15 and found.proximity == 0


@pytest.mark.parametrize("off", [0.03, 0.06])
def test_what_is_not_critical_is_not_certified_by_chance(off):
    """|u| = off: no success at tol = 0.02, whatever the samples."""
    x, s_h = np.array([0.5 + off, -0.5]), np.array([0.5, -0.5])
    for seed in range(20):
        found = judged_witness(x, s_h, 0.02, most=2**13, seed=seed)
        assert not found.is_kkt(0.02, relative=True)
        assert abs(found.criticality - off) <= 2 * found.criticality_error + 0.01


# Relative to the size of what it is made of -----------------------------------------------------


def test_relative_residuals_against_numpy():
    """One constraint in large units, one not: each is held against its own."""
    x, q = np.array([3.0, -4.0]), np.array([2.0, 1e-7, 0.5])
    J = np.array([[1.0, 1.0], [1e6, 0.0], [0.0, 1.0]])
    c = np.array([1e-3, 5e-2, -2e-3])  # an equality, then two inequalities
    terms = (np.array([300.0, 400.0]), np.array([1.0, 0.0]), np.array([0.0, 2.0]))
    S = certificates.scales(x, terms, c, q, np.abs(J) @ np.abs(x), 1)
    assert S.criticality == 500 and S.proximity == 5 and S.largest_multiplier == 2.0 / 500
    rows = np.array([7.0, 3e6, 4.0])
    violated = np.array([1e-3, 5e-2, 0.0])
    relative = np.linalg.norm(violated / rows)
    assert np.linalg.norm(violated) / S.feasibility == pytest.approx(relative)
    slack = np.linalg.norm(np.minimum(q[1:], -c[1:])) / S.complementarity
    assert slack == pytest.approx(np.linalg.norm([5e-2 / 3e6, min(0.5 / 500, 2e-3 / 4.0)]))
    # A violation of the second constraint alone is not excused by the units of the first.
    alone = certificates.scales(x, terms, np.array([0.0, -1.0, 1e-3]), q, rows, 1)
    assert alone.feasibility == pytest.approx(4.0)
    small = certificates.scales(x / 100, terms[1:], c[:0], q[:0], np.zeros(0), 0)
    assert small == (2.0, 1.0, 1.0, 1.0, 0.0)  # never less than 1


def test_both_numbers_and_what_success_asks(tmp_path):
    cert = dataclasses.replace(
        GOOD, criticality=1.0, criticality_scale=1e4, feasibility=0.5, feasibility_scale=1e3,
        proximity=0.0, complementarity=0.0,
    )  # fmt: skip
    assert cert.relative("criticality") == 1e-4 and cert.relative("feasibility") == 5e-4
    assert not cert.is_kkt(1e-3) and cert.is_kkt(1e-3, relative=True)
    assert not cert.is_kkt(4e-4, relative=True)
    assert cert.worst == 1.0 and cert.worst_relative == 5e-4
    unsure = dataclasses.replace(cert, criticality_error=20.0)
    assert not unsure.is_kkt(1e-3, relative=True) and unsure.worst_relative == 21e-4
    for bad in (np.nan, np.inf):
        broken = dataclasses.replace(cert, criticality=bad)
        assert not broken.is_kkt(1.0, relative=True) and broken.worst_relative == np.inf


@pytest.mark.parametrize("units", [1.0, 1e8])
def test_a_loss_and_constraints_in_large_units(units, tmp_path):
    """Success at 1e-10 whatever the units; absolute residuals stay what they are."""
    target = jnp.array([3.0, 1.0, 2.0])
    problem = mossp.Problem(
        lambda x: units * jnp.sum((x["a"] - target) ** 2 * jnp.array([1.0, 3.0, 7.0])),
        inequality=lambda x: {"ball": units * (x["a"] @ x["a"] - 0.7)},
    )
    r = mossp.solve(problem, {"a": np.array([0.3, 0.1, 0.2])})
    c = r.certificate
    assert r.success and c.is_kkt(1e-10, relative=True), r.message
    x = r.x["a"]
    gradient = 2 * units * np.array([1.0, 3.0, 7.0]) * (x - np.asarray(target))
    assert c.criticality_scale == pytest.approx(np.linalg.norm(gradient))
    assert c.feasibility_scale <= max(1.0, 2 * 0.7 * units) * (1 + 1e-9)
    assert c.relative("criticality") == c.criticality / c.criticality_scale
    if units > 1:
        assert f"of {c.criticality_scale:.2e}" in r.summary()
        again = mossp.Result.load(r.save(tmp_path / "r.npz")).certificate
        assert dataclasses.replace(again, multipliers=c.multipliers) == c


def test_a_bound_of_h_does_not_widen_its_own_proof():
    """x = 0 is held by a bound and by a constraint: multipliers may be as large as one likes."""
    problem = mossp.Problem(
        lambda x: x[1], regularizer=mossp.Nonnegative(mossp.Zero()), inequality=lambda x: x[0]
    )
    with jax.enable_x64(True):
        oracles, x = problem.oracles(np.zeros(2)), np.array([0.0, 1.0])
        one = lambda v: jnp.asarray(v)[None]  # noqa: E731
        big = 1e12
        w = Witness(one(x), one(x), one([-big, 0.0]), one(np.zeros(2)), one([big]), one(0.0))
        r = certificates.residuals(oracles, w, batch_size=1)
        r = jax.tree.map(lambda a: np.asarray(a)[0], r)
        cert = certificates.certificate(oracles, r, None, "witness")
    assert cert.criticality == 1.0 and cert.criticality_scale == 1.0
    assert not cert.is_kkt(1e-2, relative=True) and cert.largest_multiplier == big


def test_a_witness_that_was_just_judged_is_not_judged_again(monkeypatch):
    problem = mossp.Problem(losses.squared, data=(A, b), regularizer=mossp.L1(0.1))
    passes = []
    first_order = residuals.first_order

    def counted(*args):
        passes.append(1)
        return first_order(*args)

    monkeypatch.setattr(residuals, "first_order", counted)

    def judged(oracles, *points):
        x = np.stack(points)
        w = Witness(x, x, 0 * x, 0 * x, np.zeros((len(x), 0)), np.zeros(len(x)))
        return residuals.residuals(oracles, w, batch_size=1).objective.tolist()

    with jax.enable_x64(True):
        oracles, start, end = problem.oracles(START), np.ones(n), np.zeros(n)
        (at_start,) = set(judged(oracles, start, start))
        assert len(passes) == 1
        assert judged(oracles, end, start) == [judged(oracles, end)[0], at_start]
        assert len(passes) == 2
        other = dataclasses.replace(problem, regularizer=mossp.L1(0.2)).oracles(START)
        assert judged(other, start)[0] > at_start and len(passes) == 3


def test_huge_multipliers_are_reported_and_warned_of():
    """min x s.t. x^2 <= 0: grad c = 0 at the solution, and no multiplier is large enough."""
    degenerate = mossp.Problem(lambda x: x[0], inequality=lambda x: x[0] ** 2)
    r = mossp.solve(degenerate, np.array([0.6]), tol=1e-6)
    assert r.certificate.largest_multiplier > 1e6
    assert "times as large as what it balances" in r.message
    plain = mossp.Problem(lambda x: 1e9 * x[0], inequality=lambda x: x @ x - 1.0)
    r = mossp.solve(plain, np.array([0.6]))
    assert r.success and np.max(r.certificate.multipliers["inequality"]) > 1e8
    assert r.certificate.largest_multiplier < 1 and "balances" not in r.message


def test_certificate_of_a_sampler():
    problem = mossp.Problem(loss=near_rows, data=mossp.Sampler(around_mean))
    r = mossp.solve(problem, np.zeros(3), steps=4000, batch_size=64, tol=0.1)
    assert r.certificate.samples == 16_384 and r.success
    assert abs(r.certificate.criticality - np.linalg.norm(r.x - MEAN)) < 0.06
    with pytest.raises(ValueError, match="full gradient"):
        mossp.stationarity(problem, r.x)


def test_a_stream_that_ended_certifies_nothing():
    batches = (np.asarray(MEAN) + np.zeros((4, 3)) for _ in range(100))
    problem = mossp.Problem(loss=near_rows, data=mossp.Stream(batches))
    r = mossp.solve(problem, np.array(MEAN), steps=10_000, tol=0.5, dtype="float32")
    assert not r.success and not r.certificate.is_kkt(1e9) and not r.certificate.is_stationary(1e9)
    assert r.expectation is None and r.certificate.samples in (0, None)
    assert "no fresh samples" in r.message
    assert r.funs.dtype == r.violations.dtype == np.float64


def test_a_stream_with_samples_left_is_judged():
    noise = np.random.default_rng(1)
    batches = (np.asarray(MEAN) + noise.normal(size=(16, 3)) for _ in range(2000))
    problem = mossp.Problem(loss=near_rows, data=mossp.Stream(batches))
    r = mossp.solve(problem, np.zeros(3), steps=1000, tol=0.3)
    assert r.certificate.samples and np.isfinite(r.certificate.criticality)
    assert r.success, r.message
