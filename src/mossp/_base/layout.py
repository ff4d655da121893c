"""The description in a file, checked against its layout before any of it is used.

A checksum proves that a file is as it was written, not that we wrote it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mossp._base.printing import shown

LARGEST = 2.0**1023  # JSON knows whole numbers that no float can hold


class LayoutError(ValueError):
    """Contents that are not laid out as they should be; says where, and what should be there."""


@dataclasses.dataclass(frozen=True)
class Each:
    """A list, or the values of a dict with any names, in which everything is of one kind."""

    kind: Any
    named: bool = False


@dataclasses.dataclass(frozen=True)
class Maybe:
    """What is wanted under a name that need not be there."""

    kind: Any


def check(value: Any, wanted: Any, where: str = "description") -> None:
    """Raise LayoutError unless the value is what is wanted.

    Parameters
    ----------
    value
        A part of the description.
    wanted
        float, int, bool, str, dict, list or object, which is anything; None; a tuple of these, any
        of which will do; Each(...); or a dict of what is wanted under each name, whose names must
        be there unless it is Maybe(...).
    where : str
        What the part is called.

    Examples
    --------
    >>> check({"k": 3, "notes": ["a"], "more": 1}, {"k": int, "notes": Each(str)})
    >>> check({"k": 3.5}, {"k": int})
    Traceback (most recent call last):
    mossp._base.layout.LayoutError: its description.k should be a whole number
    """
    if isinstance(wanted, dict):
        check(value, dict, where)
        for name, kind in wanted.items():
            optional = isinstance(kind, Maybe)
            if name in value:
                check(value[name], kind.kind if optional else kind, f"{where}.{name}")
            elif not optional:
                raise LayoutError(f"its {where} lacks {name!r}")
    elif isinstance(wanted, Each):
        check(value, dict if wanted.named else list, where)
        for part in value.values() if wanted.named else value:
            check(part, wanted.kind, f"an entry of {where}")
    elif not any(_is(value, kind) for kind in (wanted if isinstance(wanted, tuple) else (wanted,))):
        kinds = wanted if isinstance(wanted, tuple) else (wanted,)
        raise LayoutError(f"its {where} should be {' or '.join(NAMES[kind] for kind in kinds)}")


NAMES: dict[Any, str] = {
    float: "a number", int: "a whole number", bool: "true or false", str: "text",
    dict: "a table", list: "a list", None: "nothing",
}  # fmt: skip


def _is(value: Any, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind in (int, float):
        plain = isinstance(value, (int, float) if kind is float else int)
        # NaN and infinity are numbers; a whole number that overflows is none.
        return (
            plain and type(value) is not bool and not (type(value) is int and abs(value) > LARGEST)
        )
    return isinstance(value, kind)


def fields_of(record: type, names: Iterable[str] | None = None) -> dict[str, Any]:
    """What is wanted of a dataclass or a NamedTuple kept as JSON, by its annotations.

    Fields with a default need not be there, since an older version may not have known them.
    """
    hints = typing.get_type_hints(record)
    if names is not None:
        return {name: _kinds(hints[name]) for name in names}
    if dataclasses.is_dataclass(record):
        fields = dataclasses.fields(record)
        optional = {f.name: f.default is not dataclasses.MISSING for f in fields}
    else:
        optional = {f: f in record._field_defaults for f in record._fields}  # type: ignore[attr-defined]
    return {
        name: Maybe(_kinds(hints[name])) if has_default else _kinds(hints[name])
        for name, has_default in optional.items()
    }


def _kinds(hint: Any) -> Any:
    """float | None as (float, None), dict[str, Any] as dict."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(_kinds(part) for part in typing.get_args(hint))
    hint = typing.get_origin(hint) or hint
    return None if hint is types.NoneType else hint


def array(
    arrays: Mapping[str, np.ndarray], name: str, kinds: str = "",
    shape: tuple[int | None, ...] | None = None,
) -> np.ndarray:  # fmt: skip
    """An array of the file, if its type is of these kinds and its shape this, where they are given.

    None in the shape stands for any length.

    Examples
    --------
    >>> array({"x": np.ones(3)}, "x", "f", (2,))
    Traceback (most recent call last):
    mossp._base.layout.LayoutError: its array 'x' should have the shape (2,), but has (3,)
    """
    if name not in arrays:
        raise LayoutError(f"it lacks the array {shown(name)}")
    found = arrays[name]
    if kinds and found.dtype.kind not in kinds:
        raise LayoutError(f"its array {shown(name)} should not be of the type {found.dtype}")
    if shape is not None:
        alike = len(shape) == found.ndim
        if not alike or any(s not in (None, t) for s, t in zip(shape, found.shape, strict=True)):
            raise LayoutError(
                f"its array {shown(name)} should have the shape {shape}, but has {found.shape}"
            )
    return found
