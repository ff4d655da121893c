"""SciPy's SLSQP, or with `trust-constr` as a fourth argument the other one; full gradients.

x = p - q with p, q >= 0 makes ||x||_1 = sum(p + q) smooth, and all that is left has a gradient for
x != 0. Time is looked at in every evaluation; a run that is stopped has the last iterate.
"""

from __future__ import annotations

import functools
import sys

import numpy as np
import scipy.optimize

from benchmarks.peers.statement import Statement
from benchmarks.peers.workers import job

SLSQP = {"ftol": job.log_uniform(1e-14, 1e-6)}
TRUST = {
    "initial_tr_radius": job.log_uniform(0.1, 10.0),
    "initial_barrier_parameter": job.log_uniform(1e-3, 1.0),
    "gtol": job.log_uniform(1e-9, 1e-5),
}


class Split:
    """The statement in v = (p, q), or in x itself where there is no l1 norm."""

    def __init__(self, problem: Statement, budget: job.Budget) -> None:
        self.problem, self.budget, self.passes = problem, budget, 0
        self.last: np.ndarray | None = None  # the last iterate
        self._c: tuple[bytes, tuple] = (b"", ())

    def split(self, x: np.ndarray) -> np.ndarray:
        return np.r_[np.maximum(x, 0), np.maximum(-x, 0)] if self.problem.lam else x.copy()

    def x(self, v: np.ndarray) -> np.ndarray:
        n = self.problem.n
        return v[:n] - v[n:] if self.problem.lam else v

    def both(self, slope: np.ndarray) -> np.ndarray:
        return np.concatenate([slope, -slope], axis=-1) if self.problem.lam else slope

    def f(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        if self.last is None:
            self.last = v.copy()
        if self.budget.used() >= 1 and self.passes:
            raise job.Late
        self.budget.note(self.passes, lambda: self.x(self.last))
        self.passes += 1
        x, lam = self.x(v), self.problem.lam
        value, g = self.problem.f(x)
        if not lam:
            return float(value), g
        length = max(np.linalg.norm(x), 1e-300)
        return float(value + lam * (v.sum() - length)), self.both(g - lam * x / length) + lam

    def c(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and Jacobian, which SciPy asks for one after the other at the same point."""
        if self._c[0] != v.tobytes():
            values, J = self.problem.c(self.x(v))
            self._c = v.tobytes(), (values, self.both(J))
        return self._c[1]

    def curvature(self, v: np.ndarray, q: np.ndarray) -> np.ndarray:
        """The Hessian of q'c for the equalities, which are diagonal quadratics."""
        block = np.diag(q @ self.problem.Q)
        return np.block([[block, -block], [-block, block]]) if self.problem.lam else block

    def iterate(self, v: np.ndarray, *_: object) -> None:
        self.last = np.array(v, float)


def solve(
    method: str, problem: Statement, s: job.Settings, seed: int, x0: np.ndarray, budget: job.Budget
) -> job.Run:
    split, m_E = Split(problem, budget), problem.equalities
    v0 = split.split(x0)
    bounds = scipy.optimize.Bounds(np.zeros(len(v0)), np.inf) if problem.lam else None
    if method == "SLSQP":
        kind, sign = ("eq", 1.0) if m_E else ("ineq", -1.0)
        options = {"maxiter": 100_000, "ftol": s["ftol"]}
        given = {"type": kind, "fun": lambda v: sign * split.c(v)[0],
                 "jac": lambda v: sign * split.c(v)[1]}  # fmt: skip
    else:
        options = {"maxiter": 100_000, "xtol": 1e-12, **s}
        low = 0.0 if m_E else -np.inf
        given = scipy.optimize.NonlinearConstraint(
            lambda v: split.c(v)[0], low, 0.0, lambda v: split.c(v)[1],
            split.curvature if m_E else scipy.optimize.BFGS(),
        )  # fmt: skip
    try:
        found = scipy.optimize.minimize(
            split.f, v0, jac=True, method=method, bounds=bounds, constraints=given,
            options=options, callback=split.iterate,
        )  # fmt: skip
    except job.Late:
        return job.Run(split.x(split.last), False, split.passes)
    return job.Run(split.x(found.x), bool(found.success), split.passes)


if __name__ == "__main__":
    method = "trust-constr" if "trust-constr" in sys.argv[4:] else "SLSQP"
    ranges = TRUST if method == "trust-constr" else SLSQP
    job.work(["scipy"], ranges, functools.partial(solve, method), True)
