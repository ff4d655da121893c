"""Rules with k in place of K: no horizon."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx

from mossp.constants import Constants
from mossp.estimators import GradientEstimator, Truncated
from mossp.schedules.rule import Rule, check_positive
from mossp.schedules.schedule import Schedule
from mossp.schedules.theorem import Corollary, Theorem


class Indexed(Rule):
    """The corollaries' orders with k in place of K: no horizon, no feasible start.

    `rho_k = rho0 (k+1)^r`, `mu_k = mu0 (k+1)^-m`, `alpha_k = min(1, alpha0 (k+1)^-a)`.

    Parameters
    ----------
    rho0, alpha0 : float
        At the first step.
    mu0 : float, optional
        Left out, it is `1/(4 rho0 M)`, so that `mu_k L_rho_k <= 1/4` at every step.
    constants : Constants, optional
        Estimated near x0 unless given.

    Examples
    --------
    >>> import mossp
    >>> c = mossp.Constants(L_f=1.0, L_batch=1.0, sigma=1.0, G=1.0, G_c=2.0, C=1.0, L_c=2.0)
    >>> s = Indexed().schedule(mossp.Recursive(), 100, c)
    >>> s.rho_power, s.mu_power, s.alpha_power
    (0.25, -0.25, -0.5)
    """

    rho0: Any = 1.0
    mu0: Any = None
    alpha0: Any = 1.0
    constants: Constants | None = None
    needs_K: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_positive(self, "rho0", "mu0", "alpha0")

    def orders(self, momentum: GradientEstimator) -> tuple[float, float, float]:
        """Exponents of k in rho, mu and alpha."""
        return Corollary().orders(momentum)

    def first_mu(self, c: Constants) -> float:
        return 1 / (4 * self.rho0 * c.L_max(self.rho0))

    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        c = self.constants or constants
        r, m, a = self.orders(momentum)
        mu0 = self.first_mu(c) if self.mu0 is None else self.mu0
        return Schedule(self.rho0, mu0, self.alpha0, r, -m, -a)


class AlacaogluWright(Indexed):
    """The orders of Alacaoglu, Wright 2023, for recursive momentum, from any start.

    `rho_k = rho0 k^{1/4}`, `mu_k = mu0 k^{-1/4}`, `alpha_k = alpha0 k^{-1/2}`. mu0 is the largest
    stable one unless given, since `mu_k L_rho_k` is largest at the first step. Parameters are those
    of `Indexed`.

    Examples
    --------
    >>> import mossp
    >>> c = mossp.Constants(L_f=1.0, L_batch=1.0, sigma=1.0, G=1.0, G_c=2.0, C=0.0, L_c=2.0)
    >>> AlacaogluWright(rho0=1.0).schedule(mossp.Recursive(), 100, c).mu
    0.2
    """

    def orders(self, momentum: GradientEstimator) -> tuple[float, float, float]:
        return 1 / 4, 1 / 4, 1 / 2

    def first_mu(self, c: Constants) -> float:
        curvature = c.L_batch + self.rho0 * (c.G_c**2 + c.C * c.L_c)
        return 1 / max(curvature, c.least_curvature)


class LuMeiXiao(AlacaogluWright):
    """Lu, Mei, Xiao 2024: iteration-indexed orders for a truncated estimator, `||d|| <= radius`.

    For k = 1, 2, ... ::

        recursive   rho_k = rho0 k^{1/3}, mu_k = mu0 k^{-1/3}, alpha_k = alpha0 k^{-2/3}
        Polyak      rho_k = rho0 k^{1/4}, mu_k = mu0 k^{-1/2}, alpha_k = alpha0 k^{-1/2}

    Parameters
    ----------
    rho0, mu0, alpha0, constants
        Those of `Indexed`; mu0 is the largest stable one unless given.
    radius : float, optional
        To bound `||grad f||`: 10 times the length of a gradient at x0 unless given.
    log : bool
        Take the article's `mu0 = 1 / (4 log(k + 2))`.

    Examples
    --------
    >>> import mossp
    >>> LuMeiXiao().orders(mossp.Recursive())
    (0.333333, 0.333333, 0.666667)
    """

    radius: Any = None
    log: bool = eqx.field(default=False, static=True)

    def __check_init__(self) -> None:
        check_positive(self, "radius")

    def orders(self, momentum: GradientEstimator) -> tuple[float, float, float]:
        return Theorem().orders(momentum)

    def first_mu(self, c: Constants) -> float:
        return 0.25 if self.log else super().first_mu(c)

    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        made = super().schedule(momentum, K, constants)
        return dataclasses.replace(made, mu_log=float(self.log))

    def estimator(self, momentum: GradientEstimator, constants: Constants) -> GradientEstimator:
        if isinstance(momentum, Truncated):
            return momentum
        c = self.constants or constants
        radius = 10 * (c.G + c.sigma) if self.radius is None else self.radius
        return Truncated(momentum, radius or 1.0)
