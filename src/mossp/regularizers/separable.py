"""Regularisers that are sums over the coordinates: h = s |x|_1, g = sum of a scalar function."""

from __future__ import annotations

import equinox as eqx

from mossp._base.types import AnyNumber, AnyVector
from mossp._base.validation import real, require
from mossp.regularizers import prox
from mossp.regularizers.prox import aligned
from mossp.regularizers.sloped import Separable


class Convex(Separable):
    """g = 0: only the convex part h is there."""

    @property
    def convex(self) -> bool:
        return True

    def value(self, a: AnyVector) -> AnyVector:
        return 0 * a

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return aligned(v)[1]

    def slopes(self, a: AnyVector) -> tuple[AnyVector, AnyVector]:
        return 0 * a, 0 * a


class Zero(Convex):
    """No regularisation: `h = g = 0`.

    Inside Nonnegative, Box or Ball it leaves the constraint alone.

    Examples
    --------
    >>> import numpy as np
    >>> Zero().prox_h(np.array([1.0, -2.0]), 0.5)
    array([ 1., -2.])
    """

    @property
    def slope(self) -> AnyNumber:
        return 0.0


class L1(Convex):
    """The norm `lam |x|_1`: sparse and convex; shrinks the large entries too.

    `h = lam |x|_1`, `g = 0`.

    Parameters
    ----------
    lam : float
        Strength, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> L1(1.0).prox_h(np.array([3.0, -0.5, -2.0]), 1.0)
    array([ 2.,  0., -1.])
    """

    lam: AnyNumber = eqx.field(converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)

    @property
    def slope(self) -> AnyNumber:
        return self.lam


class CappedL1(Separable):
    """Capped l1, `lam sum_i min(|x_i|, theta)`.

    `h = lam |x|_1`, `g = lam sum_i (|x_i| - theta)_+`. Entries above theta are not shrunk at all.
    For when a size is known above which an entry is surely wanted.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    theta : float
        Size from which on an entry costs no more; positive.

    Examples
    --------
    >>> import numpy as np
    >>> float(CappedL1(2.0, theta=1.0)(np.array([0.5, -3.0])))
    3.0
    """

    lam: AnyNumber = eqx.field(converter=real)
    theta: AnyNumber = eqx.field(default=1.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "theta", self.theta, "theta > 0", lambda theta: theta > 0)

    @property
    def slope(self) -> AnyNumber:
        return self.lam

    def value(self, a: AnyVector) -> AnyVector:
        xp, a, lam, theta = aligned(a, self.lam, self.theta)
        return lam * prox.positive_part(xp, a - theta)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_capped(v, mu, self.lam, self.theta)

    def slopes(self, a: AnyVector) -> tuple[AnyVector, AnyVector]:
        xp, a, lam, theta = aligned(a, self.lam, self.theta)
        return lam * xp.astype(a > theta, a.dtype), lam * xp.astype(a >= theta, a.dtype)


class MCP(Separable):
    """Minimax concave penalty, a good first choice.

    `h = lam |x|_1`, and g is the Huber function of slope `lam` that bends at `gamma lam`: an entry
    costs `lam |x| - x^2 / (2 gamma)` up to `|x| = gamma lam`, and no more beyond. Large entries
    are not shrunk, and g is smooth.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    gamma : float
        Positive; a larger one is closer to l1.

    Examples
    --------
    >>> import numpy as np
    >>> float(MCP(1.0, gamma=2.0)(np.array([1.0, 5.0])))
    1.75
    """

    lam: AnyNumber = eqx.field(converter=real)
    gamma: AnyNumber = eqx.field(default=3.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "gamma", self.gamma, "gamma > 0", lambda gamma: gamma > 0)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> AnyNumber:
        return self.lam

    def value(self, a: AnyVector) -> AnyVector:
        xp, a, lam, gamma = aligned(a, self.lam, self.gamma)
        return xp.where(a <= gamma * lam, a * a / (2 * gamma), lam * a - 0.5 * gamma * lam**2)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_huber(v, mu, self.lam, self.gamma)

    def slopes(self, a: AnyVector) -> tuple[AnyVector, AnyVector]:
        xp, a, lam, gamma = aligned(a, self.lam, self.gamma)
        slope = xp.clip(a / gamma, None, lam)
        return slope, slope


class SCAD(Separable):
    """Smoothly clipped absolute deviation: l1 up to `lam`, levelling off up to `a lam`.

    `h = lam |x|_1`, and g of an entry is 0 up to `|x| = lam`, `(|x| - lam)^2 / (2 (a - 1))` up to
    `a lam`, and `lam |x| - (a + 1) lam^2 / 2` beyond. Exactly l1 for small entries, no shrinkage
    for large ones.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    a : float
        Larger than 2; 3.7 is customary.

    Examples
    --------
    >>> import numpy as np
    >>> float(SCAD(1.0, a=3.0)(np.array([0.5, 9.0])))
    2.5
    """

    lam: AnyNumber = eqx.field(converter=real)
    a: AnyNumber = eqx.field(default=3.7, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "a", self.a, "a > 2", lambda a: a > 2)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> AnyNumber:
        return self.lam

    def value(self, a: AnyVector) -> AnyVector:
        xp, a, lam, A = aligned(a, self.lam, self.a)
        bend = prox.positive_part(xp, a - lam) ** 2 / (2 * (A - 1))
        return xp.where(a <= A * lam, bend, lam * a - 0.5 * (A + 1) * lam**2)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_scad(v, mu, self.lam, self.a)

    def slopes(self, a: AnyVector) -> tuple[AnyVector, AnyVector]:
        xp, a, lam, A = aligned(a, self.lam, self.a)
        slope = xp.clip((a - lam) / (A - 1), 0.0, lam)
        return slope, slope


class LogSum(Separable):
    """Sum of logarithms, `lam sum_i log(1 + |x_i|/theta)`.

    `h = (lam/theta) |x|_1`, and g is h minus that sum. The closest of the ready-made ones to
    counting nonzeros when theta is small; never quite flat.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    theta : float
        Size at which the logarithm bends; positive.

    Examples
    --------
    >>> import numpy as np
    >>> round(float(LogSum(2.0, theta=0.5)(np.array([0.5, 0.0]))), 6)
    1.386294
    """

    lam: AnyNumber = eqx.field(converter=real)
    theta: AnyNumber = eqx.field(default=1.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "theta", self.theta, "theta > 0", lambda theta: theta > 0)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> AnyNumber:
        return self.lam / self.theta

    def value(self, a: AnyVector) -> AnyVector:
        xp, a, lam, theta = aligned(a, self.lam, self.theta)
        return lam * (a / theta - xp.log1p(a / theta))

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_log_sum(v, mu, self.lam, self.theta)

    def slopes(self, a: AnyVector) -> tuple[AnyVector, AnyVector]:
        _, a, lam, theta = aligned(a, self.lam, self.theta)
        slope = lam * a / (theta * (theta + a))
        return slope, slope


class TransformedL1(Separable):
    """Transformed l1, `lam (a+1) sum_i |x_i| / (a + |x_i|)`.

    `h = lam (a+1)/a |x|_1`, and g is h minus that sum. Between counting nonzeros (a near 0) and l1
    (a large); at most `lam (a+1)` per entry.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    a : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> float(TransformedL1(1.0, a=1.0)(np.array([1.0, 3.0])))
    2.5
    """

    lam: AnyNumber = eqx.field(converter=real)
    a: AnyNumber = eqx.field(default=1.0, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        require(self, "a", self.a, "a > 0", lambda a: a > 0)

    @property
    def smooth(self) -> bool:
        return True

    @property
    def slope(self) -> AnyNumber:
        return self.lam * (self.a + 1) / self.a

    def value(self, a: AnyVector) -> AnyVector:
        _, a, lam, A = aligned(a, self.lam, self.a)
        return lam * (A + 1) * a * a / (A * (A + a))

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.prox_transformed(v, mu, self.lam, self.a)

    def slopes(self, a: AnyVector) -> tuple[AnyVector, AnyVector]:
        _, a, lam, A = aligned(a, self.lam, self.a)
        slope = lam * (A + 1) * a * (2 * A + a) / (A * (A + a) ** 2)
        return slope, slope
