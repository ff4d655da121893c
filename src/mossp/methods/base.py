"""What a method is: a state, one step from one mini-batch, and a witness of stationarity."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx

from mossp.certificate import Witness
from mossp.momentum import Momentum
from mossp.problem import Oracles
from mossp.schedules import Parameters

Vector = Any


class Method(eqx.Module):
    """One step of a method costs one mini-batch; double loops count inner steps."""

    momentum: eqx.AbstractVar[Momentum]

    @abc.abstractmethod
    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> Any:
        """The state before the first step; it has a field x."""

    @abc.abstractmethod
    def step(self, oracles: Oracles, parameters: Parameters, state: Any, batch: Any) -> Any:
        """The state after one step on one mini-batch."""

    @abc.abstractmethod
    def witness(self, oracles: Oracles, parameters: Parameters, state: Any) -> Witness:
        """What the last step, taken with these parameters, proves about its x."""

    @abc.abstractmethod
    def rescale(self, state: Any, ratio: Any) -> Any:
        """The state when mu is multiplied by `ratio`, with the subgradients it stands for kept."""
