"""The columns of a table: what one holds, as numbers or as text, and whether it is there."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from mossp._base import naming
from mossp._base.printing import counted, quoted
from mossp.app.tables.table import Table, TableError, polars_package

NUMBERS = ("numbers", "booleans")
DATES = "dates or times"
SHOWN = 10  # columns that a sentence lists
# 2024-05-31, 31.05.2024 and 5/31/24, with a time of day or without; or the time alone.
DATE = r"^(\d{4}[-/]\d\d?[-/]\d\d?|\d\d?[-/.]\d\d?[-/.](\d\d){1,2})([T ]\d\d?:.*)?$|^\d\d?:\d\d"

ADVICE = {
    "missing": "fit with --missing impute, or leave such rows out (--missing drop)",
    "infinite": "mend such rows, or leave them out",
}
LOGARITHM = re.compile(r"\s*log\s*\((.+)\)\s*")


def kind_of(table: Table, name: str) -> str:
    """What a column holds: "numbers", "booleans", "text", or something that is refused."""
    pl, column = polars_package(), table.frame[name]
    if column.dtype == pl.Boolean:
        return "booleans"
    if column.dtype.is_numeric() or column.null_count() == len(column):
        return "numbers"  # where all are missing, that is what will be said
    if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        dates = column.cast(pl.String).str.contains(DATE).all()
        return DATES if dates else "text"
    if column.dtype.is_temporal():
        return DATES
    return f"values of the type {column.dtype.base_type().__name__}"


def refused(table: Table, name: str, kind: str) -> TableError:
    return TableError(
        f"The column {quoted(name)} of {table.path} holds {kind}, which are no numbers: exclude it "
        f"(--exclude {quoted(name)}), or make numbers of it.",
        ("--exclude", name),
    )


def missing_in(table: Table, name: str) -> np.ndarray:
    """Which values of a column are missing, NaN among them."""
    column = table.frame[name]
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan().fill_null(True)
    return np.asarray(missing.to_numpy(), bool)


def numbers_in(table: Table, name: str, missing: bool = False) -> np.ndarray:
    """A column as float64, all of them finite; NaN where they may be `missing`."""
    pl, column, kind = polars_package(), table.frame[name], kind_of(table, name)
    if kind == "text":
        texts = column.cast(pl.String)
        row = int((texts.cast(pl.Float64, strict=False).is_null() & texts.is_not_null()).arg_max())
        raise TableError(
            f"The column {quoted(name)} of {table.path} must hold numbers, as in the training "
            f"data, but row {table.number(row)} holds {quoted(texts[row])}."
        )
    if kind not in NUMBERS:
        raise refused(table, name, kind)
    values: np.ndarray = column.cast(pl.Float64).to_numpy()
    if not missing:
        check_none(table, name, np.isnan(values), "missing")
    check_none(table, name, np.isinf(values), "infinite")
    return values


def texts_in(table: Table, name: str, missing: bool = False) -> np.ndarray:
    """A column as an array of text, None where values may be `missing`."""
    texts = np.array(table.as_written(name).cast(polars_package().String).to_list(), object)
    if not missing:
        check_none(table, name, np.array([text is None for text in texts]), "missing")
    return texts


def check_none(table: Table, name: str, wrong: np.ndarray, what: str) -> None:
    if wrong.any():
        many = counted(int(wrong.sum()), what + " value")
        raise TableError(
            f"The column {quoted(name)} of {table.path} has {many}, "
            f"first in row {table.number(int(wrong.argmax()))}: {ADVICE[what]}.",
            ("--missing", "impute") if what == "missing" else ("--exclude", name),
        )


def check_known(table: Table, names: Iterable[str], need: str = "") -> None:
    for name in (name for name in names if not table.may_have(name)):
        lower = {column.lower(): column for column in reversed(table.columns)}
        near = naming.closest(name.lower(), lower)
        hint = f" (did you mean {quoted(lower[near])}?)" if near else ""
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


def attribute_of(table: Table, name: str) -> np.ndarray:
    """A column by whose values rows are told apart: numbers, booleans or text.

    Examples
    --------
    >>> import pathlib, scipy.sparse
    >>> X = scipy.sparse.csr_matrix([[0.0, 2.0], [0.0, 0.0]])
    >>> attribute_of(Table(pathlib.Path("two"), X=X, y=np.ones(2)), "x2").tolist()
    [2.0, 0.0]
    """
    check_known(table, [name])
    if table.X is not None:
        return np.asarray(table.X[:, [int(name[1:]) - 1]].toarray()).ravel()
    kind = kind_of(table, name)
    if kind in NUMBERS:
        return numbers_in(table, name).astype(bool if kind == "booleans" else float)
    return texts_in(table, name).astype(str)


def written(table: Table, name: str) -> np.ndarray:
    """A column as it is written, empty where a value is missing: for ids."""
    if table.X is not None:
        return attribute_of(table, name)
    column = table.as_written(name).to_list()
    return np.array(["" if value is None else str(value) for value in column], object)


def offset_column(table: Table, text: str) -> tuple[str, bool]:
    """(the column that an offset is made of, whether its logarithm is taken)."""
    inside = LOGARITHM.fullmatch(text)
    if inside is None or text in table.columns:
        return text, False
    return inside.group(1).strip(), True


def offset_of(table: Table, text: str) -> np.ndarray:
    """What is added to the score of every row: a column, or the logarithm of one.

    Parameters
    ----------
    table : Table
    text : str
        The name of a column of numbers, or "log(name)".

    Examples
    --------
    >>> import pathlib, scipy.sparse
    >>> X = scipy.sparse.csr_matrix([[1.0, 2.0], [1.0, 0.0]])
    >>> table = Table(pathlib.Path("two"), X=X, y=np.ones(2))
    >>> offset_of(table, "log(x1)").tolist()
    [0.0, 0.0]
    >>> offset_of(table, "log(x2)")
    Traceback (most recent call last):
    mossp.app.tables.table.TableError: The offset 'log(x2)' needs positive numbers in the column
    'x2' of two, but row 2 holds 0.
    """
    name, logarithm = offset_column(table, text)
    check_known(table, [name])
    values = attribute_of(table, name) if table.X is not None else numbers_in(table, name)
    if not logarithm:
        return values
    if (values <= 0).any():
        row = int((values <= 0).argmax())
        raise TableError(
            f"The offset {quoted(text)} needs positive numbers in the column {quoted(name)} of "
            f"{table.path}, but row {table.number(row)} holds {values[row]:g}."
        )
    return np.log(values)


def target_of(table: Table, target: str | None) -> np.ndarray:
    """What is to be predicted: a column, or the labels of LIBSVM (with None for the target).

    Numbers are float64; booleans and text stay what they are.

    Examples
    --------
    >>> import pathlib, scipy.sparse
    >>> X, y = scipy.sparse.csr_matrix((2, 3)), np.array([1.0, -1.0])
    >>> table = Table(pathlib.Path("two"), X=X, y=y)
    >>> target_of(table, None).tolist()
    [1.0, -1.0]
    >>> target_of(table, "price")
    Traceback (most recent call last):
    mossp.app.tables.table.TableError: two is a LIBSVM file, where the labels are the target:
    leave the target 'price' out.
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
