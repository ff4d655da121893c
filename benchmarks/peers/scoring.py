"""Points of every solver judged alike, here and twice: by mossp.stationarity and by kkt.py."""

from __future__ import annotations

import math
from typing import Any

import mossp
from benchmarks.peers import kkt, ours, results
from benchmarks.peers.results import Row
from benchmarks.peers.statement import Statement

SAID = {-1: "", 0: "no", 1: "yes"}


def rows(
    given: Statement, problem: mossp.Problem, suite: str, solver: str, answer: dict[str, Any],
    job: dict[str, Any], **more: Any,
) -> list[Row]:  # fmt: skip
    """A row a seed of what a worker wrote."""
    found = []
    for seed, x in enumerate(answer["xs"]):
        x = kkt.tidied(given, x)
        objective, violation = given.objective(x), given.violation(x)
        residual, again = ours.stationarity(problem, x), kkt.residual(given, x)
        found.append(Row(
            suite, given.name, solver, seed, objective, violation, residual, again,
            **common(answer, seed, job),
            converged=violation <= results.FEASIBLE and max(residual, again) <= results.STATIONARY,
            **more,
        ))  # fmt: skip
    return found


def common(answer: dict[str, Any], seed: int, job: dict[str, Any]) -> dict[str, Any]:
    """What a row says besides the point's worth."""
    seconds = float(answer["seconds"][seed])
    first, imports = float(answer["first"]), float(answer["imports"])
    # The first call was a whole solve, unless it was stopped; or one step of those that end
    # with the budget.
    all_in = imports + (max(first, seconds) if answer["ends_itself"] else first + seconds)
    budget = f"{job['samples']} samples" if job.get("samples") else f"{job['seconds']:.3g} s"
    return {
        "seconds": seconds,
        "first_call_seconds": first,
        "import_seconds": imports,
        "all_in_seconds": all_in,
        "said": SAID[int(answer["said"][seed])],
        "passes": float(answer["passes"][seed]),
        "tuning_seconds": float(answer["tuning"]),
        "trials": job["trials"],
        "budget": budget,
        "versions": str(answer["versions"]),
        "note": f"stopped at {job['limit']:g} s" if seconds >= job["limit"] else "",
    }


def missing(suite: str, problem: str, solver: str, reason: object, **more: Any) -> Row:
    return Row(suite, problem, solver, note=f"N/A: {reason}", violation=math.nan, **more)
