"""Gradients counted one by one, budgets, cut and resumed runs, exact methods, endless schedules."""

from __future__ import annotations

import functools
import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
import mossp.engine.loop
from mossp import METHODS, SVRG, Status
from mossp._base import archive
from mossp._base.budget import Budget
from mossp.newton.attempts import Attempts, Polishing
from mossp.newton.residual import KKT
from mossp.schedules import AlacaogluWright, Constant, LuMeiXiao, TwoPhase
from mossp.solving.arguments import checked_tol
from tests.problems import near_rows, sphere

pytestmark = pytest.mark.slow


N, n, BATCH = 32, 3, 4
X = np.random.default_rng(0).normal(size=(N, n)) + 1.0
START = np.array([0.3, 0.2, 0.1])
FLAT = Constant(rho=5.0, mu=0.02, alpha=0.1)

differentiated: list[int] = []  # the rows of every batch whose gradient was taken


@jax.custom_vjp
def loss(x, rows):
    return 0.5 * jnp.mean((rows @ x - 1.0) ** 2)


def backward(saved, scale):
    x, rows = saved
    jax.debug.callback(lambda _: differentiated.append(len(rows)), x[0])
    return scale * (rows @ x - 1.0) @ rows / len(rows), None


loss.defvjp(lambda x, rows: (loss(x, rows), (x, rows)), backward)


def plane(x):
    return jnp.sum(x) - 1.0


def ball(x):
    return x @ x - 0.2


EQUAL = mossp.Problem(loss, X, mossp.L1(0.01), equality=plane)
INSIDE = mossp.Problem(loss, X, mossp.L1(0.01), inequality=ball)
BALLS = ("imba-dc", "scp-ls")


def run(method, **settings):
    problem = INSIDE if method in BALLS else EQUAL
    differentiated.clear()  # a global of the loss, and so a part of what a checkpoint is about
    given = {"schedule": FLAT, "batch_size": BATCH, "seed": 0}
    return mossp.solve(problem, START, method=method, **{**given, **settings})


def counted(method, **settings):
    """(the result, samples differentiated by the last step)."""
    seen = []

    def look(progress):
        jax.effects_barrier()
        # A full mean looks at one row more, with which it takes off what fills its last block.
        samples = sum(rows for rows in differentiated if rows > 1)
        seen.append((progress.step, progress.gradients, samples))

    differentiated.clear()
    r = run(method, callback=look, output="random", **settings)  # "random" is never cut short
    assert seen[-1][:2] == (r.steps, r.gradients)
    assert all(gradients == samples for _, gradients, samples in seen)
    return r, seen[-1][2]


# Gradients and budgets ------------------------------------------------------------------------

# Recursive momentum:
TWICE = {"mossp-r", "mossp-al", "sqp-dc", "spdc-r", "salm-r", "mlalm", "sdc-recursive"}
FULL = {"clcdc-alm", "imba-dc", "scp-ls"}
OUTER = mossp.SPDC(refresh="outer", inner=3)
OTHERS = {  # samples in K steps, by hand
    "SVRG": (mossp.MLALM(momentum=SVRG()), lambda K: 2 * BATCH * K + N * math.ceil(K / 50)),
    "outer": (OUTER, lambda K: 2 * BATCH * K),  # a step is a stage of three inner steps
}


def cost(name):
    if name in OTHERS:
        return OTHERS[name]
    a_step = N if name in FULL else 2 * BATCH if name in TWICE else BATCH
    return name, lambda K: a_step * K


@pytest.mark.parametrize("name", [*METHODS, *OTHERS])
def test_a_budget_buys_as_many_steps_as_fit(name):
    """133 gradients: 33, 16 or 4 steps, in double loops amid a stage."""
    method, samples = cost(name)
    for budget in (133, samples(3)):
        r, seen = counted(method, gradients=budget)
        assert r.gradients == seen == samples(r.steps) <= budget < samples(r.steps + 1)
    assert r.steps == 3
    assert counted(method, steps=2, gradients=133)[1] == samples(2)
    assert r.tol == (1e-10 if name in FULL or name == "SVRG" else 1e-2)
    with pytest.raises(ValueError, match=f"budget of {samples(1) - 1} gradients.*{samples(1)}"):
        run(method, gradients=samples(1) - 1)


class Ahead(Constant):
    """As many samples behind d_0 as there are steps."""

    def b0(self, momentum, K):
        return K


@pytest.mark.parametrize("method", ["mossp-p", "mossp-r", "clcdc-alm"])
def test_initial_batches_are_counted(method):
    """In whole mini-batches, or full gradients; the first step's own is one of them."""
    a_step = {"mossp-p": BATCH, "mossp-r": 2 * BATCH, "clcdc-alm": N}[method]
    whole = N if method == "clcdc-alm" else BATCH
    samples = lambda K: whole * (math.ceil(K / whole) - 1) + a_step * K  # noqa: E731
    for budget in (133, 30 * N):
        r, seen = counted(method, gradients=budget, schedule=Ahead(rho=5.0, mu=0.02, alpha=0.1))
        assert r.gradients == seen == samples(r.steps) <= budget < samples(r.steps + 1)


# Cut and resumed ------------------------------------------------------------------------------

CUT = ["spdc-r", "salm-p", "ssdc-spg", "clcdc-alm", "imba-dc"]


def same(a, b):
    """Bit for bit."""
    assert (a.steps, a.gradients, a.status) == (b.steps, b.gradients, b.status)
    for name in ("steps", "gradients", "objective", "violation", "proximity"):
        assert np.array_equal(getattr(a.trace, name), getattr(b.trace, name)), name
    assert np.array_equal(a.xs, b.xs) and np.array_equal(a.funs, b.funs)
    assert a.certificate.criticality == b.certificate.criticality


@functools.cache
def whole(method):
    return run(method, steps=57, output="random")


@pytest.mark.parametrize("method", CUT)
def test_a_resumed_run_is_the_unbroken_one(method, tmp_path):
    file = tmp_path / "run.npz"
    for step in (3, 8, 24):  # amid stages
        stop = lambda progress, step=step: progress.step >= step  # noqa: E731
        cut = run(method, steps=57, output="random", checkpoint=file, callback=stop)
        assert cut.status is Status.STOPPED and step <= cut.steps < step + 3
    same(run(method, steps=57, output="random", checkpoint=file), whole(method))


@pytest.mark.parametrize("method", CUT)
def test_chunks_change_nothing(method, monkeypatch):
    unbroken = whole(method)
    monkeypatch.setattr(mossp.engine.loop, "FIRST_CHUNK", 1)
    monkeypatch.setattr(mossp.engine.loop, "CHUNK_SECONDS", 0.0)
    same(run(method, steps=57, output="random"), unbroken)


def test_replicas_do_not_depend_on_their_company():
    method = "spdc-r"
    three = run(method, steps=57, replicas=3, output="random")
    two = run(method, steps=57, replicas=2, output="random")
    np.testing.assert_allclose(two.xs, three.xs[:2], atol=1e-10, rtol=0)
    np.testing.assert_allclose(whole(method).xs, three.xs[:1], atol=1e-10, rtol=0)
    assert len(np.unique(three.xs.round(6), axis=0)) == 3
    assert three.gradients == whole(method).gradients  # of each replica


def test_an_exact_run_stops_where_it_would_have_when_resumed(tmp_path):
    unbroken = run("imba-dc", steps=400)
    file = tmp_path / "run.npz"
    run("imba-dc", steps=400, checkpoint=file, callback=lambda progress: progress.step >= 2)
    same(run("imba-dc", steps=400, checkpoint=file), unbroken)
    assert unbroken.steps < 400


# Exact methods --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*sorted(FULL), "SVRG"])
def test_exact_methods_stop_when_certified(name):
    method, settings = cost(name)[0], {"steps": 2500, "schedule": Constant(rho=5.0, mu=0.04)}
    r = run(method, **settings)
    assert r.tol == 1e-10 and r.success and r.status is Status.CONVERGED
    assert r.steps < 2500 and r.certificate.criticality <= 1e-10 and r.violation <= 1e-10
    assert r.gradients == cost(name)[1](r.steps)
    assert mossp.stationarity(INSIDE if name in BALLS else EQUAL, r.x) < 1e-9
    rough = run(method, **settings, tol=1e-3)
    assert rough.tol == 1e-3 and rough.success and rough.steps <= r.steps


def test_the_default_tolerance():
    """Those of METHODS by name: see the budgets. A penalty leaves a violation in any case."""
    double, single = np.dtype("float64"), np.dtype("float32")
    for method in (mossp.CLCDC(), mossp.SALM(momentum=mossp.Full()), mossp.MLALM(momentum=SVRG())):
        found = [checked_tol(None, kind, method.exact) for kind in (double, single)]
        assert found == [1e-10, 1e-4]
    assert checked_tol(None, double, mossp.MoSSP(momentum=SVRG()).exact) == 1e-2


def test_others_do_not_stop_early():
    for method in ("mossp-r", "salm-p"):
        r = run(method, steps=300, tol=1e3)
        assert r.success and r.steps == 300


# Schedules ------------------------------------------------------------------------------------

CONSTANTS = mossp.Constants(L_f=1.5, L_batch=4.0, sigma=1.0, G=2.0, G_c=2.0, C=0.5, L_c=3.0)
RECURSIVE, POLYAK = mossp.Recursive(), mossp.Polyak()
STABLE = 1 / (4.0 + 0.7 * (2.0**2 + 0.5 * 3.0))  # 1 / (L + rho0 (G_c^2 + C L_c))
FORMULAS = {  # powers of k = 1, 2, ... in rho, mu and alpha
    "alacaoglu-wright, R": (AlacaogluWright, RECURSIVE, (1 / 4, -1 / 4, -1 / 2)),
    "alacaoglu-wright, P": (AlacaogluWright, POLYAK, (1 / 4, -1 / 4, -1 / 2)),
    "lu-mei-xiao, R": (LuMeiXiao, RECURSIVE, (1 / 3, -1 / 3, -2 / 3)),
    "lu-mei-xiao, P": (LuMeiXiao, POLYAK, (1 / 4, -1 / 2, -1 / 2)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name):
    rule, momentum, (r, m, a) = FORMULAS[name]
    own = rule(rho0=0.7, mu0=0.3, alpha0=0.5).schedule(momentum, 1, CONSTANTS)
    stable = rule(rho0=0.7).schedule(momentum, 10**6, CONSTANTS)
    with jax.enable_x64(True):
        for k in (1, 2, 7, 10_000):
            now = own.at(k - 1)
            assert now.rho == pytest.approx(0.7 * k**r, rel=1e-12)
            assert now.mu == now.eta == pytest.approx(0.3 * k**m, rel=1e-12)
            assert now.alpha == pytest.approx(0.5 * k**a, rel=1e-12)
            assert stable.at(k - 1).mu == pytest.approx(STABLE * k**m, rel=1e-12)
            assert stable.at(k - 1).alpha == pytest.approx(k**a, rel=1e-12)
    assert rule().b0(momentum, 10**6) == 1 and rule().feasible_enough(momentum, 100) == math.inf


@pytest.mark.parametrize(("momentum", "m"), [(RECURSIVE, 1 / 3), (POLYAK, 1 / 2)])
def test_formula_with_a_logarithm(momentum, m):
    s = LuMeiXiao(log=True).schedule(momentum, 1, CONSTANTS)
    with jax.enable_x64(True):
        for k in (1, 2, 7, 10_000):
            assert s.at(k - 1).mu == pytest.approx(k**-m / (4 * math.log(k + 2)), rel=1e-12)


def test_truncation():
    """A linear loss of slope 1e6: every step goes mu_k radius and no further."""
    slope = np.array([3e5, 4e5, 0.0])
    problem = mossp.Problem(lambda x: jnp.array([3e5, 4e5, 0.0]) @ x)
    moved = sum(0.01 * k ** (-1 / 3) for k in range(1, 11))
    rule = LuMeiXiao(mu0=0.01, radius=2.0)
    for method in ("mossp-r", mossp.MoSSP(momentum=mossp.Truncated(RECURSIVE, 2.0))):
        r = mossp.solve(problem, START, method=method, schedule=rule, steps=10)
        np.testing.assert_allclose(r.x, START - 2.0 * moved * slope / 5e5, atol=1e-9)
    free = mossp.solve(problem, START, schedule=LuMeiXiao(mu0=0.01), steps=10)
    np.testing.assert_allclose(free.x, START - moved * slope, rtol=1e-9)
    made = LuMeiXiao().estimator(POLYAK, CONSTANTS)
    assert (made.radius, made.inner) == (30.0, POLYAK)  # 10 (||grad f|| + sigma)
    assert LuMeiXiao(radius=2.0).estimator(made, CONSTANTS) is made


TARGET = 1.15 * np.array([0.8, -0.6, 0.0])
NOISE = np.concatenate([X - X.mean(axis=0), X.mean(axis=0) - X]) / 2


SPHERE = mossp.Problem(near_rows, TARGET + NOISE, mossp.L1(0.0), equality=sphere)
BEST = 0.5 * (0.15**2 + np.mean(np.sum(NOISE**2, axis=1)))


@pytest.mark.parametrize("method", ["mossp-r", "mossp-p"])
@pytest.mark.parametrize("schedule", ["alacaoglu-wright", "lu-mei-xiao"])
def test_endless_schedules_solve_the_sphere(schedule, method):
    x0 = np.array([0.1, 0.2, 0.9])
    settings = {"method": method, "schedule": schedule, "batch_size": 8}
    r = mossp.solve(SPHERE, x0, steps=20_000, **settings)
    assert abs(r.fun - BEST) <= 1e-3 and r.violation <= 2e-2
    timed = mossp.solve(SPHERE, x0, seconds=0.2, **settings)
    assert timed.steps > 256 and timed.seconds >= 0.2
    assert abs(timed.fun - BEST) <= 1e-2 and timed.violation <= 1e-1


LIMITS = pytest.mark.parametrize(
    ("method", "l", "C"),
    [("mossp-p", 1 / 4, 1.0), ("mossp-r", 1 / 3, 1.0), ("mossp-r", 1 / 3, 0.01)],
)


def violation_at_the_start(method, C, before):
    x0 = np.array([0.8, 0.0, -0.6]) * math.sqrt(1 + before)
    settings = {"method": method, "schedule": TwoPhase(C=C), "steps": 4096, "batch_size": 8}
    r = mossp.solve(SPHERE, x0, callback=lambda progress: True, **settings)
    return r.trace.violation[0, 0]


@LIMITS
def test_phase_one_goes_as_far_as_needed(method, l, C):
    enough = math.sqrt(C * 4096**-l)
    already = violation_at_the_start(method, C, 0.99 * enough)
    assert already == pytest.approx(0.99 * enough, rel=1e-9)  # nothing is done
    for before in (1.01 * enough, 3.0):
        assert violation_at_the_start(method, C, before) <= enough


@LIMITS
def test_phase_one_goes_no_further_than_needed(method, l, C):
    """One Newton step for ||x||^2 = 1 leaves about v^2 / 4 of a violation v, a second one v^4."""
    enough = math.sqrt(C * 4096**-l)
    assert violation_at_the_start(method, C, 1.01 * enough) > enough**2 / 8


# Budgets that polishing keeps ---------------------------------------------------------------------


def wavy(x, rows):
    """Not convex, so that Newton's method takes some steps."""
    return 0.5 * jnp.mean((jnp.tanh(rows @ x) - 0.5) ** 2) + 0.01 * jnp.sum(x**4)


@pytest.mark.parametrize("budget", [2_000, 20_000])
def test_polishing_keeps_to_a_budget_in_gradients(budget):
    problem = mossp.Problem(wavy, X, mossp.MCP(0.01, 3.0), equality=ball)
    r = mossp.solve(problem, START, method="mossp-p", gradients=budget, polish=True, tol=1e-10)
    bare = mossp.solve(problem, START, method="mossp-p", steps=r.steps, tol=1e-10)
    products = r.hessian_products - bare.hessian_products
    assert products > 0 and bare.gradients <= budget / 2
    assert r.gradients + 2 * products <= budget


def test_polishing_is_counted_in_seconds_and_ends_with_them(monkeypatch):
    """Every evaluation takes a tenth of a second, so that Newton's method cannot arrive."""
    evaluate, evaluated = KKT.evaluate, []

    def wait(self, x, q, t):
        evaluated.append(x)
        time.sleep(0.1)
        return evaluate(self, x, q, t)

    problem = mossp.Problem(wavy, X, mossp.MCP(0.01, 3.0), equality=ball)
    given = {"method": "mossp-p", "steps": 20, "polish": True, "tol": 1e-13}
    mossp.solve(problem, START, **given)  # compiles
    monkeypatch.setattr(Polishing, "compile", lambda self, x: None)  # known already
    monkeypatch.setattr(KKT, "evaluate", wait)
    r = mossp.solve(problem, START, **given, seconds=0.35)
    # One of them is of the start, before the clock.
    assert 2 <= len(evaluated) <= 6 and r.seconds >= 0.1 and r.steps == 20
    assert "not polished" not in r.message


def test_a_resumed_run_has_spent_no_negative_time_compiling(tmp_path):
    given = {"method": "mossp-p", "steps": 40, "schedule": FLAT, "checkpoint": tmp_path / "run"}

    def wait(progress):
        time.sleep(0.2)
        return progress.step >= 20

    differentiated.clear()
    first = mossp.solve(EQUAL, START, **given, callback=wait, trace=2)
    differentiated.clear()  # as it was when the run began
    saved = archive.load(tmp_path / "run")[1]
    again = mossp.solve(EQUAL, START, **given, trace=2)
    # What the first run took after its last save, the file does not know.
    assert first.seconds >= saved["extra"]["seconds"] >= 0.2
    assert again.seconds >= saved["extra"]["seconds"]
    assert again.compile_seconds >= 0


def test_early_polishing_leaves_time_for_the_steps(monkeypatch):
    evaluate = KKT.evaluate

    def wait(self, x, q, t):
        time.sleep(0.05)
        return evaluate(self, x, q, t)

    point, kept = np.asarray(START, float)[None], np.zeros(1, bool)
    with jax.enable_x64(True):
        oracles = mossp.Problem(wavy, X, mossp.MCP(0.01, 3.0), equality=ball).oracles(START)
        Polishing.of(oracles, 1e-30).relaxed(Attempts(), point[0])  # compiles
        monkeypatch.setattr(KKT, "evaluate", wait)
        budget = Budget(limit=6.0)
        polishing = Polishing.of(oracles, 1e-30, budget)
        done = polishing.relaxed(Attempts(), point[0])
        assert budget.seconds() <= 4.5  # half of it, and what an evaluation takes on a busy machine
        polishing.attempt(done, 1, point, kept)
        assert not budget.late


def test_polishing_is_compiled_before_the_clock_starts(monkeypatch):
    """The steps are known to a process, and polishing is not: only the clock may not feel it."""
    problem = mossp.Problem(wavy, X, mossp.MCP(0.02, 3.0), equality=ball)
    given = {"method": "mossp-p", "steps": 20, "tol": 1e-10, "seconds": 60.0}
    mossp.solve(problem, START, **given)
    compiling, compile = [], Polishing.compile

    def noted(self, x):
        compiling.append(time.perf_counter())
        compile(self, x)
        time.sleep(0.5)

    monkeypatch.setattr(Polishing, "compile", noted)
    r = mossp.solve(problem, START, **given, polish=True)
    assert len(compiling) == 1 and r.compile_seconds >= 0.5
    mossp.solve(problem, START, **{**given, "seconds": None}, polish=True)
    assert len(compiling) == 1  # nobody waits
