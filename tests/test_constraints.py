"""Ready constraints: values, derivatives, precision, wrong arrays, and one compilation each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mossp import constraints
from mossp.constraints import (
    Budget,
    DiagonalQuadratics,
    Linear,
    NormBudget,
    Orthogonal,
    Quadratics,
    Sphere,
)

M, N, K = 3, 4, 2
RNG = np.random.default_rng(0)
Q = RNG.normal(size=(M, N, N))
D = RNG.normal(size=(M, N))
a = RNG.normal(size=(M, N))
b = RNG.normal(size=M)
VECTOR = RNG.normal(size=N)
MATRIX = RNG.normal(size=(N, K))


def quadratics(matrices, x):
    return np.array([x @ matrices[j] @ x / 2 + a[j] @ x - b[j] for j in range(M)])


def gram_minus_identity(X):
    G = X.T @ X - np.eye(X.shape[1])
    return np.array([G[i, j] for i in range(len(G)) for j in range(i, len(G))])


# name: (how to build it, x, the same function in NumPy)
CASES = {
    "sphere": (lambda: Sphere(1.5), VECTOR, lambda x: np.sum(x**2) - 2.25),
    "norm2": (lambda: NormBudget(2.0), VECTOR, lambda x: np.sum(x**2) - 4.0),
    "norm3": (lambda: NormBudget(2, order=3), VECTOR, lambda x: np.sum(np.abs(x) ** 3) - 8.0),
    "budget": (lambda: Budget(a[0], 0.7), VECTOR, lambda x: a[0] @ x - 0.7),
    "linear": (lambda: Linear(a, b), VECTOR, lambda x: a @ x - b),
    "diagonal": (
        lambda: DiagonalQuadratics(D, a, b),
        VECTOR,
        lambda x: quadratics([np.diag(row) for row in D], x),
    ),
    "quadratics": (lambda: Quadratics(Q, a, b), VECTOR, lambda x: quadratics(Q, x)),
    "columns": (lambda: Orthogonal(), MATRIX, gram_minus_identity),
    "rows": (lambda: Orthogonal(rows=True), MATRIX.T, lambda X: gram_minus_identity(X.T)),
}
every = pytest.mark.parametrize(("make", "x", "reference"), CASES.values(), ids=CASES.keys())


@every
@pytest.mark.parametrize("x64", [False, True])
def test_value_and_precision(make, x, reference, x64):
    dtype = np.float64 if x64 else np.float32
    constraint = make()  # built outside the double context, as a user does
    with jax.enable_x64(x64):
        value = constraint(jnp.asarray(x, dtype))
        assert value.dtype == dtype and value.shape == np.shape(reference(x))
        tolerance = 1e-13 if x64 else 1e-5
        np.testing.assert_allclose(value, reference(x), rtol=tolerance, atol=tolerance)


@every
def test_single_precision_survives_in_double_context(make, x, reference):
    with jax.enable_x64(True):
        value, pull = jax.vjp(make(), jnp.asarray(x, np.float32))
        assert value.dtype == pull(value)[0].dtype == np.float32


@every
def test_jacobian_against_finite_differences(make, x, reference):
    with jax.enable_x64(True):
        jacobian = np.asarray(jax.jacobian(make())(jnp.asarray(x)))
    step = 1e-6
    for index in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[index] = step
        slope = (reference(x + e) - reference(x - e)) / (2 * step)
        np.testing.assert_allclose(jacobian[(..., *index)], slope, atol=1e-8)


@every
def test_derivatives_are_finite_at_zero(make, x, reference):
    zero = jnp.zeros(x.shape)
    assert np.isfinite(jax.jacobian(make())(zero)).all()
    assert np.isfinite(jax.jacfwd(jax.jacrev(make()))(zero)).all()


@every
def test_equal_instances_compile_once(make, x, reference):
    first, second = make(), make()
    assert first == second
    traces = []

    @jax.jit
    def value(constraint, x):
        traces.append(constraint)
        return constraint(x)

    for constraint in (first, second):
        value(constraint, jnp.asarray(x))
    assert len(traces) == 1


def test_other_numbers_do_not_compile_again():
    traces = []

    @jax.jit
    def value(constraint, x):
        traces.append(constraint)
        return constraint(x)

    x = jnp.asarray(VECTOR)
    assert value(Sphere(1), x) > value(Sphere(2.0), x)
    assert len(traces) == 1
    value(Linear(a, b), x), value(Linear(2 * a, b + 1), x)
    assert len(traces) == 2


def test_scalars_hash_alike():
    assert hash(Sphere(1)) == hash(Sphere(1.0))
    assert Sphere(1) == Sphere() != Sphere(2.0)
    assert NormBudget(1, order=2) == NormBudget(1.0)


def test_numbers_may_be_traced():
    x = jnp.asarray(VECTOR)
    several = jax.vmap(lambda r: Sphere(r)(x))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(several, [Sphere(1.0)(x), Sphere(2.0)(x)], rtol=1e-6)
    shifted = jax.vmap(lambda t: Linear(a, t * b)(x))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(shifted[1], Linear(a, 2 * b)(x), rtol=1e-5, atol=1e-6)


def test_changing_the_given_array_changes_nothing():
    weights = np.ones(N)
    budget = Budget(weights, 1.0)
    weights[:] = np.nan
    assert np.isfinite(budget(jnp.asarray(VECTOR)))


def test_pytrees_and_matrices_are_read_as_one_vector():
    tree = {"u": jnp.asarray(VECTOR[:1]), "w": jnp.asarray(VECTOR[1:])}
    for constraint in (Sphere(), NormBudget(2.0), Budget(a[0], 1.0), Linear(a, b)):
        np.testing.assert_allclose(constraint(tree), constraint(jnp.asarray(VECTOR)), rtol=1e-5)
        matrix = jnp.asarray(VECTOR.reshape(2, 2))
        np.testing.assert_allclose(constraint(matrix), constraint(jnp.asarray(VECTOR)), rtol=1e-5)


def test_whole_numbers_become_real():
    assert float(Sphere()(jnp.array([1, 1]))) == 1.0
    assert float(Sphere(0.5)(jnp.array([1, 1]))) == 1.75


def test_orthonormal_columns_satisfy_the_constraint():
    X, _ = np.linalg.qr(RNG.normal(size=(5, 3)))
    with jax.enable_x64(True):
        np.testing.assert_allclose(Orthogonal()(jnp.asarray(X)), np.zeros(6), atol=1e-14)
        np.testing.assert_allclose(Orthogonal(rows=True)(jnp.asarray(X.T)), 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sphere(0.0), "positive radius"),
        (lambda: Sphere(-1.0), "positive radius, but radius = -1.0"),
        (lambda: Sphere(np.nan), "radius holds NaN"),
        (lambda: NormBudget(-1.0), "positive radius"),
        (lambda: NormBudget(1.0, order=1), "order = 1: for order 1 use the regulariser mossp.L1"),
        (lambda: NormBudget(1.0, order=1.5), "at least 2"),
        (lambda: NormBudget(1.0, order=np.inf), "finite order"),
        (lambda: Budget(a, 1.0), r"weights of shape \(n,\), but weights has shape \(3, 4\)"),
        (lambda: Budget([1.0, np.inf], 1.0), r"infinite value at index \(1,\)"),
        (lambda: Budget([1.0], np.nan), "limit holds NaN"),
        (lambda: Linear(a[0], b), r"A of shape \(m, n\), but A has shape \(4,\)"),
        (lambda: Linear(a, b[:2]), r"b of shape \(3,\), but b has shape \(2,\)"),
        (lambda: Linear(np.where(a == a[1, 2], np.nan, a), b), r"index \(1, 2\)"),
        (lambda: DiagonalQuadratics(Q, a, b), r"Q of shape \(m, n\)"),
        (lambda: DiagonalQuadratics(D, a[:2], b), r"a of shape \(3, 4\), but a has shape \(2, 4\)"),
        (lambda: DiagonalQuadratics(D, a, 1.0), r"b of shape \(3,\), but b has shape \(\)"),
        (lambda: Quadratics(D, a, b), r"Q of shape \(m, n, n\)"),
        (lambda: Quadratics(Q[:, :, :3], a, b), r"Q of shape \(3, 4, 4\)"),
        (lambda: Quadratics(Q, a, b * np.nan), r"b holds NaN"),
    ],
)
def test_wrong_arrays_are_said_in_one_sentence(make, message):
    with pytest.raises(ValueError, match=message) as error:
        make()
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


def test_wrong_type_is_said():
    with pytest.raises(TypeError, match="real numbers"):
        Linear([["a", "b"]], [1.0])
    with pytest.raises(TypeError, match="real numbers"):
        Budget([1j, 2.0], 1.0)


@pytest.mark.parametrize("make", [lambda: Linear(a, b), lambda: Budget(a[0], 1.0)])
def test_x_of_another_size_is_said(make):
    with pytest.raises(ValueError, match="4 elements, but x has 5"):
        make()(jnp.ones(5))


@pytest.mark.parametrize(
    ("x", "rows", "message"),
    [
        (np.ones(3), False, "needs a matrix"),
        (np.ones((2, 3)), False, "3 columns of length 2 cannot be orthonormal"),
        (np.ones((3, 2)), True, "3 rows of length 2 .* set rows=False"),
    ],
)
def test_impossible_orthogonality_is_said(x, rows, message):
    with pytest.raises(ValueError, match=message):
        Orthogonal(rows=rows)(jnp.asarray(x))


def test_public_names_exist():
    assert all(hasattr(constraints, name) for name in constraints.__all__)
