"""The door: validate, find a feasible start, run, judge, hand back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp import checkpoint, loop, tuning
from mossp.arguments import MOST_STEPS, Arguments, checked, initial_batches
from mossp.certificate import FRESH_SAMPLES, Witness
from mossp.checkpoint import CheckpointError
from mossp.constants import MINI_BATCHES, POOLED_ROWS, POWER_ITERATIONS, _estimate, sample_draws
from mossp.data import Finite, Sampler, Stream, map_rows
from mossp.draws import STREAM_BLOCK, Draws, stack
from mossp.feasibility import phase_one
from mossp.interrupt import Interrupt
from mossp.keys import Purpose, generator, jax_keys
from mossp.loop import Carry, Context, Events, Loop
from mossp.outcome import Ending, judge
from mossp.problem import Oracles, Problem, check_mean
from mossp.progress import Bar
from mossp.result import Result, Status, Trace
from mossp.schedules import Auto, Constant, with_alpha
from mossp.structure import Structure, with_dtype

PyTree = Any

TRACE_POINTS = 40
TRACE_ROWS = 2048  # rows on which the trace's objective is evaluated when there are more
GROWTH = 1e8  # ||x|| or ||c|| beyond this many times where they started: diverged
CHECKPOINT_SECONDS = 10.0


class Progress(NamedTuple):
    """What a callback sees; it may stop the run by returning True or raising StopIteration."""

    step: int
    gradients: int
    seconds: float
    x: PyTree  # every replica: a leading axis
    objective: np.ndarray
    violation: np.ndarray


def solve(
    problem: Problem,
    x0: Any,
    *,
    method: Any = "mossp-r",
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
) -> Result:
    """Solve min E[f(x, xi)] + h(x) - g(x) s.t. c_E(x) = 0, c_I(x) <= 0.

    method      a name ("mossp-p", "mossp-r") or an object such as mossp.MoSSP(...)
    steps, gradients, seconds
                the budget: whichever is used up first. A gradient is one sample differentiated
    batch_size  samples a step: 32, or all where there are fewer
    schedule    "auto" needs nothing; "theorem", "corollary", "indexed", "paper",
                "paper-averaging", or a rule from mossp.schedules
    replicas    independent runs from the same x0, side by side; the best one is returned
    tol         what the certificate must meet for `success`: 1e-2 if left out
    output      "last", "random" (of which the paper's theorems speak) or "best"
    dtype       "float64" or "float32"; the caller's JAX configuration is not touched
    callback    called with a `Progress` some 40 times; returning True stops the run
    checkpoint  a file; the run is saved there, and goes on from there if it is called again with
                the same problem and settings. resume=False starts anew, "force" ignores that the
                file came from another problem or other settings

    Ctrl-C and SIGTERM end the run with the point reached, saved if a checkpoint is kept.

    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0] + x[1], equality=lambda x: x @ x - 2.0)
    >>> result = mossp.solve(problem, np.array([1.0, 0.0]), steps=2000)
    >>> result.success, np.round(result.x, 2).tolist()
    (True, [-1.0, -1.0])
    """
    arguments = checked(
        problem, x0, method=method, steps=steps, gradients=gradients, seconds=seconds,
        batch_size=batch_size, schedule=schedule, replicas=replicas, seed=seed, tol=tol,
        output=output, dtype=dtype, callback=callback, progress=progress, checkpoint=checkpoint,
        resume=resume,
    )  # fmt: skip
    callers = jax.config.jax_enable_x64
    with jax.enable_x64(arguments.dtype == np.float64):
        return Solve(problem, arguments, callers).run()


class Solve:
    """One solve, from checked arguments to a result."""

    def __init__(self, problem: Problem, arguments: Arguments, callers_x64: bool) -> None:
        self.began = time.perf_counter()
        self.problem, self.a, self.callers_x64 = problem, arguments, callers_x64
        self.oracles: Oracles = problem.oracles(arguments.x0, arguments.dtype)
        self.structure = Structure.of(arguments.x0)
        self.stream = problem.data if isinstance(problem.data, Stream) else None
        self.notes: list[str] = []
        self.hessian_products = 0
        check_mean(problem, self.oracles, self.structure.ravel(arguments.x0), arguments.dtype)

    # Before the first step ---------------------------------------------------------------

    def prepare(self) -> Loop:
        a, oracles, momentum = self.a, self.oracles, self.a.method.momentum
        x0 = self.structure.ravel(a.x0, a.dtype)
        if oracles.m:
            x0 = self.feasible_start(x0)
        self.start_point = x0
        self.draws = sample_draws(self.problem, a.batch_size, a.seed, a.dtype)
        constants: Any = None
        if not isinstance(a.rule, (Auto, Constant)):
            constants = _estimate(oracles, jnp.asarray(x0), self.draws, a.batch_size)
            constants = type(constants)(*map(float, constants))
            self.count_products()
        schedule = with_alpha(a.rule.schedule(momentum, a.steps, constants), momentum)
        extra = initial_batches(a.rule, a.method, a.steps, a.batch_size)
        self.initial_gradients = extra * a.batch_size
        context = Context(
            oracles=oracles,
            method=with_dtype(a.method, a.dtype),
            replicas=np.arange(a.replicas),
            first_alpha=np.asarray(1 / (1 + extra), a.dtype),
        )
        carry = loop.start(
            context, with_dtype(schedule, a.dtype), jnp.asarray(x0),
            self.initial_draws(extra), extra, batch_size=a.batch_size,
        )  # fmt: skip
        epoch = 0
        if momentum.anchored:
            pass_length = -(-(self.problem.samples or 1) // a.batch_size)
            epoch = getattr(momentum, "epoch", None) or max(pass_length, 1)
        events = Events(
            K=a.steps,
            trace_every=max(1, min(a.steps, MOST_STEPS) // TRACE_POINTS),
            retune_at=tuning.retune_steps(a.steps) if a.rule.tuned else (),
            anchor_every=epoch,
        )
        source = self.stream or oracles.source
        draws = Draws(source, a.seed, a.replicas, a.batch_size, a.dtype)
        tuner = self.retune if a.rule.tuned else None
        return Loop(context, events, carry, draws, batch_size=a.batch_size, tuner=tuner)

    def feasible_start(self, x0: np.ndarray) -> np.ndarray:
        """Phase one, where the start is not feasible enough for the schedule."""
        enough = self.a.rule.feasible_enough(self.a.method.momentum, self.a.steps)
        if float(self.oracles.violation(jnp.asarray(x0))) <= enough:
            return x0
        found = phase_one(self.oracles, x0, min(enough, 1e-8), self.a.seed)
        if not found.finite:
            return x0
        if found.violation > enough:
            self.notes.append(
                f"Phase one found no feasible start (||c|| = {found.violation:.3g} at best)."
            )
        return found.x.astype(self.a.dtype)

    def initial_draws(self, extra: int) -> PyTree:
        """Draws for d_0 of every replica; their number is rounded up, so that the shape stays."""
        room = max(8, 1 << max(extra - 1, 0).bit_length())
        if self.stream is not None:
            batches = self.stream.take(extra) or self.stream.peek()
            return with_dtype(stack(batches + batches[-1:] * (room - len(batches))), self.a.dtype)
        each = [
            self.oracles.source.draw(
                generator(self.a.seed, Purpose.INITIAL, r), room, self.a.batch_size
            )
            for r in range(self.a.replicas)
        ]
        return None if each[0] is None else stack(each)

    def retune(self, carry: Carry, k: int) -> Carry:
        self.count_products()
        tuner = tuning.Tuner(
            draws=self.draws,
            K=np.asarray(self.a.steps, self.a.dtype),
            target=np.asarray(self.a.tol / 4, self.a.dtype),
            first=np.asarray(k == 0),
        )
        return loop.retune(self.running.context, carry, tuner, batch_size=self.a.batch_size)

    def count_products(self) -> None:
        """Each constant of f takes so many Hessian-vector products of so many rows."""
        rows = MINI_BATCHES * self.a.batch_size + max(POOLED_ROWS, MINI_BATCHES * self.a.batch_size)
        self.hessian_products += POWER_ITERATIONS * (1 if self.problem.data is None else rows)

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
            return _sample(source, jax_keys(generator(0, Purpose.TRACE)), TRACE_ROWS), TRACE_ROWS
        return None, N or 1

    # The run -----------------------------------------------------------------------------

    def run(self) -> Result:
        a = self.a
        self.running = run = self.prepare()
        self.rows, row_count = self.trace_rows()
        self.history: list[list[Any]] = []
        self.best: tuple[Any, Any] | None = None
        self.lost = np.zeros(a.replicas, bool)
        self.diverged = np.zeros(a.replicas, bool)
        self.frozen: dict[int, np.ndarray] = {}
        self.spent = 0.0
        self.first = self.look()
        self.early: Status | None = None
        if a.checkpoint is not None:
            self.continue_from(run)
        if self.first.finite.all():
            run.compile()
        self.compile_seconds = time.perf_counter() - self.began
        with Interrupt() as interrupt, Bar(a.steps, a.progress) as bar:
            self.clock = time.perf_counter() - self.spent
            if run.k == 0:
                self.record(self.first)
            saved = time.perf_counter()
            while run.k < a.steps and not (self.lost | self.diverged).all():
                if not run.to_next_stop():
                    self.early = Status.STOPPED
                    self.notes.append("The stream has ended.")
                    break
                out_of_time = time.perf_counter() - self.clock >= a.seconds
                if run.events.traced(run.k) or out_of_time or interrupt.received:
                    seen = self.look()
                    self.record(seen)
                    bar.show(run.k, float(np.min(seen.objective)), float(np.min(seen.violation)))
                    if self.stopped_by_callback(seen):
                        self.early = Status.STOPPED
                if interrupt.received:
                    self.early = Status.INTERRUPTED
                if a.checkpoint is not None and (
                    self.early or run.k == a.steps or time.perf_counter() - saved > CHECKPOINT_SECONDS
                ):
                    self.save()
                    saved = time.perf_counter()
                if self.early or out_of_time:
                    break
        self.spent = time.perf_counter() - self.clock
        return self.finish(row_count)

    def look(self) -> loop.Observation:
        return jax.device_get(loop.observe(self.oracles, self.running.carry, self.rows))

    def record(self, seen: loop.Observation) -> None:
        k = self.running.k
        now = time.perf_counter() - self.clock
        self.history.append(
            [k, self.gradients(), now, seen.objective, seen.violation, seen.proximity]
        )
        self.find_trouble(seen)
        self.keep_best(seen)

    def find_trouble(self, seen: loop.Observation) -> None:
        """Replicas that are no longer finite, or have left for infinity."""
        x0 = np.linalg.norm(self.start_point)
        for r in np.flatnonzero(~seen.finite & ~self.lost):
            self.lost[r] = True
            if self.running.k == 0:
                self.frozen[r], step = self.finite_start(), 0
            else:
                step, self.frozen[r] = self.running.last_finite(r)
            self.diverged[r] = np.linalg.norm(self.frozen[r]) > GROWTH * (1 + x0)
            if not self.diverged[r] and not any("NaN" in note for note in self.notes):
                self.notes.append(self.blame(self.frozen[r], step))
        far = (seen.length > GROWTH * (1 + x0)) | (
            seen.violation > GROWTH * (1 + self.first.violation)
        )
        self.diverged |= far & seen.finite

    def finite_start(self) -> np.ndarray:
        """Where phase one led to NaN, the user's own start."""
        return self.structure.ravel(self.a.x0, self.a.dtype)

    def blame(self, x: np.ndarray, step: int) -> str:
        """A sentence that names the function behind NaN or infinity."""
        for point, where in ((x, f"after {step} steps"), (self.start_point, "at the start")):
            values = _values(self.oracles, jnp.asarray(point), self.rows)
            bad = [name for name, v in values.items() if not np.isfinite(np.asarray(v)).all()]
            if bad:
                return f"NaN or infinity came from {' and '.join(bad)} {where}."
        return f"NaN or infinity came up in step {step + 1}: the loss or a constraint leaves its domain."

    def keep_best(self, seen: loop.Observation) -> None:
        """For output="best": the observed point with the lowest F at violation <= tol."""
        if self.a.output != "best" or self.running.k == 0:
            return
        feasible = seen.violation <= self.a.tol
        score = np.where(feasible, seen.objective, 1e300 + seen.violation)
        score = np.where(np.isfinite(score), score, np.inf)
        last = jax.tree.map(np.asarray, self.running.carry.last)
        if self.best is None:
            self.best = (score, last)
            return
        better = score < self.best[0]
        choose = lambda new, old: np.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)  # noqa: E731
        self.best = (choose(score, self.best[0]), jax.tree.map(choose, last, self.best[1]))

    def stopped_by_callback(self, seen: loop.Observation) -> bool:
        if self.a.callback is None:
            return False
        progress = Progress(
            self.running.k, self.gradients(), self.history[-1][2],
            self.each_replica(self.running.carry.state.x), seen.objective, seen.violation,
        )  # fmt: skip
        with jax.enable_x64(self.callers_x64):
            try:
                return self.a.callback(progress) is True
            except StopIteration:
                return True

    def gradients(self) -> int:
        """Samples differentiated so far, per replica."""
        a, run = self.a, self.running
        per_step = a.method.momentum.gradients * a.batch_size
        return self.initial_gradients + run.k * per_step + run.anchors * (self.problem.samples or 1)

    # After the run -----------------------------------------------------------------------

    def finish(self, row_count: int) -> Result:
        a, carry = self.a, self.running.carry
        outputs: Witness = {"last": carry.last, "random": carry.random}.get(a.output, carry.last)
        if a.output == "best" and self.best is not None:
            outputs = self.best[1]
        outputs = self.with_frozen(outputs)
        verdict = judge(
            self.oracles, Ending(
                outputs, self.with_frozen(carry.random), self.lost, self.diverged, self.early,
                self.notes,
            ),
            tol=a.tol, batch_size=a.batch_size, fresh=self.fresh_draws(),
        )  # fmt: skip
        xs = np.asarray(outputs.x, np.float64)
        columns = list(zip(*self.history, strict=True))
        return Result(
            x=self.structure.unravel(xs[verdict.best]),
            fun=float(verdict.funs[verdict.best]),
            violation=float(verdict.violations[verdict.best]),
            success=verdict.success,
            status=verdict.status,
            message=verdict.message,
            certificate=verdict.certificate,
            expectation=verdict.expectation,
            steps=self.running.k,
            gradients=self.gradients(),
            hessian_products=self.hessian_products,
            seconds=self.spent,
            compile_seconds=self.compile_seconds,
            trace=Trace(*(np.array(column) for column in columns), rows=row_count),
            xs=self.each_replica(xs),
            funs=verdict.funs,
            violations=verdict.violations,
            tol=a.tol,
            settings=self.settings(),
        )

    def with_frozen(self, witness: Witness) -> Witness:
        """Lost replicas stand at their last finite point."""
        if not self.frozen:
            return witness
        w = jax.tree.map(np.array, witness)
        for r, x in self.frozen.items():
            w.x[r], w.y[r], w.s_h[r], w.s_g[r], w.rho[r] = x, x, 0, 0, 0
        return w

    def fresh_draws(self) -> PyTree:
        """Samples that no step has seen, for a certificate without full gradients."""
        if self.oracles.exact:
            return None
        count = max(2, FRESH_SAMPLES // self.a.batch_size)
        if self.stream is None:
            rng = generator(self.a.seed, Purpose.CERTIFICATE)
            return self.oracles.source.draw(rng, count, self.a.batch_size)
        batches = self.stream.take(min(count, STREAM_BLOCK))
        return with_dtype(stack(batches), self.a.dtype) if len(batches) >= 2 else None

    def each_replica(self, xs: Any) -> PyTree:
        """x of every replica, in the user's structure with a leading axis."""
        xs = np.asarray(xs, np.float64)
        each = [self.structure.unravel(x) for x in xs]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *each)

    def settings(self) -> dict[str, Any]:
        a = self.a
        return {
            "method": a.name, "schedule": type(a.rule).__name__, "steps": a.steps,
            "batch_size": a.batch_size, "replicas": a.replicas, "seed": a.seed,
            "output": a.output, "dtype": str(a.dtype), "samples": self.problem.samples,
            "variables": self.structure.size, "constraints": self.oracles.m,
            "regularizer": type(self.problem.regularizer).__name__,
        }  # fmt: skip

    # Checkpoints -------------------------------------------------------------------------

    def fingerprint(self) -> str:
        """Of everything that decides the iterates."""
        a = self.a
        digest = hashlib.sha256(repr((self.settings(), a.method, a.rule)).encode())
        for leaf in jax.tree.leaves((self.oracles, self.start_point, a.tol)):
            if isinstance(leaf, (np.ndarray, jax.Array, float, int)):
                digest.update(np.ascontiguousarray(leaf).tobytes())
        for function in (self.problem.loss, self.problem.equality, self.problem.inequality):
            code = getattr(function, "__code__", None)
            digest.update(b"none" if code is None else code.co_code + repr(code.co_names).encode())
        return digest.hexdigest()

    def save(self) -> None:
        leaves = jax.tree.leaves(self.running.carry)
        arrays = {f"carry/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        for i, column in enumerate(zip(*self.history, strict=True)):
            arrays[f"history/{i}"] = np.array(column)
        if self.best is not None:
            for i, leaf in enumerate(jax.tree.leaves(self.best)):
                arrays[f"best/{i}"] = leaf
        arrays["trouble"] = np.stack([self.lost, self.diverged])
        arrays |= {f"frozen/{r}": x for r, x in self.frozen.items()}
        meta = {
            "kind": "mossp checkpoint", "k": self.running.k, "anchors": self.running.anchors,
            "seconds": time.perf_counter() - self.clock, "fingerprint": self.fingerprint(),
            "hessian_products": self.hessian_products, "notes": self.notes,
        }  # fmt: skip
        assert self.a.checkpoint is not None
        try:
            checkpoint.save(self.a.checkpoint, arrays, meta)
        except CheckpointError as error:
            self.spent = time.perf_counter() - self.clock
            self.early = Status.STOPPED
            error.result = self.finish(0)
            raise

    def continue_from(self, run: Loop) -> None:
        """Take up a saved run, if there is one and it is this run."""
        path = self.a.checkpoint
        assert path is not None
        if not self.a.resume or not (path.exists() or checkpoint.previous(path).exists()):
            return
        arrays, meta, warning = checkpoint.load(path)
        if meta.get("kind") != "mossp checkpoint":
            raise CheckpointError(f"{path} is not a checkpoint of a run.")
        if meta["fingerprint"] != self.fingerprint() and self.a.resume != "force":
            raise CheckpointError(
                f"{path} comes from another problem or other settings: name another file, or give "
                "resume=False to start anew or resume='force' to go on from it all the same."
            )
        leaves, treedef = jax.tree.flatten(run.carry)
        saved = [arrays[f"carry/{i}"] for i in range(len(leaves))]
        if any(a.shape != b.shape for a, b in zip(saved, leaves, strict=True)):
            raise CheckpointError(f"{path} holds arrays of other shapes than this problem's.")
        run.carry = jax.tree.unflatten(treedef, [jnp.asarray(a) for a in saved])
        run.k, run.anchors = meta["k"], meta["anchors"]
        self.lost, self.diverged = (row.copy() for row in arrays["trouble"])
        self.frozen = {r: arrays[f"frozen/{r}"] for r in np.flatnonzero(self.lost)}
        columns = [arrays[f"history/{i}"] for i in range(6)]
        self.history = [list(row) for row in zip(*columns, strict=True)]
        if "best/0" in arrays:
            shape = (0.0, run.carry.last)
            flat = [arrays[f"best/{i}"] for i in range(len(jax.tree.leaves(shape)))]
            self.best = jax.tree.unflatten(jax.tree.structure(shape), flat)
        self.spent, self.hessian_products = meta["seconds"], meta["hessian_products"]
        self.notes = meta["notes"] + ([warning] if warning else [])


@jax.jit(static_argnums=2)
def _sample(source: Sampler, random_key: jax.Array, count: int) -> PyTree:
    return source.batch(random_key, count)


@jax.jit
def _values(oracles: Oracles, x: Any, rows: PyTree) -> dict[str, Any]:
    full = rows is None
    c, pullback = jax.vjp(oracles.c, x)
    return {
        "the loss": oracles.full_value(x) if full else oracles.f(x, rows),
        "the gradient of the loss": oracles.full_gradient(x) if full else oracles.gradient(x, rows),
        "a constraint": c,
        "the gradient of a constraint": pullback(jnp.ones_like(c))[0],
    }


