"""Files of a user's own, read strictly: CSV, TSV, Parquet, .npy and LIBSVM, packed or not."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from pathlib import Path

from mossp._base.printing import counted, quoted
from mossp.app.tables.arrays import Arrays
from mossp.app.tables.dialect import separator_of
from mossp.app.tables.table import Table, TableError, polars_package
from mossp.app.tables.text import (
    Kinds,
    check_names,
    checked_header,
    frame_of,
    no_rows,
    not_utf8,
    strict_rows,
)
from mossp.data.libsvm import TOO_MUCH, DataError, most_unpacked, read_libsvm

FORMATS = ("csv", "tsv", "parquet", "npy", "libsvm")
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet", ".npy": "npy"}
SUFFIXES |= dict.fromkeys(("", ".libsvm", ".svm", ".svmlight"), "libsvm")
# Of Parquet, for each byte of the file: where a column repeats one value, rows cost nothing.
MOST_VALUES, FEW_VALUES = 100, 10**7


def read(
    path: str | os.PathLike[str], format: str | None = None, target: str | None = None
) -> Table:
    r"""The table in a file.

    Parameters
    ----------
    path : path
        The file.
    format : {"csv", "tsv", "parquet", "npy", "libsvm"}, optional
        If left out, by the name: .csv, .tsv, .parquet, .pq, .libsvm, .svm or .svmlight, each with
        .gz or not, or .npy; without a suffix LIBSVM.
    target : str, optional
        The column that is to be predicted, which may be a file of its own beside a .npy file.

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
        if format == "npy":
            arrays = Arrays(path, target)
            return Table(path, arrays.frame(0, arrays.rows))
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
            f"The format of {path} must be csv, tsv, parquet, npy or libsvm, but {given}: "
            "give --format."
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
        raise no_rows(path)
    return Table(path, frame)


def _csv(path: Path, data: bytes, format: str) -> Table:
    text = _decoded(path, data)
    separator = "\t" if format == "tsv" else separator_of(text)
    rows = strict_rows(path, io.StringIO(text, newline=""), separator)
    names = checked_header(path, next(rows))
    frame = frame_of(rows, names)
    if frame is None:
        raise no_rows(path)
    kinds = Kinds(path, names, separator)
    kinds.add(frame)
    kinds.settle()
    return Table(path, kinds.typed(frame), text=frame, notes=kinds.notes(format == "tsv"))


def _decoded(path: Path, data: bytes) -> str:
    wrong = data.find(b"\0")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        raise not_utf8(path, data.count(b"\n", 0, wrong) + 1)
    if not text.strip():
        raise TableError(f"{path} is empty.")
    return text if "\n" in text else text.replace("\r", "\n")
