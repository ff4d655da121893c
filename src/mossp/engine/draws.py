"""The random choices of the steps, a block of consecutive steps at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base import keys
from mossp._base.device import on_device
from mossp._base.keys import Purpose
from mossp._base.types import PyTree
from mossp.data import Source, count_draws, filled, stack

LARGEST_BLOCK = 2**22  # indices in a block


def block_length(batch_size: int) -> int:
    """Steps in a block: 4096, or fewer where their indices would take too much memory.

    Examples
    --------
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
        self, source: Source, seed: int, first: int, replicas: int, batch_size: int, dtype: Any,
        shared: bool = False,
    ) -> None:  # fmt: skip
        """For replicas first, ..., first + replicas - 1; `shared`: all see those of replica 0."""
        self.source = source.astype(dtype) if source.sequential else source
        self.seed, self.first, self.replicas, self.batch_size = seed, first, replicas, batch_size
        self.shared = shared or source.sequential or source.deterministic
        self.length = source.most_held(batch_size) or block_length(batch_size)
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
        if self.source.sequential:
            return self._next(k)
        b = k // self.length
        batches = [
            self.source.draw(self._rng(Purpose.STEPS, r, b), self.length, self.batch_size)
            for r in ([0] if self.shared else self.numbers)
        ]
        joined = batches[0] if self.shared else stack(batches)
        stacked = jax.tree.map(on_device, joined)
        first = b * self.length
        return Block(first, first + self.length, stacked, self._kept(first))

    def _next(self, k: int) -> Block | None:
        """Of what comes in one order; the last block may be short, and is filled up."""
        draws = self.source.draw(self._rng(Purpose.STEPS, 0, k), self.length, self.batch_size)
        if draws is None:
            return None
        batches = jax.tree.map(on_device, filled(draws, self.length))
        return Block(k, k + count_draws(draws), batches, self._kept(k))

    def _kept(self, first: int) -> np.ndarray:
        """Step k replaces the kept one with probability 1/(k + 1): all are equally likely."""
        uniforms = [self._rng(Purpose.OUTPUT, r, first).random(self.length) for r in self.numbers]
        return np.stack(uniforms) * (first + 1 + np.arange(self.length)) < 1

    def _rng(self, purpose: Purpose, replica: int, number: int) -> np.random.Generator:
        return keys.generator(self.seed, purpose, replica, number)
