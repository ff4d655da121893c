"""Streams, samplers, and no data."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from mossp._base import keys
from mossp._base.keys import Purpose
from mossp.data import NoData, Sampler, Stream
from mossp.engine.draws import Draws

# Streams ----------------------------------------------------------------------------------


def numbered(*sizes):
    return [np.full((size, 2), float(i)) for i, size in enumerate(sizes)]


def names(batches):
    return [int(batch[0, 0]) for batch in batches]


def test_a_list_starts_again():
    stream = Stream(numbered(4, 4, 4))
    assert names(stream.take(7)) == [0, 1, 2, 0, 1, 2, 0]
    assert names(stream.take(2)) == [1, 2]
    assert stream.batch_size == 4


def test_a_generator_ends():
    stream = Stream(batch for batch in numbered(4, 4, 4))
    assert names(stream.take(2)) == [0, 1]
    assert names(stream.take(5)) == [2]
    assert stream.take(1) == []


def test_a_shorter_last_batch_is_left_out():
    assert names(Stream(numbered(4, 4, 1)).take(5)) == [0, 1, 0, 1, 0]
    assert names(Stream(iter(numbered(4, 4, 1))).take(5)) == [0, 1]


def test_a_list_whose_other_batches_are_short_does_not_hang():
    stream = Stream(iter(numbered(4)))
    assert names(stream.take(3)) == [0]
    assert names(Stream(numbered(4, 2, 2)).take(2)) == [0, 0]


def test_peek_leaves_the_batches():
    stream = Stream(iter(numbered(4, 4, 4, 4)))
    assert names(stream.peek()) == [0]
    assert names(stream.peek(3)) == [0, 1, 2]
    assert names(stream.peek(1)) == [0]
    assert names(stream.take(2)) == [0, 1]
    assert names(stream.peek(9)) == [2, 3]
    assert names(stream.take(9)) == [2, 3]
    with pytest.raises(ValueError, match="no batch"):
        stream.peek()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_in_a_stream_is_refused(bad):
    stream = Stream([np.ones((2, 2)), (np.array([[1.0, bad]] * 2))])
    assert len(stream.take(1)) == 1
    with pytest.raises(ValueError, match="NaN or infinite"):
        stream.take(1)


def test_a_stream_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        Stream([]).peek()
    with pytest.raises(TypeError, match="iterable of batches"):
        Stream(3)


@pytest.mark.parametrize("batch", [1.0, None, (), (np.ones((4, 2)), np.ones(3))])
def test_what_is_no_batch_is_refused_in_a_sentence(batch):
    with pytest.raises((ValueError, TypeError), match="batch"):
        Stream([batch]).peek()


def test_a_reused_buffer_does_not_change_batches_already_taken():
    """Loaders often fill one array again and again."""

    def loader():
        buffer = np.empty((4, 2))
        for i in range(5):
            buffer[:] = i
            yield buffer

    assert names(Stream(loader()).take(5)) == [0, 1, 2, 3, 4]


def test_stream_blocks(x64):
    stream = Stream(iter(numbered(*[3] * 100)))
    draws = Draws(stream, 0, 0, 2, 3, np.float32)
    first = draws.containing(0)
    assert (first.first, first.end, first.batches.shape) == (0, 64, (64, 3, 2))
    assert first.batches.dtype == np.float32
    assert draws.containing(63) is first
    second = draws.containing(64)
    assert (second.first, second.end, second.batches.shape) == (64, 100, (64, 3, 2))
    assert names(np.asarray(second.batches))[:36] == list(range(64, 100))
    assert draws.containing(100) is None


# Samplers, and no data ----------------------------------------------------------------------


def test_sampler(x64):
    sampler = Sampler(lambda key, size: {"X": jax.random.normal(key, (size, 3))})
    draws = [sampler.draw(keys.generator(s, Purpose.STEPS), 5, 8) for s in (0, 0, 1)]
    batches = [np.stack([sampler.batch(k, 8)["X"] for k in draw]) for draw in draws]
    assert batches[0].shape == (5, 8, 3)
    np.testing.assert_array_equal(batches[0], batches[1])
    assert np.unique(np.concatenate([batches[0], batches[2]])).size == 2 * 5 * 8 * 3
    block = Draws(sampler, 0, 0, 2, 8, np.float64).containing(0)
    assert block.batches.shape == (2, 4096)
    np.testing.assert_array_equal(sampler.batch(block.batches[0, 3], 8)["X"], batches[0][3])
    with pytest.raises(TypeError, match="fn"):
        Sampler(3)


def test_no_data():
    source = NoData()
    assert source.draw(keys.generator(0, Purpose.STEPS), 3, 2) is None
    assert source.mean(lambda batch: (batch, 4.0)) == (None, 4.0)
