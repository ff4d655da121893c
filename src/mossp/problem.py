"""The problem as a user states it, and the oracles that a method may call.

min  f(x) + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from mossp import keys
from mossp.data import Arriving, Finite, NoData, Sampler, Stream, is_rows, map_rows
from mossp.losses import Loss
from mossp.regularizers import Regularizer, Relaxed, Zero
from mossp.structure import Structure, as_pytree, with_dtype

PyTree = Any
Vector = Any


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """min E[f(x, xi)] + h(x) - g(x) subject to equality(x) = 0 and inequality(x) <= 0.

    `loss(x, batch)` is the mean over the rows of `batch`, in JAX; x is any pytree of arrays.
    `data` is an array, or a pytree of arrays with a common leading axis (NumPy, JAX or
    scipy.sparse, which is never made dense: `batch[0] @ x` works all the same); or a `Sampler`, a
    `Stream`, or None, and then the loss is a deterministic `loss(x)`. Constraints return a
    scalar, a vector, or a dict of arrays, whose names the multipliers then carry.

    >>> import jax.numpy as jnp, mossp
    >>> problem = mossp.Problem(
    ...     loss=lambda x: jnp.sum((x - 2.0) ** 2),
    ...     regularizer=mossp.L1(0.1),
    ...     equality=lambda x: x @ x - 1.0,
    ... )
    >>> problem.samples is None
    True
    """

    loss: Callable[..., Any]
    data: Any = None
    regularizer: Regularizer = dataclasses.field(default_factory=Zero)
    equality: Callable[[PyTree], Any] | None = None
    inequality: Callable[[PyTree], Any] | None = None
    samples: int | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        for name in ("loss", "equality", "inequality"):
            given = getattr(self, name)
            if not callable(given) and (name == "loss" or given is not None):
                raise TypeError(f"{name} must be a function, but {given!r} was given.")
        if self.regularizer is None:
            object.__setattr__(self, "regularizer", Zero())
        if not isinstance(self.regularizer, Regularizer):
            raise TypeError(
                "regularizer must be a mossp regulariser such as mossp.L1(0.01), but "
                f"{type(self.regularizer).__name__} was given."
            )
        if self.data is None or isinstance(self.data, (Sampler, Stream)):
            source: Any = NoData() if self.data is None else self.data
        else:
            arrays, N = checked_rows(self.data)
            if isinstance(self.loss, Loss):
                self.loss.check(arrays)
            with jax.enable_x64(True):
                source = Finite.of(arrays, N, np.float64)
            object.__setattr__(self, "samples", N)
            object.__setattr__(self, "data", source)  # a copy: later changes do not reach it
        object.__setattr__(self, "_sources", {np.dtype(np.float64): source})
        object.__setattr__(self, "_oracles", {})

    def source(self, dtype: Any) -> Any:
        """The data in this precision, converted once."""
        sources: dict[Any, Any] = self._sources  # type: ignore[attr-defined]
        dtype = np.dtype(dtype)
        if dtype not in sources:
            sources[dtype] = with_dtype(sources[np.dtype(np.float64)], dtype)
        return sources[dtype]

    def oracles(self, x0: PyTree, dtype: Any = np.float64) -> Oracles:
        """What a method may call, as functions of the vector x; wrong shapes are found here."""
        structure = Structure.of(x0)
        made: dict[Any, Oracles] = self._oracles  # type: ignore[attr-defined]
        key = (structure, np.dtype(dtype))
        if key not in made:
            made[key] = self._make_oracles(structure, x0, dtype)
        return made[key]

    def _make_oracles(self, structure: Structure, x0: PyTree, dtype: Any) -> Oracles:
        source = self.source(dtype)
        oracles = Oracles(
            loss=with_dtype(as_pytree(self.loss), dtype),
            source=Arriving() if isinstance(source, Stream) else source,
            regularizer=with_dtype(self.regularizer.on(structure.slices), dtype),
            equality=constraint(self.equality, dtype),
            inequality=constraint(self.inequality, dtype),
            structure=structure,
            equality_structure=constraint_structure("equality", self.equality, x0, dtype),
            inequality_structure=constraint_structure("inequality", self.inequality, x0, dtype),
        )
        check_loss(oracles, x0, self.example(dtype), dtype)
        check_regularizer_fits(oracles, dtype)
        return oracles

    def example(self, dtype: Any) -> PyTree:
        """A small batch, for its shapes."""
        if isinstance(self.data, Stream):
            return with_dtype(self.data.peek()[0], dtype)
        source = self.source(dtype)
        draws = source.draw(keys.generator(0, keys.Purpose.CHECK), 1, 4)
        return jax.eval_shape(lambda: source.batch(jax.tree.map(lambda d: d[0], draws), 4))


class Oracles(eqx.Module):
    """f, c, h and g as functions of the vector x in R^n; a pytree that `jit` takes as argument.

    Constraints come as one vector c = (c_E, c_I). Where the paper writes c, inequalities enter
    as [c_I]_+ (its Section 5); `active` does that.
    """

    loss: Callable[..., Any]
    source: Any
    regularizer: Regularizer
    equality: Callable[[PyTree], Any] | None
    inequality: Callable[[PyTree], Any] | None
    structure: Structure
    equality_structure: Structure
    inequality_structure: Structure

    @property
    def m_E(self) -> int:
        return self.equality_structure.size

    @property
    def m(self) -> int:
        return self.m_E + self.inequality_structure.size

    @property
    def exact(self) -> bool:
        """Whether full gradients can be had: finite sums and deterministic losses."""
        return hasattr(self.source, "mean")

    @property
    def convex(self) -> bool:
        """Whether any critical point is known to be a minimum."""
        return self.relaxable and self.regularizer.convex

    @property
    def relaxable(self) -> bool:
        """Whether all but -g is known to be convex."""
        return isinstance(self.loss, Loss) and self.loss.convex and self.m == 0

    def relaxed(self, part: Any) -> Oracles:
        """The problem without -g, and with a part of h."""
        relaxed = Relaxed(self.regularizer, part)
        return eqx.tree_at(lambda o: o.regularizer, self, relaxed, is_leaf=lambda r: r is relaxed)

    # f ------------------------------------------------------------------------------------

    def f(self, x: Vector, batch: PyTree) -> jax.Array:
        args = () if isinstance(self.source, NoData) else (batch,)
        return self.loss(self.structure.unravel(x), *args)

    def gradient(self, x: Vector, batch: PyTree) -> jax.Array:
        return jax.grad(self.f)(x, batch)

    def full_value(self, x: Vector) -> jax.Array:
        return self.source.mean(lambda batch: self.f(x, batch))

    def full_gradient(self, x: Vector) -> jax.Array:
        return self.source.mean(lambda batch: self.gradient(x, batch))

    # c ------------------------------------------------------------------------------------

    def c(self, x: Vector) -> jax.Array:
        """(c_E(x), c_I(x)) as one vector."""
        tree = self.structure.unravel(x)
        values = [c(tree) for c in (self.equality, self.inequality) if c is not None]
        parts = [jnp.ravel(leaf).astype(x.dtype) for leaf in jax.tree.leaves(values)]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, x.dtype)

    def active(self, c: jax.Array) -> jax.Array:
        """(c_E, [c_I]_+), and likewise for multipliers, which are nonnegative on c_I."""
        return jnp.concatenate([c[: self.m_E], jnp.maximum(c[self.m_E :], 0.0)])

    def multipliers(self, x: Vector, lam: jax.Array, rho: Any) -> jax.Array:
        """q = lam + rho c(x), and [.]_+ of that for inequalities."""
        return self.active(lam + rho * self.c(x))

    def constraint_gradient(self, x: Vector, rho: Any, lam: Any = 0.0) -> jax.Array:
        """J(x) q with q = lam + rho c(x), by one vjp; never a Jacobian."""
        if self.m == 0:
            return jnp.zeros_like(x)
        c, pullback = jax.vjp(self.c, x)
        return pullback(self.active(lam + rho * c))[0]

    def violation(self, x: Vector) -> jax.Array:
        """||(c_E(x), [c_I(x)]_+)||."""
        return jnp.linalg.norm(self.active(self.c(x)))

    def named(self, lam: Any) -> dict[str, PyTree]:
        """A vector of multipliers in the shapes and under the names of the user's constraints."""
        return {
            name: structure.unravel(part)
            for name, structure, part in (
                ("equality", self.equality_structure, lam[: self.m_E]),
                ("inequality", self.inequality_structure, lam[self.m_E :]),
            )
            if structure.size
        }

    def constraint_names(self) -> list[str]:
        """One for each entry of c, by the user's names: 'fpr', 'groups[2]', 'equality[0]'."""
        names = []
        for kind, structure in (
            ("equality", self.equality_structure),
            ("inequality", self.inequality_structure),
        ):
            for path, shape in zip(structure.paths, structure.shapes, strict=True):
                called = repr(path) if path else kind
                places = np.ndindex(*shape) if math.prod(shape) > 1 else [()]
                names += [called + (f"[{', '.join(map(str, i))}]" if i else "") for i in places]
        return names


# What is checked before anything is compiled ----------------------------------------------


def checked_rows(data: PyTree) -> tuple[PyTree, int]:
    """NumPy arrays and scipy.sparse matrices with a common number of finite rows."""
    leaves, treedef = jax.tree.flatten(data, is_leaf=scipy.sparse.issparse)
    if not leaves:
        raise ValueError("data is empty: give arrays with one row a sample, or None.")
    arrays = []
    for leaf in leaves:
        sparse = scipy.sparse.issparse(leaf)
        a: Any = leaf if sparse else np.asarray(leaf)
        if a.dtype.kind not in "fiub" or a.ndim == 0:
            raise TypeError(
                "data must be numeric arrays with one row a sample, but an array of type "
                f"{a.dtype} and shape {a.shape} was given."
            )
        stored = a.tocsr().data if sparse else a
        if stored.dtype.kind == "f":
            bad = int(stored.size - np.isfinite(stored).sum())
            if bad:
                raise ValueError(
                    f"data has {bad} NaN or infinite value{'s' * (bad > 1)} in the array of "
                    f"shape {a.shape}: remove or impute these rows first."
                )
        arrays.append(a)
    rows = [a.shape[0] for a in arrays]
    if len(set(rows)) > 1:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ValueError(
            f"The arrays of data must have the same number of rows, but their shapes are {shapes}."
        )
    if rows[0] == 0:
        raise ValueError("data has no rows: at least one sample is needed.")
    return jax.tree.unflatten(treedef, arrays), rows[0]


def constraint(function: Callable[[PyTree], Any] | None, dtype: Any) -> Any:
    return None if function is None else with_dtype(as_pytree(function), dtype)


def constraint_structure(
    name: str, function: Callable[[PyTree], Any] | None, x0: PyTree, dtype: Any
) -> Structure:
    if function is None:
        return Structure.of(None)
    values = traced_shapes(f"The {name} constraint", constraint(function, dtype), shapes(x0, dtype))
    if not sum(leaf.size for leaf in jax.tree.leaves(values)):
        raise TypeError(
            f"The {name} constraint returns nothing: is a `return` missing? It must return c(x)."
        )
    for leaf in jax.tree.leaves(values):
        if leaf.dtype.kind != "f":
            raise TypeError(
                f"The {name} constraint must return real numbers c(x), but its type is "
                f"{leaf.dtype}; write `x @ x - 1.0`, not `x @ x == 1.0`."
            )
    return Structure.of(values)


def check_loss(oracles: Oracles, x0: PyTree, batch: PyTree, dtype: Any) -> None:
    x = jax.ShapeDtypeStruct((oracles.structure.size,), dtype)
    value = traced_shapes("The loss", oracles.f, x, batch, about=describe(x0, batch))
    if getattr(value, "shape", None) != () or value.dtype.kind != "f":
        got = type(value).__name__
        if hasattr(value, "shape"):
            got = f"an array of shape {value.shape} and type {value.dtype}"
        raise ValueError(
            f"The loss must return one real number, the mean over the rows of the batch, but it "
            f"returns {got}: use jnp.mean(...)."
        )


def check_regularizer_fits(oracles: Oracles, dtype: Any) -> None:
    x, mu = jax.ShapeDtypeStruct((oracles.structure.size,), dtype), jax.ShapeDtypeStruct((), dtype)
    reg = oracles.regularizer
    traced_shapes("The regulariser", reg, x)
    for prox in (reg.prox_h, reg.prox_g):
        shape = getattr(traced_shapes("The regulariser", prox, x, mu), "shape", None)
        if shape != x.shape:
            raise ValueError(
                f"The regulariser does not fit x, which has {oracles.structure.size} entries: a "
                f"proximal map of {type(reg).__name__} returns shape {shape}."
            )


def shapes(tree: PyTree, dtype: Any) -> PyTree:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), dtype), tree)


def describe(x0: PyTree, batch: PyTree) -> str:
    def listed(tree: PyTree) -> str:
        return ", ".join(str(tuple(np.shape(a))) for a in jax.tree.leaves(tree))

    return f" at x0 of shape {listed(x0)}" + (
        f" on a batch of shapes {listed(batch)}" if batch is not None else ""
    )


def traced_shapes(
    what: str, function: Callable[..., Any], *args: Any, about: str = " at x0"
) -> Any:
    """jax.eval_shape, which compiles nothing, with an error that names the user's function."""
    try:
        return jax.eval_shape(function, *args)
    except jax.errors.JAXTypeError as error:
        raise TypeError(
            f"{what} cannot be traced by JAX: write it with jax.numpy, without NumPy functions or "
            f"`if` on values of x ({type(error).__name__})."
        ) from error
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{what} cannot be evaluated{about}: {reason[0]}") from error


def check_mean(problem: Problem, oracles: Oracles, x0: Vector, dtype: Any) -> None:
    """Padding, weights and full gradients rely on a loss that is a mean over rows: is it one?"""
    if problem.data is None or isinstance(problem.loss, Loss):
        return
    few = min(3, problem.samples or 3)
    if isinstance(problem.data, Stream):
        rows = jax.tree.map(lambda a: a[:few], with_dtype(problem.data.peek()[0], dtype))
    elif isinstance(problem.data, Sampler):
        rows = problem.data.fn(keys.jax_keys(keys.generator(0, keys.Purpose.CHECK)), few)
    else:
        rows = map_rows(lambda a: a[:few], oracles.source.arrays)
    sizes = {np.shape(a)[0] if np.ndim(a) else 0 for a in jax.tree.leaves(rows, is_leaf=is_rows)}
    if len(sizes) != 1 or sizes == {0} or sizes == {1}:
        return  # a sampler may hand out anything; one row cannot tell a sum from a mean
    # Off x0, where a loss may be 0 on every row.
    x = jnp.asarray(x0, dtype) + 0.1 * jnp.cos(jnp.arange(len(x0), dtype=dtype))
    together, apart, size = (float(v) for v in _mean_of_rows(oracles, x, rows))
    if np.isfinite([together, apart]).all() and abs(together - apart) > 1e-3 * size:
        raise ValueError(
            f"The loss must be the mean over the rows of a batch, but on {sizes.pop()} rows it is "
            f"{together:.6g} while the mean of its values row by row is {apart:.6g}: use jnp.mean, "
            "not jnp.sum."
        )


@jax.jit
def _mean_of_rows(oracles: Oracles, x: Vector, rows: PyTree) -> tuple[Any, Any, Any]:
    """(the loss of all rows, the mean of their losses, the mean of their absolute values)."""
    count = jax.tree.leaves(rows, is_leaf=is_rows)[0].shape[0]
    row = lambda i: map_rows(lambda a: jax.lax.dynamic_slice_in_dim(a, i, 1), rows)  # noqa: E731
    apart = jax.lax.map(lambda i: oracles.f(x, row(i)), jnp.arange(count))
    return oracles.f(x, rows), jnp.mean(apart), jnp.mean(jnp.abs(apart))
