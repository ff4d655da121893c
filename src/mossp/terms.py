"""The constraints as one vector c = (c_E, c_I), made of terms: functions of x, and means over rows.

Terms are grouped by the source of their rows, since one pass over a source serves all of them. The
number of a source is 0 for the rows of the loss and 1, 2, ... for those that a constraint, or the
concave part of the objective, has of its own; None stands for terms that are functions of x alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.module import Module
from mossp._base.structure import Structure
from mossp._base.types import Array, Batch, HostArray, Mask, PyTree, Vector

Number: TypeAlias = int | None
ROWS = 32  # gradients of constraints that are formed side by side


class Term(Module):
    """One of the user's constraints."""

    function: Callable[..., PyTree]  # of x, or of x and a batch
    rows: Number = eqx.field(static=True)  # the number of the source of its rows
    size: int = eqx.field(static=True)  # entries of c


class Picked(Module):
    """Some entries of what a constraint returns, as a vector; as many others share programs."""

    function: Callable[..., PyTree]
    picks: Array  # places in the constraint's own entries, ascending
    whole: int = eqx.field(static=True)  # how many these are

    def __call__(self, x: PyTree, *batch: Batch) -> Array:
        values = jax.tree.leaves(self.function(x, *batch))
        return jnp.concatenate([jnp.ravel(value) for value in values])[self.picks]


class Moved(Module):
    """What a constraint returns plus a constant, as a vector."""

    function: Callable[..., PyTree]
    by: Array

    def __call__(self, x: PyTree, *batch: Batch) -> Array:
        values = jax.tree.leaves(self.function(x, *batch))
        return jnp.concatenate([jnp.ravel(value) for value in values]) + self.by


class Concave(Module):
    """The part -E[g(x; xi)] of the objective: g is a mean over rows, convex in x."""

    function: Callable[..., PyTree]  # of x and a batch, or of x alone where there are no rows
    rows: int = eqx.field(static=True)  # the number of the source of its rows


class Difference(Module):
    """f - g as one loss."""

    loss: Callable[..., PyTree]
    concave: Callable[..., PyTree]

    def __call__(self, x: PyTree, *batch: Batch) -> Array:
        return self.loss(x, *batch) - self.concave(x, *batch)


class Terms(Module):
    """All constraints, in the order of c."""

    terms: tuple[Term, ...]
    structure: Structure  # of x

    @property
    def size(self) -> int:
        return sum(term.size for term in self.terms)

    @property
    def numbers(self) -> list[Number]:
        """Of the sources that terms look at; functions of x alone come first."""
        found = {term.rows for term in self.terms}
        return sorted(found, key=lambda number: -1 if number is None else number)

    @property
    def sampled(self) -> Mask:
        """Which entries of c are means over rows."""
        return np.repeat([t.rows is not None for t in self.terms], [t.size for t in self.terms])

    @property
    def any_sampled(self) -> bool:
        return any(term.rows is not None for term in self.terms)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Of each term, its first place in c and the first one after it."""
        ends = np.cumsum([0, *(term.size for term in self.terms)]).tolist()
        return list(itertools.pairwise(ends))

    def under(self, places: HostArray) -> Terms:
        """Some entries of c, in ascending order; a term of which all are kept stays as it is."""
        kept = []
        for term, (first, end) in zip(self.terms, self.ranges, strict=True):
            picks = places[(places >= first) & (places < end)] - first
            if len(picks) < term.size:
                picked = Picked(term.function, jnp.asarray(picks, jnp.int32), term.size)
                term = Term(picked, term.rows, len(picks))
            kept.append(term)
        return Terms(tuple(term for term in kept if term.size), self.structure)

    def moved(self, by: Array) -> Terms:
        """c + by."""
        each = zip(self.terms, self.ranges, strict=True)
        terms = (
            Term(Moved(term.function, by[first:end]), term.rows, term.size)
            for term, (first, end) in each
        )
        return Terms(tuple(terms), self.structure)

    def places(self, number: Number) -> HostArray:
        """Of the entries that belong to one source, in c."""
        owners = [term.rows == number for term in self.terms]
        return np.flatnonzero(np.repeat(owners, [term.size for term in self.terms]))

    def on(self, number: Number, x: Vector, batch: Batch) -> Array:
        """The entries of one source, as means over the rows of a batch."""
        tree = self.structure.unravel(x)
        rows = () if number is None else (batch,)
        values = [t.function(tree, *rows) for t in self.terms if t.rows == number]
        return jnp.concatenate([jnp.ravel(v).astype(x.dtype) for v in jax.tree.leaves(values)])

    def pull(self, number: Number, x: Vector, batch: Batch, q: Array) -> Vector:
        """J q on a batch, over the entries of one source; q has all entries."""
        _, pullback = jax.vjp(lambda x: self.on(number, x, batch), x)
        return pullback(q[self.places(number)])[0]

    def push(self, number: Number, x: Vector, batch: Batch, v: Vector) -> Array:
        """J'v on a batch: how the entries of one source change along v."""
        return jax.jvp(lambda x: self.on(number, x, batch), (x,), (v,))[1]

    def jacobian(self, number: Number, x: Vector, batch: Batch) -> tuple[Array, Array]:
        """The entries of one source and their gradients, one row each."""
        c, pullback = jax.vjp(lambda x: self.on(number, x, batch), x)
        return c, gradients(lambda e: pullback(e)[0], c)

    def joined(self, parts: Sequence[Array]) -> Array:
        """What belongs to the sources, one part each, in the order of c."""
        if len(parts) == 1:
            return parts[0]
        order = np.concatenate([self.places(number) for number in self.numbers])
        return jnp.concatenate(list(parts))[np.argsort(order)]


def gradients(pull: Callable[[Array], Vector], c: Array, places: Array | None = None) -> Array:
    """Those of some entries of c, all unless said, a row each, by pulls of unit vectors."""
    if places is None and len(c) <= ROWS:
        return jax.vmap(pull)(jnp.eye(len(c), dtype=c.dtype))
    places = jnp.arange(len(c)) if places is None else places

    def row(j: Array) -> Vector:
        return pull(jnp.zeros_like(c).at[j].set(1.0))

    return jax.lax.map(row, places, batch_size=ROWS)
