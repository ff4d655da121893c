"""Suite d as a table: problems solved, false successes and gradients, by noise and solver."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.peers.results import Row

HEAD = ("gradient noise", "solver", "solved", "of", "said to be solved", "false successes",
        "gradients, median", "")  # fmt: skip
SOLVABLE, NOT = "solvable", "without an answer"


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
        solved = sum(row.converged for row in there)
        solvable = sum(SOLVABLE in row.note for row in there)
        said = sum(row.said == "yes" for row in there)
        false = sum(row.said == "yes" and not row.converged for row in there)
        costs = [row.passes for row in there if row.converged]
        mute = all(not row.said for row in there)
        lines.append([
            noise if noise != last else "", solver,
            f"**{solved}**" if solved == most[noise] else str(solved), str(solvable),
            "N/A" if mute else str(said), "N/A" if mute else str(false),
            f"{np.median(costs):.0f}" if costs else "N/A",
            "says nothing of success" if mute else "",
        ])  # fmt: skip
        last = noise
    return markdown(HEAD, lines)
