"""A noisy certificate, with as many fresh samples as it takes to decide, and no more.

The witness of a noisy run has the noise of its last step in s_h, so that its u may be far longer
than the shortest one at x. And an estimate of ||u|| from a few samples cannot tell a small u from
none. So long as the samples leave it open whether x is a KKT point at tol,

    1. multipliers and subgradients are chosen that make u shortest for the mean gradient so far;
    2. as many further samples as there were before, which that choice has not seen, judge it.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import AnyVector, Draws, Multipliers, Vector, Vectors
from mossp.certificates.blocks import (
    block_shape,
    fresh_constraints,
    length_of_mean,
    value_and_gradients,
)
from mossp.certificates.certificate import Certificate, certificate
from mossp.certificates.feasibility import constraints_and_jacobian
from mossp.certificates.residuals import Residuals
from mossp.certificates.stationarity import certificate_at, shortest_residual
from mossp.oracles import Oracles

More = Callable[[int], Draws]  # the draws of a number >= 1: as many as before, or None


@compiled(static_argnames="batch_size")
def _gradients(
    oracles: Oracles, x: Vector, q: Multipliers, draws: Draws, *, batch_size: int
) -> tuple[Vectors, Vectors, Vectors | None]:
    """(grad f, J q, c) in blocks; J q is 0 and c is None where the constraints are exact."""
    G = value_and_gradients(oracles, x, draws, batch_size)[1]
    if not oracles.endless:
        return G, jnp.zeros_like(G), None
    C, Jq = fresh_constraints(oracles, x, q, draws, batch_size)
    return G, Jq, C


def sample_count(draws: Draws, batch_size: int) -> int:
    """Samples in blocks of equal size."""
    if not jax.tree.leaves(draws):
        return 0
    blocks, length = block_shape(draws)
    return blocks * length * batch_size


def decided(
    oracles: Oracles, x: AnyVector, r: Residuals, samples: int, more: More, most: int, tol: float,
    batch_size: int,
) -> Certificate:  # fmt: skip
    """The strongest certificate that at most `most` samples give; r is of the first `samples`."""
    witness = best = certificate(oracles, r, samples, "witness")
    infeasible = not best.bound("feasibility", relative=True) <= tol
    if oracles.endless:  # more samples tell more of c, too
        infeasible = not best.feasibility / best.feasibility_scale <= tol
    if not samples or infeasible:
        return best  # no sample is left, or none changes it
    pool, calls = np.asarray(r.gradient, np.float64), 1
    while not best.is_kkt(tol, relative=True) and 2 * calls * samples <= most:
        shortest, q = shortest_residual(oracles, x, pool)
        # J q and c by the samples that the choice of q knows, in place of those that judge it.
        known = np.zeros_like(pool)
        if oracles.endless:
            known = q @ np.asarray(constraints_and_jacobian(oracles, x)[1], np.float64)
        found, seen = [], []
        for number in range(calls, 2 * calls):
            draws = more(number)
            if draws is None or sample_count(draws, batch_size) != samples:
                return best
            G, Jq, C = _gradients(
                oracles, x, np.asarray(q, x.dtype), draws, batch_size=batch_size
            )
            found.append((np.asarray(G, np.float64), np.asarray(Jq, np.float64)))
            seen += [] if C is None else list(np.asarray(C, np.float64))
        G, Jq = (np.mean(np.array(each), axis=0) for each in zip(*found, strict=True))
        mean = G.mean(axis=0)
        # u = grad f + J q + s with J q + s = -(pool + shortest).
        length, error = length_of_mean(G - pool - shortest + (Jq - known))
        judged = certificate_at(
            oracles, x, mean, q, float(length), float(error), len(found) * samples,
            np.array(seen) if seen else None,
        )  # fmt: skip
        # Not the best of all that were tried, for that would be the luckiest.
        best = judged if judged.worst_relative < witness.worst_relative else witness
        # Of about this length is the noise in what was chosen, which more samples take away.
        scatter = G + Jq - (G + Jq).mean(axis=0)
        noise = float(np.sqrt(np.sum(scatter**2) / (len(scatter) * (len(scatter) - 1))))
        least = judged.criticality - judged.criticality_error - noise
        if least > tol * judged.criticality_scale:
            return best
        pool = (pool + mean) / 2
        calls *= 2
    return best
