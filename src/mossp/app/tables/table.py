"""A table as it was read, and the error that says what is wrong with one."""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse


class TableError(ValueError):
    """A table that cannot be used as it is: one sentence that says why, and what to do."""


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
        The same as they are written, for levels such as "01"; for CSV and TSV only.
    X : csr matrix or None
        Rows of LIBSVM, whose columns are called x1, x2, ...; one that no row has is no column,
        since an index may be as large as anyone likes.
    y : array or None
        Labels of LIBSVM.
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
