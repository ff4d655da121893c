"""What double loops share: stages around a centre x_k, in which g is linearised.

    for k:  xi in dg(x_k),  y = x_k
        for t = 1, ..., T:   y <- one inner step, with a gradient estimate d
        x_{k+1} = y                       (or the mean of the inner iterates, weighted by t)

A concave part -E[g(x, xi)] adds to xi the mean of its subgradients at x_k over the mini-batches of
the stage so far: a stage sees a batch of them that is T times as large.

A step is one mini-batch. With refresh="inner" d is estimated at every y, and a step is one inner
step; the end of a stage is an event on a counter. With refresh="outer" d is estimated at x_k alone,
and a step is a whole stage.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from mossp._base.power import start_vector
from mossp._base.types import Vector
from mossp.certificates.certificate import Witness
from mossp.estimators import GradientEstimator
from mossp.methods import following
from mossp.methods.base import Method, check_choice, check_number, choose, nearest_witness
from mossp.oracles import Oracles
from mossp.schedules import Parameters


class State(NamedTuple):
    x: Vector  # what is handed out: the inner iterate y, or the mean of the stage so far
    y: Vector  # the inner iterate
    s_h: Vector  # of the last inner step: in dh(y)
    center: Vector  # x_k
    xi: Vector  # in dg(x_k), or in dg of a point near it
    y_g: Vector  # that point; x_k itself but for a smoothed g
    lam: Vector  # multipliers; zero for a penalty
    t: Any  # inner steps taken in this stage
    k: Any  # stages finished
    memory: Any  # what the gradient estimator remembers
    p: Vector  # where a power iteration on J'J stands
    concave: Any = None  # the estimate of dE[g](x_k), where there is such a part


class Stages(Method):
    """A double loop: `inner_step` is one inner step, `length` the number of them in a stage."""

    momentum: eqx.AbstractVar[GradientEstimator]
    refresh: eqx.AbstractVar[str]
    average: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def inner_step(
        self, oracles: Oracles, parameters: Parameters, state: State, d: Vector
    ) -> State:
        """The state with y and s_h after one inner step."""

    @abc.abstractmethod
    def length(self, k: Any) -> Any:
        """Inner steps in stage k = 0, 1, ..."""

    def linearised(
        self, oracles: Oracles, parameters: Parameters, x: Vector
    ) -> tuple[Vector, Vector]:
        """(xi, the point y with xi in dg(y)) for a centre x."""
        return oracles.regularizer.subgradient_g(x), x

    def dual_step(self, oracles: Oracles, parameters: Parameters, state: State) -> Vector:
        """The multipliers after a stage that ended at state.center."""
        return state.lam

    def init(self, oracles: Oracles, x0: Vector, d0: Vector) -> State:
        zero, m = jnp.zeros((), x0.dtype), oracles.m
        return State(
            x=x0, y=x0, s_h=jnp.zeros_like(x0), center=x0,
            xi=oracles.regularizer.subgradient_g(x0), y_g=x0, lam=jnp.zeros(m, x0.dtype),
            t=zero, k=zero, memory=self.momentum.init(d0, x0),
            p=start_vector(m, x0.dtype) if m else jnp.zeros(0, x0.dtype),
            concave=None if oracles.concave is None else oracles.concave_slope(x0),
        )  # fmt: skip

    def step(self, oracles: Oracles, parameters: Parameters, state: State, batch: Any) -> State:
        gradient = self.gradient(oracles, batch)
        at = state.y if self.refresh == "inner" else state.center
        d, memory = self.momentum.update(gradient, state.memory, at, parameters.alpha)
        state = state._replace(memory=memory)
        if oracles.concave is not None:
            fresh = following.subgradient(self.momentum, oracles, batch)(state.center)
            mean = state.concave + (fresh - state.concave) / (state.t + 1)
            state = state._replace(concave=mean)
        if self.refresh == "inner":
            return self.iterate(oracles, parameters, state, d)
        T = jnp.asarray(self.length(state.k), jnp.int32)
        return lax.fori_loop(0, T, lambda _, s: self.iterate(oracles, parameters, s, d), state)

    def iterate(self, oracles: Oracles, parameters: Parameters, state: State, d: Vector) -> State:
        """One inner step, and the end of the stage where it is due."""
        xi = state.xi
        if state.concave is not None:
            state = state._replace(xi=xi + state.concave)
        state = self.inner_step(oracles, parameters, state, d)._replace(xi=xi)
        t = state.t + 1
        x = state.y
        if self.average:  # sum_s s y_s / sum_s s over s = 1, ..., t
            x = jnp.where(t == 1, x, state.x + 2 / (t + 1) * (x - state.x))
        ended = t >= self.length(state.k)
        xi, y_g = self.linearised(oracles, parameters, x)
        after = state._replace(center=x, xi=xi, y_g=y_g, y=x, t=jnp.zeros_like(t), k=state.k + 1)
        after = after._replace(lam=self.dual_step(oracles, parameters, after))
        return choose(ended, after, state._replace(t=t))._replace(x=x)

    @property
    def proximal(self) -> bool:
        """Whether x is a value of prox_h, so that the last step knows an element of dh(x)."""
        return not self.average and not self.subgradient_of_h

    def witness(self, oracles: Oracles, parameters: Parameters, state: State) -> Witness:
        s = state
        if self.proximal:
            return Witness(s.x, s.y_g, s.s_h, s.xi, s.lam, parameters.rho)
        d = s.memory.d if s.concave is None else s.memory.d - s.concave
        return nearest_witness(oracles, s.x, d, s.y_g, s.xi, s.lam, parameters.rho)

    def linearised_at(self, state: State) -> Vector:
        return state.center

    def subgradient(self, state: State) -> Vector:
        return state.concave

    def with_anchor(self, oracles: Oracles, state: State) -> State:
        memory = self.momentum.refresh(oracles.full_gradient, state.memory, state.x)
        return state._replace(memory=memory)


def check_switches(method: Any) -> None:
    """Sentences for wrong settings of a double loop."""
    whole = "a whole number inner >= 1 of inner steps"
    check_number(method, "inner", whole, lambda inner: (inner >= 1) & (inner % 1 == 0))
    check_choice(method, "refresh", ("inner", "outer"))
