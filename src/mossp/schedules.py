"""rho, mu and alpha as functions of the step, and the rules that make them.

A rule turns (what kind of momentum, the number of steps K, the constants of the problem) into a
`Schedule`. The orders in K of the paper's results:

                         rho        mu         alpha      b0        starts from
    Theorem 3.1   (P)    K^{1/4}    K^{-1/2}   K^{-1/2}   1         ||c(x0)||^2 = O(K^{-1/4})
    Theorem 3.2   (R)    K^{1/3}    K^{-1/3}   K^{-2/3}   K^{1/3}   ||c(x0)||^2 = O(K^{-1/3})
    Corollary 3.1 (P)    K^{1/5}    K^{-2/5}   K^{-2/5}   1         any x0
    Corollary 3.2 (R)    K^{1/4}    K^{-1/4}   K^{-1/2}   1         any x0
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.validation import is_weight, require
from mossp.constants import Constants
from mossp.estimators import Momentum, Truncated


class Parameters(NamedTuple):
    """What a step of the method needs."""

    mu: Any  # of the smoothing or of the proximal term
    rho: Any
    alpha: Any  # the weight of this step's gradient: the paper's alpha_{k-1}
    eta: Any = None  # the length of gradient steps, in methods where it is not mu itself


class Schedule(Module):
    """Parameters by step: powers of k + 1; alpha and mu may fall geometrically at the end.

    Only the values differ between rules, so that all rules share one compiled program.

    >>> s = Schedule(rho=2.0, mu=0.1, alpha=0.5, mu_power=-0.5)
    >>> [float(v) for v in s.at(3)]
    [0.05, 2.0, 0.5, 0.05]
    """

    rho: Any
    mu: Any
    alpha: Any
    rho_power: Any = 0.0
    mu_power: Any = 0.0
    alpha_power: Any = 0.0
    mu_end: Any = 1.0  # mu is multiplied by this at the step `settled`, and by less before it
    alpha_end: Any = 1.0  # alpha likewise
    settle_from: Any = 0.0  # the step from which they fall
    settled: Any = 1.0
    eta: Any = None  # changes in step with mu; None: mu itself
    mu_log: Any = 0.0  # mu is divided by log(k + 3) to this power

    def at(self, k: Any) -> Parameters:
        t = jnp.asarray(k + 1, jnp.result_type(self.mu, float))
        late = jnp.clip((t - self.settle_from) / (self.settled - self.settle_from), 0.0, 1.0)
        change = t**self.mu_power * self.mu_end**late * jnp.log(t + 2) ** -self.mu_log
        return Parameters(
            mu=self.mu * change,
            rho=self.rho * t**self.rho_power,
            alpha=jnp.minimum(1.0, self.alpha * t**self.alpha_power * self.alpha_end**late),
            eta=(self.mu if self.eta is None else self.eta) * change,
        )

    def sized(self, mu: Any, eta: Any) -> Schedule:
        """With another mu and eta that change over the steps as mu did."""
        return dataclasses.replace(self, mu=mu, eta=eta)


class Rule(Module):
    """How a schedule is made. `b0` is the number of samples behind the first estimate d_0."""

    needs_K: ClassVar[bool] = True
    tuned: ClassVar[bool] = False  # whether rho and mu are measured as the run goes on
    relative: ClassVar[bool] = True  # whether mu is a stable step, which each method then scales

    @abc.abstractmethod
    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        """The schedule for K steps."""

    def smoothness(self, momentum: Momentum, constants: Constants) -> float:
        """That of f, for methods with a mu that does not depend on rho."""
        L = constants.L_f if momentum.full else constants.L_batch
        return max(L, constants.least_curvature)

    def estimator(self, momentum: Momentum, constants: Constants) -> Momentum:
        """The estimator that the rule's result speaks of, made from the method's own."""
        return momentum

    def b0(self, momentum: Momentum, K: int) -> int:
        return 1

    def feasible_enough(self, momentum: Momentum, K: int) -> float:
        """The largest ||c(x0)|| that the rule's result allows."""
        return math.inf


def check_positive(rule: Rule, *names: str) -> None:
    for name in names:
        value = getattr(rule, name)
        if value is not None:
            needs = f"{name} > 0"
            require(rule, name, value, needs, lambda n: n > 0, several=True, finite=False)


def is_recursive(momentum: Momentum) -> bool:
    """Two gradients a step buy the better orders (Theorem 3.2)."""
    return momentum.gradients == 2


class Constant(Rule):
    """Fixed values, whatever K.

    mu and eta are taken as they are; eta, the length of gradient steps, matters to methods where
    it is not mu itself, and is mu if left out.

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

    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        eta = self.mu if self.eta is None else self.eta
        return Schedule(self.rho, self.mu, self.alpha, eta=eta)


class Measured(Rule):
    """Fixed values in the problem's own units, measured near x0: a grid that suits any problem.

    rho is in units of L / ||J||^2, mu in units of the stable step 1 / (L + 1.3 rho ||J||^2 + ...).

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

    def smoothness(self, momentum: Momentum, constants: Constants) -> float:
        return super().smoothness(momentum, constants) / self.step

    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        c, L = constants, super().smoothness(momentum, constants)
        rho = self.rho * L / c.G_c**2 if c.G_c else 0.0
        mu = self.step / (L + 1.3 * rho * c.G_c**2 + rho * c.C * c.L_c)
        return Schedule(rho, mu, self.alpha)


class Theorem(Rule):
    """Theorem 3.1 (Polyak) or 3.2 (recursive), inside the bounds that only the proofs state.

    With M = max(L_f, L~), L~ = L_f / rho0 + G_c^2 + C L_c:

        Polyak     mu0 <= min(1/(4 rho0), 1/(4 L_f)),  alpha0 >= 2 max(1, 8 L_f^2) / M
        recursive  mu0 <= min(1/(4 rho0), M/(4 sqrt(2) L_f)),
                   2 L_f^2/M^2 <= alpha0 <= 1/(16 mu0^2)

    and alpha < 1. Left out, mu0 is its upper bound and alpha0 its lower one. `constants` are
    estimated near x0 unless given.

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

    def orders(self, momentum: Momentum) -> tuple[float, float, float]:
        """Exponents of K in rho, mu and alpha."""
        if is_recursive(momentum):
            return (1 / 3, 1 / 3, 2 / 3) if self.feasible else (1 / 4, 1 / 4, 1 / 2)
        return (1 / 4, 1 / 2, 1 / 2) if self.feasible else (1 / 5, 2 / 5, 2 / 5)

    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        c, rho0 = self.constants or constants, self.rho0
        M, (r, m, a) = c.L_max(rho0), self.orders(momentum)
        recursive = is_recursive(momentum)
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

    def b0(self, momentum: Momentum, K: int) -> int:
        return math.ceil(K ** (1 / 3)) if is_recursive(momentum) and self.feasible else 1

    def feasible_enough(self, momentum: Momentum, K: int) -> float:
        if not self.feasible:
            return math.inf
        return math.sqrt(self.C * K ** -self.orders(momentum)[0])


def TwoPhase(C: Any = 1.0, **settings: Any) -> Theorem:
    """Phase one, which needs no sample, until ||c||^2 <= C K^{-l}; then the theorems' orders.

    >>> import mossp
    >>> TwoPhase(C=4.0).feasible_enough(mossp.Polyak(), 10_000)
    0.632455
    """
    return Theorem(**settings, C=C)


def Corollary(**settings: Any) -> Theorem:
    """Corollary 3.1 (Polyak) or 3.2 (recursive): the orders that need no feasible start.

    >>> import mossp
    >>> Corollary(rho0=2.0).orders(mossp.Recursive())
    (0.25, 0.25, 0.5)
    """
    return Theorem(**settings, feasible=False)


class Indexed(Rule):
    """The corollaries' orders with k in place of K: no horizon, no feasible start.

    rho_k = rho0 (k+1)^r, mu_k = mu0 (k+1)^-m, alpha_k = min(1, alpha0 (k+1)^-a). Left out, mu0 is
    1/(4 rho0 M), so that mu_k L_rho_k <= 1/4 at every step.

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

    def orders(self, momentum: Momentum) -> tuple[float, float, float]:
        """Exponents of k in rho, mu and alpha."""
        return Corollary().orders(momentum)

    def first_mu(self, c: Constants) -> float:
        return 1 / (4 * self.rho0 * c.L_max(self.rho0))

    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        c = self.constants or constants
        r, m, a = self.orders(momentum)
        mu0 = self.first_mu(c) if self.mu0 is None else self.mu0
        return Schedule(self.rho0, mu0, self.alpha0, r, -m, -a)


class AlacaogluWright(Indexed):
    """Alacaoglu, Wright 2023: rho_k = rho0 k^{1/4}, mu_k = mu0 k^{-1/4}, alpha_k = alpha0 k^{-1/2}.

    For recursive momentum, from any start; mu0 is the largest stable one unless given, since
    mu_k L_rho_k is largest at the first step.

    >>> import mossp
    >>> c = mossp.Constants(L_f=1.0, L_batch=1.0, sigma=1.0, G=1.0, G_c=2.0, C=0.0, L_c=2.0)
    >>> AlacaogluWright(rho0=1.0).schedule(mossp.Recursive(), 100, c).mu
    0.2
    """

    def orders(self, momentum: Momentum) -> tuple[float, float, float]:
        return 1 / 4, 1 / 4, 1 / 2

    def first_mu(self, c: Constants) -> float:
        curvature = c.L_batch + self.rho0 * (c.G_c**2 + c.C * c.L_c)
        return 1 / max(curvature, c.least_curvature)


class LuMeiXiao(AlacaogluWright):
    """Lu, Mei, Xiao 2024: iteration-indexed orders for a truncated estimator, ||d|| <= radius.

        recursive   rho_k = rho0 k^{1/3}, mu_k = mu0 k^{-1/3}, alpha_k = alpha0 k^{-2/3}
        Polyak      rho_k = rho0 k^{1/4}, mu_k = mu0 k^{-1/2}, alpha_k = alpha0 k^{-1/2}

    for k = 1, 2, ... The article has mu0 = 1 / (4 log(k + 2)), which log=True takes; without it mu0
    is the largest stable one. radius is to bound ||grad f||: 10 times the length of a gradient at
    x0 unless given.

    >>> import mossp
    >>> LuMeiXiao().orders(mossp.Recursive())
    (0.333333, 0.333333, 0.666667)
    """

    radius: Any = None
    log: bool = eqx.field(default=False, static=True)

    def __check_init__(self) -> None:
        check_positive(self, "radius")

    def orders(self, momentum: Momentum) -> tuple[float, float, float]:
        return Theorem().orders(momentum)

    def first_mu(self, c: Constants) -> float:
        return 0.25 if self.log else super().first_mu(c)

    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        made = super().schedule(momentum, K, constants)
        return dataclasses.replace(made, mu_log=float(self.log))

    def estimator(self, momentum: Momentum, constants: Constants) -> Momentum:
        if isinstance(momentum, Truncated):
            return momentum
        c = self.constants or constants
        radius = 10 * (c.G + c.sigma) if self.radius is None else self.radius
        return Truncated(momentum, radius or 1.0)


class Paper(Rule):
    """The settings of the paper's experiments: the theorems' orders, a constant alpha.

    The paper reports "0.905" (Polyak) and "0.9" (recursive) as the momentum parameter. In its
    formulas alpha multiplies the new gradient, which is the default here; averaging=True reads
    these numbers as the weight of the old direction (alpha = 0.095 and 0.1). It leaves rho0 and
    mu0 open: rho0 = 1, and mu0 = None takes the largest stable mu.

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

    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        c, K = self.constants or constants, self.horizon or K
        r, m, _ = Theorem().orders(momentum)
        rho = self.rho0 * K**r
        stable = 1 / max(c.L_batch + rho * (c.G_c**2 + c.C * c.L_c), c.least_curvature)
        mu = stable if self.mu0 is None else self.mu0 / K**m
        alpha = 0.9 if is_recursive(momentum) else 0.905
        return Schedule(rho, mu, 1 - alpha if self.averaging else alpha)

    def b0(self, momentum: Momentum, K: int) -> int:
        return Theorem().b0(momentum, self.horizon or K)

    def feasible_enough(self, momentum: Momentum, K: int) -> float:
        return Theorem().feasible_enough(momentum, self.horizon or K)


class Auto(Rule):
    """Nothing to set: rho, mu and alpha from the problem, measured again as the run goes on.

    See `mossp.tuning` for the formulas.

    >>> Auto().needs_K
    True
    """

    tuned: ClassVar[bool] = True
    shorten: Any = 1.0  # times the step that was measured, for functions that bend on the way

    def __check_init__(self) -> None:
        check_positive(self, "shorten")

    def schedule(self, momentum: Momentum, K: int, constants: Constants) -> Schedule:
        """alpha only: rho, mu and mu_end are set by `tuning.retune` before the first step."""
        one = jnp.ones(())
        return Schedule(
            rho=one, mu=one, alpha=one * 0.1, mu_end=one, alpha_end=one * min(1.0, 200.0 / K),
            settle_from=one * K / 2, settled=one * K, eta=one,
        )  # fmt: skip

    def b0(self, momentum: Momentum, K: int) -> int:
        return Theorem().b0(momentum, K)

    def feasible_enough(self, momentum: Momentum, K: int) -> float:
        return 1e-3


RULES: dict[str, Rule] = {
    "auto": Auto(),
    "theorem": Theorem(),
    "corollary": Corollary(),
    "indexed": Indexed(),
    "two-phase": TwoPhase(),
    "alacaoglu-wright": AlacaogluWright(),
    "lu-mei-xiao": LuMeiXiao(),
    "measured": Measured(),
    "paper": Paper(),
    "paper-averaging": Paper(averaging=True),
}


def as_rule(given: Any) -> Rule:
    if isinstance(given, Rule):
        return given
    if isinstance(given, str) and given in RULES:
        return RULES[given]
    raise ValueError(
        f"schedule must be one of {', '.join(map(repr, RULES))} or a rule such as "
        f"mossp.schedules.Theorem(rho0=2.0), but {shown(given)} was given."
    )


def with_alpha(schedule: Schedule, momentum: Momentum) -> Schedule:
    """A momentum's own alpha, if it has one, in place of the schedule's."""
    alpha = getattr(momentum, "alpha", None)
    if alpha is None:
        return schedule
    change = lambda s: (s.alpha, s.alpha_power, s.alpha_end)  # noqa: E731
    return eqx.tree_at(change, schedule, (alpha, 0.0, 1.0))
