"""The one place where random keys are made.

A key depends on (seed, replica, purpose, number) and on nothing else: not on how long a compiled
chunk is, on how many replicas keep it company, or on whether the run was interrupted.
"""

from __future__ import annotations

import enum
from typing import Any

import jax

# Random numbers of BLOCK consecutive steps are drawn at once. One draw a step would cost as much
# as the gradient of a mini-batch; a block costs a few percent of it.
BLOCK = 1024


class Purpose(enum.IntEnum):
    """What the random numbers are for; the values are part of what a seed means."""

    STEPS = 0  # mini-batches and the random output, by block of steps
    INITIAL = 1  # the initial batch of b0 samples
    CONSTANTS = 2  # power iterations and sampled rows for L_f, sigma, ...
    CERTIFICATE = 3  # fresh samples that judge the answer
    PERTURB = 4  # a way off a stationary point of ||c||^2
    TRACE = 5  # rows on which the trace is evaluated
    CHECK = 6  # rows on which the loss is checked to be a mean


def key(seed: Any, purpose: Purpose, replica: Any = 0, number: Any = 0) -> jax.Array:
    """The key for one purpose. `replica` and `number` may be traced."""
    base = jax.random.fold_in(jax.random.key(seed), int(purpose))
    return jax.random.fold_in(jax.random.fold_in(base, replica), number)
