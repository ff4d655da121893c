"""Columns of text: which levels there are, and one feature for each."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mossp._base.printing import counted, quoted
from mossp.app.tables import Table, TableError, texts_in

MOST_LEVELS = 100


def levels_of(table: Table, name: str, rows: np.ndarray, missing: bool = False) -> tuple[str, ...]:
    """The levels of text in these rows, sorted, if there are not too many."""
    texts = texts_in(table, name, missing)
    here = [text for text in texts[rows] if text is not None]
    first: dict[str, int] = {}
    for row, text in enumerate(texts.tolist()):
        if text is not None and text not in first:
            first[text] = table.number(row)
    first = {level: first[level] for level in set(here)}
    return checked_levels(table.path, name, first, len(here))


def checked_levels(
    path: Path, name: str, first: Mapping[str, int], count: int, more: bool = False
) -> tuple[str, ...]:
    """The levels of a column, sorted, if there are not too many.

    Parameters
    ----------
    first : mapping
        The row that each level is in first.
    count : int
        Rows that have a text.
    more : bool
        Whether there are levels besides these.
    """
    levels = sorted(first)
    # A single "?" makes text of a column of numbers: that is said.
    odd = [level for level in levels if not is_number(level)]
    because = ""
    if 0 < 2 * len(odd) <= len(levels):
        because = f", being text since row {first[odd[0]]} holds {quoted(odd[0])}"
    if 0 < 10 * len(odd) <= len(levels):
        raise TableError(
            f"The column {quoted(name)} of {path} holds {quoted(odd[0])} in row {first[odd[0]]}, "
            "where nearly all others are numbers: mend it, or exclude the column (--exclude "
            f"{quoted(name)}).",
            ("--exclude", name),
        )
    if len(levels) > MOST_LEVELS or len(levels) == count > 1:
        as_id = f", hand it through as an id (--id {quoted(name)})" * (len(levels) == count)
        raise TableError(
            f"The column {quoted(name)} of {path} has {'more than ' * more}{len(levels)} different "
            f"texts in {count} rows{because}: exclude it (--exclude {quoted(name)}){as_id}, or "
            "make numbers of it.",
            ("--exclude", name),
        )
    if because:
        warnings.warn(
            f"The column {quoted(name)} of {path} becomes {counted(len(levels), 'feature')}, one "
            f"for each of its values{because}.",
            stacklevel=4,
        )
    return tuple(levels)


def indicators(
    table: Table, name: str, levels: tuple[str, ...], fill: str | None, quiet: bool
) -> np.ndarray:
    """One column for each level, 1 where a row is of it; `fill` is the level of missing ones.

    A level that was not seen when learning is none of the levels, and there is a warning.
    """
    texts = texts_in(table, name, missing=fill is not None)
    if fill is not None:
        texts[[text is None for text in texts]] = fill
    place = {level: k for k, level in enumerate(levels)}
    codes = np.array([place.get(text, -1) for text in texts])
    seen = np.flatnonzero(codes >= 0)
    X = np.zeros((table.rows, len(levels)))
    X[seen, codes[seen]] = 1
    if len(seen) < len(texts) and not quiet:
        counts = collections.Counter(texts[codes < 0]).most_common()
        listed = ", ".join(f"{quoted(level)} ({counted(k, 'row')})" for level, k in counts[:3])
        warnings.warn(
            f"The column {quoted(name)} of {table.path} holds levels that the training data did "
            f"not: {listed}{', …' * (len(counts) > 3)}.",
            stacklevel=4,
        )
    return X


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
