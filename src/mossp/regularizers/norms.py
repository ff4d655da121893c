"""Regularisers whose concave part is a norm of the whole vector: l2, top-k, and both together."""

from __future__ import annotations

import equinox as eqx
import numpy as np

from mossp._base.printing import shown
from mossp._base.types import AnyArray, AnyNumber, AnyVector, HostArray
from mossp._base.validation import concrete, integral, real, require
from mossp.regularizers import prox
from mossp.regularizers.base import Counted, Regularizer
from mossp.regularizers.prox import aligned, nonzero, norm, rank, water_level
from mossp.regularizers.sloped import SlopedL1

MOST_FREE = 2**31 - 1  # what JAX can count to in single precision


class L1MinusL2(SlopedL1):
    """Difference of norms, `lam (|x|_1 - |x|_2)`.

    `h = lam |x|_1`, `g = lam |x|_2`. Zero on vectors with one nonzero entry, and scale-free: no
    size at which an entry counts as large. Good when the columns of the data are strongly
    correlated.

    Parameters
    ----------
    lam : float
        Strength, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> float(L1MinusL2(1.0)(np.array([3.0, -4.0])))
    2.0
    """

    lam: AnyNumber = eqx.field(converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)

    @property
    def slope(self) -> AnyNumber:
        return self.lam

    def g(self, x: AnyVector) -> AnyNumber:
        xp, x, lam = aligned(x, self.lam)
        return lam * norm(xp, x)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_l2(v, mu * self.lam)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        xp, x, lam = aligned(x, self.lam)
        return lam * (x / nonzero(xp, norm(xp, x)))

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w = aligned(x, w)
        # At 0 the set is the dual ball: projection = identity minus the prox of the norm.
        return xp.where(norm(xp, x) == 0, w - self.prox_g(w, 1.0), self.subgradient_g(x))

    def curvature_g(self, x: HostArray, E: HostArray) -> HostArray:
        size = float(np.linalg.norm(x))
        if size == 0:
            return np.zeros_like(E)
        return float(self.lam) / size * (E - np.outer(E @ x / size, x / size))

    def weighted(self, weights: AnyVector) -> Regularizer:
        return WeightedL1MinusL2(self.lam, weights)


class WeightedL1MinusL2(SlopedL1):
    """lam (|Wx|_1 - |Wx|_2), W = diag(weights)."""

    lam: AnyNumber = eqx.field(converter=real)
    weights: AnyVector = eqx.field()

    @property
    def slope(self) -> AnyNumber:
        return self.lam * self.weights

    def g(self, x: AnyVector) -> AnyNumber:
        xp, x, lam, weights = aligned(x, self.lam, self.weights)
        return lam * norm(xp, weights * x)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_weighted_l2(v, mu * self.lam, self.weights)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        xp, x, lam, weights = aligned(x, self.lam, self.weights)
        return lam * weights * (weights * x / nonzero(xp, norm(xp, weights * x)))

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w, weights = aligned(x, w, self.weights)
        at_zero = norm(xp, weights * x) == 0
        return xp.where(at_zero, w - self.prox_g(w, 1.0), self.subgradient_g(x))


class Truncated(SlopedL1):
    """h = lam |x|_1, g = lam times a norm in which the k largest entries count by their size."""

    lam: AnyNumber = eqx.field(converter=real)
    k: AnyNumber = eqx.field(converter=integral)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        whole = f"a whole number k >= 0 and at most {MOST_FREE:,}"
        require(self, "k", self.k, whole, lambda k: (k >= 0) & (k <= MOST_FREE) & (k % 1 == 0))

    @property
    def slope(self) -> AnyNumber:
        return self.lam

    @property
    def free(self) -> int:
        """The most nonzeros that cost nothing."""
        return int(self.k)

    def counted(self, n: int) -> list[Counted]:
        return [Counted(np.arange(n), self.free)]

    def weighted(self, weights: AnyVector) -> Regularizer:
        given = concrete(weights)
        if given is not None and not np.all((given == 0) | (given == 1)):
            raise ValueError(
                f"{type(self).__name__} takes only the weights 0 and 1, because the proximal map "
                "of a weighted sum of the k largest entries is not known, but "
                f"{shown(given)} was given."
            )
        return MaskedTruncated(self, weights)


def _tied_at_level(x: AnyArray, k: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """The k-th largest |x_i|, which |x_i| are above and at it, and how many of the latter count.

    A level of 0 means that at least n - k entries are zero, infinity that k = 0.
    """
    xp, x, k = aligned(x, k)
    a = xp.abs(x)
    level = xp.sum(xp.where(rank(xp, a) == k - 1, a, 0.0))
    level = xp.where(xp.asarray(k) < 1, xp.inf, level)
    above, at = a > level, a == level
    return level, above, at, k - xp.sum(xp.astype(above, a.dtype))


def _full_rank(x: AnyArray, k: AnyArray) -> AnyArray:
    """1 at the k largest |x_i|, 0 elsewhere; ties by position."""
    xp, x, k = aligned(x, k)
    return xp.astype(rank(xp, xp.abs(x)) < k, x.dtype)


class TruncatedL1(Truncated):
    """Truncated l1: `lam` times `|x|_1` without the k largest entries.

    `h = lam |x|_1`, and g is lam times the sum of the k largest `|x_i|`. Zero exactly on vectors
    with at most k nonzeros. For when the wanted number of nonzeros is known: with lam large enough
    the solution has at most k.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    k : int
        How many entries are free, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> float(TruncatedL1(2.0, k=1)(np.array([3.0, -0.5, 1.0])))
    3.0
    """

    def g(self, x: AnyVector) -> AnyNumber:
        xp, x, lam = aligned(x, self.lam)
        return lam * xp.sum(_full_rank(x, self.k) * xp.abs(x))

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_top_k(v, mu * self.lam, self.k)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        xp, x, lam = aligned(x, self.lam)
        return lam * xp.sign(x) * _full_rank(x, self.k)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w, lam = aligned(x, w, self.lam)
        level, above, at, left = _tied_at_level(x, self.k)
        # Ties at a level > 0 share what is left: lam sign(x) theta, 0 <= theta <= 1, sum = left.
        d = xp.sign(x) * w
        shared = xp.clip(d - water_level(xp, d, lam, left * lam, at), 0.0, lam)
        # Ties at 0: the dual ball of the norm with k = left.
        free = xp.where(x == 0, w, 0.0)
        ball = free - prox.prox_top_k(free, lam, left)
        tied = xp.where(level > 0, xp.sign(x) * shared, ball)
        return xp.where(above, lam * xp.sign(x), xp.where(at, tied, 0.0))


class TruncatedL1MinusL2(Truncated):
    """Truncated difference of norms: L1MinusL2 of x without its k largest entries.

    With r the other entries, it is `lam (|r|_1 - |r|_2)`: `h = lam |x|_1`, and g is lam times the
    sum of the k largest `|x_i|` and `|r|_2`. The k largest entries are free of shrinkage; zero on
    vectors with at most k + 1 nonzeros.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    k : int
        How many entries are free, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> float(TruncatedL1MinusL2(1.0, k=1)(np.array([9.0, 3.0, -4.0])))
    2.0
    """

    @property
    def free(self) -> int:
        return int(self.k) + 1

    def g(self, x: AnyVector) -> AnyNumber:
        xp, x, lam = aligned(x, self.lam)
        head = _full_rank(x, self.k)
        return lam * (xp.sum(head * xp.abs(x)) + norm(xp, (1 - head) * x))

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_top_k_l2(v, mu * self.lam, self.k)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        xp, x, lam = aligned(x, self.lam)
        head = _full_rank(x, self.k)
        rest = (1 - head) * x
        return lam * (head * xp.sign(x) + rest / nonzero(xp, norm(xp, rest)))

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w, lam = aligned(x, w, self.lam)
        level, above, at, left = _tied_at_level(x, self.k)
        size = norm(xp, (1 - _full_rank(x, self.k)) * x)
        safe = nonzero(xp, size)
        # Ties at a level > 0: lam sign(x) (level/size + theta (1 - level/size)), sum theta = left;
        # no tie is left over where the rest is smaller than the level, so theta = 1 there.
        base = lam * xp.clip(xp.where(level > 0, level, 0.0) / safe, None, 1.0)
        d = xp.sign(x) * w - base
        shared = base + xp.clip(
            d - water_level(xp, d, lam - base, left * (lam - base), at), 0.0, lam - base
        )
        smooth = xp.where(
            above, lam * xp.sign(x), xp.where(at, xp.sign(x) * shared, lam * x / safe)
        )
        # At most k nonzeros: on the zeros, the dual ball of the norm with k - (nonzeros).
        free = xp.where(x == 0, w, 0.0)
        spare = aligned(x, self.k)[2] - xp.sum(xp.astype(x != 0, x.dtype))
        ball = free - prox.prox_top_k_l2(free, lam, xp.clip(xp.asarray(spare), 0.0, None))
        return xp.where(size == 0, xp.where(x == 0, ball, lam * xp.sign(x)), smooth)


class MaskedTruncated(SlopedL1):
    """A truncated regulariser of the coordinates with weight 1, nothing on those with weight 0.

    A zero adds nothing to the k largest, so leaving a coordinate out is setting it to zero.
    """

    reg: Truncated
    weights: AnyVector = eqx.field()

    @property
    def slope(self) -> AnyNumber:
        return self.weights * self.reg.lam

    def g(self, x: AnyVector) -> AnyNumber:
        _, x, weights = aligned(x, self.weights)
        return self.reg.g(weights * x)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        xp, v, weights = aligned(v, self.weights)
        return xp.where(weights == 0, v, self.reg.prox_g(weights * v, mu))

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        _, x, weights = aligned(x, self.weights)
        return weights * self.reg.subgradient_g(weights * x)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        _, x, w, weights = aligned(x, w, self.weights)
        return weights * self.reg.nearest_g(weights * x, weights * w)

    def counted(self, n: int) -> list[Counted]:
        return [Counted(np.where(np.asarray(self.weights) == 0, -1, np.arange(n)), self.reg.free)]
