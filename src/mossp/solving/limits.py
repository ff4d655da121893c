"""Solves under a hard limit on the number of nonzeros, `mossp.Cardinality`.

The truncated l1 norm in its place has its minimum within the limit once lam is above the slopes of
f + q'c there. lam begins above those at the start and at 0, and is raised as long as the answer has
more nonzeros; if it still has, the largest units are kept, and the problem is solved over them.
Every point with few nonzeros is critical under such a lam, the start 0 among them: where all rows
are known, a search by exchanges (`mossp.solving.exchanges`) comes before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mossp._base.structure import Structure
from mossp.certificates.stationarity import full_gradient
from mossp.problem import Problem, checked_point
from mossp.regularizers import Box, Zero
from mossp.regularizers.base import Counted
from mossp.regularizers.strength import strengthened
from mossp.result import Result, Status, as_start
from mossp.solving.exchanges import Exchanges, searchable

FIRM = 10.0  # times the slopes: a strength at which no further entry enters
RAISED, TIMES = 10.0, 3  # lam, while the answer has too many nonzeros


Solve = Callable[[Problem, Any, dict[str, Any]], Result]


def solve_within(problem: Problem, x0: Any, settings: dict[str, Any], solved: Solve) -> Result:
    """The answer with at most k nonzeros.

    Parameters
    ----------
    problem : Problem
        Whose regulariser has a `Cardinality` in it.
    x0, settings
        As for `solve`.
    solved : callable
        solved(problem, x0, settings): a solve without a limit.
    """
    start = checked_point("x0", as_start(x0))
    structure = Structure.of(start)
    limits = problem.regularizer.on(structure.slices).counted(structure.size)
    factor = strength_within(problem, start)
    if searchable(problem, limits, settings) and problem.oracles(start).finite_sum:
        search = Exchanges(_raised(problem, factor), structure, limits[0], settings, solved)
        best = search.run(structure.ravel(start))
        x0, factor = best.x, max(factor, FIRM * float(np.abs(search.slopes(best)).max()))
        settings = {**settings, "starts": 1}
    result = solved(_raised(problem, factor), x0, settings)
    settings = {**settings, "checkpoint": None}  # which is of the first penalty
    for _ in range(TIMES):
        if result.status is Status.INTERRUPTED or within(limits, structure.ravel(result.x)):
            break
        factor *= RAISED
        result = solved(_raised(problem, factor), x0, settings)
    x = structure.ravel(result.x)
    if result.status is not Status.INTERRUPTED and not within(limits, x):
        result = over_units(problem, kept_units(limits, x), structure, settings, solved)
    return dataclasses.replace(
        result, settings={**result.settings, "regularizer": type(problem.regularizer).__name__}
    )


def _raised(problem: Problem, factor: float) -> Problem:
    return dataclasses.replace(problem, regularizer=strengthened(problem.regularizer, factor))


def strength_within(problem: Problem, start: Any) -> float:
    """A factor of lam that is above the slopes of f at the start and at 0, where they are known."""
    structure = Structure.of(start)
    with jax.enable_x64(True):
        oracles = problem.oracles(start)
        if not oracles.finite_sum:
            return FIRM
        x = structure.ravel(start, np.float64)
        slopes = [np.abs(np.asarray(full_gradient(oracles, p))).max() for p in (x, 0 * x)]
    steep = max((float(s) for s in slopes if np.isfinite(s)), default=1.0)
    return FIRM * max(steep, 1e-8)


def within(limits: list[Counted], x: np.ndarray) -> bool:
    """Whether no limit is exceeded."""
    return all(
        len(np.unique(limit.units[(limit.units >= 0) & (x != 0)])) <= limit.k for limit in limits
    )


def kept_units(limits: list[Counted], x: np.ndarray) -> np.ndarray:
    """Which entries may be nonzero if of every limit the k largest units are kept."""
    kept = np.ones(len(x), bool)
    for limit in limits:
        counts = limit.units >= 0
        sizes = np.bincount(limit.units[counts], x[counts] ** 2)
        largest = np.argsort(-sizes, kind="stable")[: limit.k]
        kept[counts] &= np.isin(limit.units[counts], largest)
    return kept


def over_units(
    problem: Problem, kept: np.ndarray, structure: Structure, settings: dict[str, Any],
    solved: Solve,
) -> Result:  # fmt: skip
    """The problem over the entries that are kept; the others are zero."""
    free = np.where(kept, np.inf, 0.0)
    narrow = dataclasses.replace(problem, regularizer=Box(Zero(), -free, free))
    result = solved(narrow, structure.unravel(np.zeros(len(kept))), settings)
    note = (
        "The penalty led to more nonzeros than allowed: the largest were kept, and the problem was "
        "solved over these; the certificate is of that."
    )
    return dataclasses.replace(result, message=f"{result.message} {note}")
