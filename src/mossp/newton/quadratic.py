"""The minimum of a quadratic with a separable h beside it, by factorisations on the host.

    min_y  phi(y) = <w, y - x> + (y - x)'M (y - x) / 2 + h(y),    M positive definite

Each step is Newton's for y = prox_{t h}(y - t phi'), on the entries that move with their argument;
the others go to their kinks at once. An entry that leaves 0 for the side that it should not is
left out. On the way to Newton's point phi is a parabola from one zero of an entry to the next: the
lowest of these points is taken, where M is nearly singular after the first of them (in the manner
of the feature-sign search of Lee et al., 2006). Where phi does not fall even so, proximal gradient
steps take its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

from mossp.newton.conjugate import Curvature

# Steps, after which the minimum is good enough for a model if phi has fallen: it is a model only.
STEPS = 50
MOST_ZEROS = 64  # zeros on the way that are tried, of all alike
SHORTER = (1.0, 0.5, 0.25, 0.125)  # parts of the way that are tried besides the zeros on it
GRADIENT_STEPS = 10  # at a time: they cost little beside a factorisation
PROBE = 1e-6  # the move, relative to the argument, that shows what prox_{t h} depends on
SNAP = 1e-6  # slopes of prox_{t h} so near to 1 (or to 0) are 1 (or 0)

Matrix = np.ndarray | Curvature


def slopes_of_prox(reg: Any, v: np.ndarray, t: float) -> np.ndarray:
    """The derivative of prox_{t h} at v in every coordinate, for a separable h."""

    def moves() -> np.ndarray:
        """By how much entries move: found again, for what is long is not held meanwhile."""
        size = np.abs(v)
        np.maximum(size, PROBE * (1 + size.max(initial=0.0)), out=size)
        size *= PROBE
        return size

    d = np.asarray(reg.prox_h(v + moves(), t)) - np.asarray(reg.prox_h(v - moves(), t))
    size = moves()
    size *= 2
    d /= size
    del size
    d[np.abs(d - 1) < SNAP] = 1.0
    d[d < SNAP] = 0.0
    return d


def positive_factor(A: np.ndarray) -> np.ndarray | None:
    """The lower Cholesky factor of a symmetric matrix; None where it is not positive definite.

    A tenth of the time that its eigenvalues take.
    """
    try:
        return np.linalg.cholesky(A) if np.isfinite(A).all() else None
    except np.linalg.LinAlgError:
        return None


def minimum(
    reg: Any, x: np.ndarray, w: np.ndarray, M: Matrix, t: float, accuracy: float
) -> np.ndarray:
    """The minimiser y, until its residual is `accuracy` times that of x, or so nearly.

    Parameters
    ----------
    reg : Regularizer
        Of which h is taken, in NumPy.
    x, w, M : ndarray
        The centre, the slope there and the curvature.
    t : float
        The length of gradient steps; at most 1 / ||M||.
    accuracy : float
        Relative to the residual at x.
    """
    y, slope, first = x, w, None
    for _ in range(STEPS):
        v = y - t * slope
        p = np.asarray(reg.prox_h(v, t))
        left = float(np.linalg.norm(y - p))
        first = left if first is None else first
        if left <= accuracy * first:
            break
        new = lowest(reg, y, newton_point(reg, y, v, p, M, t), slope, M)
        for _ in range(GRADIENT_STEPS if new is None else 0):
            y = np.asarray(reg.prox_h(y - t * slope, t))
            slope = w + M @ (y - x)
        if new is not None:
            y, slope = new, w + M @ (new - x)
    return y


def newton_point(
    reg: Any, y: np.ndarray, v: np.ndarray, p: np.ndarray, M: Matrix, t: float
) -> np.ndarray | None:
    """Where Newton's step for y = prox_{t h}(v) leads, v = y - t phi'(y); p is that proximal point.

    With d the slopes of the proximal map and R = y - p, on the entries S with d > 0

        (M + (1/d - 1) / t) dy = -R / (d t) - M fixed
    """
    d, R = slopes_of_prox(reg, v, t), y - p
    S = np.flatnonzero(d > 0)
    while len(S):
        fixed = -R
        fixed[d > 0] = 0.0
        bend = (1 / d[S] - 1) / t
        pull = (M @ fixed)[S] if fixed.any() else 0.0
        move = solved(M, S, bend, -R[S] / (d[S] * t) - pull)
        if move is None:
            return None
        wrong = (y[S] == 0) & (move * p[S] < 0)  # leaves 0 for the other side
        if not wrong.any():
            new = np.where(d > 0, y, p)
            new[S] += move
            return new if np.isfinite(new).all() else None
        S = S[~wrong]
    return p


def solved(M: Matrix, S: np.ndarray, bend: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """v with (M_SS + diag(bend)) v = b."""
    if isinstance(M, Curvature):
        return M.solve(S, bend, b)
    try:
        A = M[np.ix_(S, S)] + np.diag(bend)
        return scipy.linalg.solve(A, b, assume_a="pos", check_finite=False)
    except np.linalg.LinAlgError:
        return None


def lowest(
    reg: Any, y: np.ndarray, end: np.ndarray | None, slope: np.ndarray, M: Matrix
) -> np.ndarray | None:
    """The lowest of the points on the way from y to `end` at which an entry is 0, and some others.

    None where none of them is lower than y.
    """
    if end is None:
        return None
    move = end - y
    crossed = np.flatnonzero(y * end < 0)
    crossed = crossed[np.argsort(-y[crossed] / move[crossed])]
    crossed = crossed[:: max(1, -(-len(crossed) // MOST_ZEROS))]
    sizes = np.append(-y[crossed] / move[crossed], SHORTER)
    owners = np.append(crossed, np.full(len(SHORTER), -1))
    along, curved = float(slope @ move), float(move @ (M @ move))
    rest = lambda size: size * along + size**2 * curved / 2  # noqa: E731
    return lowest_on(reg, y, move, sizes, owners, rest)


def lowest_on(
    reg: Any, y: np.ndarray, move: np.ndarray, sizes: np.ndarray, owners: np.ndarray,
    rest: Callable[[float], float],
) -> np.ndarray | None:  # fmt: skip
    """The lowest of the points y + size * move, or None where none of them is lower than y.

    What is minimised, h + rest(size), is convex: from the furthest point on they are tried until it
    rises. At an entry's own point (`owners`, -1 for none) it is 0, without rounding.
    """
    best, value, last = None, float(reg.h(y)) + rest(0.0), np.inf
    for k in np.argsort(-sizes, kind="stable").tolist():
        size, owner = float(sizes[k]), int(owners[k])
        new = y + size * move
        if owner >= 0:
            new[owner] = 0.0
        changed = float(reg.h(new)) + rest(size)
        if changed < value:
            best, value = new, changed
        if changed > last:
            break
        last = changed
    return best
