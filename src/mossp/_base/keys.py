"""The one place where random numbers come from.

They depend on (seed, purpose, replica, number) and on nothing else: not on how long a compiled
chunk is, on how many replicas keep it company, or on whether the run was interrupted. They are
drawn on the host, by NumPy's counter-based Philox, while the device is busy with earlier steps:
compiled code that draws would take longer to compile than the method itself.
"""

from __future__ import annotations

import enum
from typing import cast

import jax
import numpy as np
from jax import Array

# Random numbers of BLOCK consecutive steps are drawn at once.
BLOCK = 4096


class Purpose(enum.IntEnum):
    """What the random numbers are for; the values are part of what a seed means."""

    STEPS = 0  # mini-batches, by block of steps
    OUTPUT = 1  # the random output, by block of steps
    INITIAL = 2  # the initial batch of b0 samples
    CONSTANTS = 3  # mini-batches on which constants are measured
    CERTIFICATE = 4  # fresh samples that judge the answer
    PERTURB = 5  # a way off a stationary point of ||c||^2
    TRACE = 6  # rows on which the trace is evaluated
    CHECK = 7  # rows on which the loss is checked to be a mean
    START = 8  # points that replicas start from
    POLISH = 9  # directions in which the Hessian is evaluated
    POOL = 10  # rows that stand for all where constraints are measured
    SPLIT = 11  # which rows of a file are kept for a test, by chunk of rows
    INSIDE = 12  # rows that tell at the end of a run on which side of its bounds it is


def generator(
    seed: int, purpose: Purpose, replica: int = 0, number: int = 0
) -> np.random.Generator:
    """A generator for one purpose.

    Examples
    --------
    >>> a = generator(0, Purpose.STEPS, replica=1, number=7).integers(0, 100, 3)
    >>> b = generator(0, Purpose.STEPS, replica=1, number=7).integers(0, 100, 3)
    >>> a.tolist() == b.tolist()
    True
    """
    key = np.array([seed, (int(purpose) << 32) | replica], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, number]))


def jax_keys(rng: np.random.Generator, shape: tuple[int, ...] = ()) -> Array:
    """Keys for jax.random, made without compiling anything."""
    data = rng.integers(0, 2**32, (*shape, 2), np.uint32)
    return jax.random.wrap_key_data(cast(Array, data))  # NumPy will do
