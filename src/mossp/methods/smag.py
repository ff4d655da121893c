"""SMAG, single-loop stochastic Moreau-envelope gradients (Hu, Qi, Lu, Yang 2024), on Q_rho + h - g.

With Phi = Q_rho + h, in the letters of MoSSP (the article has x for z, p for x, q for y, gamma for
mu, eta1 for eta and eta0 / gamma for beta):

    x+ = x - eta (gf(x; B) + rho J(x) c(x) + s_h + (x - z) / mu)      follows prox_{mu Phi}(z)
    y+ = y - eta (s_g + (y - z) / mu)                                 follows prox_{mu g}(z)
    z+ = z - beta (y+ - x+)                        a gradient step on M_{mu Phi} - M_{mu g}

s_h and s_g are subgradients at x and y. exact_g=True takes y+ = prox_{mu g}(z) instead, and
h="prox" the proximal step that keeps h whole,

    x+ = argmin_w <gf(x; B) + rho J c, w> + h(w) + |w - z|^2 / (2 mu) + |w - x|^2 / (2 eta).

A concave part -E[g(x, xi)] adds a subgradient of g(.; B) at y to s_g, as in the article, whose
second function is sampled; exact_g=True then keeps the proximal map of the regulariser's own g,

    y+ = argmin_w <v, w> + g_r(w) + |w - z|^2 / (2 mu) + |w - y|^2 / (2 eta).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from mossp._base.types import Vector
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Plain
from mossp.methods import following
from mossp.methods.base import About, Method, check_choice, check_number, nearest_witness
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector
    y: Vector
    z: Vector
    s_h: Vector  # of the last step, if it was proximal
    memory: Any
    concave: Any = None  # what the estimator of dE[g](y) remembers, where there is such a part


class SMAG(Method):
    """Single-loop stochastic gradient method on the difference of Moreau envelopes.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: by the mini-batch alone unless given.
    beta : float
        Step on the difference of envelopes.
    h : {"subgradient", "prox"}
        Whether h enters by subgradients, as in the article, or by its proximal map.
    exact_g : bool
        Take the proximal point of g itself, instead of following it.

    Examples
    --------
    >>> import mossp
    >>> mossp.SMAG(h="prox", exact_g=True).exact_g
    True
    """

    momentum: GradientEstimator = Plain()
    beta: Any = 0.4
    h: str = eqx.field(default="subgradient", static=True)
    exact_g: bool = eqx.field(default=False, static=True)
    samples_concave: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_choice(self, "h", ("prox", "subgradient"))
        check_number(self, "beta", "beta > 0", lambda beta: beta > 0)

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return 2 * step, step / 2

    @property
    def about(self) -> About:
        return About(
            "Hu, Qi, Lu, Yang",
            2024,
            constraints="none",
            concave="any",
            single_loop=True,
            assumption="bounded",
            complexity="eps^-4",
        )

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        concave = following.init(self.follower, oracles, x0)
        return State(x0, x0, x0, jnp.zeros_like(x0), self.momentum.init(d0, x0), concave)

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, rho, alpha, eta = parameters
        reg, (x, y, z, s_h, memory, concave) = oracles.regularizer, state
        d, memory = self.momentum.update(self.gradient(oracles, batch), memory, x, alpha)
        S = d + oracles.constraint_gradient(x, rho)
        if self.h == "prox":
            q = 1 / mu + 1 / eta
            v = (z / mu + x / eta - S) / q
            x = reg.prox_h(v, 1 / q)
            s_h = q * (v - x)
        else:
            x = x - eta * (S + reg.nearest_h(x, 0 * x) + (x - z) / mu)
        if concave is not None:
            v, concave = following.update(self.follower, oracles, batch, concave, y, alpha)
            tau = 1 / (1 / mu + 1 / eta)
            followed = y - eta * (reg.subgradient_g(y) + v + (y - z) / mu)
            proximal = reg.prox_g(tau * (z / mu + y / eta - v), tau) if self.exact_g else y
        else:
            followed = y - eta * (reg.subgradient_g(y) + (y - z) / mu)
            proximal = reg.prox_g(z, mu) if self.exact_g else y
        y = proximal if self.exact_g else followed
        return State(x, y, z - self.beta * (y - x), s_h, memory, concave)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        x, y, lam = state.x, state.y, jnp.zeros(oracles.m, state.x.dtype)
        s_g = oracles.regularizer.subgradient_g(y)
        if self.h == "prox":
            return Witness(x, y, state.s_h, s_g, lam, parameters.rho)
        d = state.memory.d if state.concave is None else state.memory.d - state.concave.d
        return nearest_witness(oracles, x, d, y, s_g, lam, parameters.rho)

    def rescale(self, state: State, ratio: Any) -> State:
        x, y, z = state.x, state.y, state.z
        new = x + ratio * (z - x)
        return state._replace(z=new, y=new - ratio * (z - y))
