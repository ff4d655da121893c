"""x as the user has it, any pytree, and x as the paper has it, a vector in R^n."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.dtypes import canonicalize_dtype

from mossp._base.device import on_device
from mossp._base.module import Module
from mossp._base.types import AnyArray, AnyVector, DType, HostVector, PyTree


class Structure(Module):
    """The shape of a user's x. Every field is static: two equal structures share one program.

    Examples
    --------
    >>> s = Structure.of({"w": np.zeros((2, 2)), "b": np.zeros(1)})
    >>> s.size, s.slices
    (5, {'b': (0, 1), 'w': (1, 5)})
    """

    treedef: jax.tree_util.PyTreeDef = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    paths: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, tree: PyTree) -> Structure:
        leaves, treedef = jax.tree.flatten(tree)
        return cls(treedef, tuple(map(np.shape, leaves)), paths_of(treedef))

    @property
    def size(self) -> int:
        """Entries of the vector."""
        return self.whole_size

    @property
    def whole_size(self) -> int:
        """Entries of the user's x."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def places(self) -> AnyArray | None:
        """Which entries of the user's x the vector has, where it has not all of them."""
        return None

    @property
    def slices(self) -> dict[str, tuple[int, int]]:
        """Where each leaf lies in the vector."""
        ends = np.cumsum([0] + [math.prod(shape) for shape in self.shapes]).tolist()
        return {p: (a, b) for p, a, b in zip(self.paths, ends[:-1], ends[1:], strict=True)}

    @property
    def is_vector(self) -> bool:
        return self.paths == ("",) and len(self.shapes[0]) == 1

    def ravel(self, tree: PyTree, dtype: DType = np.float64) -> HostVector:
        leaves = jax.tree.leaves(tree)
        return np.concatenate([np.ravel(np.asarray(leaf, dtype)) for leaf in leaves])

    def unravel(self, x: AnyVector) -> PyTree:
        """The user's x from the vector; works on tracers and on NumPy arrays alike."""
        if self.is_vector:
            return x
        parts = [
            x[a:b].reshape(s) for (a, b), s in zip(self.slices.values(), self.shapes, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, parts)


@functools.lru_cache(maxsize=256)
def paths_of(treedef: jax.tree_util.PyTreeDef) -> tuple[str, ...]:
    """Of the leaves of trees of this structure."""
    tree = jax.tree.unflatten(treedef, range(treedef.num_leaves))
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return tuple(jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves)


class Part(Structure):
    """Some entries of a user's x, in ascending order; the others are 0.

    Examples
    --------
    >>> part = Part.of_places(Structure.of({"w": np.zeros(2), "b": np.zeros(1)}), np.array([0, 2]))
    >>> part.size, part.unravel(np.array([3.0, 4.0]))
    (2, {'b': Array([3.], dtype=float32), 'w': Array([0., 4.], dtype=float32)})
    """

    _places: AnyArray

    @classmethod
    def of_places(cls, whole: Structure, places: AnyArray) -> Part:
        return cls(whole.treedef, whole.shapes, whole.paths, places)

    @property
    def size(self) -> int:
        return int(self._places.shape[0])

    @property
    def places(self) -> AnyArray:
        return self._places

    def unravel(self, x: AnyVector) -> PyTree:
        x = jnp.asarray(x)
        return super().unravel(jnp.zeros(self.whole_size, x.dtype).at[self._places].set(x))


class Fixed(Module):
    """A plain function as a pytree without leaves: `jit` tells two apart by identity."""

    function: Callable[..., PyTree] = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> PyTree:
        return self.function(*args)


def as_pytree(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A function that `jit` takes as an argument: its arrays are leaves, the rest is static.

    Modules and `jax.tree_util.Partial` carry their arrays as leaves already, so that new values
    of them need no new program; anything else is told apart by identity.
    """
    if isinstance(function, (eqx.Module, jax.tree_util.Partial)):
        return function
    return Fixed(function)


def with_dtype(tree: PyTree, dtype: DType, *, real: bool = False) -> PyTree:
    """Numbers become arrays of one type, so that 0.1 and np.float32(0.1) share a program.

    Whole numbers stay whole, as indices must, unless all numbers are `real`.
    """

    def convert(leaf: AnyArray) -> AnyArray:
        if not isinstance(leaf, (bool, int, float, np.ndarray, np.generic, jax.Array)):
            return leaf
        if not isinstance(leaf, jax.core.Tracer):
            # A copy: JAX may share the memory of a NumPy array, which its owner may change. By
            # NumPy: a float64 array of JAX may be touched outside of x64 this way.
            leaf = np.array(leaf)
        kind = leaf.dtype.kind
        to_real = kind == "f" or (real and kind in "iu")
        dtype_of_leaf = dtype if to_real else canonicalize_dtype(leaf.dtype)
        if isinstance(leaf, np.ndarray):
            return on_device(leaf, dtype_of_leaf)
        return jnp.asarray(leaf, dtype_of_leaf)

    return jax.tree.map(convert, tree)
