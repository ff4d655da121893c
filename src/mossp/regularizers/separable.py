"""Regularisers that are sums over the coordinates: h = s |x|_1, g = sum of a scalar function."""

from __future__ import annotations

import equinox as eqx

from mossp._base.validation import real, require
from mossp.regularizers import prox
from mossp.regularizers.prox import Array, aligned
from mossp.regularizers.sloped import Separable


class Convex(Separable):
    """g = 0: only the convex part h is there."""

    @property
    def convex(self) -> bool:
        return True

    def value(self, a: Array) -> Array:
        return 0 * a

    def prox_g(self, v: Array, mu: Array) -> Array:
        return aligned(v)[1]

    def slopes(self, a: Array) -> tuple[Array, Array]:
        return 0 * a, 0 * a


class Zero(Convex):
    """No regularisation: h = g = 0. Inside Nonnegative, Box or Ball it leaves the constraint alone.

    >>> import numpy as np
    >>> Zero().prox_h(np.array([1.0, -2.0]), 0.5)
    array([ 1., -2.])
    """

    @property
    def slope(self) -> Array:
        return 0.0


class L1(Convex):
    """lam |x|_1: h = lam |x|_1, g = 0. Sparse and convex; shrinks the large entries too.

    >>> import numpy as np
    >>> L1(1.0).prox_h(np.array([3.0, -0.5, -2.0]), 1.0)
    array([ 2.,  0., -1.])
    """

    lam: Array = eqx.field(converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)

    @property
    def slope(self) -> Array:
        return self.lam


class CappedL1(Separable):
    """lam sum_i min(|x_i|, theta): h = lam |x|_1, g = lam sum_i (|x_i| - theta)_+.

    Entries above theta are not shrunk at all. For when a size is known above which an entry is
    surely wanted.

    >>> import numpy as np
    >>> float(CappedL1(2.0, theta=1.0)(np.array([0.5, -3.0])))
    3.0
    """

    lam: Array = eqx.field(converter=real)
    theta: Array = eqx.field(default=1.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "theta", self.theta, "theta > 0", lambda theta: theta > 0)

    @property
    def slope(self) -> Array:
        return self.lam

    def value(self, a: Array) -> Array:
        xp, a, lam, theta = aligned(a, self.lam, self.theta)
        return lam * prox.positive_part(xp, a - theta)

    def prox_g(self, v: Array, mu: Array) -> Array:
        return prox.prox_capped(v, mu, self.lam, self.theta)

    def slopes(self, a: Array) -> tuple[Array, Array]:
        xp, a, lam, theta = aligned(a, self.lam, self.theta)
        return lam * xp.astype(a > theta, a.dtype), lam * xp.astype(a >= theta, a.dtype)


class MCP(Separable):
    """Minimax concave penalty: h = lam |x|_1, g the Huber function of slope lam, bend gamma lam.

    lam |x| - x^2 / (2 gamma) up to |x| = gamma lam, constant beyond: large entries are not shrunk,
    and g is smooth. A good first choice; a larger gamma is closer to l1.

    >>> import numpy as np
    >>> float(MCP(1.0, gamma=2.0)(np.array([1.0, 5.0])))
    1.75
    """

    lam: Array = eqx.field(converter=real)
    gamma: Array = eqx.field(default=3.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "gamma", self.gamma, "gamma > 0", lambda gamma: gamma > 0)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> Array:
        return self.lam

    def value(self, a: Array) -> Array:
        xp, a, lam, gamma = aligned(a, self.lam, self.gamma)
        return xp.where(a <= gamma * lam, a * a / (2 * gamma), lam * a - 0.5 * gamma * lam**2)

    def prox_g(self, v: Array, mu: Array) -> Array:
        return prox.prox_huber(v, mu, self.lam, self.gamma)

    def slopes(self, a: Array) -> tuple[Array, Array]:
        xp, a, lam, gamma = aligned(a, self.lam, self.gamma)
        slope = xp.clip(a / gamma, None, lam)
        return slope, slope


class SCAD(Separable):
    """Smoothly clipped absolute deviation: h = lam |x|_1 up to lam, levelling off up to a lam.

    g = 0 if |x| <= lam, (|x| - lam)^2 / (2 (a - 1)) if |x| <= a lam, lam |x| - (a + 1) lam^2 / 2
    beyond. Exactly l1 for small entries, no shrinkage for large ones; a = 3.7 is customary.

    >>> import numpy as np
    >>> float(SCAD(1.0, a=3.0)(np.array([0.5, 9.0])))
    2.5
    """

    lam: Array = eqx.field(converter=real)
    a: Array = eqx.field(default=3.7, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "a", self.a, "a > 2", lambda a: a > 2)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> Array:
        return self.lam

    def value(self, a: Array) -> Array:
        xp, a, lam, A = aligned(a, self.lam, self.a)
        bend = prox.positive_part(xp, a - lam) ** 2 / (2 * (A - 1))
        return xp.where(a <= A * lam, bend, lam * a - 0.5 * (A + 1) * lam**2)

    def prox_g(self, v: Array, mu: Array) -> Array:
        return prox.prox_scad(v, mu, self.lam, self.a)

    def slopes(self, a: Array) -> tuple[Array, Array]:
        xp, a, lam, A = aligned(a, self.lam, self.a)
        slope = xp.clip((a - lam) / (A - 1), 0.0, lam)
        return slope, slope


class LogSum(Separable):
    """lam sum_i log(1 + |x_i|/theta): h = (lam/theta) |x|_1, g = h minus that sum.

    The closest of the ready-made ones to counting nonzeros when theta is small; never quite flat.

    >>> import numpy as np
    >>> round(float(LogSum(2.0, theta=0.5)(np.array([0.5, 0.0]))), 6)
    1.386294
    """

    lam: Array = eqx.field(converter=real)
    theta: Array = eqx.field(default=1.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "theta", self.theta, "theta > 0", lambda theta: theta > 0)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> Array:
        return self.lam / self.theta

    def value(self, a: Array) -> Array:
        xp, a, lam, theta = aligned(a, self.lam, self.theta)
        return lam * (a / theta - xp.log1p(a / theta))

    def prox_g(self, v: Array, mu: Array) -> Array:
        return prox.prox_log_sum(v, mu, self.lam, self.theta)

    def slopes(self, a: Array) -> tuple[Array, Array]:
        _, a, lam, theta = aligned(a, self.lam, self.theta)
        slope = lam * a / (theta * (theta + a))
        return slope, slope


class TransformedL1(Separable):
    """lam (a+1) sum_i |x_i| / (a + |x_i|): h = lam (a+1)/a |x|_1, g = h minus that sum.

    Between counting nonzeros (a near 0) and l1 (a large), bounded by lam (a+1) an entry.

    >>> import numpy as np
    >>> float(TransformedL1(1.0, a=1.0)(np.array([1.0, 3.0])))
    2.5
    """

    lam: Array = eqx.field(converter=real)
    a: Array = eqx.field(default=1.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "a", self.a, "a > 0", lambda a: a > 0)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> Array:
        return self.lam * (self.a + 1) / self.a

    def value(self, a: Array) -> Array:
        _, a, lam, A = aligned(a, self.lam, self.a)
        return lam * (A + 1) * a * a / (A * (A + a))

    def prox_g(self, v: Array, mu: Array) -> Array:
        return prox.prox_transformed(v, mu, self.lam, self.a)

    def slopes(self, a: Array) -> tuple[Array, Array]:
        _, a, lam, A = aligned(a, self.lam, self.a)
        slope = lam * (A + 1) * a * (2 * A + a) / (A * (A + a) ** 2)
        return slope, slope
