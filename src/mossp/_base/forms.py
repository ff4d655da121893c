"""What tells two jaxprs apart: equations and what they hold, as values that compare equal or not.

JAX makes new objects at every trace, of rules of differentiation and callbacks among them: these
are told apart by what they compute, or by the user's own objects in them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import types
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import core

from mossp._base.types import AnyArray

Form = tuple[Hashable, ...]  # what tells programs apart
Atom = Any  # an operand of an equation: a variable, or a number that was written into the code
Equation = Any
AnyJaxpr = Any

# Rules of differentiation are no part of a jaxpr: derivatives of such functions are traced as well.
WITH_OWN_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
# Where JAX and this library lie: their own rules do not change while a process lives.
FOLDERS = (Path(jax.__file__).parent, Path(__file__).parents[1])
LIBRARIES = tuple(f" at {folder}{os.sep}" for folder in FOLDERS)


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
