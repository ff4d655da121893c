"""Data that is not a finite set of rows: a sampler in JAX, a stream from the host, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from mossp._base.keys import jax_keys
from mossp._base.module import Module

PyTree = Any


class Sampler(Module):
    """Samples made in JAX: `fn(key, batch_size)` returns a batch.

    >>> import jax
    >>> gaussian = Sampler(lambda key, size: jax.random.normal(key, (size, 3)))
    >>> gaussian.batch(jax.random.key(0), 5).shape
    (5, 3)
    """

    fn: Callable[[jax.Array, int], PyTree]

    def __check_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(
                "Sampler needs a function fn(key, batch_size) -> batch, but got "
                f"{type(self.fn).__name__}."
            )

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> jax.Array:
        return jax_keys(rng, (count,))

    def batch(self, draw: jax.Array, batch_size: int) -> PyTree:
        return self.fn(draw, batch_size)

    def batches(self, draws: jax.Array, batch_size: int) -> PyTree:
        return jax.vmap(lambda draw: self.fn(draw, batch_size))(draws)


class NoData(Module):
    """A deterministic loss(x): every gradient is exact."""

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> None:
        return None

    def batch(self, draw: None, batch_size: int) -> None:
        return None

    def batches(self, draws: None, batch_size: int) -> None:
        return None

    def mean(self, function: Callable[[None], PyTree]) -> PyTree:
        return function(None)


class Arriving(Module):
    """What the compiled loop sees of a Stream: each draw is a batch that came from the host."""

    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        return draw

    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        return draws


class Stream:
    """Batches from the host: any iterable of pytrees of arrays with a common leading axis.

    A list or a data loader is started again when it ends; a generator ends the run when it ends.
    All batches have the size of the first one; a shorter one, such as the last of an epoch, is
    left out. Every replica sees the same batches.

    >>> stream = Stream([np.ones((4, 2)), np.zeros((4, 2)), np.ones((1, 2))])
    >>> [float(batch.sum()) for batch in stream.take(3)]
    [8.0, 0.0, 8.0]
    """

    def __init__(self, iterable: Iterable[PyTree]):
        try:
            self._iterator: Iterator[PyTree] = iter(iterable)
        except TypeError:  # an array without an axis has the method, but no entries
            raise TypeError(
                f"Stream needs an iterable of batches, but got {type(iterable).__name__}."
            ) from None
        self._iterable = iterable
        self._held: list[PyTree] = []
        self.batch_size: int | None = None

    def peek(self, count: int = 1) -> list[PyTree]:
        """The next `count` batches, left in the stream; fewer if it ends before."""
        self._held = self.take(max(count, len(self._held)))
        if not self._held:
            raise ValueError("The stream has no batch: give an iterable with at least one.")
        return self._held[:count]

    def take(self, count: int) -> list[PyTree]:
        """The next `count` batches; fewer when a generator has ended."""
        taken, self._held = self._held[:count], self._held[count:]
        while len(taken) < count:
            batch = self._next()
            if batch is None:
                break
            taken.append(batch)
        return taken

    def _next(self) -> PyTree | None:
        restarts = 0
        while restarts < 2:
            for given in self._iterator:
                batch = jax.tree.map(np.array, given)  # a copy: loaders fill one buffer again
                size = checked_rows_of(batch)
                self.batch_size = self.batch_size or size
                if size == self.batch_size:
                    return batch
            again = iter(self._iterable)
            if again is self._iterator:  # a generator: it has ended for good
                return None
            self._iterator, restarts = again, restarts + 1
        return None


def checked_rows_of(batch: PyTree) -> int:
    """The number of rows of a batch, all of whose arrays are finite and have as many."""
    leaves = jax.tree.leaves(batch)
    sizes = {len(a) if a.ndim else 0 for a in leaves}
    if len(sizes) != 1 or sizes == {0}:
        raise ValueError(
            "A batch of the stream must hold arrays with the same number of rows, but its shapes "
            f"are {[a.shape for a in leaves]}."
        )
    if any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in leaves):
        raise ValueError("A batch of the stream has NaN or infinite values.")
    return sizes.pop()
