"""How a file of text is written: what stands between its columns, and for the decimal point."""

from __future__ import annotations

import csv
import io
from typing import Any

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


def with_points(column: Any) -> Any:
    """Numbers with decimal commas, and points between thousands or not, as others write them."""
    return column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
