"""The short way: full gradients on the host, and polishing, before any step is compiled.

To compile the stochastic steps takes seconds. Where a hundred passes over the data take less, they
come first: steps with full gradients (`mossp.newton.descent`) from the start until F settles, then
Newton's method. Where that leads to a KKT point the run is over; where it does not, steps begin at
the start as if nothing had been before.

Full gradients follow the nearest valley, and noise would leave some of them: so an answer without
-g is a second start, and the lower of the two ends is taken. Where data are not so little that
steps are out of proportion, these follow unless both starts lead to the same end.
"""

from __future__ import annotations

import numpy as np

from mossp._base.types import PyTree
from mossp.engine.loop import Position
from mossp.engine.steps import Observation
from mossp.engine.watch import Record
from mossp.newton.attempts import Attempts
from mossp.newton.descent import LEVEL, MARKS, Descent
from mossp.newton.meter import Meter
from mossp.newton.relaxations import LIKELY
from mossp.newton.residual import KKT, row_count
from mossp.regularizers.combine import Relaxed
from mossp.solving.automatic import steps_are_dear
from mossp.solving.observer import Progress
from mossp.solving.prepare import Prepared
from mossp.solving.state import Ended, State

JUMP = 0.5  # of the largest slope of g: it changes by so much only from one piece to another
FEASIBLE = 1e-4  # the largest violation of a start: from others, steps with noise have more to do


def short_way(p: Prepared, state: State) -> State:
    """The state at the end of full steps, if these ended it; else as it was, but for the cost."""
    a = p.arguments
    if not a.first:
        return state
    if state.ended is not None:
        return state.noted(f"Chosen: {a.first}.")
    if state.k:  # of a run that is resumed
        return state.noted(f"Chosen: {a.first}, which did not end it; then {a.steps_as_chosen}.")
    here = p.at_start
    if here.finite.all() and here.violation.max() <= FEASIBLE:
        state = descended(p, state)
    if state.ended is not None or p.budget.received:
        return state.noted(f"Chosen: {a.first}.")
    then = ", which did not end it; then " if state.attempts.full_steps else "; then "
    return state.noted(f"Chosen: {a.first}{then}{a.steps_as_chosen}.")


def descended(p: Prepared, begin: State) -> State:
    """Full steps from the start, polished wherever F has settled."""
    done, x = begin.attempts, p.start
    reserve = row_count(p.oracles)
    meter = Meter(p.budget, before=done.cost, reserve=reserve)
    descent = Descent(p.kkt, meter, x)
    state, spent = recorded(p, begin, p.at_start, 0), done.gradients
    for mark in MARKS:
        goes_on = descent.go_on(mark)
        if not descent.steps:  # nearly critical already, or not where steps are defined
            break
        at = descent.at
        done = state.attempts._replace(
            gradients=spent + descent.meter.gradients, full_steps=descent.steps
        )
        point = np.asarray(at.x, x.dtype)[None]
        state = state._replace(attempts=done, position=Position(0, points=point))
        length, one = np.linalg.norm(point, axis=1), np.ones(1)
        seen = Observation(at.F * one, at.violation * one, 0 * one, length, one == 1)
        state = recorded(p, state, seen, descent.steps)
        p.observer.show(descent.steps, at.F, at.violation)
        if told_to_end(p, state, descent.steps, seen):
            return state
        if not goes_on or state.record.levels_off(LEVEL):
            before, first_mu = done.gradients, descent.first_mu
            del at
            if not goes_on:
                del descent  # several vectors, which may be long, while others are made
            done = p.polishing.attempt(done._replace(tried=-1), 0, point, np.zeros(1, bool))
            spent += done.gradients - before
            state = state._replace(attempts=done)
            if p.polishing.all_found(done, np.zeros(1, bool)):
                if goes_on:
                    del descent
                done = from_second_start(p, done, first_mu)
                if steps_are_dear(p.oracles) or done.candidate is None:
                    return state._replace(attempts=done, ended=Ended.SOLVED)
                # Two ends, and who knows how many others: the lower one competes with the run's.
                best = done.certified(p.arguments.tol)[0]
                state = state._replace(attempts=done._replace(found={}, candidate=best))
                break
        if not goes_on:
            break
    # As if nothing had been before, but for what it has cost.
    kept = state.attempts._replace(tried=-1, ended="")
    return begin._replace(attempts=kept, record=Record.empty(p.arguments.replicas))


def from_second_start(p: Prepared, done: Attempts, first_mu: float) -> Attempts:
    """With the critical point that full steps lead to from an answer without -g, if it is lower.

    A part of h alone has few critical points, and leaves more entries than h - g does.
    """
    answer = done.certified(p.arguments.tol)[0].witness.x
    kkt, x, reserve = p.kkt, p.start, row_count(p.oracles)

    def known(x: np.ndarray) -> bool:
        """Whether polishing would lead to the answer that there is."""
        return same_pieces(kkt, np.asarray(x, p.start.dtype), answer)

    relaxed = Relaxed(kkt.regularizer, np.asarray(LIKELY))
    for regularizer, stop in ((relaxed, lambda x: False), (kkt.regularizer, known)):
        meter = Meter(p.budget, before=done.cost, reserve=reserve)
        descent = Descent(kkt, meter, x, regularizer, first_mu)
        descent.settle(stop)
        done = done._replace(gradients=done.gradients + meter.gradients)
        x = np.asarray(descent.at.x, p.start.dtype)
        del descent  # before others are made
    if p.budget.received or known(x):
        return done
    return p.polishing.with_candidate(done, x)


def same_pieces(kkt: KKT, x: np.ndarray, y: np.ndarray) -> bool:
    """Whether x and y have their nonzeros in common, and the pieces of g that they are on."""
    one, other = (np.asarray(kkt.regularizer.subgradient_g(at)) for at in (x, y))
    jump = np.abs(one - other).max(initial=0.0) > JUMP * np.abs(other).max(initial=0.0)
    return np.array_equal(np.sign(x), np.sign(y)) and not jump


def recorded(p: Prepared, state: State, seen: Observation, k: int) -> State:
    """With one more row of the trace, for k full steps."""
    row: tuple[PyTree, ...] = (k, p.gradients(state), p.budget.seconds(), *seen[:3])
    record = state.record._replace(history=(*state.record.history, row))
    return state._replace(record=record)


def told_to_end(p: Prepared, state: State, k: int, seen: Observation) -> bool:
    """Whether the callback asks for an end, or a signal came; the caller looks for both."""
    if p.arguments.callback is not None:
        gradients, seconds = p.gradients(state), p.budget.seconds()
        xs = p.loop.points(state.position)
        progress = Progress(k, gradients, seconds, xs, seen.objective, seen.violation, "steps")
        if p.observer.asks_for_end(progress):
            p.budget.interrupt.stop()
    return p.budget.received
