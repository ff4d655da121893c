"""run: chunks of steps until something ends them, and what is done between two chunks.

Between chunks, on the host: what the run has reached is recorded and shown, "auto" polishes once F
settles, a method that converges to KKT points itself is asked for its certificate, a checkpoint is
written. Each of these takes the state and hands back the next one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from mossp._base import crew
from mossp._base.archive import CheckpointError
from mossp._base.budget import Clock
from mossp._base.programs import compiled as with_programs
from mossp._base.types import AnyVector, Vector
from mossp.certificates.certificate import certificate
from mossp.certificates.feasibility import on_host
from mossp.certificates.stationarity import shortest_certificate
from mossp.engine.loop import FIRST_CHUNK, Chunk
from mossp.engine.steps import Observation
from mossp.newton.attempts import Observer
from mossp.newton.descent import evaluated
from mossp.oracles import Oracles
from mossp.solving.observer import Progress
from mossp.solving.prepare import Prepared
from mossp.solving.short import short_way
from mossp.solving.state import Ended, State, save

CHECKPOINT_SECONDS = 10.0
KINK = 1e-6  # of x: the slopes of g differ by much more than this part of them only across a kink
LEVEL = 0.02  # the last change of F, relative to all of it


def run(p: Prepared, state: State, each: Callable[[State], None] = lambda state: None) -> State:
    """The state at the end of the steps, which says why they ended.

    `each` is called with every state that is recorded in the trace.
    """
    if p.arguments.polish and p.arguments.seconds < math.inf:
        with p.budget.clock.paused():
            p.polishing.compile(p.start)
    state = before_the_first_step(p, state)
    state = compiled(p, state)
    return iterated(p, state, each)


def before_the_first_step(p: Prepared, state: State) -> State:
    """What may make steps needless: a start that is a solution, a convex problem polished."""
    state = stopped(p, state)  # perhaps while the first programs were compiled
    if state.ended is None:
        state = solved_at_start(p, state)
    if state.ended is None:
        state = polished_early(p, state)
    if relaxes(p, state) and state.ended in (None, Ended.START):
        relaxed = p.polishing.relaxed(
            state.attempts, p.start, observed(p, state), near=p.arguments.warm
        )
        state = settled(p, state._replace(attempts=relaxed))
    return stopped(p, short_way(p, stopped(p, state)))


def compiled(p: Prepared, state: State) -> State:
    """With all programs that steps need; their compilation is not on the clock."""
    spent = p.budget.seconds()
    with p.budget.clock.paused():
        going = state.k < p.arguments.steps and state.ended is None
        if going and p.watch.first.finite.all():
            state = state._replace(position=p.loop.compile(state.position))
    took = crew.of_first(time.perf_counter() - p.began) - (spent - p.seconds_before)
    return state._replace(compile_seconds=took)


def iterated(p: Prepared, state: State, each: Callable[[State], None]) -> State:
    a, longest, saved = p.arguments, FIRST_CHUNK, Clock()
    if state.k == 0 and not state.record.history:
        seen = p.watch.first if state.position.carries else p.at_start
        state = recorded(p, state, seen, [], seconds=0.0)
    if state.ended is None:
        state = certified(p, state)
    state = ended(p, stopped(p, state))
    while state.ended is None:
        advanced = p.loop.advance(state.position, longest)
        longest, state = advanced.longest, state._replace(position=advanced.position)
        if advanced.ended:
            state = state.noted("The stream has ended.")._replace(ended=Ended.STREAM)
        seen = p.watch.observe(state.position)
        before = stopped(p, troubled(p, state, seen, advanced.chunks))
        state = observed_between(p, before, seen)
        if len(state.record.history) > len(before.record.history):
            each(state)
        state = ended(p, stopped(p, state))
        if a.checkpoint is not None and (
            crew.of_first(saved.seconds()) > CHECKPOINT_SECONDS
            or state.ended not in (None, Ended.LOST)
        ):
            saved_state(p, before if only_interrupted(p, state) else state)
            saved.restart()
    return state


def troubled(p: Prepared, state: State, seen: Observation, chunks: list[Chunk]) -> State:
    return state._replace(record=p.watch.troubled(state.record, state.position, seen, chunks))


def only_interrupted(p: Prepared, state: State) -> bool:
    """Whether an unbroken run would not have looked here: what was recorded is then not saved."""
    due = p.loop.events.traced(state.k) or state.record.given_up.all()
    return state.ended is Ended.SIGNAL and not due


def observed_between(p: Prepared, state: State, seen: Observation) -> State:
    """After a chunk: what it led to is recorded, shown, and perhaps polished."""
    over = p.budget.late or state.ended is not None or state.record.given_up.all()
    if not (p.loop.events.traced(state.k) or over):
        return state
    gradients, seconds = p.gradients(state), p.budget.seconds()
    record = p.watch.recorded(state.record, state.position, seen, gradients, seconds)
    state = state._replace(record=record)
    F, violation = float(np.min(seen.objective)), float(np.min(seen.violation))
    p.observer.show(state.k, F, violation)
    if stopped_by_callback(p, state, seen):
        state = state._replace(ended=state.ended or Ended.CALLBACK)
    before = state.ended
    state = polished_early(p, state)
    if state.ended is before:
        state = certified(p, state)
    return state


def recorded(
    p: Prepared, state: State, seen: Observation, chunks: list[Chunk], seconds: float
) -> State:
    state = troubled(p, state, seen, chunks)
    record = p.watch.recorded(state.record, state.position, seen, p.gradients(state), seconds)
    return state._replace(record=record)


# Why it ends ------------------------------------------------------------------------------


def stopped(p: Prepared, state: State) -> State:
    """Whether a signal came, or a callback asked for an end: these come before other reasons."""
    if p.budget.interrupt.received:
        return state._replace(ended=Ended.SIGNAL)
    if p.budget.interrupt.stopped and (state.ended is None or state.ended.status is None):
        return state._replace(ended=Ended.CALLBACK)
    return state


def ended(p: Prepared, state: State) -> State:
    """Whether nothing is left to do, or nothing to do it with."""
    if state.ended is not None:
        return state
    if state.record.given_up.all():
        return state._replace(ended=Ended.LOST)
    if p.budget.late:
        return state._replace(ended=Ended.TIME)
    if state.k >= p.arguments.steps:
        return state._replace(ended=Ended.STEPS)
    return state


def certified(p: Prepared, state: State) -> State:
    """Whether an exact method has arrived: every replica's last step proves it at tol.

    This is a pass over all of the data: where a run is polished early, that comes first.
    """
    a, k = p.arguments, state.k
    if not a.method.exact or not k or state.record.lost.any() or a.output == "random":
        return state
    if a.polish and a.chosen and state.attempts.tried != k:
        return state
    judged = p.watch.judged(state.position, a.drawn)
    each = (certificate(p.oracles, r, None, "witness") for r in judged)
    if not all(one.is_kkt(a.tol, relative=True) for one in each):
        return state
    proved = np.array([r.objective for r in judged], np.float64)
    return state._replace(proved=proved, ended=state.ended or Ended.SOLVED)


def solved_at_start(p: Prepared, state: State) -> State:
    """Whether the start is a KKT point at tol already: an earlier answer, as a rule."""
    a, x = p.arguments, p.start
    ends_early = a.exact and a.output != "random" and a.starts == 1 and not p.shared
    if state.k or not ends_early or not p.at_start.finite.all():
        return state
    if p.oracles.convex and p.kkt.linear is not None:  # without the parts of a certificate
        at = p.kkt.evaluate(p.start, np.zeros(0), 1.0)
        if not p.kkt.relative(at, at.W + p.kkt.nearest_subgradient(at)) <= a.tol:
            return state
    on_host = p.kkt.linear is not None and p.oracles.concave is None  # without a program
    if on_host and not proved_by(p, x, evaluated(p.kkt, p.start).gradient):
        return state
    judged = p.watch.judged(state.position, a.drawn)
    if not proved_by(p, x, judged[0].gradient) or at_kink(p.oracles, p.start):
        return state
    proved = np.array([r.objective for r in judged], np.float64)
    state = state._replace(proved=proved, ended=Ended.START)
    return state.noted("The start is a solution already.")


def proved_by(p: Prepared, x: np.ndarray, gradient: AnyVector) -> bool:
    """Whether x is a KKT point at tol, with this gradient of f there."""
    found = shortest_certificate(p.oracles, x, np.asarray(gradient, x.dtype))
    return found.is_kkt(p.arguments.tol, relative=True)


def at_kink(oracles: Oracles, x: np.ndarray) -> bool:
    """Whether g has a kink at x: a critical point there may be a peak between two valleys."""
    regularizer = on_host(oracles)

    def subgradient_g(x: np.ndarray) -> np.ndarray:
        s_g = np.asarray(regularizer.subgradient_g(x))
        return s_g if oracles.concave is None else s_g + np.asarray(slope_of_g(oracles, x))

    size = KINK * max(float(np.abs(x).max()), np.finfo(x.dtype).tiny)
    aside = size * np.cos(np.arange(1, len(x) + 1) ** 2)
    here, there, back = (np.asarray(subgradient_g(point)) for point in (x, x + aside, x - aside))
    jump = max(np.abs(there - here).max(), np.abs(back - here).max())
    return bool(jump > np.sqrt(KINK) * max(float(np.abs(here).max()), float(np.abs(there).max())))


@with_programs
def slope_of_g(oracles: Oracles, x: Vector) -> Vector:
    return oracles.concave_slope(x)


# Polishing --------------------------------------------------------------------------------


def polished_early(p: Prepared, state: State) -> State:
    """Whether "auto" has arrived: tried where constants are measured again, once F settles.

    Newton's method would succeed sooner, but stops at the nearest critical point; the steps still
    pass by poor ones then. A convex problem has none, and is tried at once; so is one of
    predictions under constraints on their means, whose steps confine how far predictions move,
    and the answer to a problem nearby, as along a path, which is followed to the critical point
    next to it.
    """
    a, k, given_up = p.arguments, state.k, state.record.given_up
    if not (a.polish and a.chosen and k in p.loop.events.retune_at) or state.ended is not None:
        return state
    at_once = k == 0 and (p.oracles.convex or p.polishing.confined or a.warm)
    if not at_once and not state.record.levels_off(LEVEL):
        return state
    xs = p.watch.outputs(state.record, state.position, "last").x
    done = p.polishing.attempt(state.attempts, k, xs, given_up, observed(p, state))
    arrived = p.polishing.all_found(done, given_up)
    return state._replace(attempts=done, ended=Ended.SOLVED if arrived else None)


def relaxes(p: Prepared, state: State) -> bool:
    """Whether the answer without -g is a start worth trying beside x0."""
    a, oracles = p.arguments, p.oracles
    convex_but_for_g = oracles.relaxable and oracles.subtracts
    return a.polish and bool(a.chosen) and convex_but_for_g and not state.k


def settled(p: Prepared, state: State) -> State:
    """Whether steps with noise would only be one more start beside those that were walked through.

    Not where an x0 other than 0 was given, whose own neighbourhood steps then look at, nor where
    several runs or a number of steps were asked for.
    """
    a, best = p.arguments, state.attempts.candidate
    alone = a.replicas == 1 and a.output == "last" and not a.limited and not p.start.any()
    if best is None or state.ended is not None or not (alone and state.attempts.settled):
        return state
    found = state.attempts._replace(found={0: best}, candidate=None)
    return state._replace(attempts=found, ended=Ended.SOLVED)


# Those who look on ------------------------------------------------------------------------


def stopped_by_callback(p: Prepared, state: State, seen: Observation) -> bool:
    if p.arguments.callback is None:
        return False
    xs = p.loop.points(state.position)
    return asks_for_end(p, state, xs, seen.objective, seen.violation, "steps")


def observed(p: Prepared, state: State) -> Observer:
    """Who is told what polishing has reached, from this state on."""

    def observe(r: int, x: np.ndarray, F: float, violation: float, residual: float) -> bool:
        if not p.observer.due:
            return False
        p.observer.show(state.k, F, violation, f"polishing, residual {residual:.0e}")
        begun = bool(state.position.carries)
        seen = p.watch.observe(state.position) if begun else p.at_start
        seen, xs = Observation(*map(np.array, seen)), np.array(p.loop.points(state.position))
        for values, value in ((xs, x), (seen.objective, F), (seen.violation, violation)):
            values[r] = value
        return asks_for_end(p, state, xs, seen.objective, seen.violation, "polishing")

    return observe


def asks_for_end(
    p: Prepared, state: State, xs: np.ndarray, F: np.ndarray, violation: np.ndarray, doing: str
) -> bool:
    gradients, seconds = p.gradients(state), p.budget.seconds()
    return p.observer.asks_for_end(Progress(state.k, gradients, seconds, xs, F, violation, doing))


def saved_state(p: Prepared, state: State) -> None:
    assert p.arguments.checkpoint is not None
    seconds = p.budget.seconds()
    if not crew.is_first():
        return
    try:
        save(p.arguments.checkpoint, p.mark, state, p.loop, seconds)
    except CheckpointError as error:
        error.state = state
        raise
