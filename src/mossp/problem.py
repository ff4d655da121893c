"""The problem as a user states it.

min  f(x) + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mossp._base.module import restored, stored
from mossp._base.printing import shown
from mossp._base.programs import store
from mossp._base.structure import Structure, with_dtype
from mossp._base.surroundings import fork, refuse_tracers
from mossp._base.tracing import Probed
from mossp._base.types import PyTree
from mossp._base.validation import concrete
from mossp.data import Source, as_source
from mossp.functions import (
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
    warn_of_long,
)
from mossp.losses import Loss
from mossp.oracles import Oracles
from mossp.regularizers import Regularizer, Zero


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """min E[f(x, xi)] + h(x) - g(x) subject to equality(x) = 0 and inequality(x) <= 0.

    Parameters
    ----------
    loss : callable
        `loss(x, batch)`, the mean over the rows of `batch`, in JAX; x is any pytree of arrays.
        Without data it is a deterministic `loss(x)`.
    data : array, pytree of arrays, Sampler or Stream, optional
        Arrays with a common leading axis (NumPy, JAX or scipy.sparse, which is never made dense:
        `batch[0] @ x` works all the same), or a source of batches.
    regularizer : Regularizer, optional
        h - g; none if left out.
    equality, inequality : callable, optional
        Functions of x that return a scalar, a vector, or a dict of arrays, whose names the
        multipliers then carry.

    Attributes
    ----------
    samples : int or None
        Rows of the data, where they are finitely many.

    Examples
    --------
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
        check = self.loss.check if isinstance(self.loss, Loss) else lambda arrays: None
        source = as_source(self.data, check)
        if self.data is not None:
            object.__setattr__(self, "data", source)
        object.__setattr__(self, "samples", source.rows)
        sources: dict[Any, Source] = {None: source}
        if source.rows is not None:
            sources[np.dtype(np.float64)] = source  # in which rows are kept
        object.__setattr__(self, "_sources", sources)

    def __reduce__(self) -> Any:
        """Pickled and copied bit for bit: the data as they are kept, and no caches."""
        given = [getattr(self, f.name) for f in dataclasses.fields(self) if f.init]
        return _rebuilt, (type(self), stored(given))

    def source(self, dtype: Any = np.float64) -> Source:
        """The data in this precision, converted once."""
        sources: dict[Any, Source] = self._sources  # type: ignore[attr-defined]
        dtype = np.dtype(dtype)
        if dtype not in sources:
            with jax.enable_x64(dtype == np.float64):
                sources[dtype] = sources[None].astype(dtype)
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
        sampler = None if source.function is None else probe_sampler(source.function, dtype)
        loss = probe_loss(self.loss, x0, x, source.shapes(), dtype)
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
        warn_of_long(probed, programs)
        return Oracles(
            loss=function_of(loss, programs, "loss"),
            source=source.compiled(function_of(sampler, programs, "sampler")),
            regularizer=regularizer,
            equality=function_of(equality, programs, "equality"),
            inequality=function_of(inequality, programs, "inequality"),
            structure=structure,
            equality_structure=Structure.of(shapes_returned(equality, x)),
            inequality_structure=Structure.of(shapes_returned(inequality, x)),
            programs=programs,
        )


def _rebuilt(kind: type[Problem], given: list[Any]) -> Problem:
    """The problem that was pickled."""
    if not fork.cut_off:
        return kind(*restored(given))
    problem = object.__new__(kind)  # to be handed over to a task, in which `solve` refuses it
    for field, value in zip(dataclasses.fields(kind), restored(given), strict=False):
        object.__setattr__(problem, field.name, value)
    return problem


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
