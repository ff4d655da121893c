"""How a file of text is written: what stands between its columns, and for the decimal point."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from mossp._base.printing import quoted
from mossp.app.tables.table import TableError, polars_package

SEPARATORS = (",", ";", "\t", "|")
# 1234,5 and 1.234,5 and 1.234.567; with an exponent or without.
COMMA = r"^[-+]?(\d+|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?([eE][-+]?\d+)?$"
GROUPS = r"^[-+]?[1-9]\d{0,2}(\.\d{3})+$"  # 1.234, which may be 1234


def separator_of(text: str) -> str:
    r"""What stands between the columns: a comma, unless it makes one column where others make more.

    Examples
    --------
    >>> [separator_of(line) for line in ("a,b;c", "a;b;c", "a", "a\tb")]
    [',', ';', ',', '\t']
    """
    header = next((line for line in text.splitlines() if line.strip()), "")

    def names(separator: str) -> int:
        try:
            return len(next(csv.reader(io.StringIO(header), delimiter=separator), []))
        except csv.Error:
            return 0

    return "," if names(",") > 1 else max(SEPARATORS, key=names)


def decimal_commas(frame: Any) -> list[str]:
    """The columns whose numbers have a comma for the decimal point."""
    return [
        column.name
        for column in frame
        if column.str.contains(COMMA).all() and column.str.contains(",", literal=True).any()
    ]


def with_points(path: Path, column: Any) -> Any:
    """A column of a file with decimal commas, its numbers with points.

    Where 1.234 could be both 1234 and 1.234, that is said.
    """
    pl, dotted = polars_package(), column.filter(column.str.contains(".", literal=True))
    plain = column.cast(pl.Float64, strict=False).null_count() == column.null_count()
    if plain and len(dotted) and dotted.str.contains(GROUPS).all():
        raise TableError(
            f"The column {quoted(column.name)} of {path} holds {quoted(dotted[0])}, in a file with "
            "decimal commas: write numbers without points between thousands."
        )
    if plain or not column.str.contains(COMMA).all():
        return column
    return column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
