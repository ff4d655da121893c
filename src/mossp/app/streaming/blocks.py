"""A file as tables of consecutive rows: what `mossp.app.tables` reads whole, in blocks."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mossp.app.tables import Table, TableError, check_names
from mossp.data.columnar import Frames, is_columnar, scanned
from mossp.data.converted import Compressed, converted
from mossp.data.libsvm import DataError

BLOCK_BYTES = 2**24  # of the numbers of a block
FEWEST = 64  # rows of a block, however long they are


class Blocks(abc.ABC):
    """Rows of a file, any consecutive ones of which are a table of their own."""

    path: Path
    rows: int

    @property
    @abc.abstractmethod
    def row_bytes(self) -> float:
        """Of one row in a block, about."""

    @abc.abstractmethod
    def table(self, start: int, stop: int) -> Table:
        """Rows start, ..., stop - 1, which know their numbers in the file."""

    @property
    def length(self) -> int:
        """Rows of a block."""
        return min(max(int(BLOCK_BYTES / self.row_bytes), FEWEST), self.rows)

    def each(self, first: int = 0, end: int | None = None) -> Iterator[tuple[int, Table]]:
        """(the number of its first row, the table) of every block, of some of the rows."""
        end = self.rows if end is None else end
        for start in range(first, end, self.length):
            yield start, self.table(start, min(start + self.length, end))


class ColumnarBlocks(Blocks):
    """Of a Parquet or Arrow file, or a folder of these."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            self.frames = Frames(scanned(self.path), self.path)
        except (DataError, FileNotFoundError) as error:
            raise TableError(str(error)) from None
        self.names = self.frames.names
        check_names(self.path, self.names)
        self.rows = self.frames.rows
        if not self.rows:
            raise TableError(f"{path} names its columns, but it has no rows.")

    @property
    def row_bytes(self) -> float:
        return 8.0 * len(self.names)

    def table(self, start: int, stop: int) -> Table:
        frame = self.frames.read(start, stop)
        return Table(self.path, frame, numbers=np.arange(start + 1, stop + 1))


class SparseBlocks(Blocks):
    """Of a LIBSVM file, which is converted once."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            self.storage: Compressed = converted(self.path, "float64")
        except DataError as error:
            raise TableError(str(error)) from None
        self.rows = self.storage.rows

    @property
    def row_bytes(self) -> float:
        return self.storage.bytes_per_row

    def table(self, start: int, stop: int) -> Table:
        X, y = self.storage.read(start, stop)
        return Table(self.path, X=X, y=y, numbers=np.arange(start + 1, stop + 1))


def blocks_of(path: Any) -> Blocks:
    """The rows of a file that can be read in blocks."""
    path = Path(path)
    if not path.exists():
        raise TableError(f"There is no file {path}.")
    return ColumnarBlocks(path) if is_columnar(path) else SparseBlocks(path)
