"""A share of the random problems, and whether the judge itself can be trusted."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import mossp
from tests.adversarial import families, kkt, problems
from tests.adversarial.families import draw
from tests.adversarial.means import FAMILIES
from tests.adversarial.penalties import Long, length, long

pytestmark = pytest.mark.slow


# One of each kind: constraints of either sort and none, rows, no data, a pytree, groups, scales,
# and two that must not succeed. `make attack` tries all of the families.
SHARE = {
    "halfspaces-mcp": 4, "logistic-on-a-sphere": 4, "tree-in-blocks": 4, "scaled": 4,
    "indefinite-in-a-box-mcp": 4, "groups-mcp": 4, "separable-labels": 4, "infeasible-planes": 2,
    "neyman-pearson-l1-l2": 4, "equal-selection-mcp": 3, "contradictory-means": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", SHARE)
def test_what_a_result_says_is_true(name):
    for number in range(SHARE[name]):
        report = problems.attack_one(name, number)
        assert not report["faults"], (number, report)


# The judge --------------------------------------------------------------------------------------


def values(constraint, tree):
    """Of a function of x, or of a list of means over rows of their own."""
    if not isinstance(constraint, list):
        return constraint(tree)
    return [e.function(tree, jax.tree.leaves(e.data.on_host())[0]) for e in constraint]


def tree_of(v):
    """The vector as the pytree of `TreeSquares`."""
    return {"b": v[:2], "w": v[2:].reshape(3, 2)}


@pytest.mark.parametrize("name", FAMILIES)
def test_formulas_by_hand_are_those_of_jax(name):
    """Values against JAX, and derivatives against differences in 80 bits."""
    case = draw(name, 0)
    rng = np.random.default_rng(0)
    start = kkt.flat(case.x0)
    x = np.abs(start + 0.1 * rng.normal(size=start.size)) * 0.5
    tree = tree_of(x) if isinstance(case.x0, dict) else x
    p, X = case.problem, long(x)
    with jax.enable_x64(True):
        dense = [a.toarray() if hasattr(a, "toarray") else a for a in case.rows]
        batch = (tuple(map(jax.numpy.asarray, dense)),) if dense else ()
        f = float(p.loss(jax.tree.map(jax.numpy.asarray, tree), *batch))
        given = [c for c in (p.equality, p.inequality) if c is not None]
        c = [np.ravel(leaf) for part in given for leaf in jax.tree.leaves(values(part, tree))]
        reg = float(p.regularizer(tree))
    c = np.concatenate([np.zeros(0), *c])
    truth, bound = case.reference.f(X), case.reference.c(X)
    assert f == pytest.approx(float(truth.value), rel=1e-10, abs=1e-12)
    assert np.allclose(c, bound.value.astype(float), rtol=1e-9, atol=1e-9)
    slopes = case.reference.penalty(X, Long(0))
    assert reg == pytest.approx(float(slopes.value), rel=1e-10, abs=1e-12) or not slopes.inside
    for i in range(len(x)):
        e = long(np.eye(len(x))[i]) * 1e-6
        up, down = case.reference.f(X + e), case.reference.f(X - e)
        assert float((up.value - down.value) / 2e-6) == pytest.approx(
            float(truth.slope[i]), rel=1e-5, abs=1e-6 * float(truth.magnitude + 1)
        )
        rise = (case.reference.c(X + e).value - case.reference.c(X - e).value) / 2e-6
        assert np.allclose(
            rise.astype(float), bound.slope[:, i].astype(float), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("name", ["quadratic-l1", "weighted-nonnegative-scad", "groups-mcp"])
def test_slopes_of_the_penalty_are_those_of_its_value(name):
    """At a point without kinks dh - dg is one vector: the derivative of the value."""
    case = draw(name, 1)
    x = long(np.abs(np.random.default_rng(1).normal(size=kkt.flat(case.x0).size)) + 0.1)
    slopes = case.reference.penalty(x, Long(0))
    e = 1e-7 * np.eye(len(x), dtype=Long)
    value = lambda x: case.reference.penalty(x, Long(0)).value  # noqa: E731
    slope = long([(value(x + row) - value(x - row)) / Long(2e-7) for row in e])
    assert length(slopes.away(slope)) < 1e-7
    assert length(slopes.away(slope + 1e-3)) > 1e-4


# Where the judge's set is larger on purpose: see `penalties`.
LARGER = ("squares-truncated-minus-l2", "weighted-l1-minus-l2")


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "logistic-in-a-ball"])
def test_the_distance_from_the_slopes_is_that_of_the_regulariser(name):
    """Two ways to project on dh - dg, at points with zeros: neither knows of the other."""
    rng = np.random.default_rng(2)
    for number in range(12):
        case = draw(name, number)
        n = kkt.flat(case.x0).size
        x = rng.normal(size=n) * (rng.random(n) < rng.choice([0.2, 0.5, 0.8]))
        x = x if case.reference.penalty(long(x), Long(0)).inside else np.abs(x)
        x = x if case.reference.penalty(long(x), Long(0)).inside else 0 * x
        w = rng.normal(size=n) * rng.choice([0.1, 1, 10])
        slopes = case.reference.penalty(long(x), Long(0))
        given = [tree_of(v) if isinstance(case.x0, dict) else v for v in (x, w)]
        theirs = kkt.flat(case.problem.regularizer.nearest(*given))
        distance, mine = np.linalg.norm(w - theirs), float(length(slopes.away(long(w))))
        assert mine <= distance + 1e-9
        assert mine >= distance - 1e-9 or name in LARGER


def answer(x, q, **parts):
    """A result with only what the judge looks at."""
    certificate = SimpleNamespace(multipliers=q)
    return SimpleNamespace(tol=1e-10, certificate=certificate, x=x, **parts)


def test_the_judge_accepts_a_solution_and_notices_what_is_wrong():
    """min |x|^2/2 - x_1 with x_1 + x_2 = 1, |x|_1: x = (1, 0), q = 1 - ..., by hand."""
    n = 2
    loss = families.made.Quadratic(np.eye(n), np.array([-2.0, 0.0]))
    plane = families.made.Planes(np.ones((1, n)), np.ones(1))
    penalty = families.pen.separable(families.pen.l1(0.5))
    case = families.instance(loss, np.zeros(n), mossp.L1(0.5), penalty, plane)
    x = np.array([1.0, 0.0])  # gradient (-1, 0) + (q, q) + (0.5, s): q = 0.5, s = -0.5
    right = answer(x, {}, fun=0.5 - 2.0 + 0.5, violation=0.0)
    assert kkt.judge(case.reference, x, right).worst <= 1
    found = kkt.judge(case.reference, x + np.array([1e-6, 0]), right)
    assert found.violation > 1 and found.fun > 1
    found = kkt.judge(case.reference, x + np.array([1e-6, -1e-6]), right)
    assert found.criticality > 1 and found.violation <= 1
    # Without the multiplier: the constraint as an inequality that is not active.
    slack = families.made.Planes(np.ones((1, n)), np.full(1, 2.0))
    loose = dataclasses.replace(case.reference, c=slack.by_hand, m_E=0)
    assert kkt.judge(loose, x, right).criticality > 1


def test_the_judge_wants_the_right_sign_of_a_multiplier():
    """min x^2/2 with x >= 1 is solved by 1; with x <= 1 it is not."""
    loss = families.made.Quadratic(np.eye(1), np.zeros(1))
    penalty = families.pen.separable(families.pen.nothing())
    for sign, good in ((-1.0, True), (1.0, False)):
        bound = families.made.Planes(np.array([[sign]]), np.array([sign]))
        case = families.instance(loss, np.zeros(1), mossp.Zero(), penalty, None, bound)
        result = answer(np.ones(1), {"inequality": np.array([-sign])}, fun=0.5, violation=0.0)
        assert (kkt.judge(case.reference, np.ones(1), result).worst <= 1) is good
