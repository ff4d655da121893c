"""The last move of a run whose constraints are means over samples without end: onto their side.

A step knows c by an estimate that averages over the steps before it, and so a run ends on the bound
give or take the noise of that: outside as often as inside. At the end x stands still, and c costs
forward passes only. As many fresh rows as the steps took values from give

    c^  and its standard error s at x,

and x moves to the nearest point, zeros staying zeros, at which the upper end of the 95 % interval,
which is what `success` looks at, is within the bound:

    c(x') - c(x) + c^ + 1.96 s <= 0,     c(x') - c(x) + c^ = 0 for equalities,

with differences of c over a pool of rows, whose noise vanishes with the length of the move. Where
bounds leave less room than the errors ask for, as |c| <= b with b < 1.96 s does, that is the point
of least violation: the middle between them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.device import on_device
from mossp._base.keys import Purpose, generator
from mossp._base.programs import compiled
from mossp._base.types import Draws, HostArray, Vector, Vectors
from mossp.certificates.blocks import INTERVAL
from mossp.certificates.certificate import FRESH_SAMPLES, Witness
from mossp.certificates.feasibility import on_host, reduce_violation
from mossp.certificates.linearization import values
from mossp.data import count_draws
from mossp.oracles import Oracles
from mossp.solving.prepare import Prepared
from mossp.solving.state import State

ENOUGH = 0.01  # of the errors: a move need not be more accurate than what it is made from
FEWEST = 8  # batches, whose scatter tells the error of their mean


class Measured(NamedTuple):
    """c at one point, from fresh rows."""

    c: HostArray
    errors: HostArray  # standard ones; 0 of what is exact
    rows: int


def inside(p: Prepared, state: State, outputs: Witness) -> int:
    """Move the outputs in place; how many rows that looked at."""
    early = state.ended is not None and state.ended.status is not None
    asked = p.oracles.endless and p.arguments.output != "random" and state.k
    # Rows of a stream are used up: those that are left judge the answer.
    if not asked or early or p.problem.steps(p.arguments.dtype).sequential:
        return 0
    rows = 0
    for r in np.flatnonzero(~state.record.given_up).tolist():
        measured = measure(p, state, outputs.x[r], r)
        if measured is None:
            break
        rows += measured.rows
        move(p.oracles, outputs, r, measured)
    return rows


def measure(p: Prepared, state: State, x: np.ndarray, replica: int) -> Measured | None:
    """From as many rows as the steps took values from; fewer where time is up, None without any."""
    a, oracles, source = p.arguments, p.oracles, p.problem.steps(p.arguments.dtype)
    each, count = source.values_per_step(a.drawn), max(FEWEST, FRESH_SAMPLES // a.drawn)
    found: list[HostArray] = []
    while len(found) * count < state.k and not p.budget.late:
        rng = generator(a.seed, Purpose.INSIDE, replica, number=len(found))
        draws = source.draw(rng, count, a.drawn)
        found.append(np.array(_sampled(oracles, on_device(x), draws, batch_size=a.drawn)))
    if not found:
        return None
    C, exact = np.concatenate(found), np.ones(oracles.m, bool)
    for number in oracles.endless:
        exact[oracles.terms.places(number)] = False
    mean, errors = C.mean(axis=0), C.std(axis=0, ddof=1) / len(C) ** 0.5
    c = np.where(exact, values(oracles, on_device(x)), mean)
    return Measured(c, np.where(exact, 0.0, errors), each * len(C))


@compiled(static_argnames="batch_size")
def _sampled(oracles: Oracles, x: Vector, draws: Draws, *, batch_size: int) -> Vectors:
    """c on the rows for values of each draw."""

    def one(k: Vector) -> Vector:
        draw = jax.tree.map(lambda d: d[k], draws)
        return oracles.sampled_c(x, oracles.steps.batch(draw, batch_size).values)

    return jax.lax.map(one, jnp.arange(count_draws(draws)))


def move(oracles: Oracles, outputs: Witness, r: int, measured: Measured) -> None:
    """x, and with it what the witness says of x."""
    x, dtype = outputs.x[r], outputs.x.dtype
    margin = np.where(oracles.is_equality, 0.0, INTERVAL * measured.errors)
    by = measured.c - values(oracles, on_device(x)) + margin
    free = (x != 0) if x.any() else np.ones_like(x, bool)
    size = float(np.linalg.norm(measured.errors))
    found = reduce_violation(
        oracles.moved(jnp.asarray(by, dtype)), x, free.astype(float), ENOUGH * size
    )
    # Where even that is violated by more than errors explain, bounds are in conflict, or the run
    # was too short: then where it ended is what the verdict is about.
    if not found.finite or found.violation > INTERVAL * size or np.array_equal(found.x, x):
        return
    q = oracles.positive_part(outputs.lam[r] + outputs.rho[r] * measured.c)
    regularizer = on_host(oracles)
    outputs.s_h[r] = regularizer.nearest_h(found.x, np.asarray(outputs.s_h[r], np.float64))
    outputs.s_g[r] = regularizer.subgradient_g(found.x)
    outputs.x[r] = outputs.y[r] = found.x
    outputs.lam[r], outputs.rho[r] = q, 0.0
