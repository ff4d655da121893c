"""dist(0, grad f(x) + J(x) q + dh(x) - dg(x)), the shortest over all multipliers q.

With w = -(grad f + J q), this is the distance of w from the convex set S = dh(x) - dg(x). Its
square is convex and once differentiable in q, and piecewise quadratic for the usual regularisers:
a Gauss-Newton method on w - P_S(w) ends after a few steps.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from mossp.certificate import Certificate
from mossp.feasibility import constraints_and_jacobian
from mossp.problem import Oracles, Problem
from mossp.structure import Structure

Vector = Any

ACTIVE = 1e-6  # an inequality with c_I >= -ACTIVE may have a multiplier


def stationarity(problem: Problem, x: Any) -> float:
    """dist(0, grad f(x) + J(x) q + dh(x) - dg(x)) for any point x from any solver.

    The multipliers of inequalities are nonnegative, and zero where c_I(x) < -1e-6.

    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
    >>> mossp.stationarity(problem, np.array([-1.0, 0.0]))
    0.0
    >>> mossp.stationarity(problem, np.array([0.0, 1.0]))
    1.0
    """
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        if not oracles.exact:
            raise ValueError(
                "stationarity needs the full gradient, and a Sampler or a Stream has none: read "
                "result.certificate, which is estimated from fresh samples."
            )
        vector = jnp.asarray(Structure.of(x).ravel(x))
        return shortest_residual(oracles, vector, full_gradient(oracles, vector))[0]


@jax.jit
def full_gradient(oracles: Oracles, x: Vector) -> Vector:
    return oracles.full_gradient(x)


@jax.jit
def _residual(oracles: Oracles, x: Vector, w: Vector) -> Vector:
    """w - P_S(w)."""
    return w - oracles.regularizer.nearest(x, w)


@jax.jit
def _residual_directions(oracles: Oracles, x: Vector, w: Vector, J: Any) -> Any:
    """The derivative of w - P_S(w) along each row of J."""
    along = lambda v: jax.jvp(lambda w: _residual(oracles, x, w), (w,), (v,))[1]  # noqa: E731
    return jax.lax.map(along, J)


def shortest_residual(oracles: Oracles, x: Vector, g: Vector) -> tuple[float, np.ndarray]:
    """(the distance, the multipliers q that attain it)."""
    c, J = (np.asarray(a) for a in constraints_and_jacobian(oracles, x))
    g = np.asarray(g)
    least = np.where(np.arange(oracles.m) < oracles.m_E, -np.inf, 0.0)
    rows = (np.arange(oracles.m) < oracles.m_E) | (c >= -ACTIVE)
    J, least, q = J[rows], least[rows], np.zeros(rows.sum())

    def residual(q: np.ndarray) -> np.ndarray:
        return np.asarray(_residual(oracles, x, jnp.asarray(-(g + q @ J))))

    r = residual(q)
    for _ in range(50 if rows.any() else 0):
        w = jnp.asarray(-(g + q @ J))
        # r(q + p) ~ r - A p
        A = np.asarray(_residual_directions(oracles, x, w, jnp.asarray(J))).T
        p = bounded_least_squares(A, r, least - q)
        step, trial = 1.0, residual(q + p)
        while trial @ trial >= r @ r and step > 1e-6:
            step /= 2
            trial = residual(q + step * p)
        if trial @ trial >= r @ r:
            break
        q, r = np.maximum(q + step * p, least), trial
    full = np.zeros(oracles.m)
    full[rows] = q
    return float(np.linalg.norm(r)), full


def bounded_least_squares(A: np.ndarray, b: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """argmin ||A p - b|| subject to p >= lower."""
    if np.isneginf(lower).all():
        return np.linalg.lstsq(A, b, rcond=None)[0]
    return scipy.optimize.lsq_linear(A, b, (np.minimum(lower, 0.0) - 1e-300, np.inf)).x


def exact_certificate(oracles: Oracles, x: Vector, g: Vector) -> Certificate:
    """The strongest proof there is for x itself: y = x and the shortest u."""
    distance, q = shortest_residual(oracles, x, g)
    c, J = (np.asarray(a) for a in constraints_and_jacobian(oracles, x))
    violated = np.where(np.arange(oracles.m) < oracles.m_E, c, np.maximum(c, 0))
    c_I, q_I = c[oracles.m_E :], q[oracles.m_E :]
    return Certificate(
        criticality=distance,
        proximity=0.0,
        feasibility=float(np.linalg.norm(violated)),
        infeasible_stationarity=float(np.linalg.norm(violated @ J)),
        complementarity=float(np.linalg.norm(np.minimum(q_I, -c_I))),
        multipliers=oracles.named(q),
        smallest_multiplier=float(q_I.min()) if q_I.size else float("inf"),
        samples=None,
        form="exact",
    )
