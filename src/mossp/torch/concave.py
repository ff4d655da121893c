"""A concave part -E[g(x; xi)]: subgradients of g at y on the mini-batches of the steps.

    v = (1 - alpha) v + alpha dg(y; B)

whatever the momentum of the loss is: recursive differences are no help where g has kinks, and
without momentum small batches fail for every step size (see `mossp.methods.following`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from mossp._base.printing import shown
from mossp.torch.batches import Batches
from mossp.torch.expected import Expected
from mossp.torch.processes import averaged_all
from mossp.torch.rowwise import check_mean
from mossp.torch.vectors import Pull, Tensor, gradient, random_state, set_random_state

NAME = "concave"


class Slope(NamedTuple):
    """g at y on a mini-batch, averaged over the processes."""

    value: Tensor
    gradient: Pull  # in the shapes of the parameters


class Concave:
    """g as the user gave it, and the place in its loader, if it has one."""

    def __init__(self, given: Callable[[], Any] | Expected) -> None:
        if not callable(given) and not isinstance(given, Expected):
            raise ValueError(
                f"{NAME} must be a function without arguments or a mossp.torch.Expected, but it is "
                f"{shown(given)}."
            )
        self.expected = given if isinstance(given, Expected) else Expected(given)
        if self.expected.values is not None:
            raise ValueError(
                f"{NAME} has subgradients only, which are taken on the batches of its loader: "
                "leave values out."
            )
        loader = self.expected.loader
        self.batches = None if loader is None else Batches(NAME, loader)
        self.judged = False

    def look(self) -> None:
        """Draw the mini-batch of a step."""
        if self.batches is not None:
            self.batches.ahead()

    def slope(self, params: list[Tensor]) -> Slope:
        """At the point where the parameters are, which is y."""
        batch = [] if self.batches is None else [self.batches.ahead()]
        left = [] if self.judged else gradients_left(params)
        with torch.enable_grad():
            g = self.expected.function(*batch)
        if not isinstance(g, torch.Tensor) or g.numel() != 1:
            what = f"a tensor of {g.numel()} entries" if isinstance(g, torch.Tensor) else shown(g)
            raise ValueError(
                f"{NAME} must return the mean of g over the rows of a batch, a tensor with one "
                f"entry, but it returned {what}."
            )
        if not self.judged:
            if gradients_left(params) != left:
                raise ValueError(
                    f"{NAME} must return g without calling backward, which would add its gradient "
                    "to that of the loss."
                )
            self._judge(g, batch)
        found = gradient(g, params, torch.ones_like(g))
        value, *found = averaged_all([g.detach().reshape(()), *found])
        return Slope(value, found)

    def advance(self) -> None:
        """The step is taken or left out: its mini-batch is used up."""
        if self.batches is not None:
            self.batches.advance()

    def _judge(self, g: Tensor, batch: list[Any]) -> None:
        if not g.requires_grad:
            raise ValueError(f"{NAME} depends on no parameter that is trained.")
        if batch and self.expected.check:
            numbers = random_state()
            with torch.no_grad():
                check_mean(NAME, self.expected.function, *batch)
            set_random_state(numbers)
        self.judged = True


def gradients_left(params: list[Tensor]) -> list[tuple[int, int] | None]:
    """Which gradients the loss has left, to see whether they are touched."""
    return [None if p.grad is None else (id(p.grad), p.grad._version) for p in params]


# The state ------------------------------------------------------------------------------------


def place_of(concave: Concave | None) -> dict[str, Any] | None:
    """What a state has of it: the place in its loader; None without a concave part."""
    if concave is None:
        return None
    return {} if concave.batches is None else {"loader": concave.batches.state_dict()}


def check_place(concave: Concave | None, place: dict[str, Any] | None) -> None:
    """Refuse a state of a run with another kind of concave part than the one here."""
    was, here = described(place), described(place_of(concave))
    if was != here:
        raise ValueError(f"This is the state of a run {was}, but here is one {here}.")


def described(place: dict[str, Any] | None) -> str:
    if place is None:
        return "without a concave part"
    return f"with a concave part that has {'a loader' if place else 'no loader'}"


def restore_place(concave: Concave | None, place: dict[str, Any] | None) -> None:
    if concave is not None and concave.batches is not None and place:
        concave.batches.load_state_dict(place["loader"])
