"""Data: sparse rows against dense ones, full means by blocks, draws, streams, samplers."""

from __future__ import annotations

import contextlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import mossp
from mossp._base import keys
from mossp._base.keys import Purpose
from mossp.data import Finite, NoData, Sampler, SparseRows, Stream, map_rows, padded_length
from mossp.engine.draws import Draws, block_length

COLUMNS = 1200
ROWS = {
    "even": [5] * 12,
    "uneven": [1, 0, 7, 3, 0, 0, 40, 2, 11, 5, 1, 0],
    "one-long": [1, 1, 1, 0, 1000, 1, 1, 1, 1, 1, 1, 1],
    "first-long": [900, 2, 2, 3, 0, 2, 2, 2, 3, 2, 2, 2],
    "two-long": [700, 2, 2, 2, 2, 333, 2, 2, 2, 2, 2, 2],
    "full": [COLUMNS] * 12,
    "empty": [0] * 12,
}


def exact(dtype):
    """JAX with doubles, or without."""
    return jax.enable_x64(dtype == np.float64)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def matrix(lengths, columns=COLUMNS, seed=0):
    rng = np.random.default_rng(seed)
    places = [np.sort(rng.choice(columns, length, replace=False)) for length in lengths]
    indices = np.concatenate(places) if places else np.zeros(0, int)
    values = rng.normal(size=indices.size)
    return scipy.sparse.csr_matrix(
        (values, indices, np.cumsum([0, *lengths])), shape=(len(lengths), columns)
    )


def stored(rows):
    return sum(np.size(leaf) for leaf in jax.tree.leaves(rows))


# Sparse rows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, dtype", [*((name, np.float64) for name in ROWS), ("uneven", np.float32)]
)
def test_product_equals_the_dense_one(name, dtype):
    A = matrix(ROWS[name])
    rng = np.random.default_rng(1)
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"atol": 2e-4}
    with exact(dtype):
        rows = SparseRows.of(A, dtype)
        for shape in ((COLUMNS,), (COLUMNS, 3)):
            x = rng.normal(size=shape).astype(dtype)
            product = jax.jit(lambda rows, x: rows @ x)(rows, x)
            assert product.dtype == dtype
            assert product.shape == (12, *shape[1:])
            dense = np.tensordot(A.toarray(), np.asarray(x, np.float64), 1)
            np.testing.assert_allclose(product, dense, **tolerance)


@pytest.mark.parametrize(
    "name, classes", [*((name, ()) for name in ROWS), ("uneven", (3,)), ("full", (3,))]
)
def test_gradient_and_hessian_product_equal_the_dense_ones(name, classes, x64):
    A = matrix(ROWS[name])
    rng = np.random.default_rng(2)
    x, v = rng.normal(size=(2, COLUMNS, *classes))
    dense = jnp.asarray(A.toarray())

    @jax.jit
    def derivatives(rows):
        f = lambda x: jnp.mean(jnp.sin(rows @ x) + (rows @ x) ** 3 / 9)  # noqa: E731
        return [jax.grad(f)(x), *jax.jvp(jax.grad(f), (x,), (v,))]

    for ours, theirs in zip(derivatives(SparseRows.of(A)), derivatives(dense), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["even", "uneven", "first-long"])
def test_batches_of_sparse_rows_under_jit_and_vmap(name, x64):
    A = matrix(ROWS[name])
    rng = np.random.default_rng(3)
    xs, draws = rng.normal(size=(5, COLUMNS)), rng.integers(0, 12, (5, 4))
    source = Finite.of(A, 12, np.float64)

    def gradient(batch, x):
        return jax.grad(lambda x: jnp.mean(jnp.cos(batch @ x)))(x)

    @jax.jit
    def one_by_one(source):
        one = lambda xd: gradient(source.batch(xd[1], 4), xd[0])  # noqa: E731
        return jax.lax.map(one, (xs, draws))

    @jax.jit
    def side_by_side(source):
        return jax.vmap(lambda x, d: gradient(source.batch(d, 4), x))(xs, draws)

    @jax.jit
    def fetched_together(source):
        batches = source.batches(draws, 4)
        return jnp.stack(
            [gradient(map_rows(lambda a, j=j: a[j], batches), xs[j]) for j in range(5)]
        )

    products = np.einsum("kin,kn->ki", A.toarray()[draws], xs)
    expected = np.einsum("kin,ki->kn", A.toarray()[draws], -np.sin(products)) / 4
    for ours in (one_by_one, side_by_side, fetched_together):
        np.testing.assert_allclose(ours(source), expected, atol=1e-12)


@pytest.mark.parametrize(
    "lengths",
    [
        [3] * 5000,
        [3] * 4999 + [3000],
        [3000] + [3] * 4999,
        [50] * 2000 + [20_000],
        list(range(1, 200)) * 10 + [20_000],
        [0] * 2500 + [4] * 2499 + [4000],
        [0] * 4999 + [3000],
        [0] * 4980 + [500] * 20,
    ],
    ids=["even", "last", "first", "wide", "spread", "half-empty", "one-row", "few-rows"],
)
def test_a_long_row_costs_its_own_length(lengths):
    A = matrix(lengths, columns=20_000)
    rows = SparseRows.of(A)
    # An index and a value a place, a start and a length a row.
    assert stored(rows) <= 4 * (A.nnz + len(lengths))


def arrays_of(jaxpr):
    for equation in jaxpr.eqns:
        yield from (v.aval for v in equation.outvars)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from arrays_of(inner)


@pytest.mark.parametrize("longest", [3, 900])
def test_never_densified(longest, monkeypatch, x64):
    N, n = 600, 5000
    A = matrix([3] * (N - 1) + [longest], columns=n)

    def refuse(*_, **__):
        raise AssertionError("a sparse matrix was made dense")

    for name in ("toarray", "todense"):
        monkeypatch.setattr(scipy.sparse.csr_matrix, name, refuse)
    problem = mossp.Problem(mossp.losses.squared, (A, np.ones(N)))
    oracles, x = problem.oracles(np.zeros(n)), jnp.zeros(n)
    assert stored(problem.data) < 20 * N
    batch = oracles.source.batch(np.arange(200), 200)

    def everything(oracles, x, batch):
        gradient = lambda x: oracles.gradient(x, batch)  # noqa: E731
        return oracles.full_gradient(x), jax.jvp(gradient, (x,), (x,))

    seen = list(arrays_of(jax.make_jaxpr(everything)(oracles, x, batch).jaxpr))
    assert len(seen) > 20
    assert max(a.size for a in seen if hasattr(a, "size")) < 200 * n / 10


def test_every_format_of_scipy_and_duplicates(x64):
    A = matrix([2, 0, 6, 1], columns=8)
    x = np.arange(1.0, 9.0)
    expected = A.toarray() @ x
    multiply = jax.jit(lambda rows: rows @ x)
    for form in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok"):
        np.testing.assert_allclose(multiply(SparseRows.of(A.asformat(form))), expected, rtol=1e-13)
    np.testing.assert_allclose(
        multiply(SparseRows.of(scipy.sparse.csr_array(A))), expected, rtol=1e-13
    )
    twice = scipy.sparse.csr_matrix(
        (np.array([1.0, 2.0, 0.0, 4.0]), np.array([3, 3, 1, 0]), np.array([0, 3, 4])), shape=(2, 4)
    )
    assert (SparseRows.of(twice) @ np.array([1.0, 10.0, 100.0, 1000.0])).tolist() == [3000.0, 4.0]
    whole = scipy.sparse.csr_matrix(np.array([[1, 0], [0, 2]], np.int8))
    assert (SparseRows.of(whole) @ np.array([0.5, 0.25])).tolist() == [0.5, 0.5]


def test_sparse_rows_look_like_a_matrix(x64):
    A = matrix([2, 0, 6, 1], columns=8)
    rows = SparseRows.of(A, np.float32)
    assert (rows.shape, rows.ndim, len(rows), rows.dtype) == ((4, 8), 2, 4, np.float32)
    some = rows[np.array([2, 2, 0])]
    assert some.shape == (3, 8)
    np.testing.assert_allclose(some @ np.eye(8, dtype=np.float32), A[[2, 2, 0]].toarray(), 1e-6)
    with pytest.raises(TypeError, match=r"8 columns cannot multiply \(7,\)"):
        rows @ np.ones(7)


# A finite data set ------------------------------------------------------------------------


def data_set(N, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, 3)) + 1.0, rng.normal(size=N)


LENGTHS = [1, 401, 4095, 4096, 4097, 8192, 65_537]
CASES = [(N, False, np.float64) for N in LENGTHS]
CASES += [(N, True, np.float64) for N in (401, 8193)]
CASES += [(N, sparse, np.float32) for N in (401, 8193) for sparse in (False, True)]


@pytest.mark.parametrize("N, sparse, dtype", CASES)
def test_full_mean_equals_numpy(N, sparse, dtype):
    X, y = data_set(N)
    X[::2, 1] = 0.0
    x = np.array([0.3, -1.2, 0.7])
    residual = X @ x - y
    with exact(dtype):
        problem = mossp.Problem(
            lambda x, batch: jnp.mean((batch[0] @ x - batch[1]) ** 2),
            (scipy.sparse.csr_matrix(X) if sparse else X, y),
        )
        oracles = problem.oracles(x, dtype)
        at = jnp.asarray(x, dtype)
        both = jax.jit(lambda oracles, x: (oracles.full_value(x), oracles.full_gradient(x)))
        value, gradient = both(oracles, at)
        assert value.dtype == gradient.dtype == dtype
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(value, np.mean(residual**2), rtol=rtol)
    np.testing.assert_allclose(gradient, 2 * X.T @ residual / N, rtol=rtol, atol=rtol)


def test_lengths_in_one_bucket_share_a_program(x64):
    mean = jax.jit(lambda source: source.mean(lambda rows: jnp.mean(rows[0] @ jnp.ones(3))))
    for lengths in ((401, 410, 416), (65_537, 65_600, 73_000)):
        before = mean._cache_size()
        for N in lengths:
            X, y = data_set(N, seed=N)
            value = mean(Finite.of((X, y), N, np.float64))
            assert value == pytest.approx(X.sum(axis=1).mean(), rel=1e-13)
        assert mean._cache_size() == before + 1


def test_an_extreme_first_row_is_taken_off_again(x64):
    """Padding consists of copies of row 0."""
    X = np.ones((4100, 1))
    X[0] = 1e9
    source = Finite.of(X, 4100, np.float64)
    assert source.mean(jnp.mean) == pytest.approx(X.mean(), rel=1e-12)


def test_mean_of_a_tree(x64):
    X, y = data_set(30)
    source = Finite.of({"X": X, "y": y}, 30, np.float64)
    got = source.mean(lambda rows: {"a": rows["X"].mean(axis=0), "b": (rows["y"] ** 2).mean()})
    np.testing.assert_allclose(got["a"], X.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(got["b"], np.mean(y**2), rtol=1e-13)


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 2**31 - 1), st.integers(0, 10_000))
def test_padded_length_is_monotone_and_settled(N, more):
    assert N <= padded_length(N) <= padded_length(N + more)
    assert padded_length(padded_length(N)) == padded_length(N)


@settings(derandomize=True, deadline=None)
@given(st.one_of(st.integers(1, 20_000), st.integers(1, 2**31 - 1)))
def test_padded_length_adds_at_most_an_eighth(N):
    assert padded_length(N) - N <= N / 8


def test_few_padded_lengths_exist():
    assert len({padded_length(N) for N in range(1, 2**17)}) <= 8 * 17


# Draws ------------------------------------------------------------------------------------


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


# The user's arrays --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_of_the_data(dtype):
    X, y = data_set(20)
    data = {
        "X": X.astype(np.float32),
        "S": scipy.sparse.csr_matrix(X),
        "y": y,
        "labels": np.arange(20),
        "mask": y > 0,
    }
    problem = mossp.Problem(lambda x, b: jnp.mean(b["X"] @ x), data)
    with exact(dtype):
        arrays = problem.source(dtype).arrays
        assert arrays["X"].dtype == arrays["S"].dtype == arrays["y"].dtype == dtype
        assert arrays["labels"].dtype.kind == "i"
        assert arrays["mask"].dtype == bool
        assert problem.source(dtype) is problem.source(np.dtype(dtype))
        np.testing.assert_array_equal(arrays["labels"][:20], np.arange(20))
        np.testing.assert_allclose(arrays["y"][:20], y, rtol=np.finfo(dtype).eps)


@pytest.mark.parametrize(
    "kind, N",  # 16 rows need no padding
    [("float64", 16), ("float64", 17), ("float32", 16), ("int64", 16), ("jax", 17),
     ("sparse", 16), ("sparse", 17)],
)  # fmt: skip
def test_the_users_arrays_are_left_alone(kind, N, x64):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(N, 3)) * 10)
    if kind == "sparse":
        # Unsorted and with a duplicate: it must come back that way.
        data = scipy.sparse.csr_matrix(X)
        data.indices[:3], data.data[:3] = [2, 0, 0], [1.0, 2.0, 3.0]
        data.has_sorted_indices = data.has_canonical_format = False
        X = data.toarray()
        before = (data.data.copy(), data.indices.copy(), data.indptr.copy())
    else:
        data = jnp.asarray(X) if kind == "jax" else X.astype(kind)
        before = np.array(data)
    problem = mossp.Problem(lambda x, b: jnp.mean(b @ x), data)
    oracles, x = problem.oracles(np.ones(3)), jnp.array([1.0, -2.0, 0.5])
    value = float(oracles.full_value(x))
    assert value == pytest.approx(float((X @ x).mean()), rel=1e-13)
    if kind == "sparse":
        for a, b in zip(before, (data.data, data.indices, data.indptr), strict=True):
            np.testing.assert_array_equal(a, b)
        data.data[:] = 99.0
    else:
        np.testing.assert_array_equal(before, data)
        with contextlib.suppress(TypeError):  # JAX arrays cannot be changed
            data[:] = 99
    assert float(oracles.full_value(x)) == value
    assert float(problem.oracles(np.ones(3)).full_value(x)) == value


def test_views_and_read_only_arrays(x64):
    X, y = data_set(40)
    X.setflags(write=False)
    for view in (X[::2], X[::-1], np.asfortranarray(X)[:20]):
        problem = mossp.Problem(mossp.losses.squared, (view, y[: len(view)]))
        value = problem.oracles(np.ones(3)).full_value(jnp.ones(3))
        residual = view.sum(axis=1) - y[: len(view)]
        assert value == pytest.approx(np.mean(residual**2) / 2, rel=1e-12)
