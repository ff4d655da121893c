"""A problem in NumPy, as a file that every worker reads.

    min  sum_i w_i log(1 + exp(-y_i a_i'x)) + lam (||x||_1 - ||x||_2)
    s.t. x'diag(Q_j)x / 2 + p_j'x = r_j                      equalities, M of them
         side_k mean_i d_i v(a_i'x) <= bound                  inequalities, one a side (+1, -1)

v is the loss of the row or sigmoid(a'x / softness). M and the number of sides may be 0, and lam.
Needs NumPy alone.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

ARRAYS = ("X", "y", "w", "Q", "p", "r", "d", "starts")
Pair = tuple[Any, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Statement:
    """The problem, and a start for every seed; the last start is the one that is tuned on."""

    name: str
    X: np.ndarray
    y: np.ndarray
    w: np.ndarray
    Q: np.ndarray
    p: np.ndarray
    r: np.ndarray
    d: np.ndarray
    starts: np.ndarray
    lam: float = 0.0
    sides: tuple[float, ...] = ()
    kind: str = "sigmoid"  # of v, or "loss"
    softness: float = 0.5
    bound: float = 0.0
    endless: bool = False  # rows are drawn anew for ever, and the budget is a number of samples

    @property
    def n(self) -> int:
        return self.X.shape[1]

    @property
    def equalities(self) -> int:
        return len(self.r)

    def save(self, path: Path) -> None:
        rest = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ARRAYS
        }
        np.savez(path, rest=json.dumps(rest), **{name: getattr(self, name) for name in ARRAYS})

    def f(self, x: np.ndarray) -> Pair:
        """Value and gradient of the smooth part of the objective."""
        margins = self.y * (self.X @ x)
        return self.w @ np.logaddexp(0, -margins), -self.X.T @ (self.w * self.y * upper(-margins))

    def penalty(self, x: np.ndarray) -> float:
        return float(self.lam * (np.abs(x).sum() - np.linalg.norm(x)))

    def objective(self, x: np.ndarray) -> float:
        return float(self.f(x)[0]) + self.penalty(x)

    def c(self, x: np.ndarray) -> Pair:
        """(c_E, c_I) and its Jacobian, a row a constraint."""
        values = 0.5 * self.Q @ (x * x) + self.p @ x - self.r
        J = self.Q * x + self.p
        if self.sides:
            gap, slope = self.gap(x)
            values = np.r_[values, [side * gap - self.bound for side in self.sides]]
            J = np.r_[J, [side * slope for side in self.sides]]
        return values, J

    def gap(self, x: np.ndarray) -> Pair:
        """mean_i d_i v(a_i'x) and its gradient."""
        margins = self.X @ x
        if self.kind == "loss":
            v, slope = np.logaddexp(0, -self.y * margins), -self.y * upper(-self.y * margins)
        else:
            v = upper(margins / self.softness)
            slope = v * (1 - v) / self.softness
        return np.mean(self.d * v), self.X.T @ (self.d * slope) / len(self.d)

    def violation(self, x: np.ndarray) -> float:
        """||(c_E, [c_I]_+)||."""
        c = self.c(x)[0]
        c[self.equalities :] = np.maximum(c[self.equalities :], 0)
        return float(np.linalg.norm(c))


def upper(t: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-t)) without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * t))


def load(path: str) -> Statement:
    found = np.load(path)
    rest = json.loads(str(found["rest"]))
    rest["sides"] = tuple(rest["sides"])
    return Statement(**{name: found[name] for name in ARRAYS}, **rest)


def stated(name: str, X: np.ndarray, y: np.ndarray, starts: np.ndarray, **more: Any) -> Statement:
    """With what is left out: equal weights and no constraints."""
    N, n = X.shape
    empty = {
        "w": np.full(N, 1 / N), "Q": np.zeros((0, n)), "p": np.zeros((0, n)), "r": np.zeros(0),
        "d": np.zeros(N),
    }  # fmt: skip
    return Statement(name, X, y, starts=starts, **{**empty, **more})
