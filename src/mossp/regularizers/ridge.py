"""Regularisers with a quadratic part: ridge, elastic net, and a ridge on top of any other.

Adding (l2/2) |x|^2 to h moves and scales the argument of its proximal map and nothing else: from

    l2 |x|^2 / 2 + |x - v|^2 / (2 mu)  =  s |x - v/s|^2 / (2 mu) + constant,    s = 1 + mu l2

it follows that prox_{mu (h + l2 |.|^2 / 2)}(v) = prox_{(mu/s) h}(v/s). With an l2 for each
coordinate the same holds coordinate by coordinate, where h is a sum over them.
"""

from __future__ import annotations

import abc

import equinox as eqx
import numpy as np

from mossp._base.types import AnyNumber, AnyVector
from mossp._base.validation import real, reals, require
from mossp.regularizers.base import Around, Regularizer
from mossp.regularizers.blocks import Blocks
from mossp.regularizers.prox import aligned
from mossp.regularizers.separable import L1, Zero


class Ridged(Regularizer):
    """`rest` with `(curvature/2) |x|^2` added to its h; its g is unchanged."""

    @property
    @abc.abstractmethod
    def rest(self) -> Regularizer:
        """What there is beside the ridge."""

    @property
    @abc.abstractmethod
    def curvature(self) -> AnyNumber:
        """Strength of the ridge: a number, or one for each coordinate."""

    def h(self, x: AnyVector) -> AnyNumber:
        xp, x, l2 = aligned(x, self.curvature)
        return self.rest.h(x) + 0.5 * xp.sum(l2 * x * x)

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        _, v, mu, l2 = aligned(v, mu, self.curvature)
        s = 1 + mu * l2
        return self.rest.prox_h(v / s, mu / s)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        _, x, w, l2 = aligned(x, w, self.curvature)
        slope = l2 * x
        return self.rest.nearest_h(x, w - slope) + slope

    def g(self, x: AnyVector) -> AnyNumber:
        return self.rest.g(x)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.rest.prox_g(v, mu)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        return self.rest.subgradient_g(x)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self.rest.nearest_g(x, w)

    def weighted(self, weights: AnyVector) -> Regularizer:
        if not self.rest.separable:
            raise ValueError(
                "A ridge takes a weight a coordinate where the rest of h is a sum over them, but "
                f"it is added to {type(self.rest).__name__}: put the weights inside."
            )
        return PlusRidge(self.rest.weighted(weights), weights * self.curvature)

    @property
    def convex(self) -> bool:
        return self.rest.convex

    @property
    def separable(self) -> bool:
        return self.rest.separable

    @property
    def absolute(self) -> bool:
        return self.rest.absolute


class PlusRidge(Around, Ridged):
    """Another regulariser with a ridge on top, `reg(x) + (l2/2) |x|^2`.

    It steadies coefficients of columns that are nearly alike, also beside a penalty that does not
    shrink the large ones: `PlusRidge(MCP(0.1), 0.01)`. A path of strengths moves the `lam` of
    `reg`, and leaves l2.

    Parameters
    ----------
    reg : Regularizer
        Any but Blocks.
    l2 : float or array
        Strength of the ridge, at least 0; or one for each coordinate, where the h of `reg` is a
        sum over them.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> PlusRidge(L1(1.0), 0.5).prox_h(np.array([4.0, -0.5]), 1.0)
    array([2., 0.])
    """

    reg: Regularizer
    l2: AnyNumber = eqx.field(converter=reals)

    def __check_init__(self) -> None:
        require(self, "l2", self.l2, "l2 >= 0", lambda l2: l2 >= 0, several=True)

    def check_fits(self) -> None:
        if isinstance(self.reg, Blocks):
            raise ValueError(
                "PlusRidge needs a regulariser of a vector, but Blocks was given: put PlusRidge "
                "around the regulariser of each block."
            )
        if np.ndim(self.l2) and not self.reg.separable:
            raise ValueError(
                "PlusRidge needs one number l2 where h is not a sum over the coordinates, but "
                f"{type(self.reg).__name__} and an array of shape {np.shape(self.l2)} were given."
            )

    @property
    def rest(self) -> Regularizer:
        return self.reg

    @property
    def curvature(self) -> AnyNumber:
        return self.l2


class Ridge(Ridged):
    """Ridge, `(lam/2) |x|^2`: shrinks all entries in proportion, and makes none zero.

    `h = (lam/2) |x|^2`, `g = 0`. For columns that are nearly alike, and for predictions alone.

    Parameters
    ----------
    lam : float
        Strength, at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> Ridge(1.0).prox_h(np.array([3.0, -2.0]), 1.0)
    array([ 1.5, -1. ])
    """

    lam: AnyNumber = eqx.field(converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)

    @property
    def rest(self) -> Regularizer:
        return Zero()

    @property
    def curvature(self) -> AnyNumber:
        return self.lam


class ElasticNet(Ridged):
    """Elastic net, `lam (l1_ratio |x|_1 + (1 - l1_ratio)/2 |x|^2)`.

    All of it is h, and `g = 0`. Sparse like l1, but columns that are nearly alike come in
    together. The parameters are those of scikit-learn's ElasticNet, where lam is called alpha: a
    path of strengths moves both parts, and keeps their ratio.

    Parameters
    ----------
    lam : float
        Strength, at least 0.
    l1_ratio : float
        From 0, the ridge alone, to 1, l1 alone.

    Examples
    --------
    >>> import numpy as np
    >>> ElasticNet(1.0, l1_ratio=0.5).prox_h(np.array([3.5, -0.5]), 1.0)
    array([2., 0.])
    """

    lam: AnyNumber = eqx.field(converter=real)
    l1_ratio: AnyNumber = eqx.field(default=0.5, converter=real)

    def __check_init__(self) -> None:
        require(self, "lam", self.lam, "lam >= 0", lambda lam: lam >= 0)
        needs = "l1_ratio from 0 to 1"
        require(self, "l1_ratio", self.l1_ratio, needs, lambda ratio: (ratio >= 0) & (ratio <= 1))

    @property
    def rest(self) -> Regularizer:
        return L1(self.lam * self.l1_ratio)

    @property
    def curvature(self) -> AnyNumber:
        return self.lam * (1 - self.l1_ratio)
