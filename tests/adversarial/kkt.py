"""Whether a point is what a result says it is, in NumPy with 80 bits and formulas of its own.

    dist(0, grad f(x) + J(x)'q + dh(x) - dg(x)) over q_E free, q_I >= 0 and 0 where c_I < 0

The residual w - P(w), w = -(grad f + J'q), is piecewise linear in q but for balls: Gauss-Newton
steps with nonnegative least squares find the shortest. The multipliers that the certificate gives
are tried too: any that will do are a proof.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from tests.adversarial.penalties import INF, Long, Penalty, Vector, length, long

# Residuals count against tol * max(1, S), as in `Certificate.is_kkt(relative=True)`. Rounding of 64
# bits in sums whose terms are as large as `magnitude` is allowed for on top, and 10 % for the
# difference between two ways to write S.
ROUNDING = 256 * float(np.finfo(np.float64).eps)
SLACK = 1.1
MOST_STEPS = 60


class Smooth(NamedTuple):
    """A value, its derivative, and how large the terms are that were added for them."""

    value: Any
    slope: Any
    magnitude: Any


def no_constraints(x: Vector) -> Smooth:
    return Smooth(long(np.zeros(0)), long(np.zeros((0, len(x)))), Long(0))


@dataclasses.dataclass(frozen=True)
class Reference:
    """A problem once more: f and c = (c_E, c_I) with derivatives, and the penalty."""

    f: Callable[[Vector], Smooth]
    penalty: Penalty
    c: Callable[[Vector], Smooth] = no_constraints
    m_E: int = 0
    rounding: float = ROUNDING  # of one operation in the run's precision, and some


@dataclasses.dataclass
class Judgement:
    """What is true of a result's point, as ratios to what is allowed: above 1 is wrong."""

    criticality: float
    violation: float
    fun: float  # how far result.fun is from the truth
    reported: float  # how far result.violation is from the truth
    inside: bool
    finite: bool
    norm: float = 0.0  # |q| of the multipliers that prove it

    @property
    def worst(self) -> float:
        return max(self.criticality, self.violation)


def judge(reference: Reference, x: Any, result: Any) -> Judgement:
    """The result's x (as a vector), fun, violation and certificate against the truth."""
    x, tol = long(x), Long(result.tol)
    if not np.isfinite(x).all():
        return Judgement(np.inf, np.inf, np.inf, np.inf, False, False)
    with np.errstate(all="ignore"):
        f, c = reference.f(x), reference.c(x)
        slopes = reference.penalty(x, tol * max(Long(1), length(x)))
    everything = (f.value, f.slope, c.value, c.slope)
    if not all(np.isfinite(part).all() for part in everything):
        return Judgement(np.inf, np.inf, np.nan, np.nan, slopes.inside, False)
    is_equality = np.arange(len(c.value)) < reference.m_E
    violation = length(np.where(is_equality, c.value, np.maximum(c.value, 0)))
    scale = max(Long(1), length(c.slope) * length(x))
    allowed = tol * scale + reference.rounding * c.magnitude
    criticality, q = shortest(reference, slopes, f, c, allowed, tol, result)
    fun = f.value + slopes.value
    terms = f.magnitude + slopes.size * length(x)
    return Judgement(
        criticality=float(criticality),
        violation=float(violation / (SLACK * allowed)),
        fun=float(abs(fun - result.fun) / (1e-9 + 1e-9 * abs(fun) + reference.rounding * terms)),
        reported=float(
            abs(violation - result.violation)
            / (1e-9 * (1 + violation) + reference.rounding * c.magnitude)
        ),
        inside=slopes.inside,
        finite=True,
        norm=float(length(q)),
    )


def shortest(
    reference: Reference, slopes: Any, f: Smooth, c: Smooth, active: Any, tol: Any, result: Any
) -> tuple[Any, Vector]:
    """The smallest ratio of ||u|| to what is allowed, and the multipliers that give it."""
    m, m_E = len(c.value), reference.m_E
    rays = long(slopes.rays).reshape(len(slopes.rays), f.slope.size)
    rows = np.concatenate([c.slope, rays])
    free = np.arange(len(rows)) < m_E
    usable = free | (np.arange(len(rows)) >= m)
    usable[m_E:m] = c.value[m_E:] >= -SLACK * active

    def residual(q: Vector) -> Vector:
        return slopes.away(-(f.slope + q @ rows))

    def ratio(q: Vector) -> Any:
        parts = [length(q_i * row) for q_i, row in zip(q, rows, strict=True)]
        S = max(Long(1), length(f.slope), sum(parts, Long(0)), slopes.size)
        rounding = reference.rounding * (f.magnitude + sum(parts, Long(0)) + slopes.size)
        return length(residual(q)) / (SLACK * (tol * S + rounding))

    zero = long(np.zeros(len(rows)))
    given = zero.copy()
    given[:m] = claimed(result, m)
    complementary = length(np.minimum(given[m_E:m], -c.value[m_E:])) <= SLACK * active
    if complementary and (given[m_E:] >= 0).all():
        starts = [zero, given]
    else:
        starts = [zero, np.where(free, given, np.maximum(given, 0) * usable)]
    found = [descend(residual, rows, q, free, usable) for q in starts]
    if complementary and (given[m_E:] >= 0).all():
        found.append(given)
    best = min(found, key=ratio)
    return ratio(best), best


def claimed(result: Any, m: int) -> Vector:
    """The certificate's multipliers as one vector; zeros where they are of no use."""
    named = result.certificate.multipliers
    leaves = [flat(named[name]) for name in ("equality", "inequality") if name in named]
    q = long(np.concatenate([np.zeros(0), *leaves]))
    return q if len(q) == m and np.isfinite(q).all() else long(np.zeros(m))


def flat(tree: Any) -> np.ndarray:
    """Dicts by their sorted names, as JAX orders them."""
    if isinstance(tree, dict):
        return np.concatenate([flat(tree[name]) for name in sorted(tree)])
    if isinstance(tree, (list, tuple)):
        return np.concatenate([flat(part) for part in tree])
    return np.ravel(tree)


def descend(residual: Any, rows: Vector, q: Vector, free: Any, usable: Any) -> Vector:
    """Gauss-Newton on |residual(q)|^2 with q >= 0 off `free` and q unchanged off `usable`."""
    r = residual(q)
    for _ in range(MOST_STEPS if usable.any() else 0):
        p = step(residual, rows, q, r, free, usable)
        length_now, t, trial = length(r), Long(1), r
        while t > 1e-9:
            trial = residual(np.where(free, q + t * p, np.maximum(q + t * p, 0)))
            if length(trial) < length_now:
                break
            t /= 4
        if not length(trial) < length_now:
            break
        q, r = np.where(free, q + t * p, np.maximum(q + t * p, 0)), trial
        if length(r) == 0:
            break
    return q


def step(residual: Any, rows: Vector, q: Vector, r: Vector, free: Any, usable: Any) -> Vector:
    """argmin |D p + r| with q + p >= 0 off `free`, D by differences: the pieces are linear."""
    p = 0 * q
    sizes = {j: length(rows[j]) for j in np.flatnonzero(usable)}
    columns = [j for j, size in sizes.items() if 0 < size < INF]
    if not columns:
        return p
    # Columns of about length 1: then p_j is in units of |row_j|.
    move = 1e-6 * (1 + length(r))
    D = np.stack([(residual(q + move / sizes[j] * unit(j, q)) - r) / move for j in columns], axis=1)
    now = long([q[j] * sizes[j] for j in columns])
    is_free = free[columns]
    target = -r + D[:, ~is_free] @ now[~is_free]
    A = np.concatenate([D[:, ~is_free], D[:, is_free], -D[:, is_free]], axis=1)
    top = max(length(target), Long(1e-300))
    try:
        z = long(scipy.optimize.nnls(A.astype(float), (target / top).astype(float))[0]) * top
    except RuntimeError:  # too many steps
        z = long(np.linalg.lstsq(A.astype(float), (target / top).astype(float))[0]) * top
    bounded, plus = int((~is_free).sum()), int(is_free.sum())
    change = long(np.zeros(len(columns)))
    change[~is_free] = z[:bounded] - now[~is_free]
    change[is_free] = z[bounded : bounded + plus] - z[bounded + plus :]
    for j, d in zip(columns, change, strict=True):
        p[j] = d / sizes[j]
    return p


def unit(j: int, like: Vector) -> Vector:
    e = 0 * like
    e[j] = 1
    return e
