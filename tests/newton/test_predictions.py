"""Functions of predictions are found in what they compute; others are not taken for such."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp._base.structure import Structure
from mossp.data.sparse import SparseRows
from mossp.losses import LinearModel
from mossp.newton.predictions import Cut, cut

N, n = 7, 3
A, y = np.zeros((N, n), np.float32), np.zeros(N, np.float32)
VECTOR = np.zeros(n, np.float32)
MODEL = {"coef": VECTOR, "intercept": np.zeros((), np.float32)}


def found(function, x=VECTOR, batch=(A, y)) -> Cut | None:
    return cut(jax.tree_util.Partial(function), Structure.of(x), batch)


def loss(margins):
    return jnp.mean(jax.nn.softplus(-margins))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, b: loss(b[1] * (b[0] @ x)),
        lambda x, b: loss(b[1] * jnp.dot(b[0], x)),
        lambda x, b: loss(b[1] * (x @ b[0].T)),
        lambda x, b: loss(b[1] * jnp.einsum("ij,j->i", b[0], x)),
        jax.jit(lambda x, b: loss(b[1] * (b[0] @ x))),
        lambda x, b: jnp.stack([loss(b[0] @ x), loss(b[1] * (b[0] @ x))]),  # one product, not two
    ],
)
def test_products_with_the_rows(function):
    it = found(function)
    assert it is not None
    assert it.places.tolist() == [[0], [1], [2]]
    assert it.direct.size == 0
    assert it.table == 0


def test_sparse_rows_are_multiplied_like_dense_ones():
    rows = SparseRows.of(scipy.sparse.csr_matrix(np.eye(N, n, dtype=np.float32)), np.float32)
    it = found(lambda x, b: loss(b[1] * (b[0] @ x)), batch=(rows, y))
    assert it is not None
    assert it.rest == (1,)  # the labels alone


@pytest.mark.parametrize(
    ("function", "x", "places", "direct"),
    [
        (lambda x, b: loss(b[0] @ x["coef"] + x["intercept"]), MODEL, [0, 1, 2], [3]),
        (lambda x, b: loss(b[0] @ x[1:] - x[0]), np.zeros(n + 1, np.float32), [1, 2, 3], [0]),
        (lambda x, b: loss(b[0] @ x.reshape(-1)), VECTOR[:, None], [0, 1, 2], []),
    ],
)
def test_pieces_of_x(function, x, places, direct):
    it = found(function, x)
    assert it is not None
    assert it.places[:, 0].tolist() == places
    assert it.direct.tolist() == direct


def test_several_outputs():
    def function(x, b):
        return jnp.mean(jax.nn.logsumexp(b[0] @ x, axis=1))

    it = found(function, np.zeros((n, 2), np.float32))
    assert it is not None
    assert it.places.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, b: jnp.mean(jnp.sum(b[0] * x, axis=1)),  # no product of matrices
        lambda x, b: loss((b[0] ** 2) @ x),  # with an array that is not the batch's
        lambda x, b: loss(b[0] @ jnp.tanh(x)),  # of what is not linear in x
        lambda x, b: loss(b[1] @ b[0] * x),  # over the rows
        lambda x, b: jnp.mean(b[1]) * jnp.sum(x),
    ],
)
def test_what_is_no_prediction(function):
    it = found(function)
    assert it is None or it.direct.size == n


def test_two_tables_are_not_understood():
    def function(x, b):
        return loss(b[0] @ x) + loss(b[1] @ x)

    assert found(function, batch=(A, A)) is None


def test_ready_losses_and_rates_are_found_too():
    w = np.ones(N, np.float32)
    model = LinearModel(mossp.losses.logistic)
    it = cut(model, Structure.of(MODEL), (A, y, w))
    assert it is not None
    assert it.direct.tolist() == [3]
