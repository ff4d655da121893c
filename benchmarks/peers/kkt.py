"""The KKT residual of a point once more: formulas and an algorithm that share nothing with mossp.

    python -m benchmarks.peers.kkt problem.npz answer.npz

    min over q, s of  || grad f(x) + J(x)'q + lam (s - x / ||x||) ||
    q_E free, q_I >= 0 and 0 where c_I < -1e-6;  s_i = sign(x_i), or in [-1, 1] where x_i = 0

is a linear least-squares problem with bounds, in (q, s) together. `mossp.stationarity` minimises
over q alone, by a Gauss-Newton method on a projection. At x = 0 the term x / ||x|| may be any
vector of length 1 at most, which is what ||.|| - lam, if positive, accounts for.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.optimize

from benchmarks.peers.statement import Statement, load, upper

ACTIVE = 1e-6
# Entries that a method without proximal steps leaves near 0 are taken for 0 where that is better
# for the point: for every solver alike.
THRESHOLDS = (0.0, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def residual(problem: Statement, x: np.ndarray) -> float:
    """The distance of 0 from the slopes of the Lagrangian at x, the shortest over multipliers."""
    if not np.isfinite(x).all():
        return np.inf
    c, J = problem.c(x)
    return distance(problem, x, problem.f(x)[1], c, J)


def distance(
    problem: Statement, x: np.ndarray, g: np.ndarray, c: np.ndarray, J: np.ndarray
) -> float:
    lam, norm, zero = problem.lam, np.linalg.norm(x), x == 0
    equality = np.arange(len(c)) < problem.equalities
    rows = equality | (c >= -ACTIVE)
    target = g + lam * np.sign(x) - (lam * x / norm if norm else 0)
    # Rows of unit length: multipliers of very different size are found alike.
    J = J[rows] / np.maximum(np.linalg.norm(J[rows], axis=1, keepdims=True), 1e-300)
    free = np.eye(len(x))[zero] if lam else np.zeros((0, len(x)))
    A = np.concatenate([J, free]).T
    if not A.shape[1]:
        return float(np.linalg.norm(target))
    low = np.concatenate([np.where(equality[rows], -np.inf, 0.0), np.full(len(free), -lam)])
    high = np.concatenate([np.full(len(J), np.inf), np.full(len(free), lam)])
    found = scipy.optimize.lsq_linear(A, -target, (low, high), method="bvls", tol=1e-15)
    left = float(np.linalg.norm(A @ found.x + target))
    return max(left - lam, 0.0) if norm == 0 else left


def tidied(problem: Statement, x: np.ndarray) -> np.ndarray:
    """x with its smallest entries at 0 where the worse of residual and violation falls by it."""
    if not np.isfinite(x).all() or not problem.lam:
        return x
    largest = np.abs(x).max(initial=0.0)
    tried = [np.where(np.abs(x) <= t * largest, 0.0, x) for t in THRESHOLDS]
    return min(tried, key=lambda v: max(residual(problem, v), problem.violation(v)))


def separable(
    X: Any, y: np.ndarray, w: np.ndarray, penalty: str, lam: float, gamma: float
) -> float:
    """The same for logistic loss with l1 or MCP and no constraints: a distance a coordinate."""
    margins = y * (X @ w)
    g = -(X.T @ (y * upper(-margins))) / len(y)
    slope = np.full(len(w), lam) if penalty == "l1" else np.maximum(lam - np.abs(w) / gamma, 0)
    away = np.where(w == 0, np.maximum(np.abs(g) - lam, 0), np.abs(g + slope * np.sign(w)))
    return float(np.linalg.norm(away))


if __name__ == "__main__":
    given, answer = load(sys.argv[1]), np.load(sys.argv[2])
    for k, x in enumerate(answer["xs"]):
        x = tidied(given, x)
        print(
            f"seed {k}: objective {given.objective(x):.9f}, violation {given.violation(x):.1e}, "
            f"KKT residual {residual(given, x):.1e}"
        )
