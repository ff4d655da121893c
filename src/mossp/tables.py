"""Files of a user's own data: read strictly, and made into the matrix that a model is fitted to.

`read` takes CSV, TSV, Parquet and LIBSVM, packed by gzip or not. `Features` remembers how columns
became features, so that a file to predict is treated as the training data were. Whatever is wrong
is one sentence, a `TableError`, with the file, the column and the row where they are known.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import difflib
import functools
import gzip
import io
import os
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from mossp.data.libsvm import DataError, read_libsvm

FORMATS = ("csv", "tsv", "parquet", "libsvm")
SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".pq": "parquet"}
SUFFIXES |= dict.fromkeys(("", ".libsvm", ".svm", ".svmlight"), "libsvm")
MISSING = ["", "NA", "NaN", "nan", "null"]  # not "None", which may well be a category
MOST_LEVELS = 100
NUMBERS = ("numbers", "booleans")
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
    X, y     rows and labels of LIBSVM, whose columns are called x1, x2, ...
    """

    path: Path
    frame: Any = None
    text: Any = None
    X: scipy.sparse.csr_matrix | None = None
    y: np.ndarray | None = None

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        if self.X is not None:
            return tuple(f"x{j + 1}" for j in range(self.X.shape[1]))
        return tuple(self.frame.columns)

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
        given = "its name does not tell" if format is None else f"{format!r} is not one of them"
        raise TableError(
            f"The format of {path} must be csv, tsv, parquet or libsvm, but {given}: give --format."
        )
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":  # gzip, whatever the name says
            data = gzip.decompress(data)
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
    if format == "libsvm":
        return _libsvm(path, data)
    return _parquet(path, data) if format == "parquet" else _csv(path, data, format)


def _polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError(
            "Reading CSV and Parquet files needs polars: pip install 'mossp[cli]'"
        ) from None
    return polars


def _libsvm(path: Path, data: bytes) -> Table:
    # read_libsvm wants a file with two labels. A file to predict has often one, and a packed file
    # is none: a copy with two more rows, which are taken off again, serves both.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        copy.write_bytes(data + b"\n0\n1\n")
        try:
            X, y = read_libsvm(copy)
        except DataError as error:
            where = f"{path}, line {error.line}" if error.line else f"{path}"
            raise TableError(f"{where}: {error.reason}.") from None
    if len(y) == 2:
        raise TableError(f"{path} has no rows, only comments.")
    return Table(path, X=X[:-2], y=y[:-2])


def _parquet(path: Path, data: bytes) -> Table:
    pl = _polars()
    try:
        frame = pl.read_parquet(io.BytesIO(data))
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
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    if not buffer.tell():
        raise TableError(f"{path} names its columns, but it has no rows.")
    content = io.BytesIO(buffer.getvalue().encode())
    frame = pl.read_csv(content, has_header=False, new_columns=names, infer_schema=False)
    frame = frame.select(pl.all().str.strip_chars())
    frame = frame.select(pl.when(~pl.all().is_in(MISSING)).then(pl.all()))
    return Table(path, frame.select(_typed(column) for column in frame), text=frame)


def _rows(path: Path, text: str, comma: str) -> Iterator[list[str]]:
    """All rows that are not blank, each as long as the first."""
    reader, width = csv.reader(io.StringIO(text, newline=""), delimiter=comma, strict=True), 0
    try:
        for row in filter(None, reader):
            width = width or len(row)
            if len(row) != width:
                raise TableError(
                    f"{path}, line {reader.line_num}: the row has {_count(len(row), 'value')}, but "
                    f"the first line names {_count(width, 'column')}."
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
    if name := _twice(names):
        raise TableError(f"{path} has two columns called {name!r}: rename one.")


def _twice(names: Sequence[str]) -> str | None:
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


def _kind(table: Table, name: str) -> str:
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


def _refused(table: Table, name: str, kind: str) -> TableError:
    return TableError(
        f"The column {name!r} of {table.path} holds {kind}, which are no numbers: exclude it "
        f"(--exclude {name!r}), or make numbers of it."
    )


def _numbers(table: Table, name: str) -> np.ndarray:
    """A column as float64, all of them finite."""
    pl, column, kind = _polars(), table.frame[name], _kind(table, name)
    if kind == "text":
        texts = column.cast(pl.String)
        row = int((texts.cast(pl.Float64, strict=False).is_null() & texts.is_not_null()).arg_max())
        raise TableError(
            f"The column {name!r} of {table.path} must hold numbers, as in the training data, but "
            f"row {row + 1} holds {texts[row]!r}."
        )
    if kind not in NUMBERS:
        raise _refused(table, name, kind)
    values: np.ndarray = column.cast(pl.Float64).to_numpy()
    _check_none(table, name, np.isnan(values), "missing")
    _check_none(table, name, np.isinf(values), "infinite")
    return values


def _texts(table: Table, name: str) -> np.ndarray:
    """A column as an array of text, none missing."""
    frame = table.frame if table.text is None else table.text
    texts = np.array(frame[name].cast(_polars().String).to_list(), object)
    _check_none(table, name, np.array([text is None for text in texts]), "missing")
    return texts


def _check_none(table: Table, name: str, wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        raise TableError(
            f"The column {name!r} of {table.path} has {_count(int(wrong.sum()), what + ' value')}, "
            f"first in row {wrong.argmax() + 1}: impute, or drop such rows."
        )


def _check_known(table: Table, names: Iterable[str], need: str = "") -> None:
    lower = {column.lower(): column for column in reversed(table.columns)}
    known = set(table.columns)
    for name in (name for name in names if name not in known):
        near = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f" (did you mean {lower[near[0]]!r}?)" if near else ""
        raise TableError(f"{table.path} has no column {name!r}{need}{hint}: it has {_list(table)}.")


def _check_target(table: Table, target: str | None) -> None:
    if table.X is not None and target is not None:
        raise TableError(
            f"{table.path} is a LIBSVM file, where the labels are the target: leave the target "
            f"{target!r} out."
        )
    if table.X is None and target is None:
        raise TableError(f"One column of {table.path} must be the target: it has {_list(table)}.")
    _check_known(table, [] if target is None else [target])


def _list(table: Table) -> str:
    more = len(table.columns) - SHOWN
    shown = ", ".join(map(repr, table.columns[:SHOWN]))
    return f"{shown} and {more} more" if more > 0 else shown


def _count(number: int, what: str) -> str:
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
    _check_target(table, target)
    if table.y is not None or target is None:
        return np.asarray(table.y)
    kind = _kind(table, target)
    if kind == "text":
        return _texts(table, target).astype(str)
    if kind not in NUMBERS:
        raise TableError(
            f"The target {target!r} of {table.path} holds {kind}, neither numbers nor classes."
        )
    return _numbers(table, target).astype(bool if kind == "booleans" else float)


# Features ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Features:
    r"""How the columns of a table become the columns of a matrix, learnt once and applied again.

    columns          of the table: names, each with None for numbers or with its levels for text
    centre, scale    of each feature: the matrix holds (value - centre) / scale
    width            how many columns LIBSVM's rows had, None for a table with names

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rooms.csv"
    >>> _ = path.write_text("size,kind,price\n1,old,3\n3,new,7\n5,old,6\n")
    >>> features = Features.learn(read(path), "price", standardize=False)
    >>> features.names
    ('size', 'kind=new', 'kind=old')
    >>> features.matrix(read(path)).tolist()
    [[1.0, 0.0, 1.0], [3.0, 1.0, 0.0], [5.0, 0.0, 1.0]]
    """

    columns: tuple[tuple[str, tuple[str, ...] | None], ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    width: int | None = None

    def __post_init__(self) -> None:
        centre, scale = np.array(self.centre, float), np.array(self.scale, float)
        finite = np.isfinite(centre).all() and np.isfinite(scale).all() and (scale > 0).all()
        if not (finite and len(self.names) == centre.size == scale.size):
            raise TableError("Every feature needs one finite centre and one positive scale.")
        if name := _twice(self.names):
            raise TableError(f"Two features would be called {name!r}: rename a column.")

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features: of the column, or `column=level`."""
        return tuple(
            name if level is None else f"{name}={level}"
            for name, levels in self.columns
            for level in ([None] if levels is None else levels)
        )

    @classmethod
    def learn(
        cls,
        table: Table,
        target: str | None,
        *,
        rows: Any = None,
        exclude: Sequence[str] = (),
        standardize: bool = True,
    ) -> Features:
        """Features of all columns but the target and those excluded.

        rows           which rows to learn levels, centres and scales from; all if left out
        standardize    to mean 0 and standard deviation 1 over these rows; sparse rows are scaled,
                       but not centred, and stay sparse
        """
        exclude = (exclude,) if isinstance(exclude, str) else exclude
        _check_target(table, target)
        _check_known(table, exclude)
        unwanted = {target, *exclude}
        names = [name for name in table.columns if name not in unwanted]
        chosen = np.arange(table.rows)[slice(None) if rows is None else rows]
        if not names:
            raise TableError(f"No column of {table.path} is left to be a feature.")
        if not len(chosen):
            raise TableError(f"No row of {table.path} was chosen to learn from.")
        sparse = table.X is not None
        columns = tuple((n, None if sparse else _levels(table, n, chosen)) for n in names)
        n = sum(1 if levels is None else len(levels) for _, levels in columns)
        width = table.X.shape[1] if table.X is not None else None
        plain = cls(columns, (0.0,) * n, (1.0,) * n, width)
        X = plain._raw(table, quiet=True)[chosen]
        if not standardize:
            return plain
        centre, scale = _sparse_moments(X) if sparse else _moments(X)
        return dataclasses.replace(plain, centre=tuple(centre), scale=tuple(scale))

    def matrix(self, table: Table) -> Any:
        """The features of every row: an array, or a scipy.sparse.csr_matrix for LIBSVM.

        Columns are found by name. A level that was not seen when learning is none of the levels:
        its features are 0 before they are standardised, and there is a warning.
        """
        X, scale = self._raw(table), np.array(self.scale)
        with np.errstate(over="ignore"):
            if self.width is None:
                X = (X - np.array(self.centre)) / scale
            else:
                X.data = X.data / scale[X.indices]
        large = np.isinf(X if self.width is None else X.data)
        if large.any():
            j = large.any(axis=0).argmax() if self.width is None else X.indices[large.argmax()]
            raise TableError(f"{table.path} has values of {self.names[j]!r} that are too large.")
        return X

    def _raw(self, table: Table, quiet: bool = False) -> Any:
        """The features before they are standardised."""
        if (self.width is None) != (table.X is None):
            kinds = ("a LIBSVM file", "a table with named columns")
            raise TableError(
                f"{table.path} is {kinds[table.X is None]}, but the training data were "
                f"{kinds[self.width is None]}."
            )
        if table.X is not None:
            return self._sparse(table)
        _check_known(table, [name for name, _ in self.columns], ", which the model needs")
        X = np.zeros((table.rows, len(self.names)))
        j = 0
        for name, levels in self.columns:
            if levels is None:
                X[:, j] = _numbers(table, name)
                j += 1
                continue
            texts, place = _texts(table, name), {level: k for k, level in enumerate(levels)}
            codes = np.array([place.get(text, -1) for text in texts])
            seen = np.flatnonzero(codes >= 0)
            X[seen, j + codes[seen]] = 1
            j += len(levels)
            if len(seen) < len(texts) and not quiet:
                counts = collections.Counter(texts[codes < 0]).most_common()
                listed = ", ".join(f"{level!r} ({_count(k, 'row')})" for level, k in counts[:3])
                warnings.warn(
                    f"The column {name!r} of {table.path} holds levels that the training data did "
                    f"not: {listed}{', …' * (len(counts) > 3)}.",
                    stacklevel=3,
                )
        return X

    def _sparse(self, table: Table) -> scipy.sparse.csr_matrix:
        rows, given, width = table.X, len(table.columns), self.width or 0
        if rows is None or given > width:
            raise TableError(
                f"{table.path} has features up to x{given}, but the training data had only "
                f"{width}: train with data that have them all."
            )
        X = scipy.sparse.csr_matrix(
            (rows.data, rows.indices, rows.indptr), shape=(table.rows, width)
        )
        if len(self.columns) == width:
            return X
        return X[:, [int(name[1:]) - 1 for name, _ in self.columns]]

    def to_meta(self) -> dict[str, Any]:
        """Itself as what JSON can hold."""
        return {
            "columns": [[name, levels and list(levels)] for name, levels in self.columns],
            "centre": list(map(float, self.centre)),
            "scale": list(map(float, self.scale)),
            "width": self.width,
        }

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Features:
        """What `to_meta` was called on."""
        columns = ((name, levels and tuple(levels)) for name, levels in meta["columns"])
        return cls(tuple(columns), tuple(meta["centre"]), tuple(meta["scale"]), meta["width"])


def _levels(table: Table, name: str, rows: np.ndarray) -> tuple[str, ...] | None:
    """None for numbers, or the levels of text, sorted, if there are not too many."""
    kind = _kind(table, name)
    if kind in NUMBERS:
        return None
    if kind != "text":
        raise _refused(table, name, kind)
    texts = _texts(table, name)
    levels = sorted(set(texts[rows]))
    # A single "?" makes text of a column of numbers: that is said.
    odd = [level for level in levels if not _is_number(level)]
    because = ""
    if 0 < 2 * len(odd) <= len(levels):
        row = np.flatnonzero(texts == odd[0])[0] + 1
        because = f", being text since row {row} holds {odd[0]!r}"
    if len(levels) > MOST_LEVELS or len(levels) == len(texts[rows]) > 1:
        raise TableError(
            f"The column {name!r} of {table.path} has {len(levels)} different texts in "
            f"{len(texts[rows])} rows{because}: exclude it (--exclude {name!r}), or make numbers "
            "of it."
        )
    if because:
        warnings.warn(
            f"The column {name!r} of {table.path} becomes {_count(len(levels), 'feature')}, one "
            f"for each of its values{because}.",
            stacklevel=4,
        )
    return tuple(levels)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Standard deviations are of values scaled by a power of two, which is exact, so that squares
# neither overflow nor vanish. What varies no more than rounding does is constant: its scale is 1.
ROUNDING = 8 * np.finfo(float).eps


def _moments(X: np.ndarray) -> tuple[list[float], list[float]]:
    exponent = np.frexp(np.abs(X).max(axis=0))[1]
    scaled = np.ldexp(X, -exponent)
    shifted = scaled - scaled[0]  # a constant column is exactly 0 from here on
    centre = np.ldexp(scaled[0] + shifted.mean(axis=0), exponent)
    return centre.tolist(), _scale(shifted.std(axis=0), exponent)


def _sparse_moments(X: scipy.sparse.csr_matrix) -> tuple[list[float], list[float]]:
    """Centres of 0, so that the rows stay sparse, and standard deviations about the mean."""
    (rows, n), j = X.shape, X.indices
    exponent = np.frexp(abs(X).max(axis=0).toarray().ravel())[1]
    stored = np.bincount(j, minlength=n)
    lowest = np.where(stored == rows, X.min(axis=0).toarray().ravel(), 0)
    shifted = np.ldexp(X.data, -exponent[j]) - np.ldexp(lowest, -exponent)[j]
    mean = np.bincount(j, shifted, n) / rows
    squares = np.bincount(j, (shifted - mean[j]) ** 2, n) + (rows - stored) * mean**2
    return [0.0] * n, _scale(np.sqrt(squares / rows), exponent)


def _scale(deviation: np.ndarray, exponent: np.ndarray) -> list[float]:
    scale = np.where(deviation > ROUNDING, np.ldexp(deviation, exponent), 1.0)
    return np.where(scale > 0, scale, 1.0).tolist()


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
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return None
    path = Path(path)
    # A device such as /dev/null is written to, never replaced.
    plain = os.path.isfile(path) or not os.path.exists(path)
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp") if plain else place
    try:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        if plain:
            os.replace(temporary, place)
    except OSError as error:
        if plain:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise TableError(f"{path} could not be written: {error.strerror}.") from error
    return path
