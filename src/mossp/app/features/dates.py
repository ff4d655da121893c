"""Columns of dates and times: numbers of stated units, and where in a year, week or day they are.

A date is the number of days since the earliest one of the training rows, a time of day alone the
number of hours since midnight. A cycle of the length P gives sin(2 pi t / P) and cos(2 pi t / P).
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mossp._base import layout
from mossp._base.printing import quoted
from mossp.app.tables import Table, TableError, check_none
from mossp.app.tables.table import polars_package

YEAR, WEEK, DAY = 365.2425, 7.0, 1.0  # in days
CYCLES = {"year": YEAR, "week": WEEK, "day": DAY}
THURSDAY = 3.0  # 1970-01-01 was one; weeks begin with Monday
EPOCH = datetime.date(1970, 1, 1)
# Orders of the parts, as they are written; the last two are told apart by the values.
FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y",
           "%m/%d/%y", "%d-%m-%Y", "%m-%d-%Y", "%d-%m-%y", "%m-%d-%y")  # fmt: skip
ORDERS = {"dmy": "%d", "mdy": "%m"}
TYPED, CLOCK = "typed", "clock"  # dates of Parquet, and times of day alone
PARTS = (
    r"^(?<date>\d[\d./-]*\d)?(?:(?:^|[T ])(?<hour>\d{1,2}):(?<minute>\d\d)"
    r"(?::(?<second>\d\d(?:\.\d+)?))?\s*(?<zone>Z|[+-]\d\d:?\d\d)?)?$"
)
FILE = {"format": str, "origin": float, "cycles": layout.Each(str)}


@dataclass(frozen=True)
class Dates:
    """How a column of dates is read.

    Attributes
    ----------
    format : str
        As for strptime; "typed" for a column that is of dates already, "clock" for times of day.
    origin : float
        What is counted from, in days since 1970-01-01.
    cycles : tuple of {"year", "week", "day"}
        Which positions are features as well.

    Examples
    --------
    >>> import pathlib, polars
    >>> from mossp.app.tables import Table
    >>> frame = polars.DataFrame({"joined": ["31.12.2023", "01.01.2024", "01.01.2025"]})
    >>> table = Table(pathlib.Path("clients"), frame)
    >>> dates = Dates.learn(table, "joined", np.arange(3))
    >>> dates.unit, dates.columns(table, "joined").ravel().tolist()
    ('days since 2023-12-31', [0.0, 1.0, 367.0])
    """

    format: str
    origin: float
    cycles: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """What one of its numbers counts, in words."""
        if self.format == CLOCK:
            return "hours since midnight"
        return f"days since {EPOCH + datetime.timedelta(days=self.origin)}"

    @property
    def per_day(self) -> float:
        """How many of its units a day has."""
        return 24.0 if self.format == CLOCK else 1.0

    def counted(self, table: Table, name: str, missing: bool = False) -> np.ndarray:
        """The values in its units, NaN where they may be `missing`."""
        return self.per_day * (self.days(table, name, missing) - self.origin)

    def names(self, name: str) -> tuple[str, ...]:
        """Of the features: the column's, and two for each cycle."""
        around = (f"{name}: {part} of {cycle}" for cycle in self.cycles for part in ("sin", "cos"))
        return (name, *around)

    @classmethod
    def learn(
        cls, table: Table, name: str, rows: np.ndarray, missing: bool = False,
        order: str | None = None, cycles: Sequence[str] = (),
    ) -> Dates:  # fmt: skip
        """The way in which all values of a column can be read.

        Parameters
        ----------
        order : {"dmy", "mdy"}, optional
            Which it is where 5/6/2024 could be both.
        """
        ways = Ways(order)
        ways.add(table, name, rows, missing)
        return ways.settled(table.path, name, cycles)

    def days(self, table: Table, name: str, missing: bool = False) -> np.ndarray:
        """Days since 1970-01-01, with parts of days; of times of day their part of a day."""
        given = np.asarray(table.frame[name].is_not_null().to_numpy(), bool)
        days = _days(table.frame[name], self.format)
        if self.format != CLOCK and np.isnan(days[given]).any():
            days = _days_otherwise(table, name, days)
        wrong = np.isnan(days) & given
        if wrong.any():
            row = int(wrong.argmax())
            raise TableError(
                f"The column {quoted(name)} of {table.path} must hold dates such as "
                f"{self._example}, as in the training data, but row {table.number(row)} holds "
                f"{quoted(table.frame[name][row])}."
            )
        if not missing:
            check_none(table, name, np.isnan(days), "missing")
        return days

    def columns(self, table: Table, name: str, fill: float | None = None) -> np.ndarray:
        """The features; `fill`, in units of the first of them, where a value is missing."""
        values = self.counted(table, name, missing=fill is not None)
        values = np.where(np.isnan(values), 0.0 if fill is None else fill, values)
        days = values / self.per_day + self.origin
        angles = [
            2 * np.pi * (days + THURSDAY * (cycle == "week")) / CYCLES[cycle]
            for cycle in self.cycles
        ]
        around = [part for angle in angles for part in (np.sin(angle), np.cos(angle))]
        return np.column_stack([values, *around])

    @property
    def _example(self) -> str:
        moment = datetime.datetime(2024, 5, 31, 12, 30)
        if self.format in (TYPED, CLOCK):
            return str(moment.time() if self.format == CLOCK else moment.date())
        return moment.strftime(self.format)

    def to_meta(self) -> dict[str, Any]:
        return {"format": self.format, "origin": self.origin, "cycles": list(self.cycles)}

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> Dates:
        layout.check(meta, FILE, "features.columns")
        known = meta["format"] in (*FORMATS, TYPED, CLOCK) and set(meta["cycles"]) <= set(CYCLES)
        if not known or not abs(meta["origin"]) < 1e7:
            raise layout.LayoutError("dates of its features are not laid out as dates are")
        return cls(meta["format"], float(meta["origin"]), tuple(meta["cycles"]))


def _days(column: Any, way: str) -> np.ndarray:
    """Days since 1970-01-01; NaN where a value is missing or not written in this way."""
    pl = polars_package()
    if column.dtype.is_temporal():
        if column.dtype == pl.Time:
            parts = column.cast(pl.Int64).cast(pl.Float64) / 86_400e9
        elif column.dtype == pl.Duration:
            parts = column.dt.total_microseconds().cast(pl.Float64) / 86_400e6
        else:
            parts = column.cast(pl.Datetime("us")).cast(pl.Int64).cast(pl.Float64) / 86_400e6
        fits = (column.dtype in (pl.Time, pl.Duration)) == (way == CLOCK)
        days = parts.to_numpy().astype(float)
        return days if fits else np.full(len(days), np.nan)
    parts = column.cast(pl.String).str.extract_groups(PARTS).struct.unnest()

    def number(name: str) -> np.ndarray:
        return np.asarray(parts[name].cast(pl.Float64, strict=False).to_numpy(), float)

    clock = number("hour") / 24 + number("minute") / 1440 + np.nan_to_num(number("second")) / 86_400
    dated = np.asarray(parts["date"].is_not_null().to_numpy(), bool)
    if way == CLOCK:
        return np.where(dated, np.nan, clock)
    way = FORMATS[0] if way == TYPED else way  # the same dates as text are of the standard form
    digits = parts["date"].str.split("-" if "-" in way else "/" if "/" in way else ".")
    year = digits.list.get(0 if way.startswith("%Y") else 2, null_on_oob=True)
    right = year.str.len_chars() == (4 if "%Y" in way else 2)
    date = parts["date"].str.strptime(pl.Date, way, strict=False)
    zone = parts["zone"].str.replace("Z", "+0000").str.replace(":", "")
    sign = np.where(np.asarray(zone.str.starts_with("-").fill_null(False).to_numpy(), bool), -1, 1)
    hours = zone.str.slice(1, 2).cast(pl.Float64, strict=False).to_numpy()
    minutes = zone.str.slice(3, 2).cast(pl.Float64, strict=False).to_numpy()
    shift = sign * np.nan_to_num(hours / 24 + minutes / 1440)
    whole = np.array(date.cast(pl.Int32).cast(pl.Float64).to_numpy(), float)
    whole[~np.asarray(right.fill_null(False).to_numpy(), bool)] = np.nan
    return whole + np.nan_to_num(clock) - shift


class Ways:
    """The ways in which all values of a column of dates can be read, added in one piece or in many.

    Parameters
    ----------
    order : {"dmy", "mdy"}, optional
        Which it is where 5/6/2024 could be both.
    """

    def __init__(self, order: str | None = None) -> None:
        self.order = order
        self.first: dict[str, float] | None = None  # of each way the earliest of training rows
        self.read: dict[str, Any] = {}  # of each way a digest of all that was read
        self.example = ""

    def add(self, table: Table, name: str, rows: np.ndarray, missing: bool = False) -> None:
        """Take values into account; `rows` are those by which the origin is learnt."""
        column = table.frame[name]
        given = np.asarray(column.is_not_null().to_numpy(), bool)
        if not missing:
            check_none(table, name, ~given, "missing")
        if not given.any():
            return
        self.example = self.example or str(column.drop_nulls()[0])
        if self.first is None:
            self.first = dict.fromkeys(_ways_of(column), np.inf)
            self.read = {way: hashlib.sha256() for way in self.first}
        for way in list(self.first):
            days = _days(column, way)
            if not np.isfinite(days[given]).all():
                del self.first[way]
                continue
            self.read[way].update(days[given].tobytes())
            here = days[rows]
            here = here[np.isfinite(here)]
            self.first[way] = min(self.first[way], here.min(initial=np.inf))

    def settled(self, path: Path, name: str, cycles: Sequence[str] = ()) -> Dates:
        """The way, after all values; TableError where there is none, or more than one."""
        ways = list(self.first or ())
        if self.order is not None and len(ways) > 1:
            ways = [way for way in ways if way.startswith(ORDERS[self.order])] or ways
        if not ways:
            raise TableError(
                f"The column {quoted(name)} of {path} holds dates, but not all in one way: write "
                f"them as 2024-05-31, or exclude it (--exclude {quoted(name)}).",
                ("--exclude", name),
            )
        if len({self.read[way].digest() for way in ways}) > 1:
            raise TableError(
                f"The column {quoted(name)} of {path} holds dates such as {quoted(self.example)}, "
                "which may be day/month or month/day: say which (--dates dmy or --dates mdy)."
            )
        assert self.first is not None
        first = self.first[ways[0]]
        if not np.isfinite(first):
            raise TableError(
                f"The column {quoted(name)} of {path} has no value in the training rows: exclude "
                f"it (--exclude {quoted(name)}).",
                ("--exclude", name),
            )
        origin = 0.0 if ways[0] == CLOCK else float(np.floor(first))
        return Dates(ways[0], origin, tuple(cycles))


def _days_otherwise(table: Table, name: str, days: np.ndarray) -> np.ndarray:
    """The days of rows that are written in another way, if there is one way to read them."""
    ways = Ways()
    ways.add(table, name, np.arange(len(days)), missing=True)
    try:
        way = ways.settled(table.path, name).format
    except TableError:
        return days
    return days if way == CLOCK else _days(table.frame[name], way)


def _ways_of(column: Any) -> tuple[str, ...]:
    """In which values of this type may be written."""
    pl = polars_package()
    if column.dtype.is_temporal():
        return (CLOCK if column.dtype in (pl.Time, pl.Duration) else TYPED,)
    return (*FORMATS, CLOCK)
