"""MoSSP with multipliers in the single loop: an augmented Lagrangian in place of the penalty.

    q    = lam + rho w c(x)                                (inequalities: [.]_+)
    S    = d + J(x) q
    x+   = prox_{mu h}(z - mu S)
    z+   = z - beta (prox_{mu g}(z) - x+)
    lam+ = lam + dual rho w c(x+), kept within +-bound     (inequalities: [.]_+)

The penalty's violation ||lam*|| / rho is gone, so that rho can be moderate and mu large. The
weights w = max_i ||J_i||^2 / ||J_j||^2 make the rows of J equally long at the start, so that a
constraint written in other units is met as fast as the others. Of constraints that are means over
rows, an estimate of c(x) takes the place of c(x+) in the last line, and alpha dual that of dual
where it is noisy.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from mossp._base.types import Vector
from mossp._base.validation import is_weight
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Recursive
from mossp.methods import tracking
from mossp.methods.base import About, Method, check_number, ours
from mossp.methods.penalty import ScaledPenalty
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector
    z: Vector
    lam: Vector
    weights: Vector
    memory: Any
    v: Vector  # of the last step: z - mu S, so that x = prox_{mu h}(v)
    y: Vector  # of the last step: prox_{mu g}(z)


class MoSSPAL(Method):
    """Momentum-based single-loop stochastic method with multipliers.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: recursive momentum unless given.
    beta : float
        Step on the difference of envelopes, `0 < beta <= 1`.
    dual : float
        The dual step in units of rho, `0 < dual <= 1`.
    bound : float
        On every multiplier.

    Examples
    --------
    >>> import mossp
    >>> mossp.MoSSPAL(momentum=mossp.SVRG()).exact
    True
    """

    momentum: GradientEstimator = Recursive()
    beta: Any = 1.0
    dual: Any = 0.1  # the dual step in units of rho
    bound: Any = 1e6  # on every multiplier
    samples_constraints: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_number(self, "beta", "0 < beta <= 1", is_weight)
        check_number(self, "dual", "0 < dual <= 1", is_weight)
        check_number(self, "bound", "bound > 0", lambda bound: bound > 0)

    @property
    def penalty(self) -> ScaledPenalty:
        return ScaledPenalty(5.0 if self.momentum.vanishing else 20.0)  # noise asks for more of it

    @property
    def about(self) -> About:
        return ours(self.momentum)

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        lam = jnp.zeros(oracles.m, x0.dtype)
        return State(x0, x0, lam, equal_rows(oracles, x0), self.memory(oracles, x0, d0), x0, x0)

    def weights(self, state: State) -> Vector:
        return state.weights

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, rho, alpha, _ = parameters
        reg, x, z, lam = oracles.regularizer, state.x, state.z, state.lam
        rho = rho * state.weights
        d, c, Jq, memory = tracking.pulled(
            self.momentum, oracles, batch, state.memory, x, alpha,
            multipliers=lambda c: oracles.positive_part(lam + rho * c),
        )  # fmt: skip
        S = d + Jq
        v = z - mu * S
        x = reg.prox_h(v, mu)
        y = reg.prox_g(z, mu)
        c, dual = (c if oracles.samples_constraints else oracles.c(x)), self.dual
        if oracles.samples_constraints and not self.momentum.vanishing:
            dual = dual * alpha  # or multipliers would follow the noise in c
        lam = oracles.positive_part(lam + dual * rho * c)
        lam = jnp.clip(lam, -self.bound, self.bound)
        return State(x, z - self.beta * (y - x), lam, state.weights, memory, v, y)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        mu, rho = parameters.mu, parameters.rho
        x, z, lam, weights, memory, v, y = state
        z = z + self.beta * (y - x)  # before the step
        c = memory.u if oracles.samples_constraints else oracles.c(x)
        q = oracles.positive_part(lam + rho * weights * c)
        zero = jnp.zeros((), x.dtype)
        return Witness(x, y, s_h=(v - x) / mu, s_g=(z - y) / mu, lam=q, rho=zero)

    def rescale(self, state: State, ratio: Any) -> State:
        return state._replace(z=state.x + ratio * (state.z - state.x))


def equal_rows(oracles: Oracles, x: Vector) -> Vector:
    """max_i ||J_i||^2 / ||J_j||^2; 1 where a row vanishes at x."""
    if oracles.m == 0:
        return jnp.zeros(0, x.dtype)
    squares = oracles.on_pools().row_lengths(x) ** 2
    largest = jnp.max(squares)
    return jnp.where(squares > 1e-16 * largest, largest / squares, 1.0)
