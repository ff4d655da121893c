"""Families of tests/adversarial as suite d has them: oracles in NumPy, noise, and the verdict.

Known of every problem is whether it has an answer (`Expect`); where it has, a point is solved when
tests/adversarial/kkt.py, in 80 bits and with formulas by hand, finds criticality and violation
within tol relative to the size of their terms.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.adversarial.families import Expect, Instance, draw
from tests.adversarial.kkt import judge
from tests.adversarial.penalties import Long, length, long

# At most 50 variables and constraints, with penalties that a split into p - q makes smooth.
NAMES = (
    "planes", "product-under-an-ellipsoid", "valley", "halfspaces-mcp",
    "polynomial-on-a-sphere-scad", "ratio-transformed", "logistic-on-a-sphere", "scaled",
    "rank-deficient", "degenerate", "infeasible-planes", "infeasible-inequalities",
)  # fmt: skip
EXACT, NOISY = 1e-6, 1e-2  # tol without and with noise
THRESHOLDS = (0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2)


def drawn(name: str, number: int) -> Instance:
    return draw(name, number)


def noise_size(case: Instance, noise: float) -> float:
    """Of one entry of the gradient: relative to its length at the start."""
    g = case.reference.f(long(case.x0)).slope
    return noise * float(length(g)) / np.sqrt(len(case.x0))


@dataclasses.dataclass
class Evaluated:
    """What a peer is told of a problem; the draws of the noise are the same for all of them."""

    case: Instance
    noise: float
    seed: int

    def __post_init__(self) -> None:
        self.spread = noise_size(self.case, self.noise) if self.noise else 0.0
        self.rng = np.random.default_rng([7, self.seed])

    def stated(self) -> dict[str, Any]:
        case = self.case
        # h = sum s_i |x_i| for all penalties here, so that s_i = h(e_i).
        s = [float(case.problem.regularizer.h(e)) for e in np.eye(len(case.x0))]
        return {
            "x0": [float(v) for v in case.x0],
            "equalities": case.reference.m_E,
            "slope": s,
        }

    def __call__(self, x: np.ndarray) -> dict[str, Any]:
        x = long(x)
        with np.errstate(all="ignore"):
            f, c = self.case.reference.f(x), self.case.reference.c(x)
            slopes = self.case.reference.penalty(x, Long(0))
            least = -slopes.away(0 * x)  # P(0): the shortest subgradient
            gradient = f.slope.astype(float)
            if self.spread:
                gradient = gradient + self.spread * self.rng.standard_normal(len(x))
            return {
                "f": float(f.value), "gradient": gradient.tolist(), "penalty": float(slopes.value),
                "subgradient": least.astype(float).tolist(), "c": c.value.astype(float).tolist(),
                "J": c.slope.astype(float).tolist(),
            }  # fmt: skip

    def merit(self, x: np.ndarray) -> float:
        at, m_E = self(x), self.case.reference.m_E
        c = np.array(at["c"])
        c[m_E:] = np.maximum(c[m_E:], 0)
        value = at["f"] + at["penalty"] + 100 * np.linalg.norm(c)
        return float(value) if np.isfinite(value) else np.inf


def verdict(case: Instance, x: np.ndarray, noise: float) -> tuple[bool, float, float]:
    """(solved, criticality, violation), relative; small entries are taken for 0 if better."""
    if not np.isfinite(x).all():
        return False, np.inf, np.inf
    tol = NOISY if noise else EXACT
    largest = np.abs(x).max(initial=0.0)
    claim = SimpleNamespace(
        tol=tol, fun=0.0, violation=0.0, certificate=SimpleNamespace(multipliers={})
    )
    tried = [
        judge(case.reference, np.where(np.abs(x) <= t * largest, 0.0, x), claim)
        for t in THRESHOLDS
    ]  # fmt: skip
    best = min(tried, key=lambda found: found.worst)
    solved = case.expect is Expect.HONEST and bool(best.worst <= 1)
    return solved, tol * best.criticality, tol * best.violation
