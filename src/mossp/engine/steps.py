"""What is compiled: the start, many steps, and what is measured between them.

Replicas lie along a leading axis. Steps [k0, k1) have traced bounds, so that the number of steps is
not part of the program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base.device import on_device
from mossp._base.programs import compiled
from mossp._base.types import AnyVector, PyTree, Vector
from mossp.certificates.certificate import Witness
from mossp.data import map_rows
from mossp.measuring import step_sizes
from mossp.methods.base import Method
from mossp.oracles import Oracles
from mossp.schedules import Parameters, Schedule


class Carry(NamedTuple):
    """What one replica takes from step to step.

    The method and the schedule are a replica's own, so that a grid of settings is run like so
    many replicas.
    """

    state: Any
    method: Method
    schedule: Schedule
    last: Witness  # of the last step
    random: Witness  # of a uniformly random step, by reservoir sampling
    reference: Vector  # x when rho and mu were last measured
    finite: Any  # whether everything the next step needs is finite


class Context(NamedTuple):
    """What all steps of a run share."""

    oracles: Oracles
    first_alpha: Any  # weight of the first mini-batch: B / b0


@compiled(static_argnames=("batch_size", "full"))
def first_estimate(
    oracles: Oracles, x0: Vector, draws: Any, count: Any, *, batch_size: int, full: bool
) -> Vector:
    """d0 at x0: the mean over `count` mini-batches, or the full gradient if count > 0."""

    def add(j: Any, d: Vector) -> Vector:
        draw = jax.tree.map(lambda v: v[j], draws)
        batch = oracles.source.batch(draw, batch_size)
        return d + (oracles.full_gradient(x0) if full else oracles.gradient(x0, batch))

    return lax.fori_loop(0, count, add, jnp.zeros_like(x0)) / jnp.maximum(count, 1)


@compiled
def start(context: Context, method: Method, schedule: Schedule, x0: Vector, d0: Vector) -> Carry:
    """The carry of every replica before the first step.

    The numbers of the method and the schedule, x0 and d0 have one entry per replica.
    """
    oracles = context.oracles

    def one(method: Method, schedule: Schedule, x0: Vector, d0: Vector) -> Carry:
        zero, lam = jnp.zeros_like(x0), jnp.zeros(oracles.m, x0.dtype)
        witness = Witness(x0, x0, zero, zero, lam, jnp.zeros((), x0.dtype))
        state = method.init(oracles, x0, d0)
        return Carry(state, method, schedule, witness, witness, x0, all_finite(state))

    return jax.vmap(one)(method, schedule, x0, d0)


def advance(
    context: Context, carry: Carry, batches: Any, first: Any, keep: Any, k0: Any, k1: Any, *,
    group: int, batch_size: int, shared: bool,
) -> Carry:  # fmt: skip
    """Steps k0, ..., k1 - 1 of every replica; the batches given are those from step `first` on.

    Replicas with `keep` take the witness of step k1 - 1 as their random output.
    """
    own = carry.state, carry.method, carry.schedule, carry.last
    state, last, finite = _advance(
        context, own, batches, first, k0, k1, group=group, batch_size=batch_size, shared=shared
    )
    random = kept(np.asarray(keep), last, carry.random)
    return carry._replace(state=state, last=last, random=random, finite=finite)


def kept(keep: np.ndarray, last: Witness, random: Witness) -> Witness:
    """The last witness for replicas with `keep`; nothing is copied where they all agree."""
    if not keep.any():
        return random
    if keep.all():
        return last

    def choose(new: Any, old: Any) -> np.ndarray:
        return np.where(keep.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, last, random)


@compiled(waits=False, static_argnames=("group", "batch_size", "shared"))
def _advance(
    context: Context, own: Any, batches: Any, first: Any, k0: Any, k1: Any, *,
    group: int, batch_size: int, shared: bool,
) -> tuple[Any, Witness, Any]:  # fmt: skip
    """(state, last, finite) after the steps: what they change, since each result is a copy."""
    oracles = context.oracles

    def one(own: Any, batches: Any) -> tuple[Any, Witness, Any]:
        state, method, schedule, before = own

        def parameters(k: Any) -> Parameters:
            now = schedule.at(k)
            return now._replace(alpha=jnp.where(k == 0, context.first_alpha, now.alpha))

        def run(k0: Any, k1: Any, state: Any) -> Any:
            """The lean state after these steps."""

            def steps(b: Any, state: Any) -> Any:
                """Those of the b-th group: what they need is fetched together, which is faster."""
                begin = first + b * group
                draws = jax.tree.map(
                    lambda v: lax.dynamic_slice_in_dim(v, b * group, group), batches
                )
                fetched = oracles.steps.batches(draws, batch_size)
                ready = parameters(begin + jnp.arange(group))

                def step(k: Any, state: Any) -> Any:
                    now = jax.tree.map(lambda v: v[k - begin], ready)
                    batch = map_rows(lambda v: v[k - begin], fetched)
                    return method.lean(oracles, method.step(oracles, now, state, batch))

                low, high = jnp.maximum(k0, begin), jnp.minimum(k1, begin + group)
                return lax.fori_loop(low, high, step, state)

            groups = ((k0 - first) // group, (k1 - first + group - 1) // group)
            return lax.fori_loop(*groups, steps, state)

        def stage(i: Any, states: tuple[Any, Any]) -> tuple[Any, Any]:
            """All steps but the last one, and then the last one, by one and the same program."""
            stops = jnp.stack([k0, jnp.maximum(k0, k1 - 1), k1])
            return run(stops[i], stops[i + 1], states[0]), states[0]

        lean = method.lean(oracles, state)
        if lean is state:
            after = run(k0, k1, state)
        else:
            # Of a length that is not known: two copies of a step need not agree in every bit.
            after, ahead = lax.fori_loop(0, 1 + (k1 > k0), stage, (lean, lean))
            after = method.recorded(oracles, parameters(k1 - 1), ahead, after)
        last = method.witness(oracles, parameters(k1 - 1), after)
        after, last = jax.tree.map(
            lambda new, old: jnp.where(k1 > k0, new, old), (after, last), (state, before)
        )
        return after, last, all_finite(after)

    return jax.vmap(one, in_axes=(0, None if shared else 0))(own, batches)


@compiled(static_argnames="batch_size")
def retune(context: Context, carry: Carry, tuner: step_sizes.Tuner, *, batch_size: int) -> Carry:
    """rho and mu of every replica, measured at its current point."""

    def one(carry: Carry) -> Carry:
        schedule, state = step_sizes.retune(
            context.oracles, carry.method, carry.schedule, carry.state, carry.last,
            carry.reference, tuner, batch_size,
        )  # fmt: skip
        return carry._replace(schedule=schedule, state=state, reference=state.x)

    return jax.vmap(one)(carry)


@compiled
def refresh_anchor(context: Context, carry: Carry) -> Carry:
    """The SVRG anchor of every replica at its current point, by a full gradient."""

    def one(carry: Carry) -> Carry:
        return carry._replace(state=carry.method.with_anchor(context.oracles, carry.state))

    return jax.vmap(one)(carry)


class Observation(NamedTuple):
    """What the host observes between chunks, one value per replica."""

    objective: Any
    violation: Any
    proximity: Any  # ||x - y||
    length: Any  # ||x||
    finite: Any  # whether everything the next step needs is finite


def all_finite(tree: PyTree) -> jax.Array:
    """Whether all numbers are; a maximum, which NaN is when it meets one, takes a single pass."""
    largest = [jnp.max(jnp.abs(leaf), initial=0) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack([size < jnp.inf for size in largest]))


def observe(oracles: Oracles, carry: Carry, rows: PyTree) -> jax.Array:
    """The fields of an Observation as rows of one array, which is quicker to hand over.

    `rows` stand for the data; None when all of it is looked at.
    """
    return _observe(oracles, carry.state.x, carry.last.y, carry.finite, rows)


def objective(oracles: Oracles, x: AnyVector) -> float:
    """F(x) on all of the data, by the program that observes a single replica."""
    point, sound = on_device(np.asarray(x)[None]), on_device(np.ones(1, bool))
    return float(np.asarray(_observe(oracles, point, point, sound, None))[0, 0])


@compiled  # of what all methods have, so that they share a program
def _observe(oracles: Oracles, xs: Vector, ys: Vector, finite: Any, rows: PyTree) -> jax.Array:
    def one(x: Vector, y: Vector, finite: Any) -> jax.Array:
        f = oracles.full_value(x) if rows is None else oracles.value_on(x, rows)
        seen = Observation(
            objective=f + oracles.regularizer(x),
            violation=oracles.violation(x),
            proximity=jnp.linalg.norm(x - y),
            length=jnp.linalg.norm(x),
            finite=finite & all_finite((f, oracles.c(x))),
        )
        return jnp.stack([value.astype(x.dtype) for value in seen])

    return jax.vmap(one, out_axes=1)(xs, ys, finite)
