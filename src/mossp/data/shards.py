"""What compiled code sees of rows that are divided between devices."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mossp._base import crew
from mossp._base.module import Module
from mossp._base.types import PyTree
from mossp.data.blocks import Shape
from mossp.data.protocol import Compiled

numbers = itertools.count(1)
sources: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # Sharded


class ShardedRows(Module, Compiled):
    """What compiled code sees of rows that are divided."""

    number: Any  # by which the host knows them
    local: crew.Divided  # the rows of each device: a Finite, or OnDiskRows
    part: crew.Divided  # of all rows
    shape: Shape

    @property
    def finite_sum(self) -> bool:
        return True

    @property
    def host(self) -> Any:
        found = sources.get(int(self.number))
        if found is None:
            raise RuntimeError("The divided rows are gone: keep the problem that they belong to.")
        return found

    @property
    def mesh(self) -> Any:
        return self.host.mesh

    @property
    def rows(self) -> int:
        return self.host.rows

    @property
    def reads(self) -> bool:
        return self.host.on_disk

    @property
    def failure(self) -> Exception | None:
        each = (reader.failure for reader in self.host.readers)
        return next((error for error in each if error is not None), None)

    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        return self.shape.rows(draw)

    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        return self.shape.rows(draws)

    def mean(self, function: Callable[[PyTree], PyTree]) -> PyTree:
        """sum_devices (rows of the device / N) mean over its rows."""
        part = self.part.mine()
        means = self.local.mine().mean(lambda rows: function(self.shape.cast(rows)))
        return jax.tree.map(lambda v: lax.psum(part.astype(v.dtype) * v, crew.ROWS), means)

    def deviation(self, function: Callable[[PyTree], jax.Array]) -> jax.Array:
        own = self.local.mine().deviation(lambda rows: function(self.shape.cast(rows)))
        return jnp.sqrt(lax.psum(self.part.mine() * own**2, crew.ROWS))

    def largest(self, function: Callable[[PyTree], jax.Array], batch_size: int) -> jax.Array:
        """On any device's mini-batches."""
        own = self.local.mine().largest(lambda rows: function(self.shape.cast(rows)), batch_size)
        return lax.pmax(own, crew.ROWS)

    def thinned(self, rows: int) -> Compiled:
        """Some rows of every device, in memory."""
        return self.host.thinned_to(rows, self.shape)
