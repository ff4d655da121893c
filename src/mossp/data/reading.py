"""Blocks of rows from disk: the next one is read while this one is computed with.

Each block is checked when it is first read: numbers that are not finite, labels that the loss does
not know. What goes wrong while a program runs is kept, as the `failure` of the reader: the program
gets NaN, and whoever called it raises the error in its place.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from mossp._base.keys import Purpose, generator
from mossp._base.types import PyTree
from mossp.data.forms import Form, HostRows, concatenated, row_bytes
from mossp.data.sparse import is_sparse, padded_length
from mossp.data.storage import Storage

# Of one block: large beside what a call from compiled code costs (0.1 ms), small beside a memory.
BLOCK_BYTES = 2**24
SHORTEST = 64  # rows of a block, however long they are
AHEAD = 2  # blocks that are read ahead
PASSES = 2  # that may go on at the same time
# Rows from all over that stand for the data: read once, kept in memory.
KEPT_ROWS, KEPT_BYTES, KEPT_BLOCKS = 2**16, 2**27, 64
DRAWN_BLOCKS = 4  # from which the mini-batches of some hundred steps come, where rows have no order

numbers = itertools.count(1)
readers: weakref.WeakValueDictionary[int, Reader] = weakref.WeakValueDictionary()


class Reader:
    """Rows on disk, as blocks of equal length; the last one may be shorter."""

    def __init__(
        self, storage: Storage, access: str, length: int = 0, forms: tuple[Form, ...] = ()
    ) -> None:
        """With blocks of a length, and rows in forms, of their own unless they are given."""
        self.storage, self.access = storage, access
        self.length = length or block_length(storage)
        self.forms = forms or storage.forms(self.length)
        self.blocks = -(-storage.rows // self.length)
        self.check: Callable[[PyTree], None] | None = None
        self.failure: Exception | None = None
        self.number = next(numbers)
        self._checked = np.zeros(self.blocks, bool)
        self._ahead: dict[int, Future[list[HostRows]]] = {}
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._kept: list[HostRows] | None = None
        readers[self.number] = self

    @property
    def rows(self) -> int:
        return self.storage.rows

    def count(self, block: int) -> int:
        """Rows of a block."""
        return min(self.length, self.rows - block * self.length)

    def block(self, number: int) -> list[HostRows]:
        """The rows of a block; those after it are being read when it is handed out."""
        with self._lock:
            mine = self._ahead.pop(number, None)
            if self._thread is None and self.blocks > 1:
                self._thread = ThreadPoolExecutor(1, "mossp-reads")
            if mine is None and self._thread is not None:
                mine = self._thread.submit(self._read, number)
            if self._thread is not None:
                for following in range(number + 1, min(number + 1 + AHEAD, self.blocks)):
                    if following not in self._ahead:
                        self._ahead[following] = self._thread.submit(self._read, following)
                while len(self._ahead) > PASSES * AHEAD:  # those of a pass that was left
                    self._ahead.pop(next(iter(self._ahead))).cancel()
        return self._read(number) if mine is None else mine.result()

    def _read(self, number: int) -> list[HostRows]:
        start = number * self.length
        rows = self.storage.read(start, start + self.count(number))
        if not self._checked[number]:
            self.checked(rows, start + np.arange(self.count(number)))
            self._checked[number] = True
        return rows

    def checked(self, rows: list[HostRows], places: np.ndarray) -> list[HostRows]:
        """Raise ValueError where a number is not finite, or a label none of the loss's.

        Of the rows at these places in the file.
        """
        for leaf, given in enumerate(rows):
            values = given.data if is_sparse(given) else given
            if values.dtype.kind != "f" or np.isfinite(values).all():
                continue
            dense = given.tocoo() if is_sparse(given) else given
            place: tuple[int, ...]
            if is_sparse(given):
                first = int(np.flatnonzero(~np.isfinite(dense.data))[0])
                place = (int(dense.row[first]), int(dense.col[first]))
            else:
                place = tuple(int(i) for i in np.argwhere(~np.isfinite(dense))[0])
            named = self.storage.entry(leaf, int(places[place[0]]), place[1:])
            raise ValueError(
                f"data has a NaN or infinite value, {named}: remove or impute such rows first."
            )
        if self.check is not None:
            self.check(jax.tree.unflatten(self.storage.treedef, rows))
        return rows

    def drawn(self, rng: np.random.Generator, count: int) -> list[HostRows]:
        """So many rows by chance, each of them equally likely.

        By random access they are independent. Else they come from a few blocks, which are drawn
        with probabilities that are proportional to their lengths.
        """
        if self.access == "random":
            return self.taken(rng.integers(0, self.rows, count))
        blocks = rng.integers(0, self.rows, DRAWN_BLOCKS) // self.length
        which = rng.integers(0, DRAWN_BLOCKS, count)
        chosen = [
            (int(b), rng.integers(0, self.count(int(b)), int(np.sum(which == i))))
            for i, b in enumerate(blocks)
        ]
        rows = self.from_blocks([each for each in chosen if len(each[1])])
        order = rng.permutation(count)
        return [each[order] for each in rows]

    def kept(self) -> list[HostRows]:
        """Rows from all over, always the same; all of them where they are few."""
        if self._kept is None:
            most = min(self.rows, KEPT_ROWS, max(KEPT_BYTES // row_bytes(self.forms), SHORTEST))
            rng = generator(0, Purpose.POOL)
            if self.access == "random":
                places = np.sort(rng.choice(self.rows, most, replace=False))
                self._kept = self.taken(places)
            else:
                spread = min(self.blocks, KEPT_BLOCKS)
                blocks = np.unique(np.linspace(0, self.blocks - 1, spread).astype(int))
                each = -(-most // len(blocks))
                places_in = [
                    (int(b), np.sort(rng.choice(size, min(each, size), replace=False)))
                    for b, size in ((b, self.count(int(b))) for b in blocks)
                ]
                self._kept = self.from_blocks(places_in)
        return self._kept

    def take(self, places: np.ndarray) -> list[HostRows]:
        """Rows by number; block after block where there is no random access."""
        if self.access == "random":
            return self.taken(np.asarray(places, np.int64))
        order = np.argsort(places, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        owner = places[order] // self.length
        parts = [
            (int(b), places[order][owner == b] - int(b) * self.length) for b in np.unique(owner)
        ]
        return [rows[back] for rows in self.from_blocks(parts)]

    def taken(self, places: np.ndarray) -> list[HostRows]:
        """By random access."""
        return self.checked(self.storage.take(places), places)

    def from_blocks(self, chosen: list[tuple[int, np.ndarray]]) -> list[HostRows]:
        """Rows of several blocks, by their places within each, one block after the other."""
        parts: list[list[HostRows]] = []
        for block, places in chosen:
            start = block * self.length
            read = self.storage.read(start, start + self.count(block))
            some = [rows[places] for rows in read]
            parts.append(self.checked(some, start + places))
        return [concatenated(list(each)) for each in zip(*parts, strict=True)]


def block_length(storage: Storage) -> int:
    """Rows of a block: a power of two, or all rows where they are few."""
    fitting = max(int(BLOCK_BYTES / storage.bytes_per_row), SHORTEST)
    return min(1 << (fitting.bit_length() - 1), padded_length(storage.rows))


def reader(number: Any) -> Reader:
    """The reader of this number; a program knows no more of it."""
    found = readers.get(int(number))
    if found is None:
        raise RuntimeError("The rows on disk were closed: keep the problem that they belong to.")
    return found
