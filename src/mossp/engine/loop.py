"""The only loop: chunks of steps, and what is due between them.

A chunk ends where the trace is due, where rho and mu are measured again, where an SVRG anchor is
refreshed, or after a quarter of a second; none of this changes the iterates. Replicas are shared
out over the cores: each shard has its own thread, and the compiled steps let go of Python's lock.

Everything that changes is a `Position`: the loop itself is made once, and takes one position to the
next.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from mossp._base import crew, keys
from mossp._base.types import PyTree
from mossp.certificates.certificate import Witness
from mossp.data import Source
from mossp.engine import steps
from mossp.engine.draws import Block, Draws
from mossp.engine.steps import Carry, Context, Observation
from mossp.measuring.step_sizes import Tuner

T = TypeVar("T")

CHUNK_SECONDS = 0.25  # how long Ctrl-C, a time budget or a progress bar may have to wait
FIRST_CHUNK = 256  # steps, before the speed is known
FETCHED = 2**25  # bytes of rows that are fetched together


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
        """At equal distances, and where constants are measured: more often in the beginning."""
        return k % self.trace_every == 0 or k == self.K or k in self.retune_at

    def anchored(self, k: int) -> bool:
        return bool(self.anchor_every) and k % self.anchor_every == 0


class Position(NamedTuple):
    """Where a run stands: all that its next step depends on."""

    k: int  # steps taken
    carries: tuple[Carry, ...] = ()  # of every shard; none before the steps have begun
    anchors: int = 0  # full gradients taken
    prepared: int = -1  # the step for which what is due has been done
    points: Any = None  # x of every replica where the steps have not begun


class Chunk(NamedTuple):
    """The steps that one shard took last, so that they can be taken again."""

    first: int
    carry: Carry  # before them
    blocks: list[Block]


class Advanced(NamedTuple):
    position: Position
    chunks: list[Chunk]  # of every shard
    longest: int  # steps that the next chunk may have
    ended: bool  # whether a stream has ended


def shard_sizes(replicas: int, one_reader: bool) -> list[int]:
    """Equal numbers of replicas for each core; the last shard may hold some that do not count.

    Equal, because shards of one size share one program. A Stream is read by one thread.
    """
    cores = 1 if one_reader or jax.default_backend() != "cpu" else available_cores()
    size = -(-replicas // min(cores, replicas))
    return [size] * -(-replicas // size)


def available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def group_size(source: Any, drawn: Source, replicas: int, batch_size: int, length: int) -> int:
    """How many steps fetch their rows together: 8, unless these take too much memory."""
    draws = drawn.draw(keys.generator(0, keys.Purpose.CHECK), 2, batch_size)

    def fetched(steps: int) -> int:
        """Bytes, together with what all rows share."""
        some = jax.tree.map(lambda v: v[:steps], draws)
        batches = jax.eval_shape(lambda: source.batches(some, batch_size))
        return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(batches))

    fitting = FETCHED // max((fetched(2) - fetched(1)) * replicas, 1)
    return min(8, length, 1 << max(fitting, 1).bit_length() - 1)


class Shard:
    """Some replicas, with all that it takes to run them."""

    def __init__(self, context: Context, draws: Draws, batch_size: int) -> None:
        self.context, self.draws, self.batch_size = context, draws, batch_size

    @functools.cached_property
    def group(self) -> int:
        """Steps that fetch their rows together; found when the first is taken, if one is."""
        source, draws = self.context.oracles.steps, self.draws
        if not source.gathers or draws.source.sequential:
            return 1
        return group_size(source, draws.source, draws.replicas, self.batch_size, draws.length)

    def advance(self, carry: Carry, k: int, stop: int) -> tuple[Carry, int, Chunk]:
        """Steps k, ..., stop - 1; the next step is before `stop` where a stream has ended."""
        chunk = Chunk(k, carry, [])
        while k < stop and (block := self.draws.containing(k)) is not None:
            chunk.blocks.append(block)
            end = block.next_kept(k, min(block.end, stop))
            # Dispatched, not waited for: the next block is drawn while this one runs.
            carry, k = self._steps(carry, block, k, end), end
        return jax.block_until_ready(carry), k, chunk

    def compile(self, carry: Carry, k: int) -> None:
        """Everything that a step needs, without taking one."""
        block = self.draws.containing(k)
        if block is not None:
            jax.block_until_ready(self._steps(carry, block, k, k))

    def observe(self, carry: Carry, rows: PyTree) -> Observation:
        values = np.asarray(steps.observe(self.context.oracles, carry, rows), np.float64)
        seen = Observation(*values)
        return seen._replace(finite=seen.finite == 1)

    def replay(self, chunk: Chunk, until: int) -> Carry:
        """A chunk again, only up to step `until`."""
        k, carry, blocks = chunk
        for block in blocks:
            end = min(block.end, until)
            if k < end:
                carry, k = self._steps(carry, block, k, end), end
        return carry

    def last_finite(
        self, chunk: Chunk, carry: Carry, place: int, k: int, rows: PyTree
    ) -> tuple[int, Any, Any]:
        """The last step before k after which all was finite for this replica, and its points.

        The second point is that of the step after it.

        Steps are repeatable, so that bisection over the length of the chunk finds it.
        """
        low, high = chunk.first, k
        x, after = (each.state.x[place] for each in (chunk.carry, carry))
        while high - low > 1:
            middle = (low + high) // 2
            again = self.replay(chunk, middle)
            if self.observe(again, rows).finite[place]:
                low, x = middle, again.state.x[place]
            else:
                high, after = middle, again.state.x[place]
        return low, np.asarray(x), np.asarray(after)

    def _steps(self, carry: Carry, block: Block, k0: int, k1: int) -> Carry:
        keep = block.kept[:, k1 - 1 - block.first] & (k1 > k0)
        return steps.advance(
            self.context, carry, block.batches, block.first, keep, k0, k1,
            group=self.group, batch_size=self.batch_size, shared=self.draws.shared,
        )  # fmt: skip


class Loop:
    """Takes a position to the next stop; the caller decides between stops what to do.

    Nothing is compiled before steps begin: `start(i, points)` makes the carry of shard i then.
    """

    def __init__(
        self, shards: list[Shard], replicas: int, events: Events, tuner: Tuner | None,
        start: Callable[[int, np.ndarray], Carry],
    ) -> None:  # fmt: skip
        self.shards, self.replicas, self.events, self.tuner = shards, replicas, events, tuner
        self._start = start
        self._pool = ThreadPoolExecutor(len(shards)) if len(shards) > 1 else None
        self._x64 = bool(jax.config.read("jax_enable_x64"))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def begun(self, at: Position) -> Position:
        """The position with the carries that steps need."""
        if at.carries:
            return at
        size = self.shards[0].draws.replicas
        # The last shard may hold replicas that do not count: any point will do for them.
        places = np.minimum(np.arange(size * len(self.shards)), self.replicas - 1)
        points = np.asarray(at.points)[places]
        carries = [
            self._start(i, points[i * size : (i + 1) * size]) for i in range(len(self.shards))
        ]
        return at._replace(carries=tuple(carries), points=None)

    def compile(self, at: Position) -> Position:
        """All that steps need; what is due before the first one is done by the way."""
        at = self.prepare_step(self.begun(at))
        self.shards[0].compile(at.carries[0], at.k)  # the others share its program
        return at

    def prepare_step(self, at: Position) -> Position:
        """What is due before step k: constants measured again, an anchor refreshed."""
        tune = self.tuner is not None and at.k in self.events.retune_at
        anchor = self.events.anchored(at.k)
        if at.k == at.prepared or not (tune or anchor):
            return at

        def prepare(shard: Shard, carry: Carry) -> Carry:
            if tune and self.tuner is not None:
                tuner = self.tuner._replace(k=np.asarray(at.k, np.int32))
                carry = steps.retune(shard.context, carry, tuner, batch_size=shard.batch_size)
            if anchor:
                carry = steps.refresh_anchor(shard.context, carry)
            return carry

        first = prepare(self.shards[0], at.carries[0])  # compiles
        others = self._each(prepare, self.shards[1:], at.carries[1:])
        return Position(at.k, (first, *others), at.anchors + anchor, at.k)

    def advance(self, at: Position, longest: int) -> Advanced:
        """One chunk of at most `longest` steps."""
        at = self.prepare_step(self.begun(at))
        stop = self.events.next_stop(at.k, longest)
        began = time.perf_counter()
        done = self._each(lambda shard, c: shard.advance(c, at.k, stop), self.shards, at.carries)
        carries, (k, *_), chunks = zip(*done, strict=True)
        if k > at.k:
            spent = max(crew.of_first(time.perf_counter() - began), 1e-6)
            longest = max(FIRST_CHUNK, int(CHUNK_SECONDS * (k - at.k) / spent))
        return Advanced(at._replace(k=k, carries=carries), list(chunks), longest, k < stop)

    def _each(self, function: Callable[[Shard, Carry], T], shards: Any, carries: Any) -> list[T]:
        """The function of every shard and its carry, each in its own thread."""
        if self._pool is None or len(shards) < 2:
            return [function(shard, carry) for shard, carry in zip(shards, carries, strict=True)]

        def with_precision(shard: Shard, carry: Carry) -> T:
            with jax.enable_x64(self._x64):  # the setting is a thread's own
                return function(shard, carry)

        return list(self._pool.map(with_precision, shards, carries))

    # What the caller sees: arrays with one entry per replica --------------------------------

    def observe(self, at: Position, rows: PyTree) -> Observation:
        each = zip(self.shards, self.begun(at).carries, strict=True)
        return self.joined([shard.observe(carry, rows) for shard, carry in each])

    def carry(self, at: Position) -> Carry:
        return self.joined([jax.device_get(carry) for carry in self.begun(at).carries])

    def points(self, at: Position) -> np.ndarray:
        """x of every replica."""
        return self.carry(at).state.x if at.carries else np.array(at.points)

    def witnesses(self, at: Position) -> tuple[Witness, Witness]:
        """Of the last step and of a random one; before the first, those of the points."""
        if at.carries:
            carry = self.carry(at)
            return carry.last, carry.random
        x, m = np.array(at.points), self.shards[0].context.oracles.m
        lam, rho = np.zeros((len(x), m), x.dtype), np.zeros(len(x), x.dtype)
        zero = np.zeros(x.shape, x.dtype)  # takes memory only where it is written to
        witness = Witness(x, x, zero, zero, lam, rho)
        return witness, witness

    def joined(self, parts: list[PyTree]) -> PyTree:
        """Shards after one another, without the replicas that do not count."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: self.replicas], *parts)

    def at(self, fresh: Position, carry: Carry, k: int, anchors: int) -> Position:
        """The position of a saved run; replicas that do not count keep their fresh carry."""
        size = self.shards[0].draws.replicas

        def mine(number: int, own: Carry) -> Carry:
            def take(saved: np.ndarray, own: Any) -> Any:
                part = saved[number * size : (number + 1) * size]
                return jax.numpy.asarray(np.concatenate([part, np.asarray(own)[len(part) :]]))

            return jax.tree.map(take, carry, own)

        carries = self.begun(fresh).carries
        return Position(k, tuple(mine(i, own) for i, own in enumerate(carries)), anchors)

    def last_finite(
        self, at: Position, chunks: list[Chunk], replica: int, rows: PyTree
    ) -> tuple[int, Any, Any]:
        number, place = divmod(replica, self.shards[0].draws.replicas)
        return self.shards[number].last_finite(
            chunks[number], at.carries[number], place, at.k, rows
        )
