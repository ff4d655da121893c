"""Suite d as a table: problems solved, false successes and gradients, by noise and solver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from benchmarks.peers.results import Row

HEAD = ("gradient noise", "solver", "solved", "of", "said to be solved", "false successes",
        "gradients, median", "")  # fmt: skip
SOLVABLE, NOT = "solvable", "without an answer"
OURS = "mossp"
LOST = " ◂"  # behind what is better than ours


def markdown(head: Iterable[str], lines: list[list[str]]) -> str:
    """A table; numbers to the right."""
    head = list(head)
    rule = ["---", "---", *["---:"] * (len(head) - 3), "---"]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def table(rows: list[Row]) -> str:
    """`problem` is "family, noise s"; `passes` are gradients, infinite where it was not solved."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.problem.rpartition("noise ")[2], row.solver), []).append(row)
    most = {
        noise: max(sum(r.converged for r in mine) for (n, s), mine in groups.items() if n == noise)
        for noise, _ in groups
    }
    lines, last = [], None
    for (noise, solver), mine in groups.items():
        there = [row for row in mine if row.available]
        if not there:
            lines.append(["", solver, *["N/A"] * 5, mine[0].note.removeprefix("N/A: ")])
            continue
        found, ours = Count.of(there), Count.of(groups.get((noise, OURS), there))
        solvable = sum(SOLVABLE in row.note for row in there)
        lines.append([
            noise if noise != last else "", solver,
            marked(str(found.solved), found.solved > ours.solved, found.solved == most[noise]),
            str(solvable), "N/A" if found.mute else str(found.said),
            "N/A" if found.mute else marked(str(found.false), found.false < ours.false),
            marked(f"{found.cost:.0f}", found.cost < ours.cost) if found.solved else "N/A",
            "says nothing of success" if found.mute else "",
        ])  # fmt: skip
        last = noise
    return markdown(HEAD, lines)


class Count(NamedTuple):
    """What a solver did at one level of noise."""

    solved: int
    said: int
    false: int
    cost: float  # the median of the gradients, over what it solved
    mute: bool  # whether it never says if it succeeded

    @classmethod
    def of(cls, rows: list[Row]) -> Count:
        costs = [row.passes for row in rows if row.converged]
        return cls(
            len(costs),
            sum(row.said == "yes" for row in rows),
            sum(row.said == "yes" and not row.converged for row in rows),
            float(np.median(costs)) if costs else np.inf,
            all(not row.said for row in rows),
        )


def marked(text: str, lost: bool, best: bool = False) -> str:
    return f"**{text}**{LOST if lost else ''}" if lost or best else text
