"""The problem: what it refuses and in which words, and the oracles it gives to methods."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp._base.structure import Structure
from mossp.solving.means import GROUP, ROWS, check_mean, some_rows

X = np.arange(12.0).reshape(4, 3) / 10
Y = np.array([1.0, -1.0, 1.0, 1.0])
X0 = np.array([0.5, -0.2, 0.1])


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def square(x, batch):
    return jnp.mean((batch[0] @ x - batch[1]) ** 2)


def quadratic(x):
    return x @ x


def is_sentence(message):
    """A text of some words that ends as a sentence or quotes a reason after a colon."""
    return len(message.split()) >= 6 and (message.rstrip().endswith((".", ")")) or ": " in message)


def with_value(value, place=(1, 1)):
    bad = X.copy()
    bad[place] = value
    return bad


# Refused when the problem is stated -------------------------------------------------------

STATED = {
    "loss": ({"loss": 3}, TypeError, "loss must be a function"),
    "no-loss": ({"loss": None}, TypeError, "loss must be a function"),
    "equality": ({"equality": 1.0}, TypeError, "equality must be a function"),
    "inequality": ({"inequality": "x"}, TypeError, "inequality must be a function"),
    "number": ({"regularizer": 0.1}, TypeError, "regularizer must be"),
    "class": ({"regularizer": mossp.L1}, TypeError, "regularizer must be"),
    "lengths": ({"data": (X, Y[:3])}, ValueError, r"same number of rows.*\(4, 3\), \(3,\)"),
    "sparse-lengths": (
        {"data": (scipy.sparse.csr_matrix(X), Y[:3])},
        ValueError,
        "same number of rows",
    ),
    "nan": ({"data": (with_value(np.nan), Y)}, ValueError, r"1 NaN or infinite value in"),
    "inf": ({"data": (with_value(np.inf, 0), Y)}, ValueError, "3 NaN or infinite values"),
    "nan-labels": ({"data": (X, Y * np.nan)}, ValueError, "NaN"),
    "jax-nan": ({"data": (jnp.asarray(with_value(np.nan), jnp.float32), Y)}, ValueError, "NaN"),
    "objects": ({"data": (X.astype(object), Y)}, TypeError, "numeric.*object"),
    "strings": ({"data": (X, np.array(["a"] * 4))}, TypeError, "numeric"),
    "complex": ({"data": (X * 1j, Y)}, TypeError, "numeric.*complex"),
    "no-rows": ({"data": (X[:0], Y[:0])}, ValueError, "no rows"),
    "empty": ({"data": ()}, ValueError, "empty"),
    "scalar": ({"data": 3.0}, TypeError, "one row a sample"),
    "labels": (
        {"loss": mossp.losses.logistic, "data": (X, (Y + 1) / 2)},
        ValueError,
        r"labels -1 and \+1.*2\*y - 1",
    ),
    "classes": ({"loss": mossp.losses.softmax, "data": (X, Y)}, ValueError, "labels"),
}


@pytest.mark.parametrize("case", STATED)
def test_refused_when_stated(case):
    settings, kind, words = STATED[case]
    with pytest.raises(kind, match=words) as error:
        mossp.Problem(**{"loss": square, **settings})
    assert is_sentence(str(error.value))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_nan_in_any_sparse_format_is_refused(form):
    with pytest.raises(ValueError, match="1 NaN or infinite value"):
        mossp.Problem(square, (scipy.sparse.csr_matrix(with_value(np.nan)).asformat(form), Y))


# Refused when x0 is known -----------------------------------------------------------------


def branches(x):
    return x @ x if x[0] > 0 else x[0]


def forgets_to_return(x):
    x @ x - 1.0


POSED = {
    "vector-loss": ({"loss": lambda x: x}, ValueError, r"one real number.*shape \(3,\)"),
    "one-entry-loss": ({"loss": lambda x: x[:1]}, ValueError, r"one real number.*shape \(1,\)"),
    "no-value": ({"loss": forgets_to_return}, ValueError, "one real number.*NoneType"),
    "two-values": ({"loss": lambda x: (x @ x, x)}, ValueError, "one real number.*tuple"),
    "whole-loss": ({"loss": lambda x: jnp.sum(x > 0)}, ValueError, "one real number.*int"),
    "bool-loss": ({"loss": lambda x: jnp.all(x > 0)}, ValueError, "one real number.*bool"),
    "complex-loss": ({"loss": lambda x: (x @ x) * 1j}, ValueError, "one real number.*complex"),
    "numpy-loss": ({"loss": lambda x: np.sum(np.sin(x))}, TypeError, "The loss.*jax.numpy"),
    "branching-loss": ({"loss": branches}, TypeError, "The loss cannot be traced.*`if`"),
    "float-loss": ({"loss": lambda x: float(x[0])}, TypeError, "The loss cannot be traced"),
    "no-batch": ({"data": (X, Y)}, ValueError, "The loss cannot be evaluated"),
    "columns": (
        {"loss": square, "data": (X[:, :2], Y)},
        ValueError,
        r"The loss cannot be evaluated at x0 of shape \(3,\) on a batch of shapes \(4, 2\), \(4,\)",
    ),
    "sparse-columns": (
        {"loss": square, "data": (scipy.sparse.csr_matrix(X[:, :2]), Y)},
        ValueError,
        "2 columns cannot multiply",
    ),
    "ready-loss": (
        {"loss": mossp.losses.squared, "data": (X[:, :2], Y)},
        ValueError,
        "The loss cannot be evaluated",
    ),
    "bool": ({"equality": lambda x: x @ x == 1.0}, TypeError, "equality.*bool.*not `x @ x =="),
    "whole": (
        {"inequality": lambda x: jnp.sum(x > 0)},
        TypeError,
        "inequality.*real numbers.*int",
    ),
    "nothing": ({"equality": forgets_to_return}, (TypeError, ValueError), "equality constraint"),
    "nothing-<=": ({"inequality": lambda x: {}}, (TypeError, ValueError), "inequality constr"),
    "numpy": ({"equality": lambda x: np.linalg.norm(x)}, TypeError, "equality.*jax.numpy"),
    "branching": ({"inequality": branches}, TypeError, "The inequality constraint cannot be tr"),
    "shapes": (
        {"equality": lambda x: x @ jnp.ones(4)},
        ValueError,
        "The equality constraint cannot be evaluated",
    ),
    "ready": (
        {"equality": mossp.constraints.Linear(np.ones((2, 4)), np.ones(2))},
        ValueError,
        "The equality constraint cannot be evaluated",
    ),
    "paths": ({"regularizer": mossp.Blocks({"w": mossp.L1(0.1)})}, ValueError, "'w'"),
    "weights": (
        {"regularizer": mossp.Weighted(mossp.L1(0.1), np.ones(5))},
        ValueError,
        "(?i)weight",
    ),
    "groups": (
        {"regularizer": mossp.Group(mossp.L1(0.1), [0, 0, 1, 1, 1])},
        ValueError,
        "(?i)group",
    ),
}


@pytest.mark.parametrize("case", POSED)
def test_refused_when_x0_is_known(case):
    settings, kind, words = POSED[case]
    problem = mossp.Problem(**{"loss": quadratic, **settings})
    with pytest.raises(kind) as error:
        problem.oracles(X0)
    assert re.search(words, str(error.value), re.DOTALL), str(error.value)
    assert is_sentence(str(error.value))


def test_a_refused_start_does_not_spoil_the_next():
    problem = mossp.Problem(square, (X, Y))
    with pytest.raises(ValueError):
        problem.oracles(np.ones(2))
    assert problem.oracles(X0).structure.size == 3


def test_none_is_the_zero_regulariser():
    assert isinstance(mossp.Problem(quadratic, regularizer=None).regularizer, mossp.Zero)
    assert mossp.Problem(square, (X, Y)).samples == 4
    assert mossp.Problem(quadratic).samples is None


def test_programs_belong_to_a_structure():
    problem = mossp.Problem(square, (X, Y))
    assert problem.oracles(X0).programs is problem.oracles(X0 + 1).programs
    assert problem.oracles(X0).programs is not problem.oracles(X0, np.float32).programs


# x as a pytree ----------------------------------------------------------------------------


def tree():
    rng = np.random.default_rng(0)
    return {"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2), "s": np.array(0.3)}


def tree_loss(x, batch):
    return jnp.mean((x["s"] * (batch[0] @ x["w"]) + x["b"] - batch[1][:, None]) ** 2)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_tree_is_ravelled_and_unravelled(sparse):
    x = tree()
    structure = Structure.of(x)
    vector = structure.ravel(x)
    assert vector.shape == (9,)
    assert structure.slices == {"b": (0, 2), "s": (2, 3), "w": (3, 9)}
    for path, (start, end) in structure.slices.items():
        np.testing.assert_array_equal(vector[start:end], np.ravel(x[path]))
    jax.tree.map(np.testing.assert_array_equal, structure.unravel(vector), x)

    problem = mossp.Problem(
        tree_loss,
        (scipy.sparse.csr_matrix(X) if sparse else X, Y),
        regularizer=mossp.Blocks({"w": mossp.L1(0.5)}),
        equality=lambda x: x["w"].sum() - 1.0,
        inequality=lambda x: x["b"] - x["s"],
    )
    oracles, at = problem.oracles(x), jnp.asarray(vector)
    rows = np.array([2, 0])

    @jax.jit
    def ours(oracles, at):
        some = oracles.gradient(at, oracles.source.batch(rows, 2))
        return oracles.full_value(at), oracles.full_gradient(at), some, oracles.c(at)

    @jax.jit
    def theirs(x):
        c = jnp.concatenate([jnp.ravel(x["w"].sum() - 1.0), x["b"] - x["s"]])
        gradients = [jax.grad(tree_loss)(x, batch) for batch in ((X, Y), (X[rows], Y[rows]))]
        return tree_loss(x, (X, Y)), *gradients, c

    value, full, some, c = theirs(x)
    expected = value, structure.ravel(full), structure.ravel(some), c
    for got, wanted in zip(ours(oracles, at), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert oracles.regularizer(vector) == pytest.approx(0.5 * np.abs(x["w"]).sum(), rel=1e-13)


@pytest.mark.parametrize("x", [np.array(2.0), np.ones((2, 2)), [np.ones(2), np.zeros(1)]])
def test_scalars_matrices_and_lists(x):
    structure = Structure.of(x)
    vector = structure.ravel(x)
    jax.tree.map(np.testing.assert_array_equal, structure.unravel(vector), x)
    loss = lambda x: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(x))  # noqa: E731
    oracles = mossp.Problem(loss).oracles(x)
    np.testing.assert_allclose(oracles.full_gradient(jnp.asarray(vector)), np.cos(vector))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_of_the_oracles(dtype):
    weights = np.array([1.0, 2.0, 3.0])  # doubles, whatever the precision of the run
    problem = mossp.Problem(
        square,
        (X, Y),
        regularizer=mossp.Weighted(mossp.L1(0.1), weights),
        equality=mossp.constraints.Budget(weights, 1.0),
    )
    with jax.enable_x64(dtype == np.float64):
        oracles = problem.oracles(X0, dtype)
        x = jnp.asarray(X0, dtype)
        outputs = (
            oracles.full_gradient(x), oracles.c(x), oracles.constraint_gradient(x, 2.0),
            oracles.regularizer.prox_h(x, 0.5), oracles.violation(x),
        )  # fmt: skip
        assert [v.dtype for v in outputs] == [dtype] * 5


# Constraints ------------------------------------------------------------------------------

A = np.array([[1.0, -2.0, 0.5], [0.3, 0.1, -1.0]])


def vector_constraint(x):
    return A @ x + x[0] * x[1]


def scalar_constraint(x):
    return x @ x - 0.25


def dict_constraint(x):
    return {"norm": x @ x - 0.25, "linear": A @ x, "matrix": jnp.outer(x[:2], x)}


CONSTRAINTS = {
    "equality": (vector_constraint, None),
    "scalar": (scalar_constraint, None),
    "inequality": (None, vector_constraint),
    "both": (scalar_constraint, vector_constraint),
    "dicts": (dict_constraint, dict_constraint),
    "list": (lambda x: [x @ x, x[:2]], None),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraint_gradient_is_the_jacobian_times_the_multipliers(name):
    equality, inequality = CONSTRAINTS[name]
    oracles = mossp.Problem(quadratic, equality=equality, inequality=inequality).oracles(X0)

    def flat(function, x):
        leaves = [] if function is None else jax.tree.leaves(function(x))
        return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(leaf) for leaf in leaves)])

    @jax.jit
    def values(x):
        both = [lambda x, f=f: flat(f, x) for f in (equality, inequality)]
        return [f(x) for f in both] + [jax.jacobian(f)(x) for f in both]

    gradient = jax.jit(lambda *args: oracles.constraint_gradient(*args))
    rng = np.random.default_rng(1)
    signs = set()
    for _ in range(10):
        x = jnp.asarray(rng.normal(size=3))
        c_E, c_I, J_E, J_I = map(np.asarray, values(x))
        signs |= set(np.sign(c_I))
        lam = rng.normal(size=c_E.size + c_I.size)
        assert (oracles.m_E, oracles.m) == (c_E.size, lam.size)
        np.testing.assert_allclose(oracles.c(x), np.concatenate([c_E, c_I]), rtol=1e-14)
        for parts, rho in ((0.0 * lam, 3.0), (lam, 1.7), (lam, 0.0)):
            q_E = parts[: c_E.size] + rho * c_E
            q_I = np.maximum(parts[c_E.size :] + rho * c_I, 0.0)
            expected = J_E.T @ q_E + J_I.T @ q_I
            got = gradient(x, rho, parts)
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
            q = oracles.multipliers(x, parts, rho)
            np.testing.assert_allclose(q, np.concatenate([q_E, q_I]), rtol=1e-13, atol=1e-14)
        violation = np.linalg.norm(np.concatenate([c_E, np.maximum(c_I, 0)]))
        assert oracles.violation(x) == pytest.approx(violation, rel=1e-13)
    assert inequality is None or signs == {-1.0, 1.0}


def test_penalty_gradient_is_the_derivative_of_the_penalty():
    oracles = mossp.Problem(quadratic, equality=scalar_constraint, inequality=vector_constraint)
    oracles = oracles.oracles(X0)
    x = jnp.array([0.4, -1.0, 0.9])
    penalty = lambda x: 3.5 * oracles.violation(x) ** 2  # noqa: E731
    np.testing.assert_allclose(oracles.constraint_gradient(x, 7.0), jax.grad(penalty)(x), 1e-12)


def test_no_constraints():
    oracles = mossp.Problem(quadratic).oracles(X0)
    x = jnp.asarray(X0)
    assert (oracles.m, oracles.named(np.zeros(0))) == (0, {})
    assert oracles.c(x).shape == (0,)
    assert oracles.violation(x) == 0.0
    np.testing.assert_array_equal(oracles.constraint_gradient(x, 2.0), np.zeros(3))


def test_multipliers_carry_the_names_and_shapes_of_the_constraints():
    problem = mossp.Problem(quadratic, equality=dict_constraint, inequality=vector_constraint)
    oracles = problem.oracles(X0)
    x = jnp.asarray(X0)
    named = oracles.named(np.asarray(oracles.c(x)))
    assert set(named) == {"equality", "inequality"}
    expected = dict_constraint(X0)
    assert set(named["equality"]) == set(expected)
    for name, value in expected.items():
        assert np.shape(named["equality"][name]) == np.shape(value)
        np.testing.assert_allclose(named["equality"][name], value, rtol=1e-14)
    np.testing.assert_allclose(named["inequality"], vector_constraint(X0), rtol=1e-14)
    scalar = mossp.Problem(quadratic, inequality=scalar_constraint).oracles(X0)
    assert scalar.named(np.array([2.5])) == {"inequality": 2.5}
    assert np.shape(scalar.named(np.array([2.5]))["inequality"]) == ()


# Is the loss a mean? ----------------------------------------------------------------------


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
        check_mean(problem, problem.oracles(x0), x0, np.float64)
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
        rows = some_rows(problem, problem.oracles(X0), np.float64)
        assert rows[0].shape == (ROWS, 3)


def test_a_sum_that_is_finite_near_x0_alone_is_caught():
    x0, rows = np.full(300, 0.05), np.abs(np.random.default_rng(1).normal(size=(100, 300)))
    total = lambda x, batch: -jnp.sum(jnp.log(x) * batch)  # noqa: E731
    assert not looks_like_a_mean(total, rows, x0)
    assert looks_like_a_mean(lambda x, batch: total(x, batch) / len(batch), rows, x0)


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
