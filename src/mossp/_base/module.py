"""Modules whose pickles and copies keep every bit.

JAX rebuilds a pickled array in the precision of the moment, which is float32 unless float64 is
switched on: a float64 array would silently lose half of its digits on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.surroundings import fork
from mossp._base.types import PyTree


class Stored:
    """The values of an array of JAX, as NumPy has them."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


def stored(tree: PyTree) -> PyTree:
    """The tree with every array of JAX taken to the host, for a pickle."""

    def store(leaf: object) -> object:
        plain = isinstance(leaf, jax.Array) and isinstance(leaf.dtype, np.dtype)  # no random keys
        return Stored(np.asarray(leaf)) if plain else leaf

    return jax.tree.map(store, tree)


def restored(tree: PyTree) -> PyTree:
    """What `stored` was given, in the precision that it had.

    In a forked process JAX must not be called: arrays stay NumPy's there. An error would be lost,
    for a pool that forks unpickles before its task begins; `solve` says it instead.
    """
    if fork.cut_off:
        return jax.tree.map(lambda a: a.values if isinstance(a, Stored) else a, tree)

    def restore(leaf: object) -> object:
        return jnp.asarray(leaf.values) if isinstance(leaf, Stored) else leaf

    with jax.enable_x64(True):
        return jax.tree.map(restore, tree)


class Module(eqx.Module):
    """An equinox module that pickle, copy and deepcopy keep bit for bit.

    Examples
    --------
    >>> class Scaled(Module):
    ...     factor: jax.Array
    >>> with jax.enable_x64(True):
    ...     third = Scaled(jnp.ones(()) / 3)
    >>> third.__getstate__()["factor"].values.dtype
    dtype('float64')
    """

    if not TYPE_CHECKING:
        # Methods of a module of equinox are modules themselves, made anew at every look-up: many
        # times as long as what a method of a regulariser does on the host takes.
        __getattribute__ = object.__getattribute__

    def __getstate__(self) -> dict[str, object]:
        return dict(vars(stored(self)))

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        vars(self).update(vars(restored(self)))
