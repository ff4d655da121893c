"""Rows that are divided between devices, of one process or of many.

    full means     each device takes the mean over its own rows; their sum, weighted by their parts
                   of all rows, is one exchange between processes
    mini-batches   rows are drawn from all rows alike, so that every device has its share of them;
                   those of many steps are exchanged at once, and each process then takes the same
                   steps by itself: there is no exchange in a step

The draws are those that one process with all of the rows would make, and so, but for rounding, are
the iterates: the number of processes does not change the run.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mossp._base import crew
from mossp._base.device import on_device
from mossp._base.printing import counted
from mossp._base.types import PyTree
from mossp.data.agreement import agreed_forms
from mossp.data.blocks import OnDiskRows, Shape
from mossp.data.finite import Finite, places_of_some
from mossp.data.forms import Dense, HostRows, Sparse, row_bytes
from mossp.data.memory import Memory, Part
from mossp.data.on_disk import HELD, OnDisk
from mossp.data.protocol import Source
from mossp.data.reading import Reader, block_length
from mossp.data.shards import ShardedRows, numbers, sources
from mossp.data.sparse import padded_length
from mossp.data.storage import MARKED, Storage


class Sharded(Source):
    """This process's rows of a run over many processes; or rows for several devices of one.

    Every process makes its own, with the same columns and types and any number of rows, calls
    `solve` with the same arguments, and gets the same result. Call `mossp.distributed()`, or
    `jax.distributed.initialize`, before anything else.

    Parameters
    ----------
    *data : arrays, or one pytree of arrays, or OnDisk
        As `data` of a problem: `Sharded(X_local, y_local)`, `Sharded({"X": X_local})`,
        `Sharded(mossp.OnDisk("part-3.parquet", target="y"))`. NumPy or scipy.sparse.
    mesh : jax.sharding.Mesh, optional
        The devices; all devices of all processes unless given. A process with several shares its
        rows out to them.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> rows = Sharded(X, X @ [1.0, 0.0, -1.0])  # one process: all of the rows
    >>> problem = mossp.Problem(mossp.losses.squared, rows, mossp.L1(0.01))
    >>> result = mossp.solve(problem, np.zeros(3))
    >>> result.success, np.round(result.x, 1).tolist()
    (True, [1.0, 0.0, -1.0])
    """

    def __init__(self, *data: Any, mesh: Any = None) -> None:
        if not data:
            raise TypeError("Sharded needs this process's rows: Sharded(X_local, y_local).")
        given = data[0] if len(data) == 1 else data
        on_disk = isinstance(given, OnDisk)
        storage = given.storage if isinstance(given, OnDisk) else Memory(given)
        access = given.access if isinstance(given, OnDisk) else "random"
        self._make(storage, access, on_disk, crew.mesh_of(mesh))

    def _make(self, storage: Storage, access: str, on_disk: bool, mesh: Any) -> None:
        self.storage, self.access, self.on_disk, self.mesh_used = storage, access, on_disk, mesh
        self._dtype = np.dtype(np.float64)
        self.number = next(numbers)
        sources[self.number] = self
        devices = crew.own_devices(mesh)
        if not devices:
            raise ValueError("The mesh has no device of this process.")
        if storage.rows < len(devices):
            raise ValueError(
                f"This process has {counted(storage.rows, 'row')} for "
                f"{counted(len(devices), 'device')}: each needs one at least."
            )
        ends = np.linspace(0, storage.rows, len(devices) + 1).astype(int)
        self.parts = [Part(storage, int(a), int(b)) for a, b in itertools.pairwise(ends)]
        longest = max(part.rows for part in self.parts)
        own = block_length(storage) if on_disk else padded_length(longest)
        self.length = int(crew.listed([own], mesh).max())
        self.forms = agreed_forms(storage, self.parts, self.length, mesh)
        every = crew.listed([storage.rows], mesh)[:, 0].astype(np.int64)
        self._rows, me = int(every.sum()), jax.process_index()
        self.first = int(every[:me].sum())  # the number of this process's first row among all
        self.readers = [Reader(part, access, self.length, self.forms) for part in self.parts]
        self._own = Reader(storage, access, self.length, self.forms)
        self._placed: dict[Any, crew.Divided] = {}

    def __reduce__(self) -> Any:
        return _again, (self.storage.reopened(), self.access, self.on_disk)

    def over(self, mesh: Any) -> Sharded:
        """The same rows over the devices of another mesh."""
        again = object.__new__(Sharded)
        again._make(self.storage, self.access, self.on_disk, crew.mesh_of(mesh))
        return again

    @property
    def finite_sum(self) -> bool:
        return True

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def mesh(self) -> Any:
        return self.mesh_used

    @property
    def reaches_rows(self) -> bool:
        return self.access == "random"

    @property
    def said(self) -> str:
        many = counted(self.mesh.devices.size, "device")
        count = crew.processes(self.mesh)
        who = f"{many} of {count} processes" if count > 1 else many
        steps = self.most_held(32)
        return (
            f"divided between {who}, mini-batches from all of them, exchanged for up to {steps:,} "
            "steps of 32 rows at once"
        )

    @property
    def identity(self) -> str:
        """A digest of some rows, from all over: the same for any number of processes."""
        places = np.unique(np.linspace(0, self.rows - 1, MARKED).astype(np.int64))
        digest = hashlib.sha256(str(self.rows).encode())
        if self.reaches_rows:
            for part in jax.tree.leaves(self._exchanged(places)):
                digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def most_held(self, batch_size: int) -> int:
        fitting = max(HELD // (batch_size * row_bytes(self.forms)), 1)
        return min(4096, 1 << (fitting.bit_length() - 1))

    @property
    def columns(self) -> int | None:
        first = self.forms[0]
        if isinstance(first, Sparse):
            return first.columns
        return first.shape[0] if len(first.shape) == 1 else None

    @property
    def filled_part(self) -> float:
        if all(isinstance(form, Dense) for form in self.forms):
            return 1.0
        kept = self._own.kept()
        pairs = list(zip(self.forms, kept, strict=True))
        places = sum(f.columns if isinstance(f, Sparse) else f.places for f in self.forms)
        entries = sum(a.nnz if isinstance(f, Sparse) else a.size for f, a in pairs)
        own = [entries, places * kept[0].shape[0]]
        found, every = crew.listed(own, self.mesh).sum(axis=0)
        return float(found / max(every, 1))

    @property
    def shape(self) -> Shape:
        return Shape(self.forms, self.storage.treedef, self.length, self._dtype.str)

    def checked_by(self, check: Callable[[PyTree], None]) -> Sharded:
        """Each process checks its own rows; where one is wrong, all of them end."""
        error: Exception | None = None
        try:
            if self.on_disk:
                for reader in (*self.readers, self._own):
                    reader.check = check
                first = min(self.storage.rows, MARKED)
                self._own.checked(self.storage.read(0, first), np.arange(first))
            else:
                check(
                    jax.tree.unflatten(
                        self.storage.treedef, self.storage.read(0, self.storage.rows)
                    )
                )
        except Exception as wrong:
            error = wrong
        failed = crew.listed([error is not None], self.mesh)[:, 0]
        if error is not None:
            raise error
        if failed.any():
            raise ValueError(
                f"The rows of process {int(np.argmax(failed))} are not right; its error says why."
            )
        return self

    def astype(self, dtype: Any) -> Sharded:
        view = object.__new__(Sharded)
        vars(view).update(vars(self))
        view._dtype, view.number = np.dtype(dtype), next(numbers)
        sources[view.number] = view
        return view

    def compiled(self, function: Any) -> ShardedRows:
        key = "all", self._dtype
        if key not in self._placed:
            self._placed[key] = crew.divided([self._local(r) for r in self.readers], self.mesh)
        return self._compiled(self._placed[key])

    def thinned_to(self, rows: int, shape: Shape) -> ShardedRows:
        key = "some", np.dtype(shape.dtype)
        if key not in self._placed:
            each = -(-rows // self.mesh.devices.size)
            found = []
            for reader in self.readers:
                kept = reader.kept()
                size = kept[0].shape[0]
                chosen = np.unique(np.linspace(0, size - 1, min(each, size)).astype(int))
                found.append([a[chosen] for a in kept])
            length = int(crew.listed([max(r[0].shape[0] for r in found)], self.mesh).max())
            made = [self._finite(r, padded_length(length)) for r in found]
            self._placed[key] = crew.divided(made, self.mesh)
        return self._compiled(self._placed[key])

    def _compiled(self, local: crew.Divided) -> ShardedRows:
        parts = [np.asarray(p.rows / self.rows, self._dtype) for p in self.parts]
        number = on_device(self.number, np.int32)
        return ShardedRows(number, local, crew.divided(parts, self.mesh), self.shape)

    def _local(self, reader: Reader) -> PyTree:
        """What one device sees: rows on disk, or arrays."""
        if self.on_disk:
            number, blocks = (np.asarray(n, np.int32) for n in (reader.number, reader.blocks))
            return OnDiskRows(number, blocks, self.shape)
        return self._finite(reader.storage.read(0, reader.rows), self.length)

    def _finite(self, rows: list[HostRows], length: int) -> Finite:
        made = [form.block(a, length) for form, a in zip(self.forms, rows, strict=True)]
        arrays = jax.tree.map(
            lambda a: np.asarray(a, self.shape.computed(a.dtype)), self.shape.tree(made)
        )
        count, one = (np.asarray(n, np.int32) for n in (rows[0].shape[0], 1))
        return Finite(arrays, count, one)

    # Rows from all processes: called by all of them, in the same order -------------------------

    def _exchanged(self, places: np.ndarray, rng: np.random.Generator | None = None) -> PyTree:
        """Rows by number, from whichever process has them, as `shape.rows` takes them.

        Where a row cannot be had alone, others by chance stand for those of a process.
        """
        mine = (places >= self.first) & (places < self.first + self.storage.rows)
        count = int(mine.sum())
        if self.access == "random" or rng is None:
            rows = self._own.take(places[mine] - self.first)
        else:
            rows = self._own.drawn(rng, max(count, 1))
            rows = [a[:count] for a in rows]
        return self._joined(rows, np.flatnonzero(mine), len(places))

    def _joined(self, rows: list[HostRows], places: np.ndarray, total: int) -> PyTree:
        """Rows of all processes together, of which these are at these places of so many."""
        made = []
        for form, some in zip(self.forms, rows, strict=True):
            for a in jax.tree.leaves(form.batches(some, (1, len(places)))):
                kind = np.uint8 if a.dtype == bool else self.shape.crossing(a.dtype)
                whole = np.zeros((total, *a.shape[2:]), kind)
                whole[places] = a[0]
                made.append(whole)
        return self._untied(crew.summed(made, self.mesh))

    def _untied(self, arrays: list[np.ndarray]) -> tuple[Any, ...]:
        """One array for each dense leaf of the data, three for each sparse one."""
        given = iter(arrays)
        found: list[Any] = []
        for form in self.forms:
            if isinstance(form, Sparse):
                found.append((next(given), next(given), next(given)))
            else:
                found.append(next(given).astype(self.shape.crossing(form.dtype)))
        return tuple(found)

    def batch_shapes(self, size: int) -> PyTree:
        return self.shape.of(size)

    def take_rows(self, places: np.ndarray) -> PyTree:
        return self._rows_of(self._exchanged(np.asarray(places, np.int64)))

    def some_rows(self, count: int) -> PyTree:
        """The same for any number of processes, and as rows in memory have them.

        Where a row cannot be had alone: of every process as many as its part of all rows says, from
        those that it keeps.
        """
        if self.reaches_rows:
            return self.take_rows(places_of_some(self.rows, count))
        kept = self._own.kept()
        size = kept[0].shape[0]
        own = min(size, max(1, round(min(count, self.rows) * self.storage.rows / self.rows)))
        every = crew.listed([own], self.mesh)[:, 0].astype(int)
        begin = int(every[: jax.process_index()].sum())
        chosen = np.linspace(0, size - 1, own).astype(int)
        own_rows = [a[chosen] for a in kept]
        return self._rows_of(self._joined(own_rows, begin + np.arange(own), int(every.sum())))

    def _rows_of(self, drawn: PyTree) -> PyTree:
        return self.shape.rows(jax.tree.map(on_device, drawn))

    def peek(self, count: int = 1, rows: int = 32) -> list[PyTree]:
        starts = range(0, min(count * rows, self.rows), rows)
        return [self.take_rows(np.arange(s, min(s + rows, self.rows))) for s in starts]

    def draw(self, rng: np.random.Generator, count: int, batch_size: int) -> PyTree:
        kind = np.int32 if self.rows < 2**31 else np.int64  # as a Finite of all rows draws them
        places = rng.integers(0, self.rows, (count, batch_size), kind).ravel()
        drawn = self._exchanged(places, rng)
        return jax.tree.map(lambda a: a.reshape(count, batch_size, *a.shape[1:]), drawn)

    def batch(self, draw: PyTree, batch_size: int) -> PyTree:
        return self.shape.rows(draw)

    def batches(self, draws: PyTree, batch_size: int) -> PyTree:
        return self.shape.rows(draws)


def _again(made: tuple[Any, ...], access: str, on_disk: bool) -> Sharded:
    kind, arguments = made
    again = object.__new__(Sharded)
    again._make(kind(*arguments), access, on_disk, crew.mesh_of())
    return again


def divided_over(source: Source, mesh: Any) -> Sharded:
    """The same rows, divided between the devices of a mesh."""
    if isinstance(source, Sharded):
        return source.over(mesh)
    if crew.processes(crew.mesh_of(mesh)) > 1:
        raise ValueError(
            "The devices of the mesh belong to several processes: say which rows are this "
            "process's own, data=mossp.Sharded(X_local, y_local)."
        )
    if isinstance(source, OnDisk):
        return Sharded(source, mesh=mesh)
    if isinstance(source, Finite):
        return Sharded(source.as_given(), mesh=mesh)
    raise ValueError(
        f"mesh divides rows between devices, and {type(source).__name__} has none that can be "
        "divided: give arrays, mossp.OnDisk or mossp.Sharded as data, or leave mesh out."
    )
