"""The tables of docs/compared.md, made from results.csv and written between its markers."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np

from benchmarks.peers import counted
from benchmarks.peers.environments import ROOT
from benchmarks.peers.results import Row

PAGE = ROOT / "docs" / "compared.md"
BIG = 100.0  # of the merit that everyone is tuned by
EQUAL = 1e-6  # relative: merits that are closer are equal
EXACT = 1e-8  # residuals below this are equal
HEAD = ("problem", "solver", "objective", "violation", "KKT", "KKT, independent", "seconds",
        "all in", "")  # fmt: skip


def write(rows: list[Row], page: Path = PAGE) -> None:
    """Every suite's table in its place; a suite without rows says so."""
    text = page.read_text(encoding="utf-8")
    for suite in "abcd":
        begin, end = markers(suite)
        before, found, rest = text.partition(begin)
        _, also, after = rest.partition(end)
        if not found or not also:
            raise ValueError(f"{page.name} has no lines {begin!r} and {end!r}.")
        mine = [row for row in rows if row.suite == suite]
        text = f"{before}{begin}\n\n{table(mine)}\n\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def markers(suite: str) -> tuple[str, str]:
    return f"<!-- suite {suite}: written by make compare -->", f"<!-- end of suite {suite} -->"


def table(rows: list[Row]) -> str:
    if not rows:
        return "Not run yet."
    if rows[0].suite == "d":  # its problems are counted, not listed
        return counted.table(rows) + "\n\n" + provenance(rows)
    problems: dict[str, dict[str, list[Row]]] = collections.defaultdict(dict)
    for row in rows:
        problems[row.problem].setdefault(row.solver, []).append(row)
    lines = []
    for problem, solvers in problems.items():
        ours = solvers.get(counted.OURS, [])
        for k, (solver, runs) in enumerate(solvers.items()):
            lines.append([problem if k == 0 else "", solver, *cells(runs, ours)])
    return counted.markdown(HEAD, lines) + "\n\n" + provenance(rows)


def cells(runs: list[Row], ours: list[Row]) -> list[str]:
    """Medians, quartiles of the objective in brackets, and what is better than ours marked."""
    there = [row for row in runs if row.available]
    if not there:
        return ["N/A"] * 6 + [runs[0].note.removeprefix("N/A: ") or "N/A"]
    theirs, mine = middle(there), middle([row for row in ours if row.available])
    is_ours = there[0].solver == counted.OURS
    converged = 2 * sum(row.converged for row in there) > len(there)

    def marked(text: str, better: bool) -> str:
        return f"**{text}**{counted.LOST}" if better and not is_ours and bool(mine) else text

    feasible = theirs["violation"] <= 1e-3
    objective = "N/A"
    if feasible:
        low, high = quartiles(there, "objective")
        better = bool(mine) and merit(theirs) < merit(mine) - EQUAL * max(1.0, abs(merit(mine)))
        objective = marked(spread(theirs["objective"], low, high), better)
    residuals = []
    for name in ("kkt", "kkt_independent"):
        better = bool(mine) and feasible and theirs[name] < mine[name] and mine[name] > EXACT
        residuals.append(marked(small(theirs[name]), better))
    times = []
    for name in ("seconds", "all_in_seconds"):
        better = bool(mine) and converged and theirs[name] < mine[name]
        times.append(marked(f"{theirs[name]:.3g}", better))
    return [objective, small(theirs["violation"]), *residuals, *times, verdict(there, converged)]


def middle(rows: list[Row]) -> dict[str, float]:
    names = ("objective", "violation", "kkt", "kkt_independent", "seconds", "all_in_seconds")
    return (
        {name: float(np.median([getattr(row, name) for row in rows])) for name in names}
        if rows
        else {}
    )


def merit(of: dict[str, float]) -> float:
    return of["objective"] + BIG * of["violation"]


def quartiles(rows: list[Row], name: str) -> tuple[float, float]:
    low, high = np.quantile([getattr(row, name) for row in rows], [0.25, 0.75])
    return float(low), float(high)


def spread(value: float, low: float, high: float) -> str:
    """The median, and the quartiles where they differ in what is shown."""
    text = f"{value:.6f}"
    return text if high - low < 5e-7 else f"{text} [{low:.6f}, {high:.6f}]"


def small(value: float) -> str:
    if np.isnan(value):
        return "N/A"
    return "0" if value == 0 else f"{value:.0e}"


def verdict(rows: list[Row], converged: bool) -> str:
    notes = {row.note for row in rows if row.note}
    end = "; " + ", ".join(sorted(notes)) if notes else ""
    if all(np.isnan(row.kkt) for row in rows):
        return "no KKT point is meant" + end
    if converged:
        return end.removeprefix("; ")
    if np.median([row.violation for row in rows]) > 1e-3:
        return "**not feasible**" + end
    return "**not converged**" + end


def provenance(rows: list[Row]) -> str:
    """Who, when, where, with what."""
    there = [row for row in rows if row.available]
    dates, machines = ({getattr(r, name) for r in there} for name in ("date", "processor"))
    versions = sorted({v for r in there for v in pairs(r.versions)})
    seeds = max((row.seed for row in there), default=-1) + 1
    trials = max((row.trials for row in there), default=0)
    return (
        f"{', '.join(sorted(dates))}; {', '.join(sorted(machines))}; {trials} trials, {seeds} "
        f"seeds; {', '.join(versions)}."
    )


def pairs(versions: str) -> list[str]:
    words = versions.split()
    return [f"{a} {b}" for a, b in zip(words[::2], words[1::2], strict=True)]
