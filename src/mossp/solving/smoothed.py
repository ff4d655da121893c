"""A concave part with kinks that a parameter smooths: solved smooth first, sharp at the end.

For delta = first, ..., last the problem with f - g_delta as one loss is solved, each from the
answer of the one before. From the last answer on it is g itself: DCA ends at a KKT point of the
problem as it was stated, or, where it does not arrive, the usual run goes on from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from mossp.expected import as_concave
from mossp.problem import Problem
from mossp.result import Result
from mossp.smoothing import Smooth, Smoothable
from mossp.solving.arguments import Arguments
from mossp.solving.ways import ASKED, better, with_costs

Solve = Callable[[Problem, Any, dict[str, Any]], Result]  # of a problem from x0, within a budget


def smooths(problem: Problem, a: Arguments) -> bool:
    """Whether the smoothed problem is solved first."""
    concave = as_concave(problem.concave)
    smoothable = concave is not None and isinstance(concave.function, Smoothable)
    return smoothable and a.exact and a.oracles.mergeable and a.checkpoint is None


def smoothed(problem: Problem, a: Arguments, solve: Solve, run: Callable[[Arguments], Result],
             usual: Callable[[Arguments], Result]) -> Result:  # fmt: skip
    """From the smoothed answers to one of the problem itself.

    `solve` solves another problem with what is left of the budget, `run` makes one run of this one,
    and `usual` solves it by all ways.
    """
    given = as_concave(problem.concave)
    assert given is not None and isinstance(given.function, Smoothable)
    g, x = given.function, a.x0
    tried: list[Result] = []
    for delta in g.deltas():
        left = remaining(a, tried)
        if left is None:
            break
        tried.append(solve(with_concave(problem, g.at(delta)), x, left))
        if tried[-1].status in ASKED:
            break
        x = tried[-1].x
    left = remaining(a, tried)
    sharp = dataclasses.replace(a, x0=x, **(left or {"seconds": 1e-9}))
    best = run(dataclasses.replace(sharp, steps=0))
    tried.append(best)
    if not best.success and best.status not in ASKED and left is not None:
        other = usual(sharp)
        tried.append(other)
        best = other if better(other, best) else best
    deltas = ", ".join(f"{delta:g}" for delta in g.deltas())
    note = f"It began with smoothed problems, delta = {deltas}."
    return with_costs(best, note, tried)


def with_concave(problem: Problem, g: Smooth) -> Problem:
    return dataclasses.replace(problem, concave=g)


def remaining(a: Arguments, tried: list[Result]) -> dict[str, Any] | None:
    """What is left of the budget; None where nothing is."""
    seconds = a.seconds - sum(r.seconds for r in tried)
    gradients = a.gradients - sum(r.gradients + 2 * r.hessian_products for r in tried)
    return {"seconds": seconds, "gradients": gradients} if min(seconds, gradients) > 0 else None
