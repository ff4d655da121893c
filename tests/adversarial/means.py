"""Constraints that are means over rows, in JAX for mossp and in NumPy with derivatives by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mossp
from tests.adversarial import formulas as made
from tests.adversarial import penalties as pen
from tests.adversarial.families import (
    FAMILIES,
    Expect,
    Instance,
    family,
    labels,
    power,
    regression,
    with_constraints,
)
from tests.adversarial.kkt import Smooth
from tests.adversarial.penalties import Long, length, long

__all__ = ["FAMILIES"]


class Mean(made.Formula):
    """mean_i phi(a_i'x) - bound over rows that are data; a subclass has phi and its slope."""

    bound: Any

    def on(self, rows: Any) -> Asked:
        """As a constraint over these rows of its own."""
        return Asked(self, rows)


class Sigmoids(Mean):
    """sign (mean_i sigmoid(a_i'x / t) - bound)."""

    t: Any
    sign: Any = 1.0

    def __call__(self, x, rows):
        return self.sign * (jnp.mean(jax.nn.sigmoid(rows @ x / self.t)) - self.bound)

    def mean_by_hand(self, x, rows):
        t, sign, bound = Long(self.t), Long(self.sign), Long(self.bound)
        s = 1 / (1 + np.exp(-(rows @ x) / t))
        slope = (s * (1 - s) / t) @ rows / len(rows)
        return Smooth(sign * (s.mean() - bound), sign * slope, 1 + length(slope) * length(x))


class Squares(Mean):
    """mean_i (a_i'x - b_i)^2 / 2 - bound, the last column of the rows being b."""

    def __call__(self, x, rows):
        return 0.5 * jnp.mean((rows[:, :-1] @ x - rows[:, -1]) ** 2) - self.bound

    def mean_by_hand(self, x, rows):
        A, b = rows[:, :-1], rows[:, -1]
        r = A @ x - b
        size = float(np.mean((np.abs(A) @ np.abs(x) + np.abs(b)) ** 2))
        return Smooth((r @ r) / (2 * len(r)) - Long(self.bound), r @ A / len(r), size)


class Asked:
    """Constraints over rows of their own, one beside the other."""

    def __init__(self, formula: Mean, rows: Any) -> None:
        self.parts = [(formula, rows)]

    def __and__(self, other: Asked) -> Asked:
        both = object.__new__(Asked)
        both.parts = self.parts + other.parts
        return both

    @property
    def rows(self) -> int:
        return len(self.parts)

    @property
    def given(self) -> list[mossp.Expected]:
        """As mossp takes them."""
        return [mossp.Expected(formula, data=rows) for formula, rows in self.parts]

    def by_hand(self, x):
        each = [formula.mean_by_hand(x, long(rows)) for formula, rows in self.parts]
        return made.stacked(*(Smooth(e.value[None], e.slope[None], e.magnitude) for e in each))

    def __call__(self, x):
        """Of x alone, by the rows that it has."""
        return jnp.stack([formula(x, jnp.asarray(rows)) for formula, rows in self.parts])


def posed(
    kind: str, A: Any, b: Any, reg: Any, penalty: pen.Penalty, asked: Asked,
    expect: Expect = Expect.HONEST, equality: bool = False,
) -> Instance:  # fmt: skip
    loss, f = getattr(mossp.losses, kind), made.of_rows(kind, A, b)
    sides = (asked, None) if equality else (None, asked)
    given = [None if side is None else side.given for side in sides]
    problem = mossp.Problem(loss, (A, b), reg, *given)
    return Instance(
        problem, np.zeros(A.shape[1]), with_constraints(f, penalty, *sides), expect, {}, (A, b)
    )


def with_intercept(rng, N, n):
    A, b = labels(rng, N, n)
    A[:, -1] = 1.0
    return A, b


@family
def neyman_pearson_l1_l2(rng):
    A, b = with_intercept(rng, 90, 6)
    lam = power(rng, -3, -1)
    alarms = Sigmoids(rng.uniform(0.03, 0.4), power(rng, -0.7, 0.3))
    alarms = alarms.on(with_intercept(rng, 50, 6)[0])
    return posed("logistic", A, b, mossp.L1MinusL2(lam), pen.l1_minus_l2(lam), alarms)


@family
def equal_selection_mcp(rng):
    """The mean score of one group at most, that of another at least: the bounds may touch."""
    A, b = with_intercept(rng, 90, 6)
    lam, gamma, bound = power(rng, -3, -1), rng.uniform(2, 5), rng.uniform(0.3, 0.6)
    most = Sigmoids(bound, 1.0).on(A[:40])
    least = Sigmoids(bound - rng.uniform(0.0, 0.1), 1.0, -1.0).on(A[40:])
    penalty = pen.separable(pen.mcp(lam, gamma))
    return posed("logistic", A, b, mossp.MCP(lam, gamma), penalty, most & least)


@family
def second_loss_scad(rng):
    """The loss on other rows is bounded between its least and the one at the first's answer."""
    A, b = regression(rng, 90, 5)
    B, d = regression(rng, 60, 5)
    least = np.linalg.lstsq(B, d, rcond=None)[1][0] / 120
    lam, bend = power(rng, -2, 0), rng.uniform(2.5, 5)
    bound = Squares(least + power(rng, -2, 0.5)).on(np.c_[B, d])
    return posed("squared", A, b, mossp.SCAD(lam, bend), pen.separable(pen.scad(lam, bend)), bound)


@family
def mean_score_is_given(rng):
    """An equality."""
    A, b = with_intercept(rng, 90, 6)
    lam = power(rng, -3, -1)
    asked = Sigmoids(rng.uniform(0.2, 0.8), 0.5).on(A[:70])
    penalty = pen.separable(pen.l1(lam))
    return posed("logistic", A, b, mossp.L1(lam), penalty, asked, equality=True)


@family
def contradictory_means(rng):
    A, b = with_intercept(rng, 90, 6)
    lam, middle, gap = power(rng, -3, -1), rng.uniform(0.3, 0.7), rng.uniform(0.05, 0.2)
    asked = Sigmoids(middle - gap, 1.0).on(A) & Sigmoids(middle + gap, 1.0, -1.0).on(A)
    penalty = pen.separable(pen.l1(lam))
    return posed("logistic", A, b, mossp.L1(lam), penalty, asked, Expect.INFEASIBLE)


@family
def second_loss_out_of_reach(rng):
    A, b = regression(rng, 90, 5)
    B, d = regression(rng, 60, 5)
    least = np.linalg.lstsq(B, d, rcond=None)[1][0] / 120
    lam, bound = power(rng, -2, 0), Squares(least * rng.uniform(0.3, 0.95)).on(np.c_[B, d])
    penalty = pen.separable(pen.l1(lam))
    return posed("squared", A, b, mossp.L1(lam), penalty, bound, Expect.INFEASIBLE)
