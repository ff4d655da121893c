"""Predictions as CSV, in a file or on standard output."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mossp._base.files import replacing
from mossp._base.printing import printable
from mossp.app.tables.table import TableError


def write_predictions(
    path: str | os.PathLike[str] | None,
    columns: dict[str, np.ndarray] | Iterable[dict[str, np.ndarray]],
) -> Path | None:
    """Columns as CSV in a file, complete or not there at all; with None on standard output.

    They may come in blocks of rows, each of which is written before the next one is asked for.

    Examples
    --------
    >>> write_predictions(None, {"prediction": np.array(["a", "b"]), "score": np.array([0.1, 2])})
    prediction,score
    a,0.1
    b,2.0
    """
    blocks = [columns] if isinstance(columns, dict) else columns
    if path is None:
        for rows in _rows(blocks):
            if sys.stdout.isatty():  # where a class may not steer the terminal
                rows = [[printable(v) if isinstance(v, str) else v for v in row] for row in rows]
            csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return None
    path = Path(path)
    plain = os.path.isfile(path) or not os.path.exists(path)
    try:
        # A device such as /dev/null is written to, never replaced.
        with replacing(path) if plain else open(path, "wb") as file:
            text = io.TextIOWrapper(file, "utf-8", "backslashreplace", newline="")
            for rows in _rows(blocks):
                csv.writer(text, lineterminator="\n").writerows(rows)
            text.detach()
    except OSError as error:
        raise TableError(f"{path} could not be written: {error.strerror}.") from error
    return path


def _rows(blocks: Iterable[dict[str, np.ndarray]]) -> Iterator[list[list[Any]]]:
    """The rows of each block, the names of the columns before the first."""
    named = False
    for columns in blocks:
        values = [np.asarray(column).tolist() for column in columns.values()]
        yield [*([] if named else [list(columns)]), *map(list, zip(*values, strict=True))]
        named = True
