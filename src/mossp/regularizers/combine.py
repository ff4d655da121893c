"""Constraints and weights around a regulariser: Nonnegative, Box, Ball, Weighted."""

from __future__ import annotations

import equinox as eqx
import numpy as np

from mossp._base.printing import shown
from mossp._base.types import AnyArray, AnyNumber, AnyVector, HostArray, Namespace
from mossp._base.validation import concrete, real, reals, require
from mossp.regularizers.base import Around, Counted, Regularizer
from mossp.regularizers.prox import aligned, nonzero, norm
from mossp.regularizers.ridge import Ridged

# |x| <= R holds within so many units of rounding: a point scaled to the radius counts as on it.
SLACK = 64


class Wrapper(Around):
    """A regulariser that changes the h of another and keeps its g."""

    def curvature_g(self, x: HostArray, E: HostArray) -> HostArray:
        return self.reg.curvature_g(x, E)

    reg: Regularizer

    def g(self, x: AnyVector) -> AnyNumber:
        return self.reg.g(x)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.reg.prox_g(v, mu)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        return self.reg.subgradient_g(x)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self.reg.nearest_g(x, w)

    @property
    def finite(self) -> bool:
        return False


class Nonnegative(Wrapper):
    """A regulariser with `x >= 0`: h becomes infinite where an entry is negative.

    For quantities that cannot be negative: concentrations, portfolio weights, counts.

    Parameters
    ----------
    reg : Regularizer
        One that depends on the sizes of the entries alone.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> Nonnegative(L1(1.0)).prox_h(np.array([3.0, -3.0]), 1.0)
    array([2., 0.])
    """

    def check_fits(self) -> None:
        if not self.reg.absolute:
            raise ValueError(
                "Nonnegative needs a regulariser of the sizes |x_i| alone, but "
                f"{type(self.reg).__name__} was given. With bounds, write Box(reg, 0, upper); with "
                "Blocks, put Nonnegative around the regulariser of the block."
            )

    def h(self, x: AnyVector) -> AnyNumber:
        xp, x = aligned(x)
        return xp.where(xp.any(x < 0), xp.inf, self.reg.h(x))

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        xp, v = aligned(v)
        return self.reg.prox_h(xp.clip(v, 0.0, None), mu)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w = aligned(x, w)
        # At x_i = 0 every slope down to -inf is allowed too: the negative part of w is reached.
        reached = xp.where(x == 0, xp.clip(w, None, 0.0), 0.0)
        return self.reg.nearest_h(x, w - reached) + reached

    def weighted(self, weights: AnyVector) -> Regularizer:
        return Nonnegative(self.reg.weighted(weights))

    def part(self, places: HostArray, n: int) -> Regularizer:
        return Nonnegative(self.reg.part(places, n))

    @property
    def separable(self) -> bool:
        return self.reg.separable

    @property
    def homogeneous(self) -> bool:
        return self.reg.homogeneous


class Box(Wrapper):
    """A regulariser with `lower <= x <= upper`.

    Parameters
    ----------
    reg : Regularizer
        One whose h is a sum over the coordinates.
    lower, upper : float or array
        A number, or one per coordinate; infinite bounds are allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> Box(L1(1.0), -1.0, 1.0).prox_h(np.array([3.0, -0.5, -1.5]), 1.0)
    array([ 1. ,  0. , -0.5])
    """

    lower: AnyNumber = eqx.field(converter=reals)
    upper: AnyNumber = eqx.field(converter=reals)

    def check_fits(self) -> None:
        if not self.reg.separable:
            raise ValueError(
                "Box needs a regulariser whose h is a sum over the coordinates, because only then "
                f"clipping is its proximal map, but {type(self.reg).__name__} was given."
            )

    def __check_init__(self) -> None:
        for name in ("lower", "upper"):
            bound, needs = getattr(self, name), f"numbers for {name}, infinite ones at most"
            require(self, name, bound, needs, lambda b: ~np.isnan(b), several=True, finite=False)
        low, high = concrete(self.lower), concrete(self.upper)
        if low is None or high is None:
            return
        alike = low.shape == high.shape or not low.ndim or not high.ndim
        if not alike or not np.all(low <= high):
            raise ValueError(
                "Box needs lower <= upper in every coordinate, but "
                f"lower = {shown(self.lower)} and upper = {shown(self.upper)} were given."
            )

    def h(self, x: AnyVector) -> AnyNumber:
        xp, x, low, high = aligned(x, self.lower, self.upper)
        return xp.where(xp.any((x < low) | (x > high)), xp.inf, self.reg.h(x))

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        xp, x, low, high = aligned(self.reg.prox_h(v, mu), self.lower, self.upper)
        return xp.clip(x, low, high)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w, low, high = aligned(x, w, self.lower, self.upper)
        # At a bound the interval [l, u] of slopes becomes (-inf, u] or [l, inf).
        inside = self.reg.nearest_h(x, w)
        inside = xp.where(x <= low, xp.minimum(inside, w), inside)
        return xp.where(x >= high, xp.maximum(inside, w), inside)

    def weighted(self, weights: AnyVector) -> Regularizer:
        return Box(self.reg.weighted(weights), self.lower, self.upper)

    @property
    def separable(self) -> bool:
        return True


class Ball(Wrapper):
    """A regulariser with `|x|_2 <= radius`, which bounds x without a constraint of its own.

    Parameters
    ----------
    reg : Regularizer
        One whose h is a norm.
    radius : float
        Positive.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> Ball(L1(1.0), 1.0).prox_h(np.array([4.0, -5.0, 0.5]), 1.0)
    array([ 0.6, -0.8,  0. ])
    """

    radius: AnyNumber = eqx.field(converter=real)

    def check_fits(self) -> None:
        if not self.reg.homogeneous:
            ridged = isinstance(self.reg, Ridged)
            raise ValueError(
                "Ball needs a regulariser whose h is a norm, because only then scaling back is its "
                f"proximal map, but {type(self.reg).__name__} was given."
                + " Write PlusRidge(Ball(...), l2), the same function."
                * ridged
            )

    def __check_init__(self) -> None:
        require(self, "radius", self.radius, "radius > 0", lambda radius: radius > 0)

    def _size(self, xp: Namespace, x: AnyArray) -> tuple[AnyArray, float]:
        """|x| and the relative rounding allowed in it."""
        return norm(xp, x), SLACK * float(xp.finfo(x.dtype).eps)

    def h(self, x: AnyVector) -> AnyNumber:
        xp, x, radius = aligned(x, self.radius)
        size, slack = self._size(xp, x)
        return xp.where(size > radius * (1 + slack), xp.inf, self.reg.h(x))

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        xp, x, radius = aligned(self.reg.prox_h(v, mu), self.radius)
        size = norm(xp, x)
        return x * xp.where(size > radius, radius / nonzero(xp, size), 1.0)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w, radius = aligned(x, w, self.radius)
        size, slack = self._size(xp, x)
        inside = self.reg.nearest_h(x, w)
        # On the sphere the multiples t x, t >= 0, are added. Where x_i is nonzero `inside` does not
        # depend on w, so t is found by itself.
        t = xp.clip(xp.sum((w - inside) * x) / nonzero(xp, size * size), 0.0, None)
        return inside + xp.where(size >= radius * (1 - slack), t, 0.0) * x

    def weighted(self, weights: AnyVector) -> Regularizer:
        return Ball(self.reg.weighted(weights), self.radius)

    @property
    def absolute(self) -> bool:
        return self.reg.absolute


class Relaxed(Around):
    """A share of h alone, without g: a convex problem whose answer is a good start.

    h at its full strength lets few entries in that -g would keep: a smaller share lets in more.
    """

    reg: Regularizer
    share: AnyNumber = 1.0

    def h(self, x: AnyVector) -> AnyNumber:
        return self.share * self.reg.h(x)

    def g(self, x: AnyVector) -> AnyNumber:
        return 0.0 * self.reg.h(0 * x)

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.reg.prox_h(v, self.share * mu)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return v

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        return 0 * x

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self.share * self.reg.nearest_h(x, w / self.share)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return 0 * x

    def counted(self, n: int) -> list[Counted]:
        return []

    def part(self, places: HostArray, n: int) -> Regularizer:
        return Relaxed(self.reg.part(places, n), self.share)

    @property
    def convex(self) -> bool:
        return True

    @property
    def separable(self) -> bool:
        return self.reg.separable


class Weighted(Around):
    """A regulariser with a weight per coordinate.

    Separable ones become `sum_i w_i (h_i - g_i)`, L1MinusL2 `lam (|Wx|_1 - |Wx|_2)`, and the
    truncated ones take the weights 0 and 1 only: coordinates with 0 are left out.

    Parameters
    ----------
    reg : Regularizer
        Separable, L1MinusL2 or truncated, or one with a method `weighted`.
    weights : array
        At least 0; 0 leaves a coordinate unpenalised, an intercept, say.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> Weighted(L1(1.0), [1.0, 0.0, 2.0]).prox_h(np.array([3.0, 3.0, 3.0]), 1.0)
    array([2., 3., 1.])
    """

    reg: Regularizer
    weights: AnyVector

    def __init__(self, reg: Regularizer, weights: AnyVector) -> None:
        self.reg = reg
        self.weights = reals(weights)

    def __check_init__(self) -> None:
        needs = "weights >= 0"
        require(self, "weights", self.weights, needs, lambda weights: weights >= 0, several=True)

    def check_fits(self) -> None:
        self._inner()

    def _inner(self) -> Regularizer:
        return self.reg.weighted(self.weights)

    def h(self, x: AnyVector) -> AnyNumber:
        return self._for(x).h(x)

    def g(self, x: AnyVector) -> AnyNumber:
        return self._for(x).g(x)

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self._for(v).prox_h(v, mu)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self._for(v).prox_g(v, mu)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        return self._for(x).subgradient_g(x)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self._for(x).nearest_h(x, w)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self._for(x).nearest_g(x, w)

    def _for(self, x: AnyArray) -> Regularizer:
        if np.shape(x) != np.shape(self.weights):
            raise ValueError(
                f"Weighted has weights of shape {np.shape(self.weights)}, but x has shape "
                f"{np.shape(x)}."
            )
        return self._inner()

    def weighted(self, weights: AnyVector) -> Regularizer:
        return self.reg.weighted(self.weights * weights)

    def counted(self, n: int) -> list[Counted]:
        return self._inner().counted(n)

    @property
    def separable(self) -> bool:
        return self.reg.separable

    @property
    def absolute(self) -> bool:
        return self.reg.absolute

    @property
    def homogeneous(self) -> bool:
        return self.reg.homogeneous
