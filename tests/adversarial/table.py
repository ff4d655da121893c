"""The one table that an attack ends with: a promise, how it was tested, tries and failures."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any


@dataclasses.dataclass
class Row:
    """One promise. A failure is a case in which it was not kept, in a sentence each.

    `explained` are those failures that a known limit, written in docs/reliability.md, accounts for.
    """

    promise: str
    how: str
    tries: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    explained: int = 0
    figures: str = ""

    def add(self, failure: str | None) -> None:
        self.tries += 1
        if failure:
            self.failures.append(failure)

    @property
    def unexplained(self) -> int:
        return len(self.failures) - self.explained


def share(whole: int, least: int = 1) -> int:
    """So many tries of `whole`, by the scale factor ATTACK (1 if it is not set)."""
    return max(least, round(whole * float(os.environ.get("ATTACK", "1"))))


def markdown(rows: list[Row]) -> str:
    lines = [
        "| what is promised | how it is tested | tries | failures | unexplained | figures |",
        "|---|---|---:|---:|---:|---|",
    ]
    lines += [
        f"| {r.promise} | {r.how} | {r.tries:,} | {len(r.failures)} | {r.unexplained} "
        f"| {r.figures} |"
        for r in rows
    ]
    return "\n".join(lines)


def details(rows: list[Row], most: int = 20) -> str:
    """The failures themselves, the first of each row."""
    lines = []
    for row in rows:
        if row.failures:
            lines.append(f"\n{row.promise}:")
            lines += [f"  {failure}" for failure in row.failures[:most]]
            if len(row.failures) > most:
                lines.append(f"  and {len(row.failures) - most} more")
    return "\n".join(lines)


def aligned(header: list[str], rows: list[list[Any]]) -> str:
    """Columns for a terminal."""
    table = [header, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def save(rows: list[Row], more: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = [markdown(rows), *more.values(), details(rows, most=10**6)]
    (folder / "attack.md").write_text("\n\n".join(text) + "\n")
    content = [dataclasses.asdict(row) for row in rows]
    (folder / "attack.json").write_text(json.dumps(content, indent=1) + "\n")
