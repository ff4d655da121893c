"""The minimum of a quadratic with a separable h under few linear constraints, by its pieces.

    min_y  <w, y - x> + (y - x)'M (y - x) / 2 + h(y)    s.t.  c + J (y - x) = 0  (<= 0),   M > 0

with multipliers q within bounds, which makes an exact penalty of the constraints. With

    R = y - prox_{t h}(y - t W),    W = w + M (y - x) + J'q,    r = c + J (y - x)

(y, q) is the answer if and only if R = 0 and q is the projection of q + sigma r on its bounds. Both
are piecewise linear: a semismooth Newton step solves them on the pieces of (y, q), and is at the
answer as soon as the pieces are right. On the way to it what is minimised is a parabola from one
zero of an entry, or of a constraint, to the next: the lowest of these points is taken, and t is
shortened where none of them is lower than y.

Where M is nearly singular pieces say little: steps on them lead far away, and are cut short by the
first entry that changes its sign. So rho / 2 |y - y_k|^2 is added, y_k the answer for the rho
before it (a proximal point method, of which each round starts where few pieces are still wrong).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mossp.newton.quadratic import lowest_on, slopes_of_prox

# rho, relative to the largest entry of M. A round that does not arrive ends it: the answer to the
# one before it is a good deal of the way.
DAMPINGS = (1e-2, 1e-3, 1e-4, 0.0)
STEPS = 20  # of a round, which takes about four
ACCURACY = 1e-6  # of the answer, relative to where it starts: it is a model only
ROUNDING = 1e-13  # of the slope, for a start that is the answer already
SMALLEST = 1e-9  # relative to y: a step that is shorter is right, though rounding hides that
# t at the start, in units of 1 / |M|; by which it falls; where it ends.
LONG, SHORTER, SHORTEST = 8.0, 8.0, 0.1
LENGTHS = np.array([0.5, 0.25, 0.125, 0.03])  # parts of a step, where no zero on it is lower


class Quadratic(NamedTuple):
    """The model around y: its slope w, its curvature, and what is left of the constraints."""

    reg: Any
    y: np.ndarray
    w: np.ndarray
    M: np.ndarray
    r: np.ndarray
    J: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def moved(self, y: np.ndarray) -> Quadratic:
        d = y - self.y
        return self._replace(y=y, w=self.w + self.M @ d, r=self.r + self.J @ d)

    def decrease(self, y: np.ndarray) -> float:
        """By how much the model falls from its y to another."""
        d = y - self.y
        smooth = float(self.w @ d + d @ (self.M @ d) / 2)
        rows = self.penalty(self.r) - self.penalty(self.r + self.J @ d)
        return float(self.reg.h(self.y)) - float(self.reg.h(y)) - smooth + float(rows)

    def penalty(self, r: np.ndarray) -> np.ndarray:
        """max q'r over the multipliers within bounds, for every row of r."""
        return np.maximum(self.lower * r, self.upper * r).sum(axis=-1)


class Pieces(NamedTuple):
    """Where the pieces of (y, q) lead: the proximal point, the slopes of prox_{t h}, R, s."""

    t: float
    p: np.ndarray
    v: np.ndarray
    R: np.ndarray
    s: np.ndarray
    held: np.ndarray  # the projection of s on the bounds

    @classmethod
    def of(cls, model: Quadratic, q: np.ndarray, t: float) -> Pieces:
        v = model.y - t * (model.w + q @ model.J)
        p = np.asarray(model.reg.prox_h(v, t), np.float64)
        curved = np.maximum(t * np.sum(model.J**2, axis=1), np.finfo(float).tiny)
        s = q + model.r / curved
        return cls(t, p, v, model.y - p, s, np.clip(s, model.lower, model.upper))

    def left(self, q: np.ndarray) -> float:
        largest = float(np.abs(self.held - q).max(initial=0.0))
        return max(float(np.abs(self.R).max(initial=0.0)) / self.t, largest)


def minimum(
    reg: Any, x: np.ndarray, w: np.ndarray, M: np.ndarray, c: np.ndarray, J: np.ndarray,
    lower: np.ndarray, upper: np.ndarray, q: np.ndarray, part: float = 0.0,
) -> tuple[np.ndarray, np.ndarray] | None:  # fmt: skip
    """(y, q), or where the proximal points lead; None where not even the first one was found.

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
    part : float
        Where a round lowers the model by less than this part of what all have, no other follows.

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
    model, q = Quadratic(reg, x, w, M, c, J, lower, upper), np.clip(q, lower, upper)
    t, one = LONG / size, np.eye(len(x)) * float(np.diag(M).max())
    left = Pieces.of(model, q, t).left(q)
    enough = ACCURACY * left + ROUNDING * float(np.abs(w).max(initial=0.0))
    answer, lowered = None, 0.0
    for damping in DAMPINGS:
        found = proximal_point(model._replace(M=M + damping * one), q, t, enough)
        if found is None:
            break
        answer, fell = found, model.decrease(found[0])
        model, q, lowered = model.moved(found[0]), found[1], lowered + fell
        if fell < part * lowered:
            break
    return answer


def proximal_point(
    model: Quadratic, q: np.ndarray, t: float, enough: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """The minimum (y, q) of a model by Newton steps; None where they do not arrive."""
    shortest = t * SHORTEST / LONG
    for _ in range(STEPS):
        at = Pieces.of(model, q, t)
        left = at.left(q)
        if left <= enough:
            return model.y, q
        if not np.isfinite(left):
            return None
        found = step(model, q, at)
        if found is not None and np.abs(found[0]).max() <= SMALLEST * np.abs(model.y).max():
            return model.y + found[0], q + found[1]
        new = None if found is None else lowest(model, found[0])
        if found is not None and new is not None:
            model, q = model.moved(new), np.clip(q + found[1], model.lower, model.upper)
        elif t >= shortest:
            t /= SHORTER
        else:
            return None
    return None


def step(model: Quadratic, q: np.ndarray, at: Pieces) -> tuple[np.ndarray, np.ndarray] | None:
    """(dy, dq) of Newton's method where prox_{t h} has the slopes d.

    On the entries S with d > 0, with A the constraints that are to be met, while the other entries
    move to their kinks and the other multipliers, by dq = held - q, to their bounds,

        (M + (1/d - 1) / t) dy + J_A'dq_A = -R / (d t) - M dy - J'dq,    J_A dy = -r_A - J_A dy

    An entry that leaves 0 for the side that it should not stays there, and a multiplier that leaves
    its bounds stops at them.
    """
    M, J, t = model.M, model.J, at.t
    d, held = slopes_of_prox(model.reg, at.v, t), at.held
    met, S = held == at.s, np.flatnonzero(d > 0)
    dy = np.where(d > 0, 0.0, -at.R)
    bend, pull = (1 / d[S] - 1) / t, -at.R[S] / (d[S] * t) - M[S] @ dy
    while True:
        dq, k, K = np.where(met, 0.0, held - q), len(S), J[np.ix_(met, S)]
        system = np.zeros((k + len(K), k + len(K)))
        system[:k, :k] = M[np.ix_(S, S)]
        system[np.arange(k), np.arange(k)] += bend
        system[k:, :k], system[:k, k:] = K, K.T
        right = np.append(pull - dq @ J[:, S], -model.r[met] - J[met] @ dy)
        try:
            found = np.linalg.solve(system, right)
        except np.linalg.LinAlgError:  # constraints that contradict each other on these pieces
            return None
        dq[met] = found[k:]
        held_now = np.clip(q + dq, model.lower, model.upper)
        beyond = met & (held_now != q + dq)
        wrong = (model.y[S] == 0) & (found[:k] * at.p[S] < 0)
        if beyond.any():
            met, held = met & ~beyond, np.where(beyond, held_now, held)
        elif wrong.any():
            S, bend, pull = S[~wrong], bend[~wrong], pull[~wrong]
        else:
            dy[S] = found[:k]
            return dy, dq


def lowest(model: Quadratic, dy: np.ndarray) -> np.ndarray | None:
    """The lowest of some points on the way along dy; None where none is lower than its start."""
    y, r, dr = model.y, model.r, model.J @ dy
    along, curved = float(model.w @ dy), float(dy @ (model.M @ dy))
    crossed = np.flatnonzero(y * (y + dy) < 0)
    met = np.flatnonzero(r * (r + dr) < 0)
    sizes = np.concatenate([-y[crossed] / dy[crossed], (1.0,), -r[met] / dr[met]])
    owners = np.concatenate([crossed, np.full(1 + len(met), -1)])

    def rest(size: float) -> float:
        return size * along + size**2 * curved / 2 + float(model.penalty(r + size * dr))

    found = lowest_on(model.reg, y, dy, sizes, owners, rest)
    if found is None:
        found = lowest_on(model.reg, y, dy, LENGTHS, np.full(len(LENGTHS), -1), rest)
    return found
