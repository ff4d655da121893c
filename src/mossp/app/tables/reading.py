"""Files of a user's own, read strictly: CSV, TSV, Parquet and LIBSVM, packed by gzip or not."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mossp._base.printing import counted, quoted
from mossp.app.tables.dialect import decimal_commas, separator_of, with_points
from mossp.app.tables.table import Faults, Table, TableError, polars_package, twice
from mossp.data.libsvm import TOO_MUCH, DataError, most_unpacked, read_libsvm

FORMATS = ("csv", "tsv", "parquet", "libsvm")
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
SUFFIXES |= dict.fromkeys(("", ".libsvm", ".svm", ".svmlight"), "libsvm")
MISSING = ["", "NA", "NaN", "nan", "null"]  # not "None", which may well be a category
MOST_COLUMNS = 50_000  # of text: each takes a fraction of a millisecond
# Of Parquet, for each byte of the file: where a column repeats one value, rows cost nothing.
MOST_VALUES, FEW_VALUES = 100, 10**7


def read(path: str | os.PathLike[str], format: str | None = None) -> Table:
    r"""The table in a file.

    Parameters
    ----------
    path : path
        The file.
    format : {"csv", "tsv", "parquet", "libsvm"}, optional
        If left out, by the name: .csv, .tsv, .parquet, .pq, .libsvm, .svm or .svmlight, each with
        .gz or not; without a suffix LIBSVM.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.svm"
    >>> _ = path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    >>> table = read(path)
    >>> table.rows, table.columns
    (2, ('x1', 'x2', 'x3'))
    """
    path = Path(path)
    format = format_of(path, format)
    try:
        if format == "libsvm":
            with path.open("rb"):
                return _libsvm(path)
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":  # gzip, whatever the name says
            data = _unpacked(path, data)
    except FileNotFoundError:
        raise TableError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise TableError(f"{path} is a folder, but a file is needed.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TableError(f"{path} is packed by gzip, but damaged or cut short.") from None
    except OSError as error:
        raise TableError(f"{path} could not be read: {error.strerror}.") from error
    if not data.strip():
        raise TableError(f"{path} is empty.")
    return _parquet(path, data) if format == "parquet" else _csv(path, data, format)


def format_of(path: Path, format: str | None) -> str:
    """The format that was given, or that the name of the file tells."""
    if format is None:
        bare = path.with_suffix("") if path.suffix.lower() == ".gz" else path
        format = SUFFIXES.get(bare.suffix.lower())
    if format not in FORMATS:
        given = (
            "its name does not tell" if format is None else f"{quoted(format)} is not one of them"
        )
        raise TableError(
            f"The format of {path} must be csv, tsv, parquet or libsvm, but {given}: give --format."
        )
    return format


def _unpacked(path: Path, data: bytes) -> bytes:
    most = most_unpacked(len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(most)
        if len(content) == most and file.read(1):
            raise TableError(str(DataError(TOO_MUCH, path)))
    return content


def _libsvm(path: Path) -> Table:
    try:
        X, y = read_libsvm(path, labels=1)
    except DataError as error:
        raise TableError(str(error)) from None
    return Table(path, X=X, y=y)


def _parquet(path: Path, data: bytes) -> Table:
    pl = polars_package()
    try:
        scan = pl.scan_parquet(io.BytesIO(data))
        rows, width = scan.select(pl.len()).collect().item(), len(scan.collect_schema())
        if rows * width > FEW_VALUES + MOST_VALUES * len(data):  # by its own description
            raise TableError(
                f"{path} holds {rows:,} rows of {counted(width, 'column')}, far more than its size "
                "suggests: save it as CSV."
            )
        frame = pl.read_parquet(io.BytesIO(data))
    except TableError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        raise TableError(f"{path} is damaged, cut short or not a Parquet file.") from error
    check_names(path, frame.columns)
    if not frame.height:
        raise TableError(f"{path} names its columns, but it has no rows.")
    return Table(path, frame)


def _csv(path: Path, data: bytes, format: str) -> Table:
    pl, text = polars_package(), _decoded(path, data)
    separator = "\t" if format == "tsv" else separator_of(text)
    # polars fills short rows with nothing, takes blank lines for rows, and stumbles over a quote
    # within a value. It is given what Python's strict reader made of the file.
    rows, buffer = _rows(path, text, separator), io.StringIO()
    names = [name.strip() for name in next(rows)]
    check_names(path, names)
    if len(names) > MOST_COLUMNS:
        raise TableError(
            f"{path} has {len(names):,} columns, but text is read up to {MOST_COLUMNS:,}: save it "
            "as Parquet or LIBSVM."
        )
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    if not buffer.tell():
        raise TableError(f"{path} names its columns, but it has no rows.")
    content = io.BytesIO(buffer.getvalue().encode())
    frame = pl.read_csv(content, has_header=False, new_columns=names, infer_schema=False)
    stripped = pl.all().str.strip_chars()
    frame = frame.select(pl.when(~stripped.is_in(MISSING)).then(stripped))
    columns, notes = list(frame), []
    if separator != "," and format == "csv":
        notes.append(f"{path} has {separator!r} between its columns.")
    if separator != "," and (written := decimal_commas(frame)):
        faults = Faults(path)
        for j, column in enumerate(columns):
            with faults.kept():
                columns[j] = with_points(path, column)
        faults.tell()
        notes.append(f"{path} has decimal commas, as in {quoted(written[0])}.")
    typed = pl.DataFrame([_typed(column) for column in columns])
    return Table(path, typed, text=frame, notes=tuple(notes))


def _rows(path: Path, text: str, comma: str) -> Iterator[list[str]]:
    """All rows that are not blank, each as long as the first."""
    reader, width = csv.reader(io.StringIO(text, newline=""), delimiter=comma, strict=True), 0
    try:
        for row in filter(None, reader):
            width = width or len(row)
            if len(row) != width:
                raise TableError(
                    f"{path}, line {reader.line_num}: the row has {counted(len(row), 'value')}, "
                    f"but the first line names {counted(width, 'column')}."
                )
            yield row
    except csv.Error as error:
        raise TableError(
            f"{path}, line {reader.line_num}: the quotes are not in order ({error})."
        ) from None


def _decoded(path: Path, data: bytes) -> str:
    wrong = data.find(b"\0")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        line = data.count(b"\n", 0, wrong) + 1
        raise TableError(
            f"{path}, line {line}: this is another encoding than UTF-8, or a binary file: save it "
            "as text in UTF-8."
        )
    if not text.strip():
        raise TableError(f"{path} is empty.")
    return text if "\n" in text else text.replace("\r", "\n")


def check_names(path: Path, names: Sequence[str]) -> None:
    if "" in names:
        raise TableError(
            f"{path} has no name for column {names.index('') + 1}: give it one, or leave it out "
            "(pandas: to_csv(..., index=False))."
        )
    if name := twice(names):
        raise TableError(f"{path} has two columns called {quoted(name)}: rename one.")


def _typed(column: Any) -> Any:
    """A column of text as numbers or booleans if all of its values are."""
    pl = polars_package()
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count() == column.null_count():
        return numbers
    lower = column.str.to_lowercase()
    return lower == "true" if lower.is_in(["true", "false"]).all() else column
