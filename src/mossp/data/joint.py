"""The rows of a step where constraints look at data as well as the loss does.

Sources are numbered: 0 are the rows of the loss, 1, 2, ... those that a constraint, or the concave
part of the objective, has of its own.
A step differentiates one mini-batch of each source, and takes the values of constraints from
another one, which is larger, since values cost a forward pass only, and independent of the first,
so that J(x; B) q with q from c(x; C) has the right expectation. What comes in one order is used up:
there, the rows of a batch are shared out, every other one to the values, from either end by chance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from mossp._base.module import Module
from mossp._base.types import PyTree
from mossp.data.finite import map_rows
from mossp.data.protocol import Compiled, Source, count_draws

VALUES = 8  # rows whose constraints are evaluated, for each that is differentiated


class Rows(NamedTuple):
    """What one step sees, by the number of the source; None where nothing is asked of it."""

    gradients: tuple[PyTree, ...]
    values: tuple[PyTree, ...]


class Joint(Module, Source):
    """Several sources, drawn from together."""

    sources: tuple[Any, ...]
    looked_at: tuple[bool, ...] = eqx.field(static=True)  # by constraints
    sizes: tuple[int | None, ...] = eqx.field(static=True)  # of batches for values, where given

    def value_size(self, number: int, batch_size: int) -> int:
        """Rows that a step takes the values of constraints from; none without such constraints."""
        source = self.sources[number]
        if not self.looked_at[number] or self.one_order(source):
            return 0
        size = self.sizes[number] or VALUES * batch_size
        return size if source.rows is None else min(size, source.rows)

    def values_drawn(self, number: int, batch_size: int) -> int:
        """As compiled code knows it, where the number of rows is traced."""
        if not self.sources[number].gathers:  # a batch that arrives is shared out
            return max(batch_size // 2, 1)
        return self.sizes[number] or VALUES * batch_size

    def values_per_step(self, batch_size: int) -> int:
        """Rows of all sources together whose constraints a step evaluates."""
        numbers = range(len(self.sources))
        fixed = [self.sources[k].rows_per_batch or 0 for k in numbers if self.looked_at[k]]
        return sum(self.value_size(k, batch_size) for k in numbers) + sum(n // 2 for n in fixed)

    @staticmethod
    def one_order(source: Any) -> bool:
        return isinstance(source, Source) and source.sequential

    @property
    def sequential(self) -> bool:
        return any(source.sequential for source in self.sources)

    def most_held(self, batch_size: int) -> int | None:
        rows = [batch_size + self.value_size(k, batch_size) for k in range(len(self.sources))]
        each = (s.most_held(size) for s, size in zip(self.sources, rows, strict=True))
        return min((most for most in each if most is not None), default=None)

    @property
    def gathers(self) -> bool:
        return any(source.gathers for source in self.sources)

    def astype(self, dtype: Any) -> Joint:
        return Joint(tuple(s.astype(dtype) for s in self.sources), self.looked_at, self.sizes)

    def batch_shapes(self, size: int) -> PyTree:
        raise NotImplementedError("Each source says the shapes of its own batches.")

    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        raise NotImplementedError("Each source is looked into by itself.")

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> PyTree:
        """Rows of draws: the sources one after the other; as many as the shortest gives."""
        gradients, values = [], []
        for number, source in enumerate(self.sources):
            gradients.append(source.draw(rng, count, batch_size))
            if self.one_order(source):
                if gradients[-1] is None:
                    return None
                if self.looked_at[number]:
                    gradients[-1] = turned(rng, gradients[-1])
            size = self.value_size(number, batch_size)
            values.append(source.draw(rng, count, size) if size else None)
        drawn = Rows(tuple(gradients), tuple(values))
        if not self.sequential:
            return drawn
        least = min(count_draws(part) for part in (*gradients, *values) if part is not None)
        return jax.tree.map(lambda a: a[:least], drawn)

    def batch(self, draw: Rows, batch_size: int) -> Rows:
        return self._made(draw, batch_size, "batch", rows_axis=0)

    def batches(self, draws: Rows, batch_size: int) -> Rows:
        return self._made(draws, batch_size, "batches", rows_axis=1)

    def _made(self, draws: Rows, batch_size: int, how: str, rows_axis: int) -> Rows:
        gradients, values = list(draws.gradients), list(draws.values)
        for number, source in enumerate(self.sources):
            make = getattr(source, how)
            if gradients[number] is not None:
                gradients[number] = make(gradients[number], batch_size)
            if values[number] is not None:
                values[number] = make(values[number], self.sizes[number] or VALUES * batch_size)
            elif self.looked_at[number]:
                gradients[number], values[number] = shared_out(gradients[number], rows_axis)
        return Rows(tuple(gradients), tuple(values))


def turned(rng: np.random.Generator, batches: PyTree) -> PyTree:
    """Batches of which about half, by chance, begin with their last row.

    A batch may come again, from a list or from a user's own epochs. Were its rows always shared out
    alike, neither the loss nor the constraints would ever see half of them.
    """
    some = rng.random(count_draws(batches)) < 0.5

    def turn(a: Any) -> Any:
        rows = np.array(a)
        rows[some] = np.roll(rows[some], 1, axis=1)
        return rows

    return jax.tree.map(turn, batches)


def shared_out(batch: PyTree, axis: int) -> tuple[PyTree, PyTree]:
    """(rows 0, 2, 4, ... of a batch, rows 1, 3, 5, ...); a single row is in both."""

    def half(first: int) -> PyTree:
        def take(a: Any) -> Any:
            return a[(slice(None),) * axis + (slice(min(first, a.shape[axis] - 1), None, 2),)]

        return map_rows(take, batch)

    return half(0), half(1)


def joined(
    sources: tuple[Compiled, ...], looked_at: tuple[bool, ...], sizes: tuple[int | None, ...]
) -> Any:
    """The source of a run's steps: that of the loss alone where nothing else has rows."""
    several = len(sources) > 1 or any(looked_at)
    return Joint(sources, looked_at, sizes) if several else sources[0]
