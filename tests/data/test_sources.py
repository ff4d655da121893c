"""Streams, samplers, and no data."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from mossp._base import keys
from mossp._base.keys import Purpose
from mossp.data import Finite, NoData, Sampler, Source, Stream, count_draws, filled
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


SOURCES = {  # rows, finite_sum, sequential, deterministic
    "finite": (lambda: Finite.of(np.arange(24.0).reshape(12, 2), 12, np.float64), 12, 1, 0, 0),
    "sampler": (lambda: Sampler(lambda key, n: jax.random.normal(key, (n, 2))), None, 0, 0, 0),
    "stream": (lambda: Stream(numbered(*[3] * 9)), None, 0, 1, 0),
    "no data": (NoData, None, 1, 0, 1),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_keeps_the_protocol(name, x64):
    make, rows, finite_sum, sequential, deterministic = SOURCES[name]
    source, rng = make(), keys.generator(0, Purpose.STEPS)
    assert isinstance(source, Source) and source.rows == rows
    assert source.finite_sum == finite_sum and source.sequential == sequential
    assert source.deterministic == deterministic
    if not finite_sum:
        with pytest.raises(NotImplementedError):
            source.mean(lambda batch: batch)
    # What is looked at is not used up.
    looked = source.astype(np.float64).peek(2, rows=3)
    measured = source.sample(rng, 2, 3)
    shapes = source.shapes()
    if deterministic:
        assert (looked, measured, shapes) == ([None, None], None, [()])
        return
    assert [batch.shape for batch in looked] == [(3, 2)] * 2
    assert [shape.shape[0] for (shape,) in shapes] == ([3, 6] if sequential else [4, 7])
    assert count_draws(measured) == 2
    drawn = source.draw(rng, 2, 3)
    assert count_draws(drawn) == 2
    compiled = source.compiled(source.function)
    batches = [compiled.batch(drawn[i], 3) for i in range(2)]
    np.testing.assert_array_equal(compiled.batches(drawn, 3), np.stack(batches))
    if sequential:
        np.testing.assert_array_equal(np.stack(looked), drawn)
        assert not compiled.gathers and source.rows_per_batch == 3


def test_views_of_a_stream_read_one_after_the_other(x64):
    stream = Stream(iter(numbered(*[3] * 4)))
    single, double = stream.astype(np.float32), stream.astype(np.float64)
    rng = keys.generator(0, Purpose.STEPS)
    assert names(stream.take(1)) == [0]
    a, b = single.draw(rng, 1, 3), double.draw(rng, 9, 3)
    assert (a.dtype, b.dtype) == (np.float32, np.float64)
    assert names(np.asarray(a)) == [1] and names(np.asarray(b)) == [2, 3]
    assert stream.draw(rng, 1, 3) is None
    assert names(np.asarray(filled(b, 4))) == [2, 3, 3, 3]
    (shape,) = double.shapes()[0]  # known although it has ended
    assert shape.shape == (3, 2)
    with pytest.raises(ValueError, match="no batch"):
        stream.peek()
