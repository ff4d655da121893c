"""Polishing against optimality conditions of its own, SciPy's optima, and hopeless points."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import mossp
from mossp.newton import hessian, search
from mossp.newton.globalization import STEPS, follow, polish
from mossp.newton.meter import Meter
from mossp.newton.residual import KKT
from mossp.newton.search import ExactPenalty, Search
from mossp.newton.system import tangential
from tests.newton.cases import (
    CASES,
    FAR,
    LAM,
    R2,
    TIGHT,
    TOL,
    UPPER,
    N,
    W,
    data,
    gradient,
    loss,
    mcp,
    n,
    optimality,
    posed,
    rough,
    value,
)
from tests.problems import Halfspaces
from tests.problems import sphere as unit_sphere

pytestmark = [pytest.mark.usefixtures("x64"), pytest.mark.slow]


# The regularisers: slopes of h - g where x_i is not 0, and how large a slope 0 holds ------------


@pytest.mark.parametrize("name", CASES)
def test_every_regulariser_to_full_precision(name):
    """With inequalities that are inactive, then with one that is active."""
    for b in (FAR, TIGHT):
        x = rough(name, tuple(b))
        found = polish(posed(name, tuple(b)).oracles(x), x, TOL)
        assert found.improved and found.residual <= TOL
        proves(name, b, found)


def proves(name, b, found):
    """The optimality conditions at the point and the multipliers that come with it."""
    x = found.witness.x
    distance, q = optimality(name, x, b)
    assert abs(x @ x - R2) <= 1e-11 and (W @ x - b <= 1e-11).all()
    assert distance <= 1e-9
    assert (q[1:] >= 0).all() and len(q) == (2 if b is TIGHT else 1)
    np.testing.assert_allclose(found.witness.lam[: len(q)], q, atol=1e-8)
    assert not found.witness.lam[len(q) :].any()
    if name in ("L1", "MCP", "L1MinusL2"):
        assert mossp.stationarity(posed(name, tuple(b)), x) <= 1e-9


def test_a_box_whose_bounds_are_found_is_polished():
    """The same as above from a better point, with full gradients."""
    b = FAR
    x = rough("Box(L1)", tuple(b), 5000, N)
    found = polish(posed("Box(L1)", tuple(b)).oracles(x), x, TOL)
    assert found.improved and found.residual <= TOL
    assert np.sum(np.abs(found.witness.x) == UPPER) >= 2
    proves("Box(L1)", b, found)


@pytest.mark.parametrize("name", ["L1", "MCP", "L1MinusL2"])
def test_slsqp_finds_nothing_lower_on_the_support(name):
    x = polish(posed(name, tuple(TIGHT)).oracles(np.zeros(n)), rough(name, tuple(TIGHT)), TOL)
    x = x.witness.x
    S, reg = x != 0, CASES[name].reg

    def whole(z):
        return np.bincount(np.flatnonzero(S), z, n)

    best = scipy.optimize.minimize(
        lambda z: value(whole(z)) + float(reg(whole(z))),
        x[S] * (1 + 0.05 * np.cos(np.arange(S.sum()))),
        jac=lambda z: (gradient(whole(z)) + CASES[name].slope(whole(z)))[S],
        constraints=[
            {"type": "eq", "fun": lambda z: z @ z - R2, "jac": lambda z: 2 * z},
            {"type": "ineq", "fun": lambda z: TIGHT - W[:, S] @ z, "jac": lambda z: -W[:, S]},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert best.success
    np.testing.assert_allclose(x[S], best.x, atol=1e-6)
    assert value(x) + float(reg(x)) <= best.fun + 1e-11


# Bounds and balls -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reg", "aim", "x"),
    [
        (mossp.Box(mossp.Zero(), -1.0, 1.0), [0.0, 2.0], [0.001, 0.995]),
        (mossp.Nonnegative(mossp.Zero()), [0.0, -1.0], [0.001, 0.005]),
    ],
    ids=["box", "nonnegative"],
)
def test_a_stiff_variable_does_not_keep_another_from_its_bound(reg, aim, x):
    """A quadratic with the minimiser (0, 2) or (0, -1), which the bounds cut off."""
    stiff, aim = jnp.array([1000.0, 1.0]), jnp.array(aim)
    problem = mossp.Problem(lambda x: 0.5 * jnp.sum(stiff * (x - aim) ** 2), None, reg)
    found = polish(problem.oracles(np.zeros(2)), np.array(x), TOL)
    assert found.residual <= TOL
    best = np.asarray(reg.prox_h(np.array(aim), 1.0))
    np.testing.assert_allclose(found.witness.x, best, atol=1e-12)


def test_a_ball_that_is_active():
    """|x| <= 1 and a plane: the multiplier of the ball is the root of a scalar equation."""
    t, D, lam = np.array([2.0, -1.0, 0.5, 0.1]), np.array([1.0, 2.0, 3.0, 1.0]), 0.2
    problem = mossp.Problem(
        lambda x: 0.5 * jnp.sum(jnp.asarray(D) * (x - jnp.asarray(t)) ** 2),
        None, mossp.Ball(mossp.L1(lam), 1.0), equality=lambda x: x[0] + x[1] - 0.2,
    )  # fmt: skip
    start = np.array([0.7, -0.5, 0.3, 0.0])
    found = polish(problem.oracles(start), start, TOL)
    normal = np.array([1.0, 1.0, 0.0, 0.0])

    def at(sigma, q):
        v = D * t - q * normal
        return np.sign(v) * np.maximum(np.abs(v) - lam, 0) / (D + sigma)

    def on_plane(sigma):
        return scipy.optimize.brentq(lambda q: normal @ at(sigma, q) - 0.2, -5.0, 5.0, xtol=1e-15)

    sigma = scipy.optimize.brentq(
        lambda s: np.linalg.norm(at(s, on_plane(s))) - 1.0, 0.0, 10.0, xtol=1e-15
    )
    assert found.improved and found.residual <= TOL
    np.testing.assert_allclose(found.witness.x, at(sigma, on_plane(sigma)), atol=1e-10)
    np.testing.assert_allclose(found.witness.lam, [on_plane(sigma)], atol=1e-9)


# Never worse ----------------------------------------------------------------------------------


@functools.cache
def from_poor_points(name):
    """(the start, what was found, the last nu) for several starts."""
    rng, reg, made = np.random.default_rng(11), CASES[name].reg, []

    class Kept(ExactPenalty):
        def __init__(self):
            super().__init__()
            made.append(self)

    points = np.repeat([0.01, 0.3, 1.0, 3.0], 5)[:, None] * rng.standard_normal((20, n))
    oracles, seen = posed(name, tuple(TIGHT)).oracles(np.zeros(n)), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "ExactPenalty", Kept)
        for point in points[7:17]:
            x = np.asarray(reg.prox_h(point, 1e-30))
            seen.append((x, polish(oracles, x, TOL), made[-1].nu))
    return oracles, seen


@pytest.mark.parametrize(
    ("name", "which"),
    [("L1", "y"), ("L1", "x"), ("Box(L1)", "y"), ("Box(L1)", "x")],
)
def test_poor_points_do_not_get_worse(name, which):
    """Neither the exact penalty nor the residual is larger than at the start."""
    oracles, seen = from_poor_points(name)

    def penalty(x, nu):
        c = np.append(np.abs(x @ x - R2), np.maximum(W @ x - TIGHT, 0))
        return value(x) + float(CASES[name].reg(x)) + nu * c.sum()

    for x, found, nu in seen:
        first = followed(oracles, x, patient=False)[1].first.residual
        if not found.improved:  # x itself: its residual by another formula, which rounds otherwise
            assert np.array_equal(found.witness.x, x) and found.residual <= first * (1 + 1e-14)
        else:
            assert found.residual <= first
            after = getattr(found.witness, which)
            assert penalty(after, nu) <= penalty(x, nu) + 1e-12
    assert sum(found.improved for _, found, _ in seen) >= 3


def squares(x):
    return jnp.sum(x**2 * jnp.arange(1.0, 5.0)) / 2


HOPELESS = {
    "two spheres": (squares, lambda x: jnp.stack([x @ x - 1.0, x @ x - 2.0]), [0.1, 0.2, 0.3, 1.1]),
}


@pytest.mark.parametrize(
    ("why", "which"),
    [("two spheres", "y"), ("two spheres", "x")],
)
def test_nothing_is_claimed_where_newton_cannot_help(why, which):
    """The start comes back, or a point that violates the constraints less."""
    loss, equality, x = HOPELESS[why]
    problem = mossp.Problem(loss, equality=equality)
    found = polish(problem.oracles(np.zeros(4)), np.array(x), TOL)
    end = getattr(found.witness, which)
    assert TOL < found.residual < np.inf
    if found.improved:
        assert np.linalg.norm(equality(end)) < np.linalg.norm(equality(np.array(x)))
    else:
        np.testing.assert_array_equal(end, x)


def test_a_start_without_a_slope_is_left():
    """J = 0 at x = 0; the linear loss leads on to the sphere."""
    problem = mossp.Problem(lambda x: x @ jnp.arange(1.0, 5.0), equality=unit_sphere)
    found = polish(problem.oracles(np.zeros(4)), np.zeros(4), TOL)
    assert found.improved and found.residual <= TOL
    best = -np.arange(1.0, 5.0) / np.sqrt(30)
    np.testing.assert_allclose(found.witness.x, best, atol=1e-9)


def test_a_constraint_that_is_given_twice_does_no_harm():
    """The multipliers are not unique then, their sum is."""
    for kind in ("equality", "inequality"):
        twice = {kind: lambda x: jnp.stack([x @ x - 1.0, x @ x - 1.0])}
        problem = mossp.Problem(lambda x: squares(x) + 9 * x[1], **twice)
        found = polish(problem.oracles(np.zeros(4)), np.array([0.1, -0.8, 0.03, 0.1]), TOL)
        assert found.improved and found.residual <= TOL
        np.testing.assert_allclose(found.witness.x, [0, -1, 0, 0], atol=1e-10)
        np.testing.assert_allclose(found.witness.lam.sum(), 3.5, atol=1e-9)


def test_a_loss_that_is_nan_elsewhere_is_no_obstacle():
    """log x + 0.1 / x on the sphere, from where a full Newton step makes an entry negative."""
    problem = mossp.Problem(lambda x: jnp.sum(jnp.log(x) + 0.1 / x), equality=unit_sphere)
    x = np.array([0.5, 0.5, 0.6, 0.4])
    found = polish(problem.oracles(x), x, TOL)
    x = found.witness.x
    w = 1 / x - 0.1 / x**2
    assert found.improved and (x > 0).all() and abs(x @ x - 1) <= 1e-12
    np.testing.assert_allclose(w, (w @ x) * x, atol=1e-9)


def test_a_constraint_that_is_nan_elsewhere_is_no_obstacle():
    """Its slope is not NaN there, so that only its value tells."""
    problem = mossp.Problem(
        lambda x: 0.5 * jnp.sum((x - 2.0) ** 2),
        inequality=lambda x: jnp.where(x[0] > 1.5, jnp.nan, x[0] + x[1] - 1.0),
    )
    found = polish(problem.oracles(np.zeros(2)), np.array([0.1, 0.2]), TOL)
    assert found.improved and found.residual <= TOL
    np.testing.assert_allclose(found.witness.x, [0.5, 0.5])


# Saddles --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dense",
    [
        True,
        False,
    ],
    ids=["dense", "matrix-free"],
)
def test_a_saddle_does_not_attract(dense, monkeypatch):
    """x'Ax / 2 on the sphere is stationary at every eigenvector, least at the first one only."""
    monkeypatch.setattr(hessian, "DENSE", 2000 if dense else 0)
    problem = mossp.Problem(squares, equality=unit_sphere)
    for near in ([0.01, 0.99, 0.1, 0.05], [0.01, 0.1, 0.99, 0.2]):
        x = np.array(near) / np.linalg.norm(near)
        found = polish(problem.oracles(x), x, TOL)
        if found.residual <= TOL:
            np.testing.assert_allclose(np.abs(found.witness.x), [1, 0, 0, 0], atol=1e-6)
            np.testing.assert_allclose(found.witness.lam, [-0.5])


def test_a_maximiser_does_not_attract():
    problem = mossp.Problem(squares, equality=unit_sphere)
    x = np.array([0.01, 0.02, 0.01, 1.0])
    found = polish(problem.oracles(x), x / np.linalg.norm(x), TOL)
    assert not found.improved or squares(found.witness.x) < 1.0


# The support, and how the system is solved ------------------------------------------------------


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "matrix-free"])
def test_entries_enter_and_leave_the_support(dense, monkeypatch):
    """From a point whose support is wrong on both sides to the one of the solution."""
    oracles = posed("L1", tuple(TIGHT)).oracles(np.zeros(n))
    right = polish(oracles, rough("L1", tuple(TIGHT)), TOL).witness.x
    monkeypatch.setattr(hessian, "DENSE", 2000 if dense else 0)
    small, zero = np.abs(right).argsort()[[np.sum(right == 0), 0]]
    assert right[small] != 0 and right[zero] == 0
    x = right.copy()
    x[small], x[zero] = 0.0, 0.02
    found = polish(oracles, x, TOL)
    assert found.improved and found.residual <= TOL
    np.testing.assert_allclose(found.witness.x, right, atol=1e-10)
    assert np.array_equal(found.witness.x != 0, right != 0)


@pytest.mark.parametrize("name", ["MCP", "L1MinusL2", "Group(MCP)"])
def test_without_a_matrix_the_point_is_the_same(name, monkeypatch):
    """From near a solution: there are several."""
    x = rough(name, tuple(TIGHT))
    oracles = posed(name, tuple(TIGHT)).oracles(x)
    x = polish(oracles, x, TOL).witness.x
    x = x * (1 + 1e-3 * np.cos(np.arange(len(x))))
    dense = polish(oracles, x, TOL)
    monkeypatch.setattr(hessian, "DENSE", 0)
    free = polish(oracles, x, TOL)
    assert free.improved and free.residual <= TOL
    np.testing.assert_allclose(free.witness.x, dense.witness.x, atol=1e-9)
    np.testing.assert_allclose(free.witness.lam, dense.witness.lam, atol=1e-8)


def test_tangential_solves_the_system():
    rng = np.random.default_rng(0)
    M, K, b, e = (rng.standard_normal(s) for s in ((5, 5), (2, 5), 5, 2))
    A = M @ M.T + np.eye(5)
    y, dq = tangential(A, K, b, e)
    whole = np.block([[A, K.T], [K, np.zeros((2, 2))]])
    np.testing.assert_allclose(np.append(y, dq), np.linalg.solve(whole, np.append(b, e)))
    y, dq = tangential(A, np.zeros((0, 5)), b, np.zeros(0))
    np.testing.assert_allclose(y, np.linalg.solve(A, b))
    assert dq.shape == (0,)


def test_tangential_reverses_curvature_and_takes_rows_twice():
    A, K, b = np.diag([3.0, -2.0, 4.0]), np.array([[1.0, 0.0, 0.0]] * 2), np.array([1.0, 2.0, 8.0])
    y, dq = tangential(A, K, b, np.array([0.5, 0.5]))
    np.testing.assert_allclose(y, [0.5, 1.0, 2.0])  # not -1
    np.testing.assert_allclose(dq, [-0.25, -0.25])  # the shortest of all multipliers
    y, _ = tangential(A, K, b, np.array([0.0, 1.0]))  # contradictory: the middle
    np.testing.assert_allclose(y, [0.5, 1.0, 2.0])
    y, dq = tangential(np.zeros((0, 0)), np.zeros((2, 0)), np.zeros(0), np.ones(2))
    assert y.shape == (0,) and not dq.any()
    y, _ = tangential(np.zeros((3, 3)), K, b, np.zeros(2))  # no curvature at all
    np.testing.assert_allclose(y, 0.0)


# Kinds of data, of x and of numbers -------------------------------------------------------------


def test_a_pytree_with_blocks_and_sparse_rows():
    """The same problem in parts gives the same point; unnamed parts are not penalised."""
    X, y = data()
    problem = mossp.Problem(
        lambda x, batch: loss(jnp.concatenate([x["a"], x["b"].ravel()]), batch),
        (scipy.sparse.csr_matrix(X), y),
        mossp.Blocks({"b": mossp.MCP(LAM)}),
        equality=lambda x: jnp.sum(x["a"] ** 2) + jnp.sum(x["b"] ** 2) - R2,
    )
    x = rough("MCP")
    found = polish(problem.oracles({"a": x[:4], "b": x[4:].reshape(2, 3)}), x, TOL)
    x = found.witness.x
    slope = np.sign(x) * mcp(np.abs(x)) * (np.arange(n) >= 4)
    q = -(gradient(x) + slope) @ x / (2 * x @ x)
    w = gradient(x) + 2 * q * x
    assert found.improved and found.residual <= TOL and abs(x @ x - R2) <= 1e-11
    assert (x[:4] != 0).all()
    assert np.linalg.norm(np.where(x != 0, w + slope, np.maximum(np.abs(w) - LAM, 0))) <= 1e-9


def test_single_precision():
    x = rough("MCP", tuple(TIGHT)).astype(np.float32)
    problem = posed("MCP", tuple(TIGHT))
    double = polish(problem.oracles(x), x.astype(float), TOL)
    with jax.enable_x64(False):
        found = polish(problem.oracles(x, np.float32), x, 1e-4)
    assert found.improved and found.residual <= 2e-6
    assert all(part.dtype == np.float32 for part in found.witness)
    np.testing.assert_allclose(found.witness.x, double.witness.x, atol=1e-5)


def test_many_constraints_and_no_data():
    """40 planes and a halfspace in 60 variables, h = lam |x|_1: the solution is unique."""
    rng, size, lam = np.random.default_rng(2), 60, 0.3
    A, t = rng.standard_normal((41, size)), rng.standard_normal(size)
    D = np.linspace(1.0, 3.0, size)
    b = A @ t * 0.5
    problem = mossp.Problem(
        lambda x: 0.5 * jnp.sum(jnp.asarray(D) * (x - jnp.asarray(t)) ** 2),
        regularizer=mossp.L1(lam),
        equality=Halfspaces(A[:40], b[:40]),
        inequality=Halfspaces(A[40:], b[40:] - 1.0),
    )
    found = polish(problem.oracles(t), 0.5 * t, TOL)
    x, q = found.witness.x, found.witness.lam
    w = D * (x - t) + q @ A
    assert found.improved and found.residual <= TOL
    np.testing.assert_allclose(A[:40] @ x, b[:40], atol=1e-11)
    np.testing.assert_allclose(A[40] @ x, b[40] - 1.0, atol=1e-11)
    assert q[40] > 0 and 0 < np.sum(x == 0) < 20
    stays = np.where(x != 0, w + lam * np.sign(x), np.maximum(np.abs(w) - lam, 0))
    assert np.linalg.norm(stays) <= 1e-9


def followed(oracles, x, patient):
    """(what a search worked with, its path)."""
    one = Search.of(KKT(oracles, x.dtype), Meter())
    return one, follow(one, x, TOL, patient, STEPS)
