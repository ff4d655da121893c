"""Tables of a user's own: read from files, looked at column by column, and written.

Whatever is wrong is one sentence, a `TableError`, with the file, the column and the row where they
are known; faults of several columns are told together, a line each.
"""

from mossp.app.tables.columns import (
    DATES,
    NUMBERS,
    attribute_of,
    check_known,
    check_none,
    check_target,
    kind_of,
    missing_in,
    numbers_in,
    offset_column,
    offset_of,
    refused,
    target_of,
    texts_in,
    written,
)
from mossp.app.tables.reading import format_of, read
from mossp.app.tables.table import Faults, Table, TableError, TableErrors, twice
from mossp.app.tables.text import check_names
from mossp.app.tables.writing import write_predictions

__all__ = [
    "DATES",
    "NUMBERS",
    "Faults",
    "Table",
    "TableError",
    "TableErrors",
    "attribute_of",
    "check_known",
    "check_names",
    "check_none",
    "check_target",
    "format_of",
    "kind_of",
    "missing_in",
    "numbers_in",
    "offset_column",
    "offset_of",
    "read",
    "refused",
    "target_of",
    "texts_in",
    "twice",
    "write_predictions",
    "written",
]
