"""What every regulariser is: a pair (h, g) of convex functions, each with its proximal map."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.types import AnyArray, AnyNumber, AnyVector, HostArray
from mossp.regularizers.prox import aligned, iterate

# Passes of the alternating projection in `nearest`. One is exact for the ready-made regularisers
# (but where two kinks meet on the boundary of a Ball); the others serve users' own classes.
PASSES = 50
FLOOR = 1e-3  # of the largest entry: the size that a difference takes a smaller one to have


class Counted(NamedTuple):
    """A regulariser that is zero, but for a ridge, where at most k of some units are not zero."""

    units: np.ndarray  # the unit of every coordinate: an entry or a group; -1 where it is in none
    k: int


class Regularizer(Module):
    """The difference h - g of two convex functions on vectors.

    A regulariser of your own needs five methods; `check_regularizer` then searches for mistakes.

    Examples
    --------
    >>> import numpy as np
    >>> class SquaredMinusL1(Regularizer):
    ...     '''|x|^2 - lam |x|_1'''
    ...     lam: float
    ...     def h(self, x): return (x * x).sum()
    ...     def g(self, x): return self.lam * abs(x).sum()
    ...     def prox_h(self, v, mu): return v / (1 + 2 * mu)
    ...     def prox_g(self, v, mu): return v - v.clip(-mu * self.lam, mu * self.lam)
    ...     def subgradient_g(self, x): return self.lam * (1.0 * (x > 0) - 1.0 * (x < 0))
    >>> reg = SquaredMinusL1(1.0)
    >>> float(reg(np.array([1.0, -2.0])))
    2.0
    >>> reg.prox_h(np.array([3.0]), 1.0)
    array([1.])
    """

    @abc.abstractmethod
    def h(self, x: AnyVector) -> AnyNumber:
        """The convex function that is added."""

    @abc.abstractmethod
    def g(self, x: AnyVector) -> AnyNumber:
        """The convex function that is subtracted."""

    @abc.abstractmethod
    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        """The proximal point, `argmin_x h(x) + |x - v|^2 / (2 mu)`."""

    @abc.abstractmethod
    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        """The proximal point, `argmin_x g(x) + |x - v|^2 / (2 mu)`."""

    @abc.abstractmethod
    def subgradient_g(self, x: AnyVector) -> AnyVector:
        """One element of the subdifferential of g at x."""

    def __call__(self, x: AnyVector) -> AnyNumber:
        """h(x) - g(x)."""
        return self.h(x) - self.g(x)

    def curvature_g(self, x: HostArray, E: HostArray) -> HostArray:
        """g''(x) e for the rows e of E in NumPy, by central differences of the subgradient."""
        size = differencing(x).max(initial=0.0)

        def along(e: HostArray) -> HostArray:
            ahead, behind = (np.asarray(self.subgradient_g(x + s * e)) for s in (size, -size))
            return (ahead - behind) / (2 * size)

        return np.array([along(e) if e.any() else e for e in E]).reshape(E.shape)

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        """The element of dh(x) nearest to w."""
        return _nearest_by_prox(self.prox_h, x, w)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        """The element of dg(x) nearest to w."""
        return _nearest_by_prox(self.prox_g, x, w)

    def nearest(self, x: AnyVector, v: AnyVector) -> AnyVector:
        """The element of dh(x) - dg(x) nearest to v, by alternating projections."""
        xp, x, v, b = aligned(x, v, self.subgradient_g(x))

        def alternate(b: AnyArray) -> AnyArray:
            return xp.asarray(self.nearest_g(x, self.nearest_h(x, v + b) - v), dtype=x.dtype)

        b = iterate(xp, PASSES, alternate, b)
        return self.nearest_h(x, v + b) - b

    def on(self, slices: Mapping[str, tuple[int, int]]) -> Regularizer:
        """This regulariser for the vector of a pytree whose leaf `path` is at `slices[path]`."""
        return self

    def weighted(self, weights: AnyVector) -> Regularizer:
        """This regulariser with a weight per coordinate: what `Weighted` means by it."""
        raise ValueError(
            f"{type(self).__name__} does not take weights: give it a method weighted(weights) "
            "that returns the weighted regulariser."
        )

    def part(self, places: HostArray, n: int) -> Regularizer:
        """This regulariser for some entries of a vector of n entries, whose others are 0.

        Its proximal maps must leave entries at 0 that are there.
        """
        return Embedded(self, places, n)

    def counted(self, n: int) -> list[Counted]:
        """Where it counts nonzeros in a vector of n entries: which units, and how many are free."""
        return []

    # What methods must know; a class of your own overrides what differs.

    @property
    def convex(self) -> bool:
        """Whether g = 0."""
        return False

    @property
    def smooth(self) -> bool:
        """Whether g is differentiable everywhere."""
        return self.convex

    @property
    def finite(self) -> bool:
        """Whether h is finite everywhere: a method may then take steps that are not proximal."""
        return True

    # What the wrappers must know about h; a class of your own says True where it holds.

    @property
    def separable(self) -> bool:
        """Whether h is a sum of functions of one coordinate (needed by Box)."""
        return False

    @property
    def absolute(self) -> bool:
        """Whether h and g depend on the `|x_i|` only and grow with them (Group, Nonnegative)."""
        return False

    @property
    def homogeneous(self) -> bool:
        """Whether h(c x) = c h(x) for every c > 0 (needed by Ball)."""
        return False


def differencing(x: HostArray) -> HostArray:
    """Steps for central differences at x: they balance truncation and rounding."""
    size = np.abs(x)
    return np.finfo(float).eps ** (1 / 3) * np.maximum(size, FLOOR * size.max(initial=1.0))


class Around(Regularizer):
    """A regulariser made from another one, `reg`, with its properties unless overridden."""

    reg: eqx.AbstractVar[Regularizer]

    def __check_init__(self) -> None:
        if not isinstance(self.reg, Regularizer):
            raise TypeError(
                f"{type(self).__name__} goes around a regulariser such as mossp.L1(0.1), but "
                f"{shown(self.reg)} was given."
            )
        self.check_fits()

    def check_fits(self) -> None:
        """Raise ValueError where `reg` is none that this can be made from."""

    def counted(self, n: int) -> list[Counted]:
        return self.reg.counted(n)

    @property
    def convex(self) -> bool:
        return self.reg.convex

    @property
    def smooth(self) -> bool:
        return self.reg.smooth

    @property
    def finite(self) -> bool:
        return self.reg.finite


class Embedded(Around):
    """A regulariser of n entries as one of some of them, where the others are 0."""

    reg: Regularizer
    places: HostArray  # in ascending order
    n: int = eqx.field(static=True)

    def h(self, x: AnyVector) -> AnyNumber:
        return self.reg.h(self._whole(x))

    def g(self, x: AnyVector) -> AnyNumber:
        return self.reg.g(self._whole(x))

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.reg.prox_h(self._whole(v), mu)[self.places]

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self.reg.prox_g(self._whole(v), mu)[self.places]

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        return self.reg.subgradient_g(self._whole(x))[self.places]

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self.reg.nearest_h(self._whole(x), self._whole(w))[self.places]

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self.reg.nearest_g(self._whole(x), self._whole(w))[self.places]

    def counted(self, n: int) -> list[Counted]:
        return [Counted(c.units[np.asarray(self.places)], c.k) for c in self.reg.counted(self.n)]

    def _whole(self, x: AnyVector) -> AnyVector:
        xp, x = aligned(x)
        if xp is jnp:
            return jnp.zeros(self.n, x.dtype).at[self.places].set(x)
        whole = np.zeros(self.n, x.dtype)
        whole[np.asarray(self.places)] = x
        return whole

    @property
    def separable(self) -> bool:
        return self.reg.separable

    @property
    def absolute(self) -> bool:
        return self.reg.absolute

    @property
    def homogeneous(self) -> bool:
        return self.reg.homogeneous


def _nearest_by_prox(
    prox: Callable[[AnyArray, AnyArray], AnyArray], x: AnyArray, w: AnyArray
) -> AnyArray:
    """(x + t w - prox_{t phi}(x + t w)) / t, which tends to the projection of w on dphi(x).

    Rounding costs eps |x| / t and curvature t |w|: t is the square root of eps, to scale.
    """
    xp, x, w = aligned(x, w)
    scale = (1 + xp.max(xp.abs(x))) / (1 + xp.max(xp.abs(w)))
    t = float(xp.finfo(x.dtype).eps) ** 0.5 * scale
    return w + (x - prox(x + t * w, t)) / t
