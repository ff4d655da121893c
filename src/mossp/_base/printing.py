"""Text from outside, safe to print: names of columns, classes and files, and what a file says.

A terminal obeys escape sequences, and a page with a NUL in it, or half a surrogate pair, is none.
"""

from __future__ import annotations

import re
import sys
import unicodedata
import warnings
from pathlib import Path

LONGEST = 80  # characters of a name in a message
LONG = 10**15  # a whole number from here on is shown by its size
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def printable(text: object, keep: str = "") -> str:
    r"""The text, with whatever is not printed, or steers a terminal, made visible.

    Parameters
    ----------
    text
        Anything that has a text.
    keep : str
        Characters that may stay, such as the end of a line.

    Examples
    --------
    >>> print(printable("red\x1b[31m, NUL\x00, Größe, 体重"))
    red\x1b[31m, NUL\x00, Größe, 体重
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if _harmless(c) or c in keep else _escaped(c) for c in text)


def short(text: object, longest: int = LONGEST) -> str:
    """The same, and not longer than this: what is left out of the middle is a `…`.

    Examples
    --------
    >>> short("a" * 450, 12)
    'aaaaaaaa…aaa'
    """
    return printable(_cut(str(text), longest))


def quoted(text: object, longest: int = LONGEST) -> str:
    """A name or a value in quotes, for a message.

    Examples
    --------
    >>> print(quoted("it's"), quoted("b" * 450, 12))
    "it's" 'bbbbbbbb…bbb'
    """
    return repr(_cut(str(text), longest))


def shown(value: object, longest: int = LONGEST) -> str:
    """What was given, whatever it is, for a message: one short line without addresses.

    Examples
    --------
    >>> print(shown("b" * 450, 12), shown([1.5, None]), shown(10**30), shown(10**400, 12))
    'bbbbbbbb…bbb' [1.5, None] 1e+30 10000000…000
    """
    if isinstance(value, str):
        return quoted(value, longest)
    try:
        long = isinstance(value, int) and LONG < abs(value) < 2**1023
        text = f"{value:.6g}" if long else repr(value)
    except Exception:  # a class of the user's own, or a number of more digits than Python prints
        text = f"<{type(value).__name__}>"
    return short(" ".join(_ADDRESS.sub("", text).split()), longest)


def counted(number: int, thing: str, digits: str | None = None) -> str:
    """A number of things, for a sentence; `digits` if the number is written in another way.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row"), counted(2000, "row", "2,000")
    ('1 row', '2000 rows', '2,000 rows')
    """
    return f"{number if digits is None else digits} {thing}{'' if number == 1 else 's'}"


def _cut(text: str, longest: int) -> str:
    end = longest // 4
    return text if len(text) <= longest else f"{text[: longest - end - 1]}…{text[-end:]}"


def _harmless(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"  # spaces


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def warn(text: str) -> None:
    """A warning that points to the line outside of this library that led here.

    Python shows it once for each such line, however often the line is run.
    """
    here = str(Path(__file__).parents[1])  # of the package
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
