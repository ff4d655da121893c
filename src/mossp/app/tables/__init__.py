"""Tables of a user's own: read from files, looked at column by column, and written.

Whatever is wrong is one sentence, a `TableError`, with the file, the column and the row where they
are known.
"""

from mossp.app.tables.columns import (
    NUMBERS,
    attribute_of,
    check_known,
    check_target,
    kind_of,
    numbers_in,
    offset_column,
    offset_of,
    refused,
    target_of,
    texts_in,
)
from mossp.app.tables.reading import read
from mossp.app.tables.table import Table, TableError, twice
from mossp.app.tables.writing import write_predictions

__all__ = [
    "NUMBERS",
    "Table",
    "TableError",
    "attribute_of",
    "check_known",
    "check_target",
    "kind_of",
    "numbers_in",
    "offset_column",
    "offset_of",
    "read",
    "refused",
    "target_of",
    "texts_in",
    "twice",
    "write_predictions",
]
