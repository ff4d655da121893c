"""Problems of four variables in one shape, with their KKT conditions checked in NumPy.

The conditions are a bounded least-squares problem over multipliers and subgradients.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from jax.tree_util import Partial

import mossp
from mossp import Status
from tests.solving.logistic import is_sentence


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
