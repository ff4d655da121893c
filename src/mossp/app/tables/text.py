"""Columns of text, read strictly, whole or in blocks: what each holds follows from all its rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mossp._base.printing import counted, quoted
from mossp.app.tables.dialect import COMMA, GROUPS, with_points
from mossp.app.tables.table import Faults, TableError, polars_package, twice

MISSING = ["", "NA", "NaN", "nan", "null"]  # not "None", which may well be a category
MOST_COLUMNS = 50_000  # of text: each takes a fraction of a millisecond


def strict_rows(
    path: Path, lines: Iterable[str], comma: str, width: int = 0, before: int = 0
) -> Iterator[list[str]]:
    """All rows that are not blank, each as long as the first.

    Parameters
    ----------
    lines : iterable of str
        Of the file, with their ends.
    width : int
        How many values a row has, where that is known already.
    before : int
        Lines of the file before these.
    """
    reader = csv.reader(lines, delimiter=comma, strict=True)
    try:
        for row in filter(None, reader):
            width = width or len(row)
            if len(row) != width:
                raise TableError(
                    f"{path}, line {before + reader.line_num}: the row has "
                    f"{counted(len(row), 'value')}, but the first line names "
                    f"{counted(width, 'column')}."
                )
            yield row
    except csv.Error as error:
        raise TableError(
            f"{path}, line {before + reader.line_num}: the quotes are not in order ({error})."
        ) from None


def checked_header(path: Path, row: Sequence[str]) -> list[str]:
    """The names of the columns."""
    names = [name.strip() for name in row]
    check_names(path, names)
    if len(names) > MOST_COLUMNS:
        raise TableError(
            f"{path} has {len(names):,} columns, but text is read up to {MOST_COLUMNS:,}: save it "
            "as Parquet or LIBSVM."
        )
    return names


def check_names(path: Path, names: Sequence[str]) -> None:
    if "" in names:
        raise TableError(
            f"{path} has no name for column {names.index('') + 1}: give it one, or leave it out "
            "(pandas: to_csv(..., index=False))."
        )
    if name := twice(names):
        raise TableError(f"{path} has two columns called {quoted(name)}: rename one.")


def no_rows(path: Path) -> TableError:
    return TableError(f"{path} names its columns, but it has no rows.")


def not_utf8(path: Path, line: int) -> TableError:
    return TableError(
        f"{path}, line {line}: this is another encoding than UTF-8, or a binary file: save it as "
        "text in UTF-8."
    )


def frame_of(rows: Iterable[Sequence[str]], names: Sequence[str]) -> Any:
    """Rows as columns of text; None if there are none.

    polars fills short rows with nothing, takes blank lines for rows, and stumbles over a quote
    within a value. It is given what Python's strict reader made of the file.
    """
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return parsed(buffer.getvalue().encode(), names) if buffer.tell() else None


def parsed(content: bytes, names: Sequence[str], comma: str = ",", quote: str | None = '"') -> Any:
    """Lines without faults as columns of text, null where a value is missing."""
    pl = polars_package()
    frame = pl.read_csv(
        content, has_header=False, new_columns=list(names), infer_schema=False, separator=comma,
        quote_char=quote,
    )  # fmt: skip
    stripped = pl.all().str.strip_chars()
    return frame.select(pl.when(~stripped.is_in(MISSING)).then(stripped))


class Kinds:
    r"""What each column of text holds: numbers or truth values if all of its values are.

    Values are added in one piece or in many. Where other things than commas stand between the
    columns, commas may be decimal ones: in all columns of a file, or in none.

    Examples
    --------
    >>> import polars
    >>> frame = polars.DataFrame({"a": ["1", "2,5"], "b": ["TRUE", "false"], "c": ["1", "one"]})
    >>> kinds = Kinds(Path("three.csv"), frame.columns, ";")
    >>> for block in (frame[:1], frame[1:]):
    ...     kinds.add(block)
    >>> kinds.settle()
    >>> kinds.typed(frame).rows()
    [(1.0, True, '1'), (2.5, False, 'one')]
    """

    def __init__(self, path: Path, names: Sequence[str], comma: str) -> None:
        self.path, self.names, self.comma = path, list(names), comma
        n = len(self.names)
        self.plain = np.ones(n, bool)  # all are numbers, with a point if any
        self.truths = np.ones(n, bool)  # all are true or false
        self.with_comma = np.ones(n, bool)  # all are numbers if a comma is decimal
        self.commas = np.zeros(n, bool)  # some have one
        self.grouped = np.ones(n, bool)  # points, if any, are where those of thousands are
        self.dotted: list[str | None] = [None] * n  # the first with a point
        self.decimal: str | None = None  # the first column with decimal commas

    def add(self, frame: Any) -> None:
        """Take rows into account."""
        for j, column in enumerate(frame):
            values = column.drop_nulls()
            if not len(values):
                continue
            if self.plain[j]:
                numbers = values.cast(polars_package().Float64, strict=False)
                self.plain[j] = not numbers.null_count()
            if self.truths[j]:
                words = None if self.plain[j] else values.str.to_lowercase()
                self.truths[j] = words is not None and words.is_in(["true", "false"]).all()
            if self.comma != ",":
                self.with_comma[j] &= bool(values.str.contains(COMMA).all())
                self.commas[j] |= bool(values.str.contains(",", literal=True).any())
                dotted = values.filter(values.str.contains(".", literal=True))
                if len(dotted):
                    self.grouped[j] &= bool(dotted.str.contains(GROUPS).all())
                    self.dotted[j] = self.dotted[j] or str(dotted[0])

    def settle(self) -> None:
        """Decide, after all rows; where 1.234 could be both 1234 and 1.234, that is said."""
        found = np.flatnonzero(self.with_comma & self.commas)
        if self.comma == "," or not len(found):
            return
        self.decimal = self.names[found[0]]
        faults = Faults(self.path)
        for j in np.flatnonzero(self.plain & self.grouped):
            with faults.kept():
                if self.dotted[j] is not None:
                    raise TableError(
                        f"The column {quoted(self.names[j])} of {self.path} holds "
                        f"{quoted(str(self.dotted[j]))}, in a file with decimal commas: write "
                        "numbers without points between thousands."
                    )
        faults.tell()

    def typed(self, frame: Any) -> Any:
        """Columns of text as numbers and truth values, where they hold such."""
        pl = polars_package()
        columns = []
        for j, column in enumerate(frame):
            if not self.plain[j] and self.decimal is not None and self.with_comma[j]:
                column = with_points(column).cast(pl.Float64)
            elif self.plain[j]:
                column = column.cast(pl.Float64)
            elif self.truths[j]:
                column = column.str.to_lowercase() == "true"
            columns.append(column)
        return pl.DataFrame(columns)

    @property
    def text(self) -> list[str]:
        """Columns that stay text."""
        numbers = self.plain | (self.with_comma & (self.decimal is not None))
        return [
            name for name, other in zip(self.names, numbers | self.truths, strict=True) if not other
        ]

    def notes(self, told: bool) -> tuple[str, ...]:
        """What was found out, in sentences; whether the separator was `told` by the format."""
        found = []
        if self.comma != "," and not told:
            found.append(f"{self.path} has {self.comma!r} between its columns.")
        if self.decimal is not None:
            found.append(f"{self.path} has decimal commas, as in {quoted(self.decimal)}.")
        return tuple(found)
