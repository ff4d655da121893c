"""How columns of a table become the columns of a matrix: learnt once, applied again."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from mossp._base import layout
from mossp._base.printing import counted, quoted
from mossp.app.features.dates import Dates
from mossp.app.features.learning import Coding, learn_columns, names_of
from mossp.app.features.levels import indicators
from mossp.app.standardization import moments, sparse_moments
from mossp.app.tables import (
    Faults,
    Table,
    TableError,
    check_known,
    check_target,
    missing_in,
    numbers_in,
    twice,
)

SPARSE_NAME = re.compile(r"x[1-9][0-9]{0,17}")
FILE = {
    "columns": layout.Each(list), "centre": layout.Each(float), "scale": layout.Each(float),
    "width": (int, None), "fill": layout.Maybe(layout.Each((str, float), named=True)),
    "flagged": layout.Maybe(layout.Each(str)),
}  # fmt: skip


@dataclass(frozen=True)
class Features:
    r"""How the columns of a table become the columns of a matrix, learnt once and applied again.

    Attributes
    ----------
    columns : tuple of (str, coding)
        Of the table: names, each with None for numbers, its levels for text, or `Dates`.
    centre, scale : tuple of float
        Of each feature: the matrix holds `(value - centre) / scale`.
    width : int, optional
        How many columns LIBSVM's rows had, None for a table with names; those that no row has are
        no features.
    fill : tuple of (str, float or str)
        By column, what stands for a missing value: the median, or the most frequent level.
    flagged : tuple of str
        Columns with values that were missing: a feature more, `column is missing`, is 1 there.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from mossp.app.tables import read
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rooms.csv"
    >>> _ = path.write_text("size,kind,price\n1,old,3\n3,new,7\n5,old,6\n")
    >>> features = Features.learn(read(path), "price", standardize=False)
    >>> features.names
    ('size', 'kind=new', 'kind=old')
    >>> features.matrix(read(path)).tolist()
    [[1.0, 0.0, 1.0], [3.0, 1.0, 0.0], [5.0, 0.0, 1.0]]
    """

    columns: tuple[tuple[str, Coding], ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    width: int | None = None
    fill: tuple[tuple[str, float | str], ...] = ()
    flagged: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        centre, scale = np.array(self.centre, float), np.array(self.scale, float)
        finite = np.isfinite(centre).all() and np.isfinite(scale).all() and (scale > 0).all()
        if not (finite and len(self.names) == centre.size == scale.size):
            raise TableError("Every feature needs one finite centre and one positive scale.")
        if name := twice(self.names):
            raise TableError(f"Two features would be called {quoted(name)}: rename a column.")
        if self.width is not None:
            numbered = all(
                levels is None and name == f"x{j + 1}"
                for (name, levels), j in zip(self.columns, self._numbers, strict=True)
            )
            growing = (np.diff(self._numbers) > 0).all()
            inside = (
                len(self.columns) > 0 and 0 <= self._numbers[0] <= self._numbers[-1] < self.width
            )
            if not (numbered and growing and inside):
                raise TableError("The features of sparse rows must be x1, x2, ... in their order.")

    @functools.cached_property
    def _numbers(self) -> np.ndarray:
        """Of features of sparse rows: their columns, counted from 0; -1 where there is none."""
        names = (name for name, _ in self.columns)
        found = [int(n[1:]) - 1 if SPARSE_NAME.fullmatch(n) else -1 for n in names]
        return np.array(found, np.int64)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features: of the column, or `column=level`."""
        return names_of(self.columns, self.flagged)

    @functools.cached_property
    def _flags(self) -> frozenset[str]:
        return frozenset(self.flagged)

    @property
    def as_text(self) -> tuple[str, ...]:
        """Columns of the table that are read as they are written: those with levels."""
        return tuple(name for name, coding in self.columns if isinstance(coding, tuple))

    @property
    def plain(self) -> bool:
        """Whether all columns are numbers or text, and none of their values may be missing."""
        return not self.fill and not any(isinstance(c, Dates) for _, c in self.columns)

    @property
    def notes(self) -> list[str]:
        """What became of dates and missing values, in sentences."""
        found = [f"{n} is in {c.unit}." for n, c in self.columns if isinstance(c, Dates)]
        if self.flagged:
            fill = dict(self.fill)
            listed = ", ".join(
                f"{name} by {fill[name]:.6g}" if isinstance(fill[name], float)
                else f"{name} by {quoted(fill[name])}" for name in self.flagged
            )  # fmt: skip
            found.append(f"Missing values are filled in, with an indicator: {listed}.")
        return found

    @classmethod
    def learn(
        cls,
        table: Table,
        target: str | None,
        *,
        rows: Any = None,
        exclude: Sequence[str] = (),
        standardize: bool = True,
        impute: bool = False,
        cycles: Mapping[str, Sequence[str]] | None = None,
        order: str | None = None,
    ) -> Features:
        """Features of all columns but the target and those excluded.

        What is wrong with the columns is told of all of them at once.

        Parameters
        ----------
        table : Table
            To learn from.
        target : str or None
            The column that is to be predicted.
        rows : optional
            Which rows to learn levels, centres and scales from; all if left out.
        exclude : sequence of str
            Columns that are no features.
        standardize : bool
            To mean 0 and standard deviation 1 over these rows; sparse rows are scaled, but not
            centred, and stay sparse.
        impute : bool
            Fill missing values in, by the median or the most frequent level, with an indicator.
        cycles : mapping, optional
            Of columns of dates: "year", "week" or "day", whose positions become features.
        order : {"dmy", "mdy"}, optional
            Of dates such as 5/6/2024.
        """
        exclude = (exclude,) if isinstance(exclude, str) else exclude
        check_target(table, target)
        check_known(table, exclude)
        unwanted = {target, *exclude}
        names = [name for name in table.columns if name not in unwanted]
        chosen = np.arange(table.rows)[slice(None) if rows is None else rows]
        if not names:
            raise TableError(f"No column of {table.path} is left to be a feature.")
        if not len(chosen):
            raise TableError(f"No row of {table.path} was chosen to learn from.")
        if table.X is not None:
            plain = cls(
                tuple((name, None) for name in names), (0.0,) * len(names), (1.0,) * len(names),
                table.X.shape[1],
            )  # fmt: skip
        else:
            columns, fill, flagged = learn_columns(
                table, names, chosen, impute, cycles or {}, order
            )
            n = len(names_of(columns, flagged))
            plain = cls(columns, (0.0,) * n, (1.0,) * n, None, fill, flagged)
        if not standardize:
            return plain
        X = plain.raw(table)[chosen]
        centre, scale = moments(X) if table.X is None else sparse_moments(X)
        return dataclasses.replace(plain, centre=tuple(centre), scale=tuple(scale))

    def matrix(self, table: Table) -> Any:
        """The features of every row: an array, or a scipy.sparse.csr_matrix for LIBSVM.

        Columns are found by name. A level that was not seen when learning is none of the levels:
        its features are 0 before they are standardised, and there is a warning.
        """
        X, scale = self.raw(table, quiet=False), np.array(self.scale)
        with np.errstate(over="ignore"):
            if self.width is None:
                X = (X - np.array(self.centre)) / scale
            else:
                X.data = X.data / scale[X.indices]
        large = np.isinf(X if self.width is None else X.data)
        if large.any():
            j = large.any(axis=0).argmax() if self.width is None else X.indices[large.argmax()]
            raise TableError(
                f"{table.path} has values of {quoted(self.names[j])} that are too large."
            )
        return X

    def raw(self, table: Table, quiet: bool = True) -> Any:
        """The features before they are standardised."""
        if (self.width is None) != (table.X is None):
            kinds = ("a LIBSVM file", "a table with named columns")
            raise TableError(
                f"{table.path} is {kinds[table.X is None]}, but the training data were "
                f"{kinds[self.width is None]}."
            )
        if table.X is not None:
            return self._sparse(table)
        check_known(table, [name for name, _ in self.columns], ", which the model needs")
        fill, faults, parts = dict(self.fill), Faults(table.path), []
        for name, coding in self.columns:
            with faults.kept():
                known = fill.get(name)
                if isinstance(coding, Dates):
                    parts.append(
                        coding.columns(table, name, None if known is None else float(known))
                    )
                elif coding is None:
                    values = numbers_in(table, name, missing=known is not None)
                    parts.append(np.where(np.isnan(values), known or 0.0, values)[:, None])
                else:
                    level = None if known is None else str(known)
                    parts.append(indicators(table, name, coding, level, quiet))
                if name in self._flags:
                    parts.append(missing_in(table, name)[:, None].astype(float))
                elif known is not None and not quiet and (many := missing_in(table, name).sum()):
                    warnings.warn(
                        f"The column {quoted(name)} of {table.path} has "
                        f"{counted(int(many), 'missing value')}, which the training rows had not: "
                        "the typical value stands for them.",
                        stacklevel=3,
                    )
        faults.tell()
        return np.column_stack(parts)

    def _sparse(self, table: Table) -> scipy.sparse.csr_matrix:
        rows, width = table.X, self.width or 0
        assert rows is not None
        if rows.shape[1] > width:
            raise TableError(
                f"{table.path} has features up to x{rows.shape[1]}, but the training data had only "
                f"{width}: train with data that have them all."
            )
        # By hand, for the cost of what is stored: there may be millions of columns besides.
        numbers = self._numbers
        place = np.minimum(np.searchsorted(numbers, rows.indices), len(numbers) - 1)
        known = numbers[place] == rows.indices
        ends = np.concatenate([[0], np.cumsum(known)])[rows.indptr]
        parts = (rows.data[known], place[known].astype(np.int32), ends)
        return scipy.sparse.csr_matrix(parts, shape=(table.rows, len(numbers)))

    def to_meta(self) -> dict[str, Any]:
        """Itself as what JSON can hold."""
        return {
            "columns": [[name, _coded(coding)] for name, coding in self.columns],
            "centre": list(map(float, self.centre)),
            "scale": list(map(float, self.scale)),
            "width": self.width,
            **({"fill": dict(self.fill), "flagged": list(self.flagged)} if self.fill else {}),
        }

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Features:
        """What `to_meta` was called on; a LayoutError if that cannot be."""
        layout.check(meta, FILE, "features")
        if any(len(column) != 2 for column in meta["columns"]):
            raise layout.LayoutError("a column of its features is not one")
        columns: list[tuple[str, Coding]] = []
        for name, coding in meta["columns"]:
            layout.check(name, str, "features.columns")
            if isinstance(coding, dict):
                columns.append((name, Dates.from_meta(coding)))
                continue
            layout.check(coding, None if coding is None else layout.Each(str), "features.columns")
            columns.append((name, None if coding is None else tuple(coding)))
        fill, flagged = meta.get("fill", {}), meta.get("flagged", [])
        texts = {name: isinstance(coding, tuple) for name, coding in columns}
        if fill and set(fill) != set(texts):
            raise layout.LayoutError("what is filled in is not by column of its features")
        if any(isinstance(value, str) != texts[name] for name, value in fill.items()):
            raise layout.LayoutError("what is filled in is not of the kind of its column")
        filled = tuple((n, v if isinstance(v, str) else float(v)) for n, v in fill.items())
        return cls(
            tuple(columns), tuple(meta["centre"]), tuple(meta["scale"]), meta["width"], filled,
            tuple(flagged),
        )  # fmt: skip


def _coded(coding: Coding) -> Any:
    """What JSON can hold of what a column is."""
    if isinstance(coding, Dates):
        return coding.to_meta()
    return coding and list(coding)
