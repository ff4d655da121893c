"""Linear models on the host against the generic path: the same loss as a plain function.

A plain function in which products with the rows are not seen (inside of jax.checkpoint) has no
linear structure: its values, gradients and Hessians are those of automatic differentiation, and it
is polished by products and compiled models.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp.certificates.first_order import first_order
from mossp.newton import globalization, hessian, recession, system, working_sets
from mossp.newton import linear as linear_module
from mossp.newton.conjugate import Curvature, conjugate_gradients
from mossp.newton.hessian import Hessian
from mossp.newton.linear import LinearLoss
from mossp.newton.meter import Meter
from mossp.newton.quadratic import minimum
from mossp.newton.repeated import repeated
from mossp.newton.residual import KKT
from mossp.newton.table import Table, table

pytestmark = pytest.mark.usefixtures("x64")

N, n, C = 90, 7, 3
LOSSES = {"logistic": mossp.losses.logistic, "softmax": mossp.losses.softmax}
FORMS = ("plain", "weights, offset, intercept")


@functools.cache
def rows(sparse):
    rng = np.random.default_rng(5)
    A = rng.standard_normal((N, n)) * (rng.random((N, n)) < (0.4 if sparse else 1.0))
    return scipy.sparse.csr_matrix(A) if sparse else A


def dense_rows(sparse):
    return rows(sparse).toarray() if sparse else rows(sparse)


def determined(x, name, form):
    """x without what the loss does not see: a number added to all intercepts of classes."""
    if name == "softmax" and form != "plain":
        x = x.copy()
        x[-C:] -= x[-C:].mean()
    return x


def posed(name, sparse, form, lam=0.02, plain=False, constraint=None):
    """(problem, a point): the ready loss, or the same one as a plain function."""
    rng = np.random.default_rng(1)
    codes = (C,) if name == "softmax" else ()
    b = rng.integers(C, size=N) if codes else rng.choice([-1.0, 1.0], N)
    loss, data, x = LOSSES[name], (rows(sparse), b), rng.standard_normal((n, *codes))
    reg = mossp.L1(lam)
    if form != "plain":
        w, o = rng.uniform(0.2, 2, N), rng.standard_normal((N, *codes))
        loss, data = mossp.losses.LinearModel(loss, offset=True), (*data, w, o)
        x, reg = {"coef": x, "intercept": rng.standard_normal(codes)}, mossp.Blocks({"coef": reg})
    function = jax.checkpoint(lambda x, batch: loss(x, batch)) if plain else loss
    return mossp.Problem(function, data, reg, equality=constraint), x


def linear(name, sparse, form, dtype=np.float64, **settings):
    """(KKT, the point as a vector, f by the generic path)."""
    problem, x = posed(name, sparse, form, **settings)
    oracles = problem.oracles(x, dtype)
    vector = oracles.structure.ravel(x, dtype)
    kkt = KKT(oracles, dtype)
    assert kkt.linear is not None
    batch = jax.tree.map(jnp.asarray, problem.source(dtype).arrays)
    batch = (jnp.asarray(dense_rows(sparse), dtype), *(part[:N] for part in batch[1:]))
    return kkt, vector, lambda v: problem.loss(oracles.structure.unravel(v), batch)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_are_those_of_automatic_differentiation(name, sparse, form):
    kkt, x, f = linear(name, sparse, form)
    H = np.asarray(jax.jit(jax.hessian(f))(x))
    value, gradient = kkt.linear.first_order(x)
    np.testing.assert_allclose(value, float(f(jnp.asarray(x))), rtol=1e-13)
    np.testing.assert_allclose(gradient, np.asarray(jax.grad(f)(jnp.asarray(x))), atol=1e-13)
    S = np.array([0, 2, 3, len(x) - 2, len(x) - 1])
    np.testing.assert_allclose(kkt.linear.block(x, S), H[np.ix_(S, S)], atol=1e-13)
    E = np.random.default_rng(0).standard_normal((2, len(x)))
    np.testing.assert_allclose(kkt.linear.products(x, E), E @ H, atol=1e-13)
    product, diagonal = kkt.linear.on(x, S)
    np.testing.assert_allclose(product(E[0, S]), H[np.ix_(S, S)] @ E[0, S], atol=1e-13)
    np.testing.assert_allclose(diagonal, np.diag(H)[S], atol=1e-13)
    # Kept predictions are those of the last point, not of another.
    away = x + 0.1
    kkt.linear.first_order(away)
    np.testing.assert_allclose(kkt.linear.products(x, E), E @ H, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "by parts"])
def test_blocks_of_several_classes(form, whole, monkeypatch):
    """Joint over all features of any class, or each pair of classes by itself."""
    monkeypatch.setattr(linear_module, "FEW", 100 if whole else 0)
    kkt, x, f = linear("softmax", False, form)
    H = np.asarray(jax.jit(jax.hessian(f))(x))
    every = np.arange(len(x))
    apart = every[(every // C) % C == every % C]  # no feature in two classes
    for S in (every, every[1::2], apart, every[:1], every[:0]):
        joins = len(S) == len(every)
        sizes = np.bincount(S % C, minlength=C).tolist()
        assert not joins or kkt.linear._joins(len(np.unique(S // C)), sizes)
        np.testing.assert_allclose(kkt.linear.block(x, S), H[np.ix_(S, S)], atol=1e-14)
    assert not kkt.linear._joins(len(np.unique(apart // C)), [len(apart) // C] * C)
    # At another point nothing of this one is left.
    away = x + 0.1
    np.testing.assert_allclose(kkt.linear.block(away, every), jax.hessian(f)(away), atol=1e-14)


def test_small_curvatures_are_exact_where_classes_are_all_but_certain():
    """Blocks on the diagonal are sums of numbers of one sign: none is lost beside another."""
    z = np.array([[40.0, 0.0, 1.0]])
    problem = mossp.Problem(mossp.losses.softmax, (np.ones((1, 1)), np.array([0])), mossp.L1(0.1))
    kkt = KKT(problem.oracles(z), np.float64)
    H = kkt.linear.block(z.ravel(), np.arange(3))
    p = np.exp([0.0, -40.0, -39.0]) / np.exp([0.0, -40.0, -39.0]).sum()
    np.testing.assert_allclose(np.diag(H), [p[0] * (p[1] + p[2]), p[1], p[2]], rtol=1e-14)


def test_a_point_is_evaluated_once(monkeypatch):
    kkt, x, f = linear("softmax", False, FORMS[1])
    value, gradient = kkt.linear.first_order(x)
    with monkeypatch.context() as forbidden:
        forbidden.setattr(kkt.linear, "_rowwise", None)
        again, same = kkt.linear.first_order(x.copy())
    assert again == value and np.array_equal(same, gradient)
    x[0] += 1  # the same array with another point in it
    value, gradient = kkt.linear.first_order(x)
    np.testing.assert_allclose(value, float(f(jnp.asarray(x))), rtol=1e-13)
    np.testing.assert_allclose(gradient, np.asarray(jax.grad(f)(jnp.asarray(x))), atol=1e-13)


def test_intercepts_that_move_together_are_no_way_to_infinity(monkeypatch):
    """Softmax is constant along them: seen at once, and not by what rounding says of lengths."""
    kkt, x, _ = linear("softmax", False, FORMS[1])
    x[:] = globalization.polish(kkt.oracles, x, 1e-12).witness.x
    ray = np.zeros(len(x))
    ray[-C:] = 1.0
    seen, first_order = [], type(kkt.linear).first_order

    def counted(self, point):
        seen.append(point)
        return first_order(self, point)

    monkeypatch.setattr(type(kkt.linear), "first_order", counted)
    for sign in (1.0, -1.0):
        seen.clear()
        lengths = recession.SOME_LENGTHS
        assert not recession.falls_without_end(kkt.oracles, x, sign * ray, 1e-10, lengths)
        assert len(seen) <= 3


def test_problems_that_differ_in_h_and_g_share_what_is_known_of_f(monkeypatch):
    problem, x = posed("logistic", True, "plain")
    oracles = problem.oracles(x, np.float64)
    f = KKT.of(oracles, np.float64).linear
    other = KKT(oracles.relaxed(np.asarray(0.5)), np.float64)
    assert other.linear is f
    part = KKT(oracles.restricted(np.arange(3)), np.float64).linear
    assert part is not f and part.size == 3
    passes, times = [], Table.times
    monkeypatch.setattr(Table, "times", lambda self, B: (passes.append(1), times(self, B))[1])
    value, gradient = f.first_order(x)
    before = gradient.copy()
    with pytest.raises(ValueError, match="read-only"):  # it is remembered, and not copied
        gradient += 1.0
    again = other.linear.first_order(x.copy())
    assert len(passes) == 1 and again[0] == value
    np.testing.assert_array_equal(again[1], before)
    other.linear.first_order(x + 1.0)
    assert len(passes) == 2


def test_single_precision_is_worked_in_where_it_is_asked_for():
    with jax.enable_x64(False):
        kkt, x, f = linear("softmax", True, FORMS[1], np.float32)
        value, gradient = kkt.linear.first_order(x)
        np.testing.assert_allclose(value, float(f(jnp.asarray(x))), rtol=1e-5)
        np.testing.assert_allclose(gradient, np.asarray(jax.grad(f)(jnp.asarray(x))), atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_way_ends_at_the_point_of_the_generic_path(name, sparse, form, monkeypatch):
    """Directly, on working sets, and by conjugate gradients in place of matrices."""
    problem, x = posed(name, sparse, form)
    oracles = problem.oracles(x)
    zero = np.zeros(oracles.structure.size)
    plain = posed(name, sparse, form, plain=True)[0].oracles(x)
    assert KKT(plain, zero.dtype).linear is None
    expected = globalization.polish(plain, zero, 1e-10)
    assert expected.residual <= 1e-10 and 0 < np.count_nonzero(expected.witness.x) < len(zero)
    found = {"directly": globalization.polish(oracles, zero, 1e-10)}
    monkeypatch.setattr(working_sets, "MANY", 2)
    monkeypatch.setattr(working_sets, "FEWEST", 2)
    found["working sets"] = working_sets.polish(oracles, zero, 1e-10)
    monkeypatch.setattr(hessian, "DENSE", 1)
    found["conjugate gradients"] = globalization.polish(oracles, zero, 1e-10)
    for way, end in found.items():
        assert end.improved and end.residual <= 1e-10, way
        x, other = (determined(e.witness.x, name, form) for e in (end, expected))
        np.testing.assert_allclose(x, other, atol=1e-8, err_msg=way)
        np.testing.assert_allclose(end.value, expected.value, rtol=1e-12, err_msg=way)


def test_a_support_beyond_matrices_is_found_on_working_sets(monkeypatch):
    """W outgrows the order of matrices, which l1 on few rows would not in a small test."""
    problem, x = posed("logistic", True, "plain", lam=1e-3)
    oracles, zero = problem.oracles(x), np.zeros(n)
    expected = globalization.polish(oracles, zero, 1e-10)
    for module, name, value in (
        (working_sets, "MANY", 2), (working_sets, "FEWEST", 1), (working_sets, "DENSE", 2),
        (hessian, "DENSE", 2),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    assert np.count_nonzero(expected.witness.x) > 4
    found = working_sets.polish(oracles, zero, 1e-10)
    assert found.residual <= 1e-10
    np.testing.assert_allclose(found.witness.x, expected.witness.x, atol=1e-8)


# Constraints ------------------------------------------------------------------------------------


@pytest.mark.parametrize("coupled", [False, True], ids=["diagonal", "coupled"])
def test_what_constraints_add_to_the_hessian(coupled):
    def constraint(x):
        return x @ x - 1.0 + (x[0] * x[1] if coupled else 0.0)

    kkt, x, _ = linear("logistic", False, "plain", constraint=constraint)
    E = np.random.default_rng(0).standard_normal((3, n))
    at = kkt.evaluate(x, np.array([1.5]), 1.0)
    B = 1.5 * np.asarray(jax.hessian(constraint)(jnp.asarray(x)))
    H = Hessian(kkt, Meter())
    np.testing.assert_allclose(H.beside(at, E), E @ B, atol=1e-12)
    assert (H.diagonal_bend(kkt.oracles, x, at.q) is None) is coupled


# The parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_table_multiplies_as_its_dense_matrix(sparse, ones):
    A = np.asarray(rows(True).toarray())
    table = Table(scipy.sparse.csc_array(A) if sparse else A, ones)
    D = np.column_stack([A, np.ones(N)]) if ones else A
    rng = np.random.default_rng(2)
    w, B, R = rng.standard_normal(N), rng.standard_normal((D.shape[1], 2)), rng.random((N, 2))
    S, T = np.array([1, 4, D.shape[1] - 1]), np.array([0, D.shape[1] - 1])
    pairs = (
        (table.times(B), D @ B),
        (table.transposed(R), D.T @ R),
        (table.transposed(R[:, 0]), D.T @ R[:, 0]),
        (table.squares(w), np.diag(D.T * w @ D)),
        (table.gram(w**2, S), D[:, S].T * w**2 @ D[:, S]),
        (table.gram(w, S), D[:, S].T * w @ D[:, S]),
        (table.gram(w, S, T), D[:, S].T * w @ D[:, T]),
        (table.gram(w**2, S), D[:, S].T * w**2 @ D[:, S]),  # of columns that are kept
        (table.only(S).times(B[S]), D[:, S] @ B[S]),
    )
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("ones", [False, True])
def test_many_sums_over_sparse_rows_are_taken_by_pairs(ones):
    rng = np.random.default_rng(3)
    A = rng.standard_normal((N, 9)) * (rng.random((N, 9)) < 0.3)
    D = np.column_stack([A, np.ones(N)]) if ones else A
    whole = Table(scipy.sparse.csc_array(A), ones)
    some = np.setdiff1d(np.arange(D.shape[1]), [2])
    part = Table(scipy.sparse.csc_array(A)[:, some[some < 9]], ones, part_of=(whole, some))
    S, every = np.arange(len(some) - 1), np.arange(D.shape[1])
    for _ in range(5):
        w = rng.standard_normal(N)
        np.testing.assert_allclose(whole.gram(w, every), D.T * w @ D, atol=1e-12)
        K = D[:, some[S]]
        np.testing.assert_allclose(part.gram(w, S), K.T * w @ K, atol=1e-12)
    assert "_pairs" in vars(whole) and "_pairs" not in vars(part)


def test_of_many_columns_no_matrix_of_all_pairs_is_formed():
    """A sum by pairs is as large as the square of the columns, however short the rows are."""
    wide = scipy.sparse.random_array((40, 5000), density=2e-3, format="csc", rng=4)
    table, S = Table(wide, ones=False), np.arange(5000)
    for _ in range(3):
        found = table.gram(np.ones(40), S)
    D = wide.toarray()
    np.testing.assert_allclose(found, D.T @ D, atol=1e-12)
    assert "_pairs" not in vars(table)


@pytest.mark.parametrize("count", [0, 3, 4000])
def test_a_long_x_is_multiplied_by_its_nonzeros(count):
    rng = np.random.default_rng(6)
    wide = scipy.sparse.random_array((40, 5000), density=0.02, format="csc", rng=rng)
    x = np.zeros(5000)
    x[rng.choice(5000, count, replace=False)] = rng.standard_normal(count)
    for ones in (False, True):
        table, B = Table(wide, ones), np.append(x, [2.0] * ones)
        expected = wide.toarray() @ x + 2 * ones
        np.testing.assert_allclose(table.times(B), expected, atol=1e-12)
        np.testing.assert_allclose(table.times(B[:, None])[:, 0], expected, atol=1e-12)


def test_the_norm_is_that_of_the_matrix_where_this_comes_at_once():
    """By pairs all of H takes as long as a part of it."""
    rng = np.random.default_rng(7)
    A = scipy.sparse.random_array((400, 30), density=0.1, format="csr", rng=rng)
    b = np.where(rng.random(400) < 0.5, -1.0, 1.0)
    problem = mossp.Problem(mossp.losses.logistic, (A, b), mossp.L1(0.01))
    kkt = KKT.of(problem.oracles(np.zeros(30)), np.dtype(np.float64))
    at = kkt.evaluate(0.1 * rng.standard_normal(30), np.zeros(0), 1.0)
    by_products = Hessian(kkt, Meter()).norm(at)
    for _ in range(3):
        kkt.linear.table.gram(np.ones(400), np.arange(30))
    assert kkt.linear.forms_whole
    assert Hessian(kkt, Meter()).norm(at) == pytest.approx(by_products, rel=1e-9)


@pytest.mark.parametrize("hollow", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ones", [False, True])
def test_rows_that_repeat_themselves_are_multiplied_once(ones, dtype, hollow):
    rng = np.random.default_rng(2)
    few = rng.standard_normal((20, 12)).astype(dtype)
    few[0] = 0.0
    if hollow:  # dense rows with so few nonzeros are multiplied as sparse ones
        few = few * (np.arange(12) == np.arange(20)[:, None] % 12)
    A = few[rng.integers(20, size=N)]
    given = jnp.asarray(A)
    known = table(given, N, ones)
    assert known.sparse == hollow and known.rows is not None
    assert known.A.shape == (len(np.unique(A, axis=0)), 12) and known.A.dtype == dtype
    plain = Table(A, ones)
    close = functools.partial(
        np.testing.assert_allclose, rtol=1e-4 if dtype == np.float32 else 1e-11
    )
    width, accuracy = 12 + ones, float(np.finfo(dtype).eps)
    B, R = rng.standard_normal((width, 2)).astype(dtype), rng.standard_normal((N, 3)).astype(dtype)
    w = rng.standard_normal(N)  # of both signs
    S, T = np.array([0, 2, width - 1]), np.array([1, 3])
    for mine, other in ((known, plain), (known.only(S), plain.only(S))):
        rows = slice(None) if mine is known else S
        close(mine.times(B[rows]), other.times(B[rows]), atol=100 * accuracy)
        close(mine.transposed(R), other.transposed(R), atol=1000 * accuracy)
        close(mine.transposed(R[:, 0]), other.transposed(R[:, 0]), atol=1000 * accuracy)
    close(known.squares(w), plain.squares(w), atol=1000 * accuracy)
    close(known.gram(w, S), plain.gram(w, S), atol=1000 * accuracy)
    close(known.gram(w, S, T), plain.gram(w, S, T), atol=1000 * accuracy)
    whole = np.c_[A, np.ones((N, int(ones)))].astype(np.float64)
    exact = whole[:, S].T @ (whole[:, S] * w[:, None])
    close(known.gram(w, S), exact, atol=1000 * accuracy)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_weights_that_are_not_finite_are_not_forgotten(sparse):
    A = np.eye(4)
    rows = Table(scipy.sparse.csc_array(A) if sparse else A, ones=False)
    for bad in (np.nan, np.inf):
        w, S = np.array([1.0, bad, -1.0, 0.0]), np.arange(3)
        assert not np.isfinite(rows.gram(w, S)).any()
        assert not np.isfinite(rows.gram(w, S, S[:2])).any()


def test_rows_that_only_look_alike_are_told_apart():
    direction = np.cos(np.arange(1, 3, dtype=float) ** 2)
    beside = np.array([-direction[1], direction[0]]) / direction[0]  # is projected to 0
    A = np.repeat([[0.0, 0.0], [1.0, 2.0]], 10, axis=0)
    assert repeated(A) is not None
    A[3] = beside
    found = repeated(A)
    assert found is None or np.array_equal(A[found.first[found.of]], A)
    assert repeated(np.random.default_rng(0).standard_normal((30, 2))) is None


def test_conjugate_gradients_stop_at_their_accuracy():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 20))
    A, b = A @ A.T + np.eye(20), rng.standard_normal(20)
    for accuracy in (1e-2, 1e-10):
        x = conjugate_gradients(lambda v: A @ v, np.diag(A), b, accuracy)
        assert np.linalg.norm(A @ x - b) <= accuracy * np.linalg.norm(b)
    rough = conjugate_gradients(lambda v: A @ v, np.diag(A), b, 1e-2)
    assert np.linalg.norm(A @ rough - b) > 1e-10 * np.linalg.norm(b)


def test_the_minimum_of_a_quadratic_with_l1_is_the_same_by_both_systems():
    """Against a long run of proximal gradient steps."""
    kkt, x, _ = linear("logistic", False, "plain")
    reg, x = mossp.L1(0.05), x.copy()
    x[:3] = 0.0
    w, H = kkt.linear.first_order(x)[1], kkt.linear.block(x, np.arange(n))
    M = H + 1e-3 * np.eye(n)
    t, y = 1 / np.linalg.norm(M, 2), x
    for _ in range(5000):
        y = np.asarray(reg.prox_h(y - t * (w + M @ (y - x)), t))
    dense = minimum(reg, x, w, M, t, 1e-12)
    products = minimum(reg, x, w, Curvature(kkt.linear, x, 1e-3, 1e-12, Meter()), t, 1e-12)
    np.testing.assert_allclose(dense, y, atol=1e-9)
    np.testing.assert_allclose(products, y, atol=1e-9)
    assert system.has_products(kkt)


def many_columns(penalty):
    """A logistic regression of 400 rows and 60 columns, most of which stay."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((400, 60))
    b = np.where(A @ rng.standard_normal(60) + 3 * rng.standard_normal(400) > 0, 1.0, -1.0)
    return mossp.Problem(mossp.losses.logistic, (A, b), penalty)


@pytest.mark.parametrize("penalty", [mossp.L1(0.002), mossp.L1MinusL2(0.002)], ids=["l1", "l1-l2"])
def test_near_a_solution_the_matrix_of_an_earlier_step_serves(penalty, monkeypatch):
    """As many steps or a few more, with fewer matrices, to the same point."""
    formed, found = [], {}
    block = LinearLoss.block

    def counted(self, x, S):
        formed.append(len(S))
        return block(self, x, S)

    monkeypatch.setattr(LinearLoss, "block", counted)
    for least in (32, 10**6):  # entries from which on it is used again
        monkeypatch.setattr(hessian, "WORTH_KEEPING", least)
        formed.clear()
        oracles = many_columns(penalty).oracles(np.zeros(60))
        ended = globalization.polish(oracles, np.zeros(60), 1e-10)
        assert ended.residual <= 1e-10 and ended.steps <= 20
        found[least] = ended.witness.x, len(formed)
    assert np.abs(found[32][0] - found[10**6][0]).max() < 1e-9
    assert found[32][1] < found[10**6][1]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_certificate_takes_nothing_over_from_the_search(name, sparse, form):
    """Its values are those of the program, whatever the search holds for known."""
    kkt, x, _ = linear(name, sparse, form)
    expected = first_order(kkt.oracles, x)
    f, gradient = kkt.linear.first_order(x)
    assert abs(f - expected[0]) < 1e-14
    kkt.linear.known = kkt.linear.known._replace(f=0.0, gradient=0 * gradient)
    for mine, theirs in zip(kkt.afresh(kkt.oracles, x), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-13, atol=1e-15)
