"""Whether a point is on its way to infinity: the objective has no minimiser there.

On separable data the logistic loss falls for ever along some ray x + t d, and its gradient vanishes
on the way; a regulariser that is constant beyond some size (MCP, SCAD, capped l1, none at all) does
not stop it. However small the residual of a point on that ray, it is no answer. Two rays are tried,
both over the entries where the regulariser is flat: d = x, and Newton's direction, which leaves
entries alone that do have a limit. At a minimum that one is next to nothing.

A loss may also reach its minimum on a ray and stay there (a hinge): that is an answer. It gets
there at a certain length T, like (T - t)^p, and at 3 T / 4 is still well above; what tends to its
infimum is next to it by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import AnyVector
from mossp.certificates.feasibility import on_host
from mossp.certificates.linearization import values
from mossp.certificates.stationarity import ACTIVE
from mossp.newton.constraint_sets import are_many
from mossp.newton.hessian import Hessian, is_dense
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT
from mossp.newton.system import tangential
from mossp.oracles import Oracles

# Of x, by which it is lengthened. A point with a small gradient may be far from its minimum: if the
# loss rises at all along the ray, then within 1e12 times the length of x.
LENGTHS = tuple(4.0**j / 8 for j in range(22))
SOME_LENGTHS = LENGTHS[:6]  # of Newton's direction, whose errors grow with it
ROUNDING = 16  # units of rounding in a mean over the rows
SHORTEST = -52.0  # the logarithm to base 2 of the smallest length that is told from 0
SMALLEST = 1e-6  # the least part of x at which a loss that underflows at x is evaluated
HALVINGS = 12  # of the interval of such logarithms
EARLIER = 0.75  # of the length T at which a loss comes to its end: how near it is by then, decides
NEAR = 1 / 32  # of the way down that may be left at 3 T / 4: a smoothed hinge leaves a 16th

ADVICE = (
    "There is no minimiser: the loss falls for ever along a ray to infinity on which neither the "
    "regulariser nor a constraint grows (are the data separable?). Add a regulariser that grows "
    "(mossp.L1, or mossp.PlusRidge or mossp.Ball around this one), a constraint such as "
    "x @ x <= r, or take a larger lam."
)


class Point(NamedTuple):
    """What is evaluated at a point of a ray."""

    f: float
    penalty: float  # h - g
    h: float  # whose rounding the penalty has
    violation: float


@np.errstate(over="ignore", invalid="ignore")  # x may be most of the way there
def leads_to_infinity(
    oracles: Oracles, x: AnyVector, q: AnyVector, tol: float, meter: Meter | None = None
) -> bool:
    """Whether the objective falls from x to infinity on a ray, and on without end.

    Parameters
    ----------
    oracles : Oracles
        The problem, with its full gradients.
    x, q : array
        A point and its multipliers.
    tol : float
        The violation that is allowed, and the size of x below which it is no way to infinity.
    meter : Meter, optional
        Counts what the second ray, Newton's direction, costs; without it that one is not tried.
    """
    x, q = np.asarray(x), np.asarray(q)
    flat = flat_entries(oracles, x)
    if not flat.any():
        return False
    ray = np.where(flat, x, 0)
    if np.linalg.norm(ray) <= tol:  # nowhere near infinity: 0, as far as tol can tell
        return False
    if falls_without_end(oracles, x, ray, tol, LENGTHS):
        return True
    if meter is None or not is_dense(int(flat.sum())):
        return False
    newton, size = newton_direction(oracles, x, q, flat, meter), float(np.linalg.norm(ray))
    length = float(np.linalg.norm(newton))
    if not np.sqrt(np.finfo(x.dtype).eps) * size < length < np.inf:
        return False
    newton = newton * max(size / length, 1.0)
    return falls_without_end(oracles, x, newton, tol, SOME_LENGTHS)


def newton_direction(
    oracles: Oracles, x: np.ndarray, q: np.ndarray, flat: np.ndarray, meter: Meter
) -> np.ndarray:
    """Newton's step for f over some entries, along the constraints that hold with equality."""
    if oracles.concave is not None:
        oracles = oracles.linearised(np.asarray(_slope_of_g(oracles, x)))
    if are_many(oracles):
        places = np.flatnonzero(oracles.is_equality | (values(oracles, x) >= -ACTIVE))
        oracles, q = oracles.under(places), q[places]
    kkt = KKT.of(oracles, x.dtype)
    meter.pay(gradients=kkt.rows)
    at, (S,) = kkt.evaluate(x, q, 1.0), np.nonzero(flat)  # R is not used: any t will do
    H = Hessian(kkt, meter).block(at, S, np.zeros(len(x))).H
    K = at.J[at.is_equality | (at.c >= -ACTIVE)][:, S]
    direction, slopes = np.zeros(len(x)), at.gradient + at.q @ at.J
    direction[S] = tangential(H, K, -slopes[S], np.zeros(len(K)))[0]
    return direction


def flat_entries(oracles: Oracles, x: np.ndarray) -> np.ndarray:
    """The nonzero entries in which h - g has the slope 0."""
    regularizer = on_host(oracles)
    s_g = np.asarray(regularizer.subgradient_g(x), np.float64)
    s_h = np.asarray(regularizer.nearest_h(x, s_g), np.float64)
    resolution = ROUNDING * float(np.finfo(x.dtype).eps) * np.abs(s_g).max(initial=0.0)
    return (x != 0) & (np.abs(s_h - s_g) <= resolution)


def falls_without_end(
    oracles: Oracles, x: np.ndarray, ray: np.ndarray, tol: float, lengths: tuple[float, ...]
) -> bool:
    """Whether f falls along the ray, with nothing against it, and never reaches an end."""
    kkt = KKT.of(oracles, x.dtype)

    def at(t: float) -> Point:
        point = np.asarray(x + t * ray, x.dtype)
        if kkt.linear is not None:  # nothing is compiled for it
            f, reg = kkt.linear.value(point.astype(np.float64)), kkt.regularizer
            c = oracles.positive_part(kkt.values(point))
            return Point(f, float(reg(point)), float(reg.h(point)), float(np.linalg.norm(c)))
        return Point(*(float(value) for value in jax.device_get(_evaluate(oracles, point))))

    first = last = at(0.0)
    if not np.isfinite(first).all():
        return False
    eps = ROUNDING * float(np.finfo(x.dtype).eps)
    resolution = eps * abs(first.f)
    # What a convex f falls by from here on, it has fallen by as fast before. Where it has not, it
    # is constant (softmax, where all intercepts move together), and rounding would have a say.
    convex = oracles.relaxable and oracles.concave is None
    for t in lengths:
        now = at(t)
        flat = now.penalty <= first.penalty + eps * (now.h + first.h)
        feasible = now.violation <= max(tol, first.violation)
        falls = now.f <= last.f + resolution
        if not (np.isfinite(now).all() and flat and feasible and falls):
            return False
        if t == lengths[0] and convex and not at(-1.0).f - first.f > resolution:
            return False
        before, last = last, now
    way = first.f - last.f
    if way <= resolution:
        return underflows(at, first.f, eps)
    if before.f - last.f > resolution:
        return True
    low, high = SHORTEST, float(np.log2(lengths[-1]))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = at(2.0**middle).f - last.f > resolution
        low, high = (middle, high) if above else (low, middle)
    return at(EARLIER * 2.0**high).f - last.f <= NEAR * way


def underflows(at: Callable[[float], Point], end: float, eps: float) -> bool:
    """Whether a loss that no longer changes along the ray of x was next to nothing on its way."""
    size = 0.5
    while at(size - 1).f == end and size > SMALLEST:
        size /= 2
    left = at(size - 1).f - end
    return 0 < left <= eps * (at(-1.0).f - end)


@compiled
def _slope_of_g(oracles: Oracles, x: AnyVector) -> Any:
    return oracles.concave_slope(x)


@compiled
def _evaluate(oracles: Oracles, x: AnyVector) -> tuple[Any, ...]:
    reg = oracles.regularizer
    return oracles.full_value(x), reg(x), reg.h(x), oracles.violation(x)
