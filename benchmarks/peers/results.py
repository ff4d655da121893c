"""results.csv: a row a run, kept in the repository, replaced suite by suite."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import math
import platform
from pathlib import Path

FILE = Path(__file__).with_name("results.csv")
FEASIBLE = 1e-3  # an objective counts only where the violation is at most this
STATIONARY = 1e-3  # and a run has converged where the KKT residual is, too


@dataclasses.dataclass(frozen=True)
class Row:
    """A run, judged here; NaN where there is no such number, `note` says why."""

    suite: str
    problem: str
    solver: str
    seed: int = -1
    objective: float = math.nan
    violation: float = math.nan
    kkt: float = math.nan
    kkt_independent: float = math.nan
    seconds: float = math.nan
    first_call_seconds: float = math.nan
    import_seconds: float = math.nan
    all_in_seconds: float = math.nan  # of one solve in a new process, imports included
    converged: bool = False
    said: str = ""  # "yes" or "no" where the solver itself says whether it succeeded
    passes: float = math.nan
    tuning_seconds: float = math.nan
    trials: int = 0
    budget: str = ""
    note: str = ""
    date: str = ""
    processor: str = ""
    versions: str = ""

    @property
    def available(self) -> bool:
        return self.seed >= 0

    @property
    def feasible(self) -> bool:
        return self.violation <= FEASIBLE


TYPES = {f.name: f.type for f in dataclasses.fields(Row)}


def stamp() -> dict[str, str]:
    """The date and the processor, for all rows of a run."""
    return {"date": datetime.date.today().isoformat(), "processor": processor()}


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def text(value: object) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.10g}"
    return str(value)


def read(path: Path = FILE) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Row(**{k: parsed(k, v) for k, v in line.items()}) for line in csv.DictReader(file)]


def parsed(name: str, value: str) -> object:
    if TYPES[name] == "float":
        return float(value) if value else math.nan
    if TYPES[name] == "int":
        return int(value)
    return value == "True" if TYPES[name] == "bool" else value


def replace(suite: str, rows: list[Row], path: Path = FILE, part: bool = False) -> list[Row]:
    """Write the suite's rows in place of those it had, or of their problems' alone; all rows."""
    run = {row.problem for row in rows}
    kept = [row for row in read(path) if row.suite != suite or (part and row.problem not in run)]
    rows = sorted([*kept, *rows], key=lambda row: row.suite)  # stable: problems stay in order
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(TYPES)
        out.writerows([text(v) for v in dataclasses.astuple(row)] for row in rows)
    return rows
