"""c at a point and the gradients of those constraints that matter there: on the host, in NumPy.

One pass gives all values; a gradient costs a pass of its own. So of many constraints only the
gradients that are asked for are formed, some at a time, and where even the violated ones are many,
none at all: a Gauss-Newton step then takes products with J and J' alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy  # scipy.sparse takes long to import, and is where it is first used

from mossp._base.programs import compiled
from mossp._base.types import (
    AnyArray,
    AnyVector,
    ConstraintValues,
    HostArray,
    HostVector,
    Jacobian,
    Vector,
)
from mossp.oracles import Oracles
from mossp.terms import ROWS, gradients

FEW = 2 * ROWS  # constraints of which all gradients are formed, by one program
MANY = 256  # violated constraints beyond which no Jacobian of theirs is formed
# Of LSMR: a step need not be more accurate than the linear model that it is made from.
PRODUCTS, ACCURACY = 200, 1e-10
ROUGH = 16  # products for lengths of rows that need not be accurate
TINY = 1e-300  # in place of 0 in a denominator


@compiled
def constraints_and_jacobian(oracles: Oracles, x: Vector) -> tuple[ConstraintValues, Jacobian]:
    """c(x) and its Jacobian, one row per constraint. Used outside of the loop only."""
    c, pull = oracles.linearized(x)
    return c, gradients(pull, c)


@compiled
def _values(oracles: Oracles, x: Vector) -> ConstraintValues:
    """c(x)."""
    return oracles.c(x)


@compiled
def row_lengths(oracles: Oracles, x: Vector) -> ConstraintValues:
    """||J_j|| of each constraint."""
    return oracles.row_lengths(x)


@compiled
def rough_lengths(oracles: Oracles, x: Vector) -> ConstraintValues:
    """The same to within some 35 %, by few products."""
    return oracles.row_lengths(x, ROUGH)


@compiled
def _gradients(oracles: Oracles, x: Vector, places: AnyArray) -> Any:
    c, pull = oracles.linearized(x)
    return gradients(pull, c, places)


@compiled
def _along(oracles: Oracles, x: Vector, v: Vector) -> ConstraintValues:
    """J v, how c changes along v."""
    return oracles.tangent(x)(v)


@compiled
def _pulled(oracles: Oracles, x: Vector, q: ConstraintValues) -> Vector:
    """J'q."""
    return oracles.linearized(x)[1](q)


def values(oracles: Oracles, x: AnyVector) -> HostArray:
    """c(x); of few constraints by the program that gives their gradients as well."""
    few = oracles.m <= FEW
    c = constraints_and_jacobian(oracles, x)[0] if few else _values(oracles, x)
    return np.array(c, np.float64)


class Linearized(NamedTuple):
    """c(x), and the gradients of the constraints that matter there, a row each."""

    c: HostArray
    rows: HostArray  # true for the constraints whose gradients are known
    J: HostArray  # of these alone


def linearized_on(
    oracles: Oracles, x: AnyVector, matter: Callable[[HostArray], HostArray]
) -> Linearized:
    """c at x and the gradients of the constraints for which `matter` of c is true."""
    if not oracles.m:
        none = np.zeros(0)
        return Linearized(none, none.astype(bool), np.zeros((0, oracles.structure.size)))
    if oracles.m <= FEW:
        c, J = (np.array(a, np.float64) for a in constraints_and_jacobian(oracles, x))
        rows = matter(c)
        return Linearized(c, rows, J[rows])
    rows = matter(c := values(oracles, x))
    return Linearized(c, rows, gradients_of(oracles, x, np.flatnonzero(rows)))


def gradients_of(oracles: Oracles, x: AnyVector, places: HostArray) -> HostArray:
    """The gradients of some constraints; a power of two are formed, so that programs are few."""
    if not len(places):
        return np.zeros((0, oracles.structure.size))
    padded = np.full(max(ROWS, 1 << (len(places) - 1).bit_length()), places[0], np.int32)
    padded[: len(places)] = places
    return np.array(_gradients(oracles, x, padded), np.float64)[: len(places)]


@dataclasses.dataclass(frozen=True)
class Violated:
    """v = (c_E, [c_I]_+) at x, without zeros, with the gradients of these constraints.

    J has a row for each entry of v, in the coordinates that are free; None where they are many.
    """

    oracles: Oracles
    x: AnyVector
    v: HostArray
    places: HostArray  # of v, in c
    free: HostArray  # 0 where a coordinate may not move
    J: HostArray | None
    finite: bool

    @classmethod
    def at(cls, oracles: Oracles, x: AnyVector, free: HostArray) -> Violated:
        def matter(c: HostArray) -> HostArray:
            return np.asarray(oracles.is_equality) | (c > 0)

        if oracles.m <= FEW:
            c, J = (np.array(a, np.float64) for a in constraints_and_jacobian(oracles, x))
            (places,) = np.nonzero(matter(c))
            finite = bool(np.isfinite(c).all() and np.isfinite(J).all())
            return cls(oracles, x, c[places], places, free, J[places] * free, finite)
        c = values(oracles, x)
        (places,) = np.nonzero(matter(c))
        finite, many = bool(np.isfinite(c).all()), len(places) > MANY
        if many or not finite:
            return cls(oracles, x, c[places], places, free, None, finite)
        J = gradients_of(oracles, x, places)
        finite = bool(np.isfinite(J).all())
        return cls(oracles, x, c[places], places, free, J * free, finite)

    @property
    def length(self) -> float:
        return float(np.linalg.norm(self.v))

    def pull(self) -> HostVector:
        """J'v."""
        return self.v @ self.J if self.J is not None else self._back(self.v)

    @functools.cached_property
    def lengths(self) -> HostArray:
        """Of the rows of J."""
        if self.J is not None:
            return np.linalg.norm(self.J, axis=1)
        return np.array(row_lengths(self.oracles, self.x), np.float64)[self.places]

    def step(self, nu: float) -> HostVector:
        """argmin ||v + J dx||^2 + nu s ||dx||^2, s the mean of ||J_j||^2 over all constraints."""
        damping = nu * max(float(np.sum(self.lengths**2)), TINY) / self.oracles.m
        if self.J is not None:
            if len(self.v) > len(self.free):  # then in the space of x
                return -solved(self.J.T @ self.J + damping * np.eye(len(self.free)), self.pull())
            return -solved(self.J @ self.J.T + damping * np.eye(len(self.v)), self.v) @ self.J
        operator = scipy.sparse.linalg.LinearOperator(
            (len(self.v), len(self.free)), self._ahead, self._back, dtype=float
        )
        found = scipy.sparse.linalg.lsmr(
            operator, -self.v, np.sqrt(damping), ACCURACY, ACCURACY, maxiter=PRODUCTS
        )
        return found[0]

    def _ahead(self, d: HostArray) -> HostArray:
        along = np.asarray(self.free * np.ravel(d), self.x.dtype)
        return np.array(_along(self.oracles, self.x, along), np.float64)[self.places]

    def _back(self, w: HostArray) -> HostArray:
        q = np.zeros(self.oracles.m, self.x.dtype)
        q[self.places] = np.ravel(w)
        return self.free * np.array(_pulled(self.oracles, self.x, q), np.float64)


def solved(A: HostArray, b: HostArray) -> HostArray:
    """A^{-1} b, A positive semidefinite; by a factorisation where that pays and is possible."""
    if len(b) > FEW:
        with contextlib.suppress(np.linalg.LinAlgError):
            return scipy.linalg.solve(A, b, assume_a="pos", check_finite=False)
    return np.linalg.lstsq(A, b, rcond=None)[0]
