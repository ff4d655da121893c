"""The only loop: compiled chunks of steps, replicas side by side, and what happens in between.

Compiled code sees steps [k0, k1) with both bounds traced, so that the number of steps is not part
of the program. A chunk ends where the trace is due, where rho and mu are measured again, where an
SVRG anchor is refreshed, or after a quarter of a second; none of this changes the iterates.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp import keys, tuning
from mossp.certificate import Witness
from mossp.data import Arriving, NoData
from mossp.draws import Block, Draws
from mossp.keys import Purpose
from mossp.methods.base import Method
from mossp.problem import Oracles
from mossp.schedules import Parameters, Schedule

PyTree = Any
Vector = Any

CHUNK_SECONDS = 0.25  # how long Ctrl-C, a time budget or a progress bar may have to wait
CACHE = 2**20  # bytes
FIRST_CHUNK = 256  # steps, before the speed is known


class Carry(NamedTuple):
    """What one replica takes from step to step."""

    state: Any
    schedule: Schedule
    last: Witness  # of the last step
    random: Witness  # of a uniformly random step, by reservoir sampling
    reference: Vector  # x when rho and mu were last measured


class Context(NamedTuple):
    """What all steps of a run share; arguments of the compiled functions."""

    oracles: Oracles
    method: Method
    replicas: Any  # their numbers
    first_alpha: Any  # weight of the first mini-batch: B / b0


# Compiled ---------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames="batch_size")
def start(
    context: Context, schedule: Schedule, x0: Vector, draws: Any, count: Any, *, batch_size: int
) -> Carry:
    """The carry of every replica before the first step: d0 is the mean over `count` draws."""
    oracles = context.oracles

    def one(draws: Any) -> Carry:
        def add(j: Any, d: Vector) -> Vector:
            draw = jax.tree.map(lambda v: v[j], draws)
            return d + oracles.gradient(x0, oracles.source.batch(draw, batch_size))

        d0 = lax.fori_loop(0, count, add, jnp.zeros_like(x0)) / jnp.maximum(count, 1)
        zero, lam = jnp.zeros_like(x0), jnp.zeros(oracles.m, x0.dtype)
        witness = Witness(x0, x0, zero, zero, lam, jnp.zeros((), x0.dtype))
        state = context.method.init(oracles, x0, d0)
        return Carry(state, schedule, witness, witness, x0)

    return jax.vmap(one, axis_size=context.replicas.shape[0], in_axes=shared_axis(oracles))(draws)


@functools.partial(jax.jit, static_argnames=("group", "batch_size"))
def advance(
    context: Context, carry: Carry, batches: Any, first: Any, keep: Any, k0: Any, k1: Any, *,
    group: int, batch_size: int,
) -> Carry:  # fmt: skip
    """Steps k0, ..., k1 - 1 of every replica; the batches given are those from step `first` on.

    Replicas with `keep` take the witness of step k1 - 1 as their random output.
    """
    oracles, method = context.oracles, context.method

    def one(carry: Carry, batches: Any, keep: Any) -> Carry:
        def parameters(k: Any) -> Parameters:
            now = carry.schedule.at(k)
            return now._replace(alpha=jnp.where(k == 0, context.first_alpha, now.alpha))

        def steps(b: Any, state: Any) -> Any:
            """The steps of the b-th group: what they need is fetched together, which is faster."""
            begin = first + b * group
            draws = jax.tree.map(lambda v: lax.dynamic_slice_in_dim(v, b * group, group), batches)
            fetch = lambda draw: oracles.source.batch(draw, batch_size)  # noqa: E731
            fetched = jax.vmap(fetch, axis_size=group)(draws)
            ready = (parameters(begin + jnp.arange(group)), fetched)

            def step(k: Any, state: Any) -> Any:
                now, batch = jax.tree.map(lambda v: v[k - begin], ready)
                return method.step(oracles, now, state, batch)

            low, high = jnp.maximum(k0, begin), jnp.minimum(k1, begin + group)
            return lax.fori_loop(low, high, step, state)

        def choose(condition: Any, new: Witness, old: Witness) -> Witness:
            return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)

        groups = ((k0 - first) // group, (k1 - first + group - 1) // group)
        state = lax.fori_loop(*groups, steps, carry.state)
        last = method.witness(oracles, parameters(k1 - 1), state)
        last = choose(k1 > k0, last, carry.last)
        return carry._replace(state=state, last=last, random=choose(keep, last, carry.random))

    return jax.vmap(one, in_axes=(0, shared_axis(oracles), 0))(carry, batches, keep)


def shared_axis(oracles: Oracles) -> int | None:
    """Batches of a Stream are the same for every replica."""
    return None if isinstance(oracles.source, (Arriving, NoData)) else 0


@functools.partial(jax.jit, static_argnames="batch_size")
def retune(context: Context, carry: Carry, tuner: tuning.Tuner, *, batch_size: int) -> Carry:
    """rho and mu of every replica, measured at its current point."""

    def one(carry: Carry) -> Carry:
        schedule, state = tuning.retune(
            context.oracles, context.method, carry.schedule, carry.state, carry.last,
            carry.reference, tuner, batch_size,
        )  # fmt: skip
        return carry._replace(schedule=schedule, state=state, reference=state.x)

    return jax.vmap(one)(carry)


@jax.jit
def refresh_anchor(context: Context, carry: Carry) -> Carry:
    """The SVRG anchor of every replica at its current point, by a full gradient."""

    def one(carry: Carry) -> Carry:
        momentum: Any = context.method.momentum
        state = carry.state
        memory = momentum.refresh(context.oracles, state.memory, state.x)
        return carry._replace(state=state._replace(memory=memory))

    return jax.vmap(one)(carry)


class Observation(NamedTuple):
    """What the host looks at between chunks, one value a replica."""

    objective: Any
    violation: Any
    proximity: Any  # ||x - y||
    length: Any  # ||x||
    finite: Any  # whether everything the next step needs is finite


@jax.jit
def observe(oracles: Oracles, carry: Carry, rows: PyTree) -> Observation:
    """`rows` stand for the data; None when all of it is looked at."""

    def one(carry: Carry) -> Observation:
        x = carry.state.x
        f = oracles.full_value(x) if rows is None else oracles.f(x, rows)
        leaves = jax.tree.leaves((carry.state, f, oracles.c(x)))
        return Observation(
            objective=f + oracles.regularizer(x),
            violation=oracles.violation(x),
            proximity=jnp.linalg.norm(x - carry.last.y),
            length=jnp.linalg.norm(x),
            finite=jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])),
        )

    return jax.vmap(one)(carry)


# On the host ------------------------------------------------------------------------------


class Events(NamedTuple):
    """Step numbers at which a chunk ends. They depend on K and on the method, on nothing else."""

    K: int
    trace_every: int
    retune_at: tuple[int, ...] = ()
    anchor_every: int = 0

    def next_stop(self, k: int, longest: int) -> int:
        stops = [self.K, k + longest, (k // self.trace_every + 1) * self.trace_every]
        stops += [step for step in self.retune_at if step > k][:1]
        if self.anchor_every:
            stops.append((k // self.anchor_every + 1) * self.anchor_every)
        return min(stops)

    def traced(self, k: int) -> bool:
        return k % self.trace_every == 0 or k == self.K


def group_size(context: Context, batch_size: int, length: int) -> int:
    """How many steps fetch their rows together: up to 8, while they stay in a core's cache."""
    source = context.oracles.source
    if isinstance(source, (Arriving, NoData)):
        return 1
    draw = jax.tree.map(lambda v: v[0], source.draw(keys.generator(0, Purpose.CHECK), 1, batch_size))
    batch = jax.eval_shape(lambda: source.batch(draw, batch_size))
    size = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(batch))
    fitting = CACHE // max(size * len(context.replicas), 1)
    return min(8, length, 1 << max(fitting, 1).bit_length() - 1)


class Loop:
    """A run on the host: where it stands, and how to take it to the next stop.

    The caller looks at it between stops and decides what to do; `solve` does.
    """

    def __init__(
        self, context: Context, events: Events, carry: Carry, draws: Draws, *, batch_size: int,
        tuner: Callable[[Carry, int], Carry] | None,
    ) -> None:  # fmt: skip
        self.context, self.events, self.carry, self.draws = context, events, carry, draws
        self.batch_size, self.tuner = batch_size, tuner
        self.group = group_size(context, batch_size, draws.length)
        self.k = 0
        self.longest = FIRST_CHUNK
        self.anchors = 0  # full gradients taken
        self._chunk: tuple[int, Carry, list[Block]] = (0, carry, [])

    def compile(self) -> None:
        """Everything that a step needs, without taking one."""
        block = self.draws.containing(self.k)
        if block is not None:
            jax.block_until_ready(self._advance(self.carry, block, self.k, self.k))

    def prepare_step(self) -> None:
        """What is due before step k: constants measured again, an anchor refreshed."""
        if self.tuner is not None and self.k in self.events.retune_at:
            self.carry = self.tuner(self.carry, self.k)
        if self.events.anchor_every and self.k % self.events.anchor_every == 0:
            self.carry = refresh_anchor(self.context, self.carry)
            self.anchors += 1

    def to_next_stop(self) -> bool:
        """Runs one chunk; False when a stream has ended."""
        self.prepare_step()
        k, carry, blocks = self.k, self.carry, []
        stop = self.events.next_stop(k, self.longest)
        began = time.perf_counter()
        while k < stop and (block := self.draws.containing(k)) is not None:
            blocks.append(block)
            end = block.next_kept(k, min(block.end, stop))
            # Dispatched, not waited for: the next block is drawn while this one runs.
            carry, k = self._advance(carry, block, k, end), end
        jax.block_until_ready(carry)
        if k > self.k:
            spent = max(time.perf_counter() - began, 1e-6)
            self.longest = max(FIRST_CHUNK, int(CHUNK_SECONDS * (k - self.k) / spent))
        self._chunk = (self.k, self.carry, blocks)
        self.carry, self.k = carry, k
        return k == stop

    def replay(self, until: int) -> Carry:
        """The last chunk again, only up to step `until`."""
        k, carry, blocks = self._chunk
        for block in blocks:
            end = min(block.end, until)
            if k < end:
                carry, k = self._advance(carry, block, k, end), end
        return carry

    def last_finite(self, replica: int) -> tuple[int, np.ndarray]:
        """The last step of the last chunk at which this replica was finite, and its point there.

        Steps are repeatable, so that bisection over the length of the chunk finds it.
        """
        low, high = self._chunk[0], self.k
        x = self._chunk[1].state.x[replica]
        while high - low > 1:
            middle = (low + high) // 2
            state = jax.tree.map(lambda leaf: np.asarray(leaf[replica]), self.replay(middle).state)
            if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state)):
                low, x = middle, state.x
            else:
                high = middle
        return low, np.asarray(x)

    def _advance(self, carry: Carry, block: Block, k0: int, k1: int) -> Carry:
        keep = block.kept[:, k1 - 1 - block.first] & (k1 > k0)
        return advance(
            self.context, carry, block.batches, block.first, keep, k0, k1,
            group=self.group, batch_size=self.batch_size,
        )  # fmt: skip
