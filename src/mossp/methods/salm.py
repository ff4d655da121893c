"""SALM, the paper's second baseline: augmented Lagrangian, linearised constraints and g.

    for k:  xi in dg(x_k),  J = J(x_k),  c = c(x_k),  y = x_k,  eta = 1 / (1/mu + rho ||J||^2)
        for t = 1, ..., T:
            d  = Polyak or recursive estimate at y      (refresh="outer": at x_k)
            q  = lam + rho (c + J'(y - x_k))            (inequalities: [.]_+)
            y <- prox_{eta h}(y - eta [d - xi + J q + (y - x_k) / mu])
        x_{k+1} = y,   lam <- lam + dual rho c(x_{k+1})     (inequalities: [.]_+)

||J||^2 is followed by one power iteration in R^m an inner step; for one constraint it is exact.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from mossp._base.types import Vector
from mossp._base.validation import is_number
from mossp.estimators import GradientEstimator, Recursive
from mossp.methods.base import About, assumption, check_choice, check_number
from mossp.methods.penalty import ScaledPenalty
from mossp.methods.stages import Stages, State, check_switches
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class SALM(Stages):
    """Stochastic linearised augmented Lagrangian method, with momentum (the paper's baseline).

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
    dual : float
        The dual step in units of rho; 0: no dual step.

    Examples
    --------
    >>> import mossp
    >>> mossp.SALM(momentum=mossp.Polyak(0.1), refresh="outer").refresh
    'outer'
    """

    momentum: GradientEstimator = Recursive()
    inner: Any = 5  # T
    refresh: str = eqx.field(default="inner", static=True)
    average: bool = eqx.field(default=False, static=True)
    h: str = eqx.field(default="prox", static=True)
    dual: Any = 1.0  # the dual step in units of rho
    mu_end = 0.13  # mu starts at 7.5 stable steps, and eta falls in step with it only below one

    def __check_init__(self) -> None:
        check_switches(self)
        check_choice(self, "h", ("prox", "subgradient"))
        check_number(self, "dual", "dual >= 0", lambda dual: dual >= 0)

    @property
    def penalty(self) -> ScaledPenalty:
        return ScaledPenalty(5.0)

    @property
    def exact(self) -> bool:
        return super().exact and is_number(self.dual, lambda dual: dual > 0, several=True)

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return 1 / L, step  # eta is its own: the inner steps see to the constraints

    @property
    def about(self) -> About:
        return About(
            "Li, Cui, Wang",
            2026,
            constraints="any",
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
        mu, rho = parameters.mu, parameters.rho
        reg, x_k, y, p = oracles.regularizer, state.center, state.y, state.p
        S, JJ = d - state.xi + (y - x_k) / mu, jnp.zeros_like(mu)
        if oracles.m:
            c, pull = oracles.linearized(x_k)
            forward = oracles.tangent(x_k)
            Jp = pull(p)
            JJ = Jp @ Jp
            moved = forward(Jp)
            length = jnp.linalg.norm(moved)
            # Where J vanishes, as at 0 on the sphere, p waits for a better place.
            p = jnp.where(length > 0, moved / jnp.where(length > 0, length, 1.0), p)
            S = S + pull(oracles.positive_part(state.lam + rho * (c + forward(y - x_k))))
        eta = 1 / (1 / mu + rho * JJ)
        if self.h == "prox":
            v = y - eta * S
            y = reg.prox_h(v, eta)
            return state._replace(y=y, s_h=(v - y) / eta, p=p)
        s_h = reg.nearest_h(y, 0 * y)
        return state._replace(y=y - eta * (S + s_h), s_h=s_h, p=p)

    def dual_step(self, oracles: Oracles, parameters: Parameters, state: State) -> Vector:
        return oracles.positive_part(
            state.lam + self.dual * parameters.rho * oracles.c(state.center)
        )
