"""What compiled code sees of rows on disk: blocks, which it asks the host for while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base.module import Module
from mossp._base.types import PyTree
from mossp.data.crossing import called
from mossp.data.finite import Finite
from mossp.data.forms import Dense, Form, HostRows
from mossp.data.protocol import Compiled
from mossp.data.reading import Reader, reader
from mossp.data.sparse import SparseRows


class Shape(eqx.Module):
    """How rows reach compiled code. Every field is static: files of one shape share programs."""

    forms: tuple[Form, ...] = eqx.field(static=True)
    treedef: Any = eqx.field(static=True)
    length: int = eqx.field(static=True)  # of a block
    dtype: str = eqx.field(static=True)  # of real numbers in computations

    def crossing(self, dtype: Any) -> np.dtype:
        """The type in which stored numbers are handed to a program: no wider than is computed."""
        stored = np.dtype(dtype)
        if np.dtype(self.dtype).itemsize == 8 or stored.itemsize < 8:
            return stored
        return np.dtype(self.dtype) if stored.kind == "f" else np.dtype(f"{stored.kind}4")

    def computed(self, dtype: Any) -> np.dtype:
        """The type in which they are computed with."""
        stored = self.crossing(dtype)
        return np.dtype(self.dtype) if stored.kind == "f" else stored

    def cast(self, rows: PyTree) -> PyTree:
        return jax.tree.map(lambda a: a.astype(self.computed(a.dtype)), rows)

    def rows(self, drawn: PyTree) -> PyTree:
        """Rows that the host has drawn, as the loss takes them."""
        made = [
            d if isinstance(form, Dense) else form.rows(d)
            for form, d in zip(self.forms, drawn, strict=True)
        ]
        return self.cast(self.tree(made))

    def tree(self, leaves: list[Any]) -> PyTree:
        return jax.tree.unflatten(self.treedef, leaves)

    def of(self, rows: int, segments: int | None = None, computed: bool = True) -> PyTree:
        """Shapes of so many rows, with so many further segments of sparse ones."""
        kind = self.computed if computed else self.crossing

        def array(shape: tuple[int, ...], dtype: Any) -> Any:
            return jax.ShapeDtypeStruct(shape, kind(dtype))

        def leaf(form: Form) -> Any:
            if isinstance(form, Dense):
                return array((rows, *form.shape), form.dtype)
            W = form.width
            head = array((rows, W), np.int32), array((rows, W), form.dtype)
            if not form.further:
                return SparseRows(*head, None, None, None, None, form.columns)
            M = rows * form.further + 1 if segments is None else form.segments
            tail = array((M, W), np.int32), array((M, W), form.dtype)
            each = array((rows,), np.int32)
            return SparseRows(*head, each, each, *tail, form.columns)

        return self.tree([leaf(form) for form in self.forms])


class OnDiskRows(Module, Compiled):
    """What compiled code sees of rows on disk: a number by which the host knows them."""

    number: Any  # of the reader
    blocks: Any
    shape: Shape

    @property
    def finite_sum(self) -> bool:
        return True

    @property
    def rows(self) -> int:
        return reader(self.number).rows

    @property
    def reads(self) -> bool:
        return True

    @property
    def failure(self) -> Exception | None:
        return reader(self.number).failure

    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        return self.shape.rows(draw)

    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        return self.batch(draws, batch_size)

    def thinned(self, rows: int) -> Compiled:
        """Rows from all over, which are kept in memory."""
        return in_memory(reader(self.number).kept(), self.shape)

    def deviation(self, function: Callable[[PyTree], jax.Array]) -> jax.Array:
        """From the first block; of many rows others stand for all, and are asked instead."""
        return self.block(jnp.zeros((), jnp.int32))[0].deviation(
            lambda rows: function(self.shape.cast(rows))
        )

    def largest(self, function: Callable[[PyTree], jax.Array], batch_size: int) -> jax.Array:
        """On mini-batches of the first block, likewise."""
        return self.block(jnp.zeros((), jnp.int32))[0].largest(
            lambda rows: function(self.shape.cast(rows)), batch_size
        )

    def mean(self, function: Callable[[PyTree], PyTree]) -> PyTree:
        """mean = sum_blocks (rows of the block / N) mean over the block."""

        def add(b: Any, total: PyTree) -> PyTree:
            rows, part = self.block(b)
            means = rows.mean(lambda some: function(self.shape.cast(some)))
            return jax.tree.map(lambda t, v: t + part.astype(t.dtype) * v, total, means)

        shapes = jax.eval_shape(lambda rows: function(rows), self.shape.of(1, 0))
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return lax.fori_loop(0, self.blocks, add, zero)

    def block(self, number: Any) -> tuple[Finite, Any]:
        """The rows of a block, and their part of all rows."""
        shape = self.shape
        arrays = shape.of(shape.length, 0, computed=False)
        count = jax.ShapeDtypeStruct((), np.int32)
        part = jax.ShapeDtypeStruct((), np.dtype(shape.dtype))

        def read(which: Any, number: Any) -> PyTree:
            return block_of(reader(which), int(number), (arrays, count, part))

        rows, counted, part = called(read, (arrays, count, part), self.number, number)
        return Finite(rows, counted, jnp.ones((), jnp.int32)), part


def block_of(source: Reader, number: int, shapes: PyTree) -> PyTree:
    """(rows, how many count, their part of all); NaN for what could not be read."""
    try:
        if source.failure is None:
            rows = [
                form.block(a, source.length)
                for form, a in zip(source.forms, source.block(number), strict=True)
            ]
            count = source.count(number)
            return rows, count, count / source.rows
    except Exception as error:
        source.failure = error
    arrays, count, part = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
    return arrays, count + 1, part + np.nan


def in_memory(rows: list[HostRows], shape: Shape) -> Finite:
    """Some rows, as the arrays of a finite set of data."""
    with jax.enable_x64(np.dtype(shape.dtype).itemsize == 8):
        return Finite.of(shape.tree(rows), rows[0].shape[0], np.dtype(shape.dtype))
