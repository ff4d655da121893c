"""finish: from the end of a run to a result, by polishing and a verdict on all of the data."""

from __future__ import annotations

import numpy as np

from mossp._base.keys import Purpose, generator
from mossp._base.types import PyTree
from mossp.certificates.certificate import FRESH_SAMPLES, Witness
from mossp.data import count_draws
from mossp.result import Result, Status
from mossp.solving.inside import inside
from mossp.solving.observer import each_replica
from mossp.solving.prepare import Prepared
from mossp.solving.run import observed, stopped
from mossp.solving.state import Ended, State
from mossp.solving.verdict import Ending, judge

# Samples that may judge a noisy answer, for each that the run took: the answer averages over many
# steps, and is more accurate than a gradient that averages over as many samples at one point.
JUDGING = 8


def finish(p: Prepared, state: State) -> Result:
    """The best replica's point, judged from scratch, and what the run has cost."""
    a, watch = p.arguments, p.watch
    outputs = watch.outputs(state.record, state.position, a.output)
    replaced = np.zeros(a.replicas, bool)
    if a.polish:
        state, replaced = polished(p, state, outputs)
    looked_at = inside(p, state, outputs)
    spent = p.budget.seconds()
    # Newton's method may leave for infinity, too, where any point is nearly critical.
    far = np.linalg.norm(outputs.x, axis=1) > watch.far_away
    record, early = state.record, None if state.ended is None else state.ended.status
    random = watch.outputs(record, state.position, "random") if state.k else None
    ending = Ending(
        outputs, random, record.lost & ~replaced,
        (record.diverged & ~replaced) | far, early, [*state.notes, *record.notes], start=p.start,
        polished=a.polish and not p.budget.late, bounded=state.attempts.bounded,
    )  # fmt: skip
    verdict = judge(
        p.oracles, ending, tol=a.tol, batch_size=a.drawn, fresh=fresh_draws(p),
        more=lambda number: fresh_draws(p, number), most=samples_to_judge(p, state),
        pass_over=p.kkt.afresh,
    )  # fmt: skip
    status, success, message = verdict.status, verdict.success, verdict.message
    if not same_functions(p):
        status, success = Status.CHANGED, False
        message = f"{status.value} {message}"
    # A signal that came too late for the run must still end what the run is a part of.
    status = Status.INTERRUPTED if p.budget.interrupt.received else status
    begun = bool(state.position.carries)
    tunings = sum(k < state.k or (k == 0 and begun) for k in p.loop.events.retune_at)
    products = p.hessian_products + tunings * p.products_per_tuning + state.attempts.products
    return Result(
        x=p.structure.unravel(np.asarray(outputs.x[verdict.best], np.float64)),
        fun=float(verdict.funs[verdict.best]),
        violation=float(verdict.violations[verdict.best]),
        success=success,
        status=status,
        message=message,
        certificate=verdict.certificate,
        # Of replicas that share their start.
        expectation=verdict.expectation if a.starts == 1 else None,
        steps=state.k + state.attempts.full_steps,
        gradients=p.gradients(state),
        values=p.values(state) + looked_at,
        hessian_products=products,
        seconds=spent,
        compile_seconds=state.compile_seconds,
        trace=record.trace(p.traced_rows(state)),
        xs=each_replica(p.structure, outputs.x),
        funs=verdict.funs,
        violations=verdict.violations,
        tol=a.tol,
        settings=p.settings(),
    )


def polished(p: Prepared, state: State, outputs: Witness) -> tuple[State, np.ndarray]:
    """(the state after the last attempt, which of the outputs were replaced by it)."""
    at_start, given_up = state.ended is Ended.START, state.record.given_up
    if state.ended is None or state.ended.status is None:
        done = state.attempts
        if not at_start:
            done = p.polishing.attempt(
                done, state.k, outputs.x, given_up, observed(p, state), last=True
            )
        if p.arguments.chosen:
            done = p.polishing.refined(done, p.start, observed(p, state))
        state = stopped(p, state._replace(attempts=done))
    values = np.where(given_up, np.inf, state.proved)
    replaced = state.attempts.into(outputs, values, p.arguments.tol)
    if replaced.any() or not at_start:
        state = state.noted(state.attempts.message)
    return state, replaced


def same_functions(p: Prepared) -> bool:
    """Whether the user's functions still compute what they did when the run began."""
    try:
        now = p.problem.oracles(p.arguments.x0, p.arguments.dtype)
    except (TypeError, ValueError):  # they do not even compute any more
        return False
    return p.oracles.same_functions(now)


def samples_to_judge(p: Prepared, state: State) -> int:
    """Where they are needed to decide; only those drawn anyway where the run's time is up."""
    early = state.ended is not None and state.ended.status is not None
    late = early or p.budget.late
    return 0 if late else JUDGING * max(p.gradients(state), FRESH_SAMPLES)


def fresh_draws(p: Prepared, number: int = 0) -> PyTree:
    """Samples that no step has seen, for a certificate without full gradients."""
    a = p.arguments
    if p.oracles.finite_sum:
        return None
    source, count = p.problem.steps(a.dtype), max(2, FRESH_SAMPLES // a.drawn)
    rng = generator(a.seed, Purpose.CERTIFICATE, number=number)
    draws = source.draw(rng, min(count, source.most_held(a.drawn) or count), a.drawn)
    return None if draws is None or count_draws(draws) < 2 else draws
