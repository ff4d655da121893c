"""The polishing of a run: which replicas, when, at what cost, and what a checkpoint keeps of it.

A Newton step on n variables takes up to n Hessian-vector products over all of the data: for a
linear model that is little beside the run, for a network it is more than all of it. So an attempt
goes on as long as it pays, and what has not paid is limited by a multiple of what the run costs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mossp._base import layout
from mossp._base.budget import PRODUCT, Budget, UsedUp
from mossp.certificates.certificate import Witness
from mossp.newton.candidates import from_strong, spliced
from mossp.newton.globalization import Polished, polish
from mossp.newton.meter import Meter
from mossp.newton.recession import leads_to_infinity
from mossp.newton.residual import row_count
from mossp.oracles import Oracles
from mossp.regularizers.strength import strengths_in

# Parts of h in problems without -g, whose answers are starts for the problem itself. h alone
# shrinks more than h - g does: a part of it leaves more entries.
PARTS = (1.0, 0.25, 0.1)
FEW_NUMBERS = 2 * 10**7  # in data for which all of these are tried, else the second alone
PREFERRED = (
    "The objective is lower on its way to infinity, where it has no minimum: this is a local "
    "minimum, the one that stronger regularisation leads to if there is one."
)
# What polishing may cost without success, in gradients: so many for each that the run's steps take,
SHARE = 20
# and in any case this many divided by the number of variables: some ten seconds.
LITTLE = 10**10
FEWEST_PASSES = 4  # over the data: an attempt that cannot afford them is not begun

CANDIDATE = -1  # the place of the best further candidate among the replicas of a checkpoint
SPENT = 4  # numbers kept: gradients, Hessian products, the step of the last attempt, cost in vain
LAYOUT = {"found": layout.Each(list, named=True), "spent": layout.Each(int)}


class Polishing:
    """The polishing of a run: every replica until it succeeds, and what that costs per replica.

    Parameters
    ----------
    oracles : Oracles
        The problem; its data are finite, or it has none.
    tol : float
        The largest relative residual of a KKT point.
    budget : Budget, optional
        What the whole solve may cost.
    planned : float
        The gradients that the run's steps take, all of them.
    """

    def __init__(
        self, oracles: Oracles, tol: float, budget: Budget | None = None, planned: float = np.inf
    ) -> None:
        self.oracles, self.tol, self.budget = oracles, tol, budget or Budget()
        self.found: dict[int, Polished] = {}  # by replica
        self.candidate: Polished | None = None  # the best that no replica led to
        self.preferred: Polished | None = None  # to all others, where these lead to infinity
        self.gradients, self.products = 0, 0
        self.tried = -1  # the step at which it was tried last
        self.ended = ""  # what was used up by the last attempt that was cut short
        self.replica = 0  # which one is being polished
        self.least_seconds = 0.0  # that the first attempt may take to compile: as long as the steps
        # Newton's method always arrives on a convex problem.
        limited = max(SHARE * planned, LITTLE / oracles.structure.size)
        self.affordable = np.inf if oracles.relaxable else limited
        self.in_vain = 0  # what attempts have cost that led nowhere

    @property
    def cost(self) -> int:
        return self.gradients + PRODUCT * self.products

    @property
    def possible(self) -> bool:
        """Whether the budget has room for an attempt."""
        passes = FEWEST_PASSES * row_count(self.oracles)
        seconds = self.budget.limit - self.budget.seconds()
        first = 0.0 if self.tried >= 0 else self.least_seconds
        return seconds > first and self.cost + passes <= self.budget.samples

    def stopped(self) -> bool:
        """Whether to try nothing more."""
        return self.budget.received or not self.possible

    # Replicas ----------------------------------------------------------------------------

    def attempt(self, k: int, xs: np.ndarray, given_up: np.ndarray, last: bool = False) -> bool:
        """Polish every replica that has not led to a KKT point yet; True once all have.

        Parameters
        ----------
        k : int
            The step of the run. A resumed run does not try the step again that was tried last.
        xs : ndarray
            The replicas' points, one a row.
        given_up : ndarray of bool
            Replicas that are left out, here and in the answer: they diverged, or met NaN.
        last : bool
            Whether the run is over; then whatever is better than the run's point is taken.
        """
        wanted = int(np.sum(~given_up))
        if (k == self.tried and not last) or not self.possible:
            return len(self.found) == wanted
        attempts = []
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

    def polish(
        self, oracles: Oracles, x: np.ndarray, patient: bool = True, last: bool = False,
        tol: float | None = None,
    ) -> Polished:  # fmt: skip
        """One attempt, within what is affordable: half of that is kept for the last one."""
        half = self.affordable / 2
        patience = half if last else max(half - self.in_vain, 0) / 2
        found = polish(oracles, x, tol or self.tol, patient, self.budget, patience, self.cost, last)
        self.ended = found.ended or self.ended
        return found

    def count(self, *attempts: Polished, tol: float | None = None) -> None:
        """Add up what attempts have cost, made side by side in as many replicas."""
        gradients = max((a.gradients for a in attempts), default=0)
        products = max((a.products for a in attempts), default=0)
        self.gradients += gradients
        self.products += products
        if any(a.residual > (tol or self.tol) for a in attempts):
            self.in_vain += gradients + PRODUCT * products

    # Candidates --------------------------------------------------------------------------

    def relax(self, x: np.ndarray) -> None:
        """Keep the best critical point that answers without -g lead to beside the run's."""
        small = row_count(self.oracles) * len(x) <= FEW_NUMBERS
        for part in PARTS if small else PARTS[1:2]:
            relaxed = self.oracles.relaxed(np.asarray(part, x.dtype))
            x = self.newton(relaxed, x).witness.x
            self.consider(self.newton(self.oracles, x))

    def refine(self, x: np.ndarray) -> None:
        """Try the candidates that only the answers found give a reason for: exchanges, and paths.

        Where F is lowest on the way to infinity, F does not say which answer is good: the one that
        a path from strong regularisation leads to is taken, or else the lowest with a minimum.
        """
        regularizer = self.oracles.regularizer
        if regularizer.counted(len(x)) and not self.stopped():
            best = next(iter(self.certified()), None)
            self.consider(spliced(self.oracles, best, x, self.tol, self.newton, self.stopped))
        known = self.certified()
        if self.stopped() or not known or not strengths_in(regularizer):
            return
        if self.leads_to_infinity(known[0]):
            others = [from_strong(self.oracles, x, self.newton), *known[1:]]
            proved = (other for other in others if other and other.residual <= self.tol)
            self.preferred = next((p for p in proved if not self.leads_to_infinity(p)), None)

    def newton(
        self, oracles: Oracles, x: np.ndarray, tol: float | None = None, patient: bool = True
    ) -> Polished:
        """Polishing at the run's expense, for a candidate."""
        found = self.polish(oracles, x, patient, tol=tol)
        self.count(found, tol=tol)
        return found

    def consider(self, found: Polished | None) -> None:
        """Keep a candidate if it is certified, and lower than the one that is kept."""
        if found is None or found.residual > self.tol:
            return
        if self.candidate is None or found.value < self.candidate.value:
            self.candidate = found

    def certified(self) -> list[Polished]:
        """The KKT points known, the lowest first."""
        every = [*self.found.values(), *([self.candidate] if self.candidate is not None else [])]
        return sorted((f for f in every if f.residual <= self.tol), key=lambda found: found.value)

    def leads_to_infinity(self, found: Polished) -> bool:
        """Whether a point is on its way to infinity, as far as the budget allows to see."""
        meter = Meter(self.budget, before=self.cost, reserve=row_count(self.oracles))
        try:
            x, q = found.witness.x, found.witness.lam
            return leads_to_infinity(self.oracles, x, q, self.tol, meter)
        except UsedUp:
            return False
        finally:
            self.gradients += meter.gradients
            self.products += meter.products

    # What comes of it --------------------------------------------------------------------

    def into(self, outputs: Witness, values: np.ndarray) -> np.ndarray:
        """Put better points in place of the run's; True for each replica that was replaced.

        Parameters
        ----------
        outputs : Witness
            The replicas' witnesses, which are written to.
        values : ndarray
            F of each where it is proved, and infinite elsewhere: any certified point is better.
        """
        better = np.zeros(len(values), bool)
        for r, value in enumerate(values.tolist()):
            own = found = self.found.get(r)
            lowest = value if own is None else own.value if own.residual <= self.tol else np.inf
            if self.candidate is not None and self.candidate.value < lowest:
                found = self.candidate
            found = self.preferred or found
            if found is None:
                continue
            better[r] = True
            for mine, proved in zip(outputs, found.witness, strict=True):
                mine[r] = proved
        return better

    @property
    def message(self) -> str:
        """What the result's message says of it."""
        if self.found:
            steps = max(found.steps for found in self.found.values())
            polished = f"Polished by {steps} Newton step{'s' * (steps != 1)}."
            return f"{polished} {PREFERRED}" if self.preferred is not None else polished
        if self.cost == 0:
            return "It ended early, and was not polished."
        why = f": {self.ended}" if self.ended else ""
        if self.candidate is not None:
            return (
                f"This is the answer that the convex part leads to; polishing the run ended{why}."
            )
        return f"Polishing found nothing better{why}."

    # Checkpoints -------------------------------------------------------------------------

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What a checkpoint keeps of it: arrays, and what JSON can hold."""
        candidate = {} if self.candidate is None else {CANDIDATE: self.candidate}
        kept = self.found | candidate
        arrays = {
            f"polished/{r}/{i}": np.asarray(part)
            for r, found in kept.items()
            for i, part in enumerate(found.witness)
        }
        numbers = {str(r): list(found[1:]) for r, found in kept.items()}
        spent = [self.gradients, self.products, self.tried, self.in_vain]
        return arrays, {"found": numbers, "spent": spent}

    def restore(self, arrays: dict[str, np.ndarray], saved: dict[str, Any]) -> None:
        """Go on from what `saved` gave, once `check_saved` has accepted it."""
        self.gradients, self.products, self.tried, self.in_vain = saved["spent"]
        for r, numbers in saved["found"].items():
            parts = [arrays[f"polished/{r}/{i}"] for i in range(len(Witness._fields))]
            self.found[int(r)] = Polished(Witness(*parts), *numbers)
        self.candidate = self.found.pop(CANDIDATE, None)


def check_saved(arrays: dict[str, np.ndarray], saved: dict[str, Any], like: Witness) -> None:
    """Raise LayoutError unless `Polishing.saved` could have given this in a run like this one.

    Parameters
    ----------
    arrays, saved : dict
        What a file holds in place of what `Polishing.saved` gave.
    like : Witness
        The replicas' witnesses, whose shapes those in the file must have.
    """
    layout.check(saved, LAYOUT, "description.extra.polishing")
    if len(saved["spent"]) != SPENT:
        raise layout.LayoutError("what it says about the cost of polishing is something else")
    kinds = list(layout.fields_of(Polished, Polished._fields).values())[1:]
    known = {str(r) for r in (CANDIDATE, *range(len(like.x)))}
    for r, numbers in saved["found"].items():
        if r not in known or len(numbers) != len(kinds):
            raise layout.LayoutError("what it says about polishing is about another run")
        for number, kind in zip(numbers, kinds, strict=True):
            layout.check(number, kind, "polishing")
        for i, part in enumerate(like):
            layout.array(arrays, f"polished/{r}/{i}", "f", np.shape(part)[1:])
