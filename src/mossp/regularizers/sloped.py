"""What follows from h(x) = sum_i s_i |x_i|, which nearly every regulariser here shares."""

from __future__ import annotations

import abc

import jax
import numpy as np

from mossp._base.types import AnyNumber, AnyVector, HostArray
from mossp.regularizers import prox
from mossp.regularizers.base import Around, Regularizer, differencing
from mossp.regularizers.prox import aligned


class SlopedL1(Regularizer):
    """A regulariser with h(x) = sum_i s_i |x_i|, s = `slope` a number or one per coordinate."""

    @property
    @abc.abstractmethod
    def slope(self) -> AnyNumber:
        """The slope s of h."""

    def h(self, x: AnyVector) -> AnyNumber:
        xp, x, s = aligned(x, self.slope)
        return xp.sum(s * xp.abs(x))

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return prox.soft_threshold(v, mu * self.slope)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w, s = aligned(x, w, self.slope)
        return xp.where(x == 0, xp.clip(w, -s, s), s * xp.sign(x))

    def part(self, places: HostArray, n: int) -> Regularizer:
        # Zeros add nothing to sums over entries, of which h and g are made here.
        anonymous = all(np.ndim(leaf) == 0 for leaf in jax.tree.leaves(self))
        return self if anonymous else super().part(places, n)

    @property
    def separable(self) -> bool:
        return True

    @property
    def absolute(self) -> bool:
        return True

    @property
    def homogeneous(self) -> bool:
        return True


class Separable(SlopedL1):
    """h = s |x|_1 and g(x) = sum_i value(|x_i|), value convex and flat at 0."""

    @abc.abstractmethod
    def value(self, a: AnyVector) -> AnyVector:
        """The g of one coordinate, at `a = |x_i|`."""

    @abc.abstractmethod
    def slopes(self, a: AnyVector) -> tuple[AnyVector, AnyVector]:
        """The left and right derivatives of `value` at a."""

    def g(self, x: AnyVector) -> AnyNumber:
        xp, x = aligned(x)
        return xp.sum(self.value(xp.abs(x)))

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        xp, x = aligned(x)
        return xp.sign(x) * self.slopes(xp.abs(x))[0]

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w = aligned(x, w)
        sign, (low, high) = xp.sign(x), self.slopes(xp.abs(x))
        return sign * xp.minimum(xp.maximum(sign * w, low), high)

    def weighted(self, weights: AnyVector) -> Regularizer:
        return WeightedSeparable(self, weights)

    def curvature_g(self, x: HostArray, E: HostArray) -> HostArray:
        return E * diagonal(self, x)


def diagonal(regularizer: Regularizer, x: HostArray) -> HostArray:
    """g''(x), where g is a sum over the coordinates; exact where its slopes are lines."""
    size = differencing(x)
    ahead, behind = (np.asarray(regularizer.subgradient_g(x + s)) for s in (size, -size))
    return (ahead - behind) / (2 * size)


class WeightedSeparable(Around, SlopedL1):
    """sum_i w_i (h_i - g_i): in every coordinate, mu is multiplied by the weight."""

    reg: Separable
    weights: AnyVector

    def part(self, places: HostArray, n: int) -> Regularizer:
        return WeightedSeparable(self.reg, self.weights[places])

    def curvature_g(self, x: HostArray, E: HostArray) -> HostArray:
        return E * diagonal(self, x)

    @property
    def slope(self) -> AnyNumber:
        return self.weights * self.reg.slope

    def g(self, x: AnyVector) -> AnyNumber:
        xp, x, w = aligned(x, self.weights)
        return xp.sum(w * self.reg.value(xp.abs(x)))

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.reg.prox_g(v, mu * self.weights)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        _, x, w = aligned(x, self.weights)
        return w * self.reg.subgradient_g(x)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        xp, x, w, weights = aligned(x, w, self.weights)
        return weights * self.reg.nearest_g(x, w / prox.nonzero(xp, weights))
