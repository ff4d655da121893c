"""SSDC-SPG, stagewise stochastic DC (Xu, Qi, Lin, Jin, Yang 2019), here on Q_rho + h - g.

    for k = 1, 2, ...:  xi in dg(x_k),  w_1 = x_k
        for t = 1, ..., T_k = ceil(k / 3) + 1:
            w_{t+1} = prox_{h/q}([gamma x_k + w_t / eta_t - (gf(w_t; B) + rho J c - xi)] / q),
                      q = gamma + 1 / eta_t
        x_{k+1} = sum_t t w_{t+1} / sum_t t

gamma = 1 / mu and eta_t = 3 / (gamma (t + 1)), as the article has it for gamma = 3 L. A smaller
gamma travels further in as many steps; eta_t then starts at the stable step eta.
"""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from mossp._base.types import Vector
from mossp.estimators import GradientEstimator, Plain
from mossp.methods.base import About, check_choice, check_number
from mossp.methods.stages import Stages, State
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class SSDC(Stages):
    """Stagewise stochastic DC algorithm with stochastic proximal gradient steps.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: by the mini-batch alone unless given.
    growth : float
        Of the number of inner steps T_k with k.
    refresh : {"inner", "outer"}
        Where the gradient is estimated: at every inner iterate, or once a stage.
    average : bool
        A stage ends at the mean of its inner iterates, weighted by t, instead of the last one.

    Examples
    --------
    >>> import mossp
    >>> float(mossp.SSDC().length(6))
    4.0
    """

    momentum: GradientEstimator = Plain()
    growth: Any = 1 / 3  # of T_k with k
    refresh: str = eqx.field(default="inner", static=True)
    average: bool = eqx.field(default=True, static=True)

    samples_concave: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_choice(self, "refresh", ("inner", "outer"))
        check_number(self, "growth", "growth > 0", lambda growth: growth > 0)

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return 50 * step, step

    @property
    def about(self) -> About:
        return About(
            "Xu et al.",
            2019,
            constraints="none",
            concave="any",
            single_loop=False,
            assumption="Hölder",
            complexity="eps^-4/nu",
        )

    def length(self, k: Any) -> Any:
        return jnp.ceil((k + 1) * self.growth) + 1

    def inner_step(
        self, oracles: Oracles, parameters: Parameters, state: State, d: Vector
    ) -> State:
        mu, rho, _, eta = parameters
        x_k, w, gamma, t = state.center, state.y, 1 / mu, state.t + 1
        eta = jnp.minimum(eta, 3 / (gamma * (t + 1)))
        S = d + oracles.constraint_gradient(w, rho) - state.xi
        q = gamma + 1 / eta
        v = (gamma * x_k + w / eta - S) / q
        w = oracles.regularizer.prox_h(v, 1 / q)
        return state._replace(y=w, s_h=q * (v - w))
