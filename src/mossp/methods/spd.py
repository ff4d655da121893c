"""SPD, stochastic proximal DC (Nitanda, Suzuki 2017), here on Q_rho + h - g.

    for t:  v = grad g(x_t),  y = x_t                 (a nonsmooth g: that of its envelope M_{nu g})
        repeat T times:
            y <- prox_{eta h}(y - eta [gf(y; B) + rho J(y) c(y) - v + Gamma (y - x_t)])
        x_{t+1} = y

Gamma = 1 / mu is the article's gamma and the weak convexity of Q_rho in one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx

from mossp._base.types import Vector
from mossp.estimators import GradientEstimator, Plain
from mossp.methods.base import About, check_number, gradient_of_g
from mossp.methods.stages import Stages, State, check_switches
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class SPD(Stages):
    """Stochastic proximal DC algorithm.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: by the mini-batch alone unless given.
    inner : int
        Inner steps in a stage, T.
    nu : float, optional
        Smooths a g that has kinks; eta if left out.
    refresh : {"inner", "outer"}
        Where the gradient is estimated: at every inner iterate, or once a stage.
    average : bool
        A stage ends at the mean of its inner iterates, weighted by t, instead of the last one.

    Examples
    --------
    >>> import mossp
    >>> mossp.SPD(inner=20).inner
    20
    """

    momentum: GradientEstimator = Plain()
    inner: Any = 10  # T
    nu: Any = None  # smooths a g that has kinks; None: eta
    refresh: str = eqx.field(default="inner", static=True)
    average: bool = eqx.field(default=False, static=True)

    samples_concave: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_switches(self)
        check_number(self, "nu", "nu > 0", lambda nu: nu > 0, optional=True)

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return 20 * step, step / 1.05  # eta = 1 / (L_rho + Gamma), Gamma = L_rho / 20

    @property
    def about(self) -> About:
        return About(
            "Nitanda, Suzuki",
            2017,
            constraints="none",
            concave="smooth",
            single_loop=False,
            assumption="L-smooth",
            complexity="eps^-4",
        )

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        state = super().init(oracles, x0, d0)
        if self.nu is None:  # eta is not known yet: the first stage takes an element of dg(x0)
            return state
        xi, y_g = gradient_of_g(oracles, x0, self.nu)
        return state._replace(xi=xi, y_g=y_g)

    def linearised(
        self, oracles: Oracles, parameters: Parameters, x: Vector
    ) -> tuple[Vector, Vector]:
        return gradient_of_g(oracles, x, parameters.eta if self.nu is None else self.nu)

    def length(self, k: Any) -> Any:
        return self.inner

    def inner_step(
        self, oracles: Oracles, parameters: Parameters, state: State, d: Vector
    ) -> State:
        mu, rho, _, eta = parameters
        y, v = state.y, state.xi
        S = d + oracles.constraint_gradient(y, rho) - v + (y - state.center) / mu
        w = y - eta * S
        y = oracles.regularizer.prox_h(w, eta)
        return state._replace(y=y, s_h=(w - y) / eta)
