"""The end of a run with a concave part -E[g(x, xi)], on finite data: DCA, each round polished.

    s in dE[g](x) by a pass over all rows;    x <- a KKT point of  f + h - g_r - <s, x>  under c

F does not rise from round to round, since g(x) >= g(y) + <s, x - y>, and where s does not change
any more, x is a KKT point of the problem itself, with y = x. A g with pieces that are linear leads
there after finitely many rounds. Where g bends, rounds only converge linearly: then Newton's method
on f - g goes on, which has kinks too, but no minimum lies at a kink of -g alone.

What is handed back is judged with the subgradient at its own x, never with that of a round before.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base.budget import Budget, UsedUp
from mossp._base.types import AnyVector
from mossp.certificates.certificate import Witness
from mossp.certificates.first_order import concave_part
from mossp.newton import working_sets
from mossp.newton.globalization import ROUNDING, Polished
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT, Evaluation
from mossp.oracles import Oracles

ROUNDS = 100
# Newton's method on f - g is tried after so many rounds, and after twice as many, and so on.
FIRST_TRY = 3


class Point(NamedTuple):
    """A point with multipliers, as the problem itself sees it."""

    at: Evaluation  # of the problem with -<s, x>, s the subgradient at this very x
    s: np.ndarray  # in dE[g](x)
    F: float
    residual: float  # relative to its scale
    s_h: np.ndarray


def polish(
    oracles: Oracles, x: AnyVector, tol: float, patient: bool = True, budget: Budget | None = None,
    patience: float = np.inf, before: float = 0.0, last: bool = False,
) -> Polished:  # fmt: skip
    """As `working_sets.polish`, of problems with a concave part that is a mean over rows too."""
    if oracles.concave is None:
        return working_sets.polish(oracles, x, tol, patient, budget, patience, before, last)
    return Rounds(oracles, tol, patient, budget, patience, before, last).run(np.asarray(x))


@dataclasses.dataclass
class Rounds:
    """One search."""

    oracles: Oracles
    tol: float
    patient: bool
    budget: Budget | None
    patience: float
    before: float
    last: bool

    def __post_init__(self) -> None:
        self.rows = self.oracles.rows_per_pass
        self.meter = Meter(self.budget, self.patience, self.before, reserve=self.rows)
        self.steps, self.ended = 0, ""

    def run(self, x: np.ndarray) -> Polished:
        self.dtype = x.dtype
        first = best = self.point(x, np.zeros(self.oracles.m))
        due = FIRST_TRY
        for number in range(ROUNDS if np.isfinite(first.F) else 0):
            if best.residual <= self.tol or self.used_up(best):
                break
            newton = number == due and self.oracles.mergeable
            due = 2 * due if number == due else due
            found = self.solved(self.oracles.merged() if newton else self.linearised(best), best)
            if not self.better(found, best):
                if newton:
                    continue
                break
            best = found
            if self.ended:
                break
        return self.handed_back(first, best)

    def better(self, new: Point, old: Point) -> bool:
        """Whether a round has led on: F or the violation falls, or the residual at the same F."""
        resolution = ROUNDING * float(np.finfo(self.dtype).eps) * (1 + abs(old.F))
        feasible = new.at.violation <= max(old.at.violation, self.tol)
        if not (np.isfinite(new.F) and feasible):
            return False
        repaired = old.at.violation > self.tol and new.at.violation < old.at.violation / 2
        lower = old.F - resolution > new.F
        return repaired or lower or (old.F + resolution >= new.F and new.residual < old.residual)

    def linearised(self, point: Point) -> Oracles:
        return self.oracles.linearised(np.asarray(point.s, self.dtype))

    def solved(self, oracles: Oracles, point: Point) -> Point:
        """Where one round leads, by Newton's method on a problem without that concave part."""
        found = None
        # Rounds lie near one another: Newton's steps alone are enough as a rule.
        for patient in (False, True)[: 1 + self.patient]:
            found = working_sets.polish(
                oracles, np.asarray(point.at.x, self.dtype), self.tol, patient,
                self.reported(oracles, point), self.patience, self.before + self.meter.cost,
                self.last,
            )  # fmt: skip
            self.meter.count(found.gradients, found.products)
            self.steps, self.ended = self.steps + found.steps, found.ended
            if found.residual <= self.tol or found.ended:
                break
        assert found is not None
        return self.point(found.witness.x, np.asarray(found.witness.lam, float))

    def reported(self, oracles: Oracles, point: Point) -> Budget | None:
        """The budget, whose observer sees an upper bound of F in place of the linearised F."""
        if self.budget is None or (observer := self.budget.observer) is None:
            return self.budget
        # g(x) >= g(y) + <s, x - y>; f - g itself needs no bound.
        shift = point.F - point.at.F if oracles.loss is self.oracles.loss else 0.0
        return self.budget.observed(lambda x, F, *seen: observer(x, F + shift, *seen))

    def point(self, x: AnyVector, q: np.ndarray) -> Point:
        """What a point is worth, with the subgradient of E[g] there: two passes over the data."""
        self.meter.count(gradients=2 * self.rows)
        x = np.asarray(x, self.dtype)
        g, s = concave_part(self.oracles, x)
        kkt = KKT(self.oracles.linearised(np.asarray(s, self.dtype)), self.dtype)
        at = kkt.evaluate(x, q, 1.0)
        s_h = kkt.nearest_subgradient(at)
        if np.isfinite(at.J).all():  # those of the round before, or those that fit here
            other = kkt.with_multipliers(at, kkt.multipliers(at), at.t)
            s_other = kkt.nearest_subgradient(other)
            if kkt.proved(other, s_other) < kkt.proved(at, s_h):
                at, s_h = other, s_other
        F = at.F + float(s @ at.x) - float(g)
        residual = kkt.relative(at, at.W + s_h) if np.isfinite(F) else np.inf
        return Point(at, s, F, residual, s_h)

    def used_up(self, best: Point) -> bool:
        self.meter.note(best.at.x, best.F, best.at.violation, best.residual)
        try:
            self.meter.pay()
        except UsedUp as reason:
            self.ended = str(reason)
        return bool(self.ended)

    def handed_back(self, first: Point, end: Point) -> Polished:
        at = end.at
        # The regulariser's own subgradient: that of E[g] is computed by who judges the witness.
        witness: Any = Witness(
            x=at.x, y=at.x, s_h=end.s_h, s_g=at.s_g - end.s, lam=at.q, rho=np.zeros(())
        )
        return Polished(
            witness=jax.tree.map(lambda a: np.asarray(a, self.dtype), witness),
            residual=end.residual,
            improved=end is not first,
            steps=self.steps,
            gradients=self.meter.gradients,
            products=self.meter.products,
            value=end.F,
            ended=self.ended,
        )
