"""A proximal step that meets linearised constraints, on the host.

    min_x  h(x) + |x - w|^2 / (2 mu)    s.t.  c_E + J_E (x - x0) = 0,  c_I + J_I (x - x0) <= 0

As `mossp.methods.dual`, which is what steps are compiled from, has it: x(q) = prox_{mu h}(w -
mu J'q), and the dual function, with the gradient c + J (x(q) - x0) and the second derivative
-mu J D J', D = prox_{mu h}', is maximised by a semismooth Newton method over multipliers in a box.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mossp.newton.quadratic import slopes_of_prox

STEPS, HALVINGS = 40, 30
ACCURACY = 1e-10  # of the linearised constraints, relative to what they are made of
# Relative to mu times the gradient: keeps singular systems solvable, and their steps finite.
RIDGE, LEAST_RIDGE, MOST_RIDGE = 1e-2, 1e-12, 1e-4
PROBE = 1e-6  # the move, relative to v, by which D is measured where h is not separable


class Met(NamedTuple):
    """The minimiser, and the multipliers that it belongs to."""

    x: np.ndarray
    q: np.ndarray


class Dual(NamedTuple):
    """The dual function at one q."""

    q: np.ndarray
    x: np.ndarray  # x(q)
    gradient: np.ndarray


def constrained_prox(
    reg: Any, w: np.ndarray, mu: float, x0: np.ndarray, c: np.ndarray, J: np.ndarray, m_E: int,
    q: np.ndarray, bound: float,
) -> Met:  # fmt: skip
    """The step; `reg` is a regulariser with NumPy numbers, J has one row a constraint.

    Parameters
    ----------
    q
        Where the search starts: the multipliers of the step before are close.
    bound
        On the multipliers of rows of unit length.

    Examples
    --------
    >>> import mossp
    >>> w, x0, J = np.array([3.0, 1.0]), np.zeros(2), np.array([[1.0, 1.0]])
    >>> met = constrained_prox(mossp.Zero(), w, 1.0, x0, np.array([-2.0]), J, 1, np.zeros(1), 1e3)
    >>> np.round(met.x, 9).tolist(), np.round(met.q, 9).tolist()
    ([2.0, 0.0], [1.0])
    """
    lengths = np.linalg.norm(J, axis=1)
    longest = lengths.max(initial=0.0) or 1.0
    lengths = np.where(lengths > 1e-12 * longest, lengths, longest)
    # J and x may be long: rows are brought to unit length in products alone.
    c, equality = c / lengths, np.arange(len(c)) < m_E
    low = np.where(equality, -bound, 0.0)
    size = np.abs(c).max() + np.abs(J @ x0 / lengths).max() + np.abs(x0).max()

    def moved(q: np.ndarray) -> np.ndarray:
        """w - mu J'q, of which x(q) is the proximal point."""
        v = (-mu * q / lengths) @ J
        v += w
        return v

    def at(q: np.ndarray) -> Dual:
        x = np.asarray(reg.prox_h(moved(q), mu), np.float64)
        return Dual(q, x, c + J @ (x - x0) / lengths)

    def free(d: Dual) -> np.ndarray:
        """Multipliers that may move: not held at a bound."""
        held = ((d.q <= low) & (d.gradient <= 0)) | ((d.q >= bound) & (d.gradient >= 0))
        return ~held

    def left(d: Dual) -> float:
        return float(np.where(free(d), np.abs(d.gradient), 0.0).max())

    def value(d: Dual) -> float:
        away = d.x - w
        away *= away
        distance = float(np.sum(away)) / (2 * mu)
        return float(reg.h(d.x)) + distance + float(d.q @ d.gradient)

    now = at(np.clip(q * lengths, low, bound))
    for k in range(STEPS):
        far = left(now)
        if far <= ACCURACY * size:
            break
        moves = free(now)
        ridge = np.clip(RIDGE * np.abs(now.gradient).max() * 0.5**k, LEAST_RIDGE, MOST_RIDGE)
        M = mu * bent(reg, moved(now.q), mu, J, lengths)
        M = np.where(np.outer(moves, moves), M, 0.0) + np.diag(np.where(moves, mu * ridge, 1.0))
        p = np.linalg.solve(M, np.where(moves, now.gradient, 0.0))
        found, part = None, 1.0
        for _ in range(HALVINGS):
            trial = at(np.clip(now.q + part * p, low, bound))
            # Near the maximum the value no longer tells: a smaller gradient will do.
            if left(trial) <= far / 2 or value(trial) >= value(now) + 1e-4 * float(
                now.gradient @ (trial.q - now.q)
            ):
                found = trial
                break
            part /= 2
        if found is None:
            break
        now = found
    return Met(now.x, now.q / lengths)


def bent(reg: Any, v: np.ndarray, mu: float, J: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """J D J' for rows of unit length."""
    if reg.separable:
        D_J = J * slopes_of_prox(reg, v, mu)
        D_J /= lengths[:, None]
        return D_J @ J.T / lengths
    size = PROBE * (1 + float(np.abs(v).max(initial=0.0)))
    ahead, behind = (
        np.array([np.asarray(reg.prox_h(v + s / length * row, mu))
                  for row, length in zip(J, lengths, strict=True)])
        for s in (size, -size)
    )  # fmt: skip
    return ((ahead - behind) / (2 * size)) @ (J / lengths[:, None]).T
