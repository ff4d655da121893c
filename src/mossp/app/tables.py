"""Files of a user's own data, read strictly: CSV, TSV, Parquet and LIBSVM, packed by gzip or not.

Whatever is wrong is one sentence, a `TableError`, with the file, the column and the row where they
are known.
"""

from __future__ import annotations

import collections
import csv
import difflib
import functools
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from mossp._base.files import replacing
from mossp._base.printing import printable, quoted
from mossp.data.libsvm import TOO_MUCH, DataError, most_unpacked, read_libsvm

FORMATS = ("csv", "tsv", "parquet", "libsvm")
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
SUFFIXES |= dict.fromkeys(("", ".libsvm", ".svm", ".svmlight"), "libsvm")
MISSING = ["", "NA", "NaN", "nan", "null"]  # not "None", which may well be a category
NUMBERS = ("numbers", "booleans")
MOST_COLUMNS = 50_000  # of text: each takes a fraction of a millisecond
# Of Parquet, for each byte of the file: where a column repeats one value, rows cost nothing.
MOST_VALUES, FEW_VALUES = 100, 10**7
SHOWN = 10  # columns that a sentence lists
# 2024-05-31, 31.05.2024 and 5/31/24, with a time of day or without; or the time alone.
DATE = r"^(\d{4}[-/]\d\d?[-/]\d\d?|\d\d?[-/.]\d\d?[-/.](\d\d){1,2})([T ]\d\d?:.*)?$|^\d\d?:\d\d"


class TableError(ValueError):
    """A table that cannot be used as it is: one sentence that says why, and what to do."""


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds: named columns, or the sparse rows and the labels of LIBSVM.

    path     the file
    frame    the columns in a polars frame; None for LIBSVM
    text     the same as they are written, for levels such as "01"; for CSV and TSV only
    X, y     rows and labels of LIBSVM, whose columns are called x1, x2, ...; one that no row has is
             no column, since an index may be as large as anyone likes
    """

    path: Path
    frame: Any = None
    text: Any = None
    X: scipy.sparse.csr_matrix | None = None
    y: np.ndarray | None = None

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.columns)

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        if self.X is not None:
            return tuple(f"x{j + 1}" for j in np.unique(self.X.indices))
        return tuple(self.frame.columns)

    def may_have(self, name: str) -> bool:
        """Whether it has this column, or LIBSVM's rows are so wide that they could have it."""
        if self.X is None:
            return name in self._known
        number = name[1:]
        digits = number.isascii() and number.isdigit() and len(number) < 10
        return name[:1] == "x" and digits and 1 <= int(number) <= self.X.shape[1]

    @property
    def rows(self) -> int:
        return int(self.frame.height if self.X is None else self.X.shape[0])


# Reading ----------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], format: str | None = None) -> Table:
    r"""The table in a file.

    format    "csv", "tsv", "parquet" or "libsvm"; if left out, by the name: .csv, .tsv, .parquet,
              .pq, .libsvm, .svm or .svmlight, each with .gz or not; without a suffix LIBSVM

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two.svm"
    >>> _ = path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    >>> table = read(path)
    >>> table.rows, table.columns
    (2, ('x1', 'x2', 'x3'))
    """
    path = Path(path)
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


def _unpacked(path: Path, data: bytes) -> bytes:
    most = most_unpacked(len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        content = file.read(most)
        if len(content) == most and file.read(1):
            raise TableError(str(DataError(TOO_MUCH, path)))
    return content


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError(
            "Reading CSV and Parquet files needs polars: pip install 'mossp[cli]'"
        ) from None
    return polars


def _libsvm(path: Path) -> Table:
    try:
        X, y = read_libsvm(path, labels=1)
    except DataError as error:
        raise TableError(str(error)) from None
    return Table(path, X=X, y=y)


def _parquet(path: Path, data: bytes) -> Table:
    pl = _polars()
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
    _check_names(path, frame.columns)
    if not frame.height:
        raise TableError(f"{path} names its columns, but it has no rows.")
    return Table(path, frame)


def _csv(path: Path, data: bytes, format: str) -> Table:
    pl = _polars()
    # polars fills short rows with nothing, takes blank lines for rows, and stumbles over a quote
    # within a value. It is given what Python's strict reader made of the file.
    rows, buffer = (
        _rows(path, _decoded(path, data), "\t" if format == "tsv" else ","),
        io.StringIO(),
    )
    names = [name.strip() for name in next(rows)]
    _check_names(path, names)
    if len(names) > MOST_COLUMNS:
        raise TableError(
            f"{path} has {len(names):,} columns, but text is read up to {MOST_COLUMNS:,}: save it "
            "as Parquet or LIBSVM."
        )
    if len(names) == 1 and ";" in names[0]:
        raise TableError(f"{path} seems to have ';' between its columns: save it with commas.")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    if not buffer.tell():
        raise TableError(f"{path} names its columns, but it has no rows.")
    content = io.BytesIO(buffer.getvalue().encode())
    frame = pl.read_csv(content, has_header=False, new_columns=names, infer_schema=False)
    stripped = pl.all().str.strip_chars()
    frame = frame.select(pl.when(~stripped.is_in(MISSING)).then(stripped))
    return Table(path, pl.DataFrame([_typed(column) for column in frame]), text=frame)


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


def _check_names(path: Path, names: Sequence[str]) -> None:
    if "" in names:
        raise TableError(
            f"{path} has no name for column {names.index('') + 1}: give it one, or leave it out "
            "(pandas: to_csv(..., index=False))."
        )
    if name := twice(names):
        raise TableError(f"{path} has two columns called {quoted(name)}: rename one.")


def twice(names: Sequence[str]) -> str | None:
    return next((name for name, n in collections.Counter(names).items() if n > 1), None)


def _typed(column: Any) -> Any:
    """A column of text as numbers or booleans if all of its values are."""
    pl = _polars()
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count() == column.null_count():
        return numbers
    lower = column.str.to_lowercase()
    return lower == "true" if lower.is_in(["true", "false"]).all() else column


# Columns ----------------------------------------------------------------------------------------


def kind_of(table: Table, name: str) -> str:
    """What a column holds: "numbers", "booleans", "text", or something that is refused."""
    pl, column = _polars(), table.frame[name]
    if column.dtype == pl.Boolean:
        return "booleans"
    if column.dtype.is_numeric() or column.null_count() == len(column):
        return "numbers"  # where all are missing, that is what will be said
    if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        dates = column.cast(pl.String).str.contains(DATE).all()
        return "dates or times" if dates else "text"
    if column.dtype.is_temporal():
        return "dates or times"
    return f"values of the type {column.dtype.base_type().__name__}"


def refused(table: Table, name: str, kind: str) -> TableError:
    return TableError(
        f"The column {quoted(name)} of {table.path} holds {kind}, which are no numbers: exclude it "
        f"(--exclude {quoted(name)}), or make numbers of it."
    )


def numbers_in(table: Table, name: str) -> np.ndarray:
    """A column as float64, all of them finite."""
    pl, column, kind = _polars(), table.frame[name], kind_of(table, name)
    if kind == "text":
        texts = column.cast(pl.String)
        row = int((texts.cast(pl.Float64, strict=False).is_null() & texts.is_not_null()).arg_max())
        raise TableError(
            f"The column {quoted(name)} of {table.path} must hold numbers, as in the training "
            f"data, but row {row + 1} holds {quoted(texts[row])}."
        )
    if kind not in NUMBERS:
        raise refused(table, name, kind)
    values: np.ndarray = column.cast(pl.Float64).to_numpy()
    _check_none(table, name, np.isnan(values), "missing")
    _check_none(table, name, np.isinf(values), "infinite")
    return values


def texts_in(table: Table, name: str) -> np.ndarray:
    """A column as an array of text, none missing."""
    frame = table.frame if table.text is None else table.text
    texts = np.array(frame[name].cast(_polars().String).to_list(), object)
    _check_none(table, name, np.array([text is None for text in texts]), "missing")
    return texts


def _check_none(table: Table, name: str, wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        many = counted(int(wrong.sum()), what + " value")
        raise TableError(
            f"The column {quoted(name)} of {table.path} has {many}, "
            f"first in row {wrong.argmax() + 1}: impute, or drop such rows."
        )


def check_known(table: Table, names: Iterable[str], need: str = "") -> None:
    for name in (name for name in names if not table.may_have(name)):
        lower = {column.lower(): column for column in reversed(table.columns)}
        near = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f" (did you mean {quoted(lower[near[0]])}?)" if near else ""
        raise TableError(
            f"{table.path} has no column {quoted(name)}{need}{hint}: it has {_list(table)}."
        )


def check_target(table: Table, target: str | None) -> None:
    if table.X is not None and target is not None:
        raise TableError(
            f"{table.path} is a LIBSVM file, where the labels are the target: leave the target "
            f"{quoted(target)} out."
        )
    if table.X is None and target is None:
        raise TableError(
            f"One column of {table.path} must be the target (--target): it has {_list(table)}."
        )
    check_known(table, [] if target is None else [target])


def _list(table: Table) -> str:
    more = len(table.columns) - SHOWN
    shown = ", ".join(map(quoted, table.columns[:SHOWN]))
    return f"{shown} and {more} more" if more > 0 else shown


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def target_of(table: Table, target: str | None) -> np.ndarray:
    """What is to be predicted: a column, or the labels of LIBSVM (with None for the target).

    Numbers are float64; booleans and text stay what they are.

    >>> table = Table(Path("two"), X=scipy.sparse.csr_matrix((2, 3)), y=np.array([1.0, -1.0]))
    >>> target_of(table, None).tolist()
    [1.0, -1.0]
    >>> target_of(table, "price")
    Traceback (most recent call last):
    mossp.tables.TableError: two is a LIBSVM file, where the labels are the target: leave the
    target 'price' out.
    """
    check_target(table, target)
    if table.y is not None or target is None:
        return np.asarray(table.y)
    kind = kind_of(table, target)
    if kind == "text":
        return texts_in(table, target).astype(str)
    if kind not in NUMBERS:
        raise TableError(
            f"The target {quoted(target)} of {table.path} holds {kind}, neither numbers nor "
            "classes."
        )
    return numbers_in(table, target).astype(bool if kind == "booleans" else float)


# Writing ----------------------------------------------------------------------------------------


def write_predictions(
    path: str | os.PathLike[str] | None, columns: dict[str, np.ndarray]
) -> Path | None:
    """Columns as CSV in a file, complete or not there at all; with None on standard output.

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
