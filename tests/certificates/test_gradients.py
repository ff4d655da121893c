"""Wrong derivatives are found, and the worst entry is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from tests.problems import squared_rows

rng = np.random.default_rng(0)
A, b = rng.normal(size=(40, 4)), rng.normal(size=40)


@jax.custom_vjp
def halved(t):
    return t**2


halved.defvjp(lambda t: (t**2, t), lambda t, ct: (ct * t,))  # the derivative is 2 t


@pytest.mark.parametrize("data", [(A, b), (scipy.sparse.csr_matrix(A), b)], ids=["dense", "sparse"])
def test_right_gradients_pass(data):
    problem = mossp.Problem(
        loss=squared_rows,
        data=data,
        equality=lambda x: x @ x - 1.0,
        inequality=lambda x: jnp.stack([x[0] - 1.0, jnp.sin(x[1])]),
    )
    mossp.check_gradients(problem, rng.normal(size=4))


def test_wrong_entry_of_a_pytree_is_named():
    def loss(x):
        return jnp.sum(x["w"] ** 3) + halved(x["b"][1])

    x = {"w": np.ones((2, 2)), "b": np.array([1.0, 3.0])}
    with pytest.raises(ValueError, match=r"loss is wrong at x\['b'\]\[1\]: 3 by .* 6 by"):
        mossp.check_gradients(mossp.Problem(loss=loss), x)


@pytest.mark.parametrize("kind", ["equality", "inequality"])
def test_wrong_constraint_is_found(kind):
    def constraint(x):
        return jnp.stack([x @ x - 1.0, halved(x[2]) - 1.0])

    problem = mossp.Problem(loss=lambda x: x @ x, **{kind: constraint})
    with pytest.raises(ValueError, match=rf"{kind} constraint is wrong at x\[2\]"):
        mossp.check_gradients(problem, np.array([1.0, 2.0, 3.0]))


def test_sampler_and_stream_are_checked():
    sampler = mossp.Sampler(lambda key, size: jax.random.normal(key, (size, 3)))
    stream = mossp.Stream([rng.normal(size=(8, 3))])
    for data in (sampler, stream):
        problem = mossp.Problem(loss=lambda x, batch: jnp.mean(halved(batch @ x)), data=data)
        with pytest.raises(ValueError, match="loss is wrong"):
            mossp.check_gradients(problem, np.ones(3))


def test_nan_counts_as_wrong():
    problem = mossp.Problem(loss=lambda x: jnp.sqrt(jnp.sum(x * x)))
    with pytest.raises(ValueError, match="nan by differentiation"):
        mossp.check_gradients(problem, np.zeros(2))
