"""Rows that a user's constraint has captured: in a fold they would still be all of them.

A function of the coefficients may look at an array from outside, a closure's or a module's. If that
has as many rows as X, it is most likely made of X, and cross-validation fits the function to rows
that it then tests with. `mossp.Expected` and `rates` are bound to the fold's own rows instead.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax

from mossp._base.printing import warn
from mossp.expected import Expected
from mossp.sklearn.coefficients import entries

FEWEST = 10  # rows, below which a length says nothing
FEW = 20  # arrays in a dict or list that are looked at
DEEP = 5  # helpers that call helpers


def warn_of_captured(params: Any, rows: int | None) -> None:
    """Warn of constraints that hold an array of so many rows, where rows are cut into folds."""
    if rows is None or rows < FEWEST:
        return
    for name in ("equality", "inequality"):
        for _, one in entries(params[name]):
            held = captured(one, rows)
            if held is not None:
                warn(
                    f"The {name} constraint holds {held} with {rows} rows, as many as X has: in "
                    "cross-validation it stays about all of them, not those of the fold. Write it "
                    f"as {name}=mossp.Expected(lambda x, batch: ...), which is given the fold's "
                    "own rows, or as rates=[...]."
                )


def captured(function: Any, rows: int, deep: int = DEEP) -> str | None:
    """The name of an array with so many rows that a function looks at; None if there is none.

    Functions that it calls or defines itself are looked into as well, those of packages aside.
    """
    if isinstance(function, Expected):
        return captured(function.function, rows, deep)  # rows of its own were given on purpose
    if isinstance(function, functools.partial):
        inside = [*function.args, *function.keywords.values()]
        given = next((f"an argument of {shape_of(v)}" for v in inside if is_long(v, rows)), None)
        return given or captured(function.func, rows, deep)
    function = getattr(function, "__wrapped__", function)  # jitted, or decorated
    if isinstance(function, types.MethodType):
        return captured(function.__func__, rows, deep) or held_by(function.__self__, rows)
    if not isinstance(function, types.FunctionType):
        return held_by(function, rows)
    looked_at = outside(function)
    for name, value in looked_at.items():
        if is_long(value, rows) or any(is_long(one, rows) for one in within(value)):
            return f"`{name}`"
    helpers = [v for v in looked_at.values() if is_near(v, function)] if deep else []
    found = (captured(helper, rows, deep - 1) for helper in helpers if helper is not function)
    return next((name for name in found if name is not None), None)


def outside(function: types.FunctionType) -> dict[str, Any]:
    """What a function finds outside of itself, by name: in its module, closure and defaults."""
    values: dict[str, Any] = {}
    module = function.__globals__
    for code in codes(function.__code__):
        values |= {name: module[name] for name in code.co_names if name in module}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    return values | dict(zip(names, defaults, strict=True)) | (function.__kwdefaults__ or {})


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """That of a function, and of those that are written inside of it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)


def is_near(value: Any, function: types.FunctionType) -> bool:
    """Whether it is a function of the same module: a user's own helper, not a package's."""
    value = getattr(value, "__wrapped__", value)
    return isinstance(value, types.FunctionType) and value.__globals__ is function.__globals__


def within(value: Any) -> list[Any]:
    """What a dict, list or tuple of a few arrays holds."""
    if isinstance(value, dict):
        value = list(value.values())
    return list(value) if isinstance(value, (list, tuple)) and len(value) <= FEW else []


def held_by(thing: Any, rows: int) -> str | None:
    """An array that an object carries."""
    try:
        leaves = [*jax.tree.leaves(thing), *vars(thing).values()]
    except TypeError:
        return None
    return next((f"an array of {shape_of(v)}" for v in leaves if is_long(v, rows)), None)


def is_long(value: Any, rows: int) -> bool:
    """Whether one of its axes is as long; X may have been transposed."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return rows in shape
    return isinstance(value, (list, tuple)) and len(value) == rows


def shape_of(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"shape {shape}" if isinstance(shape, tuple) else f"length {len(value)}"


def rows_before_folds() -> int | None:
    """How many rows scikit-learn's cross-validation has, if this call is one of its fits."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        within = frame.f_globals.get("__name__") == "sklearn.model_selection._validation"
        if within and frame.f_code.co_name in ("_fit_and_score", "_fit_and_predict"):
            X = frame.f_locals.get("X")
            shape = getattr(X, "shape", None)
            return int(shape[0]) if shape else None
        frame = frame.f_back
    return None
