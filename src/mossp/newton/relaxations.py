"""Critical points from answers without -g, which is what makes a problem not convex.

    min f + p h,    p = 3, 1, 1/4, 1/10, ...

has one minimum. h alone shrinks more than h - g does: the smaller its part p, the more entries it
leaves. Newton's method on f + h - g leads from each of these minima to a critical point; F along p
falls to the best of them and rises again as a rule. So a walk from p = 1 downwards, or upwards
where that leads no lower, ends where F has risen on both sides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mossp.newton.globalization import Polished
from mossp.newton.residual import KKT
from mossp.oracles import Oracles

Newton = Callable[..., Polished]  # newton(oracles, x, tol=None)

STRONGER, WEAKER = (3.0,), (0.25, 0.1, 0.03, 0.01)  # parts of h beside all of it
LIKELY = WEAKER[0]  # the part that leads to the best critical point more often than any other
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
        self.ended = False  # by the budget

    def one(self, x: np.ndarray) -> bool:
        """The part of h that is the likeliest to lead to the best critical point, alone."""
        self._from(LIKELY, x)
        return False

    def run(self, x: np.ndarray) -> bool:
        """All parts as far as they lead down; whether that settles which critical point it is."""
        x = self._from(1.0, x)
        for i, part in enumerate(WEAKER):
            if self.best is not None and self.endless(self.best):
                return self._trusted(x)  # F is the lower, the further the way: it says nothing
            before, middle = self.best, x
            x = self._from(part, x)
            if before is not None and self.best is before:
                if i == 0:
                    for part in STRONGER:
                        self._from(part, middle)
                return self._trusted(x)
        return self._trusted(x)

    def _from(self, part: float, x: np.ndarray) -> np.ndarray:
        """The answer to f + part h, from x; where that leads to is considered."""
        convex = self.oracles.relaxed(np.asarray(part, x.dtype))
        start = self.newton(convex, x, max(self.tol, ROUGH))
        found = self.newton(self.oracles, start.witness.x)
        self.ended |= bool(start.ended or found.ended)
        if found.residual <= self.tol and (
            self.best is None or found.value < self.best.value - LOWER * (1 + abs(found.value))
        ):
            self.best = found
        return start.witness.x

    def _trusted(self, x: np.ndarray) -> bool:
        return self.best is not None and not self.ended and KKT(self.oracles, x.dtype).on_host
