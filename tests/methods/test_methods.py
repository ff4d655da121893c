"""The methods of the field against independent implementations, and what holds between them.

The references are written from the articles' pseudo-code in NumPy: double loops are double loops
here, proximal maps and subgradients have their own formulas, and Jacobians are matrices.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import mossp
from mossp import CLCDC, IMBA, MLALM, SALM, SDC, SMAG, SPD, SPDC, SSDC, MoSSP, moreau
from mossp.schedules import Parameters

N, n, B, STEPS = 20, 6, 4, 50
LAM, GAMMA, THETA = 0.1, 2.0, 0.4  # h = LAM |x|_1 throughout


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


# The problem, in NumPy ----------------------------------------------------------------------


def shrink(v, t):
    return np.sign(v) * np.maximum(np.abs(v) - t, 0)


def h(x):
    return LAM * np.abs(x).sum(-1)


def prox_l2(v, mu):
    return v * max(0.0, 1 - mu * LAM / np.linalg.norm(v)) if v.any() else v


def huber(x):
    a = np.abs(x)
    return np.where(a <= GAMMA * LAM, a**2 / (2 * GAMMA), LAM * a - GAMMA * LAM**2 / 2).sum(-1)


def prox_huber(v, mu):
    inside = np.abs(v) <= LAM * (GAMMA + mu)
    return np.where(inside, v * GAMMA / (GAMMA + mu), shrink(v, mu * LAM))


def prox_excess(v, mu):
    """Of LAM (|x| - THETA)_+."""
    far = np.sign(v) * np.maximum(THETA, np.abs(v) - mu * LAM)
    return np.where(np.abs(v) <= THETA, v, far)


# name: (regulariser, g, prox_g, an element of dg, whether g is smooth)
CONCAVE = {
    "L1": (mossp.L1(LAM), lambda x: 0 * x.sum(-1), lambda v, mu: v, lambda x: 0 * x, True),
    "L1MinusL2": (
        mossp.L1MinusL2(LAM), lambda x: LAM * np.linalg.norm(x, axis=-1), prox_l2,
        lambda x: LAM * x / np.linalg.norm(x) if x.any() else x, False,
    ),
    "MCP": (
        mossp.MCP(LAM, GAMMA), huber, prox_huber, lambda x: np.clip(x / GAMMA, -LAM, LAM), True
    ),
    "CappedL1": (
        mossp.CappedL1(LAM, THETA), lambda x: LAM * np.maximum(np.abs(x) - THETA, 0).sum(-1),
        prox_excess, lambda x: LAM * np.sign(x) * (np.abs(x) > THETA), False,
    ),
}  # fmt: skip
W = np.array([[1.0, -1.0, 0.5, 0.0, 2.0, 0.3], [0.0, 1.0, 1.0, -1.0, 0.2, 0.0]])
# Rows of lengths 1.5, 1 and 0.5 at right angles: a power iteration for |A| is soon exact.
A = np.linalg.qr(np.random.default_rng(7).normal(size=(n, 3)))[0].T * [[1.5], [1.0], [0.5]]
b = np.array([0.3, -0.2, 0.1])
# (x - M_i)' diag(D_i) (x - M_i) / 2 <= R_i, bent by at most 1
D = np.array([[0.2, 1.0, 0.5, 0.9, 0.4, 0.7], [1.0, 0.3, 0.8, 0.2, 0.6, 1.0], [0.5] * 5 + [0.9]])
M = np.array([[0.0] * 6, [0.3, -0.2, 0.0, 0.1, 0.2, 0.0], [-0.2, 0.1, 0.3, 0.0, 0.0, -0.1]])
R = np.array([0.10, 0.12, 0.09])


def bowls(x, rows=slice(None)):
    return 0.5 * (D[rows] * (x - M[rows]) ** 2).sum(-1) - R[rows]


# name: (equality, inequality, the Jacobian of both, how many are equalities)
CONSTRAINTS = {
    "none": (None, None, lambda x: np.zeros((0, n)), 0),
    "steep": (None, None, lambda x: np.zeros((0, n)), 0),  # and a loss 20 times as large
    "sphere": (lambda x: x @ x - 1.0, None, lambda x: 2 * x[None], 1),
    "both": (lambda x: x @ x - 1.0, lambda x: W @ x - 0.1, lambda x: np.vstack([2 * x, W]), 1),
    "halfspace": (None, lambda x: A[:1] @ x - b[:1], lambda x: A[:1], 0),
    "linear": (lambda x: A @ x - b, None, lambda x: A, 3),
    "bowl": (None, lambda x: bowls(x, slice(1)), lambda x: D[:1] * (x - M[:1]), 0),
    "bowls": (None, bowls, lambda x: D * (x - M), 0),
}


@functools.cache
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, n)) * (rng.random((N, n)) < 0.6)
    return X, np.sign(X @ [0.0, 0.3, 1.0, -1.0, 1.0, 0.0] + 0.3 * rng.normal(size=N))


def gradient(x, rows=slice(None)):
    X, y = (part[rows] for part in data())
    return X.T @ (-y / (1 + np.exp(y * (X @ x)))) / len(y)


class Posed:
    """One problem, for the library (`oracles`) and for the references (the rest)."""

    def __init__(self, name, constraint):
        reg, self.g, self.prox_g, self.slope, self.smooth = CONCAVE[name]
        equality, inequality, self.J, self.m_E = CONSTRAINTS[constraint]
        self.parts = [c for c in (equality, inequality) if c is not None]
        self.scale = scale = 20.0 if constraint == "steep" else 1.0
        loss = lambda x, batch: scale * mossp.losses.logistic(x, batch)  # noqa: E731
        problem = mossp.Problem(loss, data(), reg, equality, inequality)
        self.oracles = problem.oracles(np.zeros(n))
        self.m = self.oracles.m

    def c(self, x):
        return np.concatenate([np.zeros(0), *(np.atleast_1d(part(x)) for part in self.parts)])

    def active(self, q):
        return np.append(q[: self.m_E], np.maximum(q[self.m_E :], 0))

    def pull(self, x, rho, lam=0.0):
        return self.J(x).T @ self.active(lam + rho * self.c(x))

    def F(self, x):
        X, y = data()
        return self.scale * np.logaddexp(0, -y * (X @ x)).mean() + h(x) - self.g(x)

    def smoothed(self, x, nu):
        """The gradient of g, or that of its Moreau envelope M_{nu g} where g has kinks."""
        return self.slope(x) if self.smooth else (x - self.prox_g(x, nu)) / nu


posed_for = functools.cache(Posed)

# The run: fixed mini-batches, and parameters that change at every step ------------------------


class Run(NamedTuple):
    x0: Any
    d0: Any
    batches: Any
    parameters: Parameters  # one entry a step

    def steps(self):
        each = zip(*self.parameters, strict=True)
        return [(rows, Parameters(*now)) for rows, now in zip(self.batches, each, strict=True)]


def a_run():
    rng = np.random.default_rng(1)
    x0, d0 = rng.normal(size=n), 0.1 * rng.normal(size=n)
    x0 *= 1.3 / np.linalg.norm(x0)
    ranges = ((0.04, 0.1), (0.5, 2), (0.05, 0.9), (0.02, 0.06))  # of mu, rho, alpha and eta
    drawn = [rng.uniform(*r, STEPS) for r in ranges]
    return Run(x0, d0, rng.integers(0, N, (STEPS, B)), Parameters(*drawn))


# Unoptimised code is compiled sooner, and there are only a few steps.
@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def steps(method, oracles, x0, d0, batches, parameters):
    def step(state, given):
        rows, now = given
        state = method.step(oracles, now, state, oracles.source.batch(rows, B))
        return state, (state, method.witness(oracles, now, state))

    return jax.lax.scan(step, method.init(oracles, x0, d0), (batches, parameters))[1]


def take(method, name, constraint, run):
    """The states and witnesses of every step."""
    return jax.tree.map(np.asarray, steps(method, posed_for(name, constraint).oracles, *run))


# The references -----------------------------------------------------------------------------


def estimator(method, run):
    """(x, rows, alpha) -> d, which remembers."""
    kind, memory = type(method.momentum).__name__, {"d": run.d0, "x": run.x0}

    def estimate(x, rows, alpha):
        d = gradient(x, rows)
        if kind == "Polyak":
            d = (1 - alpha) * memory["d"] + alpha * d
        elif kind == "Recursive":
            d = d + (1 - alpha) * (memory["d"] - gradient(memory["x"], rows))
        memory.update(d=d, x=x)
        return d

    return estimate


def stages(posed, method, run, inner_step, length, xi_of=None, dual=0.0):
    """A double loop; x and lam after every step, which is one mini-batch."""
    estimate, given = estimator(method, run), iter(run.steps())
    x, lam = run.x0, np.zeros(posed.m)
    for k in itertools.count(1):
        center, y, xi, seen = x, x, (xi_of or posed.slope)(x), []
        for t in range(1, length(k) + 1):
            if method.refresh == "inner" or t == 1:
                rows, now = next(given, (None, None))
                if now is None:
                    return
                d = estimate(y, rows, now.alpha)
            y = inner_step(now, y, center, d - xi, lam, t)
            seen.append(y)
            weights = np.arange(1, t + 1) if method.average else np.eye(t)[-1]
            x = np.average(seen, axis=0, weights=weights)
            if t < length(k) and method.refresh == "inner":
                yield {"x": x, "lam": lam}
        lam = posed.active(lam + dual * now.rho * posed.c(x))
        yield {"x": x, "lam": lam}


def spdc(posed, method, run):
    def inner_step(now, y, center, v, lam, t):
        mu, rho, _, eta = now
        S = v + posed.pull(y, rho)
        if method.h == "prox":
            q = 1 / mu + 1 / eta
            return shrink((center / mu + y / eta - S) / q, LAM / q)
        eta_h = eta if method.eta_h is None else method.eta_h
        return y - eta * (S + (y - center) / mu) - eta_h * LAM * np.sign(y)

    return stages(posed, method, run, inner_step, lambda k: method.inner)


def salm(posed, method, run):
    p = np.cos(np.arange(1, posed.m + 1) ** 2.0)  # where the power iteration for |J|^2 stands
    p /= np.linalg.norm(p)

    def inner_step(now, y, center, v, lam, t):
        nonlocal p
        J = posed.J(center)
        eta = 1 / (1 / now.mu + now.rho * (p @ J @ J.T @ p))
        p = J @ J.T @ p / np.linalg.norm(J @ J.T @ p)
        q = posed.active(lam + now.rho * (posed.c(center) + J @ (y - center)))
        S = v + J.T @ q + (y - center) / now.mu
        if method.h == "prox":
            return shrink(y - eta * S, eta * LAM)
        return y - eta * (S + LAM * np.sign(y))

    return stages(posed, method, run, inner_step, lambda k: method.inner, dual=method.dual)


def spd(posed, method, run):
    def inner_step(now, y, center, v, lam, t):
        S = v + posed.pull(y, now.rho) + (y - center) / now.mu
        return shrink(y - now.eta * S, now.eta * LAM)

    xi_of = functools.partial(posed.smoothed, nu=method.nu)
    return stages(posed, method, run, inner_step, lambda k: method.inner, xi_of)


def ssdc(posed, method, run):
    def inner_step(now, w, center, v, lam, t):
        gamma = 1 / now.mu
        eta = min(now.eta, 3 / (gamma * (t + 1)))
        q = gamma + 1 / eta
        return shrink((gamma * center + w / eta - v - posed.pull(w, now.rho)) / q, LAM / q)

    return stages(posed, method, run, inner_step, lambda k: math.ceil(k / 3) + 1)


def smag(posed, method, run):
    x, y, z, estimate = run.x0, run.x0, run.x0, estimator(method, run)
    for rows, (mu, rho, alpha, eta) in run.steps():
        S = estimate(x, rows, alpha) + posed.pull(x, rho)
        if method.h == "prox":
            q = 1 / mu + 1 / eta
            x = shrink((z / mu + x / eta - S) / q, LAM / q)
        else:
            x = x - eta * (S + LAM * np.sign(x) + (x - z) / mu)
        y = posed.prox_g(z, mu) if method.exact_g else y - eta * (posed.slope(y) + (y - z) / mu)
        z = z - method.beta * (y - x)
        yield {"x": x, "y": y, "z": z}


def sdc(posed, method, run):
    x, z, estimate = run.x0, run.x0, estimator(method, run)
    for rows, (mu, rho, alpha, eta) in run.steps():
        S = estimate(z, rows, alpha) + posed.pull(z, rho) - posed.smoothed(z, mu)
        if method.h == "prox":
            x = shrink(z, mu * LAM)
        else:
            x = x - eta * (LAM * np.sign(x) + (x - z) / mu)
        z = z - eta * ((z - x) / mu + S)
        yield {"x": x, "z": z}


def mlalm(posed, method, run):
    x, lam, estimate = run.x0, np.zeros(posed.m), estimator(method, run)
    for rows, (mu, rho, alpha, _) in run.steps():
        xi = posed.slope(x) if method.dc else 0.0
        x = shrink(x - mu * (estimate(x, rows, alpha) + posed.pull(x, rho, lam) - xi), mu * LAM)
        c = posed.c(x)
        c[posed.m_E :] = np.maximum(-lam / rho, c)[posed.m_E :]
        lam = lam + method.dual * rho * c
        yield {"x": x, "lam": lam}


def clcdc(posed, method, run):
    x, z, lam, move = run.x0, run.x0, np.zeros(posed.m), max(np.linalg.norm(run.x0), 1.0)
    for _, (mu, rho, _, _) in run.steps():
        d, u, w = gradient(x), x, x
        ell = 1 / mu + rho * 1.1 * np.linalg.norm(A, 2) ** 2
        kap, residual = math.sqrt(ell * mu), np.inf
        while residual > 1e-3 * move / mu:
            new = shrink(w - (d + posed.pull(w, rho, lam) + (w - z) / mu) / ell, LAM / ell)
            residual = ell * np.linalg.norm(w - new)
            u, w = new, new + (kap - 1) / (kap + 1) * (new - u)
        x, move = u, np.linalg.norm(u - x)
        z = z - method.beta * (posed.prox_g(z, mu) - x)
        lam = lam + rho * posed.c(x)
        yield {"x": x, "z": z, "lam": lam}


def moving_balls(posed, method, run):
    """SCP_ls for at most one constraint, whose ball is met better the larger its multiplier."""
    x, before = run.x0, None
    for _ in range(12):  # it is not yet at a standstill
        g, J, c = posed.scale * gradient(x), posed.J(x).sum(0), posed.c(x)
        L_f, L, v = 1.0, 1.0, g - posed.slope(x)
        if before is not None:
            s, changes = x - before[0], (g - before[1], J - before[2])
            L_f, L = (np.clip(s @ change / (s @ s), 1e-8, 1e8) for change in changes)
        while True:
            new, nu = ball_step(x, v, c, J, L_f, L)
            if (posed.c(new) > 1e-14).any():
                L *= 2
            elif posed.F(new) > posed.F(x) - 0.5e-4 * (new - x) @ (new - x):
                L_f *= 2
            else:
                break
        before, x = (x, g, J), new
        yield {"x": x, "nu": np.full(posed.m, nu)}


def ball_step(x, v, c, J, L_f, L):
    def point(nu):
        tau = L_f + nu * L
        return shrink(x - (v + nu * J) / tau, LAM / tau)

    def ball(nu):
        s = point(nu) - x
        return (c + J @ s + L / 2 * (s @ s)).sum()

    nu = 0.0 if ball(0.0) <= 0 else scipy.optimize.brentq(ball, 0.0, 1e6, xtol=1e-15, rtol=1e-15)
    return point(nu), nu


REFERENCES = {
    SPDC: spdc, SALM: salm, SPD: spd, SSDC: ssdc, SMAG: smag, SDC: sdc, MLALM: mlalm, CLCDC: clcdc,
    IMBA: moving_balls,
}  # fmt: skip
P, Q = mossp.Polyak(), mossp.Recursive()
CASES = [
    (SPDC(Q, inner=3), "L1MinusL2", "both"),
    (SPDC(P, inner=3, average=True), "L1MinusL2", "sphere"),
    (SPDC(Q, inner=3, refresh="outer"), "L1MinusL2", "both"),
    (SPDC(Q, inner=3, h="subgradient"), "MCP", "both"),
    (SPDC(P, inner=3, h="subgradient", eta_h=0.01, refresh="outer", average=True), "MCP", "both"),
    (SALM(Q, inner=3), "L1MinusL2", "sphere"),
    (SALM(P, inner=3, dual=0.4), "MCP", "both"),
    (SALM(Q, inner=4, refresh="outer", average=True), "L1MinusL2", "both"),
    (SALM(P, inner=3, h="subgradient"), "L1MinusL2", "both"),
    (SPD(inner=4), "MCP", "both"),  # a smooth g needs no nu
    (SPD(P, inner=2, nu=0.6), "CappedL1", "sphere"),
    (SPD(Q, inner=3, nu=0.05, refresh="outer", average=True), "L1MinusL2", "both"),
    (SSDC(), "L1MinusL2", "both"),
    (SSDC(P, average=False, refresh="outer"), "MCP", "sphere"),
    (SMAG(), "L1MinusL2", "both"),
    (SMAG(P, h="prox"), "MCP", "sphere"),
    (SMAG(Q, beta=0.7, h="prox", exact_g=True), "L1MinusL2", "both"),
    (SDC(P), "CappedL1", "both"),
    (SDC(Q), "L1MinusL2", "sphere"),
    (SDC(Q, h="subgradient"), "MCP", "both"),
    (MLALM(Q, dual=0.3), "L1", "both"),
    (MLALM(P, dual=0.8, dc=True), "MCP", "sphere"),
    (MLALM(Q, dual=0.5, dc=True), "L1MinusL2", "both"),
    (CLCDC(), "L1MinusL2", "linear"),
    (CLCDC(beta=0.7), "MCP", "linear"),
    (IMBA(inexact=False), "MCP", "steep"),  # L_f = 1 is too small
    (IMBA(inexact=False), "L1MinusL2", "bowl"),
    (IMBA(inexact=False), "L1MinusL2", "bowls"),  # these two: by their subproblems, below
    (IMBA(inexact=True), "L1MinusL2", "bowls"),
]
NAMES = [f"{i}-{type(case[0]).__name__}-{case[1]}-{case[2]}" for i, case in enumerate(CASES)]


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
