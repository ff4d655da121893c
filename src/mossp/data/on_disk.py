"""Rows that stay on disk.

A full mean reads them block by block while the program that needs it runs; the rows of mini-batches
are read by the host, for many steps at once. Memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp._base.device import on_device
from mossp._base.printing import counted, shown
from mossp._base.types import PyTree
from mossp._base.validation import is_choice
from mossp.data.blocks import OnDiskRows, Shape
from mossp.data.columnar import Columnar, is_columnar
from mossp.data.converted import converted
from mossp.data.finite import places_of_some
from mossp.data.forms import Dense, HostRows, Sparse, row_bytes
from mossp.data.protocol import Source
from mossp.data.reading import Reader
from mossp.data.storage import Arrays, Storage

HELD = 2**24  # bytes of mini-batches that are read at once, for one replica
FIRST = 1024  # rows that are checked at once; the others when they are read
ACCESS = ("auto", "random", "blocks")


class OnDisk(Source):
    """Rows that stay on disk, where they do not fit into memory.

    Everything works as with rows in memory: full gradients and certificates read all rows, block by
    block, while the next block is read ahead; mini-batches are read for many steps at once.

    Parameters
    ----------
    data : path, np.memmap, or pytree of these
        .npy files, as `data` of a problem is: `OnDisk(("X.npy", "y.npy"))`. Or one name: of a
        Parquet or Arrow file, or of a folder of such files, read by polars; else of a LIBSVM file,
        which is converted once, to a binary form in the folder for caches (`mossp.cache`).
    target : str, optional
        The column of a Parquet or Arrow file that is y; the others are X, and batches are (X, y).
        Without one, they are X alone.
    columns : list of str, optional
        Those that make up X, in this order; all but the target if left out.
    dtype : {"float64", "float32"}, optional
        Of X and y as they are read from columns or a LIBSVM file. Left out, it is float32 where all
        columns are, else float64. Computations are in the `dtype` of `solve`, whatever this is:
        numbers of float32 are summed up in float64.
    access : {"auto", "random", "blocks"}
        How the rows of mini-batches are drawn: each by itself, anywhere in the file ("random"), or
        from a few blocks that are drawn anew every some hundred steps ("blocks"), which reads far
        less where a row cannot be had alone. "auto" is "blocks" for Parquet and Arrow, "random" for
        the rest; the message of a result says which. Sort rows by chance for the second.

    Examples
    --------
    >>> import tempfile, numpy as np, mossp
    >>> folder = tempfile.TemporaryDirectory()
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> np.save(f"{folder.name}/X.npy", X)
    >>> np.save(f"{folder.name}/y.npy", X @ [1.0, 0.0, -1.0])
    >>> rows = OnDisk((f"{folder.name}/X.npy", f"{folder.name}/y.npy"))
    >>> problem = mossp.Problem(mossp.losses.squared, rows, mossp.L1(0.01))
    >>> result = mossp.solve(problem, np.zeros(3))
    >>> result.success, np.round(result.x, 1).tolist()
    (True, [1.0, 0.0, -1.0])
    >>> folder.cleanup()
    """

    def __init__(
        self, data: Any, target: str | None = None, columns: list[str] | None = None,
        dtype: Any = None, access: str = "auto",
    ) -> None:  # fmt: skip
        if not is_choice(access, ACCESS):
            raise ValueError(
                f"access must be one of {', '.join(map(repr, ACCESS))}, but {shown(access)} was "
                "given."
            )
        self._open(storage_of(data, target, columns, dtype), access)

    @classmethod
    def of(cls, storage: Storage, access: str = "auto") -> OnDisk:
        """Rows that are read in a way of their own."""
        made = object.__new__(cls)
        made._open(storage, access)
        return made

    def _open(self, storage: Storage, access: str) -> None:
        self._access = access
        if access == "auto":
            access = "random" if storage.random_access else "blocks"
        if access == "random" and not storage.random_access:
            raise ValueError(
                "access='random' needs .npy or LIBSVM files: rows of Parquet and Arrow files are "
                "read in blocks."
            )
        self._reader = Reader(storage, access)
        self._check_first()
        self._dtype = np.dtype(np.float64)

    def _check_first(self) -> None:
        """Some rows, before anything is compiled."""
        count = min(self._reader.rows, FIRST)
        self._reader.checked(self._reader.storage.read(0, count), np.arange(count))

    @classmethod
    def _reopened(cls, made: tuple[Any, ...], access: str) -> OnDisk:
        kind, arguments = made
        return cls.of(kind(*arguments), access)

    def __reduce__(self) -> Any:
        """Pickled by the names of its files; a process that unpickles it must see them too."""
        return OnDisk._reopened, (self._reader.storage.reopened(), self._access)

    @property
    def storage(self) -> Storage:
        """How the files are read."""
        return self._reader.storage

    @property
    def access(self) -> str:
        """How the rows of mini-batches are drawn: "random" or "blocks"."""
        return self._reader.access

    @property
    def finite_sum(self) -> bool:
        return True

    @property
    def rows(self) -> int:
        return self._reader.rows

    @property
    def reaches_rows(self) -> bool:
        return self._reader.access == "random"

    @property
    def said(self) -> str:
        many = counted(self._reader.blocks, "block")
        blocks = f"{many} of up to {self._reader.length:,} rows on disk"
        drawn = {"random": "by random access", "blocks": "from shuffled blocks"}
        return f"{blocks}, mini-batches {drawn[self._reader.access]}"

    @property
    def identity(self) -> str:
        return self._reader.storage.mark()

    def most_held(self, batch_size: int) -> int:
        fitting = max(HELD // (batch_size * row_bytes(self._reader.forms)), 1)
        return min(4096, 1 << (fitting.bit_length() - 1))

    @property
    def columns(self) -> int | None:
        first = self._reader.forms[0]
        if isinstance(first, Sparse):
            return first.columns
        return first.shape[0] if len(first.shape) == 1 else None

    @property
    def filled_part(self) -> float:
        """As the rows that are kept have it."""
        forms = self._reader.forms
        if all(isinstance(form, Dense) for form in forms):
            return 1.0
        kept = self._reader.kept()
        each = [
            a.nnz if isinstance(f, Sparse) else a.size for f, a in zip(forms, kept, strict=True)
        ]
        places = [f.columns if isinstance(f, Sparse) else f.places for f in forms]
        return sum(each) / max(sum(places) * kept[0].shape[0], 1)

    @property
    def shape(self) -> Shape:
        found = self._reader
        return Shape(found.forms, found.storage.treedef, found.length, self._dtype.str)

    def checked_by(self, check: Callable[[PyTree], None]) -> OnDisk:
        """The same rows, each block of which is checked when it is first read; the first now."""
        again = object.__new__(OnDisk)
        again._open(self._reader.storage, self._access)
        again._reader.check = check
        again._check_first()
        again._dtype = self._dtype
        return again

    def astype(self, dtype: Any) -> OnDisk:
        view = object.__new__(OnDisk)
        view._reader, view._access, view._dtype = self._reader, self._access, np.dtype(dtype)
        return view

    def compiled(self, function: Any) -> OnDiskRows:
        found = self._reader
        number, blocks = (on_device(n, np.int32) for n in (found.number, found.blocks))
        return OnDiskRows(number, blocks, self.shape)

    def batch_shapes(self, size: int) -> PyTree:
        return self.shape.of(size)

    def take_rows(self, places: np.ndarray) -> PyTree:
        return self._placed(self._reader.take(np.asarray(places)))

    def some_rows(self, count: int) -> PyTree:
        if self.reaches_rows:
            return self.take_rows(places_of_some(self.rows, count))
        kept = self._reader.kept()
        size = kept[0].shape[0]
        chosen = np.unique(np.linspace(0, size - 1, min(count, size)).astype(int))
        return self._placed([rows[chosen] for rows in kept])

    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        starts = range(0, min(count * rows, self.rows), rows)
        read = self._reader.storage.read
        return [self._placed(read(s, min(s + rows, self.rows))) for s in starts]

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> PyTree:
        rows = self._reader.drawn(rng, count * batch_size)
        made = zip(self._reader.forms, rows, strict=True)
        return tuple(form.batches(a, (count, batch_size)) for form, a in made)

    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        return self.compiled(None).batch(draw, batch_size)

    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        return self.compiled(None).batches(draws, batch_size)

    def _placed(self, rows: list[HostRows]) -> PyTree:
        """Rows as arrays of JAX, in the precision of computations."""
        shape = self.shape
        made = [
            form.loose(a) if isinstance(form, Sparse) else a
            for form, a in zip(self._reader.forms, rows, strict=True)
        ]
        return jax.tree.map(lambda a: on_device(a, shape.computed(a.dtype)), shape.tree(made))


def storage_of(data: Any, target: str | None, columns: list[str] | None, dtype: Any) -> Storage:
    """How these files are read."""
    if isinstance(data, (str, Path)):
        path = Path(data)
        if not path.exists():
            raise FileNotFoundError(f"There is no file {path}.")
        if is_columnar(path):
            return Columnar(path, target, columns, dtype)
        if path.suffix != ".npy":
            refuse_columns(target, columns, "a LIBSVM file has its own label and indices")
            return converted(path, dtype)
    refuse_columns(target, columns, "arrays have none: give those that you want")
    if dtype is not None:
        raise ValueError(
            "dtype is for columns and LIBSVM files: a .npy file is read in the type that it has."
        )
    return Arrays(data)


def refuse_columns(target: Any, columns: Any, why: str) -> None:
    if target is not None or columns is not None:
        raise ValueError(f"target and columns name columns of Parquet and Arrow files; {why}.")
