"""The constraints of a problem, those that are means by predictions as products on the host.

The others (functions of x alone, means of a network) are differentiated as they always are.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import Vector
from mossp.newton.linear_mean import LinearMean, linear_mean
from mossp.oracles import Oracles
from mossp.terms import Terms, gradients


@dataclasses.dataclass(frozen=True)
class LinearTerms:
    """c, J and the Hessian of q'c, as far as it is one of means by predictions."""

    means: tuple[tuple[np.ndarray, LinearMean], ...]  # with the places of their entries in c
    others: Oracles | None  # the problem with the other constraints alone, if there are any
    left: np.ndarray  # the places of their entries
    m: int

    def first_order(self, x: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """(c, J)."""
        c, J = np.zeros(self.m), np.zeros((self.m, len(x)))
        if self.others is not None:
            found = _first_order(self.others, np.asarray(x, dtype))
            c[self.left], J[self.left] = (np.asarray(a, np.float64) for a in found)
        for places, mean in self.means:
            c[places], J[places] = mean.values_and_jacobian(x)
        return c, J

    def products(self, x: np.ndarray, q: np.ndarray, E: np.ndarray) -> np.ndarray:
        """Hess q'c(x) e for the rows e of E, over the means."""
        parts = [mean.products(x, E, q[p]) for p, mean in self.means if q[p].any()]
        return sum(parts, start=np.zeros(E.shape))

    def block(self, x: np.ndarray, q: np.ndarray, S: np.ndarray) -> np.ndarray:
        """Hess q'c(x) on the entries S, over the means."""
        parts = [mean.block(x, S, q[p]) for p, mean in self.means if q[p].any()]
        return sum(parts, start=np.zeros((len(S), len(S))))


def linear_terms(oracles: Oracles) -> LinearTerms | None:
    """None where no constraint is a mean by predictions."""
    terms = oracles.terms.terms
    ends = np.cumsum([0, *(term.size for term in terms)])
    places = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    found = {
        k: mean
        for k, term in enumerate(terms)
        if term.rows is not None and (mean := linear_mean(oracles, k)) is not None
    }
    if not found:
        return None
    rest = [k for k in range(len(terms)) if k not in found]
    others = None
    if rest:
        kept = Terms(tuple(terms[k] for k in rest), oracles.terms.structure)
        others = dataclasses.replace(oracles, terms=kept)
    left = np.concatenate([np.zeros(0, int), *(places[k] for k in rest)])
    means = tuple((places[k], mean) for k, mean in found.items())
    return LinearTerms(means, others, left, oracles.m)


@compiled
def _first_order(oracles: Oracles, x: Vector) -> tuple[Any, Any]:
    """c and J of the constraints that are left."""
    c, pull = oracles.linearized(x)
    return c, gradients(pull, c)
