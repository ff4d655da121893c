"""SPDC, the paper's first baseline: quadratic penalty, linearised g, a proximal term.

    for k:  xi in dg(x_k),  y = x_k
        for t = 1, ..., T:
            d  = Polyak or recursive estimate at y
            y <- prox_{h/q}([x_k / mu + y / eta - (d + rho J(y) c(y) - xi)] / q),  q = 1/mu + 1/eta
        x_{k+1} = y

The paper leaves three things open, which are switches here: where the estimator is refreshed
(`refresh`), whether inner iterates are averaged (`average`), and whether h enters by its proximal
map or by a subgradient, which may have a step of its own (`h`, `eta_h`).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx

from mossp._base.types import Vector
from mossp.estimators import GradientEstimator, Recursive
from mossp.methods.base import About, assumption, check_choice, check_number
from mossp.methods.stages import Stages, State, check_switches
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class SPDC(Stages):
    """Stochastic proximal DC steps on the penalty problem, with momentum (the paper's baseline).

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: recursive momentum unless given.
    inner : int
        Inner steps in a stage, T.
    refresh : {"inner", "outer"}
        Where the gradient is estimated: at every inner iterate, or once a stage.
    average : bool
        A stage ends at the mean of its inner iterates, weighted by t, instead of the last one.
    h : {"prox", "subgradient"}
        Whether h enters by its proximal map or by subgradients.
    eta_h : float, optional
        The step along the subgradient of h; eta if left out.

    Examples
    --------
    >>> import mossp
    >>> mossp.SPDC(momentum=mossp.Polyak(0.1), inner=10).inner
    10
    """

    momentum: GradientEstimator = Recursive()
    inner: Any = 5  # T
    refresh: str = eqx.field(default="inner", static=True)
    average: bool = eqx.field(default=False, static=True)
    h: str = eqx.field(default="prox", static=True)
    eta_h: Any = None  # the step along the subgradient of h; None: eta

    def __check_init__(self) -> None:
        check_switches(self)
        check_choice(self, "h", ("prox", "subgradient"))
        check_number(self, "eta_h", "eta_h > 0", lambda eta: eta > 0, optional=True)

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return 20 * step, step

    @property
    def about(self) -> About:
        return About(
            "Li, Cui, Wang",
            2026,
            constraints="none",
            concave="any",
            single_loop=False,
            assumption=assumption(self.momentum),
            complexity="-",
        )

    def length(self, k: Any) -> Any:
        return self.inner

    def inner_step(
        self, oracles: Oracles, parameters: Parameters, state: State, d: Vector
    ) -> State:
        mu, rho, _, eta = parameters
        reg, x_k, y = oracles.regularizer, state.center, state.y
        S = d + oracles.constraint_gradient(y, rho) - state.xi
        if self.h == "prox":
            q = 1 / mu + 1 / eta
            v = (x_k / mu + y / eta - S) / q
            y = reg.prox_h(v, 1 / q)
            return state._replace(y=y, s_h=q * (v - y))
        eta_h = eta if self.eta_h is None else self.eta_h
        s_h = reg.nearest_h(y, 0 * y)
        y = y - eta * (S + (y - x_k) / mu) - eta_h * s_h
        return state._replace(y=y, s_h=s_h)
