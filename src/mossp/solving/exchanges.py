"""At most k units that are not zero: which ones, searched for by exchanges under all constraints.

It begins with the largest units of a convex problem, lam |x|_1 in place of the limit. With x the
answer over some units, q its multipliers and h the diagonal of the Hessian of f, a quadratic model
of f + q'c says

    sum h_i x_i^2               what is lost, twice, where a unit inside leaves
    sum d_i^2 / h_i             what is gained, twice, where one outside enters, d = grad f + J q

and those with the least to lose are exchanged for those with the most to gain, as long as the
answer over the new units is better. At its end lam, above all slopes, makes the point critical.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from mossp._base.device import on_device
from mossp._base.programs import compiled
from mossp._base.structure import Structure
from mossp._base.types import Vector
from mossp.certificates.stationarity import full_gradient
from mossp.oracles import Oracles
from mossp.problem import Problem
from mossp.regularizers import Blocks, Box, Cardinality, Group, Nonnegative, Regularizer, Zero
from mossp.regularizers.base import Counted
from mossp.regularizers.combine import Relaxed
from mossp.result import Result, Status

Solve = Callable[[Problem, Any, dict[str, Any]], Result]

START = 0.1  # of a lam that is well above all slopes
HALVINGS = 12  # of the strength of the convex problem, until it has k units
TURNS = 50  # exchanges, at most
WEAKEST, LEADING = 3, 4  # of which all single exchanges are tried
PAYS = 1e-9  # relative: an exchange that gains less is none
EXACT, PROBES = 128, 32  # variables up to which h is exact; beyond, random vectors that estimate it


def searchable(problem: Problem, limits: list[Counted], settings: dict[str, Any]) -> bool:
    """Whether there is one limit, on a regulariser that is zero within it, and all rows are known.

    A method that was asked for by name is left alone.
    """
    auto = isinstance(settings["method"], str) and settings["method"] == "auto"
    if not auto or len(limits) != 1 or limits[0].k == 0 or settings["checkpoint"] is not None:
        return False
    return indicator(problem.regularizer) and problem.concave is None


def indicator(regularizer: Regularizer) -> bool:
    """Whether nothing but limits and signs is in a regulariser."""
    if isinstance(regularizer, Blocks):
        return all(indicator(part) for part in regularizer.blocks.values())
    if isinstance(regularizer, (Group, Nonnegative)):
        return indicator(regularizer.reg)
    return isinstance(regularizer, (Cardinality, Zero))


class Exchanges:
    """Answers over some of the units, and which units are better.

    Parameters
    ----------
    problem : Problem
        Whose lam is above the slopes at the start.
    structure : Structure
        Of x.
    limit : Counted
        The units, and how many of them may be nonzero.
    settings, solved
        As for `solve_within`.
    """

    def __init__(
        self, problem: Problem, structure: Structure, limit: Counted, settings: dict[str, Any],
        solved: Solve,
    ) -> None:  # fmt: skip
        self.problem, self.structure, self.solved = problem, structure, solved
        self.units, self.k = limit.units, limit.k
        self.settings = {**settings, "starts": 1, "replicas": 1}
        self.regularizer = problem.regularizer.on(structure.slices)
        negative = np.asarray(self.regularizer.prox_h(-np.ones(structure.size), 0.0)) < 0
        self.lower = np.where(negative, -np.inf, 0.0)
        self.seen: set[bytes] = set()

    def run(self, x: np.ndarray) -> Result:
        """The best answer that was found, over k units at most."""
        best = self.over(self.relaxed(x), x)
        for _ in range(TURNS):
            if best.status is Status.INTERRUPTED:
                break
            better = next((r for r in self.trials(best) if self.pays(r, best)), None)
            if better is None:
                break
            best = better
        return best

    def relaxed(self, x: np.ndarray) -> np.ndarray:
        """The units that a convex problem lets in first, as a mask of units."""
        share = START
        for _ in range(HALVINGS):
            easy = Relaxed(self.regularizer, share)
            result = self.solved(self.under(easy), self.structure.unravel(x), self.settings)
            x = self.structure.ravel(result.x)
            if np.count_nonzero(self.sizes(x**2)) >= self.k:
                break
            share /= 2
        sizes = self.sizes(x**2)
        kept = np.zeros(len(sizes), bool)
        kept[np.argsort(-sizes, kind="stable")[: self.k]] = True
        return kept

    def over(self, kept: np.ndarray, x: np.ndarray) -> Result:
        """The answer over the units that are kept; the others are zero."""
        self.seen.add(kept.tobytes())
        free = (self.units < 0) | kept[np.maximum(self.units, 0)]
        box = Box(Zero(), np.where(free, self.lower, 0.0), np.where(free, np.inf, 0.0))
        start = self.structure.unravel(np.where(free, x, 0.0))
        return self.solved(self.under(box), start, self.settings)

    def under(self, regularizer: Regularizer) -> Problem:
        return dataclasses.replace(self.problem, regularizer=regularizer)

    def trials(self, best: Result) -> Iterator[Result]:
        """Answers after exchanges that have not been tried, of many units first."""
        x = self.structure.ravel(best.x)
        lost, gained = self.model(x, best)
        weak, lead = np.argsort(lost, kind="stable"), np.argsort(-gained, kind="stable")
        weak, lead = weak[np.isfinite(lost[weak])], lead[gained[lead] > 0]
        count, exchanges = min(len(weak) // 2, len(lead)), []
        while count > 1:
            exchanges.append((weak[:count], lead[:count]))
            count //= 2
        single = [(j, e) for j in weak[:WEAKEST] for e in lead[:LEADING]]
        single.sort(key=lambda pair: lost[pair[0]] - gained[pair[1]])
        inside = np.isfinite(lost)
        for leaving, entering in [*exchanges, *((np.array([j]), np.array([e])) for j, e in single)]:
            kept = inside.copy()
            kept[leaving], kept[entering] = False, True
            if kept.tobytes() not in self.seen:
                yield self.over(kept, x)

    def model(self, x: np.ndarray, best: Result) -> tuple[np.ndarray, np.ndarray]:
        """What units inside lose (infinite outside), and those outside gain (0 inside)."""
        d = self.slopes(best)
        with jax.enable_x64(True):
            oracles = self.problem.oracles(best.x)
            h = np.abs(np.asarray(diagonal(oracles, on_device(x), self.directions(len(x)))))
        d = np.where((self.lower == 0) & (x == 0), np.minimum(d, 0.0), d)
        h = np.maximum(h, 1e-6 * max(float(h.max(initial=0.0)), 1e-300))
        inside = self.sizes(x**2) > 0
        lost, gained = self.sizes(h * x**2), self.sizes(d**2 / h)
        return np.where(inside, lost, np.inf), np.where(inside, 0.0, gained)

    def slopes(self, best: Result) -> np.ndarray:
        """grad f + J q at an answer."""
        multipliers = jax.tree.leaves(best.certificate.multipliers)
        q = np.concatenate([np.ravel(part) for part in multipliers] or [np.zeros(0)])
        with jax.enable_x64(True):
            oracles = self.problem.oracles(best.x)
            at = on_device(self.structure.ravel(best.x))
            return np.asarray(full_gradient(oracles, at)) + np.asarray(pulled(oracles, at, q))

    def directions(self, n: int) -> np.ndarray:
        """Vectors e with mean e * (H e) = the diagonal of H: unit vectors, or random signs."""
        if n <= EXACT:
            return np.sqrt(n) * np.eye(n)
        return np.random.default_rng(0).choice([-1.0, 1.0], (PROBES, n))

    def sizes(self, entries: np.ndarray) -> np.ndarray:
        """Sums over the entries of each unit."""
        counts = self.units >= 0
        return np.bincount(self.units[counts], entries[counts], self.units.max(initial=-1) + 1)

    def pays(self, new: Result, old: Result) -> bool:
        """Whether an answer is better: less violation first, then a lower objective."""
        if not np.isfinite(new.fun):
            return False
        allowed = max(old.tol, new.tol)
        if min(new.violation, old.violation) <= allowed < max(new.violation, old.violation):
            return bool(new.violation <= allowed)
        if min(new.violation, old.violation) > allowed:
            return bool(new.violation < (1 - 1e-6) * old.violation)
        return bool(new.success >= old.success and new.fun < old.fun - PAYS * (1 + abs(old.fun)))


@compiled
def pulled(oracles: Oracles, x: Vector, q: Vector) -> Vector:
    """J(x) q."""
    return oracles.pull(x, q)


@compiled
def diagonal(oracles: Oracles, x: Vector, E: Any) -> Vector:
    """The diagonal of the Hessian of f, by products with the rows of E."""

    def one(e: Vector) -> Vector:
        return e * oracles.along(oracles.full_gradient, x, e)

    return jax.numpy.mean(jax.lax.map(one, E), axis=0)
