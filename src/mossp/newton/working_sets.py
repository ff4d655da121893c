"""Polishing of models with many features, most of whose coefficients are 0: on those that matter.

The problem in a few entries W of x, the others 0, is a problem of the same form: it is polished by
itself, with the columns of W taken out once. A full gradient then tells which of the other entries
violate their optimality condition

    -(grad f + J q - s_g)_j  in  dh_j(0)

The worst of these join W, a few times as many as it has, until none is left. What is found on a
first, small W is accurate only as far as the violation outside of W calls for.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from mossp._base.budget import Budget, UsedUp
from mossp._base.types import AnyVector
from mossp.certificates.certificate import Witness
from mossp.newton import globalization
from mossp.newton.globalization import Polished
from mossp.newton.hessian import DENSE
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT, Evaluation
from mossp.newton.system import has_products
from mossp.oracles import Oracles

# Entries of a first W at least, and from which number of entries on there is something to gain.
FEWEST, MANY = 16, 128
# With -g a small W leads to a poorer critical point: there, so many entries are looked at together.
TOGETHER = 512
ROUNDS = 50
# W grows to so many times its size at once where that leaves few columns beside the rows, so that
# the problem on W is well conditioned, and to twice its size else.
QUICKLY, WELL = 4, 0.25
# An inner problem is solved to this part of the violation outside of W, relative to its scale.
PART = 0.01
# Where so little is violated W is the last one but for a few entries: it is solved to the end.
NEARLY = 1e-4
NUDGE = 1e-9  # that an entry at a kink of h does not follow


def polish(
    oracles: Oracles, x: AnyVector, tol: float, patient: bool = True, budget: Budget | None = None,
    patience: float = np.inf, before: float = 0.0, last: bool = False,
) -> Polished:  # fmt: skip
    """As `globalization.polish`, on working sets where that is less work."""
    x = np.asarray(x)
    kkt = KKT(oracles, x.dtype)
    many = len(x) >= (MANY if oracles.regularizer.convex else TOGETHER)
    always = bound_to_move(kkt, len(x)) if kkt.linear is not None and many else None
    if always is None:
        return globalization.polish(oracles, x, tol, patient, budget, patience, before, last)
    return Sets(kkt, tol, patient, budget, patience, before, last, always).run(x)


def bound_to_move(kkt: KKT, n: int) -> np.ndarray | None:
    """The entries that h does not keep at 0; None where these are too many, or 0 is no home."""
    nudge = np.broadcast_to(NUDGE * kkt.aside, n)
    prox_h = kkt.regularizer.prox_h
    moved = np.zeros(n, bool)
    for sign in (1, -1):
        moved |= np.asarray(prox_h(sign * nudge, 1.0)) != 0
    C = kkt.linear.C if kkt.linear is not None else 1
    features = np.unique(np.flatnonzero(moved) // C)
    return features if len(features) * C <= min(n / 2, DENSE / 4) else None


@dataclasses.dataclass
class Sets:
    """One search, by features: all outputs of a feature are in W, or none."""

    kkt: KKT
    tol: float
    patient: bool
    budget: Budget | None
    patience: float
    before: float
    last: bool
    always: np.ndarray  # features

    def __post_init__(self) -> None:
        self.meter = Meter(self.budget, self.patience, self.before, reserve=self.kkt.rows)
        assert self.kkt.linear is not None
        self.C = self.kkt.linear.C
        self.steps = 0
        self.unbounded = has_products(self.kkt)  # a matrix of the order of W is not formed

    def run(self, x: np.ndarray) -> Polished:
        kkt, ended = self.kkt, ""
        self.meter.count(gradients=kkt.rows)
        at = kkt.evaluate(x, np.zeros(kkt.oracles.m), 1.0)
        q = kkt.multipliers(at) if np.isfinite(at.J).all() else at.q
        first = at = kkt.with_multipliers(at, q, at.t)
        W = self.entering(at, self.with_support(at, self.always))
        for _ in range(ROUNDS if np.isfinite(first.residual) else 0):
            inner = self.solved(W, at)
            self.steps += inner.steps
            at = self.evaluated(W, inner)
            ended = inner.ended
            failed = ended or inner.residual > self.aim
            if failed or kkt.relative(at, self.residual(at)) <= self.tol / 2:
                break
            try:
                self.meter.check()
            except UsedUp as reason:
                ended = str(reason)
                break
            small = self.unbounded or len(W) * self.C < DENSE / 2
            W = self.entering(at, W if small else self.with_support(at, W[:0]))
        return self.handed_back(first, at, ended)

    # Working sets -------------------------------------------------------------------------

    def with_support(self, at: Evaluation, features: np.ndarray) -> np.ndarray:
        return np.union1d(np.union1d(features, self.always), np.flatnonzero(at.x) // self.C)

    def violation(self, at: Evaluation) -> np.ndarray:
        """Of the optimality conditions, by feature."""
        return np.linalg.norm(self.residual(at).reshape(-1, self.C), axis=1)

    def residual(self, at: Evaluation) -> np.ndarray:
        return at.W + self.kkt.nearest_subgradient(at)

    def entering(self, at: Evaluation, W: np.ndarray) -> np.ndarray:
        """W and the worst of the others; as many as W has, and a power of two in all."""
        left = self.violation(at)
        left[W] = 0.0
        fewest = FEWEST if self.kkt.regularizer.convex else TOGETHER
        wide = QUICKLY * len(W) > self.kkt.rows * WELL
        room = max((2 if wide else QUICKLY) * len(W), fewest)
        room = 1 << (room - 1).bit_length()
        violated = int(np.count_nonzero(left))
        more = max((room if self.unbounded else min(room, DENSE // self.C)) - len(W), 0)
        if not self.kkt.oracles.m:
            # Shapes of programs do not matter then; of an empty set nothing could be said.
            more = min(more, max(violated, 0 if len(W) else FEWEST))
        worst = np.argpartition(-left, min(more, len(left) - 1))[:more]
        return np.union1d(W, worst)

    # The problem on W -----------------------------------------------------------------------

    def places(self, W: np.ndarray) -> np.ndarray:
        return (W[:, None] * self.C + np.arange(self.C)).ravel()

    def solved(self, W: np.ndarray, at: Evaluation) -> Polished:
        """The problem on W, as accurately as what is violated outside of W calls for."""
        left = self.residual(at)
        scale = self.kkt.relative(at, left)
        rough = np.isfinite(scale) and scale > NEARLY
        self.aim = max(self.tol, min(PART * scale, 1e-3)) if rough else self.tol
        places = self.places(W)
        return globalization.polish(
            self.kkt.oracles.restricted(places), np.asarray(at.x[places], self.kkt.dtype),
            self.aim, self.patient, self.seen_whole(places), self.patience,
            self.before + self.meter.cost, self.last,
        )  # fmt: skip

    def seen_whole(self, places: np.ndarray) -> Budget | None:
        """The budget, whose observer sees all entries of x."""
        if self.budget is None or (observer := self.budget.observer) is None:
            return self.budget
        return self.budget.observed(lambda x, *seen: observer(self.whole(x, places), *seen))

    def whole(self, x: np.ndarray, places: np.ndarray) -> np.ndarray:
        entries = np.zeros(self.kkt.oracles.structure.size)
        entries[places] = x
        return entries

    def evaluated(self, W: np.ndarray, inner: Polished) -> Evaluation:
        """The pair that the problem on W ended with, seen in all entries."""
        kkt = self.kkt
        x = self.whole(inner.witness.x, self.places(W))
        self.meter.count(inner.gradients + kkt.rows, inner.products)
        return kkt.evaluate(x, np.asarray(inner.witness.lam, float), 1.0)

    def handed_back(self, first: Evaluation, end: Evaluation, ended: str) -> Polished:
        """The end with its proof, or the start where that is no worse."""
        kkt, before = self.kkt, self.kkt.proved(first, self.kkt.nearest_subgradient(first))
        s_h = kkt.nearest_subgradient(end)
        resolution = globalization.ROUNDING * float(np.finfo(kkt.dtype).eps) * (1 + abs(first.F))
        lower = first.F + resolution >= end.F or first.violation > end.violation
        as_feasible = end.violation <= max(first.violation, self.tol)
        improved = kkt.proved(end, s_h) < before and lower and as_feasible
        if not improved:
            end, s_h = first, kkt.nearest_subgradient(first)
        witness: Any = Witness(x=end.x, y=end.x, s_h=s_h, s_g=end.s_g, lam=end.q, rho=np.zeros(()))
        return Polished(
            witness=jax.tree.map(lambda a: np.asarray(a, kkt.dtype), witness),
            residual=kkt.relative(end, end.W + s_h),
            improved=improved,
            steps=self.steps,
            gradients=self.meter.gradients,
            products=self.meter.products,
            value=end.F,
            ended=ended,
        )
