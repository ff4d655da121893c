"""What the columns of a table hold, and what stands for values that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mossp._base.printing import quoted
from mossp.app.features.dates import CYCLES, ORDERS, Dates
from mossp.app.features.levels import levels_of
from mossp.app.tables import (
    DATES,
    NUMBERS,
    Faults,
    Table,
    TableError,
    check_known,
    kind_of,
    missing_in,
    numbers_in,
    refused,
    texts_in,
)

Coding = tuple[str, ...] | Dates | None  # of a column: its levels, its dates, or numbers


class Learnt(NamedTuple):
    """The fields of `Features` of these names."""

    columns: tuple[tuple[str, Coding], ...]
    fill: tuple[tuple[str, float | str], ...]
    flagged: tuple[str, ...]


def names_of(columns: Iterable[tuple[str, Coding]], flagged: Iterable[str]) -> tuple[str, ...]:
    """Names of the features that columns become."""
    flags = frozenset(flagged)
    found: list[str] = []
    for name, coding in columns:
        if isinstance(coding, Dates):
            found += coding.names(name)
        else:
            found += [name] if coding is None else [f"{name}={level}" for level in coding]
        found += [f"{name} is missing"] * (name in flags)
    return tuple(found)


def learn_columns(
    table: Table, names: Sequence[str], rows: np.ndarray, impute: bool,
    cycles: Mapping[str, Sequence[str]], order: str | None,
) -> Learnt:  # fmt: skip
    """What each column holds in these rows; the faults of all of them are told at once."""
    check_asked(table, cycles, order)
    faults = Faults(table.path)
    columns: list[tuple[str, Coding]] = []
    fill: list[tuple[str, float | str]] = []
    for name in names:
        with faults.kept():
            coding = _coding_of(table, name, rows, impute, cycles.get(name, ()), order)
            columns.append((name, coding))
            if impute:
                fill.append((name, _typical(table, name, coding, rows)))
    faults.tell()
    flagged = tuple(name for name, _ in fill if missing_in(table, name)[rows].any())
    return Learnt(tuple(columns), tuple(fill), flagged)


def _coding_of(
    table: Table, name: str, rows: np.ndarray, missing: bool, cycles: Sequence[str],
    order: str | None,
) -> Coding:  # fmt: skip
    kind = kind_of(table, name)
    if kind == DATES:
        return Dates.learn(table, name, rows, missing, order, cycles)
    if cycles:
        raise TableError(f"--cyclic {quoted(name)} needs dates, but the column holds {kind}.")
    if kind == "text":
        return levels_of(table, name, rows, missing)
    if kind not in NUMBERS:
        raise refused(table, name, kind)
    numbers_in(table, name, missing)
    return None


def _typical(table: Table, name: str, coding: Coding, rows: np.ndarray) -> float | str:
    """What stands for a missing value: the median, or the most frequent level."""
    if isinstance(coding, tuple) and coding:
        texts = texts_in(table, name, missing=True)[rows].tolist()
        return max(coding, key=texts.count)
    if isinstance(coding, Dates):
        values = coding.counted(table, name, missing=True)[rows]
    else:
        values = np.zeros(0) if coding == () else numbers_in(table, name, missing=True)[rows]
    if not np.isfinite(values).any():
        raise TableError(
            f"The column {quoted(name)} of {table.path} has no value in the training rows: exclude "
            f"it (--exclude {quoted(name)}).",
            ("--exclude", name),
        )
    return float(np.nanmedian(values))


def check_asked(table: Table, cycles: Mapping[str, Sequence[str]], order: str | None) -> None:
    check_known(table, cycles)
    for name, around in cycles.items():
        for cycle in around:
            if cycle not in CYCLES:
                raise TableError(
                    f"The cycles of {quoted(name)} must be of {', '.join(CYCLES)}, but "
                    f"{quoted(cycle)} was given."
                )
    if order is not None and order not in ORDERS:
        raise TableError(f"--dates must be dmy or mdy, but {quoted(order)} was given.")
