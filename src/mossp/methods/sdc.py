"""Momentum for the concave part (Chayti, Jaggi 2025, Algorithm 2), here on h - (g - Q_rho).

With G = h, H = g - Q_rho, in the letters of MoSSP (the article has x for z, y for x, gamma for mu,
alpha for eta):

    d  = Polyak or recursive estimate of grad f(z)
    x+ = prox_{mu h}(z)          (h="subgradient": x - eta (s_h + (x - z) / mu), which follows it)
    z+ = z - eta ((z - x+) / mu + d + rho J(z) c(z) - grad g(z))

Only h is smoothed: at a standstill the gradients are those at z, and |z - x| = mu |s_h|, so that mu
must be small. g has to be smooth; one with kinks is replaced by its envelope M_{mu g}.

A concave part -E[g(x, xi)] is the article's own H: its gradient is estimated at z with the same
momentum as that of f, recursive or Polyak's, and subtracted from d.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from mossp._base.types import Vector
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Recursive
from mossp.methods import following
from mossp.methods.base import (
    About,
    Method,
    assumption,
    check_choice,
    gradient_of_g,
    nearest_witness,
)
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector
    z: Vector
    memory: Any
    s_h: Vector  # of the last step: (z - x) / mu
    s_g: Vector  # in dg(y)
    y: Vector
    concave: Any = None  # what the estimator of dE[g](z) remembers, where there is such a part


class SDC(Method):
    """Single-loop stochastic DC method with momentum on the concave part.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: recursive momentum unless given.
    h : {"prox", "subgradient"}
        Whether h enters by its proximal map or by subgradients.

    Examples
    --------
    >>> import mossp
    >>> mossp.SDC(momentum=mossp.Polyak(0.1)).momentum
    Polyak(alpha=0.1)
    """

    momentum: GradientEstimator = Recursive()
    h: str = eqx.field(default="prox", static=True)
    mu_end = 0.5  # halves the error of the order of mu
    samples_concave: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_choice(self, "h", ("prox", "subgradient"))

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return step, step / 2  # eta = 1 / (1 / mu + L_rho)

    @property
    def about(self) -> About:
        return About(
            "Chayti, Jaggi",
            2025,
            constraints="none",
            concave="smooth",
            single_loop=True,
            assumption=assumption(self.momentum),
            complexity="eps^-4",
        )

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        zero = jnp.zeros_like(x0)
        concave = following.init(self.follower, oracles, x0)
        return State(x0, x0, self.momentum.init(d0, x0), zero, zero, x0, concave)

    @property
    def follower(self) -> GradientEstimator:
        return self.momentum

    def linearised_at(self, state: State) -> Vector:
        return state.z

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, rho, alpha, eta = parameters
        reg, x, z = oracles.regularizer, state.x, state.z
        d, memory = self.momentum.update(self.gradient(oracles, batch), state.memory, z, alpha)
        concave = state.concave
        if concave is not None:
            v, concave = following.update(self.follower, oracles, batch, concave, z, alpha)
            d = d - v
        if self.h == "prox":
            x = reg.prox_h(z, mu)
        else:
            x = x - eta * (reg.nearest_h(x, 0 * x) + (x - z) / mu)
        s_g, y = gradient_of_g(oracles, z, mu)
        s_h = (z - x) / mu
        z = z - eta * (s_h + d + oracles.constraint_gradient(z, rho) - s_g)
        return State(x, z, memory, s_h, s_g, y, concave)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        x, rho, lam = state.x, parameters.rho, jnp.zeros(oracles.m, state.x.dtype)
        if self.h == "prox":
            return Witness(x, state.y, state.s_h, state.s_g, lam, rho)
        d = state.memory.d if state.concave is None else state.memory.d - state.concave.d
        return nearest_witness(oracles, x, d, state.y, state.s_g, lam, rho)

    def rescale(self, state: State, ratio: Any) -> State:
        return state._replace(z=state.x + ratio * (state.z - state.x))
