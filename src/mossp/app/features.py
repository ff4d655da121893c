"""How columns of a table become the columns of a matrix: learnt once, applied again."""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from mossp._base import layout
from mossp._base.printing import counted, quoted
from mossp.app.standardization import moments, sparse_moments
from mossp.app.tables import (
    NUMBERS,
    Table,
    TableError,
    check_known,
    check_target,
    kind_of,
    numbers_in,
    refused,
    texts_in,
    twice,
)

MOST_LEVELS = 100
SPARSE_NAME = re.compile(r"x[1-9][0-9]{0,17}")
FILE = {
    "columns": layout.Each(list), "centre": layout.Each(float), "scale": layout.Each(float),
    "width": (int, None),
}  # fmt: skip


@dataclass(frozen=True)
class Features:
    r"""How the columns of a table become the columns of a matrix, learnt once and applied again.

    Attributes
    ----------
    columns : tuple of (str, levels)
        Of the table: names, each with None for numbers or with its levels for text.
    centre, scale : tuple of float
        Of each feature: the matrix holds `(value - centre) / scale`.
    width : int, optional
        How many columns LIBSVM's rows had, None for a table with names; those that no row has are
        no features.

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

    columns: tuple[tuple[str, tuple[str, ...] | None], ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    width: int | None = None

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
        sparse = table.X is not None
        columns = tuple((n, None if sparse else _levels(table, n, chosen)) for n in names)
        n = sum(1 if levels is None else len(levels) for _, levels in columns)
        width = table.X.shape[1] if table.X is not None else None
        plain = cls(columns, (0.0,) * n, (1.0,) * n, width)
        X = plain._raw(table, quiet=True)[chosen]
        if not standardize:
            return plain
        centre, scale = sparse_moments(X) if sparse else moments(X)
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
            raise TableError(
                f"{table.path} has values of {quoted(self.names[j])} that are too large."
            )
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
        check_known(table, [name for name, _ in self.columns], ", which the model needs")
        X = np.zeros((table.rows, len(self.names)))
        j = 0
        for name, levels in self.columns:
            if levels is None:
                X[:, j] = numbers_in(table, name)
                j += 1
                continue
            texts, place = texts_in(table, name), {level: k for k, level in enumerate(levels)}
            codes = np.array([place.get(text, -1) for text in texts])
            seen = np.flatnonzero(codes >= 0)
            X[seen, j + codes[seen]] = 1
            j += len(levels)
            if len(seen) < len(texts) and not quiet:
                counts = collections.Counter(texts[codes < 0]).most_common()
                listed = ", ".join(
                    f"{quoted(level)} ({counted(k, 'row')})" for level, k in counts[:3]
                )
                warnings.warn(
                    f"The column {quoted(name)} of {table.path} holds levels that the training "
                    f"data did not: {listed}{', …' * (len(counts) > 3)}.",
                    stacklevel=3,
                )
        return X

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
            "columns": [[name, levels and list(levels)] for name, levels in self.columns],
            "centre": list(map(float, self.centre)),
            "scale": list(map(float, self.scale)),
            "width": self.width,
        }

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Features:
        """What `to_meta` was called on; a LayoutError if that cannot be."""
        layout.check(meta, FILE, "features")
        if any(len(column) != 2 for column in meta["columns"]):
            raise layout.LayoutError("a column of its features is not one")
        for name, levels in meta["columns"]:
            layout.check(name, str, "features.columns")
            layout.check(levels, None if levels is None else layout.Each(str), "features.columns")
        columns = ((n, None if levels is None else tuple(levels)) for n, levels in meta["columns"])
        return cls(tuple(columns), tuple(meta["centre"]), tuple(meta["scale"]), meta["width"])


def _levels(table: Table, name: str, rows: np.ndarray) -> tuple[str, ...] | None:
    """None for numbers, or the levels of text, sorted, if there are not too many."""
    kind = kind_of(table, name)
    if kind in NUMBERS:
        return None
    if kind != "text":
        raise refused(table, name, kind)
    texts = texts_in(table, name)
    levels = sorted(set(texts[rows]))
    # A single "?" makes text of a column of numbers: that is said.
    odd = [level for level in levels if not _is_number(level)]
    because = ""
    if 0 < 2 * len(odd) <= len(levels):
        row = np.flatnonzero(texts == odd[0])[0] + 1
        because = f", being text since row {row} holds {quoted(odd[0])}"
    if 0 < 10 * len(odd) <= len(levels):
        raise TableError(
            f"The column {quoted(name)} of {table.path} holds {quoted(odd[0])} in row {row}, where "
            f"nearly all others are numbers: mend it, or exclude the column (--exclude "
            f"{quoted(name)})."
        )
    if len(levels) > MOST_LEVELS or len(levels) == len(texts[rows]) > 1:
        raise TableError(
            f"The column {quoted(name)} of {table.path} has {len(levels)} different texts in "
            f"{len(texts[rows])} rows{because}: exclude it (--exclude {quoted(name)}), or make "
            "numbers of it."
        )
    if because:
        warnings.warn(
            f"The column {quoted(name)} of {table.path} becomes "
            f"{counted(len(levels), 'feature')}, one for each of its values{because}.",
            stacklevel=4,
        )
    return tuple(levels)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
