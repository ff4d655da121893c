"""Stochastic proximal SQP with DC linearisation: the linearised constraints are met exactly.

    xi  in dg(x)
    x+  = argmin_x  <d - xi, x> + h(x) + |x - x_k|^2 / (2 mu)
          s.t.  tau c_E(x_k) + J_E'(x - x_k) = 0,  tau c_I(x_k) + J_I'(x - x_k) <= 0

solved in the dual (`mossp.methods.dual`), whose solution is the multiplier. The step mu is of the
order of 1 / L_f: no penalty throttles the way along the constraints, and the violation is of second
order in the length of a step, whatever the noise of d. tau < 1 where the constraints are so far
away that a step to where they seem to be would leave the neighbourhood of x; where they contradict
each other, the step is the one that violates them least.

Of constraints that are means over rows, c and J are estimates, as d is. With noise that does not
vanish a step goes the part

    alpha |J_j|^2 / (|J_j|^2 + s_j^2)          s_j^2: the variance of the estimate of J_j

of the way to where c_j seems to vanish: alpha, or x would follow the noise in c, and the rest, or a
J_j that is small by chance would throw x far away along a direction that is noise.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from mossp._base.types import Vector
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Recursive
from mossp.methods import tracking
from mossp.methods.base import About, Method, check_number, ours
from mossp.methods.dual import constrained_prox, solved
from mossp.methods.penalty import NoPenalty
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector
    lam: Vector
    memory: Any
    v: Vector  # of the last step: x+ = prox_{mu h}(v)
    y: Vector  # of the last step: where g was linearised
    xi: Vector  # in dg(y)
    noise: Vector  # s_j^2; 0 where constraints are exact


class SQPDC(Method):
    """Stochastic proximal SQP with DC linearisation.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: recursive momentum unless given.
    bound : float
        On multipliers, relative to what they are made of.
    reach : float
        The longest step towards the constraints, relative to `max(|x|, 1)`.

    Examples
    --------
    >>> import mossp
    >>> mossp.SQPDC(momentum=mossp.SVRG()).exact
    True
    """

    momentum: GradientEstimator = Recursive()
    bound: Any = 1e4  # on multipliers, relative to what they are made of
    reach: Any = 1.0  # the longest step towards the constraints, relative to max(|x|, 1)
    samples_constraints: ClassVar[bool] = True
    needs_jacobian: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_number(self, "bound", "bound > 0", lambda bound: bound > 0)
        check_number(self, "reach", "reach > 0", lambda reach: reach > 0)

    @property
    def penalty(self) -> NoPenalty:
        return NoPenalty()

    @property
    def about(self) -> About:
        return ours(self.momentum)

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        lam = jnp.zeros(oracles.m, x0.dtype)
        return State(x0, lam, self.memory(oracles, x0, d0), x0, x0, jnp.zeros_like(x0), lam)

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, alpha, reg, x = parameters.mu, parameters.alpha, oracles.regularizer, state.x
        xi = reg.subgradient_g(x)
        if oracles.m == 0:
            d, memory = self.momentum.update(self.gradient(oracles, batch), state.memory, x, alpha)
            w = x - mu * (d - xi)
            return State(reg.prox_h(w, mu), state.lam, memory, w, x, xi, state.noise)
        d, c, J, memory = tracking.linearized(
            self.momentum, oracles, batch, state.memory, x, alpha
        )  # fmt: skip
        w = x - mu * (d - xi)
        away = distance(J, oracles.positive_part(c))
        longest = self.reach * jnp.maximum(jnp.linalg.norm(x), 1.0)
        tau = jnp.minimum(1.0, longest / jnp.maximum(away, jnp.finfo(x.dtype).tiny))
        # An inequality that holds keeps its slack.
        e, noise = jnp.where(oracles.is_equality | (c > 0), tau * c, c), state.noise
        if oracles.samples_constraints and not self.momentum.vanishing:
            noise = scatter(noise, J - state.memory.J.d, tracking.weight(alpha, state.memory))
            noise = jnp.where(oracles.terms.sampled, noise, 0.0)
            e = jnp.minimum(tau, alpha) * reliable(J, noise) * c
        bound = self.bound * (jnp.linalg.norm(d - xi) + jnp.minimum(away, longest) / mu + 1e-6)
        found = constrained_prox(
            reg.h, reg.prox_h, w, mu, x, e, J, oracles.m_E, state.lam, bound
        )  # fmt: skip
        return State(found.x, found.y, memory, found.v, x, xi, noise)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        x, lam, _, v, y, xi, _ = state
        return Witness(x, y, (v - x) / parameters.mu, xi, lam, jnp.zeros((), x.dtype))


def scatter(noise: Vector, moved: Any, alpha: Any) -> Vector:
    """The variance of an average with the weight alpha, from how far it moves.

    A step moves it by alpha (J(x; B) - J), and its variance is alpha / (2 - alpha) that of J(x; B).
    """
    seen = jnp.sum(moved**2, axis=1) / (alpha * (2 - alpha))
    return (1 - alpha) * noise + alpha * seen


def reliable(J: Any, noise: Vector) -> Vector:
    """|J_j|^2 / (|J_j|^2 + s_j^2)."""
    squares = jnp.sum(J**2, axis=1)
    return squares / jnp.maximum(squares + noise, jnp.finfo(squares.dtype).tiny)


def distance(J: Any, c: Vector) -> Any:
    """The length of the shortest step that meets J step = -c."""
    lengths = jnp.maximum(jnp.linalg.norm(J, axis=1), jnp.finfo(c.dtype).tiny ** 0.5)
    J, c = J / lengths[:, None], c / lengths
    normal = J @ J.T + 1e-8 * jnp.eye(len(c), dtype=c.dtype)
    return jnp.linalg.norm(solved(normal, c) @ J)
