"""Rows that a user's constraint has captured: in a fold they would still be all of them.

A function of the coefficients may look at an array from outside, a closure's or a module's. If that
has as many rows as X, it is most likely made of X, and cross-validation fits the function to rows
that it then tests with. `mossp.Expected` and `rates` are bound to the fold's own rows instead.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import jax

from mossp._base.printing import warn
from mossp.expected import Expected

FEWEST = 10  # rows, below which a length says nothing


def warn_of_captured(params: Any, rows: int | None) -> None:
    """Warn of constraints that hold an array of so many rows, where rows are cut into folds."""
    if rows is None or rows < FEWEST:
        return
    for name in ("equality", "inequality"):
        given = params[name]
        for one in given if isinstance(given, (list, tuple)) else [given]:
            held = None if one is None else captured(one, rows)
            if held is not None:
                warn(
                    f"The {name} constraint holds {held} with {rows} rows, as many as X has: in "
                    "cross-validation it stays about all of them, not those of the fold. Write it "
                    f"as {name}=mossp.Expected(lambda x, batch: ...), which is given the fold's "
                    "own rows, or as rates=[...]."
                )


def captured(function: Any, rows: int) -> str | None:
    """The name of an array with so many rows that a function looks at; None if there is none."""
    if isinstance(function, Expected):
        return captured(function.function, rows)  # rows of its own were given on purpose
    if isinstance(function, functools.partial):
        inside = [*function.args, *function.keywords.values()]
        return next((f"an argument of {shape_of(v)}" for v in inside if is_long(v, rows)), None)
    if isinstance(function, types.MethodType):
        return captured(function.__func__, rows) or held_by(function.__self__, rows)
    if isinstance(function, types.FunctionType):
        code = function.__code__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
        values: dict[str, Any] = {}
        for name, cell in cells:
            try:
                values[name] = cell.cell_contents
            except ValueError:  # not set yet
                continue
        defaults = function.__defaults__ or ()
        names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
        values |= dict(zip(names, defaults, strict=True)) | (function.__kwdefaults__ or {})
        outside = {n: function.__globals__[n] for n in code.co_names if n in function.__globals__}
        for name, value in {**outside, **values}.items():
            if is_long(value, rows):
                return f"`{name}`"
        return None
    return held_by(function, rows)


def held_by(thing: Any, rows: int) -> str | None:
    """An array that an object carries."""
    try:
        leaves = [*jax.tree.leaves(thing), *vars(thing).values()]
    except TypeError:
        return None
    return next((f"an array of {shape_of(v)}" for v in leaves if is_long(v, rows)), None)


def is_long(value: Any, rows: int) -> bool:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return len(shape) > 0 and shape[0] == rows
    return isinstance(value, (list, tuple)) and len(value) == rows


def shape_of(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"shape {shape}" if isinstance(shape, tuple) else f"length {len(value)}"


def rows_before_folds() -> int | None:
    """How many rows scikit-learn's cross-validation has, if this call is one of its fits."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        within = frame.f_globals.get("__name__") == "sklearn.model_selection._validation"
        if within and frame.f_code.co_name == "_fit_and_score":
            X = frame.f_locals.get("X")
            shape = getattr(X, "shape", None)
            return int(shape[0]) if shape else None
        frame = frame.f_back
    return None
