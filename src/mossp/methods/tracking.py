"""grad f, c and J q at x_k from the mini-batches of a step; constraints may be means over rows.

Constraints that are functions of x alone are exact. Of the others a step sees samples: c(x; C) on
rows of their own, J(x; B) on the rows on which f is differentiated. The method's estimator tracks
them as it does the gradient of f; with recursive momentum, for example,

    u_k  = c(x_k; C) + (1 - a)(u_{k-1} - c(x_{k-1}; C))                  tracks c
    p_k  = J(x_k; B) q_k + (1 - a)(p_{k-1} - J(x_{k-1}; B) q_{k-1})      tracks J q

and with an anchor w, at which c(w) and J(w) q_w are known over all rows,

    u_k  = c(x_k; C) - c(w; C) + c(w),    p_k = J(x_k; B) q_k - J(w; B) q_w + J(w) q_w,

whose noise vanishes with the distance to the anchor. In place of J q a method may ask for J itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mossp._base.types import Vector
from mossp.estimators import GradientEstimator, keeps_estimate
from mossp.oracles import Oracles


class Tracked(NamedTuple):
    """What is remembered where constraints are sampled."""

    f: Any  # by the estimator of grad f
    c: Any  # by that of c
    J: Any  # by that of J q, or of J
    q: Vector  # the last multipliers
    t: Any  # steps taken: until 1 / alpha of them an estimate is their plain mean

    @property
    def d(self) -> Vector:
        """The estimate of grad f."""
        return self.f.d

    @property
    def u(self) -> Vector:
        """The estimate of c."""
        return self.c.d


class Estimates(NamedTuple):
    d: Vector  # of grad f
    c: Vector
    Jq: Any  # of J q, or of J
    memory: Any


Sampled = Callable[..., Any]


def init(momentum: GradientEstimator, oracles: Oracles, x0: Vector, d0: Vector, rows: bool) -> Any:
    """The memory before the first step; `rows`: J itself is asked for, one row per constraint."""
    f = momentum.init(d0, x0)
    if not oracles.samples_constraints:
        return f
    q, tracker = jnp.zeros(oracles.m, x0.dtype), momentum.tracker
    c, t = momentum.of_values.init(q, x0), jnp.zeros((), x0.dtype)
    if rows:
        J = tracker.init(jnp.zeros((oracles.m, x0.size), x0.dtype), x0)
    else:
        J = tracker.init(jnp.zeros_like(x0), (x0, q))
    return Tracked(f, c, J, q, t)


def pulled(
    momentum: GradientEstimator, oracles: Oracles, batch: Any, memory: Any, x: Vector,
    alpha: Any, multipliers: Callable[[Vector], Vector],
) -> Estimates:  # fmt: skip
    """grad f, c and J q with q = multipliers(c)."""
    if not oracles.samples_constraints:
        d, memory = momentum.update(gradient(momentum, oracles, batch), memory, x, alpha)
        if oracles.m == 0:
            return Estimates(d, jnp.zeros(0, x.dtype), jnp.zeros_like(x), memory)
        c, exactly = oracles.linearized(x)
        return Estimates(d, c, exactly(multipliers(c)), memory)
    d, c, memory = _with_values(momentum, oracles, batch, memory, x, alpha)
    q, tracker = multipliers(c), momentum.tracker

    def pull(point: Any) -> Vector:
        at, q = point
        if momentum.full:
            return full_pull(oracles, at, q)
        return oracles.sampled_pull(at, q, batch.gradients)

    p, J = tracker.update(pull, memory.J, (x, q), weight(alpha, memory))
    memory = memory._replace(J=J, q=q, t=memory.t + 1)
    return Estimates(d, c, p + oracles.exact_pull(x, q), memory)


def pulled_again(
    oracles: Oracles, memory: Any, x: Vector, multipliers: Callable[[Vector], Vector]
) -> Vector:
    """d + J q of the step from x that left this memory; where `keeps` holds."""
    if isinstance(memory, Tracked):
        return memory.d + memory.J.d + oracles.exact_pull(x, memory.q)
    if oracles.m == 0:
        return memory.d
    c, exactly = oracles.linearized(x)
    return memory.d + exactly(multipliers(c))


def keeps(momentum: GradientEstimator) -> bool:
    """Whether estimates are found in the memory that a step leaves."""
    return keeps_estimate(momentum) and keeps_estimate(momentum.tracker)


def linearized(
    momentum: GradientEstimator, oracles: Oracles, batch: Any, memory: Any, x: Vector, alpha: Any
) -> Estimates:
    """grad f, c and J, one row per constraint."""
    if not oracles.samples_constraints:
        d, memory = momentum.update(gradient(momentum, oracles, batch), memory, x, alpha)
        c, pull = oracles.linearized(x)
        return Estimates(d, c, jax.vmap(pull)(jnp.eye(oracles.m, dtype=x.dtype)), memory)
    d, c, memory = _with_values(momentum, oracles, batch, memory, x, alpha)

    def jacobian(at: Vector) -> Any:
        if momentum.full:
            return oracles.jacobian(at)
        return oracles.sampled_jacobian(at, batch.gradients)

    rows, J = momentum.tracker.update(jacobian, memory.J, x, weight(alpha, memory))
    if not oracles.terms.sampled.all():  # what is exact needs no estimate
        rows = jnp.where(oracles.terms.sampled[:, None], rows, jacobian(x))
    return Estimates(d, c, rows, memory._replace(J=J, t=memory.t + 1))


def refreshed(
    momentum: GradientEstimator, oracles: Oracles, memory: Any, x: Vector, rows: bool
) -> Any:
    """The memory with its anchors at x, over all rows."""
    if not isinstance(memory, Tracked):
        return momentum.refresh(oracles.full_gradient, memory, x)
    tracker, q = momentum.tracker, memory.q
    if rows:
        J = tracker.refresh(oracles.jacobian, memory.J, x)
    else:
        J = tracker.refresh(lambda p: full_pull(oracles, *p), memory.J, (x, q))
    return memory._replace(
        f=momentum.refresh(oracles.full_gradient, memory.f, x),
        c=momentum.of_values.refresh(oracles.c, memory.c, x),
        J=J,
    )


def full_pull(oracles: Oracles, x: Vector, q: Vector) -> Vector:
    """J q of the constraints that are means over rows, over all of them."""
    return oracles.pull(x, jnp.where(oracles.terms.sampled, q, 0.0))


def gradient(
    momentum: GradientEstimator, oracles: Oracles, batch: Any
) -> Callable[[Vector], Vector]:
    """x -> the gradient of f there that a step may ask for."""
    if momentum.full:
        return oracles.full_gradient
    return lambda x: oracles.gradient(x, batch)


def weight(alpha: Any, memory: Tracked) -> Any:
    """Of what the new rows say: a plain mean over the first steps, since there is no estimate."""
    return jnp.maximum(alpha, 1 / (memory.t + 1))


def _with_values(
    momentum: GradientEstimator, oracles: Oracles, batch: Any, memory: Tracked, x: Vector,
    alpha: Any,
) -> tuple[Vector, Vector, Tracked]:  # fmt: skip
    """(d, c, the memory with both)."""
    d, f = momentum.update(gradient(momentum, oracles, batch), memory.f, x, alpha)

    def values(at: Vector) -> Vector:
        return oracles.c(at) if momentum.full else oracles.sampled_c(at, batch.values)

    u, c = momentum.of_values.update(values, memory.c, x, weight(alpha, memory))
    if not oracles.terms.sampled.all():
        u = jnp.where(oracles.terms.sampled, u, values(x))
        c = c._replace(d=u)
    return d, u, memory._replace(f=f, c=c)
