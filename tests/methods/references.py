"""The methods of the field from the articles' pseudo-code, in NumPy.

Double loops are double loops here, proximal maps and subgradients have their own formulas, and
Jacobians are matrices.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.optimize

import mossp
from mossp import CLCDC, IMBA, MLALM, SALM, SDC, SMAG, SPD, SPDC, SSDC, SSLALM
from mossp.schedules import Parameters
from tests.problems import huber, logistic_gradient, prox_excess, prox_huber, shrink, shrink_block

N, n, B, STEPS = 20, 6, 4, 50
LAM, GAMMA, THETA = 0.1, 2.0, 0.4  # h = LAM |x|_1 throughout


# The problem, in NumPy ----------------------------------------------------------------------


def h(x):
    return LAM * np.abs(x).sum(-1)


# name: (regulariser, g, prox_g, an element of dg, whether g is smooth)
CONCAVE = {
    "L1": (mossp.L1(LAM), lambda x: 0 * x.sum(-1), lambda v, mu: v, lambda x: 0 * x, True),
    "L1MinusL2": (
        mossp.L1MinusL2(LAM), lambda x: LAM * np.linalg.norm(x, axis=-1),
        lambda v, mu: shrink_block(v, mu * LAM),
        lambda x: LAM * x / np.linalg.norm(x) if x.any() else x, False,
    ),
    "MCP": (
        mossp.MCP(LAM, GAMMA), lambda x: huber(np.abs(x), LAM, GAMMA).sum(-1),
        lambda v, mu: prox_huber(v, mu, LAM, GAMMA), lambda x: np.clip(x / GAMMA, -LAM, LAM), True,
    ),
    "CappedL1": (
        mossp.CappedL1(LAM, THETA), lambda x: LAM * np.maximum(np.abs(x) - THETA, 0).sum(-1),
        lambda v, mu: prox_excess(v, mu, LAM, THETA),
        lambda x: LAM * np.sign(x) * (np.abs(x) > THETA), False,
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
    return logistic_gradient(x, *(part[rows] for part in data()))


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

    def positive_part(self, q):
        return np.append(q[: self.m_E], np.maximum(q[self.m_E :], 0))

    def pull(self, x, rho, lam=0.0):
        return self.J(x).T @ self.positive_part(lam + rho * self.c(x))

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
        lam = posed.positive_part(lam + dual * now.rho * posed.c(x))
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
        q = posed.positive_part(lam + now.rho * (posed.c(center) + J @ (y - center)))
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


def ssl_alm(posed, method, run):
    x, y, estimate = run.x0, np.zeros(posed.m), estimator(method, run)
    slack = np.arange(posed.m) >= posed.m_E
    s = slack * np.maximum(-posed.c(x), 0)
    v, v_s = x, s
    for rows, (mu, rho, alpha, eta) in run.steps():
        c, J = posed.c(x), posed.J(x)
        y = y + method.dual * rho * (c + s)
        q = y + rho * (c + s)
        x = shrink(x - mu * (estimate(x, rows, alpha) + q @ J + (x - v) / eta), mu * LAM)
        s = slack * np.maximum(s - (q + (s - v_s) / eta) / (rho + 1 / eta), 0)
        v, v_s = v + method.beta * (x - v), v_s + method.beta * (s - v_s)
        yield {"x": x, "s": s, "y": y, "v": v}


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
    IMBA: moving_balls, SSLALM: ssl_alm,
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
    (SSLALM(), "L1", "both"),
    (SSLALM(Q, dual=0.4, beta=0.8), "L1", "sphere"),
    (CLCDC(), "L1MinusL2", "linear"),
    (CLCDC(beta=0.7), "MCP", "linear"),
    (IMBA(inexact=False), "MCP", "steep"),  # L_f = 1 is too small
    (IMBA(inexact=False), "L1MinusL2", "bowl"),
    (IMBA(inexact=False), "L1MinusL2", "bowls"),  # these two: by their subproblems, below
    (IMBA(inexact=True), "L1MinusL2", "bowls"),
]
NAMES = [f"{i}-{type(case[0]).__name__}-{case[1]}-{case[2]}" for i, case in enumerate(CASES)]
