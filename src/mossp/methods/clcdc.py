"""Composite LCDC-ALM (Sun, Sun 2023): deterministic, linear equalities c(x) = A x - b.

    x+   = argmin_x <grad f(x), x> + h(x) + <lam, c(x)> + rho/2 |c(x)|^2 + |x - z|^2 / (2 mu)
    z+   = z - beta (prox_{mu g}(z) - x+)
    lam+ = lam + rho c(x+)

The subproblem is strongly convex: accelerated proximal gradient from x, with ell = 1/mu + rho |A|^2
and momentum theta = (kap - 1) / (kap + 1), kap = sqrt(ell mu), until its residual is a small part
of the last move. Without constraints one of its steps is exact, and the method is MoSSP with full
gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from mossp._base.types import Vector
from mossp.certificates.certificate import Witness
from mossp.estimators import Full, GradientEstimator
from mossp.methods.base import About, Method, check_number
from mossp.methods.penalty import ScaledPenalty
from mossp.oracles import Oracles
from mossp.schedules import Parameters

MOST_INNER = 500
INNER_RESIDUAL = 1e-3  # in units of the last move of x, divided by mu


class State(NamedTuple):
    x: Vector
    z: Vector
    lam: Vector
    memory: Any
    move: Any  # |x+ - x| of the last step
    s_h: Vector  # of the last step
    s_g: Vector  # in dg(y)
    y: Vector
    AA: Any  # |A|^2


class CLCDC(Method):
    """Composite augmented Lagrangian method for linearly constrained DC problems.

    Parameters
    ----------
    momentum : Full
        The method is deterministic.
    beta : float
        Step on z, `0 < beta < 2`.

    Examples
    --------
    >>> import mossp
    >>> mossp.CLCDC(beta=0.9).beta
    0.9
    """

    momentum: GradientEstimator = Full()
    beta: Any = 1.0

    def __check_init__(self) -> None:
        if not getattr(self.momentum, "full", False):
            raise ValueError("CLCDC is deterministic: its momentum can only be mossp.Full().")
        check_number(self, "beta", "0 < beta < 2", lambda beta: (beta > 0) & (beta < 2))

    @property
    def penalty(self) -> ScaledPenalty:
        return ScaledPenalty(20.0)

    def sizes(self, L: Any, step: Any) -> tuple[Any, Any]:
        return 0.5 / L, step

    @property
    def about(self) -> About:
        return About(
            "Sun, Sun",
            2023,
            constraints="linear",
            concave="any",
            single_loop=False,
            assumption="full",
            complexity="eps^-3",
        )

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        zero, lam = jnp.zeros_like(x0), jnp.zeros(oracles.m, x0.dtype)
        # A power iteration stays below |A|^2, and ell must not.
        AA = 1.1 * oracles.jacobian_norm_squared(x0) if oracles.m else jnp.zeros((), x0.dtype)
        move = jnp.maximum(jnp.linalg.norm(x0), 1.0)
        return State(x0, x0, lam, self.momentum.init(d0, x0), move, zero, zero, x0, AA)

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, rho, alpha, _ = parameters
        reg, x, z, lam = oracles.regularizer, state.x, state.z, state.lam
        d, memory = self.momentum.update(self.gradient(oracles, batch), state.memory, x, alpha)
        ell = 1 / mu + rho * state.AA
        kap = jnp.sqrt(ell * mu)
        theta = (kap - 1) / (kap + 1)
        enough = INNER_RESIDUAL * state.move / mu
        rounding = 10 * jnp.finfo(x.dtype).eps * ell * jnp.maximum(jnp.linalg.norm(x), 1.0)

        def unfinished(carry: Any) -> Any:
            *_, residual, count = carry
            return (count < MOST_INNER) & (residual > jnp.maximum(enough, rounding))

        def accelerate(carry: Any) -> Any:
            u, w, _, _, count = carry
            S = d + oracles.constraint_gradient(w, rho, lam) + (w - z) / mu
            u_new = reg.prox_h(w - S / ell, 1 / ell)
            s_h = ell * (w - u_new) - S
            residual = ell * jnp.linalg.norm(w - u_new)
            return u_new, u_new + theta * (u_new - u), s_h, residual, count + 1

        first = (x, x, jnp.zeros_like(x), jnp.full((), jnp.inf, x.dtype), 0)
        x_new, _, s_h, _, _ = lax.while_loop(unfinished, accelerate, first)
        y = reg.prox_g(z, mu)
        lam = lam + rho * oracles.c(x_new)
        z_new = z - self.beta * (y - x_new)
        move = jnp.linalg.norm(x_new - x)
        return State(x_new, z_new, lam, memory, move, s_h, (z - y) / mu, y, state.AA)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        s = state
        # The subproblem's own multiplier lam + rho c(x+) is the new lam.
        return Witness(s.x, s.y, s.s_h, s.s_g, s.lam, jnp.zeros_like(parameters.rho))

    def rescale(self, state: State, ratio: Any) -> State:
        return state._replace(z=state.x + ratio * (state.z - state.x))
