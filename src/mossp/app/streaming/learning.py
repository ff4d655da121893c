"""Targets, levels, centres and scales of a file, from two passes over its blocks.

1   which values the target has, what each column holds, which levels of text there are
2   means and standard deviations of the features, merged block by block (Chan et al.):

mean = mean_a + d n_b / n,    M2 = M2_a + M2_b + d^2 n_a n_b / n,    d = mean_b - mean_a

Where missing values are filled in, passes for the medians come between the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mossp._base.keys import Purpose, generator
from mossp._base.printing import quoted
from mossp.app.features import Features
from mossp.app.features.dates import Dates
from mossp.app.features.learning import Coding, check_asked, names_of
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import (
    excluded_from,
    left_out_note,
    needed_and_missing,
    nothing_left,
)
from mossp.app.standardization import scales_of
from mossp.app.streaming.blocks import Blocks
from mossp.app.streaming.columns import Column
from mossp.app.streaming.medians import medians
from mossp.app.tables import (
    Faults,
    Table,
    TableError,
    check_known,
    check_target,
    numbers_in,
    target_of,
)

CHUNK = 2**16  # rows whose random numbers are drawn at once: they do not depend on blocks
MOST_VALUES = 1000  # different targets that are kept: with more, they are no classes
TRAIN, HELD_OUT, TEST = range(3)  # what a row is for; the second, where a strength is chosen
FOLD = 0.2  # of the training rows that are held out then

Told = Callable[[int, str], None]  # of rows done, and what is being done


class Learnt(NamedTuple):
    """What the passes find."""

    features: Features
    values: np.ndarray  # different targets, sorted: all of them if they are few
    counts: np.ndarray  # of training rows of each class, or of all of them
    sizes: np.ndarray  # how many rows are TRAIN, HELD_OUT and TEST, without those left out
    notes: list[str]  # what became of rows and values


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


class Usable:
    """The rows of a file that have what each row needs, by block; and how many have not."""

    def __init__(self, request: Request) -> None:
        self.request, self.left_out = request, 0
        self.columns: dict[str, None] = {}  # that were missed

    def of(self, table: Table, among: np.ndarray | None = None) -> tuple[Table, np.ndarray]:
        """(the rows of a block that are of use, which ones these are), perhaps among some."""
        without = needed_and_missing(self.request, table)
        keep = ~np.any(list(without.values()), axis=0) if without else np.ones(table.rows, bool)
        self.left_out += int((~keep).sum())
        self.columns |= {name: None for name, missing in without.items() if missing.any()}
        keep = keep if among is None else keep & among
        return table if keep.all() else table.at(keep), keep

    def notes(self, path: Any) -> list[str]:
        """What is told of the others."""
        return [left_out_note(path, self.left_out, list(self.columns))] if self.left_out else []


def learn(request: Request, blocks: Blocks, parts: Parts, told: Told) -> Learnt:
    """Passes over all rows; what is wrong with a row is told with its number."""
    columns: list[Column] | None = None
    values: set = set()
    sparse: set[int] = set()
    counts: dict[Any, int] = {}
    sizes, width, usable = np.zeros(3, int), 0, Usable(request)
    for start, whole in blocks.each():
        told(start, "looking at columns")
        table, keep = usable.of(whole)
        part = parts.of(start, start + whole.rows)[keep]
        sizes += np.bincount(part, minlength=3)
        if not table.rows:
            continue
        y = target_of(table, request.target)
        if len(values) <= MOST_VALUES:
            values |= set(np.unique(y).tolist())
        if table.X is not None:
            sparse |= set(np.unique(table.X.indices).tolist())
            width = table.X.shape[1]
            continue
        if columns is None:
            columns = columns_of(request, table)
        faults = Faults(blocks.path)
        for column in columns:
            with faults.kept():
                column.add(table, part != TEST)
        faults.tell()
    if not sizes.sum():
        raise nothing_left(blocks.path)

    def each(doing: str) -> Iterator[tuple[Table, np.ndarray]]:
        """The training rows of every block, and their targets."""
        for start, whole in blocks.each():
            told(start, doing)
            table, _ = usable.of(whole, parts.of(start, start + whole.rows) != TEST)
            if table.rows:
                yield table, target_of(table, request.target)

    notes = usable.notes(blocks.path)
    if columns is None:
        plain = unscaled(((f"x{j + 1}", None) for j in sorted(sparse)), width or None)
    else:
        plain = encoded(request, columns, lambda: (table for table, _ in each("medians")))
    if text := next((q for q in values if isinstance(q, str)), None):
        check_few(values, text, blocks, request)
    moments = Moments()
    for table, target in each("centres and scales"):
        moments.add(plain.raw(table))
        y, n = np.unique(target, return_counts=True)
        for value, count in zip(y.tolist(), n.tolist(), strict=True):
            if len(counts) <= MOST_VALUES:
                counts[value] = counts.get(value, 0) + count
    if not moments.count:
        raise TableError(f"No row of {blocks.path} is left to fit to: give a smaller --test.")
    if request.no_standardize:
        features = plain
    else:
        centre, scale = moments.result()
        features = dataclasses.replace(plain, centre=tuple(centre), scale=tuple(scale))
    known = np.array(sorted(values))
    each_class = np.array([counts.get(value, 0) for value in known.tolist()])
    return Learnt(features, known, each_class, sizes, [*notes, *features.notes])


def columns_of(request: Request, table: Table) -> list[Column]:
    """The columns that become features."""
    check_target(table, request.target)
    exclude = excluded_from(table, request)
    check_known(table, exclude)
    check_asked(table, request.cycles, request.dates)
    unwanted, impute = {request.target, *exclude}, request.missing == "impute"
    return [
        Column(table.path, name, impute, request.dates, request.cycles.get(name, ()))
        for name in table.columns
        if name not in unwanted
    ]


def encoded(
    request: Request, columns: list[Column], each: Callable[[], Iterable[Table]]
) -> Features:
    """How columns become features, before they are standardised."""
    faults, codings = Faults(columns[0].path if columns else request.train), {}
    fill: dict[str, float | str] = {}
    impute = request.missing == "impute"
    for column in columns:
        with faults.kept():
            codings[column.name] = column.coding()
            if impute:
                fill[column.name] = column.typical(codings[column.name])
    faults.tell()
    numbers = [column for column in columns if fill.get(column.name, "") is None]

    def values(table: Table) -> np.ndarray:
        found = []
        for column in numbers:
            coding = codings[column.name]
            if isinstance(coding, Dates):
                found.append(coding.counted(table, column.name, missing=True))
            else:
                found.append(numbers_in(table, column.name, missing=True))
        return np.column_stack(found)

    if numbers:
        middle = medians(lambda: map(values, each()), np.array([column.rows for column in numbers]))
        fill |= {c.name: float(v) for c, v in zip(numbers, middle, strict=True)}
    flagged = [column.name for column in columns if impute and column.gaps]
    return unscaled(codings.items(), None, fill, flagged)


def unscaled(
    columns: Iterable[tuple[str, Coding]], width: int | None,
    fill: dict[str, float | str] | None = None, flagged: Iterable[str] = (),
) -> Features:  # fmt: skip
    """Features as they are."""
    columns, flagged = tuple(columns), tuple(flagged)
    n = len(names_of(columns, flagged))
    if not n:
        raise TableError("No column is left to be a feature.")
    return Features(columns, (0.0,) * n, (1.0,) * n, width, tuple((fill or {}).items()), flagged)


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
