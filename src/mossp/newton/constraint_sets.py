"""Polishing under many constraints: on those that are active, or nearly so.

Of thousands of inequalities few hold with equality at a solution: no more than x has free entries,
as a rule. The problem under some constraints W, all equalities among them, is a problem of the same
form, and is polished by itself; so a Jacobian has the rows of W only. One pass then gives all of c
at the point found. Those that it violates join W, which at most doubles, until all hold:

    a KKT pair (x, q_W) with c(x) <= 0 is one of the whole problem, with q = 0 outside of W.

Each W is a relaxation of the next one: F rises from round to round, and no round comes twice.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from mossp._base.budget import Budget, UsedUp
from mossp._base.types import AnyVector
from mossp.certificates.certificate import Witness
from mossp.certificates.linearization import rough_lengths, values
from mossp.newton import dca
from mossp.newton.globalization import FEASIBLE, ROUNDING, Polished
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT, row_count
from mossp.oracles import Oracles

MANY = 128  # inequalities that are taken as they are
# Of each constraint with more entries than this, some are taken: these many at least, and a power
# of two, so that few programs are compiled.
FEWEST = 32
# Entries of a first W, for each that is violated or active to within a part of the largest.
ROOM, ACTIVE = 2, 1e-6
ROUNDS = 50


def polish(
    oracles: Oracles, x: AnyVector, tol: float, patient: bool = True, budget: Budget | None = None,
    patience: float = np.inf, before: float = 0.0, last: bool = False,
) -> Polished:  # fmt: skip
    """As `dca.polish`, on working sets of constraints where these are many."""
    if not are_many(oracles):
        return dca.polish(oracles, x, tol, patient, budget, patience, before, last)
    return ConstraintSets(oracles, tol, patient, budget, patience, before, last).run(np.asarray(x))


def are_many(oracles: Oracles) -> bool:
    return oracles.m - oracles.m_E > MANY


def relaxed(oracles: Oracles, x: np.ndarray) -> Oracles:
    """The problem under the constraints that matter near x; itself, where it has few."""
    if not are_many(oracles):
        return oracles
    return oracles.under(nearest(oracles, x, values(oracles, x)))


def nearest(
    oracles: Oracles, x: np.ndarray, c: np.ndarray, W: np.ndarray | None = None
) -> np.ndarray:
    """W with the violated constraints, and as many others as fit, the nearest first.

    How near -c_j / ||J_j|| says; lengths may be rough. Without a W, what is active comes first.
    """
    lengths = np.asarray(rough_lengths(oracles, x), np.float64)
    rank = c / np.maximum(lengths, np.finfo(float).tiny)
    rank[~np.isfinite(rank)] = np.inf
    kept, chosen = np.zeros(oracles.m, bool), []
    if W is not None:
        kept[W] = True
    near = -ACTIVE * max(float(np.abs(c).max(initial=0.0)), 1.0)
    for first, end in oracles.terms.ranges:
        here, size = slice(first, end), end - first
        if end <= oracles.m_E or size <= FEWEST:
            chosen.append(np.arange(first, end))
            continue
        held = int(kept[here].sum())
        if W is None:
            wanted = ROOM * int((c[here] >= near).sum())
        else:
            wanted = held + min(int((c[here][~kept[here]] > 0).sum()), held)
        wanted = max(wanted, FEWEST)
        count = min(1 << (wanted - 1).bit_length(), size)
        order = np.argsort(-np.where(kept[here], np.inf, rank[here]), kind="stable")
        chosen.append(first + np.sort(order[:count]))
    return np.concatenate(chosen)


@dataclasses.dataclass
class ConstraintSets:
    """One search."""

    oracles: Oracles
    tol: float
    patient: bool
    budget: Budget | None
    patience: float
    before: float
    last: bool

    def __post_init__(self) -> None:
        self.rows = row_count(self.oracles)
        self.meter = Meter(self.budget, self.patience, self.before, reserve=self.rows)
        self.steps = 0

    def run(self, start: np.ndarray) -> Polished:
        oracles, x, ended = self.oracles, start, ""
        first_c = c = self.values(x)
        W = nearest(oracles, x, c)
        for number in range(ROUNDS):
            found = self.solved(oracles.under(W), x, number)
            c, ended = self.values(found.witness.x), found.ended
            left = self.outside(c, W)
            if ended or left <= FEASIBLE * self.tol or len(W) == oracles.m:
                break
            try:
                self.meter.check()
            except UsedUp as reason:
                ended = str(reason)
                break
            # Where W alone leads nowhere, what it lacks is looked for from the same x.
            W = nearest(oracles, x, c, W)
            x = found.witness.x if found.residual <= self.tol else x
        found = found._replace(residual=max(found.residual, left), ended=ended)
        return self.handed_back(start, first_c, c, W, found, number)

    def values(self, x: np.ndarray) -> np.ndarray:
        """c, all of it."""
        self.meter.count(gradients=self.rows)
        return values(self.oracles, x)

    def outside(self, c: np.ndarray, W: np.ndarray) -> float:
        """The violation of what is not in W."""
        wrong = self.oracles.positive_part(c)
        wrong[W] = 0.0
        return float(np.linalg.norm(wrong))

    def solved(self, oracles: Oracles, x: np.ndarray, number: int) -> Polished:
        """The problem under W; later ones lie near one another, where Newton's steps are enough."""
        for patient in (False, True)[int(number == 0 and self.patient) : 1 + self.patient]:
            found = dca.polish(
                oracles, x, self.tol, patient, self.budget, self.patience,
                self.before + self.meter.cost, self.last,
            )  # fmt: skip
            self.meter.count(found.gradients, found.products)
            self.steps += found.steps
            if found.residual <= self.tol or found.ended:
                break
        return found

    def handed_back(
        self, start: np.ndarray, first_c: np.ndarray, c: np.ndarray, W: np.ndarray,
        found: Polished, rounds: int,
    ) -> Polished:  # fmt: skip
        """The end as all constraints see it, or the start where that is no worse."""
        improved, witness, residual, F = found.improved, found.witness, found.residual, found.value
        if rounds:  # it set out from another point than the start
            oracles = self.oracles.under(W)
            kkt = KKT.of(oracles, start.dtype)
            self.meter.count(gradients=kkt.rows)
            at = kkt.evaluate(start, np.zeros(oracles.m), 1.0)
            at = kkt.with_multipliers(at, kkt.multipliers(at), at.t)
            s_h = kkt.nearest_subgradient(at)
            before, after = (
                float(np.linalg.norm(self.oracles.positive_part(v))) for v in (first_c, c)
            )
            resolution = ROUNDING * float(np.finfo(start.dtype).eps) * (1 + abs(at.F))
            lower = at.F + resolution >= found.value or before > after
            first = max(kkt.relative(at, at.W + s_h), self.outside(first_c, W))
            improved = residual < first and lower and after <= max(before, self.tol)
            if not improved:
                zero: Any = np.zeros(())
                witness = Witness(x=at.x, y=at.x, s_h=s_h, s_g=at.s_g, lam=at.q, rho=zero)
                witness = jax.tree.map(lambda a: np.asarray(a, start.dtype), witness)
                residual, F = first, at.F
        lam = np.zeros(self.oracles.m, start.dtype)
        lam[W] = witness.lam
        return found._replace(
            witness=witness._replace(lam=lam),
            residual=residual,
            improved=improved,
            steps=self.steps,
            gradients=self.meter.gradients,
            products=self.meter.products,
            value=F,
        )
