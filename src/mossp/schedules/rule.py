"""What makes a schedule: fixed values, in the user's units or in the problem's own."""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

from mossp._base.module import Module
from mossp._base.validation import is_weight, require
from mossp.constants import JACOBIAN_MARGIN, Constants
from mossp.estimators import GradientEstimator
from mossp.schedules.schedule import Schedule


class Rule(Module):
    """How a schedule is made. `b0` is the number of samples behind the first estimate d_0."""

    needs_K: ClassVar[bool] = True
    tuned: ClassVar[bool] = False  # whether rho and mu are measured as the run goes on
    relative: ClassVar[bool] = True  # whether mu is a stable step, which each method then scales

    @abc.abstractmethod
    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        """The schedule for K steps."""

    def smoothness(self, momentum: GradientEstimator, constants: Constants) -> float:
        """That of f, for methods with a mu that does not depend on rho."""
        L = constants.L_f if momentum.full else constants.L_batch
        return max(L, constants.least_curvature)

    def estimator(self, momentum: GradientEstimator, constants: Constants) -> GradientEstimator:
        """The estimator that the rule's result speaks of, made from the method's own."""
        return momentum

    def b0(self, momentum: GradientEstimator, K: int) -> int:
        return 1

    def feasible_enough(self, momentum: GradientEstimator, K: int) -> float:
        """The largest ||c(x0)|| that the rule's result allows."""
        return math.inf


def check_positive(rule: Rule, *names: str) -> None:
    for name in names:
        value = getattr(rule, name)
        if value is not None:
            needs = f"{name} > 0"
            require(rule, name, value, needs, lambda n: n > 0, several=True, finite=False)


class Constant(Rule):
    """Fixed values, whatever K.

    Parameters
    ----------
    rho, mu, alpha : float
        Taken as they are.
    eta : float, optional
        The length of gradient steps in methods where it is not mu itself; mu if left out.

    Examples
    --------
    >>> Constant(rho=10.0, mu=0.02, alpha=0.1).needs_K
    False
    """

    rho: Any
    mu: Any
    alpha: Any = 1.0
    eta: Any = None
    needs_K: ClassVar[bool] = False
    relative: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_positive(self, "eta")
        require(self, "mu", self.mu, "mu > 0", lambda mu: mu > 0, several=True, finite=False)
        require(self, "rho", self.rho, "rho >= 0", lambda rho: rho >= 0, several=True, finite=False)
        require(self, "alpha", self.alpha, "0 < alpha <= 1", is_weight, several=True)

    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        eta = self.mu if self.eta is None else self.eta
        return Schedule(self.rho, self.mu, self.alpha, eta=eta)


class Measured(Rule):
    """Fixed values in the problem's own units, measured near x0: a grid that suits any problem.

    Parameters
    ----------
    rho : float
        In units of `L / ||J||^2`.
    step : float
        mu in units of the stable step `1 / (L + 1.3 rho ||J||^2 + ...)`.
    alpha : float
        The weight of the new gradient.

    Examples
    --------
    >>> import mossp
    >>> c = mossp.Constants(L_f=1.0, L_batch=2.0, sigma=1.0, G=1.0, G_c=2.0, C=0.0, L_c=2.0)
    >>> s = Measured(rho=10.0, step=0.5).schedule(mossp.Polyak(), 100, c)
    >>> round(s.rho, 6), round(s.mu, 6)
    (5.0, 0.017857)
    """

    rho: Any = 20.0
    step: Any = 1.0
    alpha: Any = 0.1
    needs_K: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_positive(self, "rho", "step")
        require(self, "alpha", self.alpha, "0 < alpha <= 1", is_weight, several=True)

    def smoothness(self, momentum: GradientEstimator, constants: Constants) -> float:
        return super().smoothness(momentum, constants) / self.step

    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        c, L = constants, super().smoothness(momentum, constants)
        rho = self.rho * L / c.G_c**2 if c.G_c else 0.0
        mu = self.step / (L + JACOBIAN_MARGIN * rho * c.G_c**2 + rho * c.C * c.L_c)
        return Schedule(rho, mu, self.alpha)
