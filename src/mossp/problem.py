"""The problem as a user states it.

min  f(x) + h(x) - g(x)    s.t.  c_E(x) = 0,  c_I(x) <= 0

or, with a concave part that is a mean over rows as f is,  f(x) - E[g(x, xi)] + h(x) - g_r(x).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from mossp._base import keys
from mossp._base.module import restored, stored
from mossp._base.printing import shown
from mossp._base.programs import compiled as compiled_with_programs
from mossp._base.programs import store
from mossp._base.structure import Structure, with_dtype
from mossp._base.surroundings import fork, refuse_tracers
from mossp._base.tracing import Probed, same_bits
from mossp._base.types import PyTree
from mossp._base.validation import concrete
from mossp.data import Finite, Source, as_source, joined
from mossp.expected import Expected, Side, as_concave
from mossp.foreign import check_foreign
from mossp.functions import (
    check_regularizer_fits,
    check_size,
    form_of_part,
    form_of_regularizer,
    function_of,
    is_own,
    numbers_of,
    probe_constraint,
    probe_loss,
    probe_sampler,
    returned,
    shapes,
    warn_of_long,
)
from mossp.losses import Loss
from mossp.oracles import Oracles
from mossp.regularizers import Regularizer, Zero
from mossp.smoothing import Smooth
from mossp.terms import Concave, Term, Terms

POOL = 4096  # rows that stand for all where constraints are measured again and again
CONCAVE = "The concave part"  # as an error names it


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
    equality, inequality : callable, Expected, or dict or list of these, optional
        Functions of x that return a scalar, a vector, or a dict of arrays; or means over rows,
        `mossp.Expected(function)`. The multipliers carry the names of dicts.
    concave : callable or Expected, optional
        `g(x, batch)`, the mean over the rows of `batch` of functions that are convex in x, perhaps
        with kinks: -E[g] is added to the objective. `mossp.Expected(g, data=...)` has rows of its
        own; `mossp.smoothing.Smooth(g)` says that g has no kinks.

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
    equality: Any = None
    inequality: Any = None
    concave: Any = None
    samples: int | None = dataclasses.field(default=None, init=False)

    # Made from these once.
    _sides: ClassVar[tuple[Side, Side]]
    _concave: ClassVar[Expected | None]
    _every: ClassVar[tuple[Source, ...]]  # the rows of the loss, and those of other parts
    _sources: ClassVar[dict[tuple[int, Any], Source]]
    _pools: ClassVar[dict[tuple[int, Any], Finite]]
    _ready: ClassVar[dict[Any, tuple[Regularizer, Oracles]]]

    def __post_init__(self) -> None:
        fork.check()
        refuse_tracers(self.regularizer, self.data)
        if not callable(self.loss):
            raise TypeError(f"loss must be a function, but {shown(self.loss)} was given.")
        sides = Side.of("equality", self.equality), Side.of("inequality", self.inequality)
        object.__setattr__(self, "_sides", sides)
        object.__setattr__(self, "_concave", as_concave(self.concave))
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
        looking = [*self._expected, *([] if self._concave is None else [self._concave])]
        own = {id(e.data): e.data for e in looking if e.data is not None}
        if source.deterministic and any(e.data is None for e in self._expected):
            raise ValueError(
                "A constraint looks at the rows of the problem, which has no data: give rows to "
                "the problem, or to the constraint, mossp.Expected(function, data=...)."
            )
        object.__setattr__(self, "_every", (source, *own.values()))
        # By number of the source and precision; finite data are kept in float64.
        kept = {(k, np.dtype(np.float64)): s for k, s in enumerate(self._every) if s.rows}
        object.__setattr__(self, "_sources", kept)
        object.__setattr__(self, "_pools", {})
        object.__setattr__(self, "_ready", {})

    @property
    def deterministic(self) -> bool:
        """Whether neither the loss nor another part looks at rows."""
        return self._every[0].deterministic and not self._expected and len(self._every) == 1

    @property
    def most_rows(self) -> int | None:
        """Rows of the longest data, of the loss or of a constraint; None where there is no end."""
        sources = [s for s in self._every if not s.deterministic]
        rows = [s.rows for s in sources if s.rows is not None]
        return max(rows) if rows and len(rows) == len(sources) else None

    @property
    def said(self) -> list[str]:
        """Where rows come from that are not in memory."""
        return [source.said for source in self._every if source.said]

    def entries(self) -> list[tuple[str, Any, int | None]]:
        """Every constraint: how an error names it, itself, the number of the source of its rows."""
        each = [(what, e) for side in self._sides
                for what, e in zip(side.described(), side.entries, strict=True)]  # fmt: skip
        return [(what, e, self._number(e)) for what, e in each]

    @property
    def _expected(self) -> list[Expected]:
        """The constraints that look at rows."""
        return [e for side in self._sides for e in side.entries if isinstance(e, Expected)]

    def __reduce__(self) -> Any:
        """Pickled and copied bit for bit: the data as they are kept, and no caches."""
        given = [getattr(self, f.name) for f in dataclasses.fields(self) if f.init]
        return _rebuilt, (type(self), stored(given))

    def source(self, dtype: Any = np.float64, number: int = 0) -> Source:
        """Rows in this precision, converted once: those of the loss, unless told."""
        key = number, np.dtype(dtype)
        if key not in self._sources:
            with jax.enable_x64(key[1] == np.float64):
                self._sources[key] = self._every[number].astype(key[1])
        return self._sources[key]

    def steps(self, dtype: Any = np.float64) -> Any:
        """What mini-batches are drawn from: rows of the loss, and of constraints besides."""
        sources = tuple(self.source(dtype, k) for k in range(len(self._every)))
        numbers = {self._number(e) for e in self._expected}
        return joined(sources, tuple(k in numbers for k in range(len(sources))), self._value_sizes)

    def _number(self, entry: Any) -> int | None:
        """Of the source that a constraint looks at; None for a function of x alone."""
        if not isinstance(entry, Expected):
            return None
        return 0 if entry.data is None else [id(s) for s in self._every].index(id(entry.data))

    @property
    def _value_sizes(self) -> tuple[int | None, ...]:
        """The largest batch that a constraint asks for, by number of the source."""
        asked = [(self._number(e), e.batch_size) for e in self._expected]
        sizes = [[n for k, n in asked if k == number and n] for number in range(len(self._every))]
        return tuple(max(each, default=None) for each in sizes)

    def oracles(self, x0: PyTree, dtype: Any = np.float64) -> Oracles:
        """What a method may call, as functions of the vector x; wrong shapes are found here.

        The user's functions are traced anew, as they are now; an equal problem finds the programs
        that were compiled for it. Where there are none, what was made for one regulariser serves
        others of its kind.
        """
        fork.check()
        refuse_tracers(x0, self.regularizer)
        # Outside of it JAX traces doubles as singles, and from version 0.12 on says so.
        with jax.enable_x64(np.dtype(dtype) == np.float64):
            return self._as_before(x0, dtype) if self.unchanging else self._traced(x0, dtype)

    @property
    def unchanging(self) -> bool:
        """Whether all functions are this library's, and hold no arrays that might change."""
        alone = len(self._every) == 1 and self._every[0].function is None
        without = self._concave is None and not any(side.entries for side in self._sides)
        own = isinstance(self.loss, Loss) and is_own(self.loss) and is_own(self.regularizer)
        return alone and without and own and not holds_arrays(self.loss)

    def _as_before(self, x0: PyTree, dtype: Any) -> Oracles:
        """The oracles of an earlier call, under the regulariser as it is now."""
        structure = Structure.of(x0)
        key = structure, np.dtype(dtype)
        regularizer = self.regularizer.on(structure.slices)
        before, oracles = self._ready.get(key, (None, None))
        if before is None or oracles is None or not alike(before, regularizer):
            oracles = self._traced(x0, dtype)
        elif not same_leaves(before, regularizer):
            oracles = dataclasses.replace(oracles, regularizer=with_dtype(regularizer, dtype))
        else:
            return oracles
        self._ready[key] = copied(regularizer), oracles
        return oracles

    def _traced(self, x0: PyTree, dtype: Any) -> Oracles:
        structure = Structure.of(x0)
        sources = [self.source(dtype, k) for k in range(len(self._every))]
        x = shapes(x0, dtype)
        samplers = [
            None if s.function is None else probe_sampler(s.function, dtype) for s in sources
        ]
        check_foreign("The loss", self.loss, x0, sources[0])
        loss = probe_loss(self.loss, x0, x, sources[0].shapes(), dtype)
        concave = None if self._concave is None else self._number(self._concave)
        g = None
        if self._concave is not None and concave is not None:
            batches, function = sources[concave].shapes(), self._concave.function
            check_foreign(CONCAVE, function, x0, sources[concave])
            g = probe_loss(function, x0, x, batches, dtype, CONCAVE)
        sides = [self._probed(side, x0, x, sources, dtype) for side in self._sides]
        regularizer = with_dtype(self.regularizer.on(structure.slices), dtype)
        check_regularizer_fits(regularizer, structure.size, dtype)
        entries = [entry for side in sides for entry in side]
        parts = (loss, *(entry.part for entry in entries), *samplers)
        parts = parts if g is None else (*parts, g)
        key = (
            structure,
            np.dtype(dtype),
            tuple(form_of_part(part) for part in parts),
            tuple(entry.number for entry in entries),
            self._value_sizes,
            form_of_regularizer(regularizer, structure.size, dtype),
            concave,
        )
        probed = [part for part in parts if isinstance(part, Probed)]
        numbers = lambda: numbers_of(probed)  # noqa: E731
        large = check_size(probed)
        origin = " and ".join(p.origin for p in probed) or "The problem"
        programs = store.get(key, numbers, origin, large)
        warn_of_long(probed, programs)
        compiled = tuple(
            source.compiled(function_of(sampler, programs, f"sampler {k}"))
            for k, (source, sampler) in enumerate(zip(sources, samplers, strict=True))
        )
        terms = (
            Term(function_of(e.part, programs, f"constraint {i}"), e.number, e.size)
            for i, e in enumerate(entries)
        )
        shapes_of = [
            Structure.of(jax.tree.unflatten(side.treedef, [e.shapes for e in found]))
            for side, found in zip(self._sides, sides, strict=True)
        ]
        oracles = Oracles(
            loss=function_of(loss, programs, "loss"),
            source=compiled[0],
            regularizer=regularizer,
            terms=Terms(tuple(terms), structure),
            concave=None
            if g is None or concave is None
            else Concave(function_of(g, programs, "concave"), concave),
            others=compiled[1:],
            pools=(None,) * len(compiled),
            structure=structure,
            equality_structure=shapes_of[0],
            inequality_structure=shapes_of[1],
            value_sizes=self._value_sizes,
            programs=programs,
        )
        return dataclasses.replace(oracles, pools=self._pooled(oracles, dtype))

    @property
    def smooth(self) -> bool:
        """Whether the concave part was declared to have no kinks."""
        return self._concave is not None and isinstance(self._concave.function, Smooth)

    def _probed(
        self, side: Side, x0: PyTree, x: PyTree, sources: list[Source], dtype: Any
    ) -> list[Probe]:
        """The constraints of one side as they are now; x has the shapes of x0."""
        found = []
        for entry, what in zip(side.entries, side.described(), strict=True):
            number = self._number(entry)
            batches = [()] if number is None else sources[number].shapes()
            function = entry.function if isinstance(entry, Expected) else entry
            check_foreign(what, function, x0, None if number is None else sources[number])
            part = probe_constraint(what, function, x, batches, dtype)
            out = returned(what, part, "", x, *batches[0])
            found.append(Probe(part, number, out))
        return found

    def _pooled(self, oracles: Oracles, dtype: Any) -> tuple[Finite | None, ...]:
        """Rows that stand for all of a source, by number; None where they are few, or not needed.

        What is measured at them again and again costs little; samples without end have no others.
        """
        pools: list[Finite | None] = [None] * len(self._every)
        for number in oracles.looked_at:
            source, key = self.source(dtype, number), (number, np.dtype(dtype))
            if source.deterministic or (source.rows is not None and source.rows <= POOL):
                continue
            if source.function is not None:  # which may have changed
                pools[number] = Finite.whole(sample_of(oracles, number, POOL))
                continue
            if key not in self._pools:
                self._pools[key] = Finite.whole(source.some_rows(POOL))
            pools[number] = self._pools[key]
        return tuple(pools)


def holds_arrays(tree: PyTree) -> bool:
    return any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(tree))


def alike(a: PyTree, b: PyTree) -> bool:
    """Whether two trees differ in their numbers at most."""
    mine, others = (
        [(np.shape(leaf), np.result_type(leaf)) for leaf in jax.tree.leaves(tree)]
        for tree in (a, b)
    )
    structures: list[Any] = [jax.tree.structure(tree) for tree in (a, b)]
    return mine == others and bool(structures[0] == structures[1])


def same_leaves(a: PyTree, b: PyTree) -> bool:
    return all(map(same_bits, jax.tree.leaves(a), jax.tree.leaves(b)))


def copied(tree: PyTree) -> PyTree:
    """With copies of arrays of NumPy, which their owner may change."""
    return jax.tree.map(lambda a: a.copy() if isinstance(a, np.ndarray) else a, tree)


class Probe(NamedTuple):
    """One constraint as it is now."""

    part: Any
    number: int | None  # of the source of its rows
    shapes: PyTree  # of what it returns

    @property
    def size(self) -> int:
        return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(self.shapes))


def sample_of(oracles: Oracles, number: int, count: int) -> PyTree:
    """So many samples of a sampler, always the same."""
    return _sample(oracles, keys.jax_keys(keys.generator(0, keys.Purpose.POOL)), number, count)


@compiled_with_programs(static_argnums=(2, 3))
def _sample(oracles: Oracles, key: Any, number: int, count: int) -> PyTree:
    return oracles.source_of(number).batch(key, count)


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
    if isinstance(x, list) and x and all(isinstance(v, (int, float)) for v in x):
        x = np.array(x, np.float64)  # a list of numbers is a vector to whoever writes one

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
