"""How close a point is to a KKT point, from a witness (Definition 2.1 of the paper).

    u = grad f(x) + J(x) q + s_h - s_g,     s_h in dh(x),  s_g in dg(y),  q the multipliers

(with a concave part -E[g(x, xi)], s_g has a subgradient of E[g] at y besides, taken here anew)
with the full gradient where there is one. Samplers and streams give fresh samples instead, in
blocks, and ||u||^2 is then the mean inner product of two different blocks, which has the right
expectation; how far these products scatter gives its standard error.

Every residual is also read relative to its scale, by which rounding and the units of a problem
are measured, and which is at least 1:

    criticality       S, the largest norm among what the problem puts into u: grad f, s_g and the
                      shortest element of dh(x). J q and the rest of s_h balance these; they are
                      chosen by the proof, which must not make its own bound wider.
    proximity         ||x||
    feasibility       sum_i |x_i dc_j/dx_i|, which is at most ||grad c_j|| ||x||, of each
                      constraint by itself: c_j is then within tol if, to first order, relative
                      changes of the x_i by tol make it hold. A constraint in large units does not
                      excuse the others, nor does an entry of x that it does not depend on.
    complementarity   of min(q_j, -c_j): S for q_j, and for c_j as above
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import (
    AnyArray,
    AnyVector,
    Draws,
    Index,
    Multipliers,
    Namespace,
    Number,
    Scalar,
    Vector,
)
from mossp.certificates.blocks import (
    INTERVAL,
    fresh_constraints,
    length_of_mean,
    standard_errors,
    value_and_gradients,
    value_and_subgradients,
)
from mossp.certificates.feasibility import on_host
from mossp.certificates.first_order import Pass, concave_part, first_order
from mossp.certificates.linearization import FEW
from mossp.certificates.witness import Witness
from mossp.oracles import Oracles, namespace, violated
from mossp.terms import ROWS

WITNESSES = 4  # two of each replica


class Scales(NamedTuple):
    """What the residuals are divided by, and the size of the multipliers beside the first."""

    criticality: Number = 1.0
    proximity: Number = 1.0
    feasibility: Number = 1.0
    complementarity: Number = 1.0
    largest_multiplier: Number = 0.0


@np.errstate(over="ignore", invalid="ignore")  # far away, where nothing is certified
def scales(
    x: AnyVector, terms: tuple[AnyVector, ...], c: AnyArray, q: AnyArray, sizes: AnyArray, m_E: int
) -> Scales:
    """What the residuals at x are relative to, in NumPy or in JAX.

    `terms` are those of u that the problem gives; `sizes` are sum_i |x_i dc_j/dx_i|.

    Several constraints have a scale each; the one that is reported gives the same relative number.
    """
    xp: Namespace = namespace(x)
    norm = xp.linalg.norm

    def at_least_one(value: AnyArray) -> AnyArray:
        return xp.where(xp.isfinite(value), xp.maximum(value, 1.0), 1.0)

    def common(value: AnyArray, relative: AnyArray, otherwise: AnyArray) -> AnyArray:
        value, relative = norm(value), norm(relative)
        sound = xp.isfinite(value) & (relative > 0)
        return at_least_one(xp.where(sound, value / xp.where(sound, relative, 1.0), otherwise))

    S = at_least_one(xp.max(xp.stack([norm(term) for term in terms])))
    rows = at_least_one(sizes)
    largest = xp.max(rows, initial=1.0)
    wrong = violated(c, m_E)
    q_I, c_I, rows_I = q[m_E:], c[m_E:], rows[m_E:]
    slack = xp.minimum(q_I, -c_I), xp.minimum(q_I / S, -c_I / rows_I)
    return Scales(
        criticality=S,
        proximity=at_least_one(norm(x)),
        feasibility=common(wrong, wrong / rows, largest),
        complementarity=common(*slack, 1.0),
        largest_multiplier=xp.max(xp.abs(q), initial=0.0) / S,
    )


class Residuals(NamedTuple):
    """What is computed for one witness, or for several with a leading axis."""

    objective: AnyArray  # F(x)
    gradient: AnyArray  # grad f(x); minus a subgradient of E[g] at x where there is such a part
    criticality: AnyArray
    proximity: AnyArray
    feasibility: AnyArray
    infeasible_stationarity: AnyArray
    complementarity: AnyArray
    q: AnyArray
    criticality_error: AnyArray = 0.0
    feasibility_error: AnyArray = 0.0
    scales: Scales = Scales()
    c: AnyArray = ()  # the constraints at x


def assembled(
    oracles: Oracles, *, x: AnyVector, c: AnyArray, q: AnyArray, terms: tuple[AnyVector, ...],
    pull: Callable[[AnyArray], AnyVector], sizes: AnyArray, criticality: Number, error: Number,
    proximity: Number, objective: Number, c_error: AnyArray | None = None,
    slope: AnyVector | None = None,
) -> Residuals:  # fmt: skip
    """The residuals from what they are made of, in NumPy or in JAX.

    Parameters
    ----------
    oracles : Oracles
    x, c, q
        The point, the constraints there, and the multipliers.
    terms
        What the problem puts into u: grad f(x), s_g and the shortest element of dh(x).
    pull
        The map v -> J(x) v.
    sizes
        sum_i |x_i dc_j/dx_i| for each constraint.
    criticality, error, proximity, objective
        ||u||, two standard errors of it, ||x - y||, F(x).
    c_error
        Standard errors of c where it is estimated.
    slope
        grad f(x) minus a subgradient of E[g] at x; grad f(x) unless given.

    Returns
    -------
    Residuals
    """
    norm = namespace(c).linalg.norm
    wrong = oracles.positive_part(c)
    c_I, q_I = c[oracles.m_E :], q[oracles.m_E :]
    return Residuals(
        objective=objective,
        gradient=terms[0] if slope is None else slope,
        criticality=criticality,
        proximity=proximity,
        feasibility=norm(wrong),
        infeasible_stationarity=norm(pull(wrong)),
        complementarity=norm(namespace(c).minimum(q_I, -c_I)),
        q=q,
        criticality_error=error,
        feasibility_error=0.0 if c_error is None else upper_end(c, c_error, oracles.m_E),
        scales=scales(x, terms, c, q, sizes, oracles.m_E),
        c=c,
    )


def upper_end(c: AnyArray, errors: AnyArray, m_E: int) -> AnyArray:
    """How much larger than the estimate ||(c_E, [c_I]_+)|| may be, by 95 % intervals of c."""
    xp: Namespace = namespace(c)
    wrong, wide = violated(c, m_E), INTERVAL * errors
    most = xp.concatenate([xp.abs(c[:m_E]) + wide[:m_E], xp.maximum(c[m_E:] + wide[m_E:], 0.0)])
    return xp.linalg.norm(most) - xp.linalg.norm(wrong)


def constraint_sizes(
    oracles: Oracles, x: Vector, pull: Callable[[Multipliers], Vector], c: AnyArray, q: AnyArray
) -> Multipliers:
    """sum_i |x_i dc_j/dx_i|, a number of them at a time, so that no Jacobian is held.

    Of many constraints, only those that are violated or have a multiplier: the others are in no
    residual, and get 0.
    """
    m = oracles.m
    if m == 0:
        return jnp.zeros(0, x.dtype)

    def row(j: Index) -> Scalar:
        unit = jnp.zeros(m, x.dtype).at[j].set(1.0)
        return jnp.sum(jnp.abs(x * pull(unit)))

    if m <= ROWS:
        return jax.vmap(row)(jnp.arange(m))
    counts = oracles.is_equality | (c > 0) | (q != 0)
    order = jnp.argsort(~counts)  # those that count come first
    padded = jnp.pad(order, (0, -m % ROWS), constant_values=m)  # a place that does not exist

    def some(i: Index, sizes: Multipliers) -> Multipliers:
        places = jax.lax.dynamic_slice(padded, (i * ROWS,), (ROWS,))
        return sizes.at[places].set(jax.vmap(row)(places), mode="drop")

    return jax.lax.fori_loop(0, -(-counts.sum() // ROWS), some, jnp.zeros(m, x.dtype))


# What was found last, by oracles: before the first step all witnesses are of the start, which is
# judged again where the run ends without one.
_judged: dict[int, tuple[weakref.ref[Oracles], dict[bytes, Residuals]]] = {}


def residuals(
    oracles: Oracles, witnesses: Witness, draws: Draws = None, *, batch_size: int
) -> Residuals:
    """For each witness (leading axis); fresh samples come from `draws` where they are needed.

    Few of them, over rows that have an end, by the programs that polishing has compiled; the rest
    is host work. Many share passes over the data in a program of their own.
    """
    return residuals_of(oracles, (witnesses,), draws, batch_size=batch_size)[0]


def residuals_of(
    oracles: Oracles, groups: tuple[Witness, ...], draws: Draws = None, *, batch_size: int,
    pass_over: Pass | None = None,
) -> list[Residuals]:  # fmt: skip
    """The same for several groups of witnesses, each with a leading axis of its own.

    `pass_over` is what takes (f, grad f, c, J) of few witnesses from all rows: a compiled program
    unless told.
    """
    sizes = [len(group.x) for group in groups]
    ends = np.cumsum([0, *sizes]).tolist()
    if not oracles.finite_sum or ends[-1] > WITNESSES or oracles.m > FEW:
        every = jax.tree.map(lambda *a: np.concatenate(a), *groups)
        judged = jax.device_get(together(oracles, every, draws, batch_size=batch_size))
        return [jax.tree.map(lambda a, i=i: a[i[0] : i[1]], judged) for i in pairwise(ends)]
    alone = [
        Witness(*(np.asarray(a)[k] for a in group))
        for group, size in zip(groups, sizes, strict=True)
        for k in range(size)
    ]
    each: list[Residuals] = []
    place = id(oracles)
    known = _judged[place][1] if place in _judged else {}
    now: dict[bytes, Residuals] = {}
    for witness in alone:  # before the first step, all of them are the start
        key = digest(witness)
        found = known.get(key, now.get(key))
        now[key] = (
            one_by_one(oracles, witness, pass_over or first_order) if found is None else found
        )
        each.append(now[key])
    _judged[place] = weakref.ref(oracles, lambda _: _judged.pop(place, None)), now
    return [jax.tree.map(lambda *a: np.stack(a), *each[i:j]) for i, j in pairwise(ends)]


def digest(witness: Witness) -> bytes:
    """What tells witnesses apart, and holds none of their vectors, which may be long."""
    found = hashlib.blake2b(digest_size=32)
    for part in witness:
        found.update(np.ascontiguousarray(part).tobytes())
    return found.digest()


@np.errstate(over="ignore", invalid="ignore")  # a point may be far away
def one_by_one(oracles: Oracles, w: Witness, pass_over: Pass) -> Residuals:
    """Of one witness, over all rows."""
    f, gradient, c, J = pass_over(oracles, w.x)
    x, y, s_h, s_g = (np.asarray(a, np.float64) for a in (w.x, w.y, w.s_h, w.s_g))
    slope = None
    if oracles.concave is not None:
        g, s = concave_part(oracles, w.x)
        slope, f = gradient - s, f - g
        s_g = s_g + (s if np.array_equal(x, y) else concave_part(oracles, w.y)[1])
    q = oracles.positive_part(np.asarray(w.lam, np.float64) + w.rho * c)
    regularizer = on_host(oracles)
    return assembled(
        oracles, x=x, c=c, q=q, pull=lambda v: v @ J,
        terms=(gradient, s_g, np.asarray(regularizer.nearest_h(x, 0 * x))),
        sizes=np.abs(J) @ np.abs(x), criticality=np.linalg.norm(gradient + q @ J + s_h - s_g),
        error=0.0, slope=slope, proximity=np.linalg.norm(x - y),
        objective=f + float(regularizer(x)),
    )  # fmt: skip


@compiled(static_argnames="batch_size")
def together(
    oracles: Oracles, witnesses: Witness, draws: Draws = None, *, batch_size: int
) -> Residuals:
    """For each witness (leading axis), some at a time."""

    def one(w: Witness) -> Residuals:
        f, G = value_and_gradients(oracles, w.x, draws, batch_size)
        gradient, slope, s_g = jnp.mean(G, axis=0), None, w.s_g
        if oracles.concave is not None:
            g, S = value_and_subgradients(oracles, w.x, draws, batch_size)
            slope, f = gradient - jnp.mean(S, axis=0), f - g
            _, S = value_and_subgradients(oracles, w.y, draws, batch_size)
            G, s_g = G - S, w.s_g + jnp.mean(S, axis=0)
        c, pull = oracles.linearized(w.x)
        q, c_error = oracles.positive_part(w.lam + w.rho * c), None
        if oracles.endless:  # q is from other samples than those that judge it
            C, J = fresh_constraints(oracles, w.x, draws, batch_size)
            c, c_error, Jq = jnp.mean(C, axis=0), standard_errors(C), q @ J
        else:
            Jq = pull(q)
        criticality, error = length_of_mean(G + (Jq + w.s_h - w.s_g))
        return assembled(
            oracles, x=w.x, c=c, q=q, pull=pull,
            terms=(gradient, s_g, oracles.regularizer.nearest_h(w.x, jnp.zeros_like(w.x))),
            sizes=constraint_sizes(oracles, w.x, pull, c, q),
            criticality=criticality, error=error, c_error=c_error, slope=slope,
            proximity=jnp.linalg.norm(w.x - w.y), objective=f + oracles.regularizer(w.x),
        )  # fmt: skip

    # A few at a time: one pass over the data serves them all, and memory stays bounded.
    count = witnesses.x.shape[0]
    together = min(count, 8)
    rounds = -(-count // together)
    order = jnp.minimum(jnp.arange(rounds * together), count - 1).reshape(rounds, together)
    grouped = jax.tree.map(lambda a: a[order], witnesses)
    judged = jax.lax.map(jax.vmap(one), grouped)
    return jax.tree.map(lambda a: a.reshape(rounds * together, *a.shape[2:])[:count], judged)
