"""The polishing of a run: which replicas, when, at what cost, and what a checkpoint keeps of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mossp.candidates import from_strong, spliced
from mossp.certificate import Witness
from mossp.interrupt import Interrupt
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


class Polishing:
    """The polishing of a run: every replica until it succeeds, and what that costs a replica."""

    def __init__(self, oracles: Oracles, tol: float, interrupt: Interrupt) -> None:
        self.oracles, self.tol, self.interrupt = oracles, tol, interrupt
        self.found: dict[int, Polished] = {}
        self.rival: Polished | None = None  # the best of the further candidates
        self.instead: Polished | None = None  # of all others, where these lead to infinity
        self.gradients, self.products = 0, 0
        self.tried = -1  # the step at which it was tried last

    def attempt(self, k: int, xs: np.ndarray, given_up: np.ndarray, last: bool = False) -> bool:
        """Whether every replica that is not given up has led to a KKT point at tol."""
        if k == self.tried and not last:  # by the run that this one goes on from
            return len(self.found) == int(np.sum(~given_up))
        self.tried = k
        gradients, products = [0], [0]
        for r in np.flatnonzero(~given_up).tolist():
            if r in self.found:
                continue
            patient = last or (k == 0 and self.oracles.convex)
            found = polish(self.oracles, xs[r], self.tol, patient, self.interrupt)
            gradients.append(found.gradients)
            products.append(found.products)
            if found.residual <= self.tol or (last and found.improved):
                self.found[r] = found
        self.gradients += max(gradients)
        self.products += max(products)
        return len(self.found) == int(np.sum(~given_up))

    def relax(self, x: np.ndarray) -> None:
        """The best critical point that answers without -g lead to; it is kept beside the run's."""
        small = row_count(self.oracles) * len(x) <= FEW_NUMBERS
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
        """Polishing at the run's expense."""
        found = polish(oracles, x, tol or self.tol, patient, self.interrupt)
        self.gradients += found.gradients
        self.products += found.products
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
        x, q = found.witness.x, found.witness.lam
        polisher = Polisher(self.oracles, x, self.interrupt)
        answer = leads_to_infinity(self.oracles, x, q, self.tol, polisher)
        self.gradients += polisher.gradients
        self.products += polisher.products
        return answer

    def stopped(self) -> bool:
        return self.interrupt.received is not None

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What a checkpoint keeps of it: arrays, and what JSON can hold."""
        kept = dict(self.found) if self.rival is None else {**self.found, RIVAL: self.rival}
        arrays = {
            f"polished/{r}/{i}": np.asarray(part)
            for r, found in kept.items()
            for i, part in enumerate(found.witness)
        }
        numbers = {str(r): list(found[1:]) for r, found in kept.items()}
        spent = [self.gradients, self.products, self.tried]
        return arrays, {"found": numbers, "spent": spent}

    def take_up(self, arrays: dict[str, np.ndarray], saved: dict[str, Any]) -> None:
        self.gradients, self.products, self.tried = saved["spent"]
        for r, numbers in saved["found"].items():
            parts = [arrays[f"polished/{r}/{i}"] for i in range(len(Witness._fields))]
            self.found[int(r)] = Polished(Witness(*parts), *numbers)
        self.rival = self.found.pop(RIVAL, None)

    @property
    def said(self) -> str:
        if not self.found:
            return "Polishing found nothing better."
        steps = max(found.steps for found in self.found.values())
        polished = f"Polished by {steps} Newton step{'s' * (steps != 1)}."
        return f"{polished} {PREFERRED}" if self.instead is not None else polished

    def into(self, outputs: Witness) -> Witness:
        """The witnesses with those of polished replicas in place of the run's."""
        for r, own in self.found.items():
            found = self.rival if self.rival is not None and self.rival.value < own.value else own
            found = self.instead or found
            for mine, better in zip(outputs, found.witness, strict=True):
                mine[r] = better
        return outputs
