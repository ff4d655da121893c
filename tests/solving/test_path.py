"""Regularisation paths: order, warm starts, one program, wrappers, refusals, text and figures.

With X'X = N I, least squares with lam |x|_1 is soft thresholding of t = X'y / N; on the unit
sphere it is the same, scaled to length 1.
"""

from __future__ import annotations

import functools
import importlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp import losses
from mossp.regularizers.strength import strengths_in, with_strength
from mossp.solving.path import with_regularizer
from mossp.solving.solve import solve_next
from tests.compilations import compilations
from tests.problems import shrink, sphere

pytestmark = pytest.mark.slow


N, n = 64, 6
rng = np.random.default_rng(4)
X = np.linalg.qr(rng.normal(size=(N, n)))[0] * np.sqrt(N)
Y = X @ np.array([2.0, -1.5, 0.9, 0.0, 0.3, 0.0]) + 0.1 * rng.normal(size=N)
T = X.T @ Y / N
LAMS = [0.5, 3.0, 0.05, 1.2]  # neither rising nor falling; 3 leaves nothing


def posed(reg=None, **changes):
    given = {"loss": losses.squared, "data": (X, Y), "regularizer": reg or mossp.L1(1.0)}
    return mossp.Problem(**{**given, **changes})


@functools.cache
def found():
    return mossp.path(posed(), LAMS)


@functools.cache
def unfinished():
    """One step on columns of different lengths, not polished: no certificate holds."""
    problem = posed(data=(X * np.linspace(0.5, 2, n), Y))
    return mossp.path(problem, LAMS, np.full(n, 5.0), steps=1, polish=False)


# Answers --------------------------------------------------------------------------------------


def test_the_path_is_the_closed_form_in_the_order_given():
    p = found()
    assert isinstance(p, mossp.Path) and p.lams.tolist() == LAMS and p.success
    for lam, r in zip(LAMS, p.results, strict=True):
        assert r.success and r.tol == 1e-10, r.message
        np.testing.assert_allclose(r.x, shrink(T, lam), atol=1e-9)
        assert np.array_equal(r.x != 0, shrink(T, lam) != 0)
        F = 0.5 * np.mean((X @ r.x - Y) ** 2) + lam * np.abs(r.x).sum()
        assert r.fun == pytest.approx(F, abs=1e-12)


def test_each_is_started_from_the_next_stronger_one(monkeypatch):
    module = importlib.import_module("mossp.solving.path")  # `mossp.path` is the function
    given = []

    def solve(problem, x, **settings):
        result = mossp.solve(problem, x, **settings)
        given.append((float(problem.regularizer.lam), x, result))
        return result

    def following(problem, x, arguments):
        result = solve_next(problem, x, arguments)
        given.append((float(problem.regularizer.lam), x, result))
        return result

    monkeypatch.setattr(module, "solve", solve)
    monkeypatch.setattr(module, "solve_next", following)
    p = mossp.path(posed(), LAMS, seed=3)
    assert [lam for lam, _, _ in given] == sorted(LAMS, reverse=True)
    assert np.array_equal(given[0][1], np.zeros(n))
    for (_, _, before), (_, start, _) in itertools.pairwise(given):
        assert start is before
    assert {r.settings["seed"] for r in p.results} == {3}


def test_the_path_equals_separate_solves():
    for lam, F in zip(LAMS, found().funs, strict=True):
        alone = mossp.solve(posed(mossp.L1(lam)), np.zeros(n))
        assert alone.success and abs(F - alone.fun) <= 1e-9


def test_what_a_path_tells():
    p = found()
    assert p.xs.shape == (4, n) and p.supports.shape == (4, n) and p.supports.dtype == bool
    assert np.array_equal(p.xs, [r.x for r in p.results])
    assert np.array_equal(p.supports, p.xs != 0)
    assert p.nonzeros.tolist() == [int((shrink(T, lam) != 0).sum()) for lam in LAMS]
    assert p.funs.tolist() == [r.fun for r in p.results]
    assert p.violations.tolist() == [0.0] * 4
    assert p.certificates == [r.certificate for r in p.results]
    assert all(c.is_kkt(1e-10) for c in p.certificates)


def test_success_is_that_of_all():
    p = unfinished()
    assert not p.success and not all(r.success for r in p.results)
    mixed = mossp.Path(np.array([1.0, 2.0]), [found().results[0], p.results[0]])
    assert found().results[0].success and not p.results[0].success and not mixed.success


def test_equal_strengths_and_a_single_one():
    p = mossp.path(posed(), np.array([0.5, 0.5]))
    np.testing.assert_allclose(p.xs[0], p.xs[1], atol=1e-10)
    assert mossp.path(posed(), (0.5,)).success


def test_a_strength_of_zero_is_least_squares():
    p = mossp.path(posed(), [0, 1])
    assert p.success
    np.testing.assert_allclose(p.xs[0], T, atol=1e-9)


def test_the_problem_is_left_alone():
    problem, lams = posed(mossp.L1(0.7)), np.array(LAMS)
    x0 = np.zeros(n)
    mossp.path(problem, lams, x0)
    assert float(problem.regularizer.lam) == 0.7 and lams.tolist() == LAMS and not x0.any()
    alone = mossp.solve(problem, x0)
    np.testing.assert_allclose(alone.x, shrink(T, 0.7), atol=1e-9)


def test_all_strengths_share_the_rows():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(50, 4, 0.5, "csr", random_state=0)
    problem = mossp.Problem(losses.squared, (X, rng.normal(size=50)), mossp.L1(1.0))
    weaker = with_regularizer(problem, mossp.L1(0.1))
    assert weaker.source() is problem.source() and float(weaker.regularizer.lam) == 0.1


def test_later_strengths_are_what_a_solve_from_the_answer_before_is():
    """Though their arguments are not checked again, and margins and the Hessian are shared."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 5))
    b = rng.integers(3, size=300)
    problem = mossp.Problem(losses.softmax, (X, b), mossp.L1(1.0))
    p = mossp.path(problem, [0.05, 0.02, 0.01], np.zeros((5, 3)), seed=4)
    x = np.zeros((5, 3))
    for lam, found in zip(p.lams, p.results, strict=True):
        x = alone = mossp.solve(with_regularizer(problem, mossp.L1(lam)), x, seed=4)
        assert found.success and found.settings == alone.settings and found.fun == alone.fun
        assert np.array_equal(found.x, alone.x)


def test_another_kind_of_regulariser_on_the_way_is_solved_as_such():
    problem = mossp.Problem(losses.squared, (X, Y), mossp.L1(1.0))
    make = lambda lam: mossp.L1(lam) if lam > 1 else mossp.PlusRidge(mossp.L1(lam), 0.5)  # noqa: E731
    p = mossp.path(problem, [2.0, 1.5, 0.01, 0.005], regularizer=make)
    assert p.success
    for lam, r in zip(p.lams, p.results, strict=True):
        alone = mossp.solve(with_regularizer(problem, make(lam)), np.zeros(n))
        assert r.fun == pytest.approx(alone.fun, rel=1e-13)
        np.testing.assert_allclose(r.x, alone.x, atol=1e-9)


def test_constraints_along_the_path():
    """On the sphere, and with an order that goes from weak to strong."""
    lams = [0.1, 0.4, 1.0]
    p = mossp.path(posed(equality=sphere), lams, np.full(n, 0.4))
    assert p.success and (p.violations <= 1e-10).all()
    for lam, x in zip(lams, p.xs, strict=True):
        s = shrink(T, lam)
        np.testing.assert_allclose(x, s / np.linalg.norm(s), atol=1e-8)


def test_one_program_serves_all_strengths():
    """At most one more is compiled later: the safe steps of polishing, when first needed."""
    mossp.path(posed(), [2.5, 0.3])
    compilations.clear()
    p = mossp.path(posed(mossp.L1(9)), np.geomspace(2.0, 0.01, 7))
    assert p.success and len(set(p.nonzeros.tolist())) > 3
    mossp.path(posed(mossp.L1(0.5)), np.geomspace(0.02, 1.9, 5), seed=1)
    assert len(compilations) <= 1


# Wrappers -------------------------------------------------------------------------------------

WEIGHTS = np.array([1.0, 0.0, 2.0, 1.0, 0.5, 1.0])
GROUPS = [0, 0, 1, 1, 2, 2]


def group_soft(t, lam):
    pairs = t.reshape(3, 2)
    size = np.linalg.norm(pairs, axis=1, keepdims=True)
    return (pairs * np.maximum(1 - lam / size, 0)).ravel()


def wrapped(lam):
    return mossp.Nonnegative(mossp.Weighted(mossp.L1(lam), WEIGHTS))


def objective(reg, x):
    return 0.5 * np.mean((X @ x - Y) ** 2) + float(reg(x))


def test_the_strength_inside_two_wrappers():
    p = mossp.path(posed(wrapped(1.0)), [0.2, 1.0])
    assert p.success
    for lam, x, F in zip([0.2, 1.0], p.xs, p.funs, strict=True):
        np.testing.assert_allclose(x, np.maximum(T - lam * WEIGHTS, 0), atol=1e-8)
        assert abs(objective(wrapped(lam), x) - F) <= 1e-10


def test_the_strength_inside_a_group():
    """Pairs are zero together; l1 of their lengths is soft thresholding of the lengths."""
    p = mossp.path(posed(mossp.Group(mossp.L1(1.0), GROUPS)), [0.2, 1.0])
    assert p.success
    for lam, x, F in zip([0.2, 1.0], p.xs, p.funs, strict=True):
        reg, best = mossp.Group(mossp.L1(lam), GROUPS), group_soft(T, lam)
        assert abs(objective(reg, x) - F) <= 1e-10 and F - objective(reg, best) <= 1e-9


@pytest.mark.parametrize(
    "make",
    [
        lambda: mossp.Nonnegative(mossp.L1(1.0)),
        lambda: mossp.Weighted(mossp.L1(1.0), WEIGHTS),
        lambda: mossp.Group(mossp.L1MinusL2(1.0), GROUPS),
        lambda: mossp.Nonnegative(mossp.Weighted(mossp.MCP(1.0, 3.0), WEIGHTS)),
        lambda: mossp.Ball(mossp.L1MinusL2(1.0), 5.0),
        lambda: mossp.Box(mossp.SCAD(1.0), -1.0, 1.0),
        lambda: mossp.Nonnegative(mossp.Group(mossp.CappedL1(1.0, 2.0), GROUPS)),
        lambda: mossp.Blocks({"w": mossp.Weighted(mossp.LogSum(1.0), np.ones(2))}),
    ],
)
def test_the_strength_is_found_however_deep(make):
    reg = with_strength(make(), 0.25)
    assert type(reg) is type(make()) and len(strengths_in(reg)) == 1
    inner = reg.blocks["w"] if isinstance(reg, mossp.Blocks) else reg
    while hasattr(inner, "reg"):
        inner = inner.reg
    assert float(inner.lam) == 0.25
    leaves, before = jax.tree.leaves(reg), jax.tree.leaves(make())
    assert sum(not np.array_equal(a, b) for a, b in zip(leaves, before, strict=True)) == 1


# Pytrees, several strengths, none -------------------------------------------------------------


def tree_loss(x, batch):
    return losses.squared(jnp.concatenate([x["v"], x["w"]]), batch)


TREE = {"v": np.zeros(2), "w": np.zeros(4)}


def blocks(lam):
    return mossp.Blocks({"v": mossp.L1(2 * lam), "w": mossp.L1(lam)})


def test_pytrees_and_two_strengths_in_one():
    problem = posed(blocks(1.0), loss=tree_loss)
    with pytest.raises(ValueError, match=r"Blocks has 2 values lam: say .* regularizer=lambda lam"):
        mossp.path(problem, [0.2, 1.0], TREE)
    p = mossp.path(problem, [0.2, 1.0], TREE, regularizer=blocks)
    assert p.success and set(p.xs) == {"v", "w"}
    assert p.xs["v"].shape == (2, 2) and p.xs["w"].shape == (2, 4) and p.supports.shape == (2, n)
    for i, lam in enumerate([0.2, 1.0]):
        np.testing.assert_allclose(p.xs["v"][i], shrink(T[:2], 2 * lam), atol=1e-9)
        np.testing.assert_allclose(p.xs["w"][i], shrink(T[2:], lam), atol=1e-9)
        both = np.concatenate([p.xs["v"][i], p.xs["w"][i]])
        assert np.array_equal(p.supports[i], both != 0) and p.nonzeros[i] == (both != 0).sum()
    assert len(str(p).splitlines()) == 3


def test_no_strength_at_all():
    with pytest.raises(ValueError, match=r"Zero has no lam: say what a strength means"):
        mossp.path(posed(mossp.Zero()), [0.5])
    p = mossp.path(posed(mossp.Zero()), [0.5], regularizer=mossp.L1)
    assert p.success
    np.testing.assert_allclose(p.xs[0], shrink(T, 0.5), atol=1e-9)


# Starts ---------------------------------------------------------------------------------------


def test_a_start_that_is_given():
    p = mossp.path(posed(), LAMS, np.full(n, -3.0))
    assert p.success
    np.testing.assert_allclose(p.xs, found().xs, atol=1e-9)
    warm = mossp.path(posed(), [0.5], found().results[0])
    np.testing.assert_allclose(warm.xs[0], shrink(T, 0.5), atol=1e-9)


def test_sparse_data_without_a_start():
    p = mossp.path(posed(data=(scipy.sparse.csr_array(X), Y)), LAMS)
    assert p.success
    np.testing.assert_allclose(p.xs, found().xs, atol=1e-8)


@pytest.mark.parametrize(
    "problem",
    [
        lambda: mossp.Problem(lambda x: x @ x, None, mossp.L1(1.0)),
        lambda: mossp.Problem(lambda x, y: jnp.mean((x[0] - y) ** 2), Y, mossp.L1(1.0)),
        lambda: posed(data=mossp.Stream([(X, Y)])),
        lambda: posed(data=mossp.Sampler(lambda key, size: (jnp.ones((size, n)), jnp.ones(size)))),
    ],
)
def test_a_start_that_cannot_be_told(problem):
    with pytest.raises(ValueError, match=r"The number of variables cannot be told .* give x0"):
        mossp.path(problem(), [0.5])


# Wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lams", [[], [np.nan], [0.1, np.inf], 0.5, [[0.1, 0.2]], None, [None], "0.5", ()]
)
def test_wrong_strengths_are_refused(lams):
    with pytest.raises(ValueError, match="lams must be a list of numbers"):
        mossp.path(posed(), lams)


@pytest.mark.parametrize("lams", ["abc", ["strong", "weak"], [0.1, "x"], [[0.1], [0.2, 0.3]]])
def test_strengths_that_are_no_numbers_get_a_sentence(lams):
    with pytest.raises((TypeError, ValueError), match="lams must be a list of numbers"):
        mossp.path(posed(), lams)


@pytest.mark.parametrize("make", [mossp.L1, wrapped])
def test_negative_strengths_are_refused(make):
    """As mossp.L1(-0.1) itself is."""
    with pytest.raises(ValueError, match=r"lam >= 0|lams must be"):
        mossp.path(posed(make(1.0)), [0.5, -0.1], steps=2)


def test_a_regulariser_of_the_callers_checks_its_own_strength():
    with pytest.raises(ValueError, match="numbers >= 0"):
        mossp.path(posed(), [-0.1], regularizer=mossp.L1)


def test_only_a_problem_has_a_path():
    with pytest.raises(TypeError, match=r"path needs a mossp\.Problem, but int was given"):
        mossp.path(3, [0.1])


def test_settings_are_those_of_solve():
    with pytest.raises(ValueError, match="There is no method 'sqp'"):
        mossp.path(posed(), [0.5], method="sqp")
    with pytest.raises(TypeError, match="speed"):
        mossp.path(posed(), [0.5], speed=3)


# Text and figures -----------------------------------------------------------------------------


def test_the_table():
    head, *rows = str(found()).splitlines()
    assert head.split() == ["lam", "nonzeros", "objective", "violation", "worst"]
    assert [float(row.split()[0]) for row in rows] == LAMS
    assert [int(row.split()[1]) for row in rows] == found().nonzeros.tolist()
    assert not any("BUDGET" in row for row in rows)
    marked = str(unfinished()).splitlines()[1:]
    for row, r in zip(marked, unfinished().results, strict=True):
        assert row.endswith(r.status.name) == (not r.success)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def dotted(ax):
    return sorted(float(line.get_xdata()[0]) for line in ax.lines if line.get_linestyle() == ":")


def test_a_figure(pyplot):
    figure = found().plot()
    entries, counts = figure.axes
    assert len(entries.lines) == n and entries.get_ylabel() == "entries of x"
    assert counts.get_ylabel() == "nonzeros" and counts.get_xlabel() == "lam"
    assert entries.get_xscale() == "log" and not dotted(entries) and not dotted(counts)
    assert sorted(counts.lines[0].get_ydata()) == sorted(found().nonzeros)


def test_curves_run_along_lam(pyplot):
    """Strengths in any order are joined from one to the next, not back and forth."""
    for ax in found().plot().axes:
        for line in ax.lines:
            steps = np.diff(np.asarray(line.get_xdata(), float))
            assert (steps > 0).all() or (steps < 0).all()


def test_failed_strengths_are_marked(pyplot):
    p = unfinished()
    failed = sorted(float(lam) for lam, r in zip(p.lams, p.results, strict=True) if not r.success)
    assert failed
    for ax in p.plot().axes:
        assert dotted(ax) == failed and "the certificate does not hold" in ax.get_xlabel()


def test_a_figure_on_the_callers_axes(pyplot):
    figure, ax = pyplot.subplots()
    assert found().plot(ax) is figure and len(figure.axes) == 1 and len(ax.lines) == n
    figure, axes = pyplot.subplots(1, 2)
    assert found().plot(axes) is figure and axes[1].get_ylabel() == "nonzeros"
    with pytest.raises(ValueError, match="2 Axes, but 3 were given"):
        found().plot(pyplot.subplots(1, 3)[1])
    with pytest.raises(TypeError, match="matplotlib Axes"):
        found().plot("here")


def test_a_figure_in_a_file(pyplot, tmp_path):
    open_before = pyplot.get_fignums()
    found().plot(path=tmp_path / "path.png")
    assert (tmp_path / "path.png").stat().st_size > 1000
    assert pyplot.get_fignums() == open_before  # nothing is left for pyplot to show


def test_a_strength_of_zero_has_no_logarithm(pyplot):
    two = [found().results[0], found().results[1]]
    assert mossp.Path(np.array([0.0, 3.0]), two).plot().axes[0].get_xscale() == "linear"
