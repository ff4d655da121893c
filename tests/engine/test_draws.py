"""Draws: uniform, reproducible, in blocks."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import mossp
from mossp._base import keys
from mossp._base.keys import Purpose
from mossp.data import Finite, NoData, padded_length
from mossp.engine.draws import Draws, block_length
from tests.data.rows import data_set


def test_draws_are_uniform_and_never_padding(x64):
    N = 401
    assert padded_length(N) > N
    X, y = data_set(N)
    problem = mossp.Problem(lambda x, b: jnp.mean(b[0] @ x - b[1]), (X, y))
    drawn = problem.data.draw(keys.generator(7, Purpose.STEPS), 4096, 32)
    assert drawn.shape == (4096, 32)
    counts = np.bincount(drawn.ravel(), minlength=N)
    assert counts.size == N
    assert counts.min() > 0
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    # Neighbours in a batch, and batches that follow each other, are independent.
    for a, b in ((drawn[:, 0], drawn[:, 1]), (drawn[:-1, 0], drawn[1:, 0])):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(4096)
    batch = problem.data.batch(jnp.asarray(drawn[5]), 32)
    np.testing.assert_array_equal(batch[0], X[drawn[5]])
    np.testing.assert_array_equal(batch[1], y[drawn[5]])


def test_draws_depend_on_seed_replica_and_step_alone(x64):
    source = Finite.of(np.ones((50, 2)), 50, np.float64)
    three = Draws(source, 3, 0, 3, 8, np.float64)
    again = Draws(source, 3, 2, 1, 8, np.float64)
    late, early = again.containing(5000), again.containing(10)
    assert (early.first, early.end) == (0, 4096)
    assert (late.first, late.end) == (4096, 8192)
    for block in (early, late):
        whole = three.containing(block.first + 7)
        assert whole.batches.shape == (3, 4096, 8)
        np.testing.assert_array_equal(whole.batches[2], block.batches[0])
        np.testing.assert_array_equal(whole.kept[2], block.kept[0])
        for a, b in itertools.combinations(np.asarray(whole.batches), 2):
            assert (a != b).mean() > 0.9
    assert (np.asarray(early.batches) != np.asarray(late.batches)).mean() > 0.9
    other = Draws(source, 4, 2, 1, 8, np.float64).containing(0)
    assert (np.asarray(other.batches) != np.asarray(early.batches)).mean() > 0.9


def test_the_random_output_is_uniform(x64):
    """Reservoir sampling: each of the first K steps is the last one kept with probability 1/K."""
    source, K = NoData(), 8
    block = Draws(source, 0, 0, 4000, 1, np.float64).containing(0)
    assert block.batches is None
    assert block.kept[:, 0].all()
    last = K - 1 - np.argmax(block.kept[:, K - 1 :: -1], axis=1)
    assert scipy.stats.chisquare(np.bincount(last, minlength=K)).pvalue > 1e-3


def test_next_kept_finds_the_next_step(x64):
    block = Draws(NoData(), 0, 0, 2, 1, np.float64).containing(0)
    kept = np.flatnonzero(block.kept.any(axis=0))
    assert block.next_kept(0, 4096) == 1
    k, found = 0, []
    while (k := block.next_kept(k, 4096)) < 4096:
        found.append(k - 1)
    assert found == [step for step in kept if step < 4095]
    assert block.next_kept(1, 1) == 1


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 2**24))
def test_blocks_stay_small(batch_size):
    length = block_length(batch_size)
    assert 1 <= length <= 4096
    assert length & (length - 1) == 0
    assert length * batch_size <= max(2**22, batch_size)
