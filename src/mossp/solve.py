"""The door: validate, find a feasible start, run, judge, hand back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp import resume as saved_run
from mossp import steps as compiled
from mossp import tuning
from mossp.arguments import (
    MOST_STEPS,
    Arguments,
    checked,
    cost,
    initial_batches,
    steps_per_anchor,
)
from mossp.budget import Budget
from mossp.certificate import FRESH_SAMPLES, Witness, certificate
from mossp.checkpoint import CheckpointError
from mossp.constants import estimate_at, hessian_products, sample_draws
from mossp.data import Finite, Sampler, Stream, map_rows
from mossp.draws import STREAM_BLOCK, Draws, stack
from mossp.feasibility import different_starts, on_host, phase_one, violation
from mossp.fingerprint import fingerprint
from mossp.interrupt import Interrupt
from mossp.keys import Purpose, generator, jax_keys
from mossp.loop import Events, Loop, Shard, shard_sizes
from mossp.means import check_mean
from mossp.methods import Method, within_reach
from mossp.outcome import Ending, judge
from mossp.polishing import Polishing
from mossp.problem import Oracles, Problem
from mossp.programs import compiled as with_programs
from mossp.progress import Bar
from mossp.result import Result, Status
from mossp.schedules import Auto, Constant, Rule, Schedule, with_alpha
from mossp.stationarity import exact_certificate
from mossp.steps import Carry, Context, Observation
from mossp.structure import Structure, with_dtype
from mossp.watch import Watch
from mossp.ways import best_way

PyTree = Any

TRACE_ROWS = 2048  # rows on which the trace's objective is evaluated when there are more
CHECKPOINT_SECONDS = 10.0
# Samples that may judge a noisy answer, for each that the run took: the answer averages over many
# steps, and is more accurate than a gradient that averages over as many samples at one point.
JUDGING = 8
KINK = 1e-6  # of x: the slopes of g differ by much more than this part of them only across a kink
SETTLING = 0.02  # the last change of F, relative to all of it
REPORT_SECONDS = 1.0  # between two reports of what polishing does
NEARER = 0.5  # of the way to where phase one leads, while the loss is not finite there


class Progress(NamedTuple):
    """What a callback sees; it may stop the run by returning True or raising StopIteration."""

    step: int
    gradients: int
    seconds: float
    x: PyTree  # every replica: a leading axis
    objective: np.ndarray
    violation: np.ndarray
    doing: str = "steps"  # or "polishing": x is then what that has reached


def solve(
    problem: Problem,
    x0: Any,
    *,
    method: Any = "auto",
    steps: int | None = None,
    gradients: int | None = None,
    seconds: float | None = None,
    batch_size: int | None = None,
    schedule: Any = "auto",
    replicas: int = 1,
    seed: int = 0,
    tol: float | None = None,
    output: str = "last",
    dtype: Any = "float64",
    callback: Callable[[Progress], Any] | None = None,
    progress: bool = False,
    checkpoint: Any = None,
    resume: bool | str = True,
    trace: int = 25,
    polish: bool | None = None,
    starts: int = 1,
) -> Result:
    """Solve min E[f(x, xi)] + h(x) - g(x) s.t. c_E(x) = 0, c_I(x) <= 0.

    method      "auto" chooses for you and says what; else a name ("mossp-r", "sqp-dc", ...) or an
                object such as mossp.MoSSP(...). `mossp methods` lists them
    steps, gradients, seconds
                the budget: whichever is used up first. A gradient is one sample differentiated; a
                Hessian-vector product of one sample, in polishing, counts as two. Half of
                `gradients` is kept for polishing. `seconds` do not count compilation, which
                comes before the run
    batch_size  samples a step: 32, or all where there are fewer
    schedule    "auto" needs nothing; "theorem", "corollary", "indexed", "paper",
                "paper-averaging", or a rule from mossp.schedules
    replicas    independent runs from the same x0, side by side; the best one is returned
    tol         what the certificate must meet for `success`, relative to the size of its terms.
                Left out, it is 1e-10 for methods that are exact on the data at hand, 1e-2 for the
                others
    output      "last", "random" (of which the paper's theorems speak) or "best"
    dtype       "float64" or "float32"; the caller's JAX configuration is not touched
    callback    called with a `Progress` some 30 times, and every second while polishing; returning
                True stops the run
    checkpoint  a file; the run is saved there, and goes on from there if it is called again with
                the same problem and settings. resume=False starts anew, "force" ignores that the
                file came from another problem or other settings
    trace       how many times the run is looked at; the trace has about as many points
    polish      Newton's method on the KKT system from the end point, with all of the data: full
                precision where the support has been found. It comes on top of `steps`, within
                `gradients` and `seconds`, and is given up where it does not pay; "auto" polishes
                finite sums, and ends the run as soon as that succeeds
    starts      so many replicas from different starts, x0 the first of them (the rule is that of
                `mossp.feasibility.different_starts`); the best of their answers is returned

    Ctrl-C and SIGTERM end the run with the point reached, saved if a checkpoint is kept.

    Where what "auto" chose diverges, meets NaN or does not arrive, other ways are tried in turn
    (`mossp.ways`), and the message says which of them led to the answer.

    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0] + x[1], equality=lambda x: x @ x - 2.0)
    >>> result = mossp.solve(problem, np.array([1.0, 0.0]))
    >>> result.success, np.round(result.x, 12).tolist()
    (True, [-1.0, -1.0])
    """
    arguments = checked(
        problem, x0, method=method, steps=steps, gradients=gradients, seconds=seconds,
        batch_size=batch_size, schedule=schedule, replicas=replicas, seed=seed, tol=tol,
        output=output, dtype=dtype, callback=callback, progress=progress, checkpoint=checkpoint,
        resume=resume, trace=trace, polish=polish, starts=starts,
    )  # fmt: skip
    callers = bool(jax.config.read("jax_enable_x64"))
    with jax.enable_x64(arguments.dtype == np.float64):
        return best_way(arguments, lambda a: Solve(problem, a, callers).run())


class Solve:
    """One solve, from checked arguments to a result.

    `variants` are a method and a rule a replica, of one structure, in place of the arguments' own;
    all replicas then see the same mini-batches, so that they can be compared.
    """

    def __init__(
        self, problem: Problem, arguments: Arguments, callers_x64: bool,
        variants: list[tuple[Method, Rule]] | None = None,
    ) -> None:  # fmt: skip
        self.began = time.perf_counter()
        self.shared = variants is not None
        self.variants = variants or [(arguments.method, arguments.rule)]
        self.problem, self.a, self.callers_x64 = problem, arguments, callers_x64
        self.oracles = arguments.oracles
        self.structure = Structure.of(arguments.x0)
        self.stream = problem.data if isinstance(problem.data, Stream) else None
        self.notes: list[str] = []
        self.interrupt = Interrupt()
        steps = cost(
            problem, arguments.method, arguments.rule, arguments.steps, arguments.batch_size
        )
        self.budget = Budget(
            self.interrupt, arguments.seconds, arguments.gradients - steps, self.reported
        )
        self.polishing = Polishing(self.oracles, arguments.tol, self.budget, steps)
        self.bar = Bar(arguments.steps, arguments.progress)
        self.reported_at = time.perf_counter()
        if arguments.chosen:
            self.notes.append(f"Chosen: {arguments.chosen}.")
        self.form = arguments.method.form(self.oracles)
        if self.form:
            self.notes.append(f"{arguments.name} was run {self.form}.")
        self.hessian_products = 0
        self.early: Status | None = None  # INTERRUPTED or STOPPED
        # F of what needs no polishing, since it is proved already; infinite elsewhere.
        self.proved = np.full(arguments.replicas, np.inf)
        self.given = self.structure.ravel(arguments.x0, arguments.dtype)
        within_reach(arguments.method, arguments.name, self.oracles, self.given)
        check_mean(problem, self.oracles, self.given, arguments.dtype)

    def run(self) -> Result:
        with self.interrupt:
            self.loop = self.prepare()
            rows, count = self.trace_rows()
            self.watch = Watch(
                self.oracles, self.loop, rows, self.start, self.given,
                keep_best=self.a.output == "best", tol=self.a.tol,
            )  # fmt: skip
            try:
                with self.bar:
                    before = self.take_up()
                    if self.a.polish and self.a.seconds < math.inf:
                        self.polishing.compile(self.start)
                    self.budget.start(before)
                    self.note_stops()  # perhaps while the first programs were compiled
                    self.at_start = not self.early and self.solved_at_start()
                    self.arrived = self.at_start or self.polished_early()
                    if not self.early and self.relaxes() and (self.at_start or not self.arrived):
                        self.polishing.relax(self.start)
                    spent = self.budget.seconds()
                    self.note_stops()
                    going = self.loop.k < self.a.steps and not (self.arrived or self.early)
                    if self.watch.first.finite.all() and going:
                        self.loop.compile()
                    self.budget.start(spent)
                    self.compile_seconds = time.perf_counter() - self.began - (spent - before)
                    self.iterate()
                    return self.finish(count)
            finally:
                self.loop.close()

    def note_stops(self) -> None:
        """A signal, or a callback that asked for an end."""
        if self.interrupt.received:
            self.early = Status.INTERRUPTED
        elif self.budget.stopped:
            self.early = self.early or Status.STOPPED

    # Before the first step ---------------------------------------------------------------

    def prepare(self) -> Loop:
        a, oracles, momentum = self.a, self.oracles, self.a.method.momentum
        self.start = self.feasible_start() if oracles.m else self.given
        self.points = np.broadcast_to(self.start, (a.replicas, len(self.start)))
        if a.starts > 1:
            points = different_starts(oracles, self.start, a.starts, 1e-8, a.seed)
            self.points = points.astype(a.dtype)
        self.draws = sample_draws(self.problem, a.drawn, a.seed, a.dtype)
        constants: Any = None
        if not isinstance(a.rule, (Auto, Constant)):
            constants = estimate_at(oracles, self.start, self.draws, a.drawn)
            self.hessian_products += hessian_products(self.draws, a.drawn)
        each = [self.setting(method, rule, constants) for method, rule in self.variants]
        extra = initial_batches(a.rule, a.method, a.steps, a.batch_size)
        self.initial_gradients = extra * a.batch_size
        context = Context(oracles, np.asarray(1 / (1 + extra), a.dtype))
        shards, first = [], 0
        for size in shard_sizes(a.replicas, one_reader=self.stream is not None):
            source = self.stream or oracles.source
            draws = Draws(source, a.seed, first, size, a.drawn, a.dtype, self.shared)
            # The last shard may hold replicas that do not count: any setting will do for them.
            chosen = [each[min(r, len(each) - 1)] for r in range(first, first + size)]
            method, schedule = jax.tree.map(lambda *leaves: jnp.stack(leaves), *chosen)
            points = self.points[np.minimum(np.arange(first, first + size), a.replicas - 1)]
            d0 = self.first_estimate(extra, draws, points)
            carry = compiled.start(context, method, schedule, jnp.asarray(points), d0)
            shards.append(Shard(context, carry, draws, a.drawn))
            first += size
        epoch = steps_per_anchor(self.problem, a.method, a.batch_size) if momentum.anchored else 0
        tuned = a.rule.tuned and not a.method.parameter_free
        events = Events(
            K=a.steps,
            trace_every=max(1, min(a.steps, MOST_STEPS) // a.trace),
            retune_at=tuning.retune_steps(a.steps, epoch) if tuned else (),
            anchor_every=epoch,
        )
        return Loop(shards, a.replicas, events, self.retune if tuned else None)

    def setting(self, method: Method, rule: Rule, constants: Any) -> tuple[Method, Schedule]:
        """What one replica runs with, as arrays."""
        momentum = rule.estimator(method.momentum, constants)
        method = eqx.tree_at(lambda m: m.momentum, method, momentum)
        schedule = with_alpha(rule.schedule(momentum, max(self.a.steps, 1), constants), momentum)
        if rule.relative and not rule.tuned:
            L = rule.smoothness(momentum, constants)
            stable = 1 / L if method.multipliers == 0 else schedule.mu  # no penalty shortens it
            schedule = schedule.sized(*method.sizes(L, stable))
        return with_dtype((method, schedule), self.a.dtype, real=True)

    def feasible_start(self) -> np.ndarray:
        """Phase one, where the start is not feasible enough for the schedule."""
        enough = self.a.rule.feasible_enough(self.a.method.momentum, self.a.steps)
        if violation(self.oracles, self.given) <= enough:
            return self.given
        aim = min(enough, 1e-8) if self.a.rule.tuned else enough
        found = phase_one(self.oracles, self.given, aim, self.a.seed)
        if not found.finite:
            return self.given
        if found.violation > enough:
            self.notes.append(
                f"Phase one found no feasible start (||c|| = {found.violation:.3g} at best)."
            )
        return self.within_domain(found.x)

    def within_domain(self, x: np.ndarray) -> np.ndarray:
        """x, or the point nearest to it on the way from x0 at which the loss is finite."""
        part = 1.0
        while part > NEARER**20:
            point = (self.given + part * (x - self.given)).astype(self.a.dtype)
            point = x.astype(self.a.dtype) if part == 1 else point
            if not self.oracles.exact or np.isfinite(compiled.objective(self.oracles, point)):
                if part < 1:
                    self.notes.append("The loss is not finite at the feasible point next to x0.")
                return point
            part *= NEARER
        return x.astype(self.a.dtype)

    def first_estimate(self, extra: int, draws: Draws, points: np.ndarray) -> jax.Array:
        """d_0 of these replicas. The number of draws is rounded up, so that their shape stays."""
        a, room = self.a, max(8, 1 << max(extra - 1, 0).bit_length())
        if self.stream is not None:
            batches = self.stream.take(extra) or self.stream.peek()
            padded = batches + batches[-1:] * (room - len(batches))
            each = [with_dtype(stack(padded), a.dtype)]
        else:
            each = [
                self.oracles.source.draw(generator(a.seed, Purpose.INITIAL, r), room, a.drawn)
                for r in ([0] if draws.shared else draws.numbers)
            ]
        same = draws.shared and a.starts == 1
        each = each * draws.replicas if draws.shared else each
        found = [
            compiled.first_estimate(
                self.oracles, jnp.asarray(point), mine, extra, batch_size=a.drawn,
                full=a.method.momentum.full,
            )
            for point, mine in zip(points[:1] if same else points, each, strict=False)
        ]  # fmt: skip
        return jnp.stack(found * draws.replicas if same else found)

    def retune(self, context: Context, carry: Carry, k: int) -> Carry:
        tuner = tuning.Tuner(
            draws=self.draws,
            K=np.asarray(self.a.steps, self.a.dtype),
            target=np.asarray(tuning.violation_target(self.a.tol, self.a.steps), self.a.dtype),
            settled=np.asarray(self.a.tol / 2, self.a.dtype),
            k=np.asarray(k, np.int32),
            shorten=np.asarray(getattr(self.a.rule, "shorten", 1.0), self.a.dtype),
        )
        return compiled.retune(context, carry, tuner, batch_size=self.a.drawn)

    def trace_rows(self) -> tuple[PyTree, int]:
        """(a batch that stands for the data, its size); (None, N) where all of it is used."""
        source, N = self.oracles.source, self.problem.samples
        if self.stream is not None:
            peeked = [with_dtype(batch, self.a.dtype) for batch in self.stream.peek(4)]
            rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), *peeked)
            return rows, len(jax.tree.leaves(rows)[0])
        if isinstance(source, Finite) and N is not None and N > TRACE_ROWS:
            chosen = generator(0, Purpose.TRACE).choice(N, TRACE_ROWS, replace=False)
            chosen.sort()
            return map_rows(lambda a: jnp.asarray(np.asarray(a)[chosen]), source.arrays), TRACE_ROWS
        if isinstance(source, Sampler):
            return _sample(
                self.oracles, jax_keys(generator(0, Purpose.TRACE)), TRACE_ROWS
            ), TRACE_ROWS
        return None, N or 1

    # The run -----------------------------------------------------------------------------

    def iterate(self) -> None:
        a, run, watch = self.a, self.loop, self.watch
        if run.k == 0:
            watch.find_trouble(watch.first)
            watch.record(watch.first, self.gradients(), 0.0)
        saved = time.perf_counter()
        done = self.arrived or self.certified()
        self.note_stops()
        while run.k < a.steps and not watch.hopeless and not self.early and not done:
            if not run.to_next_stop():
                self.early = Status.STOPPED
                self.notes.append("The stream has ended.")
            late = self.budget.late
            self.note_stops()
            seen = watch.look()
            watch.find_trouble(seen)
            if run.events.traced(run.k) or late or self.early or watch.hopeless:
                watch.record(seen, self.gradients(), self.budget.seconds())
                self.bar.show(run.k, float(np.min(seen.objective)), float(np.min(seen.violation)))
                if self.stopped_by_callback(seen):
                    self.early = self.early or Status.STOPPED
                done = self.polished_early() or self.certified()
                late = self.budget.late
            self.note_stops()  # perhaps while the callback ran
            if a.checkpoint is not None:
                due = time.perf_counter() - saved > CHECKPOINT_SECONDS
                if due or late or self.early or done or run.k == a.steps:
                    self.save()
                    saved = time.perf_counter()
            if late:
                break

    def certified(self) -> bool:
        """Whether an exact method has arrived: every replica's last step proves it at tol.

        A look at all of the data: where a run is polished early, that comes first.
        """
        a, watch, k = self.a, self.watch, self.loop.k
        if not a.method.exact or not k or watch.lost.any() or a.output == "random":
            return False
        if a.polish and a.chosen and self.polishing.tried != k:
            return False
        judged = watch.judged(a.drawn)
        each = (certificate(self.oracles, r, None, "witness") for r in judged)
        found = all(one.is_kkt(a.tol, relative=True) for one in each)
        if found:
            self.proved = np.array([r.objective for r in judged], np.float64)
        return found

    def solved_at_start(self) -> bool:
        """Whether the start is a KKT point at tol already: an earlier answer, as a rule."""
        a, run, x = self.a, self.loop, jnp.asarray(self.start)
        ends_early = a.method.exact and a.output != "random" and a.starts == 1 and not self.shared
        if run.k or not ends_early or not self.watch.first.finite.all():
            return False
        judged = self.watch.judged(a.drawn)
        gradient = jnp.asarray(judged[0].gradient, x.dtype)
        solved = exact_certificate(self.oracles, x, gradient).is_kkt(a.tol, relative=True)
        if solved and not at_kink(self.oracles, self.start):
            self.proved = np.array([r.objective for r in judged], np.float64)
            self.notes.append("The start is a solution already.")
            return True
        return False

    def polished_early(self) -> bool:
        """Whether "auto" has arrived: tried where constants are measured again, once F settles.

        Newton's method would succeed sooner, but stops at the nearest critical point; the steps
        still pass by poor ones then. A convex problem has none, and is tried at once.
        """
        a, run = self.a, self.loop
        if not (a.polish and a.chosen and run.k in run.events.retune_at) or self.early:
            return False
        if not (run.k == 0 and self.oracles.convex) and not self.watch.settling(SETTLING):
            return False
        return self.polishing.attempt(run.k, self.watch.outputs("last").x, self.watch.given_up)

    def relaxes(self) -> bool:
        """Whether the answer without -g is a start worth trying beside x0."""
        a, oracles = self.a, self.oracles
        convex_but_for_g = oracles.relaxable and not oracles.regularizer.convex
        return a.polish and bool(a.chosen) and convex_but_for_g and not self.loop.k

    def stopped_by_callback(self, seen: Observation) -> bool:
        if self.a.callback is None:
            return False
        xs = self.each_replica(self.loop.carry().state.x)
        return self.called_back(xs, seen.objective, seen.violation, "steps")

    def reported(self, x: np.ndarray, F: float, violation: float, residual: float) -> bool:
        """What polishing has reached, for bar and callback; whether that asks for an end."""
        if time.perf_counter() - self.reported_at < REPORT_SECONDS:
            return False
        self.bar.show(self.loop.k, F, violation, f"polishing, residual {residual:.0e}")
        seen, xs, r = self.watch.look(), np.array(self.loop.carry().state.x), self.polishing.replica
        for values, value in ((xs, x), (seen.objective, F), (seen.violation, violation)):
            values[r] = value
        stop = self.a.callback is not None and self.called_back(
            self.each_replica(xs), seen.objective, seen.violation, "polishing"
        )
        self.reported_at = time.perf_counter()
        return stop

    def called_back(self, xs: PyTree, objective: Any, violation: Any, doing: str) -> bool:
        assert self.a.callback is not None
        progress = Progress(
            self.loop.k, self.gradients(), self.budget.seconds(), xs, objective, violation, doing
        )
        self.reported_at = time.perf_counter()
        with jax.enable_x64(self.callers_x64):
            try:
                answer = self.a.callback(progress)
                return isinstance(answer, (bool, np.bool_)) and bool(answer)
            except StopIteration:
                return True

    def gradients(self) -> int:
        """Samples differentiated so far, per replica."""
        per_step = self.a.method.momentum.gradients * self.a.batch_size
        full = self.loop.anchors * (self.problem.samples or 1)
        steps = self.initial_gradients + self.loop.k * per_step
        return steps + full + self.polishing.gradients

    # After the run -----------------------------------------------------------------------

    def finish(self, row_count: int) -> Result:
        a, watch = self.a, self.watch
        outputs = watch.outputs(a.output)
        replaced = np.zeros(a.replicas, bool)
        if a.polish:
            replaced = self.polish_end(outputs)
        self.spent = self.budget.seconds()
        # Newton's method may leave for infinity, too, where any point is nearly critical.
        far = np.linalg.norm(outputs.x, axis=1) > watch.far_away
        diverged = (watch.diverged & ~replaced) | far
        ending = Ending(
            outputs, watch.outputs("random"), watch.lost & ~replaced, diverged,
            self.early, self.notes + watch.notes, start=self.start,
            polished=a.polish and not self.budget.late,
        )  # fmt: skip
        verdict = judge(
            self.oracles, ending, tol=a.tol, batch_size=a.drawn, fresh=self.fresh_draws(),
            more=self.fresh_draws, most=self.samples_to_judge(),
        )  # fmt: skip
        status, success, message = verdict.status, verdict.success, verdict.message
        if not self.same_functions():
            status, success = Status.CHANGED, False
            message = f"{status.value} {message}"
        # A signal that came too late for the run must still end what the run is a part of.
        status = Status.INTERRUPTED if self.interrupt.received else status
        tunings = sum(k < self.loop.k or k == 0 for k in self.loop.events.retune_at)
        each = hessian_products(self.draws, a.drawn)
        if a.method.momentum.full:
            each = hessian_products(None, 1) * a.batch_size
        return Result(
            x=self.structure.unravel(np.asarray(outputs.x[verdict.best], np.float64)),
            fun=float(verdict.funs[verdict.best]),
            violation=float(verdict.violations[verdict.best]),
            success=success,
            status=status,
            message=message,
            certificate=verdict.certificate,
            # Of replicas that share their start.
            expectation=verdict.expectation if a.starts == 1 else None,
            steps=self.loop.k,
            gradients=self.gradients(),
            hessian_products=self.hessian_products + tunings * each + self.polishing.products,
            seconds=self.spent,
            compile_seconds=self.compile_seconds,
            trace=watch.trace(row_count),
            xs=self.each_replica(outputs.x),
            funs=verdict.funs,
            violations=verdict.violations,
            tol=a.tol,
            settings=self.settings(),
        )

    def polish_end(self, outputs: Witness) -> np.ndarray:
        """Which outputs polishing has replaced."""
        if self.early is None:
            if not self.at_start:
                self.polishing.attempt(self.loop.k, outputs.x, self.watch.given_up, last=True)
            if self.a.chosen:
                self.polishing.refine(self.start)
            self.note_stops()
        values = np.where(self.watch.given_up, np.inf, self.proved)
        replaced = self.polishing.into(outputs, values)
        if replaced.any() or not self.at_start:
            self.notes.append(self.polishing.said)
        return replaced

    def same_functions(self) -> bool:
        """Whether the user's functions still compute what they did when the run began."""
        try:
            now = self.problem.oracles(self.a.x0, self.a.dtype)
        except (TypeError, ValueError):  # they do not even compute any more
            return False
        return self.oracles.same_functions(now)

    def samples_to_judge(self) -> int:
        """Where they are needed to decide; only those drawn anyway where the run's time is up."""
        late = self.early is not None or self.budget.late
        return 0 if late else JUDGING * max(self.gradients(), FRESH_SAMPLES)

    def fresh_draws(self, number: int = 0) -> PyTree:
        """Samples that no step has seen, for a certificate without full gradients."""
        if self.oracles.exact:
            return None
        count = max(2, FRESH_SAMPLES // self.a.drawn)
        if self.stream is None:
            rng = generator(self.a.seed, Purpose.CERTIFICATE, number=number)
            return self.oracles.source.draw(rng, count, self.a.drawn)
        batches = self.stream.take(min(count, STREAM_BLOCK))
        return with_dtype(stack(batches), self.a.dtype) if len(batches) >= 2 else None

    def each_replica(self, xs: Any) -> PyTree:
        """x of every replica, in the user's structure with a leading axis."""
        each = [self.structure.unravel(x) for x in np.asarray(xs, np.float64)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *each)

    def settings(self) -> dict[str, Any]:
        a = self.a
        return {
            "method": a.name, "form": self.form, "schedule": type(a.rule).__name__,
            "steps": a.steps, "batch_size": a.batch_size, "replicas": a.replicas, "seed": a.seed,
            "starts": a.starts, "polish": a.polish, "output": a.output, "dtype": str(a.dtype),
            "samples": self.problem.samples,
            "variables": self.structure.size, "constraints": self.oracles.m,
            "regularizer": type(self.problem.regularizer).__name__,
        }  # fmt: skip

    # Checkpoints -------------------------------------------------------------------------

    def fingerprint(self) -> str:
        p, a = self.problem, self.a
        parts = (p.loss, p.equality, p.inequality, p.regularizer, p.data, a.method, a.rule)
        return fingerprint([*parts, self.settings(), a.tol, self.start])

    def save(self) -> None:
        assert self.a.checkpoint is not None
        try:
            arrays, polishing = self.polishing.saved()
            extra = {"seconds": self.budget.seconds(), "polishing": polishing}
            saved_run.save(self.a.checkpoint, self.watch, self.mark, arrays, extra)
        except CheckpointError as error:
            self.early = Status.STOPPED
            error.result = self.finish(0)
            raise

    def take_up(self) -> float:
        """The seconds that a saved run has spent; it takes the place of the fresh one."""
        if self.a.checkpoint is None:
            return 0.0
        self.mark = self.fingerprint()  # of the functions as they are when the run begins
        if not self.a.resume:
            return 0.0
        force = self.a.resume == "force"
        found = saved_run.take_up(self.a.checkpoint, self.watch, self.mark, force)
        if found is None:
            return 0.0
        arrays, extra = found
        self.polishing.take_up(arrays, extra["polishing"])
        return float(extra["seconds"])


def at_kink(oracles: Oracles, x: np.ndarray) -> bool:
    """Whether g has a kink at x: a critical point there may be a peak between two valleys."""
    subgradient_g = on_host(oracles).subgradient_g
    size = KINK * max(float(np.abs(x).max()), np.finfo(x.dtype).tiny)
    aside = size * np.cos(np.arange(1, len(x) + 1) ** 2)
    here, there, back = (np.asarray(subgradient_g(p)) for p in (x, x + aside, x - aside))
    jump = max(np.abs(there - here).max(), np.abs(back - here).max())
    return bool(jump > np.sqrt(KINK) * max(float(np.abs(here).max()), float(np.abs(there).max())))


@with_programs(static_argnums=2)
def _sample(oracles: Oracles, random_key: jax.Array, count: int) -> PyTree:
    return oracles.source.batch(random_key, count)
