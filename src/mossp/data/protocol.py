"""What every source of samples can do: the one protocol between data and the rest of the library.

A mini-batch is made in two steps. `draw` runs on the host and decides, for many steps at once, what
they will see (indices, random keys, or the batches themselves); `batch` runs inside compiled code
and turns one such draw into rows. A source that can pass over all of its rows has `mean`, too, and
full gradients with it.

                rows    finite_sum   sequential   a draw is         a batch is
    Finite      N       yes          no           indices           rows by these indices
    OnDisk      N       yes          no           rows, as read     the draw
    Sharded     N       yes          no           rows, from all    the draw
    Sampler     None    no           no           a random key      what the user's function makes
    Stream      None    no           yes          the batch itself  the draw
    NoData      None    yes          no           None              None: the loss is loss(x)

Callers ask what a source can do, never what it is.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mossp._base.device import on_device
from mossp._base.types import PyTree

# Rows of the batches that a loss is traced with: what differs between them depends on the size.
PROBED_SIZES = (4, 7)


class Compiled(abc.ABC):
    """What compiled code sees of a source: a pytree that makes rows from draws."""

    @property
    def finite_sum(self) -> bool:
        """Whether f is a finite sum, so that `mean` is there; one of a single term included."""
        return False

    @property
    def deterministic(self) -> bool:
        """Whether there are no samples at all: the loss is a function of x alone."""
        return False

    @property
    def gathers(self) -> bool:
        """Whether `batch` fetches or makes rows, which is quicker for several steps together."""
        return True

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where there are none, or no end of them."""
        return None

    @property
    def filled_part(self) -> float:
        """Of the places in a row, the part that holds an entry: below 1 for sparse rows."""
        return 1.0

    @property
    def function(self) -> Any:
        """The user's function that makes its batches; None without one."""
        return None

    @abc.abstractmethod
    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        """The mini-batch of one draw."""

    @abc.abstractmethod
    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        """Several mini-batches, along a leading axis of what is stored by row."""

    def mean(self, function: Callable[[PyTree], PyTree]) -> PyTree:
        """The mean over all rows of a function that is itself a mean over the rows it gets.

        Taken block by block, in the memory of one block. Only for a `finite_sum`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no end: it has no mean over rows.")

    @property
    def mesh(self) -> Any:
        """The devices that rows are divided between, as a mesh of JAX; None where they are not."""
        return None

    @property
    def reads(self) -> bool:
        """Whether rows are read while a program runs."""
        return False

    @property
    def failure(self) -> Exception | None:
        """What went wrong while rows were read for a program; None where nothing did."""
        return None

    def thinned(self, rows: int) -> Compiled:
        """With means over some of the rows, at least so many where there are."""
        return self


class Source(Compiled):
    """Where samples come from, as the host sees it."""

    @property
    def sequential(self) -> bool:
        """Whether batches come in one order and are used up.

        All replicas then share them, one thread reads them, and a seed does not bring them back.
        """
        return False

    @property
    def rows_per_batch(self) -> int | None:
        """The size of every batch where the source itself sets it; else None."""
        return None

    @property
    def reaches_rows(self) -> bool:
        """Whether `take_rows` costs little, wherever the rows are."""
        return True

    @property
    def said(self) -> str:
        """What a result's message says of where rows come from; nothing where that is memory."""
        return ""

    @property
    def identity(self) -> Any:
        """What a checkpoint knows the samples by; None: all that the source holds."""
        return None

    def checked_by(self, check: Callable[[PyTree], None]) -> Source:
        """The same samples, of which `check` sees those that can be seen, in NumPy."""
        return self

    def most_held(self, batch_size: int) -> int | None:
        """How many batches may be held at a time, where they are the draws; None: any number."""
        return None

    @property
    def columns(self) -> int | None:
        """Of the first array, if that is known to be a matrix."""
        return None

    def astype(self, dtype: Any) -> Source:
        """The same samples, with real numbers of this type."""
        return self

    def compiled(self, function: Any) -> Compiled:
        """What compiled code sees; `function` stands for the user's `function`, traced."""
        return self

    def shapes(self) -> list[tuple[PyTree, ...]]:
        """Shapes of batches of two sizes, as arguments of the loss after x; nothing is used up."""
        return [(self.batch_shapes(size),) for size in PROBED_SIZES]

    @abc.abstractmethod
    def batch_shapes(self, size: int) -> PyTree:
        """The shapes of a batch of so many rows."""

    @abc.abstractmethod
    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        """The first `count` batches, none of them used up; fewer if there are fewer.

        They have so many rows where the source leaves that open and has them.
        """

    def take_rows(self, places: np.ndarray) -> PyTree:
        """The rows at these places, from 0 to `rows` - 1."""
        raise NotImplementedError(f"{type(self).__name__} has no rows with numbers.")

    def some_rows(self, count: int) -> PyTree:
        """About so many rows from all over, always the same; none is used up."""
        raise NotImplementedError(f"{type(self).__name__} has no rows of its own.")

    def extreme_rows(self) -> np.ndarray:
        """Places where the first and last column of an array, such as weights, are extreme."""
        return np.zeros(0, int)

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> PyTree:
        """What `count` mini-batches are made from, along a leading axis, chosen by `rng`.

        A source with an end gives fewer when it comes to it, and None after it.
        """

    def sample(self, rng: np.random.Generator, count: int, batch_size: int) -> PyTree:
        """As `draw`, for mini-batches that are only measured: nothing is used up.

        A sequential source gives as many as it likes to hold, and at least one.
        """
        return self.draw(rng, count, batch_size)


# Draws --------------------------------------------------------------------------------------


def count_draws(draws: PyTree) -> int:
    """How many mini-batches these draws make."""
    return len(jax.tree.leaves(draws)[0])


def stack(trees: list[PyTree]) -> PyTree:
    """Trees of arrays, or of keys for jax.random, along a new leading axis."""

    def join(*leaves: Any) -> Any:
        if isinstance(leaves[0], jax.Array):
            data: Any = np.stack([np.asarray(jax.random.key_data(leaf)) for leaf in leaves])
            return jax.random.wrap_key_data(data)
        return np.stack(leaves)

    return jax.tree.map(join, *trees)


def filled(draws: PyTree, length: int) -> PyTree:
    """The draws with the last one repeated, so that there are `length`: their shape stays."""
    missing = length - count_draws(draws)
    if missing <= 0:
        return draws

    def fill(a: Any) -> Any:
        if isinstance(a, jax.Array) and not isinstance(a.dtype, np.dtype):  # keys for jax.random
            return jax.random.wrap_key_data(fill(jax.random.key_data(a)))
        a = np.asarray(a)
        return on_device(np.concatenate([a, np.repeat(a[-1:], missing, axis=0)]))

    return jax.tree.map(fill, draws)
