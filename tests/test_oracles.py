"""The oracles that a problem gives to methods: x as a pytree, constraints, precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp._base.structure import Structure
from tests.statements import X0, X, Y, quadratic, square

pytestmark = pytest.mark.usefixtures("x64")

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
