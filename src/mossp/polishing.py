"""The polishing of a run: which replicas, when, at what cost, and what a checkpoint keeps of it.

A Newton step on n variables takes up to n Hessian-vector products over all of the data: for a
linear model that is little beside the run, for a network it is more than all of it. So an attempt
goes on as long as it pays, and what has not paid is limited by a multiple of what the run costs.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from mossp.budget import PRODUCT, Budget, UsedUp
from mossp.candidates import from_strong, spliced
from mossp.certificate import Witness
from mossp.polish import Polished, Polisher, polish, row_count
from mossp.problem import Oracles
from mossp.recession import leads_to_infinity
from mossp.regularizers.strength import strengths_in

PARTS = (1.0, 0.25, 0.1)  # of h, in problems without -g
RIVAL = -1  # its place among the replicas in a checkpoint
PREFERRED = (
    "The objective is lower on its way to infinity, where it has no minimum: this is a local "
    "minimum, the one that stronger regularisation leads to if there is one."
)
FEW_NUMBERS = 2 * 10**7  # in data for which all of them are tried
# What polishing may cost without success, in gradients: so many for each that the run's steps take,
SHARE = 20
# and in any case this many divided by the number of variables: some ten seconds.
LITTLE = 10**10
EARLY = 0.5  # of the time that is left may be spent before the last steps: they come first
FEWEST_LOOKS = 4  # passes over the data, without which an attempt is not begun


class Polishing:
    """The polishing of a run: every replica until it succeeds, and what that costs a replica."""

    def __init__(
        self, oracles: Oracles, tol: float, budget: Budget | None = None, planned: float = np.inf
    ) -> None:
        """`planned` are the gradients that the run's steps take, all of them."""
        self.oracles, self.tol, self.budget = oracles, tol, budget or Budget()
        self.found: dict[int, Polished] = {}
        self.rival: Polished | None = None  # the best of the further candidates
        self.instead: Polished | None = None  # of all others, where these lead to infinity
        self.gradients, self.products = 0, 0
        self.tried = -1  # the step at which it was tried last
        self.ended = ""  # what was used up by the last attempt that was cut short
        self.replica = 0  # which one is being polished
        # Newton's method always arrives on a convex problem.
        limited = max(SHARE * planned, LITTLE / oracles.structure.size)
        self.affordable = np.inf if oracles.relaxable else limited
        self.in_vain = 0  # what attempts have cost that led nowhere

    @property
    def cost(self) -> int:
        return self.gradients + PRODUCT * self.products

    def polish(
        self, oracles: Oracles, x: np.ndarray, patient: bool = True, last: bool = False,
        tol: float | None = None,
    ) -> Polished:  # fmt: skip
        """One attempt, within what is affordable: half of that is kept for the last one."""
        half = self.affordable / 2
        patience = half if last else max(half - self.in_vain, 0) / 2
        found = polish(oracles, x, tol or self.tol, patient, self.budget, patience, self.cost, last)
        self.ended = found.ended if last else found.ended or self.ended
        return found

    def count(self, *attempts: Polished, tol: float | None = None) -> None:
        """Adds up what attempts have cost, side by side in as many replicas."""
        gradients = max((a.gradients for a in attempts), default=0)
        products = max((a.products for a in attempts), default=0)
        self.gradients += gradients
        self.products += products
        if any(a.residual > (tol or self.tol) for a in attempts):
            self.in_vain += gradients + PRODUCT * products

    @np.errstate(over="ignore", invalid="ignore")
    def compile(self, x: np.ndarray) -> None:
        """Before the clock starts: a program cannot be left half compiled when time is up."""
        with contextlib.suppress(UsedUp):  # by a signal
            Polisher(self.oracles, x, Budget(self.budget.interrupt)).compile(x)

    @property
    def lacking(self) -> str:
        """What the budget has too little of for an attempt; "" where there is room for one."""
        looks = FEWEST_LOOKS * row_count(self.oracles)
        seconds = self.budget.limit - self.budget.seconds()
        if seconds <= 0:
            return "the time was used up"
        return "" if self.cost + looks <= self.budget.samples else "the gradients were used up"

    def attempt(self, k: int, xs: np.ndarray, given_up: np.ndarray, last: bool = False) -> bool:
        """Whether every replica that is not given up has led to a KKT point at tol."""
        wanted = int(np.sum(~given_up))
        lacking = self.lacking
        if (k == self.tried and not last) or lacking:  # tried by the run it goes on from
            self.ended = lacking if last else self.ended
            return len(self.found) == wanted
        attempts = []
        with self.budget.within(1.0 if last else EARLY):
            for r in np.flatnonzero(~given_up).tolist():
                if r in self.found:
                    continue
                self.replica = r
                patient = last or (k == 0 and self.oracles.convex)
                found = self.polish(self.oracles, xs[r], patient, last)
                attempts.append(found)
                if found.residual <= self.tol or (last and found.improved):
                    self.found[r] = found
        self.count(*attempts)
        if not self.budget.received:  # else it is tried again by the run that goes on
            self.tried = k
        return len(self.found) == wanted

    def relax(self, x: np.ndarray) -> None:
        """The best critical point that answers without -g lead to; it is kept beside the run's."""
        small = row_count(self.oracles) * len(x) <= FEW_NUMBERS
        with self.budget.within(EARLY):
            for part in PARTS if small else PARTS[1:2]:
                relaxed = self.oracles.relaxed(np.asarray(part, x.dtype))
                x = self.newton(relaxed, x).witness.x
                self.consider(self.newton(self.oracles, x))

    def refine(self, x: np.ndarray) -> None:
        """Candidates that only the answers found give a reason for: exchanges, and paths.

        Where F is lowest on the way to infinity, F does not say which answer is good: the one that
        a path from strong regularisation leads to is taken, or else the lowest with a minimum.
        """
        regularizer = self.oracles.regularizer
        if regularizer.counted(len(x)) and not self.stopped():
            best = self.certified()[:1]
            found = spliced(
                self.oracles, best[0] if best else None, x, self.tol, self.newton, self.stopped
            )
            self.consider(found)
        known = self.certified()
        if self.stopped() or not known or not strengths_in(regularizer):
            return
        if self.endless(known[0]):
            candidates = [from_strong(self.oracles, x, self.newton), *known[1:]]
            finite = (c for c in candidates if c and c.residual <= self.tol and not self.endless(c))
            self.instead = next(finite, None)

    def newton(
        self, oracles: Oracles, x: np.ndarray, tol: float | None = None, patient: bool = True
    ) -> Polished:
        """Polishing at the run's expense, for a candidate."""
        found = self.polish(oracles, x, patient, tol=tol)
        self.count(found, tol=tol)
        return found

    def consider(self, found: Polished | None) -> None:
        if found is None or found.residual > self.tol:
            return
        if self.rival is None or found.value < self.rival.value:
            self.rival = found

    def certified(self) -> list[Polished]:
        """The KKT points known, the lowest first."""
        every = [*self.found.values(), *([self.rival] if self.rival is not None else [])]
        return sorted((f for f in every if f.residual <= self.tol), key=lambda found: found.value)

    def endless(self, found: Polished) -> bool:
        """Whether a point is on its way to infinity, as far as the budget allows to see."""
        x, q = found.witness.x, found.witness.lam
        polisher = Polisher(self.oracles, x, self.budget, before=self.cost)
        try:
            return leads_to_infinity(self.oracles, x, q, self.tol, polisher)
        except UsedUp:
            return False
        finally:
            self.gradients += polisher.gradients
            self.products += polisher.products

    def stopped(self) -> bool:
        return self.budget.received or bool(self.lacking)

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What a checkpoint keeps of it: arrays, and what JSON can hold."""
        kept = dict(self.found) if self.rival is None else {**self.found, RIVAL: self.rival}
        arrays = {
            f"polished/{r}/{i}": np.asarray(part)
            for r, found in kept.items()
            for i, part in enumerate(found.witness)
        }
        numbers = {str(r): list(found[1:]) for r, found in kept.items()}
        spent = [self.gradients, self.products, self.tried, self.in_vain]
        return arrays, {"found": numbers, "spent": spent}

    def take_up(self, arrays: dict[str, np.ndarray], saved: dict[str, Any]) -> None:
        self.gradients, self.products, self.tried, self.in_vain = saved["spent"]
        for r, numbers in saved["found"].items():
            parts = [arrays[f"polished/{r}/{i}"] for i in range(len(Witness._fields))]
            self.found[int(r)] = Polished(Witness(*parts), *numbers)
        self.rival = self.found.pop(RIVAL, None)

    @property
    def said(self) -> str:
        """What a message says of it."""
        if self.found:
            steps = max(found.steps for found in self.found.values())
            polished = f"Polished by {steps} Newton step{'s' * (steps != 1)}."
            return f"{polished} {PREFERRED}" if self.instead is not None else polished
        why = f": {self.ended}" if self.ended else ""
        if self.cost == 0:
            return f"It was not polished{why}." if why else "It ended early, and was not polished."
        if self.rival is not None:
            return (
                f"This is the answer that the convex part leads to; polishing the run ended{why}."
            )
        return f"Polishing found nothing better{why}."

    def into(self, outputs: Witness, values: np.ndarray) -> np.ndarray:
        """Puts better points in place of the run's, whose F are the `values`; says which were.

        A value is infinite where nothing is proved about a point: any that is certified is better.
        """
        better = np.zeros(len(values), bool)
        for r, value in enumerate(values.tolist()):
            own = found = self.found.get(r)
            lowest = value if own is None else own.value if own.residual <= self.tol else np.inf
            if self.rival is not None and self.rival.value < lowest:
                found = self.rival
            found = self.instead or found
            if found is None:
                continue
            better[r] = True
            for mine, proved in zip(outputs, found.witness, strict=True):
                mine[r] = proved
        return better
