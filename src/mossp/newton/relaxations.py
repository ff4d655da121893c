"""Critical points from answers without -g, which is what makes a problem not convex.

    min f + p h,    p = 1, 1/4, 1/10, 1/25, ...

has one minimum. h alone shrinks more than h - g does: the smaller its part p, the more entries it
leaves. Newton's method on f + h - g leads from each of these minima to a critical point, and as a
rule F falls along p to the best of these and rises again: there, a walk from p = 1 downwards ends.
Where already the first step leads up, one half way shows whether that rule holds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mossp.newton.globalization import Polished
from mossp.newton.residual import KKT
from mossp.oracles import Oracles

Newton = Callable[..., Polished]  # newton(oracles, x, tol=None)

LIKELY = 0.25  # the part that leads to the best critical point more often than any other
WEAKER = (LIKELY, 0.1, 0.04, 0.016, 0.006)  # parts of h after all of it: then h is next to none
LONG = 2**12  # entries of x
HALF_WAY = 0.5  # from all of it to the first of these
ROUGH = 1e-4  # the tolerance of answers without -g: that of a start
LOWER = 1e-9  # relative: ends whose F differ by less are one


class Walk:
    """One walk; `best` is the lowest critical point on it.

    Parameters
    ----------
    oracles : Oracles
        The problem.
    tol : float
        The largest relative residual of a critical point.
    newton : callable
        newton(oracles, x, tol=None), an attempt at polishing x.
    endless : callable
        Whether a point is on its way to infinity.
    """

    def __init__(
        self, oracles: Oracles, tol: float, newton: Newton, endless: Callable[[Polished], bool]
    ) -> None:
        self.oracles, self.tol, self.newton, self.endless = oracles, tol, newton, endless
        self.best: Polished | None = None
        self.higher = False  # whether the last part has led to a point above the best
        self.ended = False  # by the budget

    def one(self, x: np.ndarray) -> bool:
        """The part of h that is the likeliest to lead to the best critical point, alone.

        Of a long x that settles it: steps with noise, each of which takes as long as x is, end no
        lower.
        """
        self._from(LIKELY, x)
        return len(x) >= LONG and self._trusted(x)

    def run(self, x: np.ndarray) -> bool:
        """All parts as far as they lead down; whether that settles which critical point it is."""
        first = x = self._from(1.0, x)
        for i, part in enumerate(WEAKER):
            before = self.best
            if before is not None and self.endless(before):
                return self._trusted(x)  # F is the lower, the further the way: it says nothing
            x = self._from(part, x)
            if before is not None and self.best is before:
                return self._trusted(x) and (i > 0 or self._falls_to_all(first))
        last = self.best  # where F still falls, nothing is settled, unless it falls to infinity
        return last is not None and self.endless(last) and self._trusted(x)

    def _falls_to_all(self, x: np.ndarray) -> bool:
        """Whether F is no lower half way to the first part, where that has led up from p = 1."""
        before = self.best
        if not self.higher:
            return True
        self._from(HALF_WAY, x)
        return self.best is before and not self.ended

    def _from(self, part: float, x: np.ndarray) -> np.ndarray:
        """The answer to f + part h, from x; where that leads to is considered."""
        convex = self.oracles.relaxed(np.asarray(part, x.dtype))
        start = self.newton(convex, x, max(self.tol, ROUGH))
        found = self.newton(self.oracles, start.witness.x)
        self.ended |= bool(start.ended or found.ended)
        value = found.value if found.residual <= self.tol else np.inf
        lowest = np.inf if self.best is None else self.best.value
        slack = LOWER * (1 + abs(found.value))
        if value < lowest - slack:
            self.best = found
        self.higher = value > lowest + slack
        return start.witness.x

    def _trusted(self, x: np.ndarray) -> bool:
        return self.best is not None and not self.ended and KKT(self.oracles, x.dtype).on_host
