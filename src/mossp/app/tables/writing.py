"""Predictions as CSV, in a file or on standard output."""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path

import numpy as np

from mossp._base.files import replacing
from mossp._base.printing import printable
from mossp.app.tables.table import TableError


def write_predictions(
    path: str | os.PathLike[str] | None, columns: dict[str, np.ndarray]
) -> Path | None:
    """Columns as CSV in a file, complete or not there at all; with None on standard output.

    Examples
    --------
    >>> write_predictions(None, {"prediction": np.array(["a", "b"]), "score": np.array([0.1, 2])})
    prediction,score
    a,0.1
    b,2.0
    """
    values = [np.asarray(column).tolist() for column in columns.values()]
    rows = [list(columns), *zip(*values, strict=True)]
    if path is None:
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
            csv.writer(text, lineterminator="\n").writerows(rows)
            text.detach()
    except OSError as error:
        raise TableError(f"{path} could not be written: {error.strerror}.") from error
    return path
