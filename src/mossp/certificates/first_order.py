"""What a point is judged by: values and slopes over all rows, each in one compiled program.

Polishing and the proof of what it found call the same programs, so that a solve compiles them once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import (
    AnyVector,
    HostArray,
    HostJacobian,
    HostMultipliers,
    HostVector,
    Vector,
)
from mossp.oracles import Oracles

# (oracles, x) -> (f, grad f, c, J), over all rows.
Pass = Callable[
    [Oracles, AnyVector], tuple[float, HostVector, HostMultipliers, HostJacobian]
]  # fmt: skip


def first_order(
    oracles: Oracles, x: AnyVector
) -> tuple[float, HostVector, HostMultipliers, HostJacobian]:
    """(f, grad f, c, J) at x, J with one row per constraint."""
    f, gradient, c, J = on_the_host(_first_order(oracles, x))
    return float(f), gradient, c, J


def concave_part(oracles: Oracles, x: AnyVector) -> tuple[float, HostVector]:
    """(E[g], a subgradient of it) at x."""
    g, s = on_the_host(_concave_part(oracles, x))
    return float(g), s


def on_the_host(found: Any) -> tuple[HostArray, ...]:
    return tuple(np.asarray(a, np.float64) for a in found)


@compiled
def _first_order(oracles: Oracles, x: Vector) -> Any:
    return oracles.first_order(x)


@compiled
def _concave_part(oracles: Oracles, x: Vector) -> Any:
    return oracles.concave_value(x), oracles.concave_slope(x)
