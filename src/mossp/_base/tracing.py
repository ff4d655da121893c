"""A user's function as what it computes, so that compiled programs are never out of date.

JAX caches programs by the identity of a function. A global, an attribute or a list that it reads
may change, and JAX does not notice. So every solve traces the user's functions anew (a millisecond
or two each), and what was traced is what tells programs apart:

    Code      what a function computes: the equations of its jaxpr, without the numbers in them
    Function  the code together with its numbers, which are arguments of the compiled programs:
              `lambda x: x @ x - 1.0` and `lambda x: x @ x - 2.0` share one program

The number of rows of a batch enters a jaxpr as well (a mean divides by it). A number counts as the
user's own where it is the same at two batch sizes; what differs, stays in the code. What is called
inside but is opaque to tracing keeps its identity: callbacks into Python, and a user's own
`@jax.jit`, which JAX caches inside.
"""

from __future__ import annotations

import functools
import hashlib
import os
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from mossp._base.printing import shown
from mossp._base.types import AnyArray, PyTree

Form = tuple[Hashable, ...]  # what tells programs apart
Numbers = tuple[AnyArray, ...]
Atom = Any  # an operand of an equation: a variable, or a number that was written into the code
Equation = Any
AnyJaxpr = Any

# Beyond so many scalars they stay in the code: each is an operation of its own in the program.
MOST_SCALARS = 64
# Rules of differentiation are no part of a jaxpr: derivatives of such functions are traced as well.
WITH_OWN_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")


# Where JAX and this library lie: their own rules do not change while a process lives.
FOLDERS = (Path(jax.__file__).parent, Path(__file__).parents[1])
LIBRARIES = tuple(f" at {folder}{os.sep}" for folder in FOLDERS)


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


def is_number(atom: Atom) -> bool:
    """Whether an operand of an equation is a real number that was written into the code."""
    aval = atom.aval
    return isinstance(atom, core.Literal) and np.issubdtype(aval.dtype, np.floating)


def form_of(jaxpr: AnyJaxpr, open_: bool = False) -> Form:
    """The equations as a value that compares equal where they compute the same.

    `open_`: real numbers in it are left out.
    """
    order: dict[Atom, int] = {}

    def name(atom: Atom) -> Hashable:
        if isinstance(atom, core.Literal):
            return "number" if open_ and is_number(atom) else described(atom.val)
        return order.setdefault(atom, len(order))

    def typed(atoms: Iterable[Atom]) -> Form:
        return tuple((name(a), str(a.aval)) for a in atoms)

    inputs = typed([*jaxpr.constvars, *jaxpr.invars])
    equations = tuple(
        (eqn.primitive.name, typed(eqn.invars), params_of(eqn), typed(eqn.outvars))
        for eqn in jaxpr.eqns
    )
    return (inputs, equations, typed(jaxpr.outvars))


def params_of(eqn: Equation) -> Form:
    plain = (core.ClosedJaxpr, core.Jaxpr, bool, int, str, tuple, type(None))

    def shown(key: str, value: object) -> Hashable:
        """A rule of differentiation is a new object at every trace: derivatives show what it is."""
        inner = type(value).__name__ == "WrappedFun"  # what a rule is inside of JAX
        rule = eqn.primitive.name in WITH_OWN_RULES and not isinstance(value, plain)
        return key if inner or rule else described(value)

    return tuple((key, shown(key, value)) for key, value in sorted(eqn.params.items()))


def described(value: object) -> Hashable:
    """A value that can be compared: by content where there is one, else by identity."""
    if isinstance(value, core.ClosedJaxpr):
        return (form_of(value.jaxpr), tuple(map(described, value.consts)))
    if isinstance(value, core.Jaxpr):
        return form_of(value)
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return digest(value)
    if isinstance(value, (tuple, list)):
        return tuple(map(described, value))
    if isinstance(value, dict):
        return tuple((described(k), described(v)) for k, v in value.items())
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return held_by(value)
    if type(value) is float:
        return (float, repr(value))  # NaN is equal to itself here, and -0.0 not to 0.0
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


class Same:
    """An object that is equal to itself alone."""

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing


def held_by(value: object) -> Hashable:
    """A callback into Python: the same code with the very same objects in it.

    JAX wraps it in new functions at every trace.
    """
    if isinstance(value, types.FunctionType):
        cells = tuple(held_by(unwrapped(value, cell)) for cell in value.__closure__ or ())
        return (value.__code__, cells, held_by(value.__defaults__), Same(value.__globals__))
    if isinstance(value, types.MethodType):
        return (held_by(value.__func__), Same(value.__self__))
    if isinstance(value, functools.partial):
        return (held_by(value.func), held_by(value.args), held_by(tuple(value.keywords.items())))
    if isinstance(value, tuple):
        return tuple(map(held_by, value))
    if isinstance(value, jax.core.Tracer):  # of this very trace
        return str(jax.typeof(value))
    plain = value is None or isinstance(value, (bool, int, str, jax.tree_util.PyTreeDef))
    return value if plain else Same(value)


def unwrapped(function: types.FunctionType, cell: types.CellType) -> object:
    """What a function holds; a dict of JAX's own, made anew for every wrapper, by its contents."""
    held, ours = cell.cell_contents, function.__code__.co_filename.startswith(LIBRARIES[0][4:])
    return tuple(held.items()) if ours and isinstance(held, dict) else held


def digest(array: AnyArray) -> Form:
    """An array by its bytes."""
    a = np.ascontiguousarray(array)
    return (a.dtype.str, a.shape, hashlib.sha256(a.tobytes()).digest())


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


class Code:
    """What a function of a problem computes, whatever its numbers.

    It remembers what it traced, so that a run sees one function from its beginning to its end.
    """

    def __init__(self, probed: Probed, programs: Hashable, part: str) -> None:
        self.probed, self.programs, self.part = probed, programs, part
        self.traces: dict[Hashable, Trace] = {}
        self.inlined = False  # whether some batch size has numbers at other places than the probes

    def at(self, leaves: list[AnyArray], treedef: jax.tree_util.PyTreeDef) -> Trace:
        """The trace for arguments of these shapes."""
        kinds = tuple(leaf if isinstance(leaf, int) else jax.typeof(leaf) for leaf in leaves)
        key = (treedef, kinds)
        if key not in self.traces:
            shapes = [
                kind if isinstance(kind, int) else jax.ShapeDtypeStruct(kind.shape, kind.dtype)
                for kind in kinds
            ]
            args, kept = jax.tree.unflatten(treedef, shapes), self.probed.kept
            self.traces[key] = trace(self.probed.function, *args, kept=kept)
        return self.traces[key]

    def evaluate(self, numbers: Numbers, *args: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(args)
        traced = self.at(leaves, treedef)
        values, probed = list(traced.numbers), self.probed
        first, places = probed.traces[0].numbers, probed.hoisted
        if len(values) == len(first) and all(same_bits(values[i], first[i]) for i in places):
            for i, number in zip(places, numbers, strict=True):
                values[i] = number
        else:
            self.inlined |= bool(places)
        return traced.evaluate(values, [leaf for leaf in leaves if not isinstance(leaf, int)])


class Name:
    """What JAX remembers of a function: its part (loss, constraint, ...) in a set of programs.

    Two functions of the same name are the same program. JAX remembers for long, and so a name does
    not keep the code alive, with all that the user's function holds.
    """

    def __init__(self, code: Code) -> None:
        self.programs, self.part, self.code = code.programs, code.part, weakref.ref(code)

    def __hash__(self) -> int:
        return hash((id(self.programs), self.part))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and (
            self.programs is other.programs and self.part == other.part
        )


@jax.tree_util.register_pytree_node_class
class Function:
    """A user's function as an argument of compiled programs: its arrays and numbers are leaves."""

    def __init__(self, arrays: PyTree, numbers: Numbers, code: Code | None) -> None:
        self.arrays = arrays  # of a module or a Partial
        self.numbers, self.code = numbers, code

    def __call__(self, *args: PyTree) -> PyTree:
        assert self.code is not None, "the problem that this function belongs to is gone"
        return self.code.evaluate(self.numbers, self.arrays, *args)

    def tree_flatten(self) -> tuple[tuple[PyTree, Numbers], Name | None]:
        return (self.arrays, self.numbers), None if self.code is None else Name(self.code)

    @classmethod
    def tree_unflatten(cls, name: Name | None, leaves: tuple[PyTree, Numbers]) -> Function:
        arrays, numbers = leaves
        return cls(arrays, numbers, None if name is None else name.code())


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
