"""MoSSP against an independent implementation in NumPy, and what the paper proves of a step."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp import moreau
from mossp.schedules import Parameters
from tests.problems import logistic_gradient, prox_excess, prox_huber, shrink, shrink_block

pytestmark = pytest.mark.usefixtures("x64")

N, n, B, STEPS = 20, 6, 4, 50


# The reference: Algorithms 1 and 2, with their own proximal maps ------------------------------


LAM = 0.3
# name: (regulariser, prox_h, prox_g)
REGULARIZERS = {
    "Zero": (mossp.Zero(), lambda v, mu: v, lambda v, mu: v),
    "L1": (mossp.L1(LAM), lambda v, mu: shrink(v, mu * LAM), lambda v, mu: v),
    "L1MinusL2": (
        mossp.L1MinusL2(LAM),
        lambda v, mu: shrink(v, mu * LAM),
        lambda v, mu: shrink_block(v, mu * LAM),
    ),
    "MCP": (
        mossp.MCP(LAM, 2.0),
        lambda v, mu: shrink(v, mu * LAM),
        lambda v, mu: prox_huber(v, mu, LAM, 2.0),
    ),
    "CappedL1": (
        mossp.CappedL1(LAM, 0.4),
        lambda v, mu: shrink(v, mu * LAM),
        lambda v, mu: prox_excess(v, mu, LAM, 0.4),
    ),
}
W = np.array([[1.0, -1.0, 0.5, 0.0, 2.0, 0.3], [0.0, 1.0, 1.0, -1.0, 0.2, 0.0]])
# name: (settings of the problem, c(x) as NumPy, its Jacobian, how many are equalities)
CONSTRAINTS = {
    "none": ({}, lambda x: np.zeros(0), lambda x: np.zeros((0, n)), 0),
    "equality": (
        {"equality": lambda x: x @ x - 1.0},
        lambda x: np.array([x @ x - 1.0]),
        lambda x: 2 * x[None],
        1,
    ),
    "inequality": (
        {"inequality": lambda x: W @ x - 0.1},
        lambda x: W @ x - 0.1,
        lambda x: W,
        0,
    ),
    "both": (
        {"equality": lambda x: x @ x - 1.0, "inequality": lambda x: W @ x - 0.1},
        lambda x: np.array([x @ x - 1.0, *(W @ x - 0.1)]),
        lambda x: np.vstack([2 * x, W]),
        1,
    ),
}


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, n)) * (rng.random((N, n)) < 0.6)
    return X, np.where(rng.random(N) < 0.5, -1.0, 1.0)


def gradient(x, rows):
    return logistic_gradient(x, *(part[rows] for part in data()))


def reference(name, constraint, recursive, beta, x0, batches, parameters):
    """x, z and d of every step, as the paper writes them (alpha_{k-1} at step k)."""
    _, prox_h, prox_g = REGULARIZERS[name]
    _, c, J, m_E = CONSTRAINTS[constraint]
    x, z, d, before, seen = x0, x0, None, None, []
    for k, (rows, (mu, rho, alpha)) in enumerate(zip(batches, parameters, strict=True)):
        if k == 0:
            d = gradient(x, rows)
        elif recursive:
            d = gradient(x, rows) + (1 - alpha) * (d - gradient(before, rows))
        else:
            d = (1 - alpha) * d + alpha * gradient(x, rows)
        violated = c(x)
        violated[m_E:] = np.maximum(violated[m_E:], 0)
        S = d + rho * J(x).T @ violated
        before, x = x, prox_h(z - mu * S, mu)
        z = z - beta * (prox_g(z, mu) - x)
        seen.append((x, z, d))
    return [np.stack(part) for part in zip(*seen, strict=True)]


def posed(name, constraint, sparse=False):
    X, y = data()
    rows = scipy.sparse.csr_matrix(X) if sparse else X
    return mossp.Problem(
        mossp.losses.logistic,
        (rows, y),
        regularizer=REGULARIZERS[name][0],
        **CONSTRAINTS[constraint][0],
    )


def setting(count=STEPS):
    rng = np.random.default_rng(1)
    batches = rng.integers(0, N, (count, B))
    parameters = np.stack(
        [rng.uniform(0.02, 0.06, count), rng.uniform(1, 3, count), rng.uniform(0.05, 0.9, count)], 1
    )
    parameters[0, 2] = 1.0  # the first estimate is the first mini-batch
    return rng.normal(size=n), batches, parameters


def run(oracles, method, x0, batches, parameters, dtype=np.float64):
    """The states of every step, driven by hand."""

    def step(state, given):
        rows, now = given
        batch = oracles.source.batch(rows, B)
        state = method.step(oracles, Parameters(*now), state, batch)
        return state, state

    x0 = jnp.asarray(x0, dtype)
    start = method.init(oracles, x0, jnp.zeros_like(x0))
    scanned = jnp.asarray(batches, jnp.int32), jnp.asarray(parameters, dtype)
    return jax.jit(lambda s, g: jax.lax.scan(step, s, g)[1])(start, scanned)


def momentum_of(recursive):
    return mossp.Recursive() if recursive else mossp.Polyak()


COMBINATIONS = [
    *itertools.product(REGULARIZERS, ["both"], [True], [0.7], [False]),
    *itertools.product(["L1MinusL2"], ["none", "equality", "inequality"], [True], [1.0], [False]),
    *itertools.product(["MCP", "L1MinusL2"], ["both"], [False], [1.0, 0.4], [True]),
]


ESTIMATORS = {
    "plain": mossp.Plain(),
    "polyak": mossp.Polyak(),
    "recursive": mossp.Recursive(),
    "truncated": mossp.Truncated(mossp.Recursive(), 0.1),
    "anchored": mossp.SVRG(),
}


@pytest.mark.parametrize("sampled", [False, True], ids=["exact", "sampled"])
@pytest.mark.parametrize("momentum", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_what_a_lean_state_leaves_out_is_found_again(momentum, sampled):
    X, y = data()
    settings = CONSTRAINTS["both"][0]
    if sampled:
        mean = mossp.Expected(lambda x, rows: jnp.mean(rows[0] @ x))
        settings = {"inequality": lambda x: W @ x - 0.1, "equality": mean}
    problem = mossp.Problem(
        mossp.losses.logistic, (X, y), regularizer=REGULARIZERS["L1MinusL2"][0], **settings
    )
    x0, batches, parameters = setting()
    oracles, method = problem.oracles(x0, np.float64), mossp.MoSSP(momentum, beta=0.7)
    state = method.init(oracles, jnp.asarray(x0), jnp.zeros(n))
    for rows, now in zip(batches[:5], parameters[:5], strict=True):
        lean, now = method.lean(oracles, state), Parameters(*now)
        assert lean.v is None and lean.y is None and method.lean(oracles, lean) == lean
        drawn = oracles.steps.draw(np.random.default_rng(int(rows[0])), 1, B)
        batch = oracles.steps.batch(jax.tree.map(lambda v: v[0], drawn), B)
        state = method.step(oracles, now, lean, batch)
        again = method.recorded(oracles, now, lean, method.lean(oracles, state))
        for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_an_estimator_of_ones_own_is_asked_for_no_more_than_it_says():
    class Damped(mossp.Polyak):
        """What it returns is not what it remembers."""

        def update(self, gradient, memory, x, alpha):
            d, memory = super().update(gradient, memory, x, alpha)
            return 0.5 * d, memory

    oracles = posed("L1MinusL2", "both").oracles(setting()[0], np.float64)
    method = mossp.MoSSP(Damped(0.5))
    state = method.init(oracles, jnp.ones(n), jnp.zeros(n))
    assert method.lean(oracles, state) is state


@pytest.mark.parametrize("name, constraint, recursive, beta, sparse", COMBINATIONS)
def test_steps_equal_the_algorithms_of_the_paper(name, constraint, recursive, beta, sparse):
    x0, batches, parameters = setting()
    method = mossp.MoSSP(momentum=momentum_of(recursive), beta=beta)
    states = run(posed(name, constraint, sparse).oracles(x0), method, x0, batches, parameters)
    x, z, d = reference(name, constraint, recursive, beta, x0, batches, parameters)
    np.testing.assert_allclose(states.x, x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(states.z, z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(states.memory.d, d, rtol=1e-12, atol=1e-12)
    assert np.abs(x[-1] - x0).max() > 0.1  # it moved


@pytest.mark.parametrize("recursive", [False, True])
def test_single_precision_follows_double(recursive):
    x0, batches, parameters = setting(20)
    problem = posed("L1MinusL2", "both")
    method = mossp.MoSSP(momentum=momentum_of(recursive), beta=0.9)
    x, z, _ = reference("L1MinusL2", "both", recursive, 0.9, x0, batches, parameters)
    with jax.enable_x64(False):
        oracles = problem.oracles(x0, np.float32)
        states = run(oracles, method, x0, batches, parameters, np.float32)
        assert {leaf.dtype for leaf in jax.tree.leaves(states)} == {np.dtype(np.float32)}
    np.testing.assert_allclose(states.x, x, atol=2e-5)
    np.testing.assert_allclose(states.z, z, atol=2e-5)


def test_a_tree_takes_the_steps_of_its_vector():
    x0, batches, parameters = setting(20)
    X, y = data()
    tree = {"a": x0[:2].reshape(1, 2), "b": x0[2:]}
    join = lambda x: jnp.concatenate([x["a"].ravel(), x["b"]])  # noqa: E731
    problem = mossp.Problem(
        lambda x, batch: mossp.losses.logistic(join(x), batch),
        (X, y),
        regularizer=mossp.L1MinusL2(LAM),
        equality=lambda x: {"sphere": join(x) @ join(x) - 1.0},
        inequality=lambda x: W @ join(x) - 0.1,
    )
    method = mossp.MoSSP(momentum=mossp.Recursive())
    ours = run(problem.oracles(tree), method, x0, batches, parameters)
    plain = run(posed("L1MinusL2", "both").oracles(x0), method, x0, batches, parameters)
    np.testing.assert_allclose(ours.x, plain.x, rtol=1e-12, atol=1e-13)


# Equivalences -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Zero", "L1"])
def test_without_g_and_with_beta_one_z_is_x(name):
    """The method is then the stochastic proximal gradient method."""
    x0, batches, parameters = setting()
    method = mossp.MoSSP(momentum=mossp.Recursive(), beta=1.0)
    states = run(posed(name, "both").oracles(x0), method, x0, batches, parameters)
    np.testing.assert_allclose(states.z, states.x, rtol=0, atol=1e-15)
    np.testing.assert_allclose(states.y[1:], states.x[:-1], rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["L1MinusL2", "MCP", "CappedL1"])
def test_beta_one_is_proximal_dca_with_an_old_subgradient(name):
    """x_{k+2} = prox_{mu h}(x_{k+1} - mu (d + rho J c - v_k)), v_k in dg(y_k) (methods.md, 1)."""
    x0, batches, parameters = setting()
    parameters[:] = 0.05, 2.0, 1.0
    mu, rho, _ = parameters[0]
    reg, prox_h, prox_g = REGULARIZERS[name]
    _, c, J, m_E = CONSTRAINTS["both"]
    x, v = x0, np.zeros(n)
    dca, subgradients = [], []
    for rows in batches:
        violated = c(x)
        violated[m_E:] = np.maximum(violated[m_E:], 0)
        S = gradient(x, rows) + rho * J(x).T @ violated
        ahead = x + mu * v
        y = prox_g(ahead, mu)
        x, v = prox_h(x - mu * (S - v), mu), (ahead - y) / mu
        dca.append(x)
        subgradients.append((y, v))
    states = run(
        posed(name, "both").oracles(x0), mossp.MoSSP(mossp.Plain()), x0, batches, parameters
    )
    np.testing.assert_allclose(states.x, np.stack(dca), rtol=1e-12, atol=1e-12)
    points = np.random.default_rng(2).normal(size=(30, n)) * 2
    for y, v in subgradients:
        assert_subgradient(reg.g, y, v, points)


def assert_subgradient(phi, x, s, points):
    """phi(p) >= phi(x) + <s, p - x> at all the points."""
    base = float(phi(x))
    for p in points:
        assert float(phi(p)) - base - s @ (p - x) >= -1e-10


# The witness ------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [1.0, 0.6])
@pytest.mark.parametrize("name", REGULARIZERS)
def test_the_witness_is_the_papers_u(name, beta):
    x0, batches, parameters = setting(12)
    oracles = posed(name, "both").oracles(x0)
    method = mossp.MoSSP(momentum=mossp.Recursive(), beta=beta)
    states = run(oracles, method, x0, batches, parameters)
    witness = jax.jit(lambda s, now: method.witness(oracles, Parameters(*now), s))
    reg = REGULARIZERS[name][0]
    _, c, J, m_E = CONSTRAINTS["both"]
    points = np.random.default_rng(2).normal(size=(40, n)) * 2

    def penalty_gradient(x, rho):
        violated = c(x)
        violated[m_E:] = np.maximum(violated[m_E:], 0)
        return rho * J(x).T @ violated

    zs = np.vstack([x0, states.z[:-1]])
    xs = np.vstack([x0, states.x[:-1]])
    for k, (mu, rho, _) in enumerate(parameters):
        state = jax.tree.map(lambda leaf, k=k: leaf[k], states)
        w = jax.tree.map(np.asarray, witness(state, parameters[k]))
        y = REGULARIZERS[name][2](zs[k], mu)
        np.testing.assert_allclose(w.y, y, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(w.x, states.x[k])
        S = np.asarray(state.memory.d) + penalty_gradient(xs[k], rho)
        full = gradient(w.x, np.arange(N))
        u = full + penalty_gradient(w.x, rho) - S + (y - w.x) / mu
        q = np.asarray(oracles.multipliers(w.x, w.lam, w.rho))
        assert (q[m_E:] >= 0).all()
        ours = full + J(w.x).T @ q + w.s_h - w.s_g
        np.testing.assert_allclose(ours, u, rtol=1e-10, atol=1e-11)
        assert_subgradient(reg.h, w.x, w.s_h, points)
        assert_subgradient(reg.g, w.y, w.s_g, points)


# Descent ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, constraint, beta",
    [
        ("L1MinusL2", "equality", 1.0),
        ("L1MinusL2", "both", 0.5),
        ("MCP", "both", 1.0),
        ("CappedL1", "both", 1.0),
    ],
)
def test_the_potential_descends_along_full_gradients(name, constraint, beta):
    """Lemma C.2 without noise: by ((2 mu)^-1 - L_rho) / 2 ||w+ - w||^2 if mu L_rho <= 1/4."""
    problem, rho = posed(name, constraint), 5.0
    rng = np.random.default_rng(3)
    x0 = rng.normal(size=n)
    x0 *= 1.2 / np.linalg.norm(x0)
    oracles = problem.oracles(x0)
    X, _ = data()
    # On ||x|| <= 2: the logistic Hessian, and J J' + sum_j c_j Hess c_j of every constraint.
    L_f = np.linalg.norm(X, 2) ** 2 / (4 * N)
    L_rho = L_f + rho * ((2 * 2.0) ** 2 + 3.0 * 2.0)
    L_rho += rho * np.linalg.norm(W, 2) ** 2 * (constraint == "both")
    mu = 1 / (4 * L_rho)
    method = mossp.MoSSP(momentum=mossp.Plain(), beta=beta)
    reg = REGULARIZERS[name][0]

    def value(x, z):
        Q = oracles.full_value(x) + rho / 2 * oracles.violation(x) ** 2
        return moreau.potential(Q, reg, x, z, mu)

    def step(state, _):
        everything = oracles.source.batch(jnp.arange(N), N)
        state = method.step(oracles, Parameters(mu, rho, 1.0), state, everything)
        return state, (state.x, state.z, value(state.x, state.z))

    @jax.jit
    def descend(x0):
        start = method.init(oracles, x0, jnp.zeros_like(x0))
        return value(x0, x0), jax.lax.scan(step, start, None, 400)[1]

    first, (xs, zs, values) = descend(jnp.asarray(x0))
    xs, zs, values = np.vstack([x0, xs]), np.vstack([x0, zs]), np.append(first, values)
    assert np.linalg.norm(xs, axis=1).max() <= 2.0
    moved = np.sum(np.diff(xs, axis=0) ** 2, 1) + np.sum(np.diff(zs, axis=0) ** 2, 1)
    needed = (1 / (2 * mu) - L_rho) / 2 * moved
    assert (np.diff(values) <= -needed + 1e-12).all()
    assert values[-1] < values[0] - 0.01


# A new mu ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["L1MinusL2", "MCP", "CappedL1"])
def test_rescaling_keeps_the_subgradient(name):
    x0, batches, parameters = setting(15)
    parameters[:, 0] = 0.05
    oracles = posed(name, "both").oracles(x0)
    method = mossp.MoSSP(momentum=mossp.Recursive())
    states = run(oracles, method, x0, batches, parameters)
    state = jax.tree.map(lambda leaf: leaf[-1], states)
    w = method.witness(oracles, Parameters(*parameters[-1]), state)
    for ratio in (0.1, 1.0, 7.0):
        new = method.rescale(state, ratio)
        np.testing.assert_array_equal(new.x, state.x)
        np.testing.assert_array_equal(new.memory.d, state.memory.d)
        s = (np.asarray(new.z) - np.asarray(new.x)) / (0.05 * ratio)
        np.testing.assert_allclose(s, w.s_g, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("ratio", [0.1, 7.0])
def test_rescaling_keeps_fixed_points(ratio):
    """x = prox_{mu g}(x + mu s) for every mu, if s is a subgradient of g at x."""
    x0, _, _ = setting()
    reg = mossp.L1MinusL2(LAM)
    oracles = posed("L1MinusL2", "none").oracles(x0)
    method = mossp.MoSSP(momentum=mossp.Plain())
    x, mu = jnp.asarray(x0), 0.2
    state = method.init(oracles, x, x)._replace(z=x + mu * reg.subgradient_g(x0))
    new = method.rescale(state, ratio)
    np.testing.assert_allclose(reg.prox_g(new.z, mu * ratio), x0, rtol=1e-12)


# Validation -------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, -0.5, 1.5, float("nan")])
def test_beta_outside_is_refused(beta):
    with pytest.raises(ValueError, match="0 < beta <= 1"):
        mossp.MoSSP(beta=beta)


def test_names_of_the_methods():
    assert isinstance(mossp.METHODS["mossp-p"]().momentum, mossp.Polyak)
    assert isinstance(mossp.METHODS["mossp-r"]().momentum, mossp.Recursive)
