"""Moving balls for inequalities: iMBAdc (Liu, Pan, Bi 2025) and SCP_ls (Yu, Pong, Lu 2021).

Deterministic, from a feasible start; xi in dg(x):

    x+ = argmin_w <grad f(x) - xi, w> + L_f/2 |w - x|^2 + h(w)
         s.t.     c_i(x) + <grad c_i(x), w - x> + L_i/2 |w - x|^2 <= 0

    c_i(x+) > 0 for some i:               L_i <- 2 L_i, again
    F(x+) > F(x) - 1e-4/2 |x+ - x|^2:     L_f <- 2 L_f, again

L_f and L_i start from Barzilai-Borwein values. The subproblem is solved in its dual,

    w(nu) = prox_{h/tau}(x - (grad f(x) - xi + J(x) nu) / tau),   tau = L_f + sum_i nu_i L_i,

by Newton steps on the constraints of w(nu) over nu >= 0. SCP_ls solves it to rounding, iMBAdc until
the duality gap is at most b/2 |w - x|^2, b = L_f / 10.

For a start that violates a constraint, 0 on its right-hand side becomes c_i(x): it gets no worse.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from mossp._base.types import Vector
from mossp.certificates.certificate import Witness
from mossp.estimators import Full, GradientEstimator
from mossp.methods.base import About, Method, nearest_witness
from mossp.methods.penalty import NoPenalty
from mossp.oracles import Oracles
from mossp.schedules import Parameters

MOST_TRIALS = 100  # of L_f and L_i in a step
MOST_NEWTON = 50
MOST_HALVINGS = 30


class State(NamedTuple):
    x: Vector
    F: Any  # F(x)
    nu: Vector  # multipliers
    memory: Any  # d: the gradient at `before`
    before: Vector  # x before the last step
    J: Vector  # its constraints' gradients, one row each
    s_g: Vector  # in dg(before)


class Model(NamedTuple):
    """The subproblem of a step."""

    x: Vector
    v: Vector  # grad f(x) - xi
    c: Vector  # [c_i(x)]_-
    J: Vector
    L_f: Any
    L: Vector

    def point(self, reg: Any, nu: Vector) -> Vector:
        """w(nu)."""
        tau = self.L_f + nu @ self.L
        return reg.prox_h(self.x - (self.v + nu @ self.J) / tau, 1 / tau)

    def constraints(self, w: Vector) -> Vector:
        """The balls: the dual function's gradient at nu, for w = w(nu)."""
        s = w - self.x
        return self.c + self.J @ s + self.L / 2 * (s @ s)

    def dual(self, reg: Any, nu: Vector) -> Any:
        w = self.point(reg, nu)
        s = w - self.x
        return self.v @ s + self.L_f / 2 * (s @ s) + reg.h(w) + nu @ self.constraints(w)


class IMBA(Method):
    """Moving balls approximation method for DC problems with smooth inequality constraints.

    Parameters
    ----------
    momentum : Full
        The method is deterministic.
    inexact : bool
        True: iMBAdc, which solves its subproblems up to a duality gap. False: SCP_ls, which solves
        them to rounding.

    Examples
    --------
    >>> import mossp
    >>> mossp.IMBA(inexact=False).about.reference
    'Yu, Pong, Lu'
    """

    momentum: GradientEstimator = Full()
    parameter_free: ClassVar[bool] = True
    inexact: bool = eqx.field(default=True, static=True)

    def __check_init__(self) -> None:
        if not getattr(self.momentum, "full", False):
            raise ValueError("IMBA is deterministic: its momentum can only be mossp.Full().")

    @property
    def about(self) -> About:
        return About(
            "Liu, Pan, Bi" if self.inexact else "Yu, Pong, Lu",
            2025 if self.inexact else 2021,
            constraints="inequalities",
            concave="any",
            single_loop=False,
            assumption="full",
            complexity="eps^-2" if self.inexact else "-",
        )

    @property
    def penalty(self) -> NoPenalty:
        return NoPenalty()

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        zero, nu = jnp.zeros_like(x0), jnp.zeros(oracles.m, x0.dtype)
        J = jnp.zeros((oracles.m, x0.size), x0.dtype)
        F = oracles.full_value(x0) + oracles.regularizer(x0)
        return State(x0, F, nu, self.momentum.init(d0, x0), x0, J, zero)

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        reg, x, m = oracles.regularizer, state.x, oracles.m
        g_before = state.memory.d
        g, memory = self.momentum.update(self.gradient(oracles, batch), state.memory, x, 1.0)
        xi = reg.subgradient_g(x)
        c, pull = oracles.linearized(x)
        J = jax.vmap(pull)(jnp.eye(m, dtype=x.dtype))
        dx = x - state.before
        L_f = barzilai_borwein(dx, g - g_before)
        L = jax.vmap(lambda dJ: barzilai_borwein(dx, dJ))(J - state.J) if m else c
        eps, size = jnp.finfo(x.dtype).eps, jnp.maximum(jnp.linalg.norm(x), 1.0)
        rounding = 8 * eps * (jnp.abs(c) + jnp.linalg.norm(J, axis=1) * size)
        allowed = jnp.maximum(c, rounding)

        def unfinished(trial: Any) -> Any:
            *_, accepted, count = trial
            return ~accepted & (count < MOST_TRIALS)

        def attempt(trial: Any) -> Any:
            L_f, L, nu, _, _, count = trial
            model = Model(x, g - xi, jnp.minimum(c, 0.0), J, L_f, L)
            nu = self.subproblem(reg, model, nu, rounding) if m else nu
            w = model.point(reg, nu)
            F = oracles.full_value(w) + reg(w)
            within = oracles.c(w) <= allowed
            s = w - x
            low_enough = state.F - 0.5e-4 * (s @ s) + 8 * eps * jnp.maximum(jnp.abs(F), 1.0) >= F
            feasible = jnp.all(within)
            L = jnp.where(within, L, 2 * L)
            L_f = jnp.where(feasible & ~low_enough, 2 * L_f, L_f)
            return L_f, L, nu, (w, F), feasible & low_enough, count + 1

        start = (L_f, L, state.nu, (x, state.F), jnp.zeros((), bool), 0)
        _, _, nu, (w, F), accepted, _ = lax.while_loop(unfinished, attempt, start)
        w, F = jnp.where(accepted, w, x), jnp.where(accepted, F, state.F)
        return State(w, F, nu, memory, x, J, xi)

    def subproblem(self, reg: Any, model: Model, nu: Vector, rounding: Vector) -> Vector:
        """The multipliers of the balls: Newton on the dual over nu >= 0."""

        def balls(nu: Vector) -> Vector:
            return model.constraints(model.point(reg, nu))

        def residual(nu: Vector, phi: Vector) -> Any:
            return jnp.linalg.norm(jnp.where((nu > 0) | (phi > 0), phi, 0.0))

        def unfinished(carry: Any) -> Any:
            nu, phi, count = carry
            s = model.point(reg, nu) - model.x
            gap = 0.05 * model.L_f * (s @ s) if self.inexact else 0.0
            solved = jnp.all(phi <= rounding) & (-(nu @ phi) <= nu @ rounding + gap)
            return ~solved & (count < MOST_NEWTON)

        def newton(carry: Any) -> Any:
            nu, phi, count = carry
            H = -jax.jacfwd(balls)(nu)
            free = (nu > 0) | (phi > 0)
            both = free[:, None] & free[None, :]
            H = jnp.where(both & jnp.isfinite(H), H, 0.0)
            ridge = 1e-12 * jnp.trace(H) + jnp.finfo(nu.dtype).tiny ** 0.5
            H = H + jnp.diag(jnp.where(free, ridge, 1.0))
            p = jnp.linalg.solve(H, jnp.where(free, phi, 0.0))
            D, r = model.dual(reg, nu), residual(nu, phi)

            def rejected(trial: Any) -> Any:
                _, new, count = trial
                rises = model.dual(reg, new) >= D + 1e-4 * (phi @ (new - nu))
                better = residual(new, balls(new)) <= 0.9 * r
                return ~(rises | better) & (count < MOST_HALVINGS)

            def halve(trial: Any) -> Any:
                t, _, count = trial
                return t / 2, jnp.maximum(nu + t / 2 * p, 0.0), count + 1

            one = jnp.ones((), nu.dtype)
            _, nu, _ = lax.while_loop(rejected, halve, (one, jnp.maximum(nu + p, 0.0), 0))
            return nu, balls(nu), count + 1

        return lax.while_loop(unfinished, newton, (nu, balls(nu), 0))[0]

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        # tau (v - w) is in dh(w) too, but for a large tau only up to a large rounding.
        s, rho = state, jnp.zeros_like(parameters.rho)
        return nearest_witness(oracles, s.x, s.memory.d, s.before, s.s_g, s.nu, rho)


def barzilai_borwein(dx: Vector, dg: Vector) -> Any:
    """The curvature along the last step, between 1e-8 and 1e8; 1 before the first."""
    length = dx @ dx
    bb = (dx @ dg) / jnp.where(length > 0, length, 1.0)
    return jnp.where(length > 0, jnp.clip(bb, 1e-8, 1e8), 1.0)
