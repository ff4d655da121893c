"""What "auto" does where its first choice fails: other ways, in turn, until one of them arrives.

    Newton     no steps at all: polishing from the feasible start, whose line search on the exact
               penalty F + nu |c|_1 stays where the functions are finite. For data that have an end
    shorter    the method that was chosen, with steps a sixteenth as long as those measured at the
               start: for functions that bend more on the way
    another    mossp-al for sqp-dc, and the other way round, with steps of that length

A way is a solve of its own, from the same x0, with what is left of the budget. A run that diverged
or met NaN is always followed by others; one that merely did not arrive, or at points that are not
feasible, only where no budget was given and the problem is small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mossp._base.printing import counted
from mossp.methods import SQPDC, Method, MoSSPAL
from mossp.oracles import Oracles
from mossp.result import Result, Status
from mossp.schedules import Auto
from mossp.solving.arguments import Arguments
from mossp.solving.automatic import MANY_CONSTRAINTS

SHORTEN = 1 / 16
LOOSE = 1e-2  # a certificate that speaks for a point, if not at tol
SMALL = 10**8  # samples times variables, in all steps of a run

FAILED = (Status.DIVERGED, Status.NONFINITE)
SHORT = (Status.BUDGET, Status.INFEASIBLE_STATIONARY)
ASKED = (Status.INTERRUPTED, Status.STOPPED)  # for an end: no other way is tried then


class Way(NamedTuple):
    name: str  # as a message says it
    arguments: Arguments


def best_way(arguments: Arguments, run: Callable[[Arguments], Result]) -> Result:
    """The first way where it succeeds, untouched; else the best of all."""
    oracles = arguments.oracles
    if oracles.large and arguments.chosen and arguments.polish and not arguments.limited:
        # Steps would have to be compiled besides, which takes longer than to solve the problem.
        newton = run(dataclasses.replace(arguments, steps=0))
        if newton.success or newton.status in ASKED:
            return newton
    best = first = run(arguments)
    if not worth_more(arguments, oracles, first):
        return first
    tried, name = [first], arguments.name
    for way in further(arguments, oracles, first):
        left = remaining(way.arguments, tried)
        if left is None:
            break
        result = run(left)
        tried.append(result)
        if better(result, best):
            best, name = result, way.name
        if best.success or result.status in ASKED or falls_for_ever(result):
            break
    return summed_up(arguments, first, best, name, tried)


def worth_more(a: Arguments, oracles: Oracles, first: Result) -> bool:
    """Whether other ways are tried after a first one that ended like this."""
    if not a.chosen or not a.rule.tuned or first.success:
        return False
    if first.status in FAILED:
        return not falls_for_ever(first)
    work = a.steps * a.batch_size * oracles.structure.size
    return first.status in SHORT and not a.limited and oracles.finite_sum and work <= SMALL


def falls_for_ever(result: Result) -> bool:
    """Whether Newton's method led from the start to where the loss does: others would, too."""
    return result.steps == 0 and no_minimiser(result)


def no_minimiser(result: Result) -> bool:
    """Whether a run ended on a ray to infinity, at a point that is critical at tol."""
    proved = result.certificate.is_kkt(result.tol, relative=True)
    return result.status is Status.DIVERGED and proved


def further(a: Arguments, oracles: Oracles, first: Result) -> Iterator[Way]:
    # The file is the first run's, and so is what comes before its steps.
    others = dataclasses.replace(a, checkpoint=None, first="")
    if a.polish:
        yield Way("Newton's method from the start", dataclasses.replace(others, steps=0))
    if first.status is Status.INFEASIBLE_STATIONARY:
        return  # no step length makes a constraint hold that has no solution nearby
    shorter = dataclasses.replace(others, rule=Auto(shorten=SHORTEN))
    method, name = other_method(a.method) if 0 < oracles.m <= MANY_CONSTRAINTS else (None, "")
    if method is not None:
        yield Way(name, dataclasses.replace(others, method=method, name=name))
    if first.status in FAILED:
        yield Way(f"{a.name} with shorter steps", shorter)


def other_method(method: Method) -> tuple[Method | None, str]:
    if isinstance(method, SQPDC):
        return MoSSPAL(momentum=method.momentum), "mossp-al"
    if isinstance(method, MoSSPAL):
        return SQPDC(momentum=method.momentum), "sqp-dc"
    return None, ""


def remaining(a: Arguments, tried: list[Result]) -> Arguments | None:
    """With what is left of the budget; None where that is not enough for another way."""
    seconds = a.seconds - sum(r.seconds for r in tried)
    gradients = a.gradients - sum(r.gradients + 2 * r.hessian_products for r in tried)
    if seconds <= 0 or gradients < a.gradients / 2:
        return None
    # Half of the budget bought the steps at most: half of them cost no more than what is left.
    steps = a.steps if gradients == a.gradients else a.steps // 2
    return dataclasses.replace(a, seconds=seconds, gradients=gradients, steps=steps)


def better(new: Result, old: Result) -> bool:
    """Whether the answer of another way takes the place of the best so far."""
    if new.success or old.success:
        return new.success and not old.success
    if new.status in FAILED or (no_minimiser(old) and new.fun >= old.fun):
        return False
    if min(new.violation, old.violation) > max(new.tol, LOOSE):
        return old.status not in FAILED and new.violation < old.violation
    proved = LOOSE if old.status in FAILED else min(old.certificate.worst_relative, LOOSE)
    return new.certificate.worst_relative < proved


def summed_up(a: Arguments, first: Result, best: Result, name: str, tried: list[Result]) -> Result:
    """The best result, with what all ways have cost, and which of them it is."""
    if len(tried) == 1:
        return first
    count = len(tried) - 1
    if best is first:
        note = f"{counted(count, 'other way')} led to nothing better."
    else:
        note = f"{a.name} ended {first.status.name} first: this is the answer of {name}."
    return with_costs(best, note, tried)


def with_costs(best: Result, note: str, tried: list[Result]) -> Result:
    """A result with what all runs have cost, and a note in its message."""
    return dataclasses.replace(
        best,
        message=f"{best.message} {note}",
        gradients=sum(r.gradients for r in tried),
        values=sum(r.values for r in tried),
        hessian_products=sum(r.hessian_products for r in tried),
        seconds=sum(r.seconds for r in tried),
        compile_seconds=sum(r.compile_seconds for r in tried),
    )
