"""method="auto", the default: what it chooses, how exact it is, how it ends, and many starts.

Optima come from SciPy's SLSQP on x = p - q, p, q >= 0, where h is linear; KKT conditions are
checked again in NumPy, as a bounded least-squares problem over multipliers and subgradients.
"""

from __future__ import annotations

import functools
import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from jax.tree_util import Partial

import mossp
from mossp import Status, losses
from mossp._base import keys
from mossp.certificates.feasibility import different_starts
from mossp.solving import arguments

polishing = importlib.import_module("mossp.newton.polish")

# Logistic regression on the sphere ------------------------------------------------------------

N, n, LAM = 600, 10, 0.03
rng = np.random.default_rng(3)
X = rng.normal(size=(N, n))
TRUTH = np.array([1.5, -1.0, 0.8, 0, 0, 0, 0.4, 0, 0, 0])
Y = np.where(X @ TRUTH + 0.5 * rng.normal(size=N) > 0, 1.0, -1.0)
X0 = np.full(n, 0.3)


def sphere(x):
    return x @ x - 1.0


def ball(radius, x):
    return x @ x - radius**2


def logistic(reg, rows=N, **constraints):
    return mossp.Problem(losses.logistic, (X[:rows], Y[:rows]), reg, **constraints)


def on_sphere():
    return logistic(mossp.L1MinusL2(LAM), equality=sphere)


@functools.cache
def unbroken(**settings):
    """The run that others are compared with."""
    return mossp.solve(on_sphere(), X0, **settings)


def is_sentence(message):
    return message[0].isupper() and message.endswith(".") and " " in message


# What is chosen -------------------------------------------------------------------------------


def asked(problem, x0=X0, **settings):
    """What `solve` makes of its arguments, before anything is compiled."""
    given = inspect.signature(mossp.solve).parameters.items()
    defaults = {k: p.default for k, p in given if p.default is not inspect.Parameter.empty}
    return arguments.checked(problem, x0, **{**defaults, **settings})


def rows_of(count):
    return lambda x: jnp.ones((count, n)) @ x


def draw(key, size):
    rows = jax.random.normal(key, (size, n))
    return rows, jnp.sign(rows[:, 0])


def batches():
    return [(X[i : i + 32], Y[i : i + 32]) for i in range(0, 576, 32)]


DATA = {
    "few rows": (lambda: (X[:256], Y[:256]), "full gradients: 256 rows"),
    "more rows": (lambda: (X[:257], Y[:257]), "SVRG gradients: 257 rows"),
    "few sparse rows": (
        lambda: (scipy.sparse.csr_array(X[:100]), Y[:100]),
        "full gradients: 100 rows",
    ),
    "sparse rows": (lambda: (scipy.sparse.csr_array(X), Y), "SVRG gradients: 600 rows"),
    "a Sampler": (lambda: mossp.Sampler(draw), "recursive gradients: samples without end"),
    "a Stream": (lambda: mossp.Stream(batches()), "recursive gradients: samples without end"),
    "none": (lambda: None, "full gradients: no data"),
}
ENDLESS = ("a Sampler", "a Stream")


@pytest.mark.parametrize("m", [0, 1, 32, 33, 40])
@pytest.mark.parametrize("name", DATA)
def test_the_choice_follows_the_table(name, m):
    data, why = DATA[name]
    constraints = {"equality": rows_of(m)} if m else {}
    loss = losses.logistic if name != "none" else (lambda x: x @ x)
    a = asked(mossp.Problem(loss, data(), mossp.L1(LAM), **constraints))
    method = "sqp-dc" if m <= 32 else "mossp-al"
    method = "mossp-r" if name in ENDLESS and not m else method
    assert a.name == method and a.polish is (name not in ENDLESS)
    many = f"{m} constraint" if m == 1 else f"{m} constraints"
    assert a.chosen == f"{method} with {why}, {many}"
    assert a.tol == (1e-2 if name in ENDLESS else 1e-10)
    assert a.method.exact is (name not in ENDLESS)


def test_inequalities_count_like_equalities():
    a = asked(logistic(mossp.L1(LAM), equality=rows_of(20), inequality=rows_of(13)))
    assert a.name == "mossp-al" and "33 constraints" in a.chosen


@pytest.mark.parametrize("settings", [{"schedule": "theorem"}, {"output": "random"}])
@pytest.mark.parametrize("m", [0, 1, 40])
def test_a_setting_of_the_paper_gets_the_papers_method(settings, m):
    constraints = {"equality": rows_of(m)} if m else {}
    a = asked(logistic(mossp.L1(LAM), **constraints), **settings)
    assert a.name == "mossp-r" and not a.polish and a.tol == 1e-2
    assert "a setting of the paper was asked for" in a.chosen


@pytest.mark.parametrize(
    ("problem", "dtype", "tol"),
    [
        (on_sphere, "float64", 1e-10),
        (on_sphere, "float32", 1e-4),
        (lambda: mossp.Problem(losses.logistic, mossp.Sampler(draw)), "float64", 1e-2),
        (lambda: mossp.Problem(losses.logistic, mossp.Sampler(draw)), "float32", 1e-2),
    ],
)
def test_the_tolerance_left_out(problem, dtype, tol):
    assert asked(problem(), dtype=dtype).tol == tol
    assert asked(problem(), dtype=dtype, tol=0.25).tol == 0.25


@pytest.mark.parametrize("data", [lambda: mossp.Sampler(draw), lambda: mossp.Stream(batches())])
def test_polishing_data_without_end_is_refused(data):
    with pytest.raises(ValueError, match="polish needs all of the data"):
        mossp.solve(mossp.Problem(losses.logistic, data()), X0, polish=True)


def test_the_result_says_what_was_chosen():
    r = unbroken()
    assert "Chosen: sqp-dc with SVRG gradients: 600 rows, 1 constraint." in r.message
    assert "Polished by" in r.message and is_sentence(r.message)
    s = r.settings
    assert s["method"] == "sqp-dc" and s["samples"] == N and s["constraints"] == 1
    assert s["variables"] == n and s["regularizer"] == "L1MinusL2" and s["schedule"] == "Auto"
    assert r.tol == 1e-10 and s["dtype"] == "float64"
    assert "sqp-dc" in r.summary().splitlines()[0]


# Exact, and as low as SciPy -------------------------------------------------------------------


def mean_logistic(x, rows=N):
    return float(np.mean(np.logaddexp(0, -Y[:rows] * (X[:rows] @ x))))


def best_of_scipy(reg, kind=None, radius=1.0, nonnegative=False, rows=N):
    """The lowest F of four runs of SLSQP over (p, q); h must be a multiple of |x|_1."""
    slope, A, y = float(reg.h(np.eye(n)[0])), X[:rows], Y[:rows]

    def smooth(v):
        x = v[:n] - v[n:]
        z = y * (A @ x)
        g = -(A.T @ (y * np.exp(-np.logaddexp(0, z)))) / rows - np.asarray(reg.subgradient_g(x))
        F = np.mean(np.logaddexp(0, -z)) - float(reg.g(x)) + slope * v.sum()
        return F, np.concatenate([g + slope, -g + slope])

    def c(v):
        x = v[:n] - v[n:]
        return (radius**2 - x @ x) if kind == "ineq" else (x @ x - radius**2)

    def dc(v):
        x = v[:n] - v[n:]
        return (-2 if kind == "ineq" else 2) * np.concatenate([x, -x])

    found, draws = [], np.random.default_rng(0)
    for x in [X0, *draws.normal(size=(3, n)) / np.sqrt(n)]:
        v = np.concatenate([np.maximum(x, 0), np.maximum(-x, 0)])
        bounds = [(0, None)] * n + [(0, 0 if nonnegative else None)] * n
        o = scipy.optimize.minimize(
            smooth, np.where(nonnegative & (np.arange(2 * n) >= n), 0, v), jac=True,
            method="SLSQP", bounds=bounds, options={"maxiter": 300, "ftol": 1e-13},
            constraints=[{"type": kind, "fun": c, "jac": dc}] if kind else (),
        )  # fmt: skip
        x = o.x[:n] - o.x[n:]
        off = 0.0 if kind is None else abs(c(o.x)) if kind == "eq" else max(-c(o.x), 0.0)
        if off <= 1e-9:
            found.append(mean_logistic(x, rows) + float(reg(x)))
    assert found, "SciPy found no feasible point: choose other starts"
    return min(found)


# With the number of rows: 600 are solved with SVRG gradients, 250 with full ones.
REGULARIZERS = {
    "L1MinusL2": (mossp.L1MinusL2(LAM), N),
    "CappedL1": (mossp.CappedL1(LAM, 0.3), N),
    "MCP": (mossp.MCP(LAM, 5.0), N),
    "TruncatedL1": (mossp.TruncatedL1(LAM, 3), N),
    "SCAD": (mossp.SCAD(LAM, 3.7), 250),
    "LogSum": (mossp.LogSum(LAM, 0.5), 250),
    "TransformedL1": (mossp.TransformedL1(LAM, 1.0), 250),
    "TruncatedL1MinusL2": (mossp.TruncatedL1MinusL2(LAM, 3), 250),
}


@pytest.mark.parametrize("name", REGULARIZERS)
def test_certified_and_as_low_as_scipy_on_the_sphere(name):
    reg, rows = REGULARIZERS[name]
    problem = logistic(reg, rows, equality=sphere)
    r = mossp.solve(problem, X0)
    assert r.success and r.status is Status.CONVERGED and r.tol == 1e-10, r.message
    assert ("SVRG" if rows == N else "full") + f" gradients: {rows} rows" in r.message
    assert r.certificate.is_kkt(1e-10) and mossp.stationarity(problem, r.x) <= 2e-10
    assert abs(r.x @ r.x - 1) <= 1e-10 and r.violation <= 1e-10
    assert r.fun == pytest.approx(mean_logistic(r.x, rows) + float(reg(r.x)), abs=1e-13)
    assert r.fun <= best_of_scipy(reg, "eq", rows=rows) + 1e-8
    assert r.steps < r.settings["steps"]


@pytest.mark.parametrize(("radius", "active"), [(0.7, True), (100.0, False)])
def test_an_inequality_active_or_not(radius, active):
    reg = mossp.L1(LAM)
    problem = logistic(reg, inequality=Partial(ball, np.array(radius)))
    r = mossp.solve(problem, X0)
    assert r.success and r.tol == 1e-10, r.message
    q = float(r.certificate.multipliers["inequality"])
    c = r.x @ r.x - radius**2
    assert c <= 1e-10 and q >= 0
    assert (abs(c) <= 1e-10 and q > 1e-3) if active else (c < -1 and q <= 1e-10)
    assert r.fun <= best_of_scipy(reg, "ineq", radius) + 1e-8
    assert mossp.stationarity(problem, r.x) <= 2e-10


def test_a_nonnegative_problem():
    reg = mossp.L1(LAM)
    r = mossp.solve(logistic(mossp.Nonnegative(reg), equality=sphere), X0)
    assert r.success and r.tol == 1e-10, r.message
    assert (r.x >= 0).all() and (r.x == 0).any() and r.violation <= 1e-10
    assert r.fun <= best_of_scipy(reg, "eq", nonnegative=True) + 1e-8


NORMALS = np.random.default_rng(6).normal(size=(40, 4))
CENTRE = np.array([1.0, -0.6, 0.4, 0.02])


def polytope(x):
    return jnp.asarray(NORMALS) @ x - 0.5


def around_centre(x):
    return 0.5 * jnp.sum((x - jnp.asarray(CENTRE)) ** 2)


def test_forty_constraints():
    """A quadratic program: SciPy solves it over x = p - q as well."""
    problem = mossp.Problem(around_centre, None, mossp.L1(0.1), inequality=polytope)
    r = mossp.solve(problem, np.full(4, 0.5))
    assert r.settings["method"] == "mossp-al" and r.settings["constraints"] == 40
    assert "mossp-al with full gradients: no data, 40 constraints" in r.message
    assert r.success and (NORMALS @ r.x - 0.5).max() <= 1e-10, r.message
    split = lambda v: v[:4] - v[4:]  # noqa: E731
    o = scipy.optimize.minimize(
        lambda v: 0.5 * np.sum((split(v) - CENTRE) ** 2) + 0.1 * v.sum(), np.zeros(8),
        method="SLSQP", bounds=[(0, None)] * 8, options={"ftol": 1e-12, "maxiter": 300},
        constraints=[{"type": "ineq", "fun": lambda v: 0.5 - NORMALS @ split(v)}],
    )  # fmt: skip
    assert (NORMALS @ split(o.x) - 0.5).max() <= 1e-9 and abs(r.fun - o.fun) <= 1e-7


# The run --------------------------------------------------------------------------------------


def same(a, b):
    """Bit for bit, but for the time it took."""
    assert np.array_equal(a.xs, b.xs) and np.array_equal(a.x, b.x)
    assert np.array_equal(a.funs, b.funs) and np.array_equal(a.violations, b.violations)
    assert a.steps == b.steps and a.status is b.status and a.message == b.message
    assert a.certificate.worst == b.certificate.worst
    assert np.array_equal(a.trace.objective, b.trace.objective, equal_nan=True)


def test_it_stops_early():
    r = unbroken()
    assert r.steps < r.settings["steps"] and r.trace.steps[-1] == r.steps


def test_it_is_repeatable_and_leaves_its_inputs_alone():
    mine, labels, x0 = X.copy(), Y.copy(), X0.copy()
    problem = mossp.Problem(losses.logistic, (mine, labels), mossp.L1MinusL2(LAM), equality=sphere)
    r = mossp.solve(problem, x0, seed=0)
    same(r, unbroken())
    assert r.gradients == unbroken().gradients
    same(mossp.solve(problem, x0, seed=0), r)
    assert np.array_equal(mine, X) and np.array_equal(labels, Y) and np.array_equal(x0, X0)


def test_another_seed_takes_other_steps_to_the_same_optimum():
    r = mossp.solve(on_sphere(), X0, seed=1)
    assert r.success and r.fun == pytest.approx(unbroken().fun, abs=1e-10)
    assert not np.array_equal(r.trace.objective, unbroken().trace.objective)


def test_a_budget_in_steps():
    """Polishing comes on top of it, and is counted in gradients."""
    bare = mossp.solve(on_sphere(), X0, steps=7, polish=False)
    r = mossp.solve(on_sphere(), X0, steps=7)
    assert bare.steps == r.steps == 7 and not bare.success
    assert bare.status is Status.BUDGET and "Polish" not in bare.message
    more = r.gradients - bare.gradients
    assert more > 0 and more % N == 0
    assert r.hessian_products > bare.hessian_products
    assert r.certificate.worst < bare.certificate.worst


@pytest.mark.parametrize("budget", [1000, 5000])
def test_a_budget_in_gradients(budget):
    bare = mossp.solve(on_sphere(), X0, gradients=budget, polish=False)
    assert 0.8 * budget - N <= bare.gradients <= budget
    r = mossp.solve(on_sphere(), X0, gradients=budget)
    polishing = r.hessian_products - bare.hessian_products  # the rest measures constants
    assert r.steps <= bare.steps and r.gradients + 2 * max(polishing, 0) <= budget


def test_less_than_one_step_is_refused():
    with pytest.raises(ValueError, match="less than one step"):
        mossp.solve(on_sphere(), X0, gradients=10)


def test_a_budget_in_seconds():
    r = mossp.solve(on_sphere(), X0, seconds=1e-6)
    assert r.steps < r.settings["steps"] and r.seconds < 5
    assert not r.success and r.status is Status.BUDGET
    assert "It ended early, and was not polished." in r.message
    assert mossp.solve(on_sphere(), X0, seconds=100.0).success


def test_a_callback_stops_it():
    seen = []

    def stop(progress):
        seen.append(progress)
        return True

    r = mossp.solve(on_sphere(), X0, callback=stop)
    assert r.status is Status.STOPPED and len(seen) == 1 and r.steps == seen[0].step
    assert np.array_equal(r.x, seen[0].x[0]) and "not polished" in r.message
    assert is_sentence(r.message)


def stop_after(looks):
    count = iter(range(looks))
    return lambda progress: next(count, None) is None


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_resumed_equals_unbroken(tmp_path, looks):
    """The third look is where the unbroken run is polished and ends."""
    saved = {"checkpoint": tmp_path / "run"}
    broken = mossp.solve(on_sphere(), X0, **saved, callback=stop_after(looks))
    assert broken.status is Status.STOPPED and broken.steps <= unbroken().steps
    r = mossp.solve(on_sphere(), X0, **saved)
    same(r, unbroken())


def test_resumed_counts_the_same_gradients(tmp_path, monkeypatch):
    """One Newton step is not enough: polishing is tried in vain, and tried again later."""
    monkeypatch.setattr(polishing, "STEPS", 1)
    saved, given = {"checkpoint": tmp_path / "run"}, {"steps": 600, "seed": 1}
    whole = mossp.solve(on_sphere(), X0, **given)
    mossp.solve(on_sphere(), X0, **given, **saved, callback=stop_after(6))
    r = mossp.solve(on_sphere(), X0, **given, **saved)
    assert r.steps == whole.steps and np.array_equal(r.x, whole.x)
    assert r.gradients == whole.gradients and r.hessian_products == whole.hessian_products


def test_a_finished_run_called_again_gives_the_same_answer(tmp_path):
    saved = {"checkpoint": tmp_path / "run"}
    first = mossp.solve(on_sphere(), X0, **saved)
    same(first, unbroken())
    same(mossp.solve(on_sphere(), X0, **saved), first)


def test_a_finished_run_called_again_is_still_certified(tmp_path):
    saved = {"checkpoint": tmp_path / "run"}
    first = mossp.solve(on_sphere(), X0, **saved)
    again = mossp.solve(on_sphere(), X0, **saved)
    assert again.success and again.fun == pytest.approx(first.fun, abs=1e-10)
    np.testing.assert_allclose(again.x, first.x, atol=1e-8)


def test_three_replicas():
    r = unbroken(replicas=3)
    assert r.success and r.xs.shape == (3, n) and r.funs.shape == (3,)
    assert (r.violations <= 1e-10).all() and r.fun == r.funs.min()
    np.testing.assert_allclose(r.funs, unbroken().fun, atol=1e-9)
    assert r.expectation.replicas == 3


def test_progress_is_shown(capsys):
    r = mossp.solve(on_sphere(), X0, progress=True)
    same(r, unbroken())
    shown = capsys.readouterr()
    assert "step" in shown.err and not shown.out


def test_silent_unless_asked(capsys):
    mossp.solve(on_sphere(), X0)
    shown = capsys.readouterr()
    assert not shown.err and not shown.out


@pytest.mark.parametrize("factor", [0.0, 100.0, -100.0])
def test_any_start_on_the_sphere(factor):
    """Far away, and at 0, where the gradient of the constraint vanishes."""
    r = mossp.solve(on_sphere(), factor * X0)
    assert r.success, r.message
    assert r.fun == pytest.approx(unbroken().fun, abs=1e-8)


# Small problems of one shape: they share a program a regulariser -------------------------------


def valley(p, x):
    """(x - t)'Q(x - t)/2 + well (x_0^2 - 1)^2, NaN where x_0 > edge."""
    d = x - p["t"]
    value = 0.5 * d @ (p["Q"] @ d) + p["well"] * (x[0] ** 2 - 1) ** 2
    return jnp.where(x[0] > p["edge"], jnp.nan, value)


def curved(p, x):
    return p["A"] @ x - p["b"] + p["curve"] * (x @ x)


class Small:
    """Four variables, two equalities A x + curve |x|^2 = b, one inequality a'x <= beta."""

    def __init__(self, reg=None, **changes):
        given = {
            "t": [1.0, -0.6, 0.4, 0.02], "Q": np.eye(4), "well": 0.0, "edge": np.inf,
            "A": [[0, 0, 0, 1.0], [0, 0, 1.0, 0]], "b": [0.0, 0.0], "curve": [0.0, 0.0],
            "a": np.zeros((1, 4)), "beta": [1.0],
        }  # fmt: skip
        assert set(changes) <= set(given)
        self.p = {k: np.asarray(v, float) for k, v in {**given, **changes}.items()}
        self.reg = reg or mossp.L1(0.1)

    @property
    def problem(self):
        p = self.p
        take = lambda *names: {name: p[name] for name in names}  # noqa: E731
        below = {"A": p["a"], "b": p["beta"], "curve": np.zeros(1)}
        return mossp.Problem(
            Partial(valley, take("t", "Q", "well", "edge")), None, self.reg,
            equality=Partial(curved, take("A", "b", "curve")), inequality=Partial(curved, below),
        )  # fmt: skip

    def solve(self, x0=(0.5, 0.5, 0.5, 0.5), **settings):
        return mossp.solve(self.problem, np.array(x0, float), **settings)

    # Again, in NumPy.

    def equalities(self, x):
        p = self.p
        return p["A"] @ x - p["b"] + p["curve"] * (x @ x), p["A"] + 2 * np.outer(p["curve"], x)

    def violation(self, x):
        above = np.maximum(self.p["a"] @ x - self.p["beta"], 0)
        return np.linalg.norm(np.concatenate([self.equalities(x)[0], above]))

    def fun(self, x):
        p, d = self.p, x - self.p["t"]
        value = 0.5 * d @ p["Q"] @ d + p["well"] * (x[0] ** 2 - 1) ** 2
        return value + float(self.reg(x))

    def distance(self, x, tol):
        """min |grad f + J q + s_h - s_g| over q, s_h in dh(x), s_g in dg(y), |y - x| <= tol."""
        p, lam = self.p, float(self.reg.slope)
        gradient = p["Q"] @ (x - p["t"])
        gradient[0] += 4 * p["well"] * x[0] * (x[0] ** 2 - 1)
        J = np.concatenate([self.equalities(x)[1], p["a"]])
        active = (p["a"] @ x - p["beta"] >= -tol).all()
        low, high = [-np.inf, -np.inf, 0.0], [np.inf, np.inf, np.inf if active else 1e-300]
        for entry in x:
            low.append(-lam if entry <= 0 else lam - 1e-15)
            high.append(lam if entry >= 0 else -lam + 1e-15)
        columns, extra = [*J, *np.eye(4)], []
        lowest, highest, total = self.slopes_of_g(x, tol)
        for i in range(4):
            columns.append(-np.eye(4)[i])
            low.append(lowest[i] - 1e-16)
            high.append(highest[i] + 1e-16)
        A, rhs = np.array(columns).T, -gradient
        if total is not None:  # the slopes of tied entries have a fixed sum
            extra = np.zeros(len(low))
            extra[-4:] = 1e3 * np.sign(x)
            A, rhs = np.vstack([A, extra]), np.append(rhs, 1e3 * total)
        return np.linalg.norm(A @ (found := bounded(A, rhs, low, high)) - rhs), found

    def slopes_of_g(self, x, tol):
        """Bounds on s_g, and their sum (times the signs of x) where it is fixed."""
        a, s, reg = np.abs(x), np.sign(x), self.reg
        if isinstance(reg, mossp.L1):
            return 0 * x, 0 * x, None
        if isinstance(reg, mossp.CappedL1):
            slope = float(reg.slope)
            ends = np.where(a < reg.theta - tol, 0, slope), np.where(a > reg.theta + tol, slope, 0)
            both = s * ends[0], s * ends[1]
            return np.minimum(*both), np.maximum(*both), None
        if isinstance(reg, mossp.TruncatedL1):
            level = np.sort(a)[-reg.k]
            low, high = np.where(a > level + tol, reg.lam, 0), np.where(a < level - tol, 0, reg.lam)
            both = s * low, s * high
            return np.minimum(*both), np.maximum(*both), reg.lam * reg.k
        size = np.linalg.norm(x)
        exact = 0 * x if size <= tol else reg.lam * x / size  # 0 is one of those at 0
        return exact, exact, None

    def honest(self, r):
        """Success is claimed only where it is true; and what is returned is what was known."""
        assert is_sentence(r.message) and np.isfinite(r.x).all()
        assert r.violation == pytest.approx(self.violation(r.x), rel=1e-6, abs=1e-12)
        assert r.success == (r.status is Status.CONVERGED)
        if r.success:
            distance = self.distance(r.x, r.tol)[0]
            assert distance <= r.tol + 1e-12 and self.violation(r.x) <= r.tol
            assert r.fun == pytest.approx(self.fun(r.x), abs=1e-12)


def bounded(A, b, low, high):
    return scipy.optimize.lsq_linear(A, b, (low, high), method="bvls", tol=1e-15).x


PLANE = [1.0, 1.0, 1.0, 1.0]


def test_the_check_itself_finds_what_is_wrong():
    small = Small(A=[PLANE, [0, 0, 1.0, 0]], b=[0.5, 0.0])
    r = small.solve()
    assert r.success and small.distance(r.x, 1e-10)[0] <= 1e-10
    assert small.distance(r.x + 1e-3 * np.array([1, -1, 0, 0]), 1e-10)[0] > 1e-4


def test_the_same_row_twice():
    small = Small(A=[PLANE, PLANE], b=[0.5, 0.5])
    r = small.solve()
    small.honest(r)
    assert r.success and r.violation <= 1e-10, r.message
    single = Small(A=[PLANE, [0.0] * 4], b=[0.5, 0.0]).solve()
    assert r.fun == pytest.approx(single.fun, abs=1e-10)


def test_inconsistent_rows():
    small = Small(A=[PLANE, PLANE], b=[0.5, 1.5])
    x0 = np.full(4, 0.5)
    r = small.solve(x0)
    small.honest(r)
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert r.violation <= small.violation(x0) + 1e-8


def test_an_infeasible_stationary_point():
    """|x|^2 = -1 has no solution; 0 violates it least."""
    small = Small(A=np.zeros((2, 4)), b=[-1.0, -1.0], curve=[1.0, 1.0])
    r = small.solve()
    small.honest(r)
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert np.sqrt(2) - 1e-12 <= r.violation <= small.violation(np.full(4, 0.5))
    assert "cannot" in r.message and "hold" in r.message


def test_an_unbounded_problem():
    small = Small(Q=np.diag([-1.0, 1, 1, 1]))
    r = small.solve()
    assert r.status is Status.DIVERGED and not r.success
    assert is_sentence(r.message) and np.isfinite(r.x).all()


def test_a_loss_that_becomes_nan():
    small = Small(edge=0.7)
    r = small.solve()
    assert r.status is Status.NONFINITE and not r.success
    assert "the loss" in r.message and is_sentence(r.message)
    assert np.isfinite(r.x).all() and np.isfinite(r.fun) and r.x[0] <= 0.7
    assert r.fun <= small.fun(np.array([0.5, 0.5, 0, 0])) + 1e-9


def test_a_loss_that_is_nan_at_the_start():
    r = Small(edge=0.3).solve()
    assert r.status is Status.NONFINITE and not r.success and r.steps == 0
    assert is_sentence(r.message)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("side", ["equality", "inequality"])
def test_the_optimum_at_the_kink_of_capped_l1(side, sign):
    """x_0 = +-theta is where the constraint puts it, and g has a kink there."""
    theta, row = 0.4, [[sign, 0, 0, 0]]
    changes = (
        {"A": [row[0], [0, 0, 1.0, 0]], "b": [theta, 0.0]}
        if side == "equality"
        else {"a": row, "beta": [theta]}
    )
    small = Small(mossp.CappedL1(0.1, theta), t=[sign, -0.6, 0.4, 0.02], **changes)
    r = small.solve((0.1, 0.1, 0.1, 0.1))
    small.honest(r)
    assert r.success, r.message
    assert abs(r.x[0] - sign * theta) <= 1e-10


def test_a_critical_point_at_the_kink_is_not_taken_for_a_minimum():
    """F has a peak between two valleys at |x_1| = theta: no minimum is there."""
    small = Small(mossp.CappedL1(0.1, 0.55), t=[1.0, -0.6, 0.4, 0.02])
    r = small.solve((1.0, -0.55, 0.0, 0.0))
    small.honest(r)
    assert abs(abs(r.x[1]) - 0.55) > 1e-3


def test_a_tie_at_the_last_place_of_truncated_l1():
    small = Small(
        mossp.TruncatedL1(0.1, 2), t=[1.0, 0.5, 0.5, 0.02], A=[[0, 1.0, -1, 0], [0, 0, 0, 1]],
    )  # fmt: skip
    r = small.solve()
    small.honest(r)
    assert abs(r.x[1] - r.x[2]) <= 1e-10
    # x_1 = x_2 = s: one of them pays, whichever; (s - 0.5)^2 + 0.1 s is least at 0.45.
    np.testing.assert_allclose(r.x, [1.0, 0.45, 0.45, 0.0], atol=1e-5)
    assert r.success, r.message


def test_zero_for_l1_minus_l2():
    small = Small(mossp.L1MinusL2(0.1), t=[0.0] * 4)
    for x0 in ((0.5, 0.5, 0.5, 0.5), (0.0, 0.0, 0.0, 0.0), (1e-9, 0.0, 0.0, 0.0)):
        r = small.solve(x0)
        small.honest(r)
        assert r.success, r.message
        np.testing.assert_allclose(r.x, 0.0, atol=1e-9)
        assert r.fun <= 1e-15


def test_badly_scaled_rows():
    A, b = np.array([PLANE, [1.0, -2.0, 0.5, 0]]), np.array([0.5, 0.3])
    scale = np.array([1e-3, 1e3])
    plain, scaled = Small(A=A, b=b), Small(A=scale[:, None] * A, b=scale * b)
    r, good = scaled.solve(), plain.solve()
    scaled.honest(r)
    plain.honest(good)
    assert r.success and good.success, r.message
    np.testing.assert_allclose(r.x, good.x, atol=1e-6)
    assert r.fun == pytest.approx(good.fun, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_badly_scaled_sphere(scale):
    """Both rows say |x|^2 = 1, one of them in another unit."""
    both = {"A": np.zeros((2, 4)), "b": [1.0, scale], "curve": [1.0, scale]}
    small, x0 = Small(**both), np.zeros(4)
    r = small.solve(x0)
    small.honest(r)
    assert r.success and abs(r.x @ r.x - 1) <= 1e-7, r.message
    good = Small(A=np.zeros((2, 4)), b=[1.0, 0.0], curve=[1.0, 0.0]).solve()
    assert r.fun == pytest.approx(good.fun, abs=1e-6)


@pytest.mark.parametrize("factor", [100.0, -100.0])
def test_a_far_start(factor):
    small = Small(A=np.zeros((2, 4)), b=[1.0, 0.0], curve=[1.0, 0.0])
    r = small.solve(np.full(4, 0.5) * factor)
    small.honest(r)
    assert r.success and r.fun == pytest.approx(small.solve().fun, abs=1e-9), r.message


def test_single_precision():
    r = Small().solve(dtype="float32")
    assert r.tol == 1e-4 and r.success and r.settings["dtype"] == "float32", r.message
    np.testing.assert_allclose(r.x, Small().solve().x, atol=1e-4)


# Samplers and streams -------------------------------------------------------------------------

GOAL = np.array([1.0, -0.5, 0.3, 0.0])


def noisy(x, rows):
    return 0.5 * jnp.mean(jnp.sum((x - rows) ** 2, axis=1))


def samples(key, size):
    return jnp.asarray(GOAL) + 0.5 * jax.random.normal(key, (size, 4))


def stream():
    draws = GOAL + 0.5 * np.random.default_rng(8).normal(size=(4096, 32, 4))
    return mossp.Stream(list(draws))


@pytest.mark.parametrize("data", [lambda: mossp.Sampler(samples), stream])
def test_samples_without_end_are_far_more_feasible_than_with_a_penalty(data):
    def run(**settings):
        problem = mossp.Problem(noisy, data(), mossp.L1MinusL2(0.05), equality=sphere)
        return mossp.solve(problem, np.full(4, 0.5), gradients=100_000, seed=2, **settings)

    auto, penalty = run(), run(method="mossp-r")
    assert auto.settings["method"] == "sqp-dc" and "recursive gradients" in auto.message
    assert auto.success and auto.tol == 1e-2, auto.message
    assert auto.gradients <= 100_000 and penalty.gradients <= 100_000
    assert penalty.gradients >= 90_000 and auto.violation <= penalty.violation / 10
    assert "olish" not in auto.message and auto.certificate.samples > 1000


# Many starts ----------------------------------------------------------------------------------


def two_valleys():
    """Minima near x_0 = 1 and, lower, near x_0 = -1."""
    return Small(t=[-0.5, 0.3, 0.0, 0.0], well=1.0)


BAD = (1.0, 0.0, 0.0, 0.0)


@functools.cache
def eight(seed=0):
    return two_valleys().solve(BAD, starts=8, seed=seed)


def test_eight_starts_find_the_better_minimum():
    small = two_valleys()
    alone, many = small.solve(BAD), eight()
    small.honest(alone)
    small.honest(many)
    assert alone.success and many.success
    assert alone.x[0] > 0.7 and many.x[0] < -0.7
    assert many.fun < alone.fun - 0.5


def test_the_best_of_eight_is_returned():
    r = eight()
    assert r.funs.shape == r.violations.shape == (8,) and r.xs.shape == (8, 4)
    feasible = r.violations <= r.tol
    assert feasible.any() and r.fun == r.funs[feasible].min()
    best = int(np.argmin(np.where(feasible, r.funs, np.inf)))
    assert np.array_equal(r.x, r.xs[best])
    assert r.settings["replicas"] == 8
    assert r.expectation is None  # it speaks of replicas that share their start
    arrived = r.xs[np.abs(r.xs[:, 0]) < 10, 0]
    assert len(np.unique(np.round(arrived, 6))) == 2  # both valleys


def test_eight_starts_are_repeatable():
    r = two_valleys().solve(BAD, starts=8)
    same(r, eight())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_eight_starts_are_never_worse_than_one(seed):
    alone, many = two_valleys().solve(BAD, seed=seed), eight(seed)
    assert many.fun <= alone.fun + 1e-9
    assert many.funs[0] == pytest.approx(alone.fun, abs=1e-9)  # x0 is one of the starts


@pytest.mark.parametrize("start", [0.42, 0.5])
def test_a_start_where_the_curvature_is_small(start):
    """A quartic with two valleys is bounded below: no start should run away from it."""
    small = two_valleys()
    r = small.solve((start, 0.0, 0.0, 0.0))
    small.honest(r)
    assert r.success, r.message


@pytest.mark.parametrize("length", [0.1, 3.0])
def test_the_rule_of_the_starts(length):
    """By turns x + s e / 2 and s e, s = max(|x|, 1) / sqrt(n), e the seed's normal vector."""
    x = length * np.ones(n) / np.sqrt(n)
    with jax.enable_x64(True):
        posed = logistic(mossp.L1(LAM)).oracles(x)
        found = different_starts(posed, x, 6, 1e-8, seed=5)
        fewer = different_starts(posed, x, 4, 1e-8, seed=5)
        other = different_starts(posed, x, 4, 1e-8, seed=6)
    assert np.array_equal(found[0], x) and np.array_equal(found[:4], fewer)
    assert not np.isclose(found[1:4], other[1:]).any()
    s = max(length, 1.0) / np.sqrt(n)
    for r in range(1, 6):
        e = keys.generator(5, keys.Purpose.START, r).standard_normal(n)
        np.testing.assert_allclose(found[r], x + s * e / 2 if r % 2 else s * e, atol=1e-12)


def test_the_starts_are_feasible_where_they_can_be():
    x = X0 / np.linalg.norm(X0)
    with jax.enable_x64(True):
        found = different_starts(on_sphere().oracles(x), x, 8, 1e-8)
        inside = different_starts(logistic(mossp.Nonnegative(mossp.L1(LAM))).oracles(x), x, 8, 1e-8)
    assert np.abs(np.sum(found**2, axis=1) - 1).max() <= 1e-8
    assert np.array_equal(found[0], x) and (inside >= 0).all()
    gaps = np.linalg.norm(found[:, None] - found[None], axis=2) + 10 * np.eye(8)
    assert gaps.min() > 0.05


def test_starts_with_constraints_that_cannot_be_met():
    r = Small(A=[PLANE, PLANE], b=[0.5, 1.5]).solve(starts=8)
    assert r.status is Status.INFEASIBLE_STATIONARY and not r.success
    assert r.violation == r.violations.min() and is_sentence(r.message)


def test_starts_with_replicas_are_refused():
    with pytest.raises(ValueError, match=r"starts = 8 .* replicas = 3 cannot be asked for as well"):
        Small().solve(starts=8, replicas=3)


@pytest.mark.parametrize(
    ("starts", "error"),
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("8", TypeError), (None, TypeError)],
)
def test_wrong_numbers_of_starts_are_refused(starts, error):
    with pytest.raises(error, match="starts must be"):
        Small().solve(starts=starts)


def test_a_checkpoint_of_replicas_is_not_one_of_starts(tmp_path):
    """Eight replicas from x0 and eight starts are different runs."""
    saved = {"checkpoint": tmp_path / "run"}
    two_valleys().solve(BAD, replicas=8, **saved, callback=lambda progress: True)
    with pytest.raises(mossp.CheckpointError, match="other settings"):
        two_valleys().solve(BAD, starts=8, **saved)


def test_starts_resumed(tmp_path):
    saved = {"checkpoint": tmp_path / "run", "starts": 8}
    two_valleys().solve(BAD, **saved, callback=stop_after(0))
    same(two_valleys().solve(BAD, **saved), eight())


# Where the first choice fails --------------------------------------------------------------------


def volume(x):
    return -x[0] * x[1] * x[2]


def ellipsoid(D, r, x):
    return D @ x**2 - r


LONG = np.random.default_rng(1).uniform(1, 5, 3)


@pytest.mark.parametrize("seed", range(4))
def test_a_product_under_an_ellipsoid(seed):
    """Its steps are measured where the loss is flat; the optimum is known."""
    D, r = np.random.default_rng(seed).uniform(1, 5, 3), [10.0, 48.0, 200.0, 1000.0][seed]
    result = mossp.solve(mossp.Problem(volume, inequality=Partial(ellipsoid, D, r)), np.ones(3))
    best = -np.sqrt((r / 3) ** 3 / np.prod(D))
    assert result.fun == pytest.approx(best, rel=1e-6) and result.violation <= 1e-6 * r
    assert "DIVERGED first: this is the answer of" in result.message or seed == 0
    assert is_sentence(result.message)


def slope(a, x):
    return a @ x


def growth(r, x):
    return jnp.sum(jnp.exp(x) + jnp.exp(-x)) - r


def test_exponentials_in_a_constraint():
    a = np.array([3.0, -1.0, 0.5])
    result = mossp.solve(
        mossp.Problem(Partial(slope, a), inequality=Partial(growth, 30.0)), np.zeros(3)
    )
    assert result.success, result.message
    q = result.certificate.multipliers["inequality"]
    np.testing.assert_allclose(a + q * 2 * np.sinh(result.x), 0, atol=1e-9)
    assert abs(np.sum(2 * np.cosh(result.x)) - 30) <= 1e-9


def entropy_like(w, x):
    return x @ jnp.arange(1.0, 5.0) - w @ jnp.log(x)


def test_a_log_loss_that_is_finite_at_the_start():
    """x_i = w_i / i; the first step leads where it is NaN."""
    w = np.array([0.1, 2.0, 0.3, 1.0])
    result = mossp.solve(mossp.Problem(Partial(entropy_like, w)), np.full(4, 5.0))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, w / np.arange(1, 5), atol=1e-9)


def sum_to(total, x):
    return jnp.sum(x) - total


def test_phase_one_does_not_leave_where_the_loss_is_finite():
    """The feasible point next to x0 has a negative entry."""
    w = np.ones(4)
    x0 = np.array([0.1, 9.0, 9.0, 9.0])
    problem = mossp.Problem(Partial(entropy_like, w), equality=Partial(sum_to, 4.0))
    result = mossp.solve(problem, x0)
    assert result.success and (result.x > 0).all(), result.message
    assert "not finite at the feasible point" in result.message


def test_the_first_way_is_left_alone_where_it_succeeds(monkeypatch):
    ways = importlib.import_module("mossp.solving.ways")
    monkeypatch.setattr(ways, "further", None)
    same(mossp.solve(on_sphere(), X0, seed=0), unbroken())


def test_a_named_method_is_not_followed_by_others():
    problem = mossp.Problem(volume, inequality=Partial(ellipsoid, LONG, 48.0))
    result = mossp.solve(problem, np.ones(3), method=mossp.SQPDC(momentum=mossp.Full()))
    assert result.status is Status.DIVERGED and "answer of" not in result.message


def test_other_ways_are_counted():
    problem = mossp.Problem(volume, inequality=Partial(ellipsoid, LONG, 48.0))
    found, costs = [], importlib.import_module("mossp.solving.ways")
    told = costs.told

    def listen(a, first, best, name, tried):
        found.extend(tried)
        return told(a, first, best, name, tried)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "told", listen)
        result = mossp.solve(problem, np.ones(3))
    assert len(found) >= 2 and found[0].status is Status.DIVERGED
    assert result.gradients == sum(r.gradients for r in found)
    assert result.seconds == pytest.approx(sum(r.seconds for r in found))


def outside_box(x):
    return jnp.sum(jnp.log(x - 3.0)) * jnp.nan


def test_points_outside_the_domain_are_never_returned():
    problem = mossp.Problem(outside_box, regularizer=mossp.Box(mossp.L1(0.1), -1.0, 1.0))
    result = mossp.solve(problem, np.full(3, 5.0))
    assert result.status is Status.NONFINITE and not result.success
    assert (np.abs(result.x) <= 1.0).all()


def test_shorter_steps():
    bare = {"method": "sqp-dc", "steps": 5, "polish": False}
    whole = mossp.solve(on_sphere(), X0, **bare)
    short = mossp.solve(on_sphere(), X0, **bare, schedule=mossp.schedules.Auto(shorten=1e-3))
    same(whole, mossp.solve(on_sphere(), X0, **bare, schedule=mossp.schedules.Auto()))
    assert np.linalg.norm(short.x - whole.x) > 1e-3
    with pytest.raises(ValueError, match="shorten > 0"):
        mossp.schedules.Auto(shorten=0.0)


# A start that is a solution already ---------------------------------------------------------------


def sphere_problem(**changes):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(400, 6))
    b = np.sign(A[:, 0] + 0.3 * rng.normal(size=400))
    given = {"regularizer": mossp.L1MinusL2(0.01), "equality": mossp.constraints.Sphere()}
    return mossp.Problem(mossp.losses.logistic, (A, b), **{**given, **changes})


@pytest.mark.parametrize(
    "changes",
    [{}, {"equality": None}, {"equality": None, "inequality": lambda x: x @ x - 4.0}],
    ids=["sphere", "none", "inequality"],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_start_that_is_a_solution_ends_at_step_0(changes, dtype):
    problem = sphere_problem(**changes)
    first = mossp.solve(problem, np.ones(6), dtype=dtype)
    again = mossp.solve(problem, first, dtype=dtype)
    assert first.success and again.success and again.steps == 0
    assert "The start is a solution already." in again.message
    np.testing.assert_allclose(again.fun, first.fun, atol=1e-12 if dtype == "float64" else 1e-6)


def test_replicas_of_a_solution_end_at_step_0():
    problem = sphere_problem()
    first = mossp.solve(problem, np.ones(6))
    again = mossp.solve(problem, first, replicas=2)
    assert again.success and again.steps == 0
    np.testing.assert_array_equal(again.xs[0], again.xs[1])


def test_another_candidate_may_still_be_lower_than_a_critical_start():
    """At 0 the truncated l1 norm is critical, whatever the loss."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 8))
    problem = mossp.Problem(
        mossp.losses.squared, (A, A[:, :2] @ [2.0, -1.0]), regularizer=mossp.TruncatedL1(5.0, 2)
    )
    result = mossp.solve(problem, np.zeros(8))
    assert result.success and result.fun <= 1e-12
    assert np.flatnonzero(result.x).tolist() == [0, 1]


def test_a_path_over_equal_strengths_ends_at_once():
    found = mossp.path(sphere_problem(), [0.02, 0.02, 0.02], np.ones(6))
    assert [result.steps > 0 for result in found.results] == [True, False, False]
    assert all(result.success for result in found.results)
