"""What a user gives as data, checked and made a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mossp._base.printing import counted
from mossp._base.types import PyTree
from mossp._base.validation import hides_entries
from mossp.data.finite import Finite
from mossp.data.protocol import Source
from mossp.data.sources import NoData
from mossp.data.sparse import is_sparse


def as_source(data: Any, check: Callable[[PyTree], None]) -> Source:
    """A source as it is, None as no data, arrays as a copy: later changes do not reach it.

    `check` sees all of the rows, in NumPy, before they are copied.
    """
    if data is None:
        return NoData()
    if isinstance(data, Source):
        return data.checked_by(check)
    arrays, N = checked_rows(data)
    check(arrays)
    with jax.enable_x64(True):
        return Finite.of(arrays, N, np.float64)


def checked_rows(data: PyTree) -> tuple[PyTree, int]:
    """NumPy arrays and scipy.sparse matrices with a common number of finite rows."""
    leaves, treedef = jax.tree.flatten(data, is_leaf=is_sparse)
    if not leaves:
        raise ValueError("data is empty: give arrays with one row a sample, or None.")
    arrays = []
    for leaf in leaves:
        sparse = is_sparse(leaf)
        if hides_entries(leaf):
            raise ValueError(
                "data has masked entries, which are missing values: remove or impute these rows "
                "first."
            )
        a: Any = leaf if sparse else np.asarray(leaf)
        if a.dtype.kind not in "fiub" or a.ndim == 0:
            raise TypeError(
                "data must be numeric arrays with one row a sample, but an array of type "
                f"{a.dtype} and shape {a.shape} was given."
            )
        stored = stored_numbers(a) if sparse else a
        if stored.dtype.kind == "f" and not is_finite(stored):
            bad = int(stored.size - np.isfinite(stored).sum())
            if bad:
                raise ValueError(
                    f"data has {counted(bad, 'NaN or infinite value')} in the array of "
                    f"shape {a.shape}: remove or impute these rows first."
                )
        arrays.append(a)
    rows = [a.shape[0] for a in arrays]
    if len(set(rows)) > 1:
        shapes = ", ".join(str(a.shape) for a in arrays)
        raise ValueError(
            f"The arrays of data must have the same number of rows, but their shapes are {shapes}."
        )
    if rows[0] == 0:
        raise ValueError("data has no rows: at least one sample is needed.")
    return jax.tree.unflatten(treedef, arrays), rows[0]


def stored_numbers(matrix: Any) -> np.ndarray:
    """Of a matrix of scipy.sparse, without a conversion where it has them in one array."""
    return np.asarray(
        matrix.data if matrix.format in ("csr", "csc", "coo") else matrix.tocsr().data
    )


@np.errstate(over="ignore", invalid="ignore")
def is_finite(numbers: np.ndarray) -> bool:
    """Whether all are finite, as their sum shows in one pass; False may be an overflow of it."""
    return bool(np.isfinite(numbers.sum()))
