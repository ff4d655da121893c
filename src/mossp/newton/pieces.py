"""The minimum of a quadratic with a separable h under few linear constraints, by its pieces.

    min_y  <w, y - x> + (y - x)'M (y - x) / 2 + h(y)    s.t.  c + J (y - x) = 0  (<= 0),   M > 0

with multipliers q within bounds, which makes an exact penalty of the constraints. With

    R = y - prox_{t h}(y - t W),    W = w + M (y - x) + J'q,    r = c + J (y - x)

(y, q) is the answer if and only if R = 0 and q is the projection of q + sigma r on its bounds. Both
are piecewise linear: a semismooth Newton step solves them on the pieces of (y, q), and is at the
answer as soon as the pieces are right. Nothing forces it to get there: it is given few steps, which
cost less than anything else does, and where they do not arrive other methods have to serve.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mossp.newton.quadratic import slopes_of_prox

STEPS = 6  # a model whose pieces are nearly known takes three or four
ACCURACY = 1e-6  # of the answer, relative to where it starts: it is a model only
ROUNDING = 1e-13  # of the slope, for a start that is the answer already


def minimum(
    reg: Any, x: np.ndarray, w: np.ndarray, M: np.ndarray, c: np.ndarray, J: np.ndarray,
    lower: np.ndarray, upper: np.ndarray, q: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:  # fmt: skip
    """(y, q); None where the steps do not arrive.

    Parameters
    ----------
    reg : Regularizer
        Of which h is taken, in NumPy; separable.
    x, w, M, c, J : ndarray
        As above, J with one row per constraint.
    lower, upper : ndarray
        The bounds of q: -nu or 0, and nu.
    q : ndarray
        Where multipliers start.

    Examples
    --------
    >>> import mossp
    >>> w, J = np.array([-3.0, -1.0]), np.array([[1.0, 1.0], [1.0, 0.0]])
    >>> y, q = minimum(mossp.L1(0.5), np.zeros(2), w, np.eye(2), np.array([-2.0, -9.0]), J,
    ...                np.zeros(2), np.full(2, 9.0), np.zeros(2))
    >>> np.round(y, 6).tolist(), np.round(q, 6).tolist()
    ([2.0, 0.0], [0.5, 0.0])
    """
    size = float(np.linalg.norm(M))
    if not 0 < size < np.inf:  # nothing to divide by, or curvature beyond all numbers
        return None
    t = 1 / size
    sigma = 1 / np.maximum(t * np.sum(J**2, axis=1), np.finfo(float).tiny)
    y, q, first, slope = x, np.clip(q, lower, upper), None, float(np.abs(w).max())
    for _ in range(STEPS):
        v = y - t * (w + M @ (y - x) + q @ J)
        R, r = y - np.asarray(reg.prox_h(v, t), np.float64), c + J @ (y - x)
        s = q + sigma * r
        held = np.clip(s, lower, upper)
        left = max(float(np.abs(R).max()) / t, float(np.abs(held - q).max()))
        first = left if first is None else first
        if left <= ACCURACY * first + ROUNDING * slope:
            return y, q
        if not np.isfinite(left):
            return None
        try:
            dy, dq = step(M, J, slopes_of_prox(reg, v, t), R, t, held - q, r, held == s)
        except np.linalg.LinAlgError:  # constraints that contradict each other on these pieces
            return None
        y, q = y + dy, q + dq
    return None


def step(
    M: np.ndarray, J: np.ndarray, d: np.ndarray, R: np.ndarray, t: float, held: np.ndarray,
    r: np.ndarray, met: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(dy, dq) of Newton's method where prox_{t h} has the slopes d.

    On the entries S with d > 0, with A the constraints that are to be met, while the other entries
    move to their kinks and the other multipliers, by dq = held, to their bounds,

        (M + (1/d - 1) / t) dy + J_A'dq_A = -R / (d t) - M dy - J'dq,    J_A dy = -r_A - J_A dy
    """
    S, dy, dq = np.flatnonzero(d > 0), np.where(d > 0, 0.0, -R), np.where(met, 0.0, held)
    k, K = len(S), J[np.ix_(met, S)]
    system = np.zeros((k + len(K), k + len(K)))
    system[:k, :k] = M[np.ix_(S, S)]
    system[np.arange(k), np.arange(k)] += (1 / d[S] - 1) / t
    system[k:, :k], system[:k, k:] = K, K.T
    right = np.append(-R[S] / (d[S] * t) - M[S] @ dy - dq @ J[:, S], -r[met] - J[met] @ dy)
    found = np.linalg.solve(system, right)
    dy[S], dq[met] = found[:k], found[k:]
    return dy, dq
