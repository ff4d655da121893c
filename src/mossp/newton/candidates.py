"""Further answers, from where neither a run nor Newton's method gets by itself.

`from_strong`: the local solution that a path of falling strengths leads to. It is sparse, also
where the objective is lower far away.

`spliced`: for regularisers that are zero where at most k entries (or groups) are not. Any k of them
make a critical point if lam is large, and the best k are searched for: some are added while there
are fewer, then one is exchanged for another as long as that helps, chosen by what a quadratic model
says that it costs and gains (the splicing of Zhu et al., PNAS 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import Vector
from mossp.certificates.feasibility import into_domain, on_host
from mossp.newton.globalization import Polished
from mossp.newton.recession import leads_to_infinity
from mossp.newton.residual import row_count
from mossp.oracles import Oracles
from mossp.regularizers.base import Counted
from mossp.regularizers.strength import strengthened, strengths_in

Newton = Callable[..., Polished]  # newton(oracles, x, tol=None, patient=True)

# A path of strengths: each is FALL times the one before, near enough for Newton's method to follow;
# at most MOST_STRENGTHS, further apart where that does not suffice.
FALL, MOST_STRENGTHS = 0.8, 12
STRONGEST = 2.0**20  # times the strength given: where a doubling ends
# Slopes that a regulariser leaves over, relative to the largest, count as 0: rounding.
BALANCED = 1e-6
FIRM = 10.0  # times the strength that keeps every entry at 0: none enters at it
WEAKER = (0.25, 1 / 16)  # strengths whose largest entries are a start
ROUNDS = 8  # in which missing units are added
OUT, IN = 8, 3  # units that are taken out by turns, and those tried in their place
STEEPEST = 32  # units whose curvature is evaluated: those with the steepest slopes
# Curvature is at least this part of the largest: a step along it is not longer than that makes it.
CURVATURE = 1e-6
FITS = (8, 128)  # the fewest and the most, by the size of the data
NUMBERS = 2 * 10**7  # in the data behind all fits together: some ten seconds
ROUGH = 1e-5  # the residual of a fit: its square is what F is off by
PAYS = 1e-8  # relative: an exchange that gains less is none


def with_factor(oracles: Oracles, factor: float) -> Oracles:
    """The problem with its regulariser so many times as strong."""
    regularizer = strengthened(oracles.regularizer, factor)
    regularizer = jax.tree.map(
        lambda new, old: np.asarray(new, np.asarray(old).dtype), regularizer, oracles.regularizer
    )
    return eqx.tree_at(lambda o: o.regularizer, oracles, regularizer)


def strength_at_zero(oracles: Oracles, x: np.ndarray) -> float | None:
    """The factor, within 2, that would keep every entry at 0 against the slopes of f at x."""
    if not strengths_in(oracles.regularizer):
        return None
    w = -np.asarray(_slopes(oracles, x, np.zeros(oracles.m, x.dtype)), np.float64)
    zero, nearest_h = np.zeros(len(x)), on_host(oracles).nearest_h
    penalised = np.asarray(nearest_h(zero, np.ones(len(x)))) != 0
    factor = 1.0
    while penalised.any() and factor <= STRONGEST:
        left = w / factor - np.asarray(nearest_h(zero, w / factor))
        if np.abs(left[penalised]).max() <= BALANCED * np.abs(w).max() / factor:
            return factor
        factor *= 2
    return None


def from_strong(oracles: Oracles, x: np.ndarray, newton: Newton) -> Polished | None:
    """The critical point at the end of a path of strengths, from where x = 0 down."""
    zero = np.zeros_like(x)
    if not oracles.m and np.isfinite(float(on_host(oracles).h(zero))):
        x = zero
    factor = strength_at_zero(oracles, x)
    if factor is None:
        return None
    steps = min(MOST_STRENGTHS, int(np.ceil(np.log(factor) / -np.log(FALL))))
    for strength in np.geomspace(factor, 1.0, steps + 1)[1:-1].tolist():
        x = newton(with_factor(oracles, strength), x).witness.x
    return newton(oracles, x)


def spliced(
    oracles: Oracles, known: Polished | None, x: np.ndarray, tol: float, newton: Newton,
    stopped: Callable[[], bool],
) -> Polished | None:  # fmt: skip
    """The best critical point that exchanges lead to, from the one known and from other starts.

    It is `known` where nothing better was found, and None where no strength keeps entries at 0.

    Parameters
    ----------
    oracles : Oracles
        The problem, whose regulariser counts units (entries or groups).
    known : Polished or None
        The best critical point known.
    x : array
        Where to start if none is known.
    tol : float
        The largest relative residual of a critical point.
    newton : callable
        newton(oracles, x, tol=None, patient=True), an attempt at polishing x.
    stopped : callable
        Whether the budget has ended.
    """
    best = known
    points = (np.zeros_like(x), x if known is None else known.witness.x)
    factors = [factor for p in points if (factor := strength_at_zero(oracles, p)) is not None]
    if not factors:
        return None
    for counted in oracles.regularizer.counted(len(x)):
        if 0 < counted.k < len(np.unique(counted.units[counted.units >= 0])):
            start = x if best is None else best.witness.x
            search = Splicing(oracles, counted, FIRM * max(factors), tol, newton, stopped)
            found = search.run(start)
            if found is not None and not stopped():
                end = newton(oracles, found.witness.x)
                lower = best is None or end.value < best.value
                best = end if end.residual <= tol and lower else best
    return best


class Splicing:
    """The search for the k units with the lowest loss."""

    def __init__(
        self, oracles: Oracles, counted: Counted, firm: float, tol: float, newton: Newton,
        stopped: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.oracles, self.units, self.k, self.tol = oracles, counted.units, counted.k, tol
        # Up to k units cost nothing at any strength, and at this one no other comes in: polishing
        # then minimises over the units of its start.
        self.firm = with_factor(oracles, firm)
        self.regularizer, self.newton, self.stopped = on_host(oracles), newton, stopped
        numbers = row_count(oracles) * len(self.units)
        self.fits = int(np.clip(NUMBERS // numbers, *FITS))

    @property
    def over(self) -> bool:
        return self.fits <= 0 or self.stopped()

    def fit(self, x: np.ndarray) -> Polished | None:
        """The minimum over the units of x, if there is one."""
        self.fits -= 1
        tol = max(self.tol, ROUGH)
        found = self.newton(self.firm, x, tol, patient=False)
        if found.residual > tol and not self.over:
            self.fits -= 1
            found = self.newton(self.firm, found.witness.x, tol)
        return found if found.residual <= tol else None

    def sizes(self, x: np.ndarray) -> np.ndarray:
        """The length of every unit."""
        counts = self.units >= 0
        return np.sqrt(np.bincount(self.units[counts], (x[counts] ** 2.0)))

    def truncated(self, x: np.ndarray) -> np.ndarray:
        """x with its k largest units alone."""
        small = np.argsort(-self.sizes(x), kind="stable")[self.k :]
        return np.where(np.isin(self.units, small), 0, x)

    def run(self, x: np.ndarray) -> Polished | None:
        ends = [self.filled(start) for start in self.starts(x)]
        found = [end for end in ends if end is not None]
        if not found:
            return None
        best: Polished | None = min(found, key=lambda end: end.value)
        while best is not None and not self.over:
            last, best = best, self.exchanged(best)
        return last if best is None else best

    def starts(self, x: np.ndarray) -> Iterator[np.ndarray]:
        yield self.truncated(x)
        if self.oracles.m:
            return
        zero = into_domain(self.regularizer, np.zeros_like(x)).astype(x.dtype)
        if np.count_nonzero(x):
            yield zero
        for factor in WEAKER:
            if self.over:
                return
            self.fits -= 2
            x = self.newton(with_factor(self.oracles, factor), x).witness.x
            yield self.truncated(x)

    def filled(self, x: np.ndarray) -> Polished | None:
        """The fit to the units of x and to others until there are k."""
        found = self.fit(x)
        for round_ in range(ROUNDS):
            if found is None or self.over:
                return found
            room = self.k - np.count_nonzero(self.sizes(found.witness.x))
            if room <= 0:
                return found
            x = found.witness.x
            for _, move in self.entering(found)[: -(-room // (ROUNDS - round_))]:
                x = x + move
            more = self.fit(x.astype(found.witness.x.dtype))
            if more is None or not self.pays(more, found):
                return found
            found = more
        return found

    def pays(self, new: Polished, old: Polished) -> bool:
        """Whether it is lower, and not on its way to infinity."""
        lower = new.value < old.value - PAYS * (1 + abs(old.value))
        x, q = new.witness.x, new.witness.lam
        return lower and not leads_to_infinity(self.oracles, x, q, self.tol)

    def exchanged(self, best: Polished) -> Polished | None:
        """Better by one unit in another's place; None where no such exchange was found."""
        x, q = best.witness.x, best.witness.lam
        inside = np.flatnonzero(self.sizes(x))
        parts = np.array([np.where(self.units == unit, x, 0) for unit in inside])
        if not len(parts):
            return None
        cost = self.curvatures(x, q, parts)
        for i in np.argsort(cost, kind="stable")[:OUT].tolist():
            if self.over:
                return None
            without = self.fit((x - parts[i]).astype(x.dtype))
            if without is None:
                continue
            entering = [move for unit, move in self.entering(without) if unit != inside[i]]
            for move in entering[:IN]:
                if self.over:
                    return None
                trial = self.fit((without.witness.x + move).astype(x.dtype))
                if trial is not None and self.pays(trial, best):
                    return trial
        return None

    def entering(self, found: Polished) -> list[tuple[int, np.ndarray]]:
        """Units that are zero and the steps to where each is best, by what a step gains."""
        x, q = found.witness.x, found.witness.lam
        slopes = np.asarray(_slopes(self.oracles, x, q), np.float64)
        steps = into_domain(self.regularizer, x - slopes) - x
        steep = np.where(self.sizes(x) > 0, 0.0, self.sizes(steps))
        some = np.argsort(-steep, kind="stable")[: min(STEEPEST, int(np.sum(steep > 0)))]
        if not len(some):
            return []
        E = np.array([np.where(self.units == unit, steps / steep[unit], 0) for unit in some])
        along, curved = E @ slopes, self.curvatures(x, q, E)
        largest = curved.max(initial=0.0)
        curved = np.maximum(curved, CURVATURE * largest) if largest > 0 else np.ones_like(curved)
        order = np.argsort(-(along**2) / curved, kind="stable").tolist()
        return [(int(some[i]), -along[i] / curved[i] * E[i]) for i in order]

    def curvatures(self, x: np.ndarray, q: np.ndarray, E: np.ndarray) -> np.ndarray:
        """e'H e for the rows e of E."""
        rows = -(-len(E) // STEEPEST) * STEEPEST
        padded = np.zeros((rows, E.shape[1]), x.dtype)
        padded[: len(E)] = E
        parts = [
            np.asarray(_curvatures(self.oracles, x, q, padded[i : i + STEEPEST]), np.float64)
            for i in range(0, rows, STEEPEST)
        ]
        return np.concatenate(parts)[: len(E)]


@compiled
def _slopes(oracles: Oracles, x: Vector, q: Vector) -> Vector:
    """grad f(x) + J(x) q."""
    return oracles.slope(x) + oracles.linearized(x)[1](q)


@compiled
def _curvatures(oracles: Oracles, x: Vector, q: Vector, E: Any) -> Vector:
    def products(slopes: Callable[[Vector], Vector]) -> Any:
        return jax.vmap(lambda e: jax.jvp(slopes, (x,), (e,))[1])(E)

    H = jnp.zeros_like(E)
    for source, slope in oracles.slopes(q):
        along = lambda batch, s=slope: products(lambda x: s(x, batch))  # noqa: E731
        H = H + source.mean(along)
    return (E * H).sum(axis=1)
