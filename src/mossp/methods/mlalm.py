"""MLALM, momentum-based linearised augmented Lagrangian (Shi, Wang, Wang 2025).

    q   = lam + rho c(x)                                   (inequalities: [.]_+)
    x+  = prox_{mu h}(x - mu (d + J(x) q))                 d: recursive momentum
    lam+ = lam + sigma c(x+)                               equalities, sigma = dual rho
         = lam + sigma max(-lam / rho, c(x+))              inequalities

The article has beta for rho, eta for mu and rho for sigma, and takes momentum of the whole gradient
of the augmented Lagrangian; the constraints being exact, that is d + J q with the momentum of f
alone. It has no concave part: with dc=True an element of dg(x) is subtracted from d.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from mossp._base.types import Vector
from mossp._base.validation import is_number
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Recursive
from mossp.methods.base import About, Method, check_number
from mossp.methods.penalty import ScaledPenalty
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector
    lam: Vector
    memory: Any
    s_h: Vector  # of the last step
    s_g: Vector  # in dg(y)
    y: Vector  # x before the last step


class MLALM(Method):
    """Momentum-based linearised augmented Lagrangian method.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: recursive momentum unless given.
    dual : float
        The dual step in units of rho, at most 1; 0: no dual step.
    dc : bool
        Subtract an element of dg(x) from the gradient: the article has no concave part.

    Examples
    --------
    >>> import mossp
    >>> mossp.MLALM(dual=0.03).dual
    0.03
    """

    momentum: GradientEstimator = Recursive()
    dual: Any = 0.1  # sigma / rho, at most 1; 0: no dual step
    dc: bool = eqx.field(default=False, static=True)

    @property
    def penalty(self) -> ScaledPenalty:
        return ScaledPenalty(5.0 if self.momentum.vanishing else 20.0)  # noise asks for more of it

    def __check_init__(self) -> None:
        check_number(self, "dual", "0 <= dual <= 1", lambda dual: (dual >= 0) & (dual <= 1))

    @property
    def exact(self) -> bool:
        return super().exact and is_number(self.dual, lambda dual: dual > 0, several=True)

    @property
    def about(self) -> About:
        return About(
            "Shi, Wang, Wang",
            2025,
            constraints="any",
            concave="any" if self.dc else "zero",
            single_loop=True,
            assumption="mean-sq.",
            complexity="eps^-3",
        )

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        zero, lam = jnp.zeros_like(x0), jnp.zeros(oracles.m, x0.dtype)
        return State(x0, lam, self.momentum.init(d0, x0), zero, zero, x0)

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, rho, alpha, _ = parameters
        reg, x, lam, sigma = oracles.regularizer, state.x, state.lam, self.dual * parameters.rho
        d, memory = self.momentum.update(self.gradient(oracles, batch), state.memory, x, alpha)
        s_g = reg.subgradient_g(x) if self.dc else state.s_g
        v = x - mu * (d + oracles.constraint_gradient(x, rho, lam) - s_g)
        x_new = reg.prox_h(v, mu)
        c = oracles.c(x_new)
        least = -lam / jnp.maximum(rho, jnp.finfo(x.dtype).tiny)  # rho may be 0, and lam is then
        floor = jnp.where(oracles.is_equality, -jnp.inf, least)
        lam = lam + sigma * jnp.maximum(floor, c)
        return State(x_new, lam, memory, (v - x_new) / mu, s_g, x)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        x, lam, _, s_h, s_g, y = state
        return Witness(x, y if self.dc else x, s_h, s_g, lam, parameters.rho)
