"""Regularisers of groups of coordinates: any regulariser of the vector of group norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np

from mossp._base.printing import shown
from mossp._base.types import AnyArray, AnyNumber, AnyVector, ArrayLike, HostArray, Namespace
from mossp.regularizers.base import Around, Counted, Regularizer
from mossp.regularizers.prox import aligned, nonzero, root, segment_sum

Prox = Callable[[AnyVector, AnyNumber], AnyVector]


class Group(Around):
    """A regulariser of the norms `|x_G|_2`: whole groups of entries become zero together.

    For features that belong together: the levels of a category, the weights of a neuron. Weights
    per group go inside, `Group(Weighted(reg, weights), groups)`, in the order of the numbers.

    Parameters
    ----------
    reg : Regularizer
        Of the vector of group norms.
    groups : array or list of lists
        The group of every coordinate, as whole numbers, or the coordinates of every group.

    Examples
    --------
    >>> import numpy as np
    >>> from mossp.regularizers import L1
    >>> reg = Group(L1(1.0), [0, 0, 1, 1])
    >>> reg.prox_h(np.array([3.0, 4.0, 0.1, 0.2]), 2.5)
    array([1.5, 2. , 0. , 0. ])
    """

    reg: Regularizer
    groups: AnyVector  # the group of every coordinate, in 0 .. count - 1
    count: int = eqx.field(static=True)

    def __init__(self, reg: Regularizer, groups: ArrayLike | Sequence[Sequence[int]]) -> None:
        self.reg = reg
        self.groups, self.count = _numbered(groups)

    def check_fits(self) -> None:
        if not self.reg.absolute:
            raise ValueError(
                "Group needs a regulariser of the sizes |x_i| alone, but "
                f"{type(self.reg).__name__} was given. Put Nonnegative, Box and Ball around Group, "
                "not inside it."
            )

    def _radii(self, xp: Namespace, x: AnyVector) -> AnyVector:
        if x.ndim != 1 or x.shape[0] != self.groups.shape[0]:
            raise ValueError(
                f"Group has the groups of {self.groups.shape[0]} coordinates, but x has shape "
                f"{tuple(x.shape)}."
            )
        return root(xp, segment_sum(xp, x * x, self.groups, self.count))

    def _each(self, xp: Namespace, values: AnyArray) -> AnyArray:
        """For every coordinate, the value of its group."""
        return values[xp.asarray(self.groups)]

    def _unit(self, xp: Namespace, x: AnyVector) -> AnyVector:
        return x / self._each(xp, nonzero(xp, self._radii(xp, x)))

    def h(self, x: AnyVector) -> AnyNumber:
        xp, x = self._aligned(x)
        return self.reg.h(self._radii(xp, x))

    def g(self, x: AnyVector) -> AnyNumber:
        xp, x = self._aligned(x)
        return self.reg.g(self._radii(xp, x))

    def prox_h(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self._scaled(self.reg.prox_h, v, mu)

    def prox_g(self, v: AnyVector, mu: AnyNumber) -> AnyVector:
        return self._scaled(self.reg.prox_g, v, mu)

    def subgradient_g(self, x: AnyVector) -> AnyVector:
        xp, x = self._aligned(x)
        return self._unit(xp, x) * self._each(xp, self.reg.subgradient_g(self._radii(xp, x)))

    def nearest_h(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self._radial(self.reg.nearest_h, x, w)

    def nearest_g(self, x: AnyVector, w: AnyVector) -> AnyVector:
        return self._radial(self.reg.nearest_g, x, w)

    def _aligned(self, x: AnyArray, *more: AnyArray) -> tuple[AnyArray, ...]:
        return aligned(x, *more, self.groups)[:-1]  # traced groups make it JAX

    def _scaled(self, prox: Prox, v: AnyVector, mu: AnyNumber) -> AnyVector:
        xp, v = self._aligned(v)
        radii = self._radii(xp, v)
        return v * self._each(xp, prox(radii, mu) / nonzero(xp, radii))

    def _radial(self, nearest: Prox, x: AnyVector, w: AnyVector) -> AnyVector:
        """Subgradients point along x_G where that is nonzero, and along w_G where it is zero."""
        xp, x, w = self._aligned(x, w)
        radii = self._radii(xp, x)
        along = xp.where(self._each(xp, radii) == 0, self._unit(xp, w), self._unit(xp, x))
        component = segment_sum(xp, along * w, self.groups, self.count)
        return along * self._each(xp, nearest(radii, component))

    def weighted(self, weights: AnyVector) -> Regularizer:
        raise ValueError(
            "Group takes a weight a group, not a coordinate: write Group(Weighted(reg, weights), "
            "groups) with one weight a group."
        )

    def counted(self, n: int) -> list[Counted]:
        groups = np.asarray(self.groups)
        return [Counted(units[groups], k) for units, k in self.reg.counted(self.count)]

    @property
    def absolute(self) -> bool:
        return True

    @property
    def homogeneous(self) -> bool:
        return self.reg.homogeneous


def _numbered(groups: ArrayLike | Sequence[Sequence[int]]) -> tuple[HostArray, int]:
    """The group of every coordinate as a number 0 .. count - 1, and count."""
    if isinstance(groups, Sequence) and len(groups) and np.ndim(groups[0]) == 1:
        members = np.concatenate([np.asarray(group, dtype=int) for group in groups])
        if not np.array_equal(np.sort(members), np.arange(members.size)):
            raise ValueError(
                "Group needs every coordinate 0 .. n - 1 in exactly one list of groups, but the "
                f"lists hold {shown(np.sort(members).tolist())}."
            )
        ids = np.empty(members.size, dtype=int)
        ids[members] = np.repeat(np.arange(len(groups)), [np.size(group) for group in groups])
        return ids, len(groups)
    ids = np.asarray(groups)
    if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise ValueError(
            "Group needs the group of every coordinate as a vector of whole numbers, or a list of "
            f"lists of coordinates, but groups = {shown(groups)} was given."
        )
    names, ids = np.unique(ids, return_inverse=True)
    return ids, names.size
