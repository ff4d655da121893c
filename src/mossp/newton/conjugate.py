"""Curvature of a linear model on many entries, known by products: no matrix is formed.

    (H_SS + diag) v = b,    H_SS v = A_S' (l'' (A_S v)) / N

by conjugate gradients, preconditioned by the diagonal. A product costs the entries of the columns S
twice, so that supports of tens of thousands are within reach where H is well conditioned, as it is
for sparse columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mossp.newton.linear import LinearLoss
from mossp.newton.meter import Meter

MOST = 300  # products for one system
TOGETHER = 8  # products paid for at once: a look at the clock takes as long as a small one
TINY = 1e-300  # in place of 0 in a denominator


class Curvature:
    """H at x plus `damping` times the identity, for a convex loss of a linear model.

    Parameters
    ----------
    linear : LinearLoss
        f.
    x : ndarray
        Where H is taken.
    damping : float
        Added to the diagonal.
    accuracy : float
        Of the solution of a system: what is left of its right-hand side.
    meter : Meter
        Pays for every product.
    """

    ndim = 2

    def __init__(
        self, linear: LinearLoss, x: np.ndarray, damping: float, accuracy: float, meter: Meter
    ) -> None:
        self.linear, self.x, self.damping = linear, x, damping
        self.accuracy, self.meter = accuracy, meter

    def __matmul__(self, v: np.ndarray) -> np.ndarray:
        self.meter.pay(products=self.linear.N)
        return self.linear.products(self.x, v[None])[0] + self.damping * v

    def solve(self, S: np.ndarray, diagonal: np.ndarray, b: np.ndarray) -> np.ndarray:
        """v with (H_SS + damping + diag) v = b, nearly."""
        product, own = self.linear.on(self.x, S)
        more = diagonal + self.damping

        made = 0

        def apply(v: np.ndarray) -> np.ndarray:
            nonlocal made
            if made % TOGETHER == 0:
                self.meter.pay(products=TOGETHER * self.linear.N)
            made += 1
            return product(v) + more * v

        return conjugate_gradients(apply, np.maximum(own + more, TINY), b, self.accuracy)


def conjugate_gradients(
    apply: Callable[[np.ndarray], np.ndarray], diagonal: np.ndarray, b: np.ndarray, accuracy: float
) -> np.ndarray:
    """The solution of a positive definite system, until |r| <= accuracy |b|.

    Examples
    --------
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> x = conjugate_gradients(lambda v: A @ v, np.diag(A), np.array([3.0, 4.0]), 1e-12)
    >>> np.round(x, 10).tolist()
    [1.0, 1.0]
    """
    x, r = np.zeros_like(b), b
    enough = accuracy * float(np.linalg.norm(b))
    s = r / diagonal
    p, rs = s, float(r @ s)
    for _ in range(MOST):
        if np.linalg.norm(r) <= enough:
            break
        Ap = apply(p)
        along = float(p @ Ap)
        if not along > 0:  # flat, as far as rounding can tell
            break
        a = rs / along
        x, r = x + a * p, r - a * Ap
        s = r / diagonal
        rs, last = float(r @ s), rs
        p = s + rs / last * p
    return x
