"""SSL-ALM, stochastic smoothed and linearised augmented Lagrangian (of humancompatible-train).

Inequalities get slacks s >= 0, c_I(x) + s = 0; equalities have s = 0. With z_1 and z_2 independent
samples, and v a point that (x, s) is held near,

    y      <- y + sigma (c(x; z_1) + s),   0 where |y| >= M             sigma = dual rho
    G       = gf(x) + J(x; z_1) (y + rho (c(x; z_2) + s)) + (x - v) / eta
    G_s     = y + rho (c(x; z_2) + s) + (s - v_s) / eta
    (x, s) <- (prox_{mu h}(x - mu G), [s - mu_s G_s]_+)
    v      <- v + beta ((x, s) - v)

The article has tau for mu, mu for 1 / eta, eta for sigma and b for beta, and a projection in place
of the proximal map of h. Its convergence is proved for linear constraints. Here the slacks have a
step of their own, mu_s = 1 / (rho + 1 / eta), which is the stable one whatever the length of J.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from mossp._base.types import Vector
from mossp._base.validation import is_weight
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Plain
from mossp.methods.base import About, Method, check_number
from mossp.methods.penalty import ScaledPenalty
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector
    s: Vector  # slacks; 0 for equalities
    y: Vector  # multipliers
    v: Vector  # what x is held near
    v_s: Vector  # what s is held near
    memory: Any
    s_h: Vector  # of the last step: in dh(x)
    q: Vector  # of the last step: y + rho (c + s)


class SSLALM(Method):
    """Stochastic smoothed and linearised augmented Lagrangian method.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: by the mini-batch alone unless given.
    dual : float
        The dual step in units of rho, `0 < dual <= 1`.
    beta : float
        The part of the way that the centre follows, `0 < beta <= 1`.
    bound : float
        A multiplier of this size is set to 0.

    Examples
    --------
    >>> import mossp
    >>> mossp.SSLALM(dual=0.05).about.concave
    'zero'
    """

    momentum: GradientEstimator = Plain()
    dual: Any = 0.1
    beta: Any = 0.5
    bound: Any = 1e4
    samples_constraints: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_number(self, "dual", "0 < dual <= 1", is_weight)
        check_number(self, "beta", "0 < beta <= 1", is_weight)
        check_number(self, "bound", "bound > 0", lambda bound: bound > 0)

    @property
    def penalty(self) -> ScaledPenalty:
        return ScaledPenalty(5.0 if self.momentum.vanishing else 20.0)

    @property
    def exact(self) -> bool:
        return False  # noise in c stays, whatever the estimator of grad f

    @property
    def about(self) -> About:
        return About(
            "Huang, Zhang, Alacaoglu",
            2025,
            constraints="any",
            concave="zero",
            single_loop=True,
            assumption="L-smooth",
            complexity="eps^-4",
        )

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return 1 / (1 / step + L), 1 / L

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        zero = jnp.zeros(oracles.m, x0.dtype)
        s = jnp.where(oracles.is_equality, 0.0, jnp.maximum(-oracles.on_pools().c(x0), 0.0))
        memory = self.momentum.init(d0, x0)
        return State(x0, s, zero, x0, s, memory, jnp.zeros_like(x0), zero)

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, rho, alpha, eta = parameters
        reg, (x, s, y, v, v_s, memory, _, _) = oracles.regularizer, state
        d, memory = self.momentum.update(self.gradient(oracles, batch), memory, x, alpha)
        if oracles.samples_constraints and not self.momentum.full:
            z_1, z_2 = batch.gradients, batch.values
            c_1, c_2 = oracles.sampled_c(x, z_1), oracles.sampled_c(x, z_2)
            pull = lambda q: oracles.sampled_pull(x, q, z_1) + oracles.exact_pull(x, q)  # noqa: E731
        else:
            c_1, pull = oracles.linearized(x)
            c_2 = c_1
        y = y + self.dual * rho * (c_1 + s)
        y = jnp.where(jnp.abs(y) >= self.bound, 0.0, y)
        q = y + rho * (c_2 + s)
        w = x - mu * (d + pull(q) + (x - v) / eta)
        x = reg.prox_h(w, mu)
        G_s = q + (s - v_s) / eta
        s = jnp.maximum(s - G_s / (rho + 1 / eta), 0.0)
        s = jnp.where(oracles.is_equality, 0.0, s)
        v, v_s = v + self.beta * (x - v), v_s + self.beta * (s - v_s)
        return State(x, s, y, v, v_s, memory, (w - x) / mu, q)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        lam, zero = oracles.positive_part(state.q), jnp.zeros((), state.x.dtype)
        return Witness(state.x, state.x, state.s_h, jnp.zeros_like(state.x), lam, zero)
