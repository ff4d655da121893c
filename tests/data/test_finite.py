"""Finite data: full means by blocks, padded lengths, and the user's arrays."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import mossp
from mossp.data import Finite, padded_length
from tests.data.rows import data_set, exact

# A finite data set ------------------------------------------------------------------------


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
@given(st.integers(1, 2**31 - 1))
def test_padded_length_adds_at_most_an_eighth(N):
    assert padded_length(N) - N <= N / 8


def test_few_padded_lengths_exist():
    assert len({padded_length(N) for N in range(1, 2**17)}) <= 8 * 17


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


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 2**31 - 1), st.integers(0, 10_000))
def test_padded_length_is_monotone_and_idempotent(N, more):
    assert N <= padded_length(N) <= padded_length(N + more)
    assert padded_length(padded_length(N)) == padded_length(N)
