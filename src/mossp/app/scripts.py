"""A problem from a Python file of the user's: `problem.py:problem`."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mossp.problem import Problem
from mossp.solving.path import start_of


class Script(NamedTuple):
    """A problem, where to start, and the names of the variables if the file has them."""

    problem: Problem
    x0: Any
    names: Sequence[str] | None


def load(which: str) -> Script:
    r"""What `FILE.py:NAME` names: a Problem, a pair (Problem, x0), or a function that returns one.

    Without x0 in a pair, the file's own `x0` is taken, and else zeros, one for each column of the
    data. `names`, if the file has them, are those of the variables. Without :NAME it is `problem`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "plane.py"
    >>> _ = path.write_text("import mossp\nx0 = [1.0]\nproblem = mossp.Problem(lambda x: x @ x)\n")
    >>> load(f"{path}:problem").x0
    [1.0]
    """
    file, colon, name = which.rpartition(":")
    if not colon or file == "" or name.endswith(".py"):
        file, name = which, "problem"
    path = Path(file)
    if path.suffix != ".py":
        raise ValueError(f"{which!r} must be FILE.py:NAME, a name in a Python file.")
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    module = run(path)
    if not hasattr(module, name):
        listed = [n for n, v in vars(module).items() if isinstance(v, Problem)]
        hint = f"; its problems are {', '.join(listed)}" if listed else ""
        raise ValueError(f"{path} has nothing called {name!r}{hint}.")
    found = getattr(module, name)
    if callable(found) and not isinstance(found, Problem):
        found = guarded(path, found)
    pair = isinstance(found, tuple) and len(found) == 2
    problem, x0 = found if pair else (found, getattr(module, "x0", None))
    if not isinstance(problem, Problem):
        raise ValueError(
            f"{which} must be a mossp.Problem, a pair (Problem, x0), or a function that returns "
            f"one of these, but it is {type(problem).__name__}."
        )
    if x0 is None:
        try:
            x0 = start_of(problem)
        except ValueError:
            raise ValueError(
                f"{path} does not say where to start: give it x0 = ..., or make {name} a pair "
                "(problem, x0)."
            ) from None
    if isinstance(x0, tuple) and all(isinstance(v, (int, float)) for v in x0):
        x0 = np.array(x0, float)
    return Script(problem, x0, getattr(module, "names", None))


def run(path: Path) -> ModuleType:
    """The file as a module; files beside it can be imported."""
    spec = importlib.util.spec_from_file_location("mossp_problem", path)
    assert spec is not None and spec.loader is not None
    loader, module = spec.loader, importlib.util.module_from_spec(spec)
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)
    try:
        guarded(path, lambda: loader.exec_module(module))
    finally:
        sys.path.remove(folder)
    return module


def guarded(path: Path, function: Any) -> Any:
    """The function's value; an error in the user's file is one sentence with its line."""
    try:
        return function()
    except Exception as error:
        lines = [
            f.lineno
            for f in traceback.extract_tb(error.__traceback__)
            if Path(f.filename).resolve() == path.resolve()
        ]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f"{path}, line {line}" if line else f"{path}"
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"{where}: {type(error).__name__}: {reason}") from error
