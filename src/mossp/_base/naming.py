"""Things chosen by name, with numbers: "l1-l2:0.01", "quantile:0.9,0.05"."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from mossp._base.printing import quoted

T = TypeVar("T")


def find(text: object, table: Mapping[str, T], what: str) -> tuple[T, list[float]]:
    """The entry of the table that a text names, and the numbers after its colon.

    Examples
    --------
    >>> find("mcp:0.1,3", {"mcp": "MCP"}, "regulariser")
    ('MCP', [0.1, 3.0])
    """
    if not isinstance(text, str):
        raise TypeError(f"The name of a {what} must be text, but {quoted(text)} was given.")
    name, colon, rest = (part.strip() for part in text.partition(":"))
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1, cutoff=0.45)
        hint = f" Did you mean {quoted(near[0])}?" if near else ""
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
            f"{quoted(text)} has {len(numbers)} number{'s' * (len(numbers) != 1)}, which does not "
            f"suit {getattr(make, '__name__', make)}."
        ) from None
