"""Whether the loss is a mean over the rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp.solving.means import GROUP, ROWS, check_means, some_rows
from tests.statements import X0, X, Y, quadratic

pytestmark = pytest.mark.usefixtures("x64")


def mean_loss(x, batch):
    return jnp.mean((batch[0] @ x - batch[1]) ** 2) + 0.1 * x @ x


def sum_loss(x, batch):
    return jnp.sum((batch[0] @ x - batch[1]) ** 2)


def half_sum(x, batch):
    return 0.5 * jnp.sum(jnp.logaddexp(0.0, -batch[1] * (batch[0] @ x))) + x @ x


def batches():
    return [(X + i, Y) for i in range(3)]


def sampled(key, size):
    rows = jax.random.normal(key, (size, 3))
    return rows, rows.sum(axis=1)


SOURCES = {
    "arrays": lambda: (X, Y),
    "float32": lambda: (X.astype(np.float32), Y),
    "two-rows": lambda: (X[:2], Y[:2]),
    "sparse": lambda: (scipy.sparse.csr_matrix(X), Y),
    "long-row": lambda: (
        scipy.sparse.csr_matrix(np.array([[1.0, 0, 0]] * 3 + [[1, 1, 1]])[::-1].copy()),
        Y,
    ),
    "sampler": lambda: mossp.Sampler(sampled),
    "stream": lambda: mossp.Stream(batches()),
    "generator": lambda: mossp.Stream(iter(batches())),
}


def looks_like_a_mean(loss, data, x0=X0):
    problem = mossp.Problem(loss, data)
    try:
        check_means(problem, problem.oracles(x0), x0, np.float64)
    except ValueError as error:
        assert "mean over the rows" in str(error)
        assert "jnp.mean" in str(error)
        return False
    return True


@pytest.mark.parametrize("source", SOURCES)
def test_sums_are_caught_and_means_accepted(source):
    assert looks_like_a_mean(mean_loss, SOURCES[source]())
    assert not looks_like_a_mean(sum_loss, SOURCES[source]())
    assert not looks_like_a_mean(half_sum, SOURCES[source]())


def test_checking_the_mean_leaves_the_stream():
    stream = mossp.Stream(iter(batches()))
    assert looks_like_a_mean(mean_loss, stream)
    assert len(stream.take(9)) == 3


def test_a_sum_is_caught_where_every_row_is_zero_at_x0():
    assert not looks_like_a_mean(sum_loss, (X, np.zeros(4)), np.zeros(3))


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_a_sum_is_caught_whatever_the_units(scale):
    assert looks_like_a_mean(mean_loss, (X * scale, Y * scale))
    assert not looks_like_a_mean(sum_loss, (X * scale, Y * scale))


def test_losses_that_cancel_are_no_sums():
    """The rows' values cancel to rounding; that is no reason to refuse a mean."""
    linear = lambda x, batch: jnp.mean(batch[0] @ x)  # noqa: E731
    rows = np.array([[1e6, 0.0, 0.0], [-1e6, 0.0, 0.0], [1e-3, 0.0, 0.0]])
    assert looks_like_a_mean(linear, (rows, np.zeros(3)))


def test_one_row_or_no_data_cannot_tell():
    assert looks_like_a_mean(sum_loss, (X[:1], Y[:1]))
    assert looks_like_a_mean(quadratic, None)


def weighted(x, batch):
    """Weights normalised inside a batch: the commonest loss that is no mean."""
    A, b, w = batch
    return jnp.sum(w * (A @ x - b) ** 2) / jnp.sum(w)


def test_weights_normalised_in_a_batch_are_caught_where_rows_are_sorted():
    """The first rows have equal weights, so that they look like a mean."""
    rng = np.random.default_rng(1)
    A, w = rng.normal(size=(200, 3)), np.repeat([1.0, 4.0], 100)
    assert not looks_like_a_mean(weighted, (A, A.sum(axis=1), w))
    assert looks_like_a_mean(
        lambda x, batch: jnp.mean(batch[2] * (batch[0] @ x - batch[1]) ** 2),
        (A, A.sum(axis=1), w / w.mean()),
    )


def test_sums_whose_first_rows_are_zero_are_caught():
    A = np.zeros((300, 3))
    A[-5:] = 1.0
    assert not looks_like_a_mean(sum_loss, (A, A.sum(axis=1)))


def test_a_loss_that_is_a_mean_of_few_rows_alone_is_caught():
    def loss(x, batch):
        A, b = batch
        rows = (A @ x - b) ** 2
        return jnp.mean(rows) if len(rows) <= GROUP else jnp.sum(rows)

    assert not looks_like_a_mean(loss, (np.tile(X, (20, 1)), np.tile(Y, 20)))


def test_a_user_s_own_loss_class_is_checked_too():
    class Total(mossp.losses.Loss):
        def __call__(self, x, batch):
            return sum_loss(x, batch)

    assert not looks_like_a_mean(Total(), (X, Y))


@pytest.mark.parametrize("loss", [sum_loss, mean_loss], ids=["sum", "mean"])
def test_one_row_is_not_padded(loss):
    """A sum over one row is a mean; copies of the row would change the sum."""
    problem = mossp.Problem(loss, (X[:1], Y[:1]), mossp.L1(0.1))
    result = mossp.solve(problem, X0)
    value = float(loss(jnp.asarray(result.x), (X[:1], Y[:1])))
    np.testing.assert_allclose(result.fun, value + 0.1 * np.abs(result.x).sum(), atol=1e-6)
    assert result.success and mossp.stationarity(problem, result.x) <= 1e-10


def test_solve_checks_the_mean():
    with pytest.raises(ValueError, match="mean over the rows"):
        mossp.solve(mossp.Problem(sum_loss, (X, Y)), X0, steps=1)


def test_one_row_in_thousands_with_a_weight_of_its_own_is_found():
    rng = np.random.default_rng(1)
    A, w = rng.normal(size=(20_000, 3)), np.ones(20_000)
    w[777] = 500.0
    assert not looks_like_a_mean(weighted, (A, A.sum(axis=1), w))
    total = lambda x, batch: jnp.sum(batch[2] * (batch[0] @ x - batch[1]) ** 2)  # noqa: E731
    assert not looks_like_a_mean(total, (A, A.sum(axis=1), np.where(w > 1, 1.0, 0.0)))


def test_rows_are_as_many_whatever_the_data_hold():
    """So that data of one shape share a program."""
    rng = np.random.default_rng(1)
    for A in (rng.normal(size=(500, 3)), np.zeros((500, 3)), np.arange(1500.0).reshape(500, 3)):
        problem = mossp.Problem(mean_loss, (A, A.sum(axis=1)))
        rows = some_rows(problem.source())
        assert rows[0].shape == (ROWS, 3)


def test_a_sum_that_is_finite_near_x0_alone_is_caught():
    x0, rows = np.full(300, 0.05), np.abs(np.random.default_rng(1).normal(size=(100, 300)))
    total = lambda x, batch: -jnp.sum(jnp.log(x) * batch)  # noqa: E731
    assert not looks_like_a_mean(total, rows, x0)
    assert looks_like_a_mean(lambda x, batch: total(x, batch) / len(batch), rows, x0)
