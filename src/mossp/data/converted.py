"""LIBSVM files in a binary form, which is made once and kept in the folder for caches.

Text must be read from its beginning; rows of the binary form, .npy files of the three arrays of a
sparse matrix and of the labels, can be had one by one. It belongs to a file by its name, size and
time of change: a file that was changed is converted again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

from mossp._base import folders
from mossp._base.printing import shown
from mossp._base.progress import Bar
from mossp.data.forms import Dense, Form, HostRows, Sparse
from mossp.data.libsvm import DataError, rows_of_libsvm
from mossp.data.sparse import WASTE
from mossp.data.storage import Storage

LARGE = 2**26  # bytes of text from which on a bar is shown
TOLD_EVERY = 4096  # rows
TEXT = 12  # bytes of an entry in such a file, about
NAMES = ("starts", "columns", "values", "labels")


class Compressed(Storage):
    """Sparse rows and labels, from the folder of a converted file."""

    def __init__(self, folder: Path, source: str) -> None:
        self.folder, self.source = Path(folder), source
        arrays = [np.load(self.folder / f"{name}.npy", mmap_mode="r") for name in NAMES]
        self.starts, self.indices, self.values, self.labels = arrays
        self.rows = len(self.labels)
        self.columns = int(np.load(self.folder / "width.npy"))
        self.treedef = jax.tree.structure((0, 0))
        self.names = [source, f"the label of {source}"]

    def forms(self, length: int) -> tuple[Form, ...]:
        X = Sparse.of(np.diff(self.starts), self.columns, self.values.dtype, length)
        return X, Dense((), self.labels.dtype.str)

    def entry_counts(self, leaf: int) -> np.ndarray:
        return np.diff(self.starts)

    @property
    def bytes_per_row(self) -> float:
        """On the average: a block has a table of further segments that its long rows share."""
        each = self.values.dtype.itemsize + 4
        return max(WASTE * each * len(self.values) / self.rows, each) + self.labels.itemsize

    def read(self, start: int, stop: int) -> list[HostRows]:
        first, last = int(self.starts[start]), int(self.starts[stop])
        parts = (
            np.array(self.values[first:last]), np.array(self.indices[first:last]),
            self.starts[start : stop + 1] - first,
        )  # fmt: skip
        X = scipy.sparse.csr_matrix(parts, shape=(stop - start, self.columns))
        return [X, np.array(self.labels[start:stop])]

    def take(self, places: np.ndarray) -> list[HostRows]:
        begin, end = self.starts[places], self.starts[places + 1]
        ends = np.concatenate([[0], np.cumsum(end - begin)])
        # Entry j of row i lies at begin_i + j.
        entries = np.arange(ends[-1]) + np.repeat(begin - ends[:-1], end - begin)
        parts = (self.values[entries], self.indices[entries], ends)
        X = scipy.sparse.csr_matrix(parts, shape=(len(places), self.columns))
        return [X, np.asarray(self.labels[places])]

    def reopened(self) -> tuple[Any, ...]:
        return Compressed, (self.folder, self.source)


def converted(path: Path, dtype: Any) -> Compressed:
    """The binary form of a LIBSVM file; made now, unless it is there."""
    kind = np.dtype(dtype or np.float64)
    if kind not in (np.dtype("float32"), np.dtype("float64")):
        raise ValueError(f"dtype must be 'float64' or 'float32', but {shown(dtype)} was given.")
    folder = made_once(path, kind.name, lambda making: write_rows(path, making, kind))
    return Compressed(folder, path.name)


def made_once(path: Path, kind: str, write: Callable[[Path], None]) -> Path:
    """The folder with another form of a file; made now by `write`, unless it is there.

    It is written beside its place, and renamed when it is whole.
    """
    about = path.stat()
    text = f"{path.resolve()} {about.st_size} {about.st_mtime_ns} {kind}"
    root = folders.named() or folders.usual()
    if root is None:
        raise DataError(
            "a file of text is converted in the folder for caches, but there is none: name one in "
            "MOSSP_CACHE", path,
        )  # fmt: skip
    folder = Path(root) / "rows" / hashlib.sha256(text.encode()).hexdigest()[:32]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix="making-", dir=folder.parent))
    try:
        write(making)
        try:
            os.replace(making, folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def write_rows(path: Path, making: Path, dtype: np.dtype) -> None:
    stored: tuple[np.dtype, ...] = (np.dtype(np.int64), np.dtype(np.int32), dtype, dtype)
    kinds = dict(zip(NAMES, stored, strict=True))
    files = {name: (making / f"{name}.raw").open("wb") for name in NAMES}
    size, most, rows, total = path.stat().st_size, 0, 0, 0
    bar = Bar(size, shown=size >= LARGE and sys.stderr.isatty(), unit="byte")
    counts = dict.fromkeys(NAMES, 0)

    def write(name: str, values: Any) -> None:
        array = np.asarray(values, kinds[name])
        array.tofile(files[name])
        counts[name] += array.size

    try:
        with bar:
            write("starts", [0])
            for label, columns, values, _ in rows_of_libsvm(path):
                total += len(columns)
                most = max(most, columns[-1] + 1 if columns else 0)
                for name, entries in zip(NAMES, ([total], columns, values, [label]), strict=True):
                    write(name, entries)
                rows += 1
                if rows % TOLD_EVERY == 0:  # as far as that can be told
                    done = min(TEXT * (total + rows), size)
                    bar.show(done, f"converting {path.name}", f"{rows:,} rows")
    finally:
        for file in files.values():
            file.close()
    if not rows:
        raise DataError("the file is empty", path)
    for name in NAMES:
        as_npy(making / f"{name}.raw", making / f"{name}.npy", kinds[name], counts[name])
    np.save(making / "width.npy", np.asarray(max(most, 1)))


def as_npy(raw: Path, path: Path, dtype: np.dtype, count: int) -> None:
    """The same numbers behind the header of a .npy file, copied in pieces."""
    with path.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(file, header)
        with raw.open("rb") as source:
            shutil.copyfileobj(source, file, 2**24)
    raw.unlink()
