"""A user's function as what it computes, so that compiled programs are never out of date.

JAX caches programs by the identity of a function. A global, an attribute or a list that it reads
may change, and JAX does not notice. So every solve traces the user's functions anew (a millisecond
or two each), and what was traced is what tells programs apart (`_base.forms`).

The number of rows of a batch enters a jaxpr as well (a mean divides by it). A number counts as the
user's own where it is the same at two batch sizes; what differs, stays in the code (`_base.code`).
What is called inside but is opaque to tracing keeps its identity: callbacks into Python, and a
user's own `@jax.jit`, which JAX caches inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from mossp._base.forms import (
    LIBRARIES,
    WITH_OWN_RULES,
    AnyJaxpr,
    Equation,
    Form,
    described,
    form_of,
    is_number,
)
from mossp._base.printing import shown
from mossp._base.types import AnyArray, PyTree

Numbers = tuple[AnyArray, ...]

# Beyond so many scalars they stay in the code: each is an operation of its own in the program.
MOST_SCALARS = 64


class Trace(NamedTuple):
    """A function at given shapes."""

    closed: AnyJaxpr  # its jaxpr
    out: jax.tree_util.PyTreeDef  # structure of what it returns
    form: Form  # the equations, without the numbers
    numbers: Numbers  # constants, then scalars in the order of the equations

    def evaluate(self, numbers: Sequence[AnyArray], args: list[AnyArray]) -> PyTree:
        """The function, with other numbers in place of its own."""
        jaxpr = self.closed.jaxpr
        new = core.gensym()
        places, eqns = [], []
        for eqn in jaxpr.eqns:
            invars = []
            for atom in eqn.invars:
                if is_number(atom):
                    places.append(new(atom.aval))
                    atom = places[-1]
                invars.append(atom)
            eqns.append(eqn.replace(invars=invars))
        opened = jaxpr.replace(constvars=[*jaxpr.constvars, *places], eqns=eqns)
        return jax.tree.unflatten(self.out, jax.core.eval_jaxpr(opened, numbers, *args))


class Kept:
    """Copies of the arrays that a function holds: NumPy's may change while a run goes on.

    One copy of each, however often the function is traced.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # with what they are copies of

    def __call__(self, constant: Any) -> Any:
        if not isinstance(constant, np.ndarray):
            return constant
        return self._copies.setdefault(id(constant), (constant, constant.copy()))[1]


def trace(function: Callable[..., PyTree], *args: PyTree, kept: Kept | None = None) -> Trace:
    """What the function computes now. Python's whole numbers among the arguments are static."""
    leaves, treedef = jax.tree.flatten(args)
    arrays = [leaf for leaf in leaves if not isinstance(leaf, int)]
    out: list[jax.tree_util.PyTreeDef] = []

    def fresh(*arrays: AnyArray) -> list[AnyArray]:  # a function that JAX has never seen
        rest = iter(arrays)
        given = [leaf if isinstance(leaf, int) else next(rest) for leaf in leaves]
        values, structure = jax.tree.flatten(function(*jax.tree.unflatten(treedef, given)))
        for value in values:
            if not is_returnable(value):
                raise TypeError(f"it returns {shown(value)}, which is no number")
        out.append(structure)
        return values

    closed = jax.make_jaxpr(fresh)(*arrays)
    constants = map(kept or Kept(), closed.consts)
    scalars = [
        np.array(atom.val, atom.aval.dtype)
        for eqn in closed.jaxpr.eqns
        for atom in eqn.invars
        if is_number(atom)
    ]
    return Trace(closed, out[-1], form_of(closed.jaxpr, open_=True), (*constants, *scalars))


def inner_jaxprs(jaxpr: AnyJaxpr) -> Iterator[AnyJaxpr]:
    """A jaxpr and all that it calls."""
    yield jaxpr
    for eqn in jaxpr.eqns:
        for inner in core.jaxprs_in_params(eqn.params):
            yield from inner_jaxprs(inner)


def equations(traced: Trace) -> int:
    """The size of a traced program."""
    return sum(len(jaxpr.eqns) for jaxpr in inner_jaxprs(traced.closed.jaxpr))


def has_own_rules(traced: Trace) -> bool:
    """Whether a function has rules of differentiation, the user's own, that its jaxpr hides."""
    every = (eqn for jaxpr in inner_jaxprs(traced.closed.jaxpr) for eqn in jaxpr.eqns)
    return any(eqn.primitive.name in WITH_OWN_RULES and not of_a_library(eqn) for eqn in every)


def of_a_library(eqn: Equation) -> bool:
    """Whether a function with a rule was written in JAX or here, where rules do not change."""
    try:
        source = str(eqn.params["call_jaxpr"].jaxpr.debug_info.func_src_info)
    except (AttributeError, KeyError):
        return False
    return any(folder in source for folder in LIBRARIES)


class Probed(NamedTuple):
    """A user's function as it is now."""

    function: Callable[..., PyTree]  # of the arrays of a module, and of its arguments
    arrays: PyTree  # of a module or a Partial: its leaves
    traces: tuple[Trace, ...]  # at one or two sizes of a batch
    hoisted: tuple[int, ...]  # places of the numbers that are arguments of programs
    form: Form  # all that tells programs apart
    kept: Kept
    origin: str  # where the function comes from, for people

    @property
    def numbers(self) -> Numbers:
        """The user's own numbers."""
        return tuple(self.traces[0].numbers[i] for i in self.hoisted)

    @property
    def out(self) -> PyTree:
        """Shapes of what it returns."""
        first = self.traces[0]
        return jax.tree.unflatten(first.out, first.closed.out_avals)

    @property
    def size(self) -> int:
        """Equations in its program, those of inner programs included."""
        return equations(self.traces[0])


def probe(
    function: Callable[..., PyTree],
    arguments: list[tuple[PyTree, ...]],
    convert: Callable[[PyTree], PyTree],
) -> Probed:
    """Trace a function at given arguments; `convert` brings the arrays of a module to one type."""
    arrays, rest = eqx.partition(function, is_number_or_array)
    arrays = convert(arrays)

    def call(arrays: PyTree, *args: PyTree) -> PyTree:
        return eqx.combine(arrays, rest)(*args)

    given = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arrays)
    kept = Kept()
    traces = tuple(trace(call, given, *args, kept=kept) for args in arguments)
    places = hoisted(traces)
    staying = [i for i in range(len(traces[0].numbers)) if i not in places]
    form = (
        tuple(t.form for t in traces),
        tuple(described(t.numbers[i]) for t in traces for i in staying if i < len(t.numbers)),
        forms_of_derivatives(call, given, *arguments[0]) if has_own_rules(traces[0]) else (),
    )
    return Probed(call, arrays, traces, places, form, kept, origin(function))


def forms_of_derivatives(
    call: Callable[..., PyTree], arrays: PyTree, x: PyTree, *rest: PyTree
) -> Form:
    """The first and second derivative in x of the sum of all that a function returns."""

    def total(x: PyTree, arrays: PyTree, *rest: PyTree) -> AnyArray:
        return sum(leaf.sum() for leaf in jax.tree.leaves(call(arrays, x, *rest)))

    def curvature(x: PyTree, *rest: PyTree) -> PyTree:
        return jax.jvp(lambda x: jax.grad(total)(x, *rest), (x,), (x,))[1]

    found = [trace(derivative, x, arrays, *rest) for derivative in (jax.grad(total), curvature)]
    return tuple((t.form, tuple(map(described, t.numbers))) for t in found)


def origin(function: Callable[..., PyTree]) -> str:
    """A function by its name and the place where it was written."""
    inner = getattr(function, "func", function)
    code = getattr(inner, "__code__", None)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def is_number_or_array(leaf: object) -> bool:
    return isinstance(leaf, (bool, int, float, np.ndarray, np.generic, jax.Array))


def is_returnable(leaf: object) -> bool:
    """Whether JAX takes it as a value of a function: no text, no dates, no objects."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf.dtype.kind == "b" or jnp.issubdtype(leaf.dtype, np.number)
    return isinstance(leaf, (bool, int, float, complex, jax.Array))


def hoisted(probes: tuple[Trace, ...]) -> tuple[int, ...]:
    """Places of the numbers that are arguments: those that do not depend on the batch size."""
    first = probes[0].numbers
    if any(len(p.numbers) != len(first) for p in probes):
        return ()
    places = [i for i, a in enumerate(first) if all(same_bits(a, p.numbers[i]) for p in probes[1:])]
    scalars = len(first) - len(probes[0].closed.consts)
    if scalars > MOST_SCALARS:
        places = [i for i in places if i < len(probes[0].closed.consts)]
    return tuple(places)


def same_bits(a: AnyArray, b: AnyArray) -> bool:
    if a is b:
        return True
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
