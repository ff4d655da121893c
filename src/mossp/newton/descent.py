"""From a feasible start to the neighbourhood of a solution: steps with full gradients, on the host.

    xi  in dg(x)
    x+  = argmin_x  <grad f(x_k) - xi, x> + h(x) + |x - x_k|^2 / (2 mu)
          s.t.  c_E + J_E (x - x_k) = 0,  c_I + J_I (x - x_k) <= 0

the update of sqp-dc without noise. 1/mu is at least the smoothness of f seen along the way: a step
is taken where f stays below its quadratic model and the exact penalty falls, else mu is halved.
Nothing is compiled but what polishing needs in any case, and for a linear model not even that.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mossp._base.budget import UsedUp
from mossp._base.threads import limit
from mossp.certificates.feasibility import into_domain
from mossp.newton.linearized import Met, constrained_prox
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT
from mossp.newton.search import ExactPenalty
from mossp.regularizers import Regularizer

PROBE = 1e-4  # the length of the move that shows how smooth f is, relative to max(|x|, 1)
GROWTH = 1.1  # of mu after a step: one that is too long is noticed, and costs a pass
HALVINGS = 12  # of mu for one step
STILL = 1e-9  # relative to max(|x|, 1): a step that is shorter leads nowhere
MARGIN = 2  # by which nu exceeds the multipliers, for the penalty to be exact
BOUND = 1e4  # on multipliers, relative to what they are made of
ROUNDING = 1e-13  # of F: a rise by less is none
# Step numbers at which F is looked at, and the part of all of its change that the last of them must
# not exceed for it to have settled.
MARKS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
LEVEL = 0.02
# The part of all of its change by which F changes in a step, signs as before, where Newton's method
# has less to do than further steps: F has settled sooner than the marks would see.
ENDED = 1e-5


@dataclasses.dataclass(frozen=True)
class Point:
    """What a step needs to know of x, from one pass over the data."""

    x: np.ndarray
    f: float
    F: float
    gradient: np.ndarray  # of f
    s_g: np.ndarray  # in dg(x)
    c: np.ndarray
    J: np.ndarray  # one row per constraint
    violated: np.ndarray  # (c_E, [c_I]_+)

    @property
    def violation(self) -> float:
        return float(np.linalg.norm(self.violated))

    @property
    def finite(self) -> bool:
        parts = (self.F, self.gradient, self.c, self.J)
        return all(np.isfinite(part).all() for part in parts)


@np.errstate(over="ignore", invalid="ignore")  # a trial point that overflows is not taken
def evaluated(kkt: KKT, x: np.ndarray, regularizer: Regularizer | None = None) -> Point:
    """x in the precision of the problem, with all of the data; another regulariser may be given."""
    x = np.asarray(x, kkt.dtype).astype(np.float64, copy=False)
    reg = kkt.regularizer if regularizer is None else regularizer
    if kkt.linear is None:
        at = kkt.evaluate(x, np.zeros(kkt.oracles.m), 1.0)
        f, gradient, c, J = at.F - float(kkt.regularizer(x)), at.gradient, at.c, at.J
    else:
        f, gradient = kkt.linear.first_order(x)
        c, J = kkt.constraints(x)
    violated = np.where(kkt.is_equality, c, np.maximum(c, 0.0))
    s_g = np.asarray(reg.subgradient_g(x), np.float64)
    return Point(x, f, f + float(reg(x)), gradient, s_g, c, J, violated)


def settled(first: float, before: float, now: float) -> bool:
    """Whether F has changed little of late.

    Examples
    --------
    >>> settled(1.0, 0.505, 0.5), settled(1.0, 0.6, 0.5)
    (True, False)
    """
    return abs(now - before) <= LEVEL * abs(now - first)


class Descent:
    """Steps from x on; `at` is where they have led to, `first_mu` the length of the first.

    That of an earlier descent on the same f need not be found again.
    """

    def __init__(
        self, kkt: KKT, meter: Meter, x: np.ndarray, regularizer: Regularizer | None = None,
        first_mu: float = 0.0,
    ) -> None:  # fmt: skip
        self.kkt, self.meter, self.penalty = kkt, meter, ExactPenalty()
        self.regularizer: Any = kkt.regularizer if regularizer is None else regularizer
        self.steps = 0
        self.q = np.zeros(kkt.oracles.m)
        self.meter.count(gradients=kkt.rows)
        x = np.asarray(x, np.float64)
        reg = self.regularizer
        self.at = evaluated(kkt, x if reg.finite else into_domain(reg, x), reg)
        self.begin, self.first_mu, self.mu = self.at.F, first_mu, first_mu

    def settle(self, known: Callable[[np.ndarray], bool] = lambda x: False) -> None:
        """Steps until F has settled, or until it is known where an x leads to."""
        seen = [self.at.F]
        for mark in MARKS:
            goes_on = True
            while goes_on and self.steps < mark:
                goes_on = self.go_on(self.steps + 1)
                if known(self.at.x):
                    return
            seen.append(self.at.F)
            if not goes_on or (len(seen) > 2 and settled(*seen[:1], *seen[-2:])):
                return

    @np.errstate(over="ignore", invalid="ignore")
    def go_on(self, until: int) -> bool:
        """Steps up to that number; False where none leads on, or no longer far, or at the end."""
        if not self.at.finite:
            return False
        try:
            with limit.one() if self.kkt.linear is not None else contextlib.nullcontext():
                return self._stepped(until)
        except UsedUp:
            return False

    def _stepped(self, until: int) -> bool:
        if not self.mu:
            self.mu = self.first_mu = self._first_length()
        while self.steps < until:
            self.meter.report()
            before = self.at
            if not self._step() or self._ended(before):
                return False
        return True

    def _ended(self, before: Point) -> bool:
        """Whether the last step, from there, changed too little for others to follow it."""
        at = self.at
        if abs(at.F - before.F) > ENDED * abs(at.F - self.begin) or at.violation > ENDED:
            return False
        return np.array_equal(np.sign(at.x), np.sign(before.x))

    def _first_length(self) -> float:
        """1 / L, L from the gradients at x and next to it."""
        at = self.at
        slope = at.gradient - at.s_g
        size, steep = max(float(np.linalg.norm(at.x)), 1.0), float(np.linalg.norm(slope))
        if not steep:
            return 1.0
        longest = size / steep
        beside = self._evaluated(at.x - PROBE * longest * slope)
        change = float(np.linalg.norm(beside.gradient - at.gradient))
        L = change / (PROBE * size)
        return min(1 / L, longest) if np.isfinite(L) and L * longest > 1 else longest

    def _evaluated(self, x: np.ndarray) -> Point:
        self.meter.pay(gradients=self.kkt.rows)
        return evaluated(self.kkt, x, self.regularizer)

    def _step(self) -> bool:
        at = self.at
        for _ in range(HALVINGS):
            met = self._target()
            dx = met.x - at.x
            if not np.isfinite(dx).all():
                return False
            length = float(dx @ dx)
            if np.sqrt(length) <= STILL * max(float(np.linalg.norm(at.x)), 1.0):
                return False
            self.penalty.require(MARGIN * float(np.abs(met.q).max(initial=0.0)))
            del dx  # which may be long
            trial, slack = self._evaluated(met.x), ROUNDING * (1 + abs(at.F))
            dx = trial.x - at.x
            model = at.f + float(at.gradient @ dx) + length / (2 * self.mu)
            if trial.finite and trial.f <= model + slack and self._value(trial) <= self._value(at):
                self.at, self.q, self.mu = trial, met.q, GROWTH * self.mu
                self.steps += 1
                self.meter.reached = trial.x, trial.F, trial.violation, np.inf
                return True
            del trial, met, dx  # several of them
            self.mu /= 2
        return False

    def _value(self, at: Point) -> float:
        """The exact penalty F + nu |(c_E, [c_I]_+)|_1."""
        return at.F + self.penalty.nu * float(np.abs(at.violated).sum())

    def _target(self) -> Met:
        """Where a step of length mu leads."""
        at, mu, reg = self.at, self.mu, self.regularizer
        slope = at.gradient - at.s_g
        steep = float(np.linalg.norm(slope))
        slope *= -mu
        slope += at.x
        w = slope  # x - mu (grad f - s_g), in place
        if not len(at.c):
            return Met(np.asarray(reg.prox_h(w, mu), np.float64), self.q)
        lengths = np.linalg.norm(at.J, axis=1)
        away = at.violation / max(float(lengths.max()), np.finfo(float).tiny)
        bound = BOUND * (steep + away / mu + 1e-6)
        m_E = self.kkt.oracles.m_E
        return constrained_prox(reg, w, mu, at.x, at.c, at.J, m_E, self.q, bound)
