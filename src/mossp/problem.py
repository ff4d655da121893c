"""The problem as a user states it.

min  f(x) + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.sparse

from mossp._base import keys
from mossp._base.module import restored, stored
from mossp._base.printing import counted, shown
from mossp._base.programs import store
from mossp._base.structure import Structure, with_dtype
from mossp._base.surroundings import fork, refuse_tracers
from mossp._base.tracing import Probed
from mossp._base.validation import concrete, hides_entries
from mossp.data import Arriving, Finite, NoData, Sampler, Stream
from mossp.functions import (
    PROBED_SIZES,
    check_regularizer_fits,
    check_size,
    form_of_part,
    form_of_regularizer,
    function_of,
    numbers_of,
    probe_constraint,
    probe_loss,
    probe_sampler,
    shapes,
    shapes_returned,
    with_rows,
)
from mossp.losses import Loss
from mossp.oracles import Oracles
from mossp.regularizers import Regularizer, Zero

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
        fork.check()
        refuse_tracers(self.regularizer, self.data)
        for name in ("loss", "equality", "inequality"):
            given = getattr(self, name)
            if not callable(given) and (name == "loss" or given is not None):
                raise TypeError(f"{name} must be a function, but {shown(given)} was given.")
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
            kept = isinstance(self.data, Finite)  # by another problem: this one is a copy of it
            arrays, N = self.data.rows() if kept else checked_rows(self.data)
            if isinstance(self.loss, Loss):
                self.loss.check(arrays)
            with jax.enable_x64(True):
                source = self.data if kept else Finite.of(arrays, N, np.float64)
            object.__setattr__(self, "samples", N)
            object.__setattr__(self, "data", source)  # a copy: later changes do not reach it
        object.__setattr__(self, "_sources", {np.dtype(np.float64): source})
        object.__setattr__(self, "_batches", {})

    def __reduce__(self) -> Any:
        """Pickled and copied bit for bit: the data as they are kept, and no caches."""
        given = [getattr(self, f.name) for f in dataclasses.fields(self) if f.init]
        return _rebuilt, (type(self), stored(given))

    def source(self, dtype: Any) -> Any:
        """The data in this precision, converted once."""
        sources: dict[Any, Any] = self._sources  # type: ignore[attr-defined]
        dtype = np.dtype(dtype)
        if dtype not in sources:
            sources[dtype] = with_dtype(sources[np.dtype(np.float64)], dtype)
        return sources[dtype]

    def oracles(self, x0: PyTree, dtype: Any = np.float64) -> Oracles:
        """What a method may call, as functions of the vector x; wrong shapes are found here.

        The user's functions are traced anew, as they are now; an equal problem finds the programs
        that were compiled for it.
        """
        fork.check()
        refuse_tracers(x0, self.regularizer)
        structure = Structure.of(x0)
        source = self.source(dtype)
        x = shapes(x0, dtype)
        sampler = probe_sampler(source, dtype) if isinstance(source, Sampler) else None
        batches = self._example_batches(source, dtype)
        loss = probe_loss(self.loss, x0, x, batches, dtype)
        equality = probe_constraint("equality", self.equality, x, dtype)
        inequality = probe_constraint("inequality", self.inequality, x, dtype)
        regularizer = with_dtype(self.regularizer.on(structure.slices), dtype)
        check_regularizer_fits(regularizer, structure.size, dtype)
        parts = (loss, equality, inequality, sampler)
        key = (
            structure,
            np.dtype(dtype),
            tuple(form_of_part(part) for part in parts),
            form_of_regularizer(regularizer, structure.size, dtype),
        )
        probed = [part for part in parts if isinstance(part, Probed)]
        numbers = lambda: numbers_of(probed)  # noqa: E731
        large = check_size(probed)
        origin = " and ".join(p.origin for p in probed) or "The problem"
        programs = store.get(key, numbers, origin, large)
        if sampler is not None:
            source = Sampler(function_of(sampler, programs, "sampler"))
        return Oracles(
            loss=function_of(loss, programs, "loss"),
            source=Arriving() if isinstance(source, Stream) else source,
            regularizer=regularizer,
            equality=function_of(equality, programs, "equality"),
            inequality=function_of(inequality, programs, "inequality"),
            structure=structure,
            equality_structure=Structure.of(shapes_returned(equality, x)),
            inequality_structure=Structure.of(shapes_returned(inequality, x)),
            programs=programs,
        )

    def _example_batches(self, source: Any, dtype: Any) -> list[tuple[PyTree, ...]]:
        """Shapes of batches of two sizes, as arguments of the loss after x."""
        if isinstance(source, NoData):
            return [()]
        if isinstance(source, Stream):
            # Looked up: at the end of a run the stream may have ended.
            known: dict[Any, Any] = self._batches  # type: ignore[attr-defined]
            if dtype not in known:
                first = with_dtype(source.peek()[0], dtype)
                known[dtype] = [(with_rows(first, times),) for times in (1, 2)]
            return known[dtype]

        if isinstance(source, Finite):
            return [(source.batch_shapes(size),) for size in PROBED_SIZES]

        def batch(size: int) -> PyTree:
            draws = source.draw(keys.generator(0, keys.Purpose.CHECK), 1, size)
            return source.batch(jax.tree.map(lambda d: d[0], draws), size)

        # A fresh function: JAX remembers what it has seen of an old one.
        return [(jax.eval_shape(lambda size=size: batch(size)),) for size in PROBED_SIZES]


def _rebuilt(kind: type[Problem], given: list[Any]) -> Problem:
    """The problem that was pickled."""
    return kind(*restored(given))


# What is checked before anything is compiled ----------------------------------------------


def checked_point(name: str, x: PyTree) -> PyTree:
    """x with arrays of float64 as its leaves; TypeError or ValueError where they are no numbers."""
    refuse_tracers(x)

    def checked(leaf: Any) -> np.ndarray:
        array = concrete(leaf)
        if array is None:
            raise TypeError(
                f"{name} must be an array of real numbers, or a pytree of such arrays, but it "
                f"holds {shown(leaf)}."
            )
        return np.array(array, np.float64)

    point = jax.tree.map(checked, x)
    if not sum(array.size for array in jax.tree.leaves(point)):
        raise ValueError(
            f"{name} is empty: give an array, or a pytree of arrays, of the shape of x."
        )
    return point


def check_problem(name: str, problem: Any) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"{name} needs a mossp.Problem, but {type(problem).__name__} was given.")


def checked_rows(data: PyTree) -> tuple[PyTree, int]:
    """NumPy arrays and scipy.sparse matrices with a common number of finite rows."""
    leaves, treedef = jax.tree.flatten(data, is_leaf=scipy.sparse.issparse)
    if not leaves:
        raise ValueError("data is empty: give arrays with one row a sample, or None.")
    arrays = []
    for leaf in leaves:
        sparse = scipy.sparse.issparse(leaf)
        if hides_entries(leaf):
            raise ValueError(
                "data has masked entries, which are missing values: remove or impute these rows "
                "first."
            )
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
                    f"data has {counted(bad, 'NaN or infinite value')} in the array of shape "
                    f"{a.shape}: remove or impute these rows first."
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
