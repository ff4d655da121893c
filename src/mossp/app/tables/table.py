"""A table as it was read, and the error that says what is wrong with one."""

from __future__ import annotations

import collections
import contextlib
import functools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse


class TableError(ValueError):
    """A table that cannot be used as it is: one sentence that says why, and what to do.

    `mends` has the options of `mossp fit` that would do it, if there are any.
    """

    def __init__(self, sentence: str, mends: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.mends = mends


class TableErrors(TableError):
    """Several of them at once, a line each, and the options that mend them all."""

    lines = True  # printed as they are

    def __init__(self, path: object, errors: Sequence[TableError]) -> None:
        self.errors = list(errors)
        groups = list(dict.fromkeys(error.mends for error in errors))
        whole = " ".join(shlex.join(mends) for mends in groups if mends)
        mended = f"\nOptions of `mossp fit` that mend it: {whole}" if whole else ""
        listed = "".join(f"\n  - {error}" for error in errors)
        super().__init__(f"{path} has {len(errors)} faults:{listed}{mended}")


class Faults:
    """Collects errors, so that all of them are told at once.

    Examples
    --------
    >>> faults = Faults("a.csv")
    >>> for name in ("p", "q"):
    ...     with faults.kept():
    ...         raise TableError(f"{name} is wrong.", ("--exclude", name))
    >>> faults.tell()
    Traceback (most recent call last):
    mossp.app.tables.table.TableErrors: a.csv has 2 faults:
      - p is wrong.
      - q is wrong.
    Options of `mossp fit` that mend it: --exclude p --exclude q
    """

    def __init__(self, path: object) -> None:
        self.path = path
        self.errors: list[TableError] = []

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a TableError of the block, and go on after it."""
        try:
            yield
        except TableError as error:
            found = error.errors if isinstance(error, TableErrors) else [error]
            told = {str(known) for known in self.errors}
            self.errors += [one for one in found if str(one) not in told]

    def tell(self) -> None:
        """Raise the error, or all of them as one; nothing if there is none."""
        if self.errors:
            alone = len(self.errors) == 1
            raise self.errors[0] if alone else TableErrors(self.path, self.errors)


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds: named columns, or the sparse rows and the labels of LIBSVM.

    Attributes
    ----------
    path : Path
        The file.
    frame : polars.DataFrame or None
        The columns; None for LIBSVM.
    text : polars.DataFrame or None
        The same as they are written, for levels such as "01"; for CSV and TSV only, and where
        rows are read in blocks only those columns that are asked for.
    X : csr matrix or None
        Rows of LIBSVM, whose columns are called x1, x2, ...; one that no row has is no column,
        since an index may be as large as anyone likes.
    y : array or None
        Labels of LIBSVM.
    notes : tuple of str
        What was found out about the file, in sentences.
    numbers : array or None
        The numbers of the rows in the file, counted from 1; None if all of them are here.
    """

    path: Path
    frame: Any = None
    text: Any = None
    X: scipy.sparse.csr_matrix | None = None
    y: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    numbers: np.ndarray | None = None

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

    def as_written(self, name: str) -> Any:
        """A column as the file has it, where that is known: text of CSV and TSV."""
        known = self.text is not None and name in self.text.columns
        return self.text[name] if known else self.frame[name]

    def number(self, row: int) -> int:
        """The number in the file of a row, counted from 1."""
        return row + 1 if self.numbers is None else int(self.numbers[row])

    def at(self, chosen: np.ndarray) -> Table:
        """Some of the rows, which are chosen by True."""
        numbers = np.arange(1, self.rows + 1) if self.numbers is None else self.numbers
        few = replace(self, numbers=numbers[chosen])
        if self.X is not None and self.y is not None:
            return replace(few, X=self.X[chosen], y=self.y[chosen])
        text = None if self.text is None else self.text.filter(chosen)
        return replace(few, frame=self.frame.filter(chosen), text=text)

    @property
    def rows(self) -> int:
        return int(self.frame.height if self.X is None else self.X.shape[0])


def twice(names: Sequence[str]) -> str | None:
    return next((name for name, n in collections.Counter(names).items() if n > 1), None)


def polars_package() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError(
            "Reading CSV and Parquet files needs polars: pip install 'mossp[cli]'"
        ) from None
    return polars
