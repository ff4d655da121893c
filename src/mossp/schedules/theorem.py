"""The paper's rules: constant parameters of the right orders in K, and those of its experiments."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx

from mossp.constants import Constants
from mossp.estimators import GradientEstimator, Kind
from mossp.schedules.rule import Rule, check_positive
from mossp.schedules.schedule import Schedule


class Theorem(Rule):
    """Theorem 3.1 (Polyak) or 3.2 (recursive), inside the bounds that only the proofs state.

    Parameters
    ----------
    rho0 : float
        `rho = rho0 K^r`, with r the order of the result.
    mu0, alpha0 : float, optional
        Left out, mu0 is its upper bound and alpha0 its lower one.
    constants : Constants, optional
        Estimated near x0 unless given.
    feasible : bool
        False: the orders of the corollaries, which need no feasible start.
    C : float
        Phase one goes on until `||c(x0)||^2 <= C K^-r`.

    Notes
    -----
    With `M = max(L_f, L~)`, `L~ = L_f / rho0 + G_c^2 + C L_c`, the proofs need ::

        Polyak     mu0 <= min(1/(4 rho0), 1/(4 L_f)),  alpha0 >= 2 max(1, 8 L_f^2) / M
        recursive  mu0 <= min(1/(4 rho0), M/(4 sqrt(2) L_f)),
                   2 L_f^2/M^2 <= alpha0 <= 1/(16 mu0^2)

    and alpha < 1. Other estimators (Plain, SVRG, Full) get what Polyak momentum does: no result
    speaks of them, and its orders ask the least of the samples.

    Examples
    --------
    >>> import mossp
    >>> c = mossp.Constants(L_f=1.0, L_batch=1.0, sigma=1.0, G=1.0, G_c=2.0, C=1.0, L_c=2.0)
    >>> s = Theorem(rho0=1.0).schedule(mossp.Polyak(), 10_000, c)
    >>> round(s.rho, 6), round(s.mu, 8), round(s.alpha, 6)
    (10.0, 0.00035714, 0.005714)
    """

    rho0: Any = 1.0
    mu0: Any = None
    alpha0: Any = None
    constants: Constants | None = None
    feasible: bool = eqx.field(default=True, static=True)
    # Phase one goes on until ||c(x0)||^2 <= C K^{-l}, l the exponent of rho.
    C: float = eqx.field(default=1.0, static=True)

    def __check_init__(self) -> None:
        check_positive(self, "rho0", "mu0", "alpha0", "C")

    def orders(self, momentum: GradientEstimator) -> tuple[float, float, float]:
        """Exponents of K in rho, mu and alpha."""
        if momentum.kind is Kind.RECURSIVE:
            return (1 / 3, 1 / 3, 2 / 3) if self.feasible else (1 / 4, 1 / 4, 1 / 2)
        return (1 / 4, 1 / 2, 1 / 2) if self.feasible else (1 / 5, 2 / 5, 2 / 5)

    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        c, rho0 = self.constants or constants, self.rho0
        M, (r, m, a) = c.L_max(rho0), self.orders(momentum)
        recursive = momentum.kind is Kind.RECURSIVE
        if recursive:
            mu0_most = min(1 / (4 * rho0), M / (4 * math.sqrt(2) * max(c.L_f, 1e-300)))
        else:
            mu0_most = min(1 / (4 * rho0), 1 / (4 * max(c.L_f, 1e-300)))
        mu0 = mu0_most if self.mu0 is None else self.mu0
        if mu0 > mu0_most * (1 + 1e-12):
            raise ValueError(
                f"The proof needs mu0 <= {mu0_most:.3g} for rho0 = {rho0:.3g} and "
                f"L_f = {c.L_f:.3g}, but mu0 = {mu0:.3g} was given."
            )
        if recursive:
            least, most = 2 * c.L_f**2 / M**2, 1 / (16 * mu0**2)
        else:
            least, most = 2 * max(1.0, 8 * c.L_f**2) / M, math.inf
        alpha0 = self.alpha0
        if alpha0 is None:
            # A linear loss has least = 0, and with alpha = 0 the noise of d_0 would stay for ever.
            alpha0 = max(least, 0.01 * most) if recursive else least
        if not least * (1 - 1e-12) <= alpha0 <= most * (1 + 1e-12):
            raise ValueError(
                f"The proof needs {least:.3g} <= alpha0 <= {most:.3g} for these constants, but "
                f"alpha0 = {alpha0:.3g} was given."
            )
        alpha = (16 * alpha0 * mu0**2 if recursive else alpha0 * mu0) / K**a
        if not alpha < 1:
            raise ValueError(
                f"The proof needs alpha < 1, but K = {K} steps give alpha = {alpha:.3g}: take more "
                "steps or a smaller mu0."
            )
        return Schedule(rho=rho0 * K**r, mu=mu0 / (K**m * M), alpha=alpha)

    def b0(self, momentum: GradientEstimator, K: int) -> int:
        return math.ceil(K ** (1 / 3)) if momentum.kind is Kind.RECURSIVE and self.feasible else 1

    def feasible_enough(self, momentum: GradientEstimator, K: int) -> float:
        if not self.feasible:
            return math.inf
        return math.sqrt(self.C * K ** -self.orders(momentum)[0])


def TwoPhase(C: Any = 1.0, **settings: Any) -> Theorem:
    """Phase one, which needs no sample, until `||c||^2 <= C K^-r`; then the theorems' orders.

    Parameters
    ----------
    C : float
        How feasible the end of phase one is.
    **settings
        Those of `Theorem`.

    Examples
    --------
    >>> import mossp
    >>> TwoPhase(C=4.0).feasible_enough(mossp.Polyak(), 10_000)
    0.632455
    """
    return Theorem(**settings, C=C)


def Corollary(**settings: Any) -> Theorem:
    """Corollary 3.1 (Polyak) or 3.2 (recursive): the orders that need no feasible start.

    Parameters
    ----------
    **settings
        Those of `Theorem`.

    Examples
    --------
    >>> import mossp
    >>> Corollary(rho0=2.0).orders(mossp.Recursive())
    (0.25, 0.25, 0.5)
    """
    return Theorem(**settings, feasible=False)


class Paper(Rule):
    """The settings of the paper's experiments: the theorems' orders, a constant alpha.

    Parameters
    ----------
    rho0 : float
        The paper leaves it open.
    mu0 : float, optional
        Likewise; left out, mu is the largest stable one.
    averaging : bool
        The paper reports "0.905" (Polyak) and "0.9" (recursive) as the momentum parameter. In its
        formulas alpha multiplies the new gradient, which is the default here; True reads these
        numbers as the weight of the old direction (alpha = 0.095 and 0.1).
    constants : Constants, optional
        Estimated near x0 unless given.
    horizon : int, optional
        K, where the run has other steps.

    Examples
    --------
    >>> import mossp
    >>> c = mossp.Constants(L_f=1.0, L_batch=1.0, sigma=1.0, G=1.0, G_c=2.0, C=1.0, L_c=2.0)
    >>> s = Paper(averaging=True, mu0=1.0).schedule(mossp.Polyak(), 10_000, c)
    >>> round(s.rho, 6), round(s.mu, 6), round(s.alpha, 6)
    (10.0, 0.01, 0.095)
    """

    rho0: Any = 1.0
    mu0: Any = None
    averaging: bool = eqx.field(default=False, static=True)
    constants: Constants | None = None
    horizon: int | None = eqx.field(default=None, static=True)  # K, where the run has other steps

    def __check_init__(self) -> None:
        check_positive(self, "rho0", "mu0")

    def schedule(self, momentum: GradientEstimator, K: int, constants: Constants) -> Schedule:
        c, K = self.constants or constants, self.horizon or K
        r, m, _ = Theorem().orders(momentum)
        rho = self.rho0 * K**r
        stable = 1 / max(c.L_batch + rho * (c.G_c**2 + c.C * c.L_c), c.least_curvature)
        mu = stable if self.mu0 is None else self.mu0 / K**m
        alpha = 0.9 if momentum.kind is Kind.RECURSIVE else 0.905
        return Schedule(rho, mu, 1 - alpha if self.averaging else alpha)

    def b0(self, momentum: GradientEstimator, K: int) -> int:
        return Theorem().b0(momentum, self.horizon or K)

    def feasible_enough(self, momentum: GradientEstimator, K: int) -> float:
        return Theorem().feasible_enough(momentum, self.horizon or K)
