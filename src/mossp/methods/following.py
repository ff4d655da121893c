"""A subgradient of E[g] at y_k from the mini-batches of a step, for a concave part -E[g(x, xi)].

    v_k = (1 - a) v_{k-1} + a dg(y_k; B_k),    v_0 over all rows (a pool, where they have no end)

Without momentum on these, methods with small batches fail for every step size (Chayti, Jaggi 2025).
A method with an anchor takes differences to it, as for the gradient of f. Those of recursive
momentum are no help where g has kinks, across which dg(y_k; B) and dg(y_{k-1}; B) differ by as much
as ever: there it is Polyak's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mossp._base.types import Vector
from mossp.estimators import GradientEstimator
from mossp.oracles import Oracles


def init(momentum: GradientEstimator, oracles: Oracles, y0: Vector) -> Any:
    """The memory before the first step; None without a concave part."""
    if oracles.concave is None:
        return None
    return momentum.init(oracles.concave_slope(y0), y0)


def update(
    momentum: GradientEstimator, oracles: Oracles, batch: Any, memory: Any, y: Vector, alpha: Any
) -> tuple[Vector, Any]:
    """(v, the memory with it)."""
    return momentum.update(subgradient(momentum, oracles, batch), memory, y, alpha)


def refreshed(momentum: GradientEstimator, oracles: Oracles, memory: Any, y: Vector) -> Any:
    """The memory with its anchor at y, over all rows."""
    return memory if memory is None else momentum.refresh(oracles.concave_slope, memory, y)


def subgradient(
    momentum: GradientEstimator, oracles: Oracles, batch: Any
) -> Callable[[Vector], Vector]:
    """y -> the subgradient of g there that a step may ask for."""
    if momentum.full:
        return oracles.concave_slope
    return lambda y: oracles.subgradient(y, batch)
