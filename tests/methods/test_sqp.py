"""The constrained proximal step and the method that takes it, against SciPy and NumPy.

The step has the convex problem

    min_x  h(x) + |x - w|^2 / (2 eta)    s.t.  e_E + J_E (x - x0) = 0,  e_I + J_I (x - x0) <= 0

whose solution is unique. The references solve it as a bounded quadratic programme.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import mossp
from mossp.methods import sqp_dc
from mossp.methods.dual import constrained_prox
from mossp.schedules import Parameters
from tests.problems import Halfspaces, sphere

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]

n, LAM, ETA = 30, 0.3, 0.7


# The step: three functions h --------------------------------------------------------------------


def shrink(v, t):
    return jnp.sign(v) * jnp.maximum(jnp.abs(v) - t, 0)


H = {
    "zero": (lambda x: jnp.zeros((), x.dtype), lambda v, eta: v),
    "l1": (lambda x: LAM * jnp.sum(jnp.abs(x)), lambda v, eta: shrink(v, eta * LAM)),
    "nonnegative l1": (
        lambda x: LAM * jnp.sum(jnp.abs(x)), lambda v, eta: jnp.maximum(v - eta * LAM, 0)
    ),
}  # fmt: skip


@functools.partial(jax.jit, static_argnames=("kind", "m_E"))
def step(kind, w, eta, x0, e, J, m_E, y, bound):
    return constrained_prox(*H[kind], w, eta, x0, e, J, m_E, y, bound)


def instance(m, m_E, seed, spread=0.0):
    """Rows that some positive point meets, each times a factor between 10^-spread and 10^spread."""
    rng = np.random.default_rng(seed)
    J, x0, w = (rng.standard_normal(s) for s in ((m, n), n, n))
    x0, w = np.abs(x0) * (rng.random(n) < 0.7), w * 1.5
    feasible = np.abs(rng.standard_normal(n))
    e = -J @ (feasible - x0)
    # Every other inequality has some slack at that point; some of them will be inactive.
    e[m_E:] -= np.where(np.arange(m - m_E) % 2, 3.0, 0.0)
    scale = 10 ** rng.uniform(-spread, spread, m)
    return w, x0, e * scale, J * scale[:, None]


def solved(kind, w, x0, e, J, m_E, bound=1e6):
    found = step(kind, w, ETA, x0, e, J, m_E, np.zeros(len(e)), bound)
    return jax.tree.map(np.asarray, found)


def objective(kind, x, w):
    l1 = 0.0 if kind == "zero" else LAM * np.abs(x).sum()
    return l1 + np.sum((x - w) ** 2) / (2 * ETA)


def kkt(kind, found, w, x0, e, J, m_E):
    """(stationarity, the worst of feasibility, sign and complementarity), rows of unit length."""
    x, y = found.x, found.y
    lengths = np.linalg.norm(J, axis=1)
    c, q = (e + J @ (x - x0)) / lengths, y * lengths
    v = (x - w) / ETA + y @ J
    if kind == "zero":
        left = v
    elif kind == "l1":
        left = np.where(x != 0, v + LAM * np.sign(x), np.maximum(np.abs(v) - LAM, 0))
    else:
        left = np.where(x != 0, v + LAM, np.maximum(-(v + LAM), 0)) + np.minimum(x, 0)
    rest = np.append(c[:m_E], np.minimum(q[m_E:], -c[m_E:]))
    return np.abs(left).max(), np.abs(rest).max(initial=0.0)


def reference(kind, w, x0, e, J, m_E):
    """x = a - b, a and b >= 0 where h has a kink: a smooth problem for SLSQP, rows of length 1."""
    lengths = np.linalg.norm(J, axis=1)
    e, J = e / lengths, J / lengths[:, None]
    both = np.hstack([np.eye(n), -np.eye(n)])
    bounds = [(0, None)] * n + [(0, 0 if kind == "nonnegative l1" else None)] * n
    lam = 0.0 if kind == "zero" else LAM
    shift = e - J @ x0
    parts = [("eq", slice(None, m_E), 1), ("ineq", slice(m_E, None), -1)]
    found = scipy.optimize.minimize(
        lambda z: lam * z.sum() + np.sum((both @ z - w) ** 2) / (2 * ETA),
        np.append(np.maximum(w, 0), np.maximum(-w, 0)),
        jac=lambda z: lam + both.T @ (both @ z - w) / ETA,
        bounds=bounds,
        constraints=[
            {
                "type": name,
                "fun": lambda z, s=s, sign=sign: sign * (shift[s] + J[s] @ both @ z),
                "jac": lambda z, s=s, sign=sign: sign * J[s] @ both,
            }
            for name, s, sign in parts
            if len(e[s])
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert found.success, found.message
    return both @ found.x, found.fun


ROWS = {"one equality": (1, 1), "one inequality": (1, 0), "mixed": (3, 1), "many": (20, 8)}


PAIRS = [(kind, rows) for kind in H for rows in ROWS]


@pytest.mark.parametrize(("kind", "rows"), PAIRS)
def test_the_step_is_that_of_slsqp(kind, rows):
    m, m_E = ROWS[rows]
    active = []
    for seed in range(2):
        w, x0, e, J = instance(m, m_E, seed)
        found = solved(kind, w, x0, e, J, m_E)
        x, value = reference(kind, w, x0, e, J, m_E)
        stationary, rest = kkt(kind, found, w, x0, e, J, m_E)
        assert stationary <= 1e-9 and rest <= 1e-9 and found.residual <= 1e-9
        np.testing.assert_allclose(found.x, x, atol=2e-5)
        assert objective(kind, found.x, w) <= value + 1e-8
        active += (found.y[m_E:] > 0).tolist()
    if rows == "many":
        assert 0 < sum(active) < len(active)  # some of both kinds


@pytest.mark.parametrize(("kind", "rows"), PAIRS)
def test_badly_scaled_rows_make_no_difference(kind, rows):
    """Factors from 1e-4 to 1e4: the same x, and multipliers divided by the factors."""
    m, m_E = ROWS[rows]
    for seed in range(10):
        w, x0, e, J = instance(m, m_E, seed, spread=4.0)
        found = solved(kind, w, x0, e, J, m_E)
        lengths = np.linalg.norm(J, axis=1)
        plain = solved(kind, w, x0, e / lengths, J / lengths[:, None], m_E)
        stationary, rest = kkt(kind, found, w, x0, e, J, m_E)
        assert stationary <= 1e-9 and rest <= 1e-9
        np.testing.assert_allclose(found.x, plain.x, atol=1e-9)
        np.testing.assert_allclose(found.y * lengths, plain.y, atol=1e-7)


def test_the_start_of_the_search_makes_no_difference():
    w, x0, e, J = instance(20, 8, 0)
    cold = solved("l1", w, x0, e, J, 8)
    for y in (cold.y, cold.y + 5.0, -100.0 * np.ones(20), np.full(20, 1e9)):
        warm = step("l1", w, ETA, x0, e, J, 8, y, 1e6)
        np.testing.assert_allclose(warm.x, cold.x, atol=1e-9)
        np.testing.assert_allclose(warm.y, cold.y, atol=1e-8)


# Constraints that depend on or contradict each other ----------------------------------------------


@pytest.mark.parametrize("kind", H)
def test_rows_that_are_given_twice(kind):
    w, x0, e, J = instance(3, 1, 4)
    once = solved(kind, w, x0, e, J, 1)
    order = [0, 0, 1, 2, 2]
    scale = np.array([1.0, -3.0, 1.0, 1.0, 5.0])
    twice = solved(kind, w, x0, e[order] * scale, J[order] * scale[:, None], 2)
    assert np.isfinite(twice.y).all() and twice.residual <= 1e-9
    np.testing.assert_allclose(twice.x, once.x, atol=1e-9)
    shares = np.array([twice.y[:2] @ scale[:2], twice.y[2], twice.y[3:] @ scale[3:]])
    np.testing.assert_allclose(shares, once.y, atol=1e-8)


def least_violation(kind, x0, e, J, m_E):
    """min |c_E|_1 + |[c_I]_+|_1 over x, rows of unit length: a linear programme."""
    lengths = np.linalg.norm(J, axis=1)
    e, J, m = e / lengths, J / lengths[:, None], len(e)
    shift = e - J @ x0
    above = np.hstack([J, -np.eye(m)])  # c <= s, and -c <= s for equalities
    below = np.hstack([-J[:m_E], -np.eye(m)[:m_E]])
    return scipy.optimize.linprog(
        np.append(np.zeros(n), np.ones(m)),
        np.vstack([above, below]), np.append(-shift, shift[:m_E]),
        bounds=[(0 if kind == "nonnegative l1" else None, None)] * n + [(0, None)] * m,
    ).fun  # fmt: skip


@pytest.mark.parametrize("m_E", [0, 3, 6])
@pytest.mark.parametrize("kind", H)
def test_contradictory_rows_are_violated_least(kind, m_E):
    """Six rows in a plane of directions, right-hand sides at random."""
    rng = np.random.default_rng(m_E)
    w, x0, _, _ = instance(3, 1, 5)
    J, e = rng.standard_normal((6, 2)) @ rng.standard_normal((2, n)), 2 * rng.standard_normal(6)
    J[5], e[5] = -J[4], -e[4] + 3.0  # contradictory whatever the kind
    found = solved(kind, w, x0, e, J, m_E, bound=1e3)
    lengths = np.linalg.norm(J, axis=1)
    c = (e + J @ (found.x - x0)) / lengths
    violation = np.abs(c[:m_E]).sum() + np.maximum(c[m_E:], 0).sum()
    least = least_violation(kind, x0, e, J, m_E)
    assert np.isfinite(found.x).all() and least > 0.01
    assert violation <= least * (1 + 1e-6)
    assert (np.abs(found.y * lengths) <= 1e3 * (1 + 1e-12)).all() and (found.y[m_E:] >= 0).all()


TWO = [([0.0, -1.0], 2, 0.3, 0.3), ([0.0, -1.0], 2, 5.0, 1.0), ([0.0, -1.0], 2, -5.0, 0.0)]
THREE = [([0.0, -1.0, -1.0], 3, 5.0, 1.0), ([0.0, -1.0, -3.0], 3, 5.0, 1.0)]


@pytest.mark.parametrize(("e", "m_E", "w", "x"), [*TWO, *THREE])
def test_contradictory_numbers(e, m_E, w, x):
    """x = 0 and x = 1 (and x = 1 or 3): the median is violated least, or the nearest to w of it."""
    rows, y = np.ones((len(e), 1)), np.zeros(len(e))
    found = step("zero", np.array([w]), 1.0, np.zeros(1), np.array(e), rows, m_E, y, 1e3)
    np.testing.assert_allclose(found.x, [x], atol=1e-6)


# Under vmap, and in single precision --------------------------------------------------------------


def test_all_at_once_are_as_one_by_one():
    """Problems of different difficulty: those that are done wait for the others."""
    each = [instance(20, 8, seed, spread=seed % 3) for seed in range(6)]
    stacked = [np.stack(parts) for parts in zip(*each, strict=True)]
    w, x0, e, J = stacked
    together = jax.jit(
        jax.vmap(
            lambda w, x0, e, J: constrained_prox(*H["l1"], w, ETA, x0, e, J, 8, jnp.zeros(20), 1e6)
        )
    )(w, x0, e, J)
    for i, one in enumerate(each):
        alone = solved("l1", *one, 8)
        np.testing.assert_allclose(together.x[i], alone.x, atol=1e-10)
        np.testing.assert_allclose(together.y[i], alone.y, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kind", ["zero", "l1"])
def test_single_precision(kind):
    for seed in range(5):
        w, x0, e, J = instance(20, 8, seed)
        double = solved(kind, w, x0, e, J, 8)
        with jax.enable_x64(False):
            single = [np.asarray(part, np.float32) for part in (w, ETA, x0, e, J)]
            zero = np.zeros(20, np.float32)
            found = step(kind, *single, 8, zero, np.float32(1e6))
            assert found.x.dtype == found.y.dtype == np.float32
        scale = 1 + np.abs(double.y).max()
        np.testing.assert_allclose(found.x, double.x, atol=2e-5 * scale)
        assert found.residual <= 1e-4


# The method, step by step ---------------------------------------------------------------------

N, k, B, STEPS, MU, ALPHA = 40, 6, 5, 6, 0.3, 0.4
RNG = np.random.default_rng(8)
X = RNG.standard_normal((N, k))
TARGET = X @ [1.0, -0.7, 0.4, 0.0, 0.0, 0.1] + 0.1 * RNG.standard_normal(N)
V = np.array([[1.0, -1.0, 0.5, 0.0, 0.0, 0.3], [0.0, 0.0, 1.0, 1.0, -0.5, 0.2]])


def squares(x, batch):
    X, y = batch
    return 0.5 * jnp.mean((X @ x - y) ** 2)


def gradient(x, rows=slice(None)):
    return X[rows].T @ (X[rows] @ x - TARGET[rows]) / len(TARGET[rows])


SLOPES = {  # an element of dg(x)
    "L1": lambda x: 0 * x,
    "L1MinusL2": lambda x: LAM / 3 * x / np.linalg.norm(x),
    "MCP": lambda x: np.clip(x / 3.0, -LAM / 3, LAM / 3),
}
REGULARIZERS = {name: getattr(mossp, name)(LAM / 3) for name in SLOPES}


@functools.cache
def posed(name, b=(0.9, 0.1)):
    return mossp.Problem(
        squares, (X, TARGET), REGULARIZERS[name], sphere, Halfspaces(V, np.array(b))
    )


def exact_step(w, x0, e, J, lam):
    """argmin lam |x|_1 + |x - w|^2 / (2 MU), the first row an equality: SLSQP finds the pieces.

    On them the solution is that of a linear system.
    """
    m, both = len(e), np.hstack([np.eye(k), -np.eye(k)])
    found = scipy.optimize.minimize(
        lambda z: lam * z.sum() + np.sum((both @ z - w) ** 2) / (2 * MU),
        np.append(np.maximum(w, 0), np.maximum(-w, 0)),
        jac=lambda z: lam + both.T @ (both @ z - w) / MU,
        bounds=[(0, None)] * (2 * k),
        constraints=[
            {"type": "eq", "fun": lambda z: e[:1] + J[:1] @ (both @ z - x0)},
            {"type": "ineq", "fun": lambda z: -e[1:] - J[1:] @ (both @ z - x0)},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )  # fmt: skip
    x = both @ found.x
    S, active = np.abs(x) > 1e-6, (np.arange(m) < 1) | (e + J @ (x - x0) > -1e-6)
    K, s = J[np.ix_(active, S)], int(S.sum())
    system = np.block([[np.eye(s) / MU, K.T], [K, np.zeros((active.sum(),) * 2)]])
    right = np.append(w[S] / MU - lam * np.sign(x[S]), J[active] @ x0 - e[active])
    solution = np.linalg.solve(system, right)
    x, y = np.zeros(k), np.zeros(m)
    x[S], y[active] = solution[:s], solution[s:]
    assert (y[1:] >= 0).all() and (e + J @ (x - x0) <= 1e-12).all()
    assert (np.abs((x - w) / MU + y @ J)[~S] <= lam).all()
    return x, y


def in_numpy(name, momentum, x, batches):
    """The method by its docstring; d_0 = 0. Yields (x, multipliers, d, tau)."""
    d, before = np.zeros(k), x
    for rows in batches:
        new = gradient(x, rows)
        if momentum == "Polyak":
            new = (1 - ALPHA) * d + ALPHA * new
        elif momentum == "Recursive":
            new = new + (1 - ALPHA) * (d - gradient(before, rows))
        d, before = new, x
        c, J = np.append(x @ x - 1.0, V @ x - [0.9, 0.1]), np.vstack([2 * x, V])
        lengths = np.linalg.norm(J, axis=1)
        felt = np.append(c[0], np.maximum(c[1:], 0))
        away = np.linalg.norm(np.linalg.lstsq(J / lengths[:, None], -felt / lengths)[0])
        tau = min(1.0, max(np.linalg.norm(x), 1.0) / away)
        e = np.where((np.arange(3) < 1) | (c > 0), tau * c, c)
        x, y = exact_step(x - MU * (d - SLOPES[name](x)), x, e, J, LAM / 3)
        yield x, y, d, tau


@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def trajectory(method, oracles, x0, batches):
    now = Parameters(mu=MU, rho=1.0, alpha=ALPHA)

    def one(state, rows):
        state = method.step(oracles, now, state, oracles.source.batch(rows, B))
        return state, (state, method.witness(oracles, now, state))

    return jax.lax.scan(one, method.init(oracles, x0, jnp.zeros(k)), batches)[1]


@functools.cache
def taken(name, momentum, far):
    rng = np.random.default_rng(1)
    batches = rng.integers(0, N, (STEPS, B))
    x0 = far * np.array([0.5, -0.4, 0.6, 0.3, -0.2, 0.3])
    method = mossp.SQPDC(momentum=getattr(mossp, momentum)())
    states, witness = trajectory(method, posed(name).oracles(x0), x0, batches)
    return x0, batches, jax.tree.map(np.asarray, states), jax.tree.map(np.asarray, witness)


CASES = [
    ("L1", "Plain", 1.0), ("MCP", "Polyak", 1.0), ("L1MinusL2", "Recursive", 1.0),
    ("L1MinusL2", "Recursive", 30.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "momentum", "far"), CASES)
def test_steps_equal_those_in_numpy(name, momentum, far):
    x0, batches, states, _ = taken(name, momentum, far)
    taus = []
    for i, (x, y, d, tau) in enumerate(in_numpy(name, momentum, x0, batches)):
        size = np.linalg.norm(x) + 1
        # tau is known to 1e-8 only, and errors grow from step to step.
        np.testing.assert_allclose(states.memory.d[i], d, atol=1e-5 * size)
        np.testing.assert_allclose(states.x[i], x, atol=1e-5 * size)
        np.testing.assert_allclose(states.lam[i], y, atol=1e-4 * size)
        taus.append(tau)
    assert min(taus) < 1  # met in part at first
    assert max(taus) == 1


@pytest.mark.parametrize(("name", "momentum", "far"), CASES)
def test_the_witness_proves_what_it_says(name, momentum, far):
    """s_h in dh(x), s_g in dg(y), and u is what the step left over."""
    x0, _, states, w = taken(name, momentum, far)
    lam, befores = LAM / 3, np.vstack([x0, states.x[:-1]])
    for i, before in enumerate(befores):
        x, s_h, q = w.x[i], w.s_h[i], w.lam[i]
        kink = np.abs(s_h) <= lam * (1 + 1e-9)
        np.testing.assert_allclose(s_h[x != 0], lam * np.sign(x[x != 0]), atol=1e-9)
        assert kink[x == 0].all() and (q[1:] >= 0).all() and w.rho[i] == 0
        np.testing.assert_array_equal(w.y[i], before)
        np.testing.assert_allclose(w.s_g[i], SLOPES[name](before), atol=1e-12)
        J, J1 = np.vstack([2 * before, V]), np.vstack([2 * x, V])
        u = gradient(x) + q @ J1 + s_h - w.s_g[i]
        left = gradient(x) - states.memory.d[i] + q @ (J1 - J) - (x - before) / MU
        np.testing.assert_allclose(u, left, atol=1e-8 * (1 + np.abs(q).max()))


# The method, to the end -----------------------------------------------------------------------


def optimality(x, b):
    """The KKT residual for lam (|x|_1 - |x|_2), least-squares multipliers, all in NumPy."""
    active = V @ x - b > -1e-8
    J, S, lam = np.vstack([2 * x, V[active]]), x != 0, LAM / 3
    w = gradient(x) - lam * x / np.linalg.norm(x)
    q = np.linalg.lstsq(J[:, S].T, -(w + lam * np.sign(x))[S])[0]
    w = w + q @ J
    left = np.where(S, w + lam * np.sign(x), np.maximum(np.abs(w) - lam, 0))
    return np.linalg.norm(left), q[1:]


def solve(momentum, b, x0, method=mossp.SQPDC, **more):
    given = {"batch_size": B, "polish": False, **more}
    return mossp.solve(posed("L1MinusL2", b), x0, method=method(momentum=momentum), **given)


def test_with_svrg_it_is_exact():
    """With inequalities that are inactive, then with active ones."""
    for b in ((9.0, 9.0), (0.9, 0.1)):
        result = solve(mossp.SVRG(), b, np.full(k, 0.4), steps=4000)
        distance, q = optimality(result.x, np.array(b))
        assert result.success and result.tol == 1e-10, result.message
        assert distance <= 1e-9 and (q >= 0).all() and len(q) == (2 if b[0] < 1 else 0)
        assert abs(result.x @ result.x - 1) <= 1e-10 and (V @ result.x - b <= 1e-10).all()


def test_the_violation_is_far_below_that_of_a_penalty():
    """The same gradients for both: two a step, on mini-batches of five."""
    b, x0 = (0.9, 0.1), np.full(k, 0.4)
    ours = solve(mossp.Recursive(), b, x0, gradients=6000)
    theirs = solve(mossp.Recursive(), b, x0, mossp.MoSSP, gradients=6000)
    assert abs(ours.gradients - theirs.gradients) <= 100
    assert ours.violation <= 0.1 * theirs.violation
    assert ours.fun <= theirs.fun + 0.02


@pytest.mark.parametrize("x0", [np.full(k, 40.0), np.zeros(k)], ids=["far", "no slope"])
def test_a_hard_start_without_phase_one(x0):
    """A constant schedule starts where it is told: 100 times off, or where J = 0."""
    rule = mossp.schedules.Constant(rho=1.0, mu=MU, alpha=ALPHA)
    b = (0.9, 0.1)
    result = solve(mossp.SVRG(), b, x0, steps=4000, schedule=rule)
    if result.success:
        assert optimality(result.x, np.array(b))[0] <= 1e-9
    assert np.isfinite(result.x).all()
    assert result.violation <= 1e-9 or result.status == mossp.Status.INFEASIBLE, result.message
    assert result.success == (result.certificate.worst_relative <= 1e-10)


# Constraints seen through samples ----------------------------------------------------------------


def test_the_noise_of_an_average_is_seen_in_its_moves():
    """That of J_k = (1 - a) J_{k-1} + a v_k is a / (2 - a) of the variance of v."""
    rng, a, sigma = np.random.default_rng(0), 0.1, np.array([2.0, 0.5])
    J, noise, seen = jnp.zeros((2, 3)), jnp.zeros(2), []
    for k in range(4000):
        v = jnp.asarray(sigma[:, None] * rng.normal(size=(2, 3)))
        moved, J = a * (v - J), (1 - a) * J + a * v
        noise = sqp_dc.scatter(noise, moved, a)
        if k > 100:
            seen.append(np.asarray(noise))
    expected = 3 * sigma**2 * a / (2 - a)
    # A move is a (v - J), of which J itself is a part: 2 / (2 - a) of that of v alone.
    np.testing.assert_allclose(np.mean(seen, axis=0) / expected, 2 / (2 - a), rtol=0.05)


def test_a_gradient_below_its_noise_moves_little():
    J = jnp.asarray([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    np.testing.assert_allclose(sqp_dc.reliable(J, jnp.asarray([0.0, 0.25, 1.0])), [1, 0.5, 0])


@pytest.mark.parametrize("seed", [0, 2])
def test_a_constraint_that_has_a_slope_on_few_rows_does_not_throw_x_away(seed):
    """At most 1 % of malignant tumours missed, by a sharp sigmoid, rows drawn for ever.

    Most mini-batches have no row next to the boundary: J is small by chance, and steps to where the
    constraint seemed to vanish had no end.
    """
    datasets = pytest.importorskip("sklearn.datasets")
    A, benign = datasets.load_breast_cancer(return_X_y=True)
    A = np.column_stack([(A - A.mean(axis=0)) / A.std(axis=0), np.ones(len(benign))])
    arrays = A, 1.0 - 2.0 * benign, mossp.group_weights(benign == 0)

    def draw(key, size):
        places = jax.random.randint(key, (size,), 0, len(benign))
        return tuple(jnp.asarray(a)[places] for a in arrays)

    def loss(x, batch):
        return jnp.mean(jnp.logaddexp(0.0, -batch[1] * (batch[0] @ x)))

    def missed(x, batch):
        return jnp.mean(batch[2] * jax.nn.sigmoid(-(batch[0] @ x) / 0.25)) - 0.01

    penalty = mossp.Weighted(mossp.MCP(0.05), np.append(np.ones(30), 0.0))
    problem = mossp.Problem(loss, mossp.Sampler(draw), penalty, inequality=mossp.Expected(missed))
    x0 = 0.1 * np.random.default_rng(seed).normal(size=31) if seed else np.zeros(31)
    found = mossp.solve(problem, x0, method="sqp-dc", seed=seed)
    assert found.success, found.message
    assert np.linalg.norm(found.x) < 20
