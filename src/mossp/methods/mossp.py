"""MoSSP, Algorithms 1 and 2 of the paper.

    S  = d + rho J(x) c(x)                    d: Polyak or recursive momentum
    x+ = prox_{mu h}(z - mu S)
    z+ = z - beta (prox_{mu g}(z) - x+)

Inequalities enter as [c_I]_+ (Section 5 of the paper). Constraints that are means over rows are
estimated as the gradient is (`mossp.methods.tracking`).

A concave part -E[g(x, xi)] has no proximal map: y follows that of E[g] + g_r, g_r the regulariser's
own g, by one step a mini-batch from a subgradient v of E[g] at y (`mossp.methods.following`). So
does x on its side, and with tau = mu eta / (mu + eta)

    x+ = prox_{tau h}(tau (z / mu + x / eta - S))
    y+ = prox_{tau g_r}(tau (z / mu + y / eta - v))
    z+ = z - beta (y+ - x+)

of which eta = infinity and v = 0 are the three lines above. No rate is proved for this form.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from mossp._base.types import Vector
from mossp._base.validation import is_weight
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator, Kind, Recursive
from mossp.methods import following, tracking
from mossp.methods.base import About, Method, assumption, check_number
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector  # estimates prox_{mu (Q_rho + h)}(z)
    z: Vector  # where the difference of Moreau envelopes is being minimised
    memory: Any  # what the gradient estimator remembers
    v: Any  # of the last step: z - mu S, so that x = prox_{mu h}(v); None where it is lean
    y: Any  # of the last step: prox_{mu g}(z), or what follows it; None where it is lean
    concave: Any = None  # what the estimator of dE[g](y) remembers, where there is such a part
    w: Any = None  # of the last step, there: y = prox_{tau g_r}(w), and x = prox_{tau h}(v)


class MoSSP(Method):
    """Momentum-based single-loop stochastic penalty method.

    Parameters
    ----------
    momentum : GradientEstimator
        How the gradient of f is estimated: recursive momentum unless given.
    beta : float
        Step on the difference of envelopes, `0 < beta <= 1` (Lemma C.2).

    Examples
    --------
    >>> import mossp
    >>> mossp.MoSSP(momentum=mossp.Polyak(0.1), beta=0.9)
    MoSSP(momentum=Polyak(alpha=0.1), beta=0.9)
    """

    momentum: GradientEstimator = Recursive()
    beta: Any = 1.0  # step on the difference of envelopes, 0 < beta <= 1 (Lemma C.2)
    samples_constraints: ClassVar[bool] = True
    samples_concave: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_number(self, "beta", "0 < beta <= 1", is_weight)

    @property
    def about(self) -> About:
        proved = {Kind.POLYAK: "eps^-4", Kind.RECURSIVE: "eps^-3"}  # Theorems 3.1 and 3.2
        return About(
            "Li, Cui, Wang",
            2026,
            constraints="any",
            concave="any",
            single_loop=True,
            assumption=assumption(self.momentum),
            complexity=proved.get(self.momentum.kind, "-"),
        )

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        concave = following.init(self.follower, oracles, x0)
        w = None if concave is None else x0
        return State(x0, x0, self.memory(oracles, x0, d0), x0, x0, concave, w)

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        mu, rho, alpha, _ = parameters
        reg, z = oracles.regularizer, state.z
        d, _, Jq, memory = tracking.pulled(
            self.momentum, oracles, batch, state.memory, state.x, alpha,
            multipliers=lambda c: oracles.positive_part(rho * c),
        )  # fmt: skip
        S = d + Jq
        if oracles.concave is not None:
            return self.followed(oracles, parameters, state._replace(memory=memory), S, batch)
        v = z - mu * S
        x = reg.prox_h(v, mu)
        y = reg.prox_g(z, mu)
        return State(x, z - self.beta * (y - x), memory, v, y)

    def lean(self, oracles: Oracles, state: State) -> State:
        own = type(self).step is not MoSSP.step  # which may look at anything
        if own or oracles.concave is not None or not tracking.keeps(self.momentum):
            return state
        return state._replace(v=None, y=None)

    def recorded(
        self, oracles: Oracles, parameters: Parameters, before: State, state: State
    ) -> State:
        mu, rho, *_ = parameters
        S = tracking.pulled_again(
            oracles, state.memory, before.x,
            multipliers=lambda c: oracles.positive_part(rho * c),
        )  # fmt: skip
        return state._replace(v=before.z - mu * S, y=oracles.regularizer.prox_g(before.z, mu))

    def followed(
        self, oracles: Oracles, parameters: Parameters, state: State, S: Vector, batch: Any
    ) -> State:
        """The step with a concave part that is a mean over rows."""
        mu, _, alpha, eta = parameters
        reg, x, y, z = oracles.regularizer, state.x, state.y, state.z
        s, concave = following.update(self.follower, oracles, batch, state.concave, y, alpha)
        tau = 1 / (1 / mu + 1 / eta)
        v = tau * (z / mu + x / eta - S)
        w = tau * (z / mu + y / eta - s)
        x, y = reg.prox_h(v, tau), reg.prox_g(w, tau)
        return State(x, z - self.beta * (y - x), state.memory, v, y, concave, w)

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        mu, rho = parameters.mu, parameters.rho
        x, z, _, v, y, _, w = state
        lam = jnp.zeros(oracles.m, x.dtype)
        if oracles.concave is not None:
            tau = 1 / (1 / mu + 1 / parameters.eta)
            return Witness(x, y, s_h=(v - x) / tau, s_g=(w - y) / tau, lam=lam, rho=rho)
        z = z + self.beta * (y - x)  # before the step
        return Witness(x, y, s_h=(v - x) / mu, s_g=(z - y) / mu, lam=lam, rho=rho)

    def rescale(self, state: State, ratio: Any) -> State:
        # z = x + mu s, where s is a subgradient of g: the same s for the new mu.
        return state._replace(z=state.x + ratio * (state.z - state.x))
