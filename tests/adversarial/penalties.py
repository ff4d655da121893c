"""h - g once more, in NumPy with 80 bits: its value, its domain and the set dh(x) - dg(x).

A penalty is a function of (x, delta) that returns a `Slopes`. The certificate may take the
subgradient of g at a point y near x, so that dg is the union over a ball of radius delta around x;
dh is taken at x alone. Where the exact union is awkward (ties of the k largest, l2 next to 0) a
slightly larger set stands for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Long = np.longdouble
Vector = Any
INF = Long(np.inf)
BALL_SLACK = 64 * float(np.finfo(np.float64).eps)  # |x| = R within rounding


def long(value: Any) -> Vector:
    return np.asarray(value, Long)


def length(v: Vector) -> Any:
    """The Euclidean norm; np.linalg would go back to 64 bits."""
    v = np.abs(long(v)).ravel()
    largest = v.max(initial=Long(0))
    if not 0 < largest < INF:
        return largest
    return largest * np.sqrt(((v / largest) ** 2).sum())


@dataclasses.dataclass
class Slopes:
    """What h - g is at one point."""

    value: Any  # h(x) - g(x)
    away: Callable[[Vector], Vector]  # w -> w - P(w), P the projection on dh(x) - dg(x)
    size: Any  # the largest norm among s_h and s_g
    inside: bool = True  # whether x is in the domain of h
    rays: tuple[Vector, ...] = ()  # directions whose nonnegative multiples belong to dh(x) as well


Penalty = Callable[[Vector, Any], Slopes]


def shortened(v: Vector, by: Any) -> Vector:
    """v - P(v) for the ball of this radius."""
    norm = length(v)
    return v * max(Long(0), 1 - by / norm) if norm > 0 else v


# Sums over the coordinates: h = sum s_i |x_i|, g = sum w_i value(|x_i|) -------------------------


@dataclasses.dataclass(frozen=True)
class Scalar:
    """s |t| - value(|t|), by s, value and its left and right derivatives."""

    slope: Any
    value: Callable[[Vector], Vector]
    left: Callable[[Vector], Vector]
    right: Callable[[Vector], Vector]


def smooth(slope: Any, value: Any, derivative: Any) -> Scalar:
    return Scalar(Long(slope), value, derivative, derivative)


def nothing() -> Scalar:
    return smooth(0, lambda a: 0 * a, lambda a: 0 * a)


def l1(lam: Any) -> Scalar:
    return smooth(lam, lambda a: 0 * a, lambda a: 0 * a)


def capped(lam: Any, theta: Any) -> Scalar:
    lam, theta = Long(lam), Long(theta)
    return Scalar(
        lam,
        lambda a: lam * np.maximum(a - theta, 0),
        lambda a: lam * (a > theta),
        lambda a: lam * (a >= theta),
    )


def mcp(lam: Any, gamma: Any) -> Scalar:
    lam, gamma = Long(lam), Long(gamma)
    return smooth(
        lam,
        lambda a: np.where(a <= gamma * lam, a * a / (2 * gamma), lam * a - gamma * lam * lam / 2),
        lambda a: np.minimum(a / gamma, lam),
    )


def scad(lam: Any, bend: Any) -> Scalar:
    lam, bend = Long(lam), Long(bend)

    def value(a: Vector) -> Vector:
        curved = np.maximum(a - lam, 0) ** 2 / (2 * (bend - 1))
        return np.where(a <= bend * lam, curved, lam * a - (bend + 1) * lam * lam / 2)

    return smooth(lam, value, lambda a: np.clip((a - lam) / (bend - 1), 0, lam))


def log_sum(lam: Any, theta: Any) -> Scalar:
    lam, theta = Long(lam), Long(theta)
    return smooth(
        lam / theta,
        lambda a: lam * a / theta - lam * np.log1p(a / theta),
        lambda a: lam / theta - lam / (theta + a),
    )


def transformed(lam: Any, a0: Any) -> Scalar:
    lam, a0 = Long(lam), Long(a0)
    slope = lam * (a0 + 1) / a0
    return smooth(
        slope,
        lambda a: slope * a - lam * (a0 + 1) * a / (a0 + a),
        lambda a: slope - lam * (a0 + 1) * a0 / (a0 + a) ** 2,
    )


def intervals(scalar: Scalar, x: Vector, delta: Any) -> tuple[Vector, Vector, Vector, Vector]:
    """(lowest, highest) slopes of h - g in every coordinate, and the largest of h and of g."""
    a = np.abs(x)
    low = scalar.left(np.maximum(a - delta, 0))
    high = scalar.right(a + delta)
    s = scalar.slope + 0 * a
    kink = a == 0
    lowest = np.where(kink, -s - high, np.where(x > 0, s - high, -(s - low)))
    highest = np.where(kink, s + high, np.where(x > 0, s - low, -(s - high)))
    return lowest, highest, s, high


def separable(
    scalar: Scalar, weights: Any = 1.0, lower: Any = -np.inf, upper: Any = np.inf
) -> Penalty:
    """sum_i w_i (s |x_i| - value(|x_i|)) with lower <= x <= upper."""

    def at(x: Vector, delta: Any) -> Slopes:
        w = long(weights) + 0 * x
        low, high, s, g = intervals(scalar, x, delta)
        low, high = w * low, w * high
        low = np.where(x <= lower, -INF, low)
        high = np.where(x >= upper, INF, high)
        a = np.abs(x)
        return Slopes(
            value=(w * (scalar.slope * a - scalar.value(a))).sum(),
            away=lambda v: v - np.clip(v, low, high),
            size=max(length(w * s), length(w * g)),
            inside=bool(((x >= lower) & (x <= upper)).all()),
        )

    return at


# Norms of the whole vector ----------------------------------------------------------------------


def around_signs(x: Vector, s: Vector) -> tuple[Vector, Vector]:
    """d(sum s_i |x_i|) as an interval a coordinate."""
    return np.where(x == 0, -s, s * np.sign(x)), np.where(x == 0, s, s * np.sign(x))


def l1_minus_l2(lam: Any, weights: Any = 1.0, nonnegative: bool = False) -> Penalty:
    """lam (|Wx|_1 - |Wx|_2), perhaps with x >= 0."""

    def at(x: Vector, delta: Any) -> Slopes:
        w = Long(lam) * long(weights) + 0 * x
        norm = length(w * x)
        low, high = around_signs(x, w)
        if nonnegative:
            low = np.where(x <= 0, -INF, low)
        # Next to 0 the slope of the norm turns quickly; at 0 it is all of a ball.
        centre = w * (w * x) / norm if norm > 0 else 0 * x
        turns = 1 if norm == 0 else min(Long(1), 2 * delta * w.max() / norm)

        def away(v: Vector) -> Vector:
            moved = v + centre
            left = moved - np.clip(moved, low, high)
            left[w > 0] = shortened(left[w > 0], w.max() * turns)
            return left

        return Slopes(
            value=(w * np.abs(x)).sum() - norm,
            away=away,
            size=length(w),
            inside=not nonnegative or bool((x >= 0).all()),
        )

    return at


def truncated(lam: Any, k: int, minus_l2: bool = False, weights: Any = 1.0) -> Penalty:
    """lam (|r|_1 - |r|_2 if asked), r = x without its k largest entries; weights 0 and 1."""

    def at(x: Vector, delta: Any) -> Slopes:
        mask = (long(weights) + 0 * x) > 0
        s = Long(lam) * mask
        a = np.where(mask, np.abs(x), 0)
        order = np.argsort(-a, kind="stable")
        head = np.zeros(len(x), bool)
        head[order[:k]] = True
        level = a[order[k - 1]] if k else INF
        rest = np.where(head, 0, a)
        norm = length(rest)
        low, high = around_signs(x, s)
        below = a[order[k]] if k < len(x) else Long(0)
        above, tied = head, np.zeros(len(x), bool)
        if level - below <= 2 * delta:  # entries near the level may count as large or not
            above, tied = a > level + 2 * delta, np.abs(a - level) <= 2 * delta
        zero, spare = mask & (a == 0), max(0, k - int(((a > 0) & mask).sum()))
        g_low = np.where(above, s, 0) * np.sign(x)
        g_high = g_low.copy()
        free = tied & mask & (a > 0)
        g_low, g_high = (
            np.where(free, np.minimum(0, s * np.sign(x)), g_low),
            np.where(free, np.maximum(0, s * np.sign(x)), g_high),
        )
        centre, radius, others = 0 * x, Long(0), mask & ~(head & (a > 0))
        if minus_l2:
            if norm > 0:
                centre = Long(lam) * np.where(head, 0, np.where(mask, x, 0)) / norm
            radius = Long(lam) * (1 if norm <= 2 * delta else min(Long(1), 2 * delta / norm))
        low, high = low - g_high, high - g_low

        def away(v: Vector) -> Vector:
            moved = v + centre
            left = moved - np.clip(moved, low, high)
            if spare:  # zeros share spare lam among them: |b_i| <= lam, sum |b_i| <= spare lam
                excess = np.where(zero, np.abs(left), 0)
                left = np.where(zero, np.sign(left) * (excess - shared(excess, lam, spare)), left)
            elif level <= 2 * delta:
                left = np.where(zero, np.sign(left) * np.maximum(np.abs(left) - s, 0), left)
            left[others] = shortened(left[others], radius)
            return left

        return Slopes(
            value=Long(lam) * (rest.sum() - (norm if minus_l2 else 0)),
            away=away,
            size=length(s) * (2 if minus_l2 else 1),
        )

    return at


def shared(excess: Vector, lam: Any, spare: int) -> Vector:
    """The projection of e >= 0 on {0 <= b <= lam, sum b <= spare lam}."""
    lam = Long(lam)
    if np.clip(excess, 0, lam).sum() <= spare * lam:
        return np.clip(excess, 0, lam)
    low, high = Long(0), excess.max()
    for _ in range(80):  # bits of a long double, and some
        middle = (low + high) / 2
        enough = np.clip(excess - middle, 0, lam).sum() > spare * lam
        low, high = (middle, high) if enough else (low, middle)
    return np.clip(excess - high, 0, lam)


# Groups, balls, parts ---------------------------------------------------------------------------


def grouped(scalar: Scalar, groups: Any, nonnegative: bool = False) -> Penalty:
    """The sum over groups G of s |x_G| - value(|x_G|), perhaps with x >= 0."""
    groups = np.asarray(groups)

    def at(x: Vector, delta: Any) -> Slopes:
        members = [groups == name for name in np.unique(groups)]
        radii = long([length(x[m]) for m in members])
        low, high, s, g = intervals(scalar, radii, delta)

        def away(v: Vector) -> Vector:
            if nonnegative:
                v = np.where(x <= 0, np.maximum(v, 0), v)
            left = v.copy()
            for m, r, lo, hi in zip(members, radii, low, high, strict=True):
                if r == 0:
                    left[m] = shortened(v[m], hi)
                else:
                    left[m] = v[m] - x[m] / r * np.clip((x[m] / r * v[m]).sum(), lo, hi)
            return left

        return Slopes(
            value=(scalar.slope * radii - scalar.value(radii)).sum(),
            away=away,
            size=max(length(s), length(g)),
            inside=not nonnegative or bool((x >= 0).all()),
        )

    return at


def in_ball(inner: Penalty, radius: Any) -> Penalty:
    """With |x| <= radius: on the sphere the nonnegative multiples of x belong to dh."""

    def at(x: Vector, delta: Any) -> Slopes:
        found, norm, R = inner(x, delta), length(x), Long(radius)
        on_it = norm >= R * (1 - BALL_SLACK)
        found.inside = found.inside and bool(norm <= R * (1 + BALL_SLACK))
        found.rays = (*found.rays, x.copy()) if on_it else found.rays
        return found

    return at


def blocks(parts: list[tuple[slice, Penalty]]) -> Penalty:
    """A penalty for every piece; nothing on the others."""

    def at(x: Vector, delta: Any) -> Slopes:
        each = [(where, penalty(x[where], delta)) for where, penalty in parts]

        def away(v: Vector) -> Vector:
            left = v.copy()
            for where, slopes in each:
                left[where] = slopes.away(v[where])
            return left

        return Slopes(
            value=sum((slopes.value for _, slopes in each), Long(0)),
            away=away,
            size=max(slopes.size for _, slopes in each),
            inside=all(slopes.inside for _, slopes in each),
        )

    return at
