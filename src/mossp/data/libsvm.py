"""LIBSVM files, read strictly: a label, then index:value pairs with indices that grow from 1.

Everything that a careless reader takes in silence is one `DataError` with the number of the line.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

LARGEST_INDEX = 10_000_000  # beyond this a damaged line is likelier than such a data set
LONGEST_LINE = 64 * 2**20
# What gzip may make of a file. Tables of numbers shrink to a third or a tenth, one of nearly all
# zeros to a fiftieth; a file that was made to fill a memory shrinks to a thousandth.
MOST_TIMES, FEW_BYTES, MOST_BYTES = 50, 4 * 2**20, 8 * 2**30
# What float() takes beyond this, such as "1_000", "nan" or "infinity", is none of the format.
NUMBER = re.compile(rb"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z")
INDEX = re.compile(rb"[+-]?\d+\Z")


def most_unpacked(packed: int) -> int:
    """How many bytes may come out of so many that gzip packed.

    Examples
    --------
    >>> most_unpacked(1000), most_unpacked(10**6)
    (4194304, 50000000)
    """
    return min(max(FEW_BYTES, MOST_TIMES * packed), MOST_BYTES)


TOO_MUCH = "it is packed by gzip and holds far more than its size suggests: unpack it first"


class DataError(ValueError):
    """A file that does not hold what it should. `line` is where, counted from 1; None: all of it.

    Examples
    --------
    >>> str(DataError("the index 0 is not positive", Path("a9a"), 3))
    'a9a, line 3: the index 0 is not positive.'
    """

    def __init__(self, reason: str, path: Path, line: int | None = None) -> None:
        where = f"{path}, line {line}" if line else f"{path}"
        super().__init__(f"{where}: {reason}.")
        self.reason, self.path, self.line = reason, path, line

    def __reduce__(self) -> Any:
        return DataError, (self.reason, self.path, self.line)


def read_libsvm(
    path: str | os.PathLike[str], features: int | None = None, labels: int = 2
) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    r"""(X, y) of a LIBSVM file, perhaps packed by gzip: sparse rows and labels as they stand there.

    Parameters
    ----------
    path : path
        The file.
    features : int, optional
        The number of columns; the largest index of the file if left out.
    labels : int
        How many different ones there must be: data with one class teach nothing, but a file to
        predict may hold one.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "two"
    >>> _ = path.write_text("+1 1:0.5 3:2\n-1 2:1  # a comment\n")
    >>> X, y = read_libsvm(path)
    >>> X.toarray().tolist(), y.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]], [1.0, -1.0])
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    whole = isinstance(features, (int, np.integer)) and not isinstance(features, bool)
    if features is not None and not (whole and 1 <= features < 2**31):
        raise ValueError(
            f"features must be a whole number from 1 to {2**31 - 1}, but {features!r} was given."
        )
    y: list[float] = []
    starts: list[int] = [0]
    columns: list[int] = []
    values: list[float] = []
    last = 0
    for label, places, entries, number in rows_of_libsvm(path, features):
        y.append(label)
        columns += places
        values += entries
        starts.append(len(columns))
        last = number
    if not y:
        raise DataError("the file is empty", path)
    if len(set(y)) < labels:
        raise DataError(
            f"all {len(y)} labels are {y[0]:g}, up to the last line, but two classes are needed",
            path, last,
        )  # fmt: skip
    width = features or (max(columns) + 1 if columns else 1)
    matrix = scipy.sparse.csr_matrix(
        (np.array(values, np.float64), np.array(columns, np.int32), np.array(starts, np.int64)),
        shape=(len(y), width),
    )
    return matrix, np.array(y)


def rows_of_libsvm(
    path: Path, features: int | None = None
) -> Iterator[tuple[float, list[int], list[float], int]]:
    """(label, columns from 0, values, number of the line), one row after the other."""
    for number, line in _lines(path):
        tokens = line.split()
        label = _number(tokens[0], "the label", path, number)
        columns: list[int] = []
        values: list[float] = []
        previous = 0
        for token in tokens[1:]:
            index, value = _pair(token, path, number)
            if index <= previous:
                order = "appears twice" if index == previous else f"comes after {previous}"
                raise DataError(f"the index {index} {order}, but indices must grow", path, number)
            if index > (features or LARGEST_INDEX):
                most = f"there are {features} features" if features else "no data set is that wide"
                raise DataError(f"the index {index} is too large: {most}", path, number)
            columns.append(index - 1)
            values.append(value)
            previous = index
        yield label, columns, values, number


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, without comments, with their numbers."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    most = most_unpacked(path.stat().st_size) if packed else math.inf
    with gzip.open(path) if packed else path.open("rb") as file:
        number = total = 0
        while line := _line(file, path):
            number, total = number + 1, total + len(line)
            if total > most:
                raise DataError(TOO_MUCH, path)
            if len(line) > LONGEST_LINE:
                raise DataError(f"the line is longer than {LONGEST_LINE:,} bytes", path, number)
            if number == 1 and line[:3] == b"\xef\xbb\xbf":
                raise DataError("the file begins with a byte order mark: save it without", path, 1)
            if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise DataError("the file is UTF-16: save it as plain text", path, 1)
            if b"\0" in line:
                raise DataError("the line holds a NUL byte: the file is damaged", path, number)
            text = line.split(b"#", 1)[0].strip()
            if text:
                yield number, text


def _line(file: Any, path: Path) -> bytes:
    try:
        return file.readline(LONGEST_LINE + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError("it is packed by gzip, but damaged or cut short", path) from None


def _pair(token: bytes, path: Path, line: int) -> tuple[int, float]:
    left, colon, right = token.partition(b":")
    if not colon or not left or not right:
        raise DataError(f"{_shown(token)} is not an index:value pair", path, line)
    if not INDEX.match(left):
        raise DataError(f"the index {_shown(left)} is not a whole number", path, line)
    if len(left) > 18:
        raise DataError(f"the index {_shown(left)} is too large", path, line)
    index = int(left)
    if index < 1:
        raise DataError(f"the index {index} is not positive: indices start at 1 "
            "(scikit-learn: zero_based=False)", path, line,
        )  # fmt: skip
    return index, _number(right, f"the value of index {index}", path, line)


def _number(token: bytes, what: str, path: Path, line: int) -> float:
    if not NUMBER.match(token):
        raise DataError(f"{what} is {_shown(token)}, which is not a finite number", path, line)
    value = float(token)
    if not math.isfinite(value):
        raise DataError(f"{what} is {_shown(token)}, which is too large", path, line)
    return value


def _shown(token: bytes) -> str:
    text = token[:40].decode("utf-8", "replace")
    return repr(text + "…" if len(token) > 40 else text)


def binary_labels(y: np.ndarray, path: Any) -> np.ndarray:
    """Two label values as -1 (the smaller) and +1."""
    found = np.unique(y)
    if len(found) != 2:
        raise DataError(
            f"it has {len(found)} different labels, but two classes are needed", Path(path)
        )
    return np.where(y == found[1], 1.0, -1.0)
