"""The minimum of a quadratic under few linear constraints, on the host.

    min_y  <w, y - x> + (y - x)'M (y - x) / 2    s.t.  c + J (y - x) = 0  (<= 0),    M > 0

by its dual, a quadratic in the multipliers q, whose curvature is -J M^{-1} J':

    max_q  q'(c - J M^{-1} w) - q'J M^{-1}J'q / 2,    0 <= q_I <= nu,    |q_E| <= nu

q stops at nu where the constraints cannot all hold: that is the minimum with nu times their
violation added (an exact penalty). One factorisation of M, then one of the order of the constraints
for every set of multipliers that are between their bounds.
"""

from __future__ import annotations

import numpy as np
import scipy  # whose parts take long to import, and are where they are first used

# Sets of multipliers that are tried: each step changes one bound, or ends.
STEPS = 100
REFINEMENTS = 2
RIDGE = 1e-13  # of the dual matrix, relative to its largest entry: constraints may be redundant


def minimum(
    w: np.ndarray, factor: np.ndarray, c: np.ndarray, J: np.ndarray, lower: np.ndarray, nu: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(y - x, q).

    Parameters
    ----------
    w, c, J : ndarray
        As above, J with one row per constraint.
    factor : ndarray
        The lower Cholesky factor of M.
    lower, nu : ndarray, float
        The bounds of q.

    Examples
    --------
    The shortest way to where the first entry is at most -1:

    >>> d, q = minimum(np.zeros(2), np.eye(2), np.ones(1), np.array([[1.0, 0.0]]), np.zeros(1), 9.0)
    >>> np.round(d, 6).tolist(), np.round(q, 6).tolist()
    ([-1.0, 0.0], [1.0])
    """
    solve = scipy.linalg.solve_triangular
    half_w = solve(factor, w, lower=True, check_finite=False)
    half_J = solve(factor, J.T, lower=True, check_finite=False)
    A, b = half_J.T @ half_J, c - half_J.T @ half_w
    q = bounded(A, b, lower, np.full(len(c), nu))
    d = -solve(factor, half_w + half_J @ q, lower=True, trans="T", check_finite=False)
    # Where M is nearly singular A is large, and the constraints are off by its rounding.
    free = (q > lower) & (q < nu)
    for _ in range(REFINEMENTS if free.any() else 0):
        off = np.zeros(len(c))
        off[free] = np.linalg.lstsq(A[np.ix_(free, free)], (c + J @ d)[free], rcond=None)[0]
        q = q + off
        d = d - solve(factor, half_J @ off, lower=True, trans="T", check_finite=False)
    return d, np.clip(q, lower, nu)


def bounded(A: np.ndarray, b: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """argmin q'A q / 2 - b'q between bounds, A positive semidefinite: an active-set method."""
    A = A + RIDGE * max(float(np.abs(A).max(initial=0.0)), np.finfo(float).tiny) * np.eye(len(b))
    q = np.clip(np.zeros(len(b)), lower, upper)
    free = (q > lower) & (q < upper)
    for _ in range(STEPS):
        target = q.copy()
        if free.any():
            fixed = ~free
            right = b[free] - A[np.ix_(free, fixed)] @ q[fixed]
            target[free] = np.linalg.solve(A[np.ix_(free, free)], right)
        # On the way to the minimum over what is free, the first bound stops it.
        move = target - q
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(move > 0, (upper - q) / move, np.where(move < 0, (lower - q) / move, 2))
        first = int(np.argmin(room)) if len(room) else 0
        if len(room) and room[first] < 1:
            q = q + max(room[first], 0.0) * move
            q[first] = upper[first] if move[first] > 0 else lower[first]
            free[first] = False
            continue
        q = target
        slope = b - A @ q
        wrong = np.where(q <= lower, slope, np.where(q >= upper, -slope, 0.0))
        wrong[free | (lower >= upper)] = 0.0
        worst = int(np.argmax(wrong)) if len(wrong) else 0
        scale = np.finfo(float).eps * (np.abs(b) + np.abs(A) @ np.abs(q)).max(initial=0.0)
        if not len(wrong) or wrong[worst] <= 16 * scale:
            break
        free[worst] = True
    return q
