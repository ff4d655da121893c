"""The only loop: chunks of steps, and what is due between them.

A chunk ends where the trace is due, where rho and mu are measured again, where an SVRG anchor is
refreshed, or after a quarter of a second; none of this changes the iterates. Replicas are shared
out over the cores: each shard has its own thread, and the compiled steps let go of Python's lock.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base import keys
from mossp.engine import steps
from mossp.engine.draws import Block, Draws
from mossp.engine.steps import Carry, Context, Observation

PyTree = Any

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


def group_size(source: Any, replicas: int, batch_size: int, length: int) -> int:
    """How many steps fetch their rows together: 8, unless these take too much memory."""
    if not source.gathers:
        return 1
    draws = source.draw(keys.generator(0, keys.Purpose.CHECK), 1, batch_size)
    draw = jax.tree.map(lambda v: v[0], draws)
    batch = jax.eval_shape(lambda: source.batch(draw, batch_size))
    size = sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(batch))
    fitting = FETCHED // max(size * replicas, 1)
    return min(8, length, 1 << max(fitting, 1).bit_length() - 1)


def observation(context: Context, carry: Carry, rows: PyTree) -> Observation:
    values = np.asarray(steps.observe(context.oracles, carry, rows), np.float64)
    seen = Observation(*values)
    return seen._replace(finite=seen.finite == 1)


class Shard:
    """Some replicas, with all that it takes to run them."""

    def __init__(self, context: Context, carry: Carry, draws: Draws, batch_size: int) -> None:
        self.context, self.carry, self.draws, self.batch_size = context, carry, draws, batch_size
        source = context.oracles.source
        self.group = group_size(source, draws.replicas, batch_size, draws.length)
        self._chunk: tuple[int, Carry, list[Block]] = (0, carry, [])

    def advance(self, k: int, stop: int) -> int:
        """Steps k, ..., stop - 1; returns the next step, before `stop` if a stream has ended."""
        began, carry, blocks = k, self.carry, []
        while k < stop and (block := self.draws.containing(k)) is not None:
            blocks.append(block)
            end = block.next_kept(k, min(block.end, stop))
            # Dispatched, not waited for: the next block is drawn while this one runs.
            carry, k = self._steps(carry, block, k, end), end
        self._chunk = (began, self.carry, blocks)
        self.carry = jax.block_until_ready(carry)
        return k

    def compile(self, k: int) -> None:
        """Everything that a step needs, without taking one."""
        block = self.draws.containing(k)
        if block is not None:
            jax.block_until_ready(self._steps(self.carry, block, k, k))

    def replay(self, until: int) -> Carry:
        """The last chunk again, only up to step `until`."""
        k, carry, blocks = self._chunk
        for block in blocks:
            end = min(block.end, until)
            if k < end:
                carry, k = self._steps(carry, block, k, end), end
        return carry

    def last_finite(self, place: int, k: int, rows: PyTree) -> tuple[int, Any, Any]:
        """The last step before k after which all was finite for this replica, and its points.

        The second point is that of the step after it.

        Steps are repeatable, so that bisection over the length of the last chunk finds it.
        """
        low, high = self._chunk[0], k
        x, after = (carry.state.x[place] for carry in (self._chunk[1], self.carry))
        while high - low > 1:
            middle = (low + high) // 2
            carry = self.replay(middle)
            if observation(self.context, carry, rows).finite[place]:
                low, x = middle, carry.state.x[place]
            else:
                high, after = middle, carry.state.x[place]
        return low, np.asarray(x), np.asarray(after)

    def _steps(self, carry: Carry, block: Block, k0: int, k1: int) -> Carry:
        keep = block.kept[:, k1 - 1 - block.first] & (k1 > k0)
        return steps.advance(
            self.context, carry, block.batches, block.first, keep, k0, k1,
            group=self.group, batch_size=self.batch_size, shared=self.draws.shared,
        )  # fmt: skip


class Loop:
    """A run on the host: where it stands, and how to take it to the next stop.

    The caller looks at it between stops and decides what to do; `solve` does.
    """

    def __init__(
        self, shards: list[Shard], replicas: int, events: Events,
        tuner: Callable[[Context, Carry, int], Carry] | None,
    ) -> None:  # fmt: skip
        self.shards, self.replicas, self.events, self.tuner = shards, replicas, events, tuner
        self.k = 0
        self.anchors = 0  # full gradients taken
        self.prepared = -1  # the step for which all that is due has been done
        self.longest = FIRST_CHUNK
        self._pool = ThreadPoolExecutor(len(shards)) if len(shards) > 1 else None
        self._x64 = bool(jax.config.read("jax_enable_x64"))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def compile(self) -> None:
        """All that steps need; what is due before the first one is done by the way."""
        self.prepare_step()
        self.shards[0].compile(self.k)  # the others share its program

    def prepare_step(self) -> None:
        """What is due before step k: constants measured again, an anchor refreshed."""
        tune = self.tuner is not None and self.k in self.events.retune_at
        anchor = bool(self.events.anchor_every) and self.k % self.events.anchor_every == 0
        if self.k == self.prepared or not (tune or anchor):
            return
        self.prepared = self.k

        def prepare(shard: Shard) -> None:
            if tune and self.tuner is not None:
                shard.carry = self.tuner(shard.context, shard.carry, self.k)
            if anchor:
                shard.carry = steps.refresh_anchor(shard.context, shard.carry)

        self.anchors += anchor
        prepare(self.shards[0])  # compiles
        self.each(prepare, self.shards[1:])

    def to_next_stop(self) -> bool:
        """Runs one chunk; False when a stream has ended."""
        self.prepare_step()
        stop = self.events.next_stop(self.k, self.longest)
        began = time.perf_counter()
        k = self.each(lambda shard: shard.advance(self.k, stop), self.shards)[0]
        if k > self.k:
            spent = max(time.perf_counter() - began, 1e-6)
            self.longest = max(FIRST_CHUNK, int(CHUNK_SECONDS * (k - self.k) / spent))
        self.k = k
        return k == stop

    def each(self, function: Callable[[Shard], Any], shards: list[Shard]) -> list[Any]:
        """The function of every shard, each in its own thread."""
        if self._pool is None or len(shards) < 2:
            return [function(shard) for shard in shards]

        def with_precision(shard: Shard) -> Any:
            with jax.enable_x64(self._x64):  # the setting is a thread's own
                return function(shard)

        return list(self._pool.map(with_precision, shards))

    # What the caller sees: arrays with one entry a replica ---------------------------------

    def observe(self, rows: PyTree) -> Observation:
        return self.joined([observation(s.context, s.carry, rows) for s in self.shards])

    def carry(self) -> Carry:
        return self.joined([jax.device_get(shard.carry) for shard in self.shards])

    def joined(self, parts: list[PyTree]) -> PyTree:
        """Shards after one another, without the replicas that do not count."""
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: self.replicas], *parts)

    def restart_from(self, carry: Carry, k: int, anchors: int) -> None:
        """Take up a saved run; replicas that do not count keep their own carry."""
        size = self.shards[0].draws.replicas

        def take(begin: int, saved: np.ndarray, own: Any) -> Any:
            mine = saved[begin : begin + size]
            return jax.numpy.asarray(np.concatenate([mine, np.asarray(own)[len(mine) :]]))

        for number, shard in enumerate(self.shards):
            shard.carry = jax.tree.map(functools.partial(take, number * size), carry, shard.carry)
        self.k, self.anchors = k, anchors

    def last_finite(self, replica: int, rows: PyTree) -> tuple[int, Any, Any]:
        number, place = divmod(replica, self.shards[0].draws.replicas)
        return self.shards[number].last_finite(place, self.k, rows)
