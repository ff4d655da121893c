"""rho, mu and alpha as functions of the step."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from mossp._base.module import Module
from mossp.estimators import GradientEstimator


class Parameters(NamedTuple):
    """What a step of the method needs."""

    mu: Any  # of the smoothing or of the proximal term
    rho: Any
    alpha: Any  # the weight of this step's gradient: the paper's alpha_{k-1}
    eta: Any = None  # the length of gradient steps, in methods where it is not mu itself


class Schedule(Module):
    """Parameters by step: powers of k + 1; alpha and mu may fall geometrically at the end.

    Only the values differ between rules, so that all rules share one compiled program.

    Examples
    --------
    >>> s = Schedule(rho=2.0, mu=0.1, alpha=0.5, mu_power=-0.5)
    >>> [float(v) for v in s.at(3)]
    [0.05, 2.0, 0.5, 0.05]
    """

    rho: Any
    mu: Any
    alpha: Any
    rho_power: Any = 0.0
    mu_power: Any = 0.0
    alpha_power: Any = 0.0
    mu_end: Any = 1.0  # mu is multiplied by this at the step `settled`, and by less before it
    alpha_end: Any = 1.0  # alpha likewise
    settle_from: Any = 0.0  # the step from which they fall
    settled: Any = 1.0
    eta: Any = None  # changes in step with mu; None: mu itself
    mu_log: Any = 0.0  # mu is divided by log(k + 3) to this power

    def at(self, k: Any) -> Parameters:
        t = jnp.asarray(k + 1, jnp.result_type(self.mu, float))
        late = jnp.clip((t - self.settle_from) / (self.settled - self.settle_from), 0.0, 1.0)
        change = t**self.mu_power * self.mu_end**late * jnp.log(t + 2) ** -self.mu_log
        return Parameters(
            mu=self.mu * change,
            rho=self.rho * t**self.rho_power,
            alpha=jnp.minimum(1.0, self.alpha * t**self.alpha_power * self.alpha_end**late),
            eta=(self.mu if self.eta is None else self.eta) * change,
        )

    def sized(self, mu: Any, eta: Any) -> Schedule:
        """With another mu and eta that change over the steps as mu did."""
        return dataclasses.replace(self, mu=mu, eta=eta)


def with_alpha(schedule: Schedule, momentum: GradientEstimator) -> Schedule:
    """A momentum's own alpha, if it has one, in place of the schedule's."""
    alpha = getattr(momentum, "alpha", None)
    if alpha is None:
        return schedule
    change = lambda s: (s.alpha, s.alpha_power, s.alpha_end)  # noqa: E731
    return eqx.tree_at(change, schedule, (alpha, 0.0, 1.0))
