"""Polishing against optimality conditions of its own, SciPy's optima, and points that are hopeless.

Gradients, penalties and their slopes are written here in NumPy once more. The rough points come
from a short stochastic proximal method in NumPy, so that few programs are compiled.
"""

from __future__ import annotations

import functools
import importlib
import signal
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import mossp
from mossp._base.budget import Budget
from mossp.newton import polish as module
from mossp.newton.attempts import Polishing
from mossp.newton.polish import Polisher, polish, tangential

N, n, R2, LAM = 200, 10, 2.0, 0.04
TOL = 1e-10
FAR = np.array([9.0, 9.0])  # inequalities that are never active
TIGHT = np.array([0.9, 9.0])  # the first one active, the second one not


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


# The problem ----------------------------------------------------------------------------------


@functools.cache
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, n)) * (rng.random((N, n)) < 0.7)
    truth = np.array([1.5, -1.2, 1.0, -0.6, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
    return X, np.sign(X @ truth + 0.5 * rng.standard_normal(N))


def loss(x, batch):
    X, y = batch
    return jnp.mean(jnp.logaddexp(0.0, -y * (X @ x)))


def sphere(x):
    return x @ x - R2


class Halfspaces(eqx.Module):
    """W x <= b: arrays are leaves, so that every b shares one program."""

    W: Any
    b: Any

    def __call__(self, x):
        return self.W @ x - self.b


W = np.zeros((2, n))
W[0, :2], W[1, 2:4] = [1.0, -1.0], [1.0, 1.0]


def value(x):
    X, y = data()
    return np.logaddexp(0, -y * (X @ x)).mean()


def gradient(x, rows=slice(None)):
    X, y = (part[rows] for part in data())
    return X.T @ (-y / (1 + np.exp(y * (X @ x)))) / len(y)


# The regularisers: slopes of h - g where x_i is not 0, and how large a slope 0 holds ------------


class Case(NamedTuple):
    reg: Any
    slope: Any  # x -> (h - g)'(x) on the free entries
    held: Any  # (x, w) -> by how much the other entries want to leave
    free: Any = lambda x: x != 0


def separable(reg, size, most):
    """size(|x_i|) is the derivative, most = size(0) or one a coordinate."""
    return Case(
        reg,
        lambda x: np.sign(x) * size(np.abs(x)),
        lambda x, w: np.maximum(np.abs(w) - most, 0),
    )


def mcp(a, gamma=3.0):
    return np.maximum(LAM - a / gamma, 0)


def scad(a, A=3.7):
    return np.where(a <= LAM, LAM, np.maximum(A * LAM - a, 0) / (A - 1))


def l1_minus_l2(x):
    return LAM * (np.sign(x) - x / np.linalg.norm(x))


def truncated(x, k, minus_l2):
    rest = x * (np.argsort(np.argsort(-np.abs(x))) >= k)
    return LAM * (np.sign(rest) - (rest / np.linalg.norm(rest) if minus_l2 else 0))


GROUPS = np.repeat(np.arange(5), 2)
SOME = np.array([0.0, 1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0, 0.2, 1.0])
UPPER = 0.55


def radii(x):
    return np.maximum(np.sqrt(np.bincount(GROUPS, x**2))[GROUPS], 1e-300)


def only_up(x, w):
    return np.maximum(-w - LAM, 0)


def within_bounds(x, w):
    """An entry at the bound +-UPPER wants to go on; one at 0 stays for |w| <= LAM."""
    at = np.abs(x) == UPPER
    return np.where(at, np.maximum(np.sign(x) * w + LAM, 0), np.maximum(np.abs(w) - LAM, 0))


CASES = {
    "Zero": Case(mossp.Zero(), lambda x: 0 * x, lambda x, w: 0 * w, lambda x: x == x),
    "L1": separable(mossp.L1(LAM), lambda a: LAM + 0 * a, LAM),
    "L1MinusL2": Case(mossp.L1MinusL2(LAM), l1_minus_l2, lambda x, w: np.abs(w) - LAM),
    "CappedL1": separable(mossp.CappedL1(LAM, 0.3), lambda a: LAM * (a < 0.3), LAM),
    "MCP": separable(mossp.MCP(LAM), mcp, LAM),
    "SCAD": separable(mossp.SCAD(LAM), scad, LAM),
    "LogSum": separable(mossp.LogSum(0.02, 0.5), lambda a: 0.02 / (0.5 + a), LAM),
    "TransformedL1": separable(
        mossp.TransformedL1(LAM / 2), lambda a: LAM / (1 + a) ** 2, LAM
    ),
    "TruncatedL1": Case(
        mossp.TruncatedL1(LAM, 2), lambda x: truncated(x, 2, False), lambda x, w: np.abs(w) - LAM
    ),
    "TruncatedL1MinusL2": Case(
        mossp.TruncatedL1MinusL2(LAM, 2), lambda x: truncated(x, 2, True),
        lambda x, w: np.abs(w) - LAM,
    ),
    "Group(MCP)": Case(
        mossp.Group(mossp.MCP(LAM), GROUPS), lambda x: x / radii(x) * mcp(radii(x)),
        lambda x, w: np.maximum(radii(w) - LAM, 0),
    ),
    "Group(L1MinusL2)": Case(
        mossp.Group(mossp.L1MinusL2(LAM), GROUPS),
        lambda x: LAM * (x / radii(x) - x / np.linalg.norm(x)),
        lambda x, w: np.maximum(radii(w) - LAM, 0),
    ),
    "Nonnegative(L1)": Case(mossp.Nonnegative(mossp.L1(LAM)), lambda x: LAM + 0 * x, only_up),
    "Nonnegative(MCP)": Case(mossp.Nonnegative(mossp.MCP(LAM)), mcp, only_up),
    "Box(L1)": Case(
        mossp.Box(mossp.L1(LAM), -UPPER, UPPER), lambda x: LAM * np.sign(x), within_bounds,
        lambda x: (x != 0) & (np.abs(x) != UPPER),
    ),
    "Ball(L1)": separable(mossp.Ball(mossp.L1(LAM), 2.0), lambda a: LAM + 0 * a, LAM),
    "Weighted(MCP)": separable(mossp.Weighted(mossp.MCP(LAM), SOME), mcp, SOME * LAM)._replace(
        slope=lambda x: SOME * np.sign(x) * mcp(np.abs(x))
    ),
}  # fmt: skip


@functools.cache
def posed(name, b=tuple(FAR)):
    halfspaces = Halfspaces(W, np.array(b))
    return mossp.Problem(loss, data(), CASES[name].reg, sphere, halfspaces)


@functools.cache
def rough(name, b=tuple(FAR), steps=400, batch=16):
    """A short stochastic run for lam |x|_1 and a penalty, within the bounds of h if it has any."""
    rng, mu, x = np.random.default_rng(0), 0.03, np.sqrt(R2 / n) * np.ones(n)
    low, high = {"Non": (0, 9), "Box": (-UPPER, UPPER)}.get(name[:3], (-9, 9))
    for _ in range(steps):
        d = gradient(x, rng.integers(0, N, batch) if batch < N else slice(None))
        d += W.T @ np.maximum(5 * (W @ x - b), 0) + 5 * (x @ x - R2) * 2 * x
        v = x - mu * d
        x = np.clip(np.sign(v) * np.maximum(np.abs(v) - mu * LAM, 0), low, high)
    return x


def optimality(name, x, b):
    """(how far w = grad f + J'q is from stationary, the multipliers), everything in NumPy."""
    case, active = CASES[name], W @ x - b > -1e-8
    J, free = np.vstack([2 * x, W[active]]), case.free(x)
    slope = case.slope(x)
    left = (gradient(x) + slope)[free]
    q = np.linalg.lstsq(J[:, free].T, -left, rcond=None)[0]
    w = gradient(x) + q @ J
    return np.linalg.norm(np.where(free, w + slope, np.maximum(case.held(x, w), 0))), q


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

    class Kept(Polisher):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    points = np.repeat([0.01, 0.3, 1.0, 3.0], 5)[:, None] * rng.standard_normal((20, n))
    oracles, seen = posed(name, tuple(TIGHT)).oracles(np.zeros(n)), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Polisher", Kept)
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
        assert found.residual <= Polisher(oracles, x).run(x, TOL, False)[0].residual
        if found.improved:
            after = getattr(found.witness, which)
            assert penalty(after, nu) <= penalty(x, nu) + 1e-12
    assert sum(found.improved for _, found, _ in seen) >= 3


def squares(x):
    return jnp.sum(x**2 * jnp.arange(1.0, 5.0)) / 2


def unit(x):
    return x @ x - 1.0


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
    problem = mossp.Problem(lambda x: x @ jnp.arange(1.0, 5.0), equality=unit)
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
    problem = mossp.Problem(lambda x: jnp.sum(jnp.log(x) + 0.1 / x), equality=unit)
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
    monkeypatch.setattr(module, "DENSE", 2000 if dense else 0)
    problem = mossp.Problem(squares, equality=unit)
    for near in ([0.01, 0.99, 0.1, 0.05], [0.01, 0.1, 0.99, 0.2]):
        x = np.array(near) / np.linalg.norm(near)
        found = polish(problem.oracles(x), x, TOL)
        if found.residual <= TOL:
            np.testing.assert_allclose(np.abs(found.witness.x), [1, 0, 0, 0], atol=1e-6)
            np.testing.assert_allclose(found.witness.lam, [-0.5])


def test_a_maximiser_does_not_attract():
    problem = mossp.Problem(squares, equality=unit)
    x = np.array([0.01, 0.02, 0.01, 1.0])
    found = polish(problem.oracles(x), x / np.linalg.norm(x), TOL)
    assert not found.improved or squares(found.witness.x) < 1.0


# The support, and how the system is solved ------------------------------------------------------


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "matrix-free"])
def test_entries_enter_and_leave_the_support(dense, monkeypatch):
    """From a point whose support is wrong on both sides to the one of the solution."""
    oracles = posed("L1", tuple(TIGHT)).oracles(np.zeros(n))
    right = polish(oracles, rough("L1", tuple(TIGHT)), TOL).witness.x
    monkeypatch.setattr(module, "DENSE", 2000 if dense else 0)
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
    monkeypatch.setattr(module, "DENSE", 0)
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


# In a solve -------------------------------------------------------------------------------------


@functools.cache
def solved(polish, **more):
    problem = posed("MCP", tuple(TIGHT))
    given = {"method": "mossp-r", "steps": 300, "batch_size": 16, "tol": 1e-10, **more}
    return mossp.solve(problem, np.full(n, 0.4), polish=polish, **given)


def test_solve_polishes_its_end_point_and_counts_the_cost():
    before, after = solved(False), solved(True)
    found = polish(posed("MCP", tuple(TIGHT)).oracles(before.x), before.x, TOL)
    assert not before.success and after.success, after.message
    assert f"Polished by {found.steps} Newton steps." in after.message
    np.testing.assert_allclose(after.x, found.witness.x, atol=1e-12)
    assert optimality("MCP", after.x, TIGHT)[0] <= 1e-9
    assert after.violation <= 1e-11 and after.steps == before.steps
    assert after.gradients - before.gradients == found.gradients > 0
    assert after.hessian_products - before.hessian_products == found.products > 0


def test_every_replica_is_polished():
    result = solved(True, replicas=3)
    for x in result.xs:
        assert optimality("MCP", x, TIGHT)[0] <= 1e-9
    assert (result.violations <= 1e-11).all()


def stop(progress):
    return progress.step > 0


def press(progress):
    if progress.step > 0:
        signal.raise_signal(signal.SIGINT)


def wait(progress):
    time.sleep(0.05)


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"callback": stop}, mossp.Status.STOPPED),
        ({"callback": press}, mossp.Status.INTERRUPTED),
        ({"callback": wait, "seconds": 0.02}, None),
    ],
    ids=["callback", "ctrl-c", "seconds"],
)
def test_a_run_that_ends_early_is_not_polished(more, status):
    result = solved(True, **more)
    assert "not polished" in result.message and "Polished by" not in result.message
    assert status is None or result.status == status
    assert result.steps < 300 and not result.success


@pytest.mark.parametrize("kind", ["sampler", "stream"])
def test_data_without_end_cannot_be_polished(kind):
    def rows(key, count):
        return jax.random.normal(key, (count, n)), jnp.ones(count)

    endless = mossp.Sampler(rows)
    if kind == "stream":
        X, y = data()
        endless = mossp.Stream((X[:16], y[:16]) for _ in range(10))
    problem = mossp.Problem(loss, endless, mossp.L1(LAM))
    with pytest.raises(ValueError, match=r"polish needs all of the data.*has no end: leave it out"):
        mossp.solve(problem, np.zeros(n), method="mossp-r", polish=True)


# Far from the answer ----------------------------------------------------------------------------


def rows_of(n=30, N=300, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, n)) @ (np.eye(n) + 0.9)  # strongly correlated columns
    X = X / X.std(axis=0)
    return X, np.where(X @ np.r_[np.ones(3), np.zeros(n - 3)] + rng.normal(size=N) > 0, 1.0, -1.0)


@pytest.mark.parametrize("lam", [0.1, 1e-2, 1e-4])
def test_a_convex_problem_is_solved_at_once(lam):
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(lam))
    result = mossp.solve(problem, np.zeros(30))
    assert result.success and result.steps == 0 and "Polished" in result.message
    assert mossp.stationarity(problem, result.x) < 1e-10


def test_without_the_concave_part_there_is_a_second_start():
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.MCP(0.05, 3.0))
    convex = mossp.solve(mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(0.05)), np.zeros(30))
    from_there = mossp.solve(problem, convex, method="sqp-dc", steps=1, polish=True)
    result = mossp.solve(problem, np.zeros(30))
    assert result.success and result.fun <= from_there.fun + 1e-12


def test_a_signal_while_polishing_is_not_lost(monkeypatch):
    attempt = Polishing.attempt

    def interrupted(self, *given, **settings):
        signal.raise_signal(signal.SIGINT)
        return attempt(self, *given, **settings)

    monkeypatch.setattr(Polishing, "attempt", interrupted)
    X, y = rows_of()
    result = mossp.solve(mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1(0.1)), np.zeros(30))
    assert result.status is mossp.Status.INTERRUPTED
    estimators = pytest.importorskip("mossp.sklearn", reason="scikit-learn is optional")
    with pytest.raises(KeyboardInterrupt):
        estimators.MoSSPClassifier(lam=0.1).fit(X, y)


def test_a_resumed_run_keeps_the_answer_of_the_further_starts(tmp_path):
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.MCP(0.05, 3.0))
    whole = mossp.solve(problem, np.zeros(30))
    path, calls = tmp_path / "run.ckpt", []
    stopped = mossp.solve(
        problem, np.zeros(30), checkpoint=path, callback=lambda p: calls.append(p) or p.step > 0
    )
    assert stopped.status is mossp.Status.STOPPED
    resumed = mossp.solve(problem, np.zeros(30), checkpoint=path)
    assert resumed.success and resumed.fun == pytest.approx(whole.fun, rel=1e-12)


# What it may cost --------------------------------------------------------------------------------


def valley(x):
    """A narrow curved valley, in which Newton's method from afar takes many short steps."""
    return jnp.sum(10 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


AFAR = np.array([-1.5, 2.0, -1.0, 1.5])


def test_a_budget_in_samples_ends_it():
    oracles = mossp.Problem(valley).oracles(AFAR)
    whole = polish(oracles, AFAR, TOL)
    cost = whole.gradients + 2 * whole.products
    assert whole.residual <= TOL and not whole.ended
    for samples in (20, cost // 3, cost - 20):
        found = polish(oracles, AFAR, TOL, budget=Budget(samples=samples))
        assert found.gradients + 2 * found.products <= samples
        assert found.ended == "the gradients were used up" and found.residual > TOL
        assert found.value <= float(valley(AFAR))


def test_what_others_have_spent_counts():
    oracles = mossp.Problem(valley).oracles(AFAR)
    found = polish(oracles, AFAR, TOL, budget=Budget(samples=1000), before=980)
    assert found.gradients + 2 * found.products <= 20


def test_no_time_is_left():
    oracles = mossp.Problem(valley).oracles(AFAR)
    found = polish(oracles, AFAR, TOL, budget=Budget(seconds=0.0))
    assert found.ended == "the time was used up" and found.steps == 0
    assert np.array_equal(found.witness.x, AFAR)


def test_an_attempt_that_does_not_pay_is_given_up():
    oracles = mossp.Problem(valley).oracles(AFAR)
    found = polish(oracles, AFAR, TOL, patience=30)
    assert "did not fall for what it cost" in found.ended and found.residual > TOL
    near = polish(oracles, np.ones(4) + 1e-3, TOL, patience=30)  # falls by more with every step
    assert near.residual <= TOL and near.gradients + 2 * near.products > 30


def test_a_large_loss_is_polished_to_what_rounding_leaves():
    def large(x):
        return 1e7 * valley(x)

    oracles = mossp.Problem(large, equality=lambda x: x @ x - 2.0).oracles(AFAR)
    found = polish(oracles, np.full(4, np.sqrt(0.5)), TOL, last=True)
    assert found.residual <= TOL
    at, s = found.witness, np.linalg.norm(jax.grad(large)(found.witness.x))
    u = np.asarray(jax.grad(large)(at.x)) + 2 * at.lam[0] * at.x
    assert np.linalg.norm(u) <= 1e-10 * max(1.0, s)


def test_the_callback_goes_on_while_polishing(monkeypatch):
    monkeypatch.setattr(importlib.import_module("mossp.solving.solve"), "REPORT_SECONDS", 0.0)
    seen = []
    given = {"method": "sqp-dc", "polish": True, "tol": 1e-10, "steps": 1}
    result = mossp.solve(mossp.Problem(valley), AFAR, callback=seen.append, **given)
    polishing = [p for p in seen if p.doing == "polishing"]
    assert len(polishing) >= 5 and all(p.step == 1 for p in polishing)
    assert np.array_equal(polishing[-1].x[0], result.x)
    assert polishing[-1].objective[0] == pytest.approx(result.fun, abs=1e-12)
    times = [p.seconds for p in seen]
    assert times == sorted(times) and times[-1] <= result.seconds

    def stop(progress):
        return progress.doing == "polishing"

    stopped = mossp.solve(mossp.Problem(valley), AFAR, callback=stop, **given)
    assert stopped.status is mossp.Status.STOPPED and not stopped.success
    assert stopped.gradients < result.gradients and "not polished" not in stopped.message


def test_a_certified_candidate_is_returned_though_no_replica_was_polished():
    X, y = rows_of()
    problem = mossp.Problem(mossp.losses.logistic, (X, y), mossp.MCP(0.05, 3.0))
    whole = mossp.solve(problem, np.zeros(30))
    stopped = mossp.solve(problem, np.zeros(30), callback=lambda progress: True)
    assert stopped.status is mossp.Status.STOPPED
    assert mossp.stationarity(problem, stopped.x) <= 1e-10
    assert stopped.certificate.is_kkt(1e-10) and stopped.fun <= whole.fun + 0.05
    assert "convex part" in stopped.message and "not polished" not in stopped.message


def test_few_entries_of_many_take_few_columns():
    """Of 5,000 variables with a small support, no 5,000 x 5,000 matrix is made."""
    size = 5000
    target = np.where(np.arange(size) < 3, 2.0, 0.1)
    problem = mossp.Problem(lambda x: 0.5 * jnp.sum((x - target) ** 2), regularizer=mossp.L1(0.5))
    oracles = problem.oracles(np.zeros(size))
    polisher = Polisher(oracles, np.zeros(size))
    _, end, _ = polisher.run(np.where(np.arange(size) < 3, 1.0, 0.0), TOL, True)
    np.testing.assert_allclose(end.x[:3], 1.5)
    assert not end.x[3:].any() and polisher.formed[2].shape[1] <= 64
