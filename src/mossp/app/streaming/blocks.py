"""A file as tables of consecutive rows: what `mossp.app.tables` reads whole, in blocks."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mossp.app.streaming import text
from mossp.app.tables import Table, TableError, check_names, format_of
from mossp.app.tables.arrays import Arrays
from mossp.data.columnar import Frames, is_columnar, scanned
from mossp.data.converted import Compressed, converted
from mossp.data.libsvm import DataError

BLOCK_BYTES = 2**24  # of the numbers of a block
FEWEST = 64  # rows of a block, however long they are


class Blocks(abc.ABC):
    """Rows of a file, any consecutive ones of which are a table of their own."""

    path: Path
    rows: int
    format: str | None = None  # as it was told, for those who open the file again
    notes: tuple[str, ...] = ()  # what was found out about the file, in sentences

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

    def __init__(self, path: Path, files: Path | None = None) -> None:
        self.path = Path(path)
        try:
            self.frames = Frames(scanned(files or self.path), self.path)
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


class TextBlocks(ColumnarBlocks):
    """Of a CSV or TSV file, which is converted once.

    Tables have the columns of `written` as they are written, too: for levels such as "01".
    """

    def __init__(self, path: Path, format: str, written: Sequence[str] = ()) -> None:
        try:
            folder, self.notes = text.converted(path, format)
        except DataError as error:
            raise TableError(str(error)) from None
        super().__init__(path, folder / "typed")
        wanted = [name for name in self.names if name in set(written)]
        columns = scanned(folder / "text").select(wanted)
        self.written = Frames(columns, self.path) if wanted else None

    def table(self, start: int, stop: int) -> Table:
        found = super().table(start, stop)
        if self.written is None:
            return found
        return dataclasses.replace(found, text=self.written.read(start, stop))


class ArrayBlocks(Blocks):
    """Of a .npy file, perhaps with a target in another."""

    def __init__(self, path: Path, target: str | None) -> None:
        self.path, self.arrays = Path(path), Arrays(Path(path), target)
        self.rows = self.arrays.rows

    @property
    def row_bytes(self) -> float:
        return 8.0 * len(self.arrays.names)

    def table(self, start: int, stop: int) -> Table:
        frame = self.arrays.frame(start, stop)
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


def blocks_of(
    path: Any, format: str | None = None, target: str | None = None, written: Sequence[str] = ()
) -> Blocks:
    """The rows of a file that can be read in blocks.

    Parameters
    ----------
    format : str, optional
        As for `mossp.app.tables.read`.
    target : str, optional
        The column that is to be predicted, which may be a file of its own beside a .npy file.
    written : sequence of str
        Columns that are needed as they are written, where the file is text.
    """
    path = Path(path)
    if not path.exists():
        raise TableError(f"There is no file {path}.")
    found = _opened(path, format, target, written)
    found.format = format
    return found


def _opened(path: Path, format: str | None, target: str | None, written: Sequence[str]) -> Blocks:
    if is_columnar(path):
        return ColumnarBlocks(path)
    kind = format_of(path, format)
    if kind == "npy":
        return ArrayBlocks(path, target)
    if kind in ("csv", "tsv"):
        return TextBlocks(path, kind, written)
    return SparseBlocks(path)
