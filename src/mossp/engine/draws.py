"""The random choices of the steps, a block of consecutive steps at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import keys
from mossp._base.keys import Purpose
from mossp._base.structure import with_dtype
from mossp.data import NoData, Stream

PyTree = Any

STREAM_BLOCK = 64  # batches of a Stream that are held at a time
LARGEST_BLOCK = 2**22  # indices in a block


def block_length(batch_size: int) -> int:
    """Steps in a block: 4096, or fewer where their indices would take too much memory.

    >>> block_length(32), block_length(100_000)
    (4096, 32)
    """
    fitting = max(LARGEST_BLOCK // batch_size, 1)
    return min(keys.BLOCK, 1 << (fitting.bit_length() - 1))


class Block(NamedTuple):
    """What consecutive steps are made from."""

    first: int  # the number of the first step
    end: int  # the number of the step after the last one
    batches: PyTree  # replica x step, or step alone where all replicas share them (a Stream)
    kept: np.ndarray  # replica x step: whether the step replaces the random output kept so far

    def next_kept(self, k: int, stop: int) -> int:
        """The step after the next one that some replica keeps, or `stop` if none comes before."""
        ahead = np.flatnonzero(self.kept[:, k - self.first : stop - self.first].any(axis=0))
        return k + int(ahead[0]) + 1 if ahead.size else stop


class Draws:
    """Blocks by step number; the last one is kept, since a chunk may end inside it."""

    def __init__(
        self, source: Any, seed: int, first: int, replicas: int, batch_size: int, dtype: Any,
        shared: bool = False,
    ) -> None:  # fmt: skip
        """For replicas first, ..., first + replicas - 1; `shared`: all see those of replica 0."""
        self.source, self.seed, self.first, self.replicas = source, seed, first, replicas
        self.batch_size, self.dtype = batch_size, dtype
        streamed = isinstance(source, Stream)
        self.shared = shared or streamed or isinstance(source, NoData)
        self.length = STREAM_BLOCK if streamed else block_length(batch_size)
        self._current: Block | None = None

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.replicas)

    def containing(self, k: int) -> Block | None:
        """The block with step k; None when a stream has ended."""
        block = self._current
        if block is None or not block.first <= k < block.end:
            self._current = self._make(k)
        return self._current

    def _make(self, k: int) -> Block | None:
        if isinstance(self.source, Stream):
            return self._from_stream(k, self.source)
        b = k // self.length
        batches = [
            self.source.draw(self._rng(Purpose.STEPS, r, b), self.length, self.batch_size)
            for r in ([0] if self.shared else self.numbers)
        ]
        joined = batches[0] if self.shared else stack(batches)
        stacked = jax.tree.map(jnp.asarray, joined)
        first = b * self.length
        return Block(first, first + self.length, stacked, self._kept(first))

    def _from_stream(self, k: int, stream: Stream) -> Block | None:
        batches = stream.take(self.length)
        if not batches:
            return None
        # The last block may be short: it is filled up, so that its shape stays.
        filled = batches + [batches[-1]] * (self.length - len(batches))
        return Block(k, k + len(batches), with_dtype(stack(filled), self.dtype), self._kept(k))

    def _kept(self, first: int) -> np.ndarray:
        """Step k replaces the kept one with probability 1/(k + 1): all are equally likely."""
        uniforms = [self._rng(Purpose.OUTPUT, r, first).random(self.length) for r in self.numbers]
        return np.stack(uniforms) * (first + 1 + np.arange(self.length)) < 1

    def _rng(self, purpose: Purpose, replica: int, number: int) -> np.random.Generator:
        return keys.generator(self.seed, purpose, replica, number)


def stack(trees: list[PyTree]) -> PyTree:
    """Trees of arrays, or of keys for jax.random, along a new leading axis."""

    def join(*leaves: Any) -> Any:
        if isinstance(leaves[0], jax.Array):
            data: Any = np.stack([np.asarray(jax.random.key_data(leaf)) for leaf in leaves])
            return jax.random.wrap_key_data(data)
        return np.stack(leaves)

    return jax.tree.map(join, *trees)
