"""What a column of a file holds, from its blocks one after the other."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mossp._base.printing import quoted
from mossp.app.features.dates import Ways
from mossp.app.features.learning import Coding
from mossp.app.features.levels import checked_levels, is_number
from mossp.app.tables import (
    DATES,
    NUMBERS,
    Table,
    TableError,
    kind_of,
    missing_in,
    numbers_in,
    refused,
    texts_in,
)

MOST_KEPT = 1000  # different texts of a column that are remembered; far fewer are levels


class Column:
    """A column of a table that is to be a feature.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        Of the column.
    missing : bool
        Whether values may be missing.
    order : {"dmy", "mdy"}, optional
        Of dates such as 5/6/2024.
    cycles : sequence of str
        Of dates, whose positions are features as well.
    """

    def __init__(
        self, path: Path, name: str, missing: bool, order: str | None, cycles: Sequence[str]
    ) -> None:
        self.path, self.name, self.missing, self.cycles = path, name, missing, tuple(cycles)
        self.kind: str | None = None  # text where some values are no dates
        self.counts: collections.Counter[str] = collections.Counter()  # of texts of training rows
        self.first: dict[str, int] = {}  # the row that each of them is in first
        self.odd = False  # whether one of them is no number
        self.ways: Ways | None = Ways(order)
        self.gaps = False  # whether training rows miss a value
        self.rows = 0  # of training rows that have one

    def add(self, table: Table, train: np.ndarray) -> None:
        """Take rows into account, those by which is learnt marked; TableError for what is wrong."""
        gone = missing_in(table, self.name)
        self.gaps |= bool(gone[train].any())
        self.rows += int((train & ~gone).sum())
        if gone.all() and self.missing:
            return
        kind = kind_of(table, self.name)
        if kind in NUMBERS:
            numbers_in(table, self.name, self.missing)
        elif kind not in ("text", DATES):
            raise refused(table, self.name, kind)
        if kind == DATES and self.ways is not None:
            self.ways.add(table, self.name, train, self.missing)
        elif kind != DATES:
            self.ways = None
        self.kind = "text" if {self.kind, kind} == {"text", DATES} else kind
        if kind not in NUMBERS and not table.frame[self.name].dtype.is_temporal():
            self._add_texts(table, train)

    def _add_texts(self, table: Table, train: np.ndarray) -> None:
        if not self.missing:
            texts_in(table, self.name)  # which says where one is missing
        column = table.as_written(self.name).cast(str)
        here = column.filter(train).drop_nulls()
        for text, count in zip(*here.value_counts().to_dict(as_series=False).values(), strict=True):
            known, odd = text in self.first, not is_number(text)
            # Of texts without end, the first that is no number is remembered in any case.
            if known or len(self.first) < MOST_KEPT or (odd and not self.odd):
                self.counts[text] += count
                self.odd |= odd
            if not known and text in self.counts:
                row = int((column == text).fill_null(False).arg_max() or 0)
                self.first[text] = table.number(row)
        if len(self.first) >= MOST_KEPT and self.odd and self.ways is None:
            self.coding()  # which says that they are too many

    def coding(self) -> Coding:
        """Levels, dates, or None for numbers, after all rows."""
        if self.kind == DATES and self.ways is not None:
            return self.ways.settled(self.path, self.name, self.cycles)
        if self.cycles:
            raise TableError(
                f"--cyclic {quoted(self.name)} needs dates, but the column holds {self.kind}."
            )
        if self.kind != "text":
            return None
        more = len(self.first) >= MOST_KEPT
        return checked_levels(self.path, self.name, self.first, self.rows, more)

    def typical(self, coding: Coding) -> Any:
        """The most frequent level, of equals the first; None where it is a median."""
        if self.rows == 0:
            raise TableError(
                f"The column {quoted(self.name)} of {self.path} has no value in the training rows: "
                f"exclude it (--exclude {quoted(self.name)}).",
                ("--exclude", self.name),
            )
        if not isinstance(coding, tuple):
            return None
        return max(coding, key=lambda level: self.counts[level])
