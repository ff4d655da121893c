"""The methods of the field against independent implementations, and what holds between them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import mossp
from mossp import CLCDC, IMBA, MLALM, SALM, SMAG, SPD, SPDC, SSDC, MoSSP, moreau
from mossp.schedules import Parameters
from tests.methods.references import (
    CASES,
    CONCAVE,
    LAM,
    NAMES,
    REFERENCES,
    STEPS,
    A,
    P,
    Q,
    a_run,
    gradient,
    h,
    n,
    posed_for,
    take,
)
from tests.problems import shrink

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]


# The references -----------------------------------------------------------------------------


def trajectory(i):
    run = a_run()
    if isinstance(CASES[i][0], IMBA):  # from inside
        run = run._replace(x0=np.full(n, 0.05))
    return run, *take(*CASES[i], run)


@pytest.mark.parametrize("i", range(len(CASES) - 2), ids=NAMES[:-2])
def test_steps_equal_the_pseudo_code(i):
    method, name, constraint = CASES[i]
    run, states, _ = trajectory(i)
    seen = list(REFERENCES[type(method)](posed_for(name, constraint), method, run))
    for field in seen[0]:
        expected = np.stack([step[field] for step in seen])
        ours = getattr(states, field)[: len(seen)]
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-11)
    assert np.abs(states.x[-1] - run.x0).max() > 0.1  # it moved


@pytest.mark.parametrize("i", range(len(CASES)), ids=NAMES)
def test_the_witness_has_true_subgradients(i):
    """h(p) >= h(x) + <s_h, p - x> and g(p) >= g(y) + <s_g, p - y> for all p, near and far."""
    _, states, witnesses = trajectory(i)
    rng, g = np.random.default_rng(2), posed_for(*CASES[i][1:]).g
    shifts = rng.normal(size=(300, n)) * 10 ** rng.uniform(-3, 1, (300, 1))
    shifts *= rng.random((300, n)) < 0.5
    np.testing.assert_array_equal(witnesses.x, states.x)
    for x, y, s_h, s_g in zip(*witnesses[:4], strict=True):
        assert (h(x + shifts) - h(x) - shifts @ s_h).min() >= -1e-11
        assert (g(y + shifts) - g(y) - shifts @ s_g).min() >= -1e-11


# What holds exactly between methods ---------------------------------------------------------


def together(p):
    """The step of both proximal terms, |w - x_k|^2 / (2 mu) and |w - y|^2 / (2 eta)."""
    return {"eta": 1 / (1 / p.mu + 1 / p.eta)}


def as_mu(eta):
    return lambda p: {"mu": eta(p)["eta"]}


def as_given(p):
    return {}


def with_plane(p):
    """The step of SALM for one linear constraint."""
    return {"eta": 1 / (1 / p.mu + p.rho * (A[0] @ A[0]))}


FULL = mossp.Full()
# what is the same: a method and its parameters, another, g, constraints, to which precision
EQUAL = {
    "no multipliers, no g": (
        MLALM(Q, dual=0.0), as_given, MoSSP(Q), as_given, "L1", "both", 1e-14
    ),
    "no proximal term in x": (
        SMAG(Q, beta=0.7, h="prox", exact_g=True), lambda p: {"eta": 1e30},
        MoSSP(Q, beta=0.7), as_given, "L1MinusL2", "both", 1e-13,
    ),
    "one inner step is proximal DCA": (
        SPDC(Q, inner=1), as_given,
        MLALM(Q, dual=0.0, dc=True), as_mu(together), "L1MinusL2", "both", 1e-13,
    ),
    "no proximal term in x_k": (
        SPDC(Q, inner=1), lambda p: {"mu": 1e30, "eta": p.mu},
        MLALM(Q, dual=0.0, dc=True), as_given, "L1MinusL2", "both", 1e-13,
    ),
    "proximal term explicit or not, g smoothed by little": (
        SPDC(Q, inner=3), as_given, SPD(Q, inner=3, nu=1e-2), together, "L1MinusL2", "both", 1e-12
    ),
    "one inner step, inner or outer": (
        SPDC(FULL, inner=1), as_given,
        SPDC(FULL, inner=1, refresh="outer"), as_given, "L1MinusL2", "both", 0,
    ),
    "no constraints": (
        SALM(P, inner=1), as_given, MLALM(P, dc=True), as_given, "L1MinusL2", "none", 1e-13
    ),
    "a linear constraint": (
        SALM(Q, inner=1), as_given,
        MLALM(Q, dual=1.0, dc=True), as_mu(with_plane), "L1MinusL2", "halfspace", 1e-13,
    ),
    "a linear constraint without multipliers": (
        SALM(Q, inner=3, dual=0.0), as_given,
        SPD(Q, inner=3, nu=1e-2), with_plane, "L1MinusL2", "halfspace", 1e-12,
    ),
    "stages that do not grow": (
        SSDC(Q, growth=1e-9, average=False), lambda p: {"eta": p.mu / 2},
        SPDC(Q, inner=2), lambda p: {"eta": p.mu / 2}, "L1MinusL2", "both", 1e-13,
    ),
    "full gradients, no constraints": (
        CLCDC(beta=0.8), as_given, MoSSP(FULL, beta=0.8), as_given, "L1MinusL2", "none", 1e-13
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EQUAL)
def test_methods_that_are_the_same(case):
    left, change_left, right, change_right, name, constraint, precision = EQUAL[case]
    run, xs = a_run(), []
    for method, change in ((left, change_left), (right, change_right)):
        p = run.parameters
        changed = {key: np.broadcast_to(value, STEPS) for key, value in change(p).items()}
        now = run._replace(parameters=p._replace(**changed))
        xs.append(take(method, name, constraint, now)[0].x)
    np.testing.assert_allclose(*xs, rtol=0, atol=precision)
    assert np.abs(xs[0][-1] - run.x0).max() > 0.1


@pytest.mark.parametrize("name", ["L1MinusL2", "CappedL1"])
def test_smag_without_f_descends_on_the_difference_of_envelopes(name):
    reg, beta, mu, z = CONCAVE[name][0], 0.6, 0.4, jnp.asarray(a_run().x0)
    oracles = mossp.Problem(lambda x: 0.0 * x.sum(), regularizer=reg).oracles(z)
    method = SMAG(beta=beta, h="prox", exact_g=True)
    slope = jax.jit(jax.grad(lambda z: moreau.difference_of_envelopes(reg, z, mu)))
    step = jax.jit(lambda s: method.step(oracles, Parameters(mu, 0.0, 1.0, 1e30), s, None))
    state = method.init(oracles, z, 0 * z)
    for _ in range(25):
        z, state = z - beta * mu * slope(z), step(state)
        np.testing.assert_allclose(state.z, z, rtol=0, atol=1e-13)
    assert np.abs(z - a_run().x0).max() > 0.1


# Subproblems --------------------------------------------------------------------------------


def test_clcdc_solves_its_subproblem():
    """After a move of zero as exactly as numbers allow: here against plain proximal gradients."""
    posed, x0, method = posed_for("L1MinusL2", "linear"), jnp.asarray(a_run().x0), CLCDC()
    now = Parameters(mu=0.8, rho=4.0, alpha=1.0, eta=1.0)
    step = jax.jit(lambda s: method.step(posed.oracles, now, s._replace(move=0 * s.move), None))
    state = method.init(posed.oracles, x0, x0)
    ell = 1 / now.mu + now.rho * np.linalg.norm(A, 2) ** 2
    for _ in range(6):
        x, z, lam = (np.asarray(part) for part in state[:3])
        w, d = x, gradient(x)
        for _ in range(500):
            w = shrink(w - (d + posed.pull(w, now.rho, lam) + (w - z) / now.mu) / ell, LAM / ell)
        state = step(state)
        np.testing.assert_allclose(state.x, w, rtol=0, atol=1e-13)
    assert np.linalg.norm(w - x0) > 0.1


STARTS = np.array(
    [[0.05] * 6, [0.1, -0.1, 0.2, -0.3, 0.1, 0.2], [0.2, 0.1, 0.3, -0.3, -0.1, 0.1],
     [-0.2, -0.3, 0.1, -0.2, -0.1, -0.1], [0.9, -0.8, 0.9, -0.8, 0.9, -0.8]]
)  # fmt: skip


def ball_problem(x, v, c, J):
    """Its solution for L_f = L_i = 1, with w = p - q and p, q >= 0 in place of |w|."""

    def smooth(pq):
        s = pq[:n] - pq[n:] - x
        return v @ s + s @ s / 2 + LAM * pq.sum()

    def room(pq):
        s = pq[:n] - pq[n:] - x
        return -(c + J @ s + s @ s / 2)

    found = scipy.optimize.minimize(
        smooth, np.append(np.maximum(x, 0), np.maximum(-x, 0)), method="SLSQP",
        bounds=[(0, None)] * (2 * n), constraints={"type": "ineq", "fun": room},
        options={"ftol": 1e-15, "maxiter": 500},
    )  # fmt: skip
    return found.x[:n] - found.x[n:], found.fun


@pytest.mark.parametrize("inexact", [False, True])
def test_imba_solves_its_subproblem(inexact):
    """The first trial, L_f = L_i = 1, is taken in the first step: nothing bends more than that."""
    posed, felt = posed_for("L1MinusL2", "bowls"), 0
    for x in STARTS:
        states, _ = take(IMBA(inexact=inexact), "L1MinusL2", "bowls", a_run()._replace(x0=x))
        w, nu = states.x[0], states.nu[0]
        c, J, v, s = np.minimum(posed.c(x), 0), posed.J(x), gradient(x) - posed.slope(x), w - x
        balls = c + J @ s + s @ s / 2
        solution, least = ball_problem(x, v, c, J)
        assert (balls <= 1e-12).all()
        assert (nu >= 0).all()
        s_h = -(v + s + nu @ (J + s))  # what the KKT conditions ask for
        np.testing.assert_allclose(s_h[w != 0], LAM * np.sign(w[w != 0]), rtol=0, atol=1e-13)
        assert (np.abs(s_h) <= LAM + 1e-13).all()
        if inexact:
            assert -(nu @ balls) <= 0.05 * s @ s + 1e-13  # the duality gap
            assert v @ s + s @ s / 2 + h(w) <= least + 0.05 * s @ s + 1e-8
        else:
            np.testing.assert_allclose(nu * balls, 0, rtol=0, atol=1e-13)
            np.testing.assert_allclose(w, solution, rtol=0, atol=1e-6)
        felt = max(felt, (nu > 1e-3).sum())
    assert felt == 3  # from one of the starts, all three balls


@pytest.mark.parametrize("method, name, constraint", CASES[-3:], ids=NAMES[-3:])
def test_imba_gets_no_worse(method, name, constraint):
    posed = posed_for(name, constraint)
    for x0 in STARTS:
        states, _ = take(method, name, constraint, a_run()._replace(x0=x0))
        points = np.vstack([x0, states.x])
        c, F = (np.array([part(x) for x in points]) for part in (posed.c, posed.F))
        moved = ((points[1:] - points[:-1]) ** 2).sum(1)
        assert (c[1:] <= np.maximum(c[:-1], 0) + 1e-14).all()
        assert (F[1:] <= F[:-1] - 0.5e-4 * moved + 1e-14).all()
        assert F[-1] < F[0] - 0.01
        np.testing.assert_allclose(states.F, F[1:], rtol=1e-13)


# Exact methods, to the end --------------------------------------------------------------------

REGULARIZERS = mossp.L1MinusL2(0.05), mossp.MCP(0.05), mossp.L1(0.05)
ARRIVING = [*((CLCDC(), reg) for reg in REGULARIZERS), (IMBA(inexact=False), REGULARIZERS[0])]


@pytest.mark.parametrize("method, reg", ARRIVING, ids=[str(pair) for pair in ARRIVING])
def test_exact_methods_arrive(method, reg):
    rng = np.random.default_rng(3)
    X, truth = rng.normal(size=(100, 10)), np.array([1.0, -2.0, 1.5] + [0.0] * 7)
    y, planes = np.sign(X @ truth + 0.5 * rng.normal(size=100)), rng.normal(size=(3, 10))
    constraint = {"equality": lambda x: planes @ (x - truth / 3)}
    if isinstance(method, IMBA):
        constraint = {"inequality": lambda x: jnp.stack([x @ x - 1.0, planes[0] @ x - 1.0])}
    problem = mossp.Problem(mossp.losses.logistic, (X, y), reg, **constraint)
    result = mossp.solve(problem, np.full(10, 0.1), method=method)
    assert result.success
    assert result.violation <= 1e-8
    assert mossp.stationarity(problem, result.x) <= 1e-8
    multipliers = np.concatenate([*result.certificate.multipliers.values()])
    assert np.abs(multipliers).min() > 1e-3  # all constraints are felt
    assert (result.x == 0).any()


def test_spd_smooths_g_by_its_envelope_and_nu_is_eta_unless_given():
    """After a stage xi is the gradient of M_{nu g} at x; the first stage knows nu only if given."""
    reg, x0 = mossp.CappedL1(0.3, 0.4), jnp.full(4, 0.5)
    with jax.enable_x64(True):
        oracles = mossp.Problem(lambda x: 0.5 * x @ x, regularizer=reg).oracles(np.asarray(x0))
        x0 = x0.astype(float)
        for nu, eta, used in ((None, 0.5, 0.5), (0.2, 0.5, 0.2), (1.0, 0.5, 1.0)):
            method = SPD(momentum=mossp.Plain(), inner=1, nu=nu)
            state = method.init(oracles, x0, 0 * x0)
            at_start = reg.subgradient_g(x0) if nu is None else (x0 - reg.prox_g(x0, nu)) / nu
            np.testing.assert_allclose(state.xi, at_start, atol=1e-15)
            state = method.step(oracles, Parameters(2.0, 0.0, 1.0, eta), state, None)
            envelope = (state.x - reg.prox_g(state.x, used)) / used
            np.testing.assert_allclose(state.xi, envelope, atol=1e-15)


@pytest.mark.parametrize(
    "inequality",
    [lambda x: x @ x - 1.0, lambda x: jnp.stack([jnp.sum(x) - 1.0, -1.0 - jnp.sum(x)])],
    ids=["J = 0 at the start", "J'J has 0 as an eigenvalue"],
)
def test_salm_follows_the_norm_of_J_where_it_vanishes(inequality):
    """||J||^2 must not stay 0 once it was: eta = mu then, and the run diverges."""
    rows = np.random.default_rng(0).normal(size=(60, 5)) + 2.0
    problem = mossp.Problem(
        lambda x, t: 0.5 * jnp.mean(jnp.sum((x - t) ** 2, axis=1)), rows, inequality=inequality
    )
    result = mossp.solve(problem, np.zeros(5), method="salm-r", steps=2000, tol=5e-2)
    assert result.success, result.message


def test_imba_is_not_certified_by_rounding():
    """Noise in F doubles L_f until nothing moves; that proves nothing about the point."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 10))
    y = np.sign(X[:, :3] @ [1.0, -2.0, 1.5] + 0.5 * rng.normal(size=100))

    def cancelling(x, batch):
        return (mossp.losses.logistic(x, batch[:2]) + jnp.mean(batch[2])) - jnp.max(batch[2])

    problem = mossp.Problem(
        cancelling, (X, y, np.full(100, 1e12)), mossp.L1(0.05), inequality=lambda x: x @ x - 1.0
    )
    x0 = 0.1 * np.random.default_rng(1).normal(size=10)
    result = mossp.solve(problem, x0, method="imba-dc")
    assert result.success == (mossp.stationarity(problem, result.x) <= result.tol)
    assert not result.success


@pytest.mark.parametrize(
    ("make", "needs"),
    [
        (lambda: mossp.SALM(dual=-1.0), "SALM needs dual >= 0"),
        (lambda: mossp.SMAG(beta=-3.0), "SMAG needs beta > 0"),
        (lambda: SPD(nu=0.0), "SPD needs nu > 0"),
        (lambda: SPDC(eta_h=-1.0), "SPDC needs eta_h > 0"),
        (lambda: SPDC(inner=0), "SPDC needs a whole number inner >= 1"),
        (lambda: SPDC(refresh="never"), "refresh to be 'inner' or 'outer'"),
        (lambda: mossp.SSDC(growth=0.0), "SSDC needs growth > 0"),
        (lambda: MLALM(dual=2.0), "MLALM needs 0 <= dual <= 1"),
        (lambda: mossp.CLCDC(momentum=3), "CLCDC is deterministic"),
        (lambda: mossp.IMBA(momentum=mossp.Polyak()), "IMBA is deterministic"),
        (lambda: SPDC(momentum=5), "momentum must be an estimator"),
    ],
)
def test_wrong_settings_get_a_sentence(make, needs):
    with pytest.raises((ValueError, TypeError), match=needs):
        make()


def test_a_method_without_a_dual_step_is_not_exact():
    full = mossp.Full()
    assert MLALM(full).exact and mossp.SALM(full).exact and mossp.MoSSPAL(mossp.SVRG()).exact
    assert not MLALM(full, dual=0.0).exact and not mossp.SALM(full, dual=0.0).exact
    assert not mossp.MoSSP(full).exact
