"""Targets, levels, centres and scales of a file, from two passes over its blocks.

1   which values the target has, what each column holds, which levels of text there are
2   means and standard deviations of the features, merged block by block (Chan et al.):

mean = mean_a + d n_b / n,    M2 = M2_a + M2_b + d^2 n_a n_b / n,    d = mean_b - mean_a
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from mossp._base.keys import Purpose, generator
from mossp._base.printing import quoted
from mossp.app.features import Features
from mossp.app.features.learning import Coding, names_of
from mossp.app.features.levels import MOST_LEVELS
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import excluded_from
from mossp.app.standardization import scales_of
from mossp.app.streaming.blocks import Blocks
from mossp.app.tables import (
    DATES,
    NUMBERS,
    Table,
    TableError,
    check_known,
    check_target,
    kind_of,
    missing_in,
    refused,
    target_of,
    texts_in,
)

CHUNK = 2**16  # rows whose random numbers are drawn at once: they do not depend on blocks
MOST_VALUES = 1000  # different targets that are kept: with more, they are no classes
TRAIN, HELD_OUT, TEST = range(3)  # what a row is for; the second, where a strength is chosen
FOLD = 0.2  # of the training rows that are held out then

Told = Callable[[int, str], None]  # of rows done, and what is being done


class Learnt(NamedTuple):
    """What two passes find."""

    features: Features
    values: np.ndarray  # different targets, sorted: all of them if they are few
    counts: np.ndarray  # of training rows of each class, or of all of them


class Parts:
    """Which rows are for the test, and which are held out for the choice of a strength."""

    def __init__(self, seed: int, test: float) -> None:
        self.seed, self.test = seed, test

    def of(self, start: int, stop: int) -> np.ndarray:
        """TRAIN, HELD_OUT or TEST for each row, by random numbers of its own number."""
        found = []
        for chunk in range(start // CHUNK, -(-stop // CHUNK)):
            u, v = generator(self.seed, Purpose.SPLIT, number=chunk).random((2, CHUNK))
            found.append(np.where(u < self.test, TEST, np.where(v < FOLD, HELD_OUT, TRAIN)))
        first = start - start // CHUNK * CHUNK
        return np.concatenate(found)[first : first + stop - start]


def learn(request: Request, blocks: Blocks, parts: Parts, told: Told) -> Learnt:
    """Two passes over all rows; what is wrong with a row is told with its number."""
    names: list[str] | None = None
    kinds: dict[str, str] = {}
    levels: dict[str, set[str]] = {}
    values: set = set()
    sparse: set[int] = set()
    width = 0
    for start, table in blocks.each():
        told(start, "looking at columns")
        train = parts.of(start, start + table.rows) != TEST
        y = target_of(table, request.target)
        if len(values) <= MOST_VALUES:
            values |= set(np.unique(y).tolist())
        if table.X is not None:
            sparse |= set(np.unique(table.X.indices).tolist())
            width = table.X.shape[1]
            continue
        if names is None:
            names, kinds = columns_of(request, table)
        for name, kind in kinds.items():
            looked_at(table, name, kind, levels.setdefault(name, set()), train)
    if names is None:
        columns: tuple[tuple[str, Coding], ...] = tuple((f"x{j + 1}", None) for j in sorted(sparse))
    else:
        columns = tuple(
            (name, tuple(sorted(levels[name])) if kinds[name] == "text" else None) for name in names
        )
    if text := next((q for q in values if isinstance(q, str)), None):
        check_few(values, text, blocks, request)
    plain = unscaled(columns, width or None)
    moments = Moments()
    counts: dict[Any, int] = {}
    for start, table in blocks.each():
        told(start, "centres and scales")
        train = parts.of(start, start + table.rows) != TEST
        if train.any():
            moments.add(plain.raw(table)[train])
        y, n = np.unique(target_of(table, request.target)[train], return_counts=True)
        if len(values) <= MOST_VALUES:
            for value, count in zip(y.tolist(), n.tolist(), strict=True):
                counts[value] = counts.get(value, 0) + count
        else:
            counts[None] = counts.get(None, 0) + int(n.sum())
    if not moments.count:
        raise TableError(f"No row of {blocks.path} is left to learn from.")
    features = plain
    if not request.no_standardize:
        centre, scale = moments.result()
        features = dataclasses.replace(plain, centre=tuple(centre), scale=tuple(scale))
    known = np.array(sorted(values))
    each = np.array([counts.get(value, 0) for value in known.tolist()])
    return Learnt(features, known, each if None not in counts else np.array([counts[None]]))


def unscaled(columns: Iterable[tuple[str, Coding]], width: int | None) -> Features:
    """Features as they are."""
    columns = tuple(columns)
    n = len(names_of(columns, ()))
    if not n:
        raise TableError("No column is left to be a feature.")
    return Features(columns, (0.0,) * n, (1.0,) * n, width)


def columns_of(request: Request, table: Table) -> tuple[list[str], dict[str, str]]:
    """(the columns that become features, what each holds), by the first rows."""
    check_target(table, request.target)
    exclude = excluded_from(table, request)
    check_known(table, exclude)
    unwanted = {request.target, *exclude}
    names = [name for name in table.columns if name not in unwanted]
    kinds = {name: kind_of(table, name) for name in names}
    for name, kind in kinds.items():
        if kind == DATES:
            raise TableError(
                f"The column {quoted(name)} of {table.path} holds {kind}, which are read in memory "
                f"only: exclude it (--exclude {quoted(name)}), or give --no-stream."
            )
        if kind != "text" and kind not in NUMBERS:
            raise refused(table, name, kind)
    return names, kinds


def looked_at(table: Table, name: str, kind: str, levels: set[str], train: np.ndarray) -> None:
    """Add the levels of a column of text; raise TableError where it holds something else."""
    now = kind_of(table, name)
    if (now == "text") != (kind == "text") or (now != "text" and now not in NUMBERS):
        raise TableError(
            f"The column {quoted(name)} of {table.path} holds {kind} at first and {now} from row "
            f"{table.number(0)} on: mend it, or exclude it (--exclude {quoted(name)})."
        )
    if kind != "text":
        return
    if missing_in(table, name).any():
        texts_in(table, name)  # which says where
    levels |= set(table.frame[name].filter(train).unique().cast(str).to_list())
    if len(levels) > MOST_LEVELS:
        raise TableError(
            f"The column {quoted(name)} of {table.path} has more than {MOST_LEVELS} different "
            f"texts: exclude it (--exclude {quoted(name)}), or make numbers of it.",
            ("--exclude", name),
        )


def check_few(values: set, text: str, blocks: Blocks, request: Request) -> None:
    if len(values) > MOST_VALUES:
        raise TableError(
            f"The target {quoted(str(request.target))} of {blocks.path} holds more than "
            f"{MOST_VALUES} different texts, such as {quoted(text)}: too many to be classes."
        )


class Moments:
    """Means and standard deviations of columns, block by block.

    Values are scaled by a power of two and shifted by those of the first row, as in
    `mossp.app.standardization`: a constant column is exactly 0 from there on. Sparse rows have no
    centre, and are shifted where all of the first rows have an entry.
    """

    count = 0

    def add(self, X: Any) -> None:
        """Take rows into account: an array, or a matrix of scipy.sparse."""
        self.sparse = not isinstance(X, np.ndarray)
        if not self.count:
            largest = abs(X).max(axis=0)
            largest = largest.toarray().ravel() if self.sparse else largest
            self.exponent = np.frexp(largest)[1]
            first = X[0]
            if self.sparse:  # 0 where rows have no entry
                full = X.getnnz(axis=0) == X.shape[0]
                first = np.where(full, X[[0]].toarray().ravel(), 0.0)
            self.first = np.ldexp(first, -self.exponent)
            self.mean, self.squares = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        n = X.shape[0]
        if self.sparse:
            j = X.indices
            shifted = np.ldexp(X.data, -self.exponent[j]) - self.first[j]
            empty = n - np.bincount(j, minlength=X.shape[1])
            mean = (np.bincount(j, shifted, X.shape[1]) - empty * self.first) / n
            squares = np.bincount(j, (shifted - mean[j]) ** 2, X.shape[1])
            squares += empty * (self.first + mean) ** 2
        else:
            shifted = np.ldexp(X, -self.exponent) - self.first
            mean = shifted.mean(axis=0)
            squares = ((shifted - mean) ** 2).sum(axis=0)
        total, apart = self.count + n, mean - self.mean
        self.squares = self.squares + squares + apart**2 * (self.count * n / total)
        self.mean = self.mean + apart * (n / total)
        self.count = total

    def result(self) -> tuple[list[float], list[float]]:
        """(centres, scales)."""
        scale = scales_of(np.sqrt(self.squares / self.count), self.exponent)
        if self.sparse:
            return [0.0] * len(scale), scale
        return np.ldexp(self.first + self.mean, self.exponent).tolist(), scale
