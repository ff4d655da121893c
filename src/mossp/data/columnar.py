"""Rows of Parquet and Arrow files, read by polars: X from some columns, y from another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp._base.printing import quoted, shown
from mossp.data.forms import Dense, Form, HostRows
from mossp.data.libsvm import DataError
from mossp.data.storage import Storage

PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".ipc", ".feather")


def is_columnar(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() in (*PARQUET, *ARROW)


class Frames:
    """Consecutive rows of a scanned file, as frames: one after the other from one pass over it."""

    def __init__(self, frame: Any, path: Path) -> None:
        self.frame, self.path = frame, path
        self.names = frame.collect_schema().names()
        self.rows = counted_rows(frame)
        self._lock = threading.Lock()
        self._pass: Iterator[Any] | None = None
        self._next, self._after = -1, -1  # the row that comes next in it, and after the last read

    def read(self, start: int, stop: int) -> Any:
        """Rows start, ..., stop - 1."""
        with self._lock:
            frame = self._passed(start, stop)
        if frame is None:
            frame = self.frame.slice(start, stop - start).collect()
        if frame.height != stop - start:
            raise DataError(
                f"{frame.height} rows were found where there were {stop - start} before: the file "
                "was changed", self.path,
            )  # fmt: skip
        return frame

    def _passed(self, start: int, stop: int) -> Any:
        """The next rows of the pass; None where others are asked for."""
        begins = start == 0 or (start == self._after and start != self._next)
        self._after = stop
        if begins and stop < self.rows:  # rows that follow others begin a pass of their own
            self._next, rest = start, self.frame.slice(start)
            self._pass = iter(rest.collect_batches(chunk_size=stop - start, maintain_order=True))
        if self._pass is None or start != self._next:
            return None
        frame = next(self._pass, None)
        if frame is None or frame.height != stop - start:  # not as they were asked for
            self._pass = None
            return None
        self._next = stop
        if stop == self.rows:
            self._pass = None
        return frame


class Columnar(Storage):
    """Columns of numbers."""

    random_access = False

    def __init__(
        self, path: Path, target: str | None, columns: list[str] | None, dtype: Any
    ) -> None:
        self.path, frame = Path(path), scanned(Path(path))
        schema = frame.collect_schema()
        self.target = target
        wanted = [c for c in schema.names() if c != target] if columns is None else list(columns)
        self.columns = wanted
        self.check_columns(schema)
        floats = {str(schema[c]) for c in (*wanted, *([target] if target else []))}
        chosen = dtype or ("float32" if floats == {"Float32"} else "float64")
        self.dtype = np.dtype(chosen)
        if self.dtype not in (np.dtype("float32"), np.dtype("float64")):
            raise ValueError(f"dtype must be 'float64' or 'float32', but {shown(dtype)} was given.")
        self.treedef = jax.tree.structure((0, 0) if target else 0)
        self.names = [self.path.name, *([target] if target else [])]
        self.frames = Frames(frame.select([*wanted, *([target] if target else [])]), self.path)
        self.rows = self.frames.rows
        if not self.rows:
            raise ValueError(f"{path} has no rows: at least one sample is needed.")

    def check_columns(self, schema: Any) -> None:
        names = [*self.columns, *([self.target] if self.target else [])]
        missing = [name for name in names if name not in schema]
        if missing:
            raise ValueError(
                f"{self.path} has no column {quoted(missing[0])}; its columns are "
                f"{', '.join(map(quoted, schema.names()[:20]))}."
            )
        if not self.columns:
            raise ValueError(f"{self.path} has no columns besides the target.")
        other = [name for name in names if not is_number(schema[name])]
        if other:
            raise TypeError(
                f"The column {quoted(other[0])} of {self.path} holds {schema[other[0]]}, not "
                "numbers: name the columns that do, columns=[...], or encode it first."
            )

    def forms(self, length: int) -> tuple[Form, ...]:
        X = Dense((len(self.columns),), self.dtype.str)
        return (X, Dense((), self.dtype.str)) if self.target else (X,)

    def read(self, start: int, stop: int) -> list[HostRows]:
        return self.arrays(self.frames.read(start, stop), start)

    def arrays(self, frame: Any, start: int) -> list[HostRows]:
        import polars

        names = frame.columns
        nulls = frame.null_count().row(0)
        if any(nulls):
            column = names[int(np.flatnonzero(nulls)[0])]
            row = int(frame[column].is_null().arg_true()[0])
            raise DataError(
                f"the column {quoted(column)} is null in row {start + row}: remove or impute such "
                "rows first", self.path,
            )  # fmt: skip
        kind = polars.Float32 if self.dtype == np.float32 else polars.Float64
        X = frame.select(polars.col(self.columns).cast(kind)).to_numpy(order="c")
        if not self.target:
            return [X]
        return [X, frame[self.target].cast(kind).to_numpy()]

    def entry(self, leaf: int, row: int, place: tuple[int, ...]) -> str:
        column = self.columns[place[0]] if place else self.target
        return f"in the column {quoted(str(column))} of {self.path.name}, row {row}"

    def reopened(self) -> tuple[Any, ...]:
        return Columnar, (self.path, self.target, self.columns, self.dtype.name)


def scanned(path: Path) -> Any:
    """The file, or the files of a folder in the order of their names, as a frame of polars."""
    try:
        import polars
    except ImportError:
        raise ImportError(
            "Parquet and Arrow files are read by polars: install it, pip install polars."
        ) from None
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix.lower() in (*PARQUET, *ARROW))
        if not found:
            raise FileNotFoundError(f"There are no Parquet or Arrow files in {path}.")
    else:
        found = [path]
    kinds = {p.suffix.lower() in PARQUET for p in found}
    if len(kinds) > 1:
        raise ValueError(f"{path} holds Parquet and Arrow files: give a folder of one kind.")
    scan = polars.scan_parquet if kinds.pop() else polars.scan_ipc
    try:
        frame = scan(found)
        frame.collect_schema()
    except polars.exceptions.PolarsError as error:
        raise DataError(f"it cannot be read ({str(error).splitlines()[0]})", path) from None
    return frame


def counted_rows(frame: Any) -> int:
    import polars

    return int(frame.select(polars.len()).collect().item())


def is_number(kind: Any) -> bool:
    """Whether a column of this type holds numbers, or truth values."""
    return kind.is_numeric() or str(kind) == "Boolean"
