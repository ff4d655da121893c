"""dist(0, grad f(x) + J(x) q + dh(x) - dg(x)), the shortest over all multipliers q.

With w = -(grad f + J q), this is the distance of w from the convex set S = dh(x) - dg(x). Its
square is convex and once differentiable in q, and piecewise quadratic for the usual regularisers:
a Gauss-Newton method on w - P_S(w) ends after a few steps.
"""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # scipy.optimize takes long to import, and is where it is first used

from mossp._base.device import on_device
from mossp._base.programs import compiled
from mossp._base.structure import Structure
from mossp._base.types import (
    AnyVector,
    HostArray,
    HostMultipliers,
    HostVector,
    Jacobian,
    PyTree,
    Vector,
)
from mossp.certificates.blocks import standard_errors
from mossp.certificates.certificate import Certificate, certificate
from mossp.certificates.feasibility import on_host
from mossp.certificates.linearization import FEW as FEW_CONSTRAINTS
from mossp.certificates.linearization import linearized_on
from mossp.certificates.residuals import assembled
from mossp.oracles import Oracles
from mossp.problem import Problem, check_problem, checked_point

ACTIVE = 1e-6  # an inequality with c_I >= -ACTIVE may have a multiplier
MOST_STEPS = 100
ROUNDING = 1e-14  # of ||r||^2: a promised decrease by less is none
FEW = 32  # multipliers that are differentiated one by one


def stationarity(problem: Problem, x: PyTree) -> float:
    """Distance of 0 from `grad f(x) + J(x) q + dh(x) - dg(x)`, for any x from any solver.

    The multipliers of inequalities are nonnegative, and zero where `c_I(x) < -1e-6`.

    Parameters
    ----------
    problem : Problem
        With data that have a full gradient: no Sampler and no Stream.
    x : array or pytree of arrays
        The point.

    Returns
    -------
    float
        The shortest distance over all multipliers q.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
    >>> mossp.stationarity(problem, np.array([-1.0, 0.0]))
    0.0
    >>> mossp.stationarity(problem, np.array([0.0, 1.0]))
    1.0
    """
    check_problem("stationarity", problem)
    x = checked_point("x", x)
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        if not oracles.finite_sum:
            raise ValueError(
                "stationarity needs the full gradient, and a Sampler or a Stream has none: read "
                "result.certificate, which is estimated from fresh samples."
            )
        vector = on_device(Structure.of(x).ravel(x))
        shortest, _ = shortest_residual(oracles, vector, full_gradient(oracles, vector))
        return float(np.linalg.norm(shortest))


@compiled
def full_gradient(oracles: Oracles, x: Vector) -> Vector:
    """Of f; minus a subgradient of E[g] where the objective has such a part."""
    return oracles.slope(x)


@np.errstate(over="ignore", invalid="ignore")
def shortest_residual(
    oracles: Oracles, x: AnyVector, g: AnyVector, near: float = ACTIVE,
    estimates: tuple[HostArray, HostArray] | None = None,
) -> tuple[HostVector, HostMultipliers]:  # fmt: skip
    """(the shortest -u, the multipliers q that attain it).

    An inequality with c_I >= -near may have a multiplier. `estimates` are c and J where a caller
    knows them better than the oracles do.
    """
    is_equality = oracles.is_equality
    if estimates is None:
        _, rows, J = linearized_on(oracles, x, lambda c: is_equality | (c >= -near))
    else:
        rows = is_equality | (estimates[0] >= -near)
        J = estimates[1][rows]
    x, g, regularizer = np.asarray(x, np.float64), np.asarray(g, np.float64), on_host(oracles)
    least, q = np.where(is_equality, -np.inf, 0.0)[rows], np.zeros(rows.sum())

    def residual(q: HostArray) -> HostVector:
        """w - P_S(w)."""
        w = -(g + q @ J)
        return w - np.asarray(regularizer.nearest(x, w))

    def derivative(q: HostArray, r: HostVector) -> HostArray:
        """Of the residual, a column per multiplier. The pieces are linear: differences will do."""
        if len(q) > FEW:
            return np.asarray(_derivative(oracles, x, -(g + q @ J), J), np.float64).T
        sizes = 1e-6 * (1 + np.linalg.norm(g)) / np.maximum(np.linalg.norm(J, axis=1), 1e-300)
        moved = [residual(q + size * e) for size, e in zip(sizes, np.eye(len(q)), strict=True)]
        return (np.array(moved) - r).T / sizes

    r = residual(q)
    for _ in range(MOST_STEPS if rows.any() else 0):
        D = derivative(q, r)
        p = bounded_least_squares(D, -r, least - q)
        if r @ r - np.sum((r + D @ p) ** 2) <= ROUNDING * (r @ r):  # the shortest already
            break
        step, trial = 1.0, residual(np.maximum(q + p, least))
        while trial @ trial >= r @ r and step > 1e-6:
            step /= 2
            trial = residual(np.maximum(q + step * p, least))
        if trial @ trial >= r @ r:
            break
        q, r = np.maximum(q + step * p, least), trial
    full = np.zeros(oracles.m)
    full[rows] = q
    return r, full


@compiled
def _derivative(oracles: Oracles, x: AnyVector, w: AnyVector, J: Jacobian) -> Jacobian:
    """The same by differentiation, for many multipliers: it compiles a program."""
    residual = lambda w: w - oracles.regularizer.nearest(x, w)  # noqa: E731
    return jnp.nan_to_num(jax.vmap(lambda row: jax.jvp(residual, (w,), (-row,))[1])(J))


def bounded_least_squares(A: HostArray, b: HostArray, lower: HostArray) -> HostArray:
    """argmin ||A p - b|| subject to p >= lower."""
    if np.isneginf(lower).all():
        return np.linalg.lstsq(A, b, rcond=None)[0]
    if len(lower) > FEW:
        # p = lower + s with s >= 0, or p = s - s' where there is no bound: a thousandth of the time
        free = np.isneginf(lower)
        least = np.where(free, 0.0, np.minimum(lower, 0.0))
        with contextlib.suppress(RuntimeError):  # too many exchanges, as where columns are alike
            s = scipy.optimize.nnls(np.hstack([A, -A[:, free]]), b - A @ least)[0]
            p = least + s[: len(lower)]
            p[free] -= s[len(lower) :]
            return p
    return scipy.optimize.lsq_linear(A, b, (np.minimum(lower, 0.0), np.inf)).x


def shortest_certificate(oracles: Oracles, x: AnyVector, g: AnyVector) -> Certificate:
    """The strongest proof there is for x itself: y = x and the shortest u."""
    r, q = shortest_residual(oracles, x, g)
    return certificate_at(oracles, x, g, q, float(np.linalg.norm(r)))


@np.errstate(over="ignore", invalid="ignore")  # a point may be far away
def certificate_at(
    oracles: Oracles, x: AnyVector, g: AnyVector, q: HostMultipliers, criticality: float,
    error: float = 0.0, samples: int | None = None, seen: HostArray | None = None,
) -> Certificate:  # fmt: skip
    """The residuals of x = y with the multipliers q, once ||u|| is known.

    `seen` are independent estimates of c, one per row, where it has no exact value.
    """

    def matter(c: HostArray) -> HostArray:
        """All that a residual is made of."""
        return (oracles.m <= FEW_CONSTRAINTS) | oracles.is_equality | (c > 0) | (q != 0)

    c, rows, J = linearized_on(oracles, x, matter)
    c_error, sizes = None, np.zeros(oracles.m)
    sizes[rows] = np.abs(J) @ np.abs(np.asarray(x, np.float64))
    if seen is not None:
        c, c_error = seen.mean(axis=0), standard_errors(seen)
    x, g, regularizer = np.asarray(x, np.float64), np.asarray(g, np.float64), on_host(oracles)
    s_g, s_h = regularizer.subgradient_g(x), regularizer.nearest_h(x, 0 * x)
    found = assembled(
        oracles, x=x, c=c, q=q, terms=(g, np.asarray(s_g), np.asarray(s_h)),
        pull=lambda v: v[rows] @ J, sizes=sizes, criticality=criticality, error=error,
        proximity=0.0, objective=np.nan, c_error=c_error,
    )  # fmt: skip
    return certificate(oracles, found, samples, "exact")
