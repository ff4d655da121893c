"""tune: a point of the grid is the run it would be alone; one program; merits; bad grids."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import METHODS, losses
from mossp.methods import objection
from mossp.methods.penalty import ScaledPenalty
from mossp.schedules import Constant, Measured, Theorem
from tests.compilations import compilations
from tests.problems import bowl, cosines, sphere

pytestmark = pytest.mark.slow


# One shape, and grids of eight points, for nearly all tests, so that programs are shared.
N, n, BATCH, K = 40, 3, 4, 30
rng = np.random.default_rng(0)
X = rng.normal(size=(N, n))
y = X @ np.array([1.0, 0.0, -1.0]) + 0.1 * rng.normal(size=N)
START = np.array([0.8, 0.5, -0.2])
BASE = Constant(rho=2.0, mu=0.05, alpha=0.2)


NOISY = mossp.Problem(losses.squared, (X, y), mossp.L1MinusL2(0.05), equality=sphere)
# Linear with g = 0, so that every method that takes equalities takes it.
PLAIN = mossp.Problem(bowl, None, mossp.L1(0.1), equality=lambda x: jnp.sum(x) - 1.0)


def tune(problem=NOISY, x0=START, **settings):
    given = {"method": "mossp-r", "schedule": BASE, "steps": K, "batch_size": BATCH, "seed": 3}
    return mossp.tune(problem, x0, **{**given, **settings})


def alone(method, schedule, problem=NOISY, x0=START, **settings):
    given = {"steps": K, "batch_size": BATCH, "seed": 3}
    return mossp.solve(problem, x0, method=method, schedule=schedule, **{**given, **settings})


def combinations(grid):
    return [dict(zip(grid, v, strict=True)) for v in itertools.product(*grid.values())]


def merit_of(x):
    F = 0.5 * np.mean((X @ x - y) ** 2) + 0.05 * (np.abs(x).sum() - np.linalg.norm(x))
    return F + abs(x @ x - 1.0)


# A point of the grid is the run it would be alone ---------------------------------------------

THREE = {"mu": [0.05, 0.1], "rho": [1.0, 5.0], "eta": [0.02, 0.04]}
FOUR, TWO = [0.3, 0.5, 0.8, 1.0], {"rho": [1.0, 5.0]}
EIGHT = [0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0]
POLYAK = mossp.Polyak()


def constant(make):
    """(the method with some numbers, BASE with the others)."""

    def point(mu=0.05, rho=2.0, alpha=0.2, eta=None, **numbers):
        return make(**numbers), Constant(rho=rho, mu=mu, alpha=alpha, eta=eta)

    return point


spdc = constant(lambda inner=5: mossp.SPDC(momentum=POLYAK, inner=int(inner)))
salm = constant(lambda dual=1.0: mossp.SALM(momentum=POLYAK, dual=dual))
CASES = {  # the method, the grid, method and schedule of one of its points, how many differ
    "spdc-p": ("spdc-p", THREE, spdc, 8),
    "salm-p": ("salm-p", THREE, salm, 4),  # its inner steps have their own length
    "mossp-r": ("mossp-r", THREE, constant(mossp.MoSSP), 4),
    "smag": ("smag", THREE, constant(mossp.SMAG), 8),
    "inner": ("spdc-p", {"inner": [1, 2, 3, 5], **TWO}, spdc, 8),
    "dual": ("salm-p", {"dual": FOUR, **TWO}, salm, 8),
    "beta": ("mossp-r", {**TWO, "beta": FOUR}, constant(mossp.MoSSP), 8),
    "beta of smag": ("smag", {"beta": FOUR, **TWO}, constant(mossp.SMAG), 8),
    "alpha, not for equal shares": (
        "mossp-r", {"alpha": EIGHT[1:]}, constant(mossp.MoSSP), 7,
    ),
    "alpha of the estimator": (
        mossp.MoSSP(momentum=mossp.Polyak(0.1)), {"alpha": EIGHT},
        lambda alpha: (mossp.MoSSP(momentum=mossp.Polyak(alpha)), BASE), 8,
    ),
    "alpha inside of an estimator": (
        mossp.MoSSP(momentum=mossp.Truncated(mossp.Polyak(0.1), 10.0)), {"alpha": EIGHT},
        lambda alpha: (mossp.MoSSP(momentum=mossp.Truncated(mossp.Polyak(alpha), 10.0)), BASE), 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_point_is_the_run_it_would_be_alone(name):
    method, grid, make, different = CASES[name]
    points = combinations(grid)
    best = tune(method=method, grid=grid, schedule=make(**points[0])[1])
    found = np.array([alone(*make(**values)).x for values in points])
    np.testing.assert_allclose(best.result.xs, found, atol=1e-10, rtol=0)
    assert len(np.unique(best.result.xs.round(9), axis=0)) == different
    assert best.values == points[int(np.argmin([merit_of(x) for x in found]))]
    assert best.result.steps == K


def test_what_phase_one_may_leave_is_a_points_own():
    """Or else a grid must not name it, since all points share one start."""
    try:
        best = tune(schedule="two-phase", grid={"C": [0.01, *[1.0] * 7]})
    except ValueError as error:
        assert "'C'" in str(error)
        return
    for C, x in zip([0.01, 1.0], best.result.xs[:2], strict=True):
        np.testing.assert_allclose(x, alone("mossp-r", Theorem(C=C)).x, atol=1e-10, rtol=0)


def test_measured_units_on_mini_batches():
    grid = {"rho": [5.0, 100.0], "step": [0.25, 1.0], "alpha": [0.03, 0.9]}
    best = tune(schedule=None, grid=grid)
    found = np.array([alone("mossp-r", Measured(**values)).x for values in combinations(grid)])
    np.testing.assert_allclose(best.result.xs, found, atol=1e-10, rtol=0)
    assert len(np.unique(found.round(9), axis=0)) == 8


@functools.cache
def tuned(name):
    return mossp.tune(PLAIN, np.zeros(2), method=name, steps=6)


TUNED = [name for name in METHODS if name not in ("imba-dc", "scp-ls")]


@pytest.mark.parametrize("name", TUNED)
def test_every_method_has_a_default_grid(name):
    best = tuned(name)
    with jax.enable_x64(True):
        assert objection(best.method, PLAIN.oracles(np.zeros(2)), np.zeros(2)) is None
    scaled = isinstance(best.method.penalty, ScaledPenalty)
    weak = (1.0, 5.0, 20.0, 100.0) if scaled else (5.0, 20.0, 100.0, 500.0)
    grid = {} if name == "sqp-dc" else {"rho": weak}  # it has no penalty
    grid["step"] = (0.25, 0.5, 1.0, 2.0)
    if best.method.momentum.averages:
        grid["alpha"] = (0.03, 0.1, 0.9)
    points = combinations(grid)
    assert len(best.table) == len(points) and best.values in points
    for values, schedule in ((best.values, best.schedule), (points[5], Measured(**points[5]))):
        # As many replicas as points: the same program.
        settings = {"method": best.method, "schedule": schedule, "replicas": len(points)}
        r = mossp.solve(PLAIN, np.zeros(2), steps=6, **settings)
        np.testing.assert_allclose(best.result.xs[points.index(values)], r.x, atol=1e-10)
        row = next(row for row in best.table if values.items() <= row.items())
        assert row["merit"] == pytest.approx(r.fun + abs(r.x.sum() - 1), abs=1e-10)


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize("axis", [0, 1], ids=["rho", "step"])
def test_every_number_of_the_default_grid_matters(name, axis):
    if name == "sqp-dc":
        pytest.skip("sqp-dc has no penalty, and solves this problem in its first step")
    xs = np.moveaxis(tuned(name).result.xs.reshape(4, 4, -1), axis, 0)
    assert all(np.abs(a - b).max() > 1e-9 for a, b in itertools.combinations(xs, 2))


# Merits and the table -------------------------------------------------------------------------


def test_the_table():
    best = tune(method="spdc-p", grid=THREE)
    merits = [row["merit"] for row in best.table]
    assert merits == sorted(merits) and best.merit == merits[0] < merits[-1]
    points = zip(combinations(THREE), best.result.xs, strict=True)
    by_point = {tuple(values.values()): x for values, x in points}
    for row in best.table:
        x = by_point[row["mu"], row["rho"], row["eta"]]
        assert row["merit"] == pytest.approx(merit_of(x), abs=1e-12)
        assert row["violation"] == pytest.approx(abs(x @ x - 1), abs=1e-12)
        assert row["merit"] == pytest.approx(row["objective"] + row["violation"], abs=1e-14)
    assert best.values == {name: best.table[0][name] for name in THREE}
    assert best.at_edge == list(THREE)  # of two values both are ends
    assert best.schedule == dataclasses.replace(BASE, **best.values)
    assert len(best.summary().splitlines()) == 9 and len(best.summary(3).splitlines()) == 4


def test_a_merit_of_ones_own():
    seen = []

    def last_one(F, v):
        seen.append((F, v))
        return v + 1e9 * np.arange(8)[::-1]

    best = tune(method="spdc-p", grid=THREE, merit=last_one)
    assert best.values == combinations(THREE)[-1] and len(seen) == 1
    F, v = seen[0]
    np.testing.assert_allclose(F + v, [merit_of(x) for x in best.result.xs], atol=1e-12)


def test_ties_go_to_the_first_and_edges_are_named():
    def eta(first, *others):  # no step of MoSSP has an eta: all points tie
        best = tune(grid={"eta": [first, *others, *[0.2] * (7 - len(others))]})
        assert best.values == {"eta": first}
        return best.at_edge

    assert eta(0.2, 0.1, 0.3) == []
    assert eta(0.1, 0.3) == eta(0.3, 0.1) == ["eta"]
    assert eta(0.2) == []  # a value given again and again is no edge
    assert "eta" not in tune(grid={"eta": [0.2], "rho": EIGHT}).at_edge


RUNAWAYS = {  # the loss, a mu that is fine, one that is not
    "overflow": (bowl, 0.1, 1e9),
    "NaN after one step": (lambda x: jnp.sum(x - jnp.log(x)), 0.01, 50.0),
    "off to infinity, downhill": (lambda x: -jnp.sum(x), 0.01, 1e12),
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_a_run_that_fails_never_wins(name):
    loss, good, bad = RUNAWAYS[name]
    problem, x0 = mossp.Problem(loss), np.full(2, 1.5)
    best = tune(problem, x0, grid={"mu": [bad, good]}, steps=200)
    assert best.values == {"mu": good}
    assert best.table[1]["mu"] == bad and best.table[1]["merit"] == np.inf
    with pytest.raises(ValueError, match=r"^No point of the grid ended with a finite merit.*\.$"):
        tune(problem, x0, grid={"mu": [bad, 2 * bad]}, steps=200)


# Kinds of problems ----------------------------------------------------------------------------


def test_inequalities_pytrees_and_one_program():
    """The 1-norm of both kinds of constraints; what is slack does not count."""
    problem = mossp.Problem(
        lambda x, rows: 0.5 * jnp.mean((rows @ jnp.append(x["a"], x["b"]) - 1.0) ** 2), X,
        equality=lambda x: {"p": jnp.sum(x["a"]) - 2.0, "q": x["a"][0] - x["b"] + 1.0},
        inequality=lambda x: jnp.stack([x["b"] ** 2 - 0.01, -x["b"] - 5.0]),
    )  # fmt: skip
    x0, grid = {"a": np.array([0.8, 0.5]), "b": np.array(-0.2)}, {"mu": [0.01, 0.02, 0.03, 0.04]}
    compilations.clear()
    best = tune(problem, x0, grid=grid)
    assert compilations.count("jit(_advance)") == compilations.count("jit(start)") == 1
    compilations.clear()
    other = {"mu": [0.01, 0.02], "rho": [0.0, 3.0]}
    tune(problem, x0, grid=other, seed=9, steps=2 * K, schedule=Constant(rho=1, mu=0.3))
    assert not compilations
    assert best.result.xs["a"].shape == (4, 2) and best.result.xs["b"].shape == (4,)
    for row in best.table:
        i = grid["mu"].index(row["mu"])
        a, b = best.result.xs["a"][i], best.result.xs["b"][i]
        v = abs(a.sum() - 2.0) + abs(a[0] - b + 1.0) + max(b**2 - 0.01, 0.0)
        F = 0.5 * np.mean((X @ np.append(a, b) - 1.0) ** 2)
        assert (row["violation"], row["objective"]) == pytest.approx((v, F), abs=1e-12)
    found = alone("mossp-r", dataclasses.replace(BASE, mu=0.02), problem, x0).x
    np.testing.assert_allclose(best.result.xs["a"][1], found["a"], atol=1e-10)
    np.testing.assert_allclose(best.result.xs["b"][1], found["b"], atol=1e-10)


def test_single_precision_leaves_double_precision_alone():
    def fresh():
        return mossp.Problem(losses.squared, (X, y), mossp.L1MinusL2(0.05), equality=sphere)

    problem = fresh()
    best = tune(problem, grid={"mu": [0.01, 0.02]}, dtype="float32")
    rows = {row["mu"]: row for row in best.table}
    for mu, x in zip([0.01, 0.02], best.result.xs, strict=True):
        r = alone("mossp-r", dataclasses.replace(BASE, mu=mu), problem, dtype="float32")
        np.testing.assert_allclose(x, r.x, atol=1e-5)
        assert rows[mu]["violation"] == pytest.approx(abs(x @ x - 1), abs=1e-6)
    assert np.array_equal(alone("mossp-r", BASE, problem).x, alone("mossp-r", BASE, fresh()).x)


def test_sampler():
    problem = mossp.Problem(lambda x, rows: jnp.mean((rows @ x - 1.0) ** 2), mossp.Sampler(cosines))
    best = tune(problem, grid={"mu": [0.01, 0.2]})
    for mu, x, F in zip([0.01, 0.2], best.result.xs, best.result.funs, strict=True):
        r = alone("mossp-r", dataclasses.replace(BASE, mu=mu), problem)
        np.testing.assert_allclose(x, r.x, atol=1e-10)
        assert pytest.approx(r.fun, abs=1e-10) == F
    assert best.merit == best.result.funs.min()


def test_steps_are_a_fifth_of_a_solve_unless_given():
    assert tune(grid={"alpha": EIGHT}, steps=None).result.steps == 400  # of 2,000
    r = tune(grid={"alpha": EIGHT}, steps=None, gradients=99).result
    assert r.steps == 12 and r.gradients == 96


# Bad grids ------------------------------------------------------------------------------------

BAD = {
    "unknown name": ({"grid": {"foo": [1.0]}}, "'foo'.*Constant.*MoSSP.*rho, mu, alpha, eta, beta"),
    "a switch": ({"method": "spdc-p", "grid": {"refresh": [1.0]}}, "'refresh', which is no number"),
    "another switch": ({"method": "smag", "grid": {"exact_g": [0, 1]}}, "'exact_g'"),
    "measured constants": ({"schedule": "theorem", "grid": {"constants": [1.0]}}, "'constants'"),
    "not a mapping": ({"grid": [1.0, 2.0]}, "grid must name settings and their values"),
    "empty": ({"grid": {}}, "grid must name settings and their values"),
    "no values": ({"grid": {"rho": []}}, r"grid\['rho'\] must be a list of numbers"),
    "a number": ({"grid": {"rho": 3.0}}, r"grid\['rho'\] must be a list of numbers"),
    "a string": ({"grid": {"rho": "12"}}, r"grid\['rho'\] must be a list of numbers"),
    "strings": ({"grid": {"rho": ["1", "2"]}}, r"grid\['rho'\] must be a list of numbers"),
    "None": ({"grid": {"eta": [None, 0.1]}}, r"grid\['eta'\] must be a list of numbers"),
    "complex": ({"grid": {"rho": [1 + 0j]}}, r"grid\['rho'\] must be a list of numbers"),
    "a matrix": ({"grid": {"rho": np.ones((2, 2))}}, r"grid\['rho'\] must be a list of numbers"),
    "out of range": ({"grid": {"rho": [1.0, -1.0]}}, "Constant needs rho >= 0"),
    "not whole": ({"method": "spdc-p", "grid": {"inner": [2.5]}}, "whole number inner >= 1"),
    "out of reach": ({"method": "imba-dc", "grid": {"rho": [1.0]}}, "imba-dc takes inequalities"),
}


def test_a_method_that_searches_for_its_steps_has_nothing_to_tune():
    problem = mossp.Problem(lambda x: x @ x - x[0], inequality=lambda x: x @ x - 1.0)
    with pytest.raises(ValueError, match=r"IMBA.*nothing to tune"):
        mossp.tune(problem, np.zeros(3), method="imba-dc")


@pytest.mark.parametrize("name", BAD)
def test_bad_grids_are_refused(name):
    settings, words = BAD[name]
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        tune(**settings)
    assert str(caught.value).endswith(".")
