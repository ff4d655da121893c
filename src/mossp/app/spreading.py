"""Commands that take the fields of a dataclass as their options."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any


def spread(kind: type) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Replace the first parameter of a command, a dataclass, by one option for each field.

    An option is then added in one place: as a field.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Size:
    ...     width: int
    ...     height: int = 1
    >>> @spread(Size)
    ... def area(size: Size, times: int = 1) -> int:
    ...     return size.width * size.height * times
    >>> inspect.signature(area)
    <Signature (*, width: int, height: int = 1, times: int = 1) -> int>
    >>> area(width=2, times=3)
    6
    """
    fields = dataclasses.fields(kind)
    types = typing.get_type_hints(kind, include_extras=True)

    def default(field: dataclasses.Field) -> Any:
        missing = field.default is dataclasses.MISSING
        return inspect.Parameter.empty if missing else field.default

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        def spread_out(**given: Any) -> int:
            whole = kind(**{f.name: given.pop(f.name) for f in fields if f.name in given})
            return command(whole, **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        shown = {f.name: (types[f.name], default(f)) for f in fields}
        shown |= {p.name: (p.annotation, p.default) for p in own}
        parameters = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=a)
            for name, (a, value) in shown.items()
        ]
        signature = inspect.Signature(parameters, return_annotation=int)
        spread_out.__signature__ = signature  # type: ignore[attr-defined]
        spread_out.__annotations__ = {name: a for name, (a, _) in shown.items()} | {"return": int}
        spread_out.__name__, spread_out.__doc__ = command.__name__, command.__doc__
        return spread_out

    return decorate
