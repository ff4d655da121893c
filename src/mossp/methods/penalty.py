"""What a method does with the constraints: how large a penalty rho / 2 ||c(x)||^2 it needs.

    GrowingPenalty   a quadratic penalty ends at a violation of ||lam*|| / rho, so that rho grows
                     with the accuracy asked for
    ScaledPenalty    multipliers take that violation away: rho is a fixed multiple of L_f / ||J||^2
    NoPenalty        every step meets the linearised constraints: no penalty shortens it

Step sizes, grids and the claim to be exact depend on which of the three it is.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Penalty:
    """What `Method.penalty` says: one of the three classes below."""


@dataclasses.dataclass(frozen=True)
class GrowingPenalty(Penalty):
    """rho = ||lam|| / (the violation that is aimed at)."""


@dataclasses.dataclass(frozen=True)
class ScaledPenalty(Penalty):
    """rho in units of L_f / ||J||^2, of a method with multipliers."""

    rho: float


@dataclasses.dataclass(frozen=True)
class NoPenalty(Penalty):
    """No rho at all."""
