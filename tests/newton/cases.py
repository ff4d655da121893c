"""Problems to polish, with gradients, penalties and their slopes in NumPy once more.

The rough points come from a short stochastic proximal method in NumPy, so that few programs are
compiled.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import mossp
from tests.problems import Halfspaces, logistic_gradient, shrink

N, n, R2, LAM = 200, 10, 2.0, 0.04
TOL = 1e-10
FAR = np.array([9.0, 9.0])  # inequalities that are never active
TIGHT = np.array([0.9, 9.0])  # the first one active, the second one not


# The problem ----------------------------------------------------------------------------------


@functools.cache
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, n)) * (rng.random((N, n)) < 0.7)
    truth = np.array([1.5, -1.2, 1.0, -0.6, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
    return X, np.sign(X @ truth + 0.5 * rng.standard_normal(N))


def loss(x, batch):
    X, y = batch
    return jnp.mean(jnp.logaddexp(0.0, -y * (X @ x)))


def sphere(x):
    return x @ x - R2


W = np.zeros((2, n))
W[0, :2], W[1, 2:4] = [1.0, -1.0], [1.0, 1.0]


def value(x):
    X, y = data()
    return np.logaddexp(0, -y * (X @ x)).mean()


def gradient(x, rows=slice(None)):
    return logistic_gradient(x, *(part[rows] for part in data()))


# The regularisers: slopes of h - g where x_i is not 0, and how large a slope 0 holds ------------


class Case(NamedTuple):
    reg: Any
    slope: Any  # x -> (h - g)'(x) on the free entries
    held: Any  # (x, w) -> by how much the other entries want to leave
    free: Any = lambda x: x != 0


def separable(reg, size, most):
    """size(|x_i|) is the derivative, most = size(0) or one a coordinate."""
    return Case(
        reg,
        lambda x: np.sign(x) * size(np.abs(x)),
        lambda x, w: np.maximum(np.abs(w) - most, 0),
    )


def mcp(a, gamma=3.0):
    return np.maximum(LAM - a / gamma, 0)


def scad(a, A=3.7):
    return np.where(a <= LAM, LAM, np.maximum(A * LAM - a, 0) / (A - 1))


def l1_minus_l2(x):
    return LAM * (np.sign(x) - x / np.linalg.norm(x))


def truncated(x, k, minus_l2):
    rest = x * (np.argsort(np.argsort(-np.abs(x))) >= k)
    return LAM * (np.sign(rest) - (rest / np.linalg.norm(rest) if minus_l2 else 0))


GROUPS = np.repeat(np.arange(5), 2)
SOME = np.array([0.0, 1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0, 0.2, 1.0])
UPPER = 0.55


def radii(x):
    return np.maximum(np.sqrt(np.bincount(GROUPS, x**2))[GROUPS], 1e-300)


def only_up(x, w):
    return np.maximum(-w - LAM, 0)


def within_bounds(x, w):
    """An entry at the bound +-UPPER wants to go on; one at 0 stays for |w| <= LAM."""
    at = np.abs(x) == UPPER
    return np.where(at, np.maximum(np.sign(x) * w + LAM, 0), np.maximum(np.abs(w) - LAM, 0))


CASES = {
    "Zero": Case(mossp.Zero(), lambda x: 0 * x, lambda x, w: 0 * w, lambda x: x == x),
    "L1": separable(mossp.L1(LAM), lambda a: LAM + 0 * a, LAM),
    "Ridge": Case(mossp.Ridge(LAM), lambda x: LAM * x, lambda x, w: 0 * w, lambda x: x == x),
    "ElasticNet": separable(mossp.ElasticNet(2 * LAM), lambda a: LAM + LAM * a, LAM),
    "PlusRidge(MCP)": separable(
        mossp.PlusRidge(mossp.MCP(LAM), 0.1), lambda a: mcp(a) + 0.1 * a, LAM
    ),
    "L1MinusL2": Case(mossp.L1MinusL2(LAM), l1_minus_l2, lambda x, w: np.abs(w) - LAM),
    "CappedL1": separable(mossp.CappedL1(LAM, 0.3), lambda a: LAM * (a < 0.3), LAM),
    "MCP": separable(mossp.MCP(LAM), mcp, LAM),
    "SCAD": separable(mossp.SCAD(LAM), scad, LAM),
    "LogSum": separable(mossp.LogSum(0.02, 0.5), lambda a: 0.02 / (0.5 + a), LAM),
    "TransformedL1": separable(
        mossp.TransformedL1(LAM / 2), lambda a: LAM / (1 + a) ** 2, LAM
    ),
    "TruncatedL1": Case(
        mossp.TruncatedL1(LAM, 2), lambda x: truncated(x, 2, False), lambda x, w: np.abs(w) - LAM
    ),
    "TruncatedL1MinusL2": Case(
        mossp.TruncatedL1MinusL2(LAM, 2), lambda x: truncated(x, 2, True),
        lambda x, w: np.abs(w) - LAM,
    ),
    "Group(MCP)": Case(
        mossp.Group(mossp.MCP(LAM), GROUPS), lambda x: x / radii(x) * mcp(radii(x)),
        lambda x, w: np.maximum(radii(w) - LAM, 0),
    ),
    "Group(L1MinusL2)": Case(
        mossp.Group(mossp.L1MinusL2(LAM), GROUPS),
        lambda x: LAM * (x / radii(x) - x / np.linalg.norm(x)),
        lambda x, w: np.maximum(radii(w) - LAM, 0),
    ),
    "Nonnegative(L1)": Case(mossp.Nonnegative(mossp.L1(LAM)), lambda x: LAM + 0 * x, only_up),
    "Nonnegative(MCP)": Case(mossp.Nonnegative(mossp.MCP(LAM)), mcp, only_up),
    "Box(L1)": Case(
        mossp.Box(mossp.L1(LAM), -UPPER, UPPER), lambda x: LAM * np.sign(x), within_bounds,
        lambda x: (x != 0) & (np.abs(x) != UPPER),
    ),
    "Ball(L1)": separable(mossp.Ball(mossp.L1(LAM), 2.0), lambda a: LAM + 0 * a, LAM),
    "Weighted(MCP)": separable(mossp.Weighted(mossp.MCP(LAM), SOME), mcp, SOME * LAM)._replace(
        slope=lambda x: SOME * np.sign(x) * mcp(np.abs(x))
    ),
}  # fmt: skip


@functools.cache
def posed(name, b=tuple(FAR)):
    halfspaces = Halfspaces(W, np.array(b))
    return mossp.Problem(loss, data(), CASES[name].reg, sphere, halfspaces)


@functools.cache
def rough(name, b=tuple(FAR), steps=400, batch=16):
    """A short stochastic run for lam |x|_1 and a penalty, within the bounds of h if it has any."""
    rng, mu, x = np.random.default_rng(0), 0.03, np.sqrt(R2 / n) * np.ones(n)
    low, high = {"Non": (0, 9), "Box": (-UPPER, UPPER)}.get(name[:3], (-9, 9))
    for _ in range(steps):
        d = gradient(x, rng.integers(0, N, batch) if batch < N else slice(None))
        d += W.T @ np.maximum(5 * (W @ x - b), 0) + 5 * (x @ x - R2) * 2 * x
        v = x - mu * d
        x = np.clip(shrink(v, mu * LAM), low, high)
    return x


def optimality(name, x, b):
    """(how far w = grad f + J'q is from stationary, the multipliers), everything in NumPy."""
    case, active = CASES[name], W @ x - b > -1e-8
    J, free = np.vstack([2 * x, W[active]]), case.free(x)
    slope = case.slope(x)
    left = (gradient(x) + slope)[free]
    q = np.linalg.lstsq(J[:, free].T, -left, rcond=None)[0]
    w = gradient(x) + q @ J
    return np.linalg.norm(np.where(free, w + slope, np.maximum(case.held(x, w), 0))), q


def rows_of(n=30, N=300, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, n)) @ (np.eye(n) + 0.9)  # strongly correlated columns
    X = X / X.std(axis=0)
    return X, np.where(X @ np.r_[np.ones(3), np.zeros(n - 3)] + rng.normal(size=N) > 0, 1.0, -1.0)


def valley(x):
    """A narrow curved valley, in which Newton's method from afar takes many short steps."""
    return jnp.sum(10 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


AFAR = np.array([-1.5, 2.0, -1.0, 1.5])
