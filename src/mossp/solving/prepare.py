"""prepare: from checked arguments to all that a run needs, and the state that it begins with."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import crew
from mossp._base.archive import CheckpointError
from mossp._base.budget import Budget, Clock
from mossp._base.device import on_device
from mossp._base.interrupt import Interrupt
from mossp._base.keys import Purpose, generator
from mossp._base.programs import compiled as with_programs
from mossp._base.progress import Bar
from mossp._base.structure import Structure, with_dtype
from mossp._base.types import PyTree
from mossp.certificates.feasibility import different_starts, phase_one, violation
from mossp.data import Source, filled
from mossp.engine import steps as compiled
from mossp.engine.checkpoint import Mark
from mossp.engine.draws import Draws
from mossp.engine.fingerprint import fingerprint
from mossp.engine.loop import Events, Loop, Position, Shard, shard_sizes
from mossp.engine.steps import Carry, Context, Observation
from mossp.engine.watch import Record, Watch
from mossp.measuring import step_sizes
from mossp.measuring.estimate import estimate_at, hessian_products, sample_draws
from mossp.methods import Method
from mossp.methods.penalty import NoPenalty
from mossp.newton.attempts import Attempts, Polishing
from mossp.newton.descent import evaluated
from mossp.newton.residual import KKT
from mossp.oracles import Oracles
from mossp.problem import POOL, Problem
from mossp.schedules import Auto, Constant, Rule, Schedule, with_alpha
from mossp.solving.arguments import (
    MOST_STEPS,
    Arguments,
    cost,
    initial_batches,
    per_step_of,
    steps_per_anchor,
)
from mossp.solving.observer import Observer
from mossp.solving.state import State, restore

Variants = list[tuple[Method, Rule]]

TRACE_ROWS = 2048  # rows on which the trace's objective is evaluated when there are more
TRACE_BATCHES = 4  # the same for batches that come in one order
BEFORE_POLISHING = 1e-2  # the tolerance that steps with a penalty aim at
NEARER = 0.5  # of the way to where phase one leads, while the loss is not finite there


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A solve before its first step. Nothing in it changes but the clock and who is told."""

    problem: Problem
    arguments: Arguments
    oracles: Oracles
    structure: Structure
    start: np.ndarray  # x0 as a vector, or the feasible point that phase one found
    loop: Loop  # shards with their draws, events, tuner
    watch: Watch
    kkt: KKT  # how points are evaluated with all of the data
    polishing: Polishing
    budget: Budget  # with the clock
    observer: Observer
    initial: State  # fresh, or that of a checkpoint
    shared: bool  # whether all replicas see the same mini-batches, to be compared
    form: str  # how the method is applied where the problem is not of its article's class
    initial_gradients: int  # samples behind d_0
    hessian_products: int  # samples behind those of the preparation
    products_per_tuning: int
    trace_rows: int  # samples on which the trace's objective is evaluated
    mark: Mark  # the fingerprints of problem and settings; empty without a checkpoint
    began: float
    seconds_before: float  # of the run that this one resumes

    def gradients(self, state: State) -> int:
        """Samples differentiated so far, per replica."""
        a = self.arguments
        per_step = per_step_of(self.oracles, a.method, a.batch_size)
        full = state.position.anchors * self.oracles.rows_per_pass
        first = self.initial_gradients if state.position.carries else 0
        steps = first + state.k * per_step
        return steps + full + state.attempts.gradients

    @functools.cached_property
    def at_start(self) -> Observation:
        """What is seen of the start with all of the data, by what polishing needs in any case."""
        points, kkt = self.initial.position.points, self.kkt
        if points is None or self.initial.k:
            return self.watch.first
        same = self.arguments.starts == 1
        found = [evaluated(kkt, x) for x in (points[:1] if same else points)]
        each = found * len(points) if same else found
        zero = np.zeros(len(points))
        F, violation = (np.array([getattr(at, of) for at in each]) for of in ("F", "violation"))
        finite = np.array([at.finite for at in each])
        return Observation(F, violation, zero, np.linalg.norm(points, axis=1), finite)

    def traced_rows(self, state: State) -> int:
        """Samples on which the objective of the trace was evaluated."""
        lazy = self.initial.position.points is not None
        return self.problem.samples or 1 if lazy and not state.k else self.trace_rows

    def values(self, state: State) -> int:
        """Samples at which steps evaluated constraints without differentiating them."""
        a, source = self.arguments, self.problem.steps(self.arguments.dtype)
        if not self.oracles.samples_constraints:
            return 0
        own = [self.oracles.source_of(k).rows or 0 for k in self.oracles.terms.numbers]
        if a.method.momentum.full:
            return state.k * sum(own)
        each = a.method.momentum.gradients * source.values_per_step(a.drawn)
        return state.k * each + state.position.anchors * sum(own)

    def settings(self) -> dict[str, Any]:
        a = self.arguments
        return {
            "method": a.name, "form": self.form, "schedule": type(a.rule).__name__,
            "steps": a.steps, "batch_size": a.batch_size, "replicas": a.replicas, "seed": a.seed,
            "starts": a.starts, "polish": a.polish, "output": a.output, "dtype": str(a.dtype),
            "samples": self.problem.samples,
            "variables": self.structure.size, "constraints": self.oracles.m,
            "regularizer": type(self.problem.regularizer).__name__,
        }  # fmt: skip


def prepare(
    problem: Problem, arguments: Arguments, *, interrupt: Interrupt | None = None,
    callers_x64: bool = False, variants: Variants | None = None,
) -> Prepared:  # fmt: skip
    """Make all that a run needs.

    Parameters
    ----------
    interrupt
        Notes signals, if it is active.
    callers_x64
        The caller's own precision, in which the callback is called.
    variants
        A method and a rule per replica, of one structure, in place of the arguments' own; all
        replicas then see the same mini-batches, so that they can be compared.
    """
    began = time.perf_counter()
    a, oracles, interrupt = arguments, arguments.oracles, interrupt or Interrupt()
    structure, kkt = Structure.of(a.x0), KKT.of(oracles, a.dtype)
    # Nothing writes into a start: a vector is not copied, for it may be long.
    as_given = structure.is_vector and a.x0.dtype == a.dtype
    given = a.x0 if as_given else structure.ravel(a.x0, a.dtype)
    notes: list[str] = []
    if a.steps_as_chosen and not a.first:
        notes.append(f"Chosen: {a.steps_as_chosen}.")
    for said in problem.said:
        notes.append(f"Rows: {said}.")
    form = a.method.form(oracles)
    if form:
        notes.append(f"{a.name} was run {form}.")
    start = feasible_start(a, given, notes) if oracles.m else given
    draws = sample_draws(problem, a.drawn, a.seed, a.dtype)
    constants, products = None, 0
    if not isinstance(a.rule, (Auto, Constant)):
        constants = estimate_at(oracles, start, draws, a.drawn)
        products = hessian_products(draws, a.drawn)
    each = [setting(a, *variant, constants) for variant in variants or [(a.method, a.rule)]]
    extra = initial_batches(a.rule, a.method, a.steps, a.batch_size)
    loop, position = prepare_loop(
        problem, a, start, each, extra, draws, shared=variants is not None
    )
    representative, row_count = trace_rows(problem, a)
    watch = Watch(
        oracles, loop, representative, start, given, position,
        keeps_best=a.output == "best", tol=a.tol,
    )  # fmt: skip
    fresh = State(
        position, Record.empty(a.replicas), Attempts(), np.full(a.replicas, np.inf), tuple(notes)
    )
    # A concave part is differentiated over all rows once, before the first step.
    whole = POOL if not oracles.finite_sum else oracles.rows_per_pass
    first = extra * a.batch_size + (whole if oracles.concave is not None else 0)
    planned = cost(problem, oracles, a.method, a.rule, a.steps, a.batch_size)
    per_tuning = hessian_products(draws, a.drawn)
    if a.method.momentum.full:
        per_tuning = hessian_products(None, 1) * a.batch_size
    observer = Observer(
        Bar(a.steps, a.progress and crew.is_first(), "step"), a.callback, structure, callers_x64
    )

    def assembled(initial: State, seconds: float, mark: Mark) -> Prepared:
        budget = Budget(Clock(seconds), interrupt, a.seconds, a.gradients - planned)
        return Prepared(
            problem, a, oracles, structure, start, loop, watch, kkt,
            Polishing.of(oracles, a.tol, budget, planned), budget, observer, initial,
            shared=variants is not None, form=form, initial_gradients=first,
            hessian_products=products, products_per_tuning=per_tuning, trace_rows=row_count,
            mark=mark, began=began, seconds_before=seconds,
        )  # fmt: skip

    prepared = assembled(fresh, 0.0, Mark())
    if a.checkpoint is None:
        return prepared
    mark = fingerprint_of(prepared)  # of the functions as they are when the run begins
    saved = restore(a.checkpoint, mark, a.resume == "force", fresh, loop) if a.resume else None
    if not crew.all_same(-1 if saved is None else saved[0].k):
        raise CheckpointError(
            f"The processes of this run do not see the same checkpoint {a.checkpoint}: keep it in "
            "a folder that all of them share."
        )
    return assembled(*(saved or (fresh, 0.0)), mark)


def fingerprint_of(prepared: Prepared) -> Mark:
    p, a = prepared.problem, prepared.arguments
    parts = [p.loss, p.equality, p.inequality, p.regularizer, p.data, a.method, a.rule]
    parts += [] if p.concave is None else [p.concave]
    settings = prepared.settings()
    whole = fingerprint([*parts, settings, a.tol, prepared.start])
    # A rule that plans for K steps in advance would have planned otherwise for more.
    planned = a.rule.needs_K and not a.rule.tuned
    del settings["steps"]
    endless = whole if planned else fingerprint([*parts, settings, a.tol, prepared.start])
    return Mark(whole, endless)


def prepare_loop(
    problem: Problem, a: Arguments, start: np.ndarray, settings: list[tuple[Method, Schedule]],
    extra: int, constants_draws: PyTree, shared: bool,
) -> tuple[Loop, Position]:  # fmt: skip
    """The loop and where it begins; replicas are shared out over the cores."""
    oracles, momentum = a.oracles, a.method.momentum
    source, rows = problem.source(a.dtype), problem.steps(a.dtype)
    every = np.broadcast_to(start, (a.replicas, len(start)))
    if a.starts > 1:
        every = different_starts(oracles, start, a.starts, 1e-8, a.seed).astype(a.dtype)
    context = Context(oracles, np.asarray(1 / (1 + extra), a.dtype))
    shards, first = [], 0
    for size in shard_sizes(a.replicas, one_reader=rows.sequential or oracles.mesh is not None):
        draws = Draws(rows, a.seed, first, size, a.drawn, a.dtype, shared)
        shards.append(Shard(context, draws, a.drawn))
        first += size

    def start_of(number: int, points: np.ndarray) -> Carry:
        draws = shards[number].draws
        replicas = range(draws.first, draws.first + draws.replicas)
        # The last shard may hold replicas that do not count: any setting will do for them.
        each = (settings[min(r, len(settings) - 1)] for r in replicas)
        chosen = [with_dtype(setting, a.dtype, real=True) for setting in each]
        method, schedule = jax.tree.map(stacked, *chosen)
        d0 = first_estimate(a, source, extra, draws, points)
        return compiled.start(context, method, schedule, on_device(points), d0)

    epoch = steps_per_anchor(problem, a.method, a.batch_size) if momentum.anchored else 0
    tuned = a.rule.tuned and not a.method.parameter_free
    events = Events(
        K=a.steps,
        trace_every=max(1, min(a.steps, MOST_STEPS) // a.trace),
        retune_at=step_sizes.retune_steps(a.steps, epoch) if tuned else (),
        anchor_every=epoch,
    )
    tuner = tuner_of(a, constants_draws) if tuned and a.steps else None
    loop = Loop(shards, a.replicas, events, tuner, start_of)
    position = Position(0, points=np.asarray(every, a.dtype))
    # What may end before the first step need not be ready for it; a clock must not wait for that.
    waits = a.polish and a.seconds == math.inf
    return loop, position if waits else loop.begun(position)


def tuner_of(a: Arguments, draws: PyTree) -> step_sizes.Tuner:
    """What it takes to measure rho and mu again as the run goes on."""
    # What polishing is to end, a penalty need not reach by itself.
    aim = a.tol if a.oracles.concave is None or not a.polish else max(a.tol, BEFORE_POLISHING)
    return step_sizes.Tuner(
        draws=draws,
        K=np.asarray(a.steps, a.dtype),
        target=np.asarray(step_sizes.violation_target(aim, a.steps), a.dtype),
        arrived=np.asarray(aim / 2, a.dtype),
        k=np.asarray(0, np.int32),
        shorten=np.asarray(getattr(a.rule, "shorten", 1.0), a.dtype),
    )


def setting(a: Arguments, method: Method, rule: Rule, constants: Any) -> tuple[Method, Schedule]:
    """What one replica runs with."""
    momentum = rule.estimator(method.momentum, constants)
    method = eqx.tree_at(lambda m: m.momentum, method, momentum)
    schedule = with_alpha(rule.schedule(momentum, max(a.steps, 1), constants), momentum)
    if rule.relative and not rule.tuned:
        L = rule.smoothness(momentum, constants)
        unpenalised = isinstance(method.penalty, NoPenalty)  # none shortens the step
        stable = 1 / L if unpenalised else schedule.mu
        schedule = schedule.sized(*method.sizes(L, stable))
    return method, schedule


def feasible_start(a: Arguments, given: np.ndarray, notes: list[str]) -> np.ndarray:
    """Phase one, where the start is not feasible enough for the schedule; may add a note."""
    enough = a.rule.feasible_enough(a.method.momentum, a.steps)
    if violation(a.oracles, given) <= enough:
        return given
    aim = min(enough, 1e-8) if a.rule.tuned else enough
    found = phase_one(a.oracles, given, aim, a.seed)
    if not found.finite:
        return given
    if found.violation > enough:
        notes.append(f"Phase one found no feasible start (||c|| = {found.violation:.3g} at best).")
    return within_domain(a, given, found.x, notes)


def within_domain(a: Arguments, given: np.ndarray, x: np.ndarray, notes: list[str]) -> np.ndarray:
    """x, or the point nearest to it on the way from x0 at which the loss is finite."""
    part = 1.0
    while part > NEARER**20:
        point = (given + part * (x - given)).astype(a.dtype)
        point = x.astype(a.dtype) if part == 1 else point
        if not a.oracles.finite_sum or np.isfinite(value_at(a, point)):
            if part < 1:
                notes.append("The loss is not finite at the feasible point next to x0.")
            return point
        part *= NEARER
    return x.astype(a.dtype)


def value_at(a: Arguments, point: np.ndarray) -> float:
    """F, by what will be needed in any case."""
    if not a.polish:
        return compiled.objective(a.oracles, point)
    return evaluated(KKT.of(a.oracles, a.dtype), point).F


def first_estimate(
    a: Arguments, source: Source, extra: int, draws: Draws, points: np.ndarray
) -> jax.Array:
    """d_0 of these replicas. The number of draws is rounded up, so that their shape stays."""
    room = max(8, 1 << max(extra - 1, 0).bit_length())
    if source.sequential:
        rng = generator(a.seed, Purpose.INITIAL)
        drawn = source.draw(rng, extra, a.drawn)
        drawn = source.sample(rng, 1, a.drawn) if drawn is None else drawn
        each = [filled(drawn, room)]
    else:
        each = [
            source.draw(generator(a.seed, Purpose.INITIAL, r), room, a.drawn)
            for r in ([0] if draws.shared else draws.numbers)
        ]
    same = draws.shared and a.starts == 1
    each = each * draws.replicas if draws.shared else each
    found = [
        compiled.first_estimate(
            a.oracles, on_device(point), mine, extra, batch_size=a.drawn,
            full=a.method.momentum.full,
        )
        for point, mine in zip(points[:1] if same else points, each, strict=False)
    ]  # fmt: skip
    return stacked(*(found * draws.replicas if same else found))


def stacked(*arrays: Any) -> jax.Array:
    return on_device(np.stack([np.asarray(a) for a in arrays]))


def trace_rows(problem: Problem, a: Arguments) -> tuple[Callable[[], PyTree], int]:
    """(a batch that stands for the data, once it is asked for; its size).

    It is None, for N rows, where all of them are used.
    """
    source, rng = problem.source(a.dtype), generator(0, Purpose.TRACE)
    if source.sequential:  # before the first step is: these rows come first
        rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), *source.peek(TRACE_BATCHES))
        return lambda: rows, len(jax.tree.leaves(rows)[0])
    if not source.finite_sum:
        draw = jax.tree.map(lambda d: d[0], source.draw(rng, 1, TRACE_ROWS))
        return lambda: _sample(a.oracles, draw, TRACE_ROWS), TRACE_ROWS
    N = source.rows
    if N is None or N <= TRACE_ROWS:
        return lambda: None, N or 1
    if not source.reaches_rows:
        return lambda: source.some_rows(TRACE_ROWS), TRACE_ROWS
    places = np.sort(rng.choice(N, TRACE_ROWS, replace=False))
    return lambda: source.take_rows(places), TRACE_ROWS


@with_programs(static_argnums=2)
def _sample(oracles: Oracles, draw: PyTree, count: int) -> PyTree:
    return oracles.source.batch(draw, count)
