"""The KKT residual: what is evaluated at a point x with multipliers q.

For any t > 0, (x, q) is a KKT pair of  min f + h - g  s.t.  c_E = 0, c_I <= 0  if and only if

    R(x, q) = x - prox_{t h}(x - t W) = 0,    W = grad f(x) + J(x)'q - grad g(x)
    c_E(x) = 0,    min(q_I, -c_I(x)) = 0

t does not change the solutions, but it changes R elsewhere: it is a part of every evaluation.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from typing import Any

import numpy as np

from mossp.certificates.certificate import scales
from mossp.certificates.feasibility import on_host
from mossp.certificates.first_order import first_order
from mossp.certificates.linearization import FEW, constraints_and_jacobian, values
from mossp.certificates.stationarity import ACTIVE, bounded_least_squares
from mossp.newton.linear import LinearLoss, linear_loss
from mossp.newton.linear_mean import LOSS, LinearMean, linear_mean
from mossp.newton.linear_terms import LinearTerms, linear_terms
from mossp.oracles import Oracles

# The move of v, relative to its size, that shows which entries of prox_{t h}(v) depend on v: large
# beside rounding, small beside the distance to the next kink.
PROBE = 1e-6


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """All that Newton's method needs to know of a pair (x, q), for one t."""

    x: np.ndarray
    q: np.ndarray
    t: float
    F: float
    gradient: np.ndarray  # of f
    W: np.ndarray
    c: np.ndarray
    J: np.ndarray  # one row per constraint
    kkt: KKT

    @property
    def is_equality(self) -> np.ndarray:
        return self.kkt.is_equality

    @functools.cached_property
    def p(self) -> np.ndarray:
        """prox_{t h}(x - t W)."""
        found = self.kkt.regularizer.prox_h(self.x - self.t * self.W, self.t)
        return np.asarray(found, np.float64)

    @functools.cached_property
    def free(self) -> np.ndarray:
        """The entries in which p moves with x - t W: the others stay at a kink of h."""
        v = self.x - self.t * self.W
        moved = v + self.kkt.aside * (PROBE * (1 + max(v.max(), -v.min())))
        return np.asarray(self.kkt.regularizer.prox_h(moved, self.t)) != self.p

    @functools.cached_property
    def residual(self) -> float:
        """The largest of ||R|| / t, the violation and the slack; infinite where one is not finite.

        ||R|| / t rather than ||R||: it is a subgradient's length, and does not vanish with t.
        """
        parts = [(self.x - self.p) / self.t, self.violated, self.slack]
        finite = np.isfinite(self.F) and all(np.isfinite(part).all() for part in parts)
        return max(float(np.linalg.norm(part)) for part in parts) if finite else np.inf

    @functools.cached_property
    def violated(self) -> np.ndarray:
        """(c_E, [c_I]_+)."""
        return np.where(self.is_equality, self.c, np.maximum(self.c, 0))

    @functools.cached_property
    def violation(self) -> float:
        return float(np.linalg.norm(self.violated))

    @functools.cached_property
    def slack(self) -> np.ndarray:
        """min(q_I, -c_I), which complementarity makes 0; 0 for equalities."""
        return np.where(self.is_equality, 0.0, np.minimum(self.q, -self.c))

    @property
    def s_g(self) -> np.ndarray:
        """The subgradient of g in W."""
        return self.gradient + self.q @ self.J - self.W


@dataclasses.dataclass(frozen=True)
class KKT:
    """The KKT conditions of a problem, with all of its data."""

    oracles: Oracles
    dtype: Any  # of x on the device; on the host everything is float64

    @classmethod
    def of(cls, oracles: Oracles, dtype: Any) -> KKT:
        """The one that is in use for these oracles: how f and c are evaluated is found out once."""
        key = id(oracles), np.dtype(dtype)
        found = _in_use.get(key)
        if found is None:
            found = _in_use[key] = cls(oracles, key[1])
        return found

    @functools.cached_property
    def regularizer(self) -> Any:
        return on_host(self.oracles)

    @functools.cached_property
    def linear(self) -> LinearLoss | LinearMean | None:
        """f, where it is a loss of predictions that are linear in x."""
        ready = linear_loss(self.oracles)
        return linear_mean(self.oracles, LOSS) if ready is None else ready

    @functools.cached_property
    def terms(self) -> LinearTerms | None:
        """c, where f and some constraints are means of predictions."""
        return linear_terms(self.oracles) if self.linear is not None else None

    @functools.cached_property
    def on_host(self) -> bool:
        """Whether f and the derivatives of prox_h need no compiled program of x."""
        return self.linear is not None and self.regularizer.separable

    @functools.cached_property
    def is_equality(self) -> np.ndarray:
        return np.asarray(self.oracles.is_equality)

    @functools.cached_property
    def aside(self) -> np.ndarray:
        """2 + cos(0, 1, 4, ...): no two entries move alike, so that a tie (a norm) shows.

        All move alike where no entry depends on another. In place, since x may be long.
        """
        if self.regularizer.separable:
            return np.full(1, 2.0)
        places = np.arange(float(self.oracles.structure.size))
        places *= places
        np.cos(places, out=places)
        places += 2
        return places

    @functools.cached_property
    def rows(self) -> int:
        """Samples that one evaluation differentiates."""
        return row_count(self.oracles)

    def evaluate(self, x: np.ndarray, q: np.ndarray, t: float) -> Evaluation:
        """One pass over the data."""
        point, reg = np.asarray(x, self.dtype), self.regularizer
        x = point.astype(float, copy=False)
        q = np.asarray(q, self.dtype).astype(float)
        if self.linear is None:
            f, gradient, c, J = first_order(self.oracles, point)
        else:  # by the products of a linear model: constraints are all that may be compiled
            (f, gradient), (c, J) = self.linear.first_order(x), self.constraints(x)
        W = gradient + q @ J - np.asarray(reg.subgradient_g(x))
        return Evaluation(x, q, t, f + float(reg(x)), gradient, W, c, J, self)

    def afresh(
        self, oracles: Oracles, x: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """(f, grad f, c, J) for a certificate: nothing that a search has computed is taken over.

        By the table of a linear model where polishing has made one, else by a program; so are
        constraints that are means by predictions, which remember their last point.
        """
        f = vars(self).get("linear")
        if not isinstance(f, LinearLoss) or not f.hosted:
            return first_order(oracles, x)
        if oracles is not self.oracles or self.terms is not None:
            return first_order(oracles, x)
        x = np.asarray(x, self.dtype).astype(float)
        return (*f.afresh(x), *self.constraints(x))

    def constraints(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(c, J), J with one row per constraint."""
        if not self.oracles.m:
            return np.zeros(0), np.zeros((0, len(x)))
        if self.terms is not None:
            return self.terms.first_order(x, self.dtype)
        found = constraints_and_jacobian(self.oracles, np.asarray(x, self.dtype))
        c, J = (np.array(a, np.float64) for a in found)
        return c, J

    def values(self, x: np.ndarray) -> np.ndarray:
        """c alone."""
        if self.oracles.m > FEW:
            return values(self.oracles, np.asarray(x, self.dtype))
        return self.constraints(x)[0]

    def with_multipliers(self, at: Evaluation, q: np.ndarray, t: float) -> Evaluation:
        """The same x with other multipliers, or another t: no pass over the data."""
        return dataclasses.replace(at, q=q, t=t, W=at.W + (q - at.q) @ at.J)

    def with_t(self, at: Evaluation, t: float) -> Evaluation:
        return self.with_multipliers(at, at.q, t)

    def multipliers(self, at: Evaluation, t: float = 0.0) -> np.ndarray:
        """Those that leave least of grad f + J'q + dh - dg over the nonzero entries of x.

        Of constraints that are active, or that a gradient step of length t might cross.
        """
        reach = t * np.linalg.norm(at.gradient) * np.linalg.norm(at.J, axis=1)
        rows = at.is_equality | (at.c >= -np.maximum(ACTIVE, reach))
        support = at.x != 0
        q = np.zeros(len(at.c))
        if not rows.any() or not support.any():
            return q
        r = at.gradient + np.asarray(self.regularizer.nearest(at.x, -at.gradient))
        lower = np.where(at.is_equality, -np.inf, 0.0)[rows]
        q[rows] = bounded_least_squares(at.J[rows][:, support].T, -r[support], lower)
        return q

    def nearest_subgradient(self, at: Evaluation) -> np.ndarray:
        """The element of dh(x) that leaves least of W + dh(x)."""
        return np.asarray(self.regularizer.nearest_h(at.x, -at.W), np.float64)

    def proved(self, at: Evaluation, s_h: np.ndarray) -> float:
        """The largest residual that is left with this element of dh(x)."""
        slack, u = np.linalg.norm(at.slack), np.linalg.norm(at.W + s_h)
        return max(at.violation, float(slack), float(u))

    def relative(self, at: Evaluation, u: np.ndarray) -> float:
        """The largest residual relative to its scale, as a certificate has them.

        u = W + s_h is the residual of stationarity.
        """
        shortest = np.asarray(self.regularizer.nearest_h(at.x, 0 * at.x))
        sizes, m_E = np.abs(at.J) @ np.abs(at.x), self.oracles.m_E
        S = scales(at.x, (at.gradient, at.s_g, shortest), at.c, at.q, sizes, m_E)
        parts = [np.linalg.norm(u) / S.criticality, at.violation / S.feasibility]
        worst = np.max([*parts, np.linalg.norm(at.slack) / S.complementarity])
        return float(worst) if np.isfinite(worst) and np.isfinite(at.F) else np.inf


# By the oracles, which live for as long as what is made of them does, and the precision.
_in_use: weakref.WeakValueDictionary[tuple[int, Any], KKT] = weakref.WeakValueDictionary()


def row_count(oracles: Oracles) -> int:
    """Samples in one pass over the data; a problem without data is one sample."""
    return oracles.rows_per_pass
