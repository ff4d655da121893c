"""A noisy certificate, with as many fresh samples as it takes to decide, and no more.

The witness of a noisy run has the noise of its last step in s_h, so that its u may be far longer
than the shortest one at x. And an estimate of ||u|| from a few samples cannot tell a small u from
none. So long as the samples leave it open whether x is a KKT point at tol,

    1. multipliers and subgradients are chosen that make u shortest for the mean gradient so far;
    2. as many further samples as there were before, which that choice has not seen, judge it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import AnyVector, Draws, HostArray, Vector, Vectors
from mossp.certificates.blocks import (
    block_shape,
    fresh_constraints,
    length_of_mean,
    value_and_gradients,
    value_and_subgradients,
)
from mossp.certificates.certificate import Certificate, certificate
from mossp.certificates.linearization import constraints_and_jacobian
from mossp.certificates.residuals import Residuals
from mossp.certificates.stationarity import ACTIVE, certificate_at, shortest_residual
from mossp.oracles import Oracles
from mossp.problem import POOL

FEWER = 3.0  # times more noise has an estimate from a pool than one from the samples that judge
More = Callable[[int], Draws]  # the draws of a number >= 1: as many as before, or None


@compiled(static_argnames="batch_size")
def _gradients(oracles: Oracles, x: Vector, draws: Draws, *, batch_size: int) -> Vectors:
    G = value_and_gradients(oracles, x, draws, batch_size)[1]
    if oracles.concave is None:
        return G
    return G - value_and_subgradients(oracles, x, draws, batch_size)[1]


@compiled(static_argnames="batch_size")
def _constraints(
    oracles: Oracles, x: Vector, draws: Draws, *, batch_size: int
) -> tuple[Vectors, Any]:
    """(c, J) in independent blocks."""
    return fresh_constraints(oracles, x, draws, batch_size)


class Seen(NamedTuple):
    """What samples have told of c and J so far, where these have no end."""

    c: HostArray
    J: HostArray
    samples: int

    def joined(self, c: HostArray, J: HostArray, samples: int) -> Seen:
        """With the means over further samples."""
        part = samples / (samples + self.samples)
        return Seen(
            self.c + part * (c - self.c), self.J + part * (J - self.J), self.samples + samples
        )


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
    pool, calls, near, seen = np.asarray(r.gradient, np.float64), 1, ACTIVE, None
    if oracles.endless:
        c, J = (np.asarray(a, np.float64) for a in constraints_and_jacobian(oracles, x))
        seen, near = Seen(c, J, POOL), max(ACTIVE, tol)
    while not best.is_kkt(tol, relative=True) and 2 * calls * samples <= most:
        shortest, q = shortest_residual(oracles, x, pool, near, seen and (seen.c, seen.J))
        every, blocks = [], []
        for number in range(calls, 2 * calls):
            draws = more(number)
            if draws is None or sample_count(draws, batch_size) != samples:
                return best
            G = _gradients(oracles, x, draws, batch_size=batch_size)
            every.append(np.asarray(G, np.float64))
            if seen is not None:
                C, J = _constraints(oracles, x, draws, batch_size=batch_size)
                blocks.append((np.asarray(C, np.float64), np.asarray(J, np.float64)))
        count = len(every) * samples
        G = np.mean(np.array(every), axis=0)
        mean, U, C = G.mean(axis=0), G - pool - shortest, None
        if seen is not None:
            # q was chosen with J from other samples than those that judge it.
            C, J = (np.concatenate(each) for each in zip(*blocks, strict=True))
            pulls = np.einsum("j,bjn->bn", q, J) - q @ seen.J
            U = U + pulls.reshape(len(every), -1, len(pool)).mean(axis=0)
            seen = seen.joined(C.mean(axis=0), J.mean(axis=0), count)
        # u = grad f + J q + s with J q + s = -(pool + shortest).
        length, error = length_of_mean(U)
        judged = certificate_at(oracles, x, mean, q, float(length), float(error), count, C)
        # Not the best of all that were tried, for that would be the luckiest.
        best = judged if judged.worst_relative < witness.worst_relative else witness
        # Of about this length is the noise in what was chosen, which more samples take away.
        scatter = U - U.mean(axis=0)
        noise = float(np.sqrt(np.sum(scatter**2) / max(len(U) * (len(U) - 1), 1)))
        chosen = 1 if seen is None else FEWER  # a pool has fewer samples than those that judge
        least = judged.criticality - judged.criticality_error - chosen * noise
        if least > tol * judged.criticality_scale:
            return best
        pool = (pool + mean) / 2
        calls *= 2
    return best
