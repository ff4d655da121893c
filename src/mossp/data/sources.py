"""Data that is not a finite set of rows: a sampler in JAX, a stream from the host, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from mossp._base.keys import Purpose, generator, jax_keys
from mossp._base.module import Module
from mossp._base.structure import with_dtype
from mossp._base.types import PyTree
from mossp.data.protocol import Compiled, Source, stack

STREAM_BLOCK = 64  # batches of a Stream that are held at a time
STREAM_LOOKS = 4  # batches of a Stream that are measured without being used up


class Sampler(Module, Source):
    """Samples made in JAX: `fn(key, batch_size)` returns a batch.

    Parameters
    ----------
    fn : callable
        (key, batch size) -> a batch, a pytree of arrays with a common leading axis.

    Examples
    --------
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

    @property
    def function(self) -> Callable[[jax.Array, int], PyTree]:
        return self.fn

    def astype(self, dtype: Any) -> Sampler:
        return with_dtype(self, dtype)

    def compiled(self, function: Any) -> Sampler:
        return Sampler(function)

    def batch_shapes(self, size: int) -> PyTree:
        def make() -> PyTree:  # a fresh function: JAX remembers what it has seen of an old one
            return self.fn(jax_keys(generator(0, Purpose.CHECK)), size)

        return jax.eval_shape(make)

    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        keys = jax_keys(generator(0, Purpose.CHECK), (count,))
        return [self.fn(key, rows) for key in keys]

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> jax.Array:
        return jax_keys(rng, (count,))

    def batch(self, draw: jax.Array, batch_size: int) -> PyTree:
        return self.fn(draw, batch_size)

    def batches(self, draws: jax.Array, batch_size: int) -> PyTree:
        return jax.vmap(lambda draw: self.fn(draw, batch_size))(draws)


class NoData(Module, Source):
    """A deterministic loss(x): every gradient is a full one, a finite sum of one term."""

    @property
    def finite_sum(self) -> bool:
        return True

    @property
    def deterministic(self) -> bool:
        return True

    @property
    def gathers(self) -> bool:
        return False

    def shapes(self) -> list[tuple[PyTree, ...]]:
        return [()]

    def batch_shapes(self, size: int) -> None:
        return None

    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        return [None] * count

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> None:
        return None

    def batch(self, draw: None, batch_size: int) -> None:
        return None

    def batches(self, draws: None, batch_size: int) -> None:
        return None

    def mean(self, function: Callable[[None], PyTree]) -> PyTree:
        return function(None)


class Arriving(Module, Compiled):
    """What the compiled loop sees of a Stream: each draw is a batch that came from the host."""

    @property
    def gathers(self) -> bool:
        return False

    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        return draw

    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        return draws


class Stream(Source):
    """Batches from the host: any iterable of pytrees of arrays with a common leading axis.

    A list or a data loader is started again when it ends; a generator ends the run when it ends.
    All batches have the size of the first one; a shorter one, such as the last of an epoch, is
    left out. Every replica sees the same batches.

    Parameters
    ----------
    iterable : iterable
        Of batches.

    Examples
    --------
    >>> stream = Stream([np.ones((4, 2)), np.zeros((4, 2)), np.ones((1, 2))])
    >>> [float(batch.sum()) for batch in stream.take(3)]
    [8.0, 0.0, 8.0]
    """

    def __init__(self, iterable: Iterable[PyTree]):
        self._reader = Reader(iterable)
        self._dtype: Any = None  # that of the user's own arrays

    @property
    def batch_size(self) -> int | None:
        """Rows of every batch; None before the first one has been looked at."""
        return self._reader.batch_size

    @property
    def sequential(self) -> bool:
        return True

    @property
    def rows_per_batch(self) -> int | None:
        self._reader.peek(1)
        return self._reader.batch_size

    def most_held(self, batch_size: int) -> int:
        return STREAM_BLOCK

    def astype(self, dtype: Any) -> Stream:
        """The same batches, from the same reader, as arrays of JAX in this precision."""
        view = object.__new__(Stream)
        view._reader, view._dtype = self._reader, dtype
        return view

    def compiled(self, function: Any) -> Arriving:
        return Arriving()

    def shapes(self) -> list[tuple[PyTree, ...]]:
        if self._reader.first is None:
            self._reader.peek(1)
        size = self._reader.batch_size or 1
        return [(self.batch_shapes(times * size),) for times in (1, 2)]

    def batch_shapes(self, size: int) -> PyTree:
        def shape(a: Any) -> Any:
            return jax.ShapeDtypeStruct((size, *a.shape[1:]), a.dtype)

        return jax.tree.map(shape, self._converted(self._reader.first))

    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        """The next `count` batches, left in the stream; fewer if it ends before."""
        return [self._converted(batch) for batch in self._reader.peek(count)]

    def some_rows(self, count: int) -> PyTree:
        size = self.rows_per_batch or 1
        batches = self.peek(max(1, min(-(-count // size), STREAM_BLOCK)))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *batches)

    def take(self, count: int) -> list[PyTree]:
        """The next `count` batches; fewer when a generator has ended."""
        return [self._converted(batch) for batch in self._reader.take(count)]

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> PyTree:
        batches = self._reader.take(count)
        return self._converted(stack(batches)) if batches else None

    def sample(self, rng: np.random.Generator, count: int, batch_size: int) -> PyTree:
        return self._converted(stack(self._reader.peek(min(count, STREAM_LOOKS))))

    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        return draw

    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        return draws

    def _converted(self, batch: PyTree) -> PyTree:
        return batch if self._dtype is None else with_dtype(batch, self._dtype)


class Reader:
    """The place in a user's iterable, which all views of a Stream share."""

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
        self.first: PyTree = None  # no rows, in the shape of the first batch: it may have ended

    def peek(self, count: int) -> list[PyTree]:
        self._held = self.take(max(count, len(self._held)))
        if not self._held:
            raise ValueError("The stream has no batch: give an iterable with at least one.")
        return self._held[:count]

    def take(self, count: int) -> list[PyTree]:
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
                if self.batch_size is None:
                    self.batch_size = size
                    self.first = jax.tree.map(lambda a: np.empty((0, *a.shape[1:]), a.dtype), batch)
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
