"""A regulariser with a linear part: what is left of a concave part once it is linearised."""

from __future__ import annotations

from mossp._base.types import AnyNumber, AnyVector, HostArray
from mossp.regularizers.base import Around, Regularizer


class Tilted(Around):
    """h(x) - (g(x) + <s, x>), with the proximal map prox_{mu g}(v - mu s) of the second part.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> tilted = Tilted(L1(1.0), np.array([0.5, -0.5]))
    >>> float(tilted(np.array([2.0, 0.0]))), tilted.prox_g(np.zeros(2), 2.0).tolist()
    (1.0, [-1.0, 1.0])
    """

    reg: Regularizer
    s: AnyVector

    def h(self, x: AnyVector) -> AnyNumber:
        return self.reg.h(x)

    def g(self, x: AnyVector) -> AnyNumber:
        return self.reg.g(x) + (self.s * x).sum()

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.reg.prox_h(v, mu)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.reg.prox_g(v - mu * self.s, mu)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        return self.reg.subgradient_g(x) + self.s

    def curvature_g(self, x: HostArray, E: HostArray) -> HostArray:
        return self.reg.curvature_g(x, E)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self.reg.nearest_h(x, w)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self.reg.nearest_g(x, w - self.s) + self.s

    def nearest(self, x: AnyVector, v: AnyVector) -> AnyVector:
        return self.reg.nearest(x, v + self.s) - self.s

    def part(self, places: HostArray, n: int) -> Regularizer:
        return Tilted(self.reg.part(places, n), self.s[places])

    @property
    def separable(self) -> bool:
        return self.reg.separable
