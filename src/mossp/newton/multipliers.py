"""The minimum of a quadratic with a separable h under many linear constraints, on the host.

    min_y  <w, y - x> + (y - x)'M (y - x) / 2 + h(y) + sum_j nu_j |r_j|_(+),    r = c + J (y - x)

|r| for equalities, [r]_+ for inequalities: an exact penalty. By the method of multipliers: with
s = q + sigma r and p(s) its projection on [-nu, nu], or [0, nu],

    y = argmin  ... + sum_j (p_j s_j - p_j^2 / 2) / sigma,    q <- p(s)

What is minimised is a quadratic plus h on the rows with p_j = s_j, which only change from one step
to the next: each step is `newton.quadratic`'s, of order n whatever the number of constraints is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mossp.newton import quadratic

ROUNDS, STEPS, HALVINGS = 40, 30, 12
FIRST, STRONGER = 10.0, 5.0  # sigma, in units of the mean curvature; by which it rises at a time
FALLS = 0.25  # of what is left after a round, from the round before: else sigma rises
INNER = 1e-8  # the accuracy of a quadratic's own minimum, relative to where it starts


def minimum(
    reg: Any, x: np.ndarray, w: np.ndarray, M: np.ndarray, c: np.ndarray, J: np.ndarray,
    lower: np.ndarray, upper: np.ndarray, q: np.ndarray, accuracy: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(y, q).

    Parameters
    ----------
    reg : Regularizer
        Of which h is taken, in NumPy; separable.
    x, w, M, c, J : ndarray
        As above, M positive definite and J with one row per constraint.
    lower, upper : ndarray
        The bounds of q: -nu or 0, and nu.
    q : ndarray
        Where multipliers start.
    accuracy : float
        Of the constraints, relative to how far they move.

    Examples
    --------
    >>> import mossp
    >>> w, J = np.array([-3.0, -1.0]), np.array([[1.0, 1.0], [1.0, 0.0]])
    >>> y, q = minimum(mossp.Zero(), np.zeros(2), w, np.eye(2), np.array([-2.0, -9.0]), J,
    ...                np.zeros(2), np.full(2, 9.0), np.zeros(2), 1e-9)
    >>> np.round(y, 6).tolist(), np.round(q, 6).tolist()
    ([2.0, 0.0], [1.0, 0.0])
    """
    lengths = np.linalg.norm(J, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    J, c = J / lengths[:, None], c / lengths
    lower, upper = lower * lengths, upper * lengths
    q, y, before = np.clip(q * lengths, lower, upper), x, np.inf
    sigma = FIRST * float(np.trace(M)) / len(x)
    for _ in range(ROUNDS):
        y = smooth_minimum(reg, x, y, w, M, c, J, lower, upper, q, sigma)
        new = np.clip(q + sigma * (c + J @ (y - x)), lower, upper)
        left = float(np.abs(new - q).max(initial=0.0)) / sigma
        q = new
        size = float(np.abs(J @ (y - x)).max(initial=0.0) + np.maximum(c, 0.0).max(initial=0.0))
        if left <= accuracy * max(size, np.finfo(float).tiny):
            break
        sigma *= STRONGER if left > FALLS * before else 1.0
        before = left
    return y, q / lengths


def smooth_minimum(
    reg: Any, x: np.ndarray, y: np.ndarray, w: np.ndarray, M: np.ndarray, c: np.ndarray,
    J: np.ndarray, lower: np.ndarray, upper: np.ndarray, q: np.ndarray, sigma: float,
) -> np.ndarray:  # fmt: skip
    """y for these q, from a y near it on: rows join and leave the quadratic, step by step."""

    def value(y: np.ndarray) -> float:
        d = y - x
        s = q + sigma * (c + J @ d)
        p = np.clip(s, lower, upper)
        return float(w @ d + d @ (M @ d) / 2 + reg.h(y) + (p @ s - p @ p / 2) / sigma)

    now, rows = value(y), None
    for _ in range(STEPS):
        s = q + sigma * (c + J @ (y - x))
        inside = (s > lower) & (s < upper)
        if rows is not None and np.array_equal(rows, inside):
            break  # the quadratic is the one that y is the minimum of
        K = J[inside]
        H = M + sigma * (K.T @ K)
        slope = w + M @ (y - x) + np.clip(s, lower, upper) @ J
        longest = 1 / float(np.abs(H).sum(axis=1).max())
        end = quadratic.minimum(reg, y, slope, H, longest, INNER)
        size, rows = 1.0, inside
        for _ in range(HALVINGS):
            trial = y + size * (end - y)
            if (after := value(trial)) < now:
                break
            size /= 2
        else:
            break
        rows = inside if size == 1.0 else None
        y, now = trial, after
    return y
