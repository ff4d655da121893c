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
from mossp.keys import BLOCK
from mossp.certificate import Witness
from mossp.methods.base import Method
from mossp.problem import Oracles
from mossp.schedules import Schedule

PyTree = Any
Vector = Any

CHUNK_SECONDS = 0.25  # how long Ctrl-C, a time budget or a progress bar may have to wait
FIRST_CHUNK = 256  # steps, before the speed is known
STREAM_CHUNK = 64  # batches of a Stream that are held at a time


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
    seed: Any
    replicas: Any  # their numbers
    first_alpha: Any  # weight of the first mini-batch: B / b0


# Compiled ---------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames="batch_size")
def start(
    context: Context, schedule: Schedule, x0: Vector, batches: Any, given: Any, *, batch_size: int
) -> Carry:
    """The carry before the first step: d0 is the mean over `batches` mini-batches."""

    def one(replica: Any) -> Carry:
        oracles = context.oracles

        def add(j: Any, d: Vector) -> Vector:
            if given is None:
                key = keys.key(context.seed, keys.Purpose.INITIAL, replica, j)
                draw = jax.tree.map(lambda v: v[0], oracles.source.draw(key, 1, batch_size))
            else:
                draw = jax.tree.map(lambda v: v[j], given)
            return d + oracles.gradient(x0, oracles.source.batch(draw, batch_size))

        d0 = lax.fori_loop(0, batches, add, jnp.zeros_like(x0)) / jnp.maximum(batches, 1)
        zero, lam = jnp.zeros_like(x0), jnp.zeros(oracles.m, x0.dtype)
        witness = Witness(x0, x0, zero, zero, lam, jnp.zeros((), x0.dtype))
        state = context.method.init(oracles, x0, d0)
        return Carry(state, schedule, witness, witness, x0)

    return jax.vmap(one)(context.replicas)


@functools.partial(jax.jit, static_argnames="batch_size")
def advance(
    context: Context, carry: Carry, k0: Any, k1: Any, given: Any = None, *, batch_size: int
) -> Carry:
    """Steps k0, ..., k1 - 1 of every replica; `given` holds the batches of a Stream."""
    oracles, method = context.oracles, context.method

    def step(k: Any, carry: Carry, draw: Any, uniform: Any) -> Carry:
        parameters = carry.schedule.at(k)
        parameters = parameters._replace(
            alpha=jnp.where(k == 0, context.first_alpha, parameters.alpha)
        )
        batch = oracles.source.batch(draw, batch_size)
        state, last = method.step(oracles, parameters, carry.state, batch)
        # The k-th step replaces the kept one with probability 1/(k + 1): all are equally likely.
        keep = uniform * (k + 1) < 1
        random = jax.tree.map(lambda new, old: jnp.where(keep, new, old), last, carry.random)
        return carry._replace(state=state, last=last, random=random)

    def block(b: Any, carry: Carry, replica: Any) -> Carry:
        key = keys.key(context.seed, keys.Purpose.STEPS, replica, b)
        for_draws, for_output = jax.random.split(key)
        uniforms = jax.random.uniform(for_output, (BLOCK,))
        if given is None:
            draws, offset = oracles.source.draw(for_draws, BLOCK, batch_size), b * BLOCK
        else:
            draws, offset = given, k0

        def body(k: Any, carry: Carry) -> Carry:
            draw = jax.tree.map(lambda v: v[k - offset], draws)
            return step(k, carry, draw, uniforms[k - b * BLOCK])

        return lax.fori_loop(jnp.maximum(k0, b * BLOCK), jnp.minimum(k1, (b + 1) * BLOCK), body, carry)

    def one(carry: Carry, replica: Any) -> Carry:
        blocks = (k0 // BLOCK, (k1 + BLOCK - 1) // BLOCK)
        return lax.fori_loop(*blocks, lambda b, c: block(b, c, replica), carry)

    return jax.vmap(one)(carry, context.replicas)


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


def trace_interval(K: int) -> int:
    """About 50 points; whole blocks of random numbers where the run is long enough.

    >>> trace_interval(500), trace_interval(25_000), trace_interval(100_000)
    (10, 1024, 2048)
    """
    interval = max(1, K // 50)
    return interval if interval < BLOCK // 4 else -(-interval // BLOCK) * BLOCK


class Loop:
    """A run on the host: where it stands, and how to take it to the next stop.

    The caller looks at it between stops and decides what to do; `solve` does.
    """

    def __init__(
        self, context: Context, events: Events, carry: Carry, *, k: int, batch_size: int,
        tuner: Callable[[Carry, int], Carry] | None, stream: Callable[[int], Any] | None,
    ) -> None:  # fmt: skip
        self.context, self.events, self.carry, self.k = context, events, carry, k
        self.batch_size, self.tuner, self.stream = batch_size, tuner, stream
        self.longest = FIRST_CHUNK if stream is None else STREAM_CHUNK
        self.anchors = 0  # full gradients taken

    def compile(self) -> None:
        """Everything that a step needs, without taking one."""
        if self.stream is None:
            jax.block_until_ready(self._advance(self.carry, self.k, self.k, None))

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
        k1, given = self.events.next_stop(self.k, self.longest), None
        if self.stream is not None:
            given = self.stream(k1 - self.k)
            if given is None:
                return False
            k1 = self.k + len(jax.tree.leaves(given)[0])
        began = time.perf_counter()
        carry = jax.block_until_ready(self._advance(self.carry, self.k, k1, given))
        spent = max(time.perf_counter() - began, 1e-6)
        if self.stream is None:
            fitting = int(CHUNK_SECONDS * (k1 - self.k) / spent)
            self.longest = max(FIRST_CHUNK, fitting // BLOCK * BLOCK or fitting)
        self.replay = functools.partial(self._replay, self.carry, self.k, given)
        self.carry, self.k = carry, k1
        return True

    def _advance(self, carry: Carry, k0: int, k1: int, given: Any) -> Carry:
        return advance(self.context, carry, k0, k1, given, batch_size=self.batch_size)

    def _replay(self, carry: Carry, k0: int, given: Any, k: int) -> tuple[int, Carry]:
        """(k0, the carry) when the last chunk is stopped before step k."""
        return k0, self._advance(carry, k0, min(k, self.k), given)


def last_finite(loop: Loop, replica: int) -> tuple[int, np.ndarray]:
    """The last step of the last chunk at which this replica was finite, and its point there.

    Steps are repeatable, so that bisection over the length of the chunk finds it.
    """
    low, carry = loop.replay(0)
    high, x = loop.k, carry.state.x[replica]
    while high - low > 1:
        middle = (low + high) // 2
        carry = loop.replay(middle)[1]
        values = [leaf[replica] for leaf in jax.tree.leaves(carry.state)]
        if all(bool(jnp.all(jnp.isfinite(v))) for v in values):
            low, x = middle, carry.state.x[replica]
        else:
            high = middle
    return low, np.asarray(x)
