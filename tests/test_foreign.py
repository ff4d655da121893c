"""Functions written in NumPy: the same answers as in JAX, and sentences for what is wrong."""

import pickle

import numpy as np
import pytest
import scipy.sparse

import mossp
from tests.compilations import compiled_by

RNG = np.random.default_rng(5)
N, n = 60, 4
A = RNG.normal(size=(N, n))
B = np.where(A @ [2.0, -1.0, 0.0, 0.0] + RNG.normal(size=N) > 0, 1.0, -1.0)
START = np.full(n, 0.3)
QUICK = {"method": "mossp-r", "steps": 40, "batch_size": 8}


def value(x, batch):
    rows, labels = batch
    return np.mean(np.logaddexp(0, -labels * (rows @ x)))


def gradient(x, batch):
    rows, labels = batch
    return rows.T @ (-labels / (1 + np.exp(labels * (rows @ x)))) / len(labels)


def product(x, v, batch):
    rows, labels = batch
    p = 1 / (1 + np.exp(-(rows @ x)))
    return rows.T @ (p * (1 - p) * (rows @ v)) / len(labels)


def ball(x):
    return np.array([x @ x - 1.0, x[1] + 0.2])


def ball_slopes(x):
    return np.array([2 * x, np.eye(n)[1]])


LOSS = mossp.from_numpy(value, gradient, product)
BALL = mossp.from_numpy(ball, ball_slopes, outputs=2)
IN_JAX = mossp.Problem(
    mossp.losses.logistic, (A, B), mossp.L1MinusL2(0.02),
    inequality=lambda x: [x @ x - 1.0, x[1] + 0.2],
)  # fmt: skip


@pytest.mark.parametrize("rows", ["dense", "sparse"])
@pytest.mark.parametrize("given", ["product", "differences"])
def test_the_answer_is_that_of_jax(rows, given):
    loss = LOSS if given == "product" else mossp.from_numpy(value, gradient)
    data = (A, B) if rows == "dense" else (scipy.sparse.csr_array(A), B)
    r = mossp.solve(mossp.Problem(loss, data, mossp.L1MinusL2(0.02), inequality=BALL), START)
    assert r.success and r.certificate.is_kkt(1e-10)
    expected = mossp.solve(IN_JAX, START)
    assert r.fun == pytest.approx(expected.fun, abs=1e-12)
    np.testing.assert_allclose(r.x, expected.x, atol=1e-9)


def test_steps_are_those_of_jax_and_a_second_solve_compiles_nothing():
    """In doubles: what the callbacks get and give is not narrowed."""
    problem = mossp.Problem(LOSS, (A, B), mossp.L1MinusL2(0.02), inequality=BALL)
    first = mossp.solve(problem, START, replicas=2, **QUICK)
    expected = mossp.solve(IN_JAX, START, replicas=2, **QUICK)
    np.testing.assert_allclose(first.xs, expected.xs, atol=1e-13)
    assert compiled_by(lambda: mossp.solve(problem, START, replicas=2, **QUICK)) == 0


def test_what_a_function_reads_is_read_when_it_is_called():
    target = {"at": np.ones(2)}
    loss = mossp.from_numpy(
        lambda x: 0.5 * np.sum((x - target["at"]) ** 2), lambda x: x - target["at"], lambda x, v: v
    )
    problem = mossp.Problem(loss)
    np.testing.assert_allclose(mossp.solve(problem, np.zeros(2)).x, 1.0)
    target["at"] = np.full(2, 7.0)
    np.testing.assert_allclose(mossp.solve(problem, np.zeros(2)).x, 7.0)


def test_functions_that_share_a_value_but_not_a_gradient_do_not_share_a_program():
    wrong = mossp.from_numpy(value, lambda x, batch: -gradient(x, batch), product)
    found = [mossp.solve(mossp.Problem(loss, (A, B)), START, **QUICK).x for loss in (LOSS, wrong)]
    assert np.linalg.norm(found[0] - found[1]) > 1e-3


def test_trees_float32_and_constraints_about_data():
    def tree(x, batch):
        return float(np.mean((batch @ x["w"] + x["b"] - 1.0) ** 2))

    def slopes(x, batch):
        r = 2 * (batch @ x["w"] + x["b"] - 1.0) / len(batch)
        return {"b": r.sum(), "w": batch.T @ r}

    bound = mossp.Expected(mossp.from_numpy(tree, slopes))
    problem = mossp.Problem(
        lambda x, batch: (x["w"] ** 2).sum() + x["b"] ** 2 + 0.0 * batch.sum(), A,
        inequality=mossp.from_numpy(
            lambda x: 0.2 - x["b"], lambda x: {"b": -1.0, "w": np.zeros(n)}
        ),
    )  # fmt: skip
    x0 = {"b": np.array(0.5), "w": np.zeros(n)}
    r = mossp.solve(problem, x0, dtype="float32", tol=1e-4)
    assert r.success and r.x["b"] == pytest.approx(0.2, abs=1e-4)
    limited = mossp.Problem(
        lambda x, batch: (x["w"] ** 2).sum() + x["b"] ** 2 + 0.0 * batch.sum(), A,
        inequality={"fit": mossp.Expected(lambda x, batch: bound.function(x, batch) - 0.5)},
    )  # fmt: skip
    r = mossp.solve(limited, x0)
    assert r.success and tree(r.x, A) == pytest.approx(0.5, abs=1e-9)


def test_it_can_be_pickled():
    again = pickle.loads(pickle.dumps(LOSS))
    assert again(START, (A, B)) == pytest.approx(value(START, (A, B)), rel=1e-6)


@pytest.mark.parametrize(
    ("make", "kind", "sentence"),
    [
        (lambda: mossp.from_numpy(3, gradient), TypeError, r"^value must be a function .*\.$"),
        (lambda: mossp.from_numpy(value, None), TypeError, r"^gradient must be a function .*\.$"),
        (lambda: mossp.from_numpy(value, gradient, 1), TypeError, r"^hessian_product must .*\.$"),
        (lambda: mossp.from_numpy(value, gradient, outputs=0), ValueError, "^outputs must be"),
        (
            lambda: mossp.from_numpy(value, lambda x, batch: gradient(x, batch)[:2]),
            ValueError,
            r"^The loss cannot be .* at x0 .*: gradient returns the shape \(2,\), but \(4,\) .*\.$",
        ),
        (
            lambda: mossp.from_numpy(lambda x, batch: batch[0] @ x, gradient),
            ValueError,
            r"^The loss cannot be .*: value returns the shape \(3,\), but \(\) is needed\.$",
        ),
        (
            lambda: mossp.from_numpy(value, gradient, lambda x, v, batch: x[9]),
            ValueError,
            r"^The loss cannot be evaluated .*: index 9 is out of bounds .*\.$",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_compiled(make, kind, sentence):
    def solve():
        mossp.solve(mossp.Problem(make(), (A, B)), START)

    def refused():
        with pytest.raises(kind, match=sentence):
            solve()

    assert compiled_by(refused) == 0
