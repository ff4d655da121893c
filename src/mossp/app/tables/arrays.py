"""Arrays of .npy files as tables: columns are called x1, x2, ..., or as the fields of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mossp.app.tables.table import TableError, polars_package
from mossp.app.tables.text import check_names, no_rows


class Arrays:
    """The array of a .npy file, mapped into memory, and beside it that of a target of its own.

    Parameters
    ----------
    path : Path
        Of an array of shape (rows, columns) or (rows,), of numbers, or of records.
    target : str, optional
        Where it is the name of a .npy file, one number a row: a column of that name.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "X.npy", np.arange(6.0).reshape(3, 2))
    >>> np.save(folder / "y.npy", np.array([1, 0, 1]))
    >>> arrays = Arrays(folder / "X.npy", str(folder / "y.npy"))
    >>> arrays.rows, arrays.frame(1, 3).rows()
    (3, [(2.0, 3.0, 0), (4.0, 5.0, 1)])
    """

    def __init__(self, path: Path, target: str | None = None) -> None:
        self.path, self.array, self.beside = path, mapped(path), {}
        self.rows = len(self.array)
        if self.array.dtype.names is not None:
            self.names = list(self.array.dtype.names)
        else:
            self.names = [f"x{j + 1}" for j in range(self.array[:1].size)]
        if target is not None and target.endswith(".npy") and target not in self.names:
            y = mapped(Path(target))
            if y.ndim != 1 or y.dtype.names is not None or len(y) != self.rows:
                raise TableError(
                    f"The target {target} must hold one value for each of the {self.rows:,} rows "
                    f"of {path}, but its shape is {y.shape}."
                )
            self.beside = {target: y}
        check_names(path, [*self.names, *self.beside])

    def frame(self, start: int, stop: int) -> Any:
        """Some of the rows, as columns."""
        part = self.array[start:stop]
        if part.dtype.names is None:
            part = np.asarray(part).reshape(stop - start, -1)
            columns = dict(zip(self.names, part.T, strict=True))
        else:
            columns = {name: part[name] for name in self.names}
        columns |= {name: y[start:stop] for name, y in self.beside.items()}
        native = {name: np.array(values, native_type(values)) for name, values in columns.items()}
        return polars_package().DataFrame(native)


def native_type(values: np.ndarray) -> np.dtype:
    """As polars knows it."""
    half = values.dtype.kind == "f" and values.dtype.itemsize not in (4, 8)
    return np.dtype(np.float64) if half else values.dtype.newbyteorder("=")


def mapped(path: Path) -> np.ndarray:
    """The array of a .npy file, of numbers or of records of numbers and text."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise TableError(f"There is no file {path}.") from None
    except OSError as error:
        raise TableError(f"{path} could not be read: {error.strerror or error}.") from None
    except (ValueError, EOFError) as error:
        raise TableError(f"{path} is damaged, cut short or no array of numbers.") from error
    if not isinstance(array, np.ndarray) or array.ndim not in (1, 2):
        raise TableError(f"{path} must hold an array of one or two axes: rows, and columns.")
    kinds = [array.dtype] if array.dtype.names is None else [
        array.dtype[name] for name in array.dtype.names
    ]  # fmt: skip
    if any(kind.kind not in "fiubU" or kind.shape for kind in kinds) or (
        array.dtype.names is not None and array.ndim != 1
    ):
        raise TableError(
            f"{path} must hold numbers, or records of numbers and text, but its type is "
            f"{array.dtype}."
        )
    if not array.size:
        raise no_rows(path)
    return array
