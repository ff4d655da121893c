"""Exact stationarity of every regulariser, against minimisations from the definitions."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
import scipy.optimize

import mossp
from tests.certificates.points import CENTRE, LAM, ZEROS, away, line, pair, tree_away
from tests.problems import n

WEIGHTS = np.array([1.0, 0.0, 2.0, 0.5, 1.0, 3.0])
GROUPS = [0, 0, 1, 1, 2, 2]


def l1_box(x, slope):
    s = np.broadcast_to(slope, x.shape)
    return np.where(x == 0, -s, s * np.sign(x)), np.where(x == 0, s, s * np.sign(x))


def separable_g(x, derivative):
    """The box of dg for g = sum value(|x_i|): (left, right) derivatives at |x_i|."""
    low, high = np.array([derivative(a) for a in np.abs(x)]).T
    sign = np.sign(x)
    ends = np.sort(np.stack([sign * low, sign * high]), axis=0)
    return ends[0], ends[1]


def top_k_vertices(x, k, lam):
    """Gradients of lam (sum of the k largest |x_i|) from every way to break ties and signs."""
    order = np.abs(x)
    vertices = []
    for chosen in itertools.combinations(range(len(x)), k):
        rest = [i for i in range(len(x)) if i not in chosen]
        if rest and min(order[list(chosen)]) < max(order[rest]) - 1e-12:
            continue
        free = [i for i in chosen if x[i] == 0]
        for signs in itertools.product([-1.0, 1.0], repeat=len(free)):
            s = np.zeros(len(x))
            s[list(chosen)] = lam * np.sign(x[list(chosen)])
            s[free] = lam * np.array(signs)
            vertices.append(s)
    return np.array(vertices)


def shortest(gradient, J, sign_free, h_set, g_set, normals=None):
    """min || gradient + J'q + s_h + normals t - s_g ||, by SLSQP from the definition of the sets.

    h_set and g_set are ("box", low, high), ("hull", vertices) or ("ball", columns, radius);
    q >= 0 where not sign_free; t >= 0 are multipliers of a normal cone.
    """
    parts, bounds, constraints, position = [], [], [], 0

    def add(columns, limits):
        nonlocal position
        parts.append(columns)
        bounds.extend(limits)
        position += columns.shape[1]
        return slice(position - columns.shape[1], position)

    add(J.T, [(None, None) if free else (0, None) for free in sign_free])
    if normals is not None:
        add(normals, [(0, None)] * normals.shape[1])
    for sign, (kind, *data) in ((1, h_set), (-1, g_set)):
        if kind == "box":
            add(sign * np.eye(len(gradient)), list(zip(*data, strict=True)))
        elif kind == "hull":
            at = add(sign * np.array(data[0]).T, [(0, None)] * len(data[0]))
            constraints.append((at, None))
        else:
            columns, radius = data
            at = add(sign * columns, [(None, None)] * columns.shape[1])
            constraints.append((at, radius))

    def condition(at, radius):
        """Coefficients at `at` sum to 1, or, with a radius, lie in a ball."""
        unit = np.zeros(position)
        unit[at] = 1.0
        if radius is None:
            return {"type": "eq", "fun": lambda t: unit @ t - 1, "jac": lambda t: unit}
        inside = lambda t: radius**2 - (unit * t) @ t  # noqa: E731
        return {"type": "ineq", "fun": inside, "jac": lambda t: -2 * unit * t}

    conditions = [condition(*each) for each in constraints]
    M = np.concatenate(parts, axis=1)
    start = np.array([np.clip(0.1, lo or 0.0, np.inf if hi is None else hi) for lo, hi in bounds])
    best = np.inf
    for scale in (1.0, 0.3):
        found = scipy.optimize.minimize(
            lambda t: 0.5 * np.sum((gradient + M @ t) ** 2), scale * start, bounds=bounds,
            jac=lambda t: M.T @ (gradient + M @ t), constraints=conditions, method="SLSQP",
            options={"ftol": 1e-18, "maxiter": 1000},
        )  # fmt: skip
        best = min(best, np.linalg.norm(gradient + M @ found.x))
    return best


TIES = np.array([0.5, -0.5, 0.0, 1.0, -1.0, 0.5])
POINTS = {"zeros": ZEROS, "ties": TIES, "origin": np.zeros(n), "dense": 0.5 + 0.7 * CENTRE}

THETA, GAMMA, SCAD_A, T1 = 0.5, 2.0, 3.0, 1.0
SEPARABLE = {
    "Zero": (mossp.Zero(), 0.0, lambda a: (0.0, 0.0)),
    "L1": (mossp.L1(LAM), LAM, lambda a: (0.0, 0.0)),
    "CappedL1": (
        mossp.CappedL1(LAM, THETA), LAM,
        lambda a: (LAM * (a > THETA), LAM * (a >= THETA)),
    ),
    "MCP": (mossp.MCP(LAM, GAMMA), LAM, lambda a: (min(a / GAMMA, LAM),) * 2),
    "SCAD": (
        mossp.SCAD(LAM, SCAD_A), LAM,
        lambda a: (float(np.clip((a - LAM) / (SCAD_A - 1), 0, LAM)),) * 2,
    ),
    "LogSum": (
        mossp.LogSum(LAM, THETA), LAM / THETA, lambda a: (LAM / THETA - LAM / (THETA + a),) * 2,
    ),
    "TransformedL1": (
        mossp.TransformedL1(LAM, T1), 2 * LAM,
        lambda a: (2 * LAM - LAM * (T1 + 1) * T1 / (T1 + a) ** 2,) * 2,
    ),
}  # fmt: skip


def sets_of(name, x):
    """(regulariser, dh(x), dg(x), normals of the wrapper's set at x) from the definitions."""
    if name in SEPARABLE:
        reg, slope, derivative = SEPARABLE[name]
        return reg, ("box", *l1_box(x, slope)), ("box", *separable_g(x, derivative)), None
    h = ("box", *l1_box(x, LAM))
    if name == "L1MinusL2":
        size = np.linalg.norm(x)
        g = ("ball", np.eye(n), LAM) if size == 0 else ("hull", [LAM * x / size])
        return mossp.L1MinusL2(LAM), h, g, None
    if name == "TruncatedL1":
        return mossp.TruncatedL1(LAM, 2), h, ("hull", top_k_vertices(x, 2, LAM)), None
    if name == "TruncatedL1MinusL2":
        # At points with a single way to choose the k largest and a rest that is not zero, or ties:
        # the hull over the ways.
        vertices = []
        for head in top_k_vertices(x, 1, 1.0):
            rest = np.where(head != 0, 0.0, x)
            vertices.append(LAM * (head + rest / max(np.linalg.norm(rest), 1e-300)))
        return mossp.TruncatedL1MinusL2(LAM, 1), h, ("hull", vertices), None
    if name == "Weighted L1":
        reg = mossp.Weighted(mossp.L1(LAM), WEIGHTS)
        return reg, ("box", *l1_box(x, LAM * WEIGHTS)), ("box", 0 * x, 0 * x), None
    if name == "Weighted MCP":
        derivative = SEPARABLE["MCP"][2]
        low, high = separable_g(x, derivative)
        reg = mossp.Weighted(mossp.MCP(LAM, GAMMA), WEIGHTS)
        return reg, ("box", *l1_box(x, LAM * WEIGHTS)), ("box", WEIGHTS * low, WEIGHTS * high), None
    if name == "Weighted L1MinusL2":
        size = np.linalg.norm(WEIGHTS * x)
        if size == 0:
            g = ("ball", np.diag(WEIGHTS), LAM)
        else:
            g = ("hull", [LAM * WEIGHTS**2 * x / size])
        reg = mossp.Weighted(mossp.L1MinusL2(LAM), WEIGHTS)
        return reg, ("box", *l1_box(x, LAM * WEIGHTS)), g, None
    if name == "Weighted TruncatedL1":
        mask = np.array([1.0, 0, 1, 1, 0, 1])
        vertices = top_k_vertices((mask * x)[mask == 1], 2, LAM)
        full = np.zeros((len(vertices), n))
        full[:, mask == 1] = vertices
        reg = mossp.Weighted(mossp.TruncatedL1(LAM, 2), mask)
        return reg, ("box", *l1_box(x, LAM * mask)), ("hull", full), None
    if name == "Nonnegative":
        x = np.abs(x)
        low, high = l1_box(x, LAM)
        low[x == 0] = -np.inf
        size = np.linalg.norm(x)
        g = ("ball", np.eye(n), LAM) if size == 0 else ("hull", [LAM * x / size])
        return mossp.Nonnegative(mossp.L1MinusL2(LAM)), ("box", low, high), g, None
    if name == "Box":
        low, high = l1_box(x, LAM)
        low[x <= -0.5], high[x >= 0.5] = -np.inf, np.inf
        g = ("box", *separable_g(x, SEPARABLE["CappedL1"][2]))
        return mossp.Box(mossp.CappedL1(LAM, THETA), -0.5, 0.5), ("box", low, high), g, None
    if name == "Ball":
        size = np.linalg.norm(x)
        reg = mossp.Ball(mossp.MCP(LAM, GAMMA), size or 1.0)
        g = ("box", *separable_g(x, SEPARABLE["MCP"][2]))
        return reg, h, g, x[:, None] if size else None
    raise KeyError(name)


def moved(name, x):
    """x inside the domain of the regulariser."""
    if name == "Nonnegative":
        return np.abs(x)
    return np.clip(x, -0.5, 0.5) if name == "Box" else x


NAMES = [
    *SEPARABLE, "L1MinusL2", "TruncatedL1", "TruncatedL1MinusL2", "Weighted L1", "Weighted MCP",
    "Weighted L1MinusL2", "Weighted TruncatedL1", "Nonnegative", "Box", "Ball",
]  # fmt: skip
CONSTRAINTS = {
    "none": (None, None),
    "line": (line, lambda x: (np.ones((1, n)), [True])),
    "pair": (
        pair,
        lambda x: (np.array([[1.0, 1, 0, 0, 0, 0], [0, 0, 1, -1, 0, 0]]), [False, False]),
    ),
}


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_stationarity_against_an_independent_minimisation(name, point, constraint):
    x = moved(name, POINTS[point])
    if name == "TruncatedL1MinusL2" and np.count_nonzero(x) <= 1:
        pytest.skip("dg is no hull of gradients there; see the random directions below")
    reg, h_set, g_set, normals = sets_of(name, POINTS[point] if name == "Nonnegative" else x)
    function, jacobian = CONSTRAINTS[constraint]
    kind = {} if function is None else {"equality" if function is line else "inequality": function}
    J, free = (np.zeros((0, n)), []) if jacobian is None else jacobian(x)
    if constraint == "pair":  # x[0] + x[1] <= 0.5 and x[2] <= x[3] count where they are active
        c = np.array([x[0] + x[1] - 0.5, x[2] - x[3]])
        J, free = J[c >= -1e-6], [False] * int((c >= -1e-6).sum())
    ours = mossp.stationarity(mossp.Problem(loss=away, regularizer=reg, **kind), x)
    wanted = shortest(x - CENTRE, J, free, h_set, g_set, normals)
    assert ours == pytest.approx(wanted, abs=2e-6)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("inner", ["L1", "MCP", "L1MinusL2"])
def test_stationarity_of_groups(inner, point):
    """In the norms of the groups, the subdifferential is that of the inner regulariser."""
    x = POINTS[point]
    base = sets_of(inner, np.ones(3))[0]
    radii = np.linalg.norm(x.reshape(3, 2), axis=1)
    total = np.linalg.norm(radii)
    parts = []
    for j in range(3):
        v, r = x[2 * j : 2 * j + 2], radii[j]
        g = v - CENTRE[2 * j : 2 * j + 2]
        if r == 0:  # |s_h| <= LAM, and dg is 0 there (MCP) or, at the origin, a ball of its own
            parts.append(max(np.linalg.norm(g) - LAM, 0))
            continue
        slope = {"L1": 0.0, "MCP": min(r / GAMMA, LAM), "L1MinusL2": LAM * r / total}[inner]
        parts.append(np.linalg.norm(g + (LAM - slope) * v / r))
    wanted = np.linalg.norm(parts)
    if inner == "L1MinusL2" and total == 0:  # s_h - s_g: group balls minus one ball
        wanted = max(wanted - LAM, 0)
    problem = mossp.Problem(loss=away, regularizer=mossp.Group(base, GROUPS))
    assert mossp.stationarity(problem, x) == pytest.approx(wanted, abs=1e-6)


def test_stationarity_of_blocks():
    x = {"a": np.array([0.7, 0.0]), "b": np.array([[0.0, -1.2], [0.0, 0.2]])}
    v = np.concatenate([x["a"], x["b"].ravel()])
    reg = mossp.Blocks({"b": mossp.MCP(LAM, GAMMA)})
    slope = np.array([0, 0, LAM, LAM, LAM, LAM])
    low, high = separable_g(v, SEPARABLE["MCP"][2])
    mask = slope > 0
    wanted = shortest(
        v - CENTRE, np.zeros((0, n)), [], ("box", *l1_box(v, slope)),
        ("box", mask * low, mask * high),
    )  # fmt: skip
    ours = mossp.stationarity(mossp.Problem(loss=tree_away, regularizer=reg), x)
    assert ours == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("name", [*NAMES, "Group"])
@pytest.mark.parametrize("point", POINTS)
def test_no_direction_descends_faster_than_stationarity_says(name, point):
    """dist = max over |d| <= 1 of -(f'd + h'(x; d) + g'(x; -d)), by one-sided differences."""
    x = moved(name, POINTS[point])
    if name == "Group":
        reg = mossp.Group(mossp.CappedL1(LAM, 0.5), GROUPS)
    else:
        reg = sets_of(name, POINTS[point])[0]
        if name == "Ball":
            reg = sets_of(name, x)[0]
    ours = mossp.stationarity(mossp.Problem(loss=away, regularizer=reg), x)
    draw, t, h0, g0 = np.random.default_rng(0), 1e-6, float(reg.h(x)), float(reg.g(x))
    steepest = 0.0
    for _ in range(300):
        d = draw.normal(size=n) * (draw.random(n) < 0.7)
        d = d / max(np.linalg.norm(d), 1e-300)
        h1 = float(reg.h(x + t * d))
        if not np.isfinite(h1):
            continue
        rate = (x - CENTRE) @ d + (h1 - h0) / t + (float(reg.g(x - t * d)) - g0) / t
        steepest = max(steepest, -rate)
    assert steepest <= ours + 1e-4


SOLVED = {
    "lasso": (mossp.L1(LAM), np.sign(CENTRE) * np.maximum(np.abs(CENTRE) - LAM, 0)),
    "nonnegative": (mossp.Nonnegative(mossp.L1(LAM)), np.maximum(CENTRE - LAM, 0)),
    "box": (mossp.Box(mossp.Zero(), -0.2, 0.2), np.clip(CENTRE, -0.2, 0.2)),
    "ball": (mossp.Ball(mossp.Zero(), 1.0), CENTRE / np.linalg.norm(CENTRE)),
    "mcp": (
        mossp.MCP(LAM, GAMMA),
        np.where(
            np.abs(CENTRE) > GAMMA * LAM, CENTRE,
            np.sign(CENTRE) * np.maximum(np.abs(CENTRE) - LAM, 0) / (1 - 1 / GAMMA),
        ),
    ),
    "capped": (
        mossp.CappedL1(LAM, THETA),
        np.where(np.abs(CENTRE) > THETA + LAM / 2, CENTRE,
                 np.sign(CENTRE) * np.maximum(np.abs(CENTRE) - LAM, 0)),
    ),
    "truncated": (
        mossp.TruncatedL1(LAM, 2),
        np.where(np.abs(CENTRE) >= 0.8, CENTRE,
                 np.sign(CENTRE) * np.maximum(np.abs(CENTRE) - LAM, 0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOLVED)
def test_stationarity_vanishes_at_solutions(name):
    reg, x = SOLVED[name]
    problem = mossp.Problem(loss=away, regularizer=reg)
    assert mossp.stationarity(problem, x) < 1e-12
    assert mossp.stationarity(problem, x + 0.3) > 0.05


def test_stationarity_does_not_depend_on_the_callers_precision():
    problem = mossp.Problem(loss=away, regularizer=mossp.L1(LAM), equality=line)
    outside = mossp.stationarity(problem, ZEROS)
    with jax.enable_x64(True):
        assert mossp.stationarity(problem, ZEROS) == outside
    assert isinstance(outside, float)
