"""The polishing of a run: which replicas, when, at what cost, and what a checkpoint keeps of it.

A Newton step on n variables takes up to n Hessian-vector products over all of the data: for a
linear model that is little beside the run, for a network it is more than all of it. So an attempt
goes on as long as it pays, and what has not paid is limited by a multiple of what the run costs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mossp._base import layout
from mossp._base.budget import PRODUCT, Budget, UsedUp
from mossp._base.printing import counted
from mossp.certificates.certificate import Witness
from mossp.losses import Loss
from mossp.newton.candidates import from_strong, spliced
from mossp.newton.constraint_sets import polish, relaxed
from mossp.newton.globalization import Polished, compile_steps
from mossp.newton.meter import Meter
from mossp.newton.recession import leads_to_infinity
from mossp.newton.relaxations import Walk
from mossp.newton.residual import KKT, row_count
from mossp.newton.search import confines
from mossp.oracles import Oracles
from mossp.regularizers.strength import strengths_in

FEW_NUMBERS = 2 * 10**7  # in data for which several parts of h are tried, else one alone
CANDIDATE = -1  # the place of the best further candidate among the replicas of a checkpoint
PREFERRED = (
    "The objective is lower on its way to infinity, where it has no minimum: this is a local "
    "minimum, the one that stronger regularisation leads to if there is one."
)
# What polishing may cost without success, in gradients: so many for each that the run's steps take,
SHARE = 20
# more where constraints are sampled, since a step then takes as long as a pass over hundreds of
# times its rows;
SAMPLED_SHARE = 40
# and in any case this many divided by the number of variables: some ten seconds.
LITTLE = 10**10
EARLY = 0.5  # of the time that is left may be spent before the last steps: they come first
FEWEST_PASSES = 4  # over the data: an attempt that cannot afford them is not begun
# Numbers kept: gradients, Hessian products, the step of the last attempt, cost in vain, full steps.
SPENT = 5

# Called with a replica, x, F, the violation and the residual; True asks for an end.
Observer = Callable[[int, np.ndarray, float, float, float], bool]


class Attempts(NamedTuple):
    """What polishing has found so far, and what it has cost per replica."""

    found: Mapping[int, Polished] = MappingProxyType({})  # by replica
    candidate: Polished | None = None  # the best of the further candidates
    preferred: Polished | None = None  # to all others, where these lead to infinity
    gradients: int = 0
    products: int = 0
    tried: int = -1  # the step at which it was tried last
    in_vain: int = 0  # what attempts have cost that led nowhere
    full_steps: int = 0  # with full gradients, from the start, before all others
    ended: str = ""  # what was used up by the last attempt that was cut short
    bounded: np.ndarray | None = None  # an x that was seen not to be on its way to infinity
    settled: bool = False  # whether answers without -g have settled which critical point it is

    @property
    def cost(self) -> int:
        return self.gradients + PRODUCT * self.products

    def certified(self, tol: float) -> list[Polished]:
        """The KKT points known, the lowest first."""
        every = [*self.found.values(), *([self.candidate] if self.candidate is not None else [])]
        return sorted((f for f in every if f.residual <= tol), key=lambda found: found.value)

    @property
    def message(self) -> str:
        """What a result's message says of it."""
        if self.found:
            steps = max(found.steps for found in self.found.values())
            newton, full = counted(steps, "Newton step"), counted(self.full_steps, "step")
            polished = f"Polished by {newton}."
            if self.full_steps:
                polished = f"After {full} with full gradients, polished by {newton}."
            return f"{polished} {PREFERRED}" if self.preferred is not None else polished
        why = f": {self.ended}" if self.ended else ""
        if self.cost == 0 or (self.full_steps and self.tried < 0 and self.candidate is None):
            return f"It was not polished{why}." if why else "It ended early, and was not polished."
        if self.candidate is not None:
            return (
                f"This is the answer that the convex part leads to; polishing the run ended{why}."
            )
        return f"Polishing found nothing better{why}."

    def into(self, outputs: Witness, values: np.ndarray, tol: float) -> np.ndarray:
        """Put better points in place of the run's, whose F are the `values`; say which were.

        A value is infinite where nothing is proved about a point: any that is certified is better.
        """
        better = np.zeros(len(values), bool)
        for r, value in enumerate(values.tolist()):
            own = found = self.found.get(r)
            lowest = value if own is None else own.value if own.residual <= tol else np.inf
            if self.candidate is not None and self.candidate.value < lowest:
                found = self.candidate
            found = self.preferred or found
            if found is None:
                continue
            better[r] = True
            for mine, proved in zip(outputs, found.witness, strict=True):
                mine[r] = proved
        return better

    # Checkpoints ---------------------------------------------------------------------------

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What a checkpoint keeps of it: arrays, and what JSON can hold."""
        kept = dict(self.found)
        if self.candidate is not None:
            kept[CANDIDATE] = self.candidate
        arrays = {
            f"polished/{r}/{i}": np.asarray(part)
            for r, found in kept.items()
            for i, part in enumerate(found.witness)
        }
        numbers = {str(r): list(found[1:]) for r, found in kept.items()}
        spent = [self.gradients, self.products, self.tried, self.in_vain, self.full_steps]
        return arrays, {"found": numbers, "spent": spent}

    @classmethod
    def restored(
        cls, arrays: dict[str, np.ndarray], saved: dict[str, Any], like: Witness
    ) -> Attempts:
        """The saved attempts; LayoutError unless they are of a run with such witnesses."""
        if len(saved["spent"]) != SPENT:
            raise layout.LayoutError("what it says about the cost of polishing is something else")
        kinds = list(layout.fields_of(Polished, Polished._fields).values())[1:]
        known = {str(r) for r in range(CANDIDATE, len(like.x))}
        found = {}
        for r, numbers in saved["found"].items():
            if r not in known or len(numbers) != len(kinds):
                raise layout.LayoutError("what it says about polishing is about another run")
            for number, kind in zip(numbers, kinds, strict=True):
                layout.check(number, kind, "polishing")
            parts = [
                layout.array(arrays, f"polished/{r}/{i}", "f", np.shape(part)[1:])
                for i, part in enumerate(like)
            ]
            found[int(r)] = Polished(Witness(*parts), *numbers)
        candidate = found.pop(CANDIDATE, None)
        gradients, products, tried, in_vain, full_steps = saved["spent"]
        return cls(
            found, candidate, gradients=gradients, products=products, tried=tried,
            in_vain=in_vain, full_steps=full_steps,
        )  # fmt: skip


LAYOUT = {"found": layout.Each(list, named=True), "spent": layout.Each(int)}


@dataclasses.dataclass(frozen=True)
class Polishing:
    """How the points of a run are polished: within a budget, and as long as it pays."""

    oracles: Oracles
    tol: float
    budget: Budget
    affordable: float  # gradients that may be spent in vain

    @classmethod
    def of(
        cls, oracles: Oracles, tol: float, budget: Budget | None = None, planned: float = np.inf
    ) -> Polishing:
        """`planned` are the gradients that the run's steps take, all of them."""
        share = SAMPLED_SHARE if oracles.samples_constraints else SHARE
        limited = max(share * planned, LITTLE / oracles.structure.size)
        # Newton's method always arrives on a convex problem.
        affordable = np.inf if oracles.relaxable else limited
        return cls(oracles, tol, budget or Budget(), affordable)

    @functools.cached_property
    def confined(self) -> bool:
        """Whether steps of `newton.confined` lead to a solution: a convex loss, all on the host."""
        loss = self.oracles.loss
        if not (isinstance(loss, Loss) and loss.convex and self.oracles.samples_constraints):
            return False
        kkt = KKT.of(self.oracles, np.dtype(np.float64))
        return confines(kkt) and kkt.terms is not None and kkt.terms.others is None

    def compile(self, x: np.ndarray) -> None:
        """Before the clock starts: a program cannot be left half compiled when time is up."""
        with contextlib.suppress(UsedUp):  # by a signal
            oracles = self.oracles
            if oracles.concave is not None:  # which is polished in rounds without it
                oracles = oracles.linearised(np.zeros_like(x))
            compile_steps(relaxed(oracles, x), x, Budget(interrupt=self.budget.interrupt))

    def lacking(self, done: Attempts) -> str:
        """What the budget has too little of for an attempt; "" where there is room for one."""
        if self.budget.late:
            return "the time was used up"
        passes = FEWEST_PASSES * row_count(self.oracles)
        return "" if done.cost + passes <= self.budget.samples else "the gradients were used up"

    def attempt(
        self, done: Attempts, k: int, xs: np.ndarray, given_up: np.ndarray,
        observer: Observer | None = None, last: bool = False,
    ) -> Attempts:  # fmt: skip
        """Polish every replica that is neither given up nor polished already."""
        # Tried already, perhaps by the run that this one resumes?
        lacking = self.lacking(done)
        if (k == done.tried and not last) or lacking:
            return done._replace(ended=lacking) if last else done
        attempts, found = [], dict(done.found)
        patient = last or self.oracles.samples_constraints or k == 0
        budget = self.budget if last else self.budget.within(EARLY)
        for r in np.flatnonzero(~given_up).tolist():
            if r in found:
                continue
            polished = self._polish(
                done, self.oracles, xs[r], patient, observer, budget, replica=r, last=last,
                first=k == 0 and self.confined,
            )  # fmt: skip
            attempts.append(polished)
            done = done._replace(ended=polished.ended if last else polished.ended or done.ended)
            if polished.residual <= self.tol or (last and polished.improved):
                found[r] = polished
        done = self._counted(done, attempts, self.tol)._replace(found=found)
        # Stopped: it is tried again by the run that resumes this one.
        return done if self.budget.received else done._replace(tried=k)

    def all_found(self, done: Attempts, given_up: np.ndarray) -> bool:
        """Whether every replica that is not given up has led to a KKT point at tol."""
        return len(done.found) == int(np.sum(~given_up))

    def relaxed(
        self, done: Attempts, x: np.ndarray, observer: Observer | None = None, near: bool = False
    ) -> Attempts:
        """With the best critical point that answers without -g lead to.

        `near` says that x is the answer to a problem nearby: there, one of them is tried.
        """
        few, budget = row_count(self.oracles) * len(x) <= FEW_NUMBERS, self.budget.within(EARLY)

        def newton(oracles: Oracles, x: np.ndarray, tol: float | None = None) -> Polished:
            nonlocal done
            done, found = self._newton(done, oracles, x, observer, budget, tol)
            return found

        def endless(found: Polished) -> bool:  # on the ray of x: cheap, and `refined` tries others
            return leads_to_infinity(self.oracles, found.witness.x, found.witness.lam, self.tol)

        walk = Walk(self.oracles, self.tol, newton, endless)
        settled = walk.run(x) if few and not near else walk.one(x)
        return self._considered(done, walk.best)._replace(settled=settled and not near)

    def with_candidate(
        self, done: Attempts, x: np.ndarray, observer: Observer | None = None
    ) -> Attempts:
        """With the critical point that x is next to, if it is lower than those known."""
        done, answer = self._newton(done, self.oracles, x, observer, self.budget, patient=False)
        return self._considered(done, answer)

    def refined(self, done: Attempts, x: np.ndarray, observer: Observer | None = None) -> Attempts:
        """With candidates that only the answers found give a reason for: exchanges, and paths.

        Where F is lowest on the way to infinity, F does not say which answer is good: the one that
        a path from strong regularisation leads to is taken, or else the lowest with a minimum.
        """

        def newton(
            oracles: Oracles, x: np.ndarray, tol: float | None = None, patient: bool = True
        ) -> Polished:
            nonlocal done
            done, found = self._newton(done, oracles, x, observer, self.budget, tol, patient)
            return found

        def endless(found: Polished) -> bool:
            nonlocal done
            done, answer = self._endless(done, found)
            return answer

        def stopped() -> bool:
            return self.budget.received or bool(self.lacking(done))

        regularizer = self.oracles.regularizer
        if regularizer.counted(len(x)) and not stopped():
            best = done.certified(self.tol)[:1]
            start = best[0] if best else None
            exchanged = spliced(self.oracles, start, x, self.tol, newton, stopped)
            done = self._considered(done, exchanged)
        known = done.certified(self.tol)
        if stopped() or not known or not strengths_in(regularizer) or not endless(known[0]):
            return done
        candidates = [from_strong(self.oracles, x, newton), *known[1:]]
        proved = (c for c in candidates if c and c.residual <= self.tol)
        preferred = next((c for c in proved if not endless(c)), None)
        return done._replace(preferred=preferred)

    def _newton(
        self, done: Attempts, oracles: Oracles, x: np.ndarray, observer: Observer | None,
        budget: Budget, tol: float | None = None, patient: bool = True,
    ) -> tuple[Attempts, Polished]:  # fmt: skip
        """Polishing at the run's expense, for a candidate."""
        found = self._polish(done, oracles, x, patient, observer, budget, tol=tol)
        done = done._replace(ended=found.ended or done.ended)
        return self._counted(done, [found], tol or self.tol), found

    def _considered(self, done: Attempts, found: Polished | None) -> Attempts:
        """With another candidate, if it is a KKT point and the lowest so far."""
        if found is None or found.residual > self.tol:
            return done
        if done.candidate is None or found.value < done.candidate.value:
            return done._replace(candidate=found)
        return done

    def _endless(self, done: Attempts, found: Polished) -> tuple[Attempts, bool]:
        """Whether a point is on its way to infinity, as far as the budget allows to see."""
        x, q = found.witness.x, found.witness.lam
        meter = Meter(self.budget, before=done.cost, reserve=row_count(self.oracles))
        answer, bounded = False, done.bounded
        with contextlib.suppress(UsedUp):
            answer = leads_to_infinity(self.oracles, x, q, self.tol, meter)
            bounded = bounded if answer else x
        gradients, products = done.gradients + meter.gradients, done.products + meter.products
        return done._replace(gradients=gradients, products=products, bounded=bounded), answer

    def _polish(
        self, done: Attempts, oracles: Oracles, x: np.ndarray, patient: bool,
        observer: Observer | None, budget: Budget, replica: int = 0, last: bool = False,
        tol: float | None = None, first: bool = False,
    ) -> Polished:  # fmt: skip
        """One attempt, within what is affordable: half of that is kept for the last one.

        The other half is for the first where that leads on from afar, and else for all the others.
        """
        half = self.affordable / 2
        patience = half if last or first else max(half - done.in_vain, 0) / 2
        report = None if observer is None else lambda *seen: observer(replica, *seen)
        return polish(
            oracles, x, tol or self.tol, patient, budget.observed(report), patience, done.cost, last
        )

    def _counted(self, done: Attempts, attempts: list[Polished], tol: float) -> Attempts:
        """With what attempts have cost, side by side in as many replicas."""
        gradients = max((a.gradients for a in attempts), default=0)
        products = max((a.products for a in attempts), default=0)
        vain = any(a.residual > tol for a in attempts)
        return done._replace(
            gradients=done.gradients + gradients,
            products=done.products + products,
            in_vain=done.in_vain + (gradients + PRODUCT * products if vain else 0),
        )
