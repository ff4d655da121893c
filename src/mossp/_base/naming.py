"""Things chosen by name, with numbers: "l1-l2:0.01", "quantile:0.9,0.05"."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from mossp._base.printing import counted, quoted

T = TypeVar("T")


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like this one, if there is one: what was perhaps meant.

    Examples
    --------
    >>> closest("polyka", ["polyak", "recursive"]), closest("svrg", ["polyak", "recursive"])
    ('polyak', None)
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def find(
    text: object, table: Mapping[str, T], what: str, meant: Mapping[str, str] | None = None
) -> tuple[T, list[float]]:
    """The entry of the table that a text names, and the numbers after its colon.

    `meant` has names that are not in the table, each with the one that it most likely stands for.

    Examples
    --------
    >>> find("mcp:0.1,3", {"mcp": "MCP"}, "regulariser")
    ('MCP', [0.1, 3.0])
    """
    if not isinstance(text, str):
        raise TypeError(f"The name of a {what} must be text, but {quoted(text)} was given.")
    name, colon, rest = (part.strip() for part in text.partition(":"))
    if name not in table:
        near = (meant or {}).get(name.lower()) or closest(name, table, cutoff=0.45)
        hint = f" Did you mean {quoted(near)}?" if near else ""
        raise ValueError(f"There is no {what} {quoted(name)}: choose {', '.join(table)}.{hint}")
    try:
        numbers = [float(part) for part in rest.split(",")] if colon else []
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(
            f"After {name}: numbers are needed, with commas between them, but {quoted(text)} was "
            "given."
        )
    return table[name], numbers


def call(make: Callable[..., T], numbers: list[float], text: str) -> T:
    """make(*numbers); ValueError where there are too few or too many of them."""
    try:
        return make(*numbers)
    except TypeError:
        raise ValueError(
            f"{quoted(text)} has {counted(len(numbers), 'number')}, which does not suit "
            f"{getattr(make, '__name__', make)}."
        ) from None
