"""What Newton's method costs: samples differentiated, and when to stop paying.

A pass over the data is paid for before it is made. The unit is the gradient of one sample; the
product of one sample's Hessian with a vector counts as PRODUCT of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mossp._base.budget import PRODUCT, Budget, UsedUp

# The residual must fall to this part of its last mark before `patience` runs out. A tenth: a method
# that converges linearly, however slowly it does, reaches it after a number of steps that does not
# depend on how far it still has to go.
PROGRESS = 0.1


class Meter:
    """Counts what one attempt costs, and raises UsedUp where that is too much.

    Parameters
    ----------
    budget : Budget, optional
        The limits of the whole solve: its clock, its samples, whether it was told to stop.
    patience : float
        The cost after which the residual must have fallen to a tenth.
    before : float
        The part of the budget that other attempts have spent.
    reserve : int
        The cost of one more evaluation, which must still be affordable at the end point.
    """

    def __init__(
        self, budget: Budget | None = None, patience: float = np.inf, before: float = 0.0,
        reserve: int = 0,
    ) -> None:  # fmt: skip
        self.budget, self.patience = budget or Budget(), patience
        self.before, self.reserve = before, reserve
        self.gradients = 0  # samples differentiated
        self.products = 0  # samples behind Hessian-vector products
        self.mark = (np.inf, 0.0)  # the last residual that was enough progress, and its cost
        self.reached: tuple[Any, ...] | None = None  # what is reported: x, F, violation, residual

    @property
    def cost(self) -> int:
        return self.gradients + PRODUCT * self.products

    def pay(self, gradients: int = 0, products: int = 0) -> None:
        """Count a pass over the data that is about to be made, or raise UsedUp."""
        self.report()
        ahead = self.cost + gradients + PRODUCT * products
        self.budget.allow(self.before + ahead + self.reserve)
        if ahead - self.mark[1] > self.patience:
            raise UsedUp("the residual did not fall for what it cost")
        self.count(gradients, products)

    def count(self, gradients: int = 0, products: int = 0) -> None:
        """Count a pass that is made in any case: the first one, and the one in reserve."""
        self.gradients += gradients
        self.products += products

    def check(self) -> None:
        """Raise UsedUp if time or samples have run out, before work that takes no samples."""
        self.report()
        self.budget.allow(self.before + self.cost)

    def note(self, x: np.ndarray, F: float, violation: float, residual: float) -> None:
        """Report a point; patience begins anew where its residual has fallen enough."""
        if residual <= PROGRESS * self.mark[0]:
            self.mark = (residual, self.cost)
        self.reached = x, F, violation, residual
        self.report()

    def report(self) -> None:
        """Within a step, too: one on many variables takes far longer than a report may wait."""
        if self.reached is not None:
            self.budget.report(*self.reached)
