"""Sparse rows against dense ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats

import mossp
from mossp.data import Finite, SparseRows, map_rows
from tests.data.rows import exact, stored

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


def matrix(lengths, columns=COLUMNS, seed=0):
    rng = np.random.default_rng(seed)
    places = [np.sort(rng.choice(columns, length, replace=False)) for length in lengths]
    indices = np.concatenate(places) if places else np.zeros(0, int)
    values = rng.normal(size=indices.size)
    return scipy.sparse.csr_matrix(
        (values, indices, np.cumsum([0, *lengths])), shape=(len(lengths), columns)
    )


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


@pytest.mark.parametrize("width", [None, 2])
@pytest.mark.parametrize("name", ROWS)
def test_columns_and_copies_of_the_first_row(name, width):
    """Stored zeros, and places that are not used, are in no column."""
    A = matrix(ROWS[name])
    A.data[::7] = 0.0
    rows = SparseRows.of(A, width=width, length=16)
    columns = rows.by_columns(12)
    assert columns.shape == A.shape
    np.testing.assert_array_equal(columns.toarray(), A.toarray())
    np.testing.assert_array_equal(rows.by_columns().toarray()[12:], A.toarray()[[0] * 4])
    assert np.count_nonzero(columns.data[: columns.indptr[1]]) == columns.indptr[1]


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


def equations_of(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations_of(inner)


@pytest.mark.parametrize("lengths", [[20] * 2000, [19, 20, 20, 20] * 500, [20] * 1999 + [400]])
def test_rows_of_about_one_length_fit_into_the_first_table(lengths):
    """Each further segment is a round of a loop: a few wasted places are cheaper."""
    rows = SparseRows.of(matrix(lengths, columns=500))
    assert rows.values.shape == (2000, 20)
    assert (0 if rows.extra is None else np.count_nonzero(rows.extra)) == sum(
        length > 20 for length in lengths
    )


def test_long_rows_side_by_side_are_added_in_place(x64):
    """Batches whose numbers of rounds differ: no round copies a whole vector to choose from."""
    A = matrix(ROWS["uneven"])
    xs, draws = np.ones((3, COLUMNS)), np.arange(12).reshape(3, 4)
    rows = jax.tree.map(jnp.asarray, SparseRows.of(A, width=2))

    def gradients(xs, draws):
        return jax.vmap(lambda x, d: jax.grad(lambda x: jnp.sum(jnp.sin(rows[d] @ x)))(x))(
            xs, draws
        )

    loops = [
        equation
        for equation in equations_of(jax.make_jaxpr(gradients)(xs, draws).jaxpr)
        if equation.primitive.name == "while"
    ]
    # A condition of each batch's own is what makes JAX choose between the old and the new.
    assert [loop.params["cond_jaxpr"].out_avals[0].shape for loop in loops] == [(), ()]
    expected = A.toarray()[draws] * np.cos(A.toarray()[draws] @ np.ones(COLUMNS))[..., None]
    np.testing.assert_allclose(gradients(xs, draws), expected.sum(axis=1), atol=1e-12)


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

    traced = jax.make_jaxpr(everything)(oracles, x, batch).jaxpr
    seen = [v.aval for equation in equations_of(traced) for v in equation.outvars]
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
