"""Tables as Markdown and CSV: means with standard deviations, published values beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mossp.experiments.published import PUBLISHED, Published
from mossp.report import numbers


class Record(NamedTuple):
    """One contestant on one instance."""

    experiment: str
    data: str
    regularizer: str
    lam: float
    method: str  # "MoSSP-P"
    letter: str
    reading: str
    choice: dict[str, Any] | None  # of the grid
    run: dict[str, Any]

    def final(self, metric: str) -> np.ndarray:
        return np.array(self.run["final"][metric], np.float64)

    @property
    def published(self) -> Published | None:
        """The paper's numbers, where it has any for this problem."""
        table = PUBLISHED[self.experiment] if self.regularizer == "l1-l2" else {}
        return table.get((self.data, self.method))

    def reached(self, level: str) -> tuple[float, float] | None:
        """Mean gradients and seconds to the level; None unless every run met it."""
        each = self.run["reached"][level]
        return None if None in each else tuple(np.mean(each, axis=0).tolist())


class Table(NamedTuple):
    """Cells as text. `best` are (row, column) of the values in bold."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]
    best: set[tuple[int, int]]

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", "| | " + " | ".join(self.columns) + " |"]
        lines.append("|---" * (len(self.columns) + 1) + "|")
        for r, (name, cells) in enumerate(self.rows):
            bold = [f"**{c}**" if (r, k) in self.best else c for k, c in enumerate(cells)]
            lines.append(f"| {name} | " + " | ".join(bold) + " |")
        return "\n".join(lines)


def pm(values: Sequence[float] | np.ndarray, digits: int | None = None) -> str:
    """Mean and standard deviation: an objective with `digits` decimals, else a residual."""
    mean, spread = float(np.mean(values)), float(np.std(values))
    shown = numbers.residual(mean) if digits is None else numbers.fixed(mean, digits)
    return f"{shown} ± {numbers.residual(spread)}"


def comparison(records: list[Record]) -> list[Table]:
    """For one instance: a table a letter and a reading of alpha, MoSSP untuned beside it."""
    tables = []
    for letter, momentum in (("P", "Polyak"), ("R", "recursive")):
        mine = [r for r in records if r.letter == letter]
        for reading in dict.fromkeys(r.reading for r in mine if r.reading != "untuned"):
            group = [r for r in mine if r.reading in (reading, "untuned")]
            tables.append(one_table(group, f"{momentum} momentum, {reading} reading of α"))
    return tables


def one_table(group: list[Record], title: str) -> Table:
    columns = [r.method + (" untuned" if r.reading == "untuned" else "") for r in group]

    def row(name: str, cell: Callable[[Record], str]) -> tuple[str, list[str]]:
        return name, [cell(r) for r in group]

    def paper(which: str) -> Callable[[Record], str]:
        def cell(r: Record) -> str:
            found = r.published
            if found is None or r.reading == "untuned":
                return numbers.NONE
            mean, spread = getattr(found, which)
            shown = numbers.fixed(mean, 4) if which == "objective" else numbers.residual(mean)
            return f"{shown} ± {numbers.residual(spread)}"

        return cell

    def until(level: str, which: int) -> Callable[[Record], str]:
        def cell(r: Record) -> str:
            met = r.reached(level)
            if met is None:
                return "not met"
            return numbers.count(round(met[0])) if which == 0 else numbers.duration(met[1])

        return cell

    rows = [
        row("objective F", lambda r: pm(r.final("objective"), 6)),
        row("violation", lambda r: pm(r.final("violation"))),
        row("published objective", paper("objective")),
        row("published violation", paper("violation")),
        row("F restored − F*", lambda r: pm(r.final("gap"))),
        row("nonzeros", lambda r: numbers.fixed(r.final("nonzeros").mean(), 1)),
        row("exact stationarity", lambda r: numbers.residual(r.final("stationarity").mean())),
        row("certificate ‖u‖, ‖x − y‖", certificate),
        row("gradients to a KKT residual of 1e−2", until("0.01", 0)),
        row("gradients to a KKT residual of 1e−3", until("0.001", 0)),
        row("seconds to a KKT residual of 1e−2", until("0.01", 1)),
        row("seconds to a KKT residual of 1e−3", until("0.001", 1)),
        row("stochastic gradients", lambda r: numbers.count(r.run["cost"]["gradients"])),
        row("seconds", lambda r: numbers.fixed(r.run["cost"]["seconds"], 2)),
        row("settings", settings),
    ]
    rows = [(name, cells) for name, cells in rows if set(cells) != {numbers.NONE}]
    best = set()
    metrics = {"objective F": "objective", "violation": "violation", "F restored − F*": "gap"}
    for number, (name, _) in enumerate(rows):
        if name in metrics:
            means = [float(r.final(metrics[name]).mean()) for r in group]
            if np.isfinite(means).any():
                best.add((number, int(np.nanargmin(means))))
    return Table(title, columns, rows, best)


def certificate(record: Record) -> str:
    """Of the best run, as `result.certificate` has them."""
    seen = record.run["certificate"]
    return f"{numbers.residual(seen['criticality'])}, {numbers.residual(seen['proximity'])}"


def settings(record: Record) -> str:
    if record.choice is None:
        return "auto"
    return ", ".join(f"{name} {value:g}" for name, value in record.choice["values"].items())


def wins(records: list[Record], metric: str) -> tuple[int, int]:
    """(cells in which MoSSP, tuned like the others, has the lowest mean; cells)."""
    groups: dict[Any, list[Record]] = {}
    for r in records:
        if r.reading != "untuned":
            key = (r.experiment, r.data, r.regularizer, r.lam, r.letter, r.reading)
            groups.setdefault(key, []).append(r)
    won = 0
    for group in groups.values():
        means = [float(r.final(metric).mean()) for r in group]
        won += group[int(np.nanargmin(means))].method.startswith("MoSSP")
    return won, len(groups)


COLUMNS = (
    "experiment", "data", "regularizer", "lam", "method", "reading", "metric", "mean", "std",
    "published_mean", "published_std",
)  # fmt: skip


def as_csv(records: list[Record]) -> str:
    """Every cell as a line, with all digits; times are left out, which differ from run to run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for r in records:
        head = [r.experiment, r.data, r.regularizer, r.lam, r.method, r.reading]
        for metric in ("objective", "violation", "gap", "nonzeros", "stationarity"):
            values = r.final(metric)
            found = None if r.reading == "untuned" else r.published
            theirs = getattr(found, metric, ("", "")) if found else ("", "")
            writer.writerow([*head, metric, repr(float(values.mean())), repr(float(values.std())),
                             *theirs])  # fmt: skip
        for level in r.run["reached"]:
            met = r.reached(level)
            cell = "" if met is None else repr(met[0])
            writer.writerow([*head, f"gradients to {level}", cell, "", "", ""])
    return text.getvalue()
