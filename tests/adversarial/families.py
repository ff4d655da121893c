"""Families of random problems, each with its formulas by hand and with what must not be said of it.

A family fixes the functions, the shapes and the kind of the regulariser; the numbers are drawn.
`Expect` says what is known: an infeasible problem is never CONVERGED, one without a critical
point (or whose infimum is at infinity) is never a success, the others may end as they like so
long as a success is one.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

import mossp
from tests.adversarial import formulas as made
from tests.adversarial import penalties as pen
from tests.adversarial.kkt import Reference


class Expect(enum.Enum):
    HONEST = "a success is a KKT point"
    INFEASIBLE = "no success, never CONVERGED"
    NO_MINIMUM = "no success"


@dataclasses.dataclass
class Instance:
    problem: mossp.Problem
    x0: Any
    reference: Reference
    expect: Expect = Expect.HONEST
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    rows: tuple[Any, ...] = ()  # the data as they were given


FAMILIES: dict[str, Callable[[np.random.Generator], Instance]] = {}


def family(make: Callable[[np.random.Generator], Instance]) -> Callable[..., Instance]:
    FAMILIES[make.__name__.replace("_", "-")] = make
    return make


def draw(name: str, number: int) -> Instance:
    """The problem of this number: the same on every machine and in every order."""
    seed = [*name.encode(), number]
    return FAMILIES[name](np.random.default_rng(seed))


def instance(
    loss: made.Formula, x0: Any, reg: Any, penalty: pen.Penalty, equality: Any = None,
    inequality: Any = None, expect: Expect = Expect.HONEST, **settings: Any,
) -> Instance:  # fmt: skip
    """A problem without data."""
    problem = mossp.Problem(loss, None, reg, equality, inequality)
    reference = with_constraints(loss.by_hand, penalty, equality, inequality)
    return Instance(problem, x0, reference, expect, settings)


def with_constraints(f: Any, penalty: Any, equality: Any, inequality: Any) -> Reference:
    given = [part for part in (equality, inequality) if part is not None]
    if not given:
        return Reference(f, penalty)

    def c(x):
        return made.stacked(*(part.by_hand(x) for part in given))

    return Reference(f, penalty, c, 0 if equality is None else equality.rows)


def on_rows(
    kind: str, A: Any, b: Any, x0: Any, reg: Any, penalty: pen.Penalty, equality: Any = None,
    inequality: Any = None, expect: Expect = Expect.HONEST, **settings: Any,
) -> Instance:  # fmt: skip
    """A problem with one of mossp's ready losses."""
    problem = mossp.Problem(getattr(mossp.losses, kind), (A, b), reg, equality, inequality)
    reference = with_constraints(made.of_rows(kind, A, b), penalty, equality, inequality)
    return Instance(problem, x0, reference, expect, settings, (A, b))


# What is drawn ----------------------------------------------------------------------------------


def convex(rng: np.random.Generator, n: int) -> np.ndarray:
    B = rng.normal(size=(n, n))
    return B @ B.T / n + 0.1 * np.eye(n)


def indefinite(rng: np.random.Generator, n: int) -> np.ndarray:
    B = rng.normal(size=(n, n))
    return (B + B.T) / 2


def power(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10 ** rng.uniform(low, high))


def regression(rng: np.random.Generator, N: int, n: int, nonzeros: int = 3) -> Any:
    A = rng.normal(size=(N, n))
    truth = np.zeros(n)
    truth[:nonzeros] = rng.normal(size=nonzeros) * 2
    return A, A @ truth + 0.3 * rng.normal(size=N)


def labels(rng: np.random.Generator, N: int, n: int) -> Any:
    A, b = regression(rng, N, n)
    b = np.where(b + 0.5 * rng.normal(size=N) > 0, 1.0, -1.0)
    b[:2] = [1.0, -1.0]
    return A, b


# Without constraints ----------------------------------------------------------------------------


@family
def quadratic_l1(rng):
    lam = power(rng, -2, 0)
    loss = made.Quadratic(convex(rng, 5), rng.normal(size=5))
    return instance(loss, rng.normal(size=5), mossp.L1(lam), pen.separable(pen.l1(lam)))


@family
def indefinite_in_a_box_mcp(rng):
    lam, gamma = power(rng, -2, 0), rng.uniform(1.5, 5)
    low, high = -rng.uniform(0.2, 2, size=5), rng.uniform(0.2, 2, size=5)
    loss = made.Quadratic(indefinite(rng, 5), rng.normal(size=5))
    reg = mossp.Box(mossp.MCP(lam, gamma), low, high)
    penalty = pen.separable(pen.mcp(lam, gamma), lower=low, upper=high)
    return instance(loss, np.zeros(5), reg, penalty)


@family
def sparse_rows_log_sum(rng):
    A, b = regression(rng, 120, 8)
    A = scipy.sparse.csr_array(A * (rng.random(A.shape) < 0.3))
    lam, theta = power(rng, -2.5, -0.5), rng.uniform(0.2, 2)
    penalty = pen.separable(pen.log_sum(lam, theta))
    return on_rows("squared", A, b, np.zeros(8), mossp.LogSum(lam, theta), penalty)


@family
def groups_mcp(rng):
    A, b = regression(rng, 80, 8, 4)
    lam, gamma = power(rng, -1.5, 0.3), rng.uniform(1.5, 4)
    groups = np.array([0, 0, 1, 1, 1, 2, 3, 3])
    reg = mossp.Group(mossp.MCP(lam, gamma), groups)
    penalty = pen.grouped(pen.mcp(lam, gamma), groups)
    return on_rows("squared", A, b, np.zeros(8), reg, penalty)


@family
def nonnegative_groups(rng):
    A, b = regression(rng, 80, 6, 4)
    lam, groups = power(rng, -1.5, 0.3), np.array([0, 0, 1, 1, 2, 2])
    reg = mossp.Nonnegative(mossp.Group(mossp.L1(lam), groups))
    penalty = pen.grouped(pen.l1(lam), groups, nonnegative=True)
    return on_rows("huber", A, b, np.ones(6), reg, penalty)


@family
def logistic_in_a_ball(rng):
    A, b = labels(rng, 60, 6)
    lam, radius = power(rng, -3, -0.7), power(rng, -0.5, 0.7)
    penalty = pen.in_ball(pen.separable(pen.l1(lam)), radius)
    return on_rows("logistic", A, b, np.zeros(6), mossp.Ball(mossp.L1(lam), radius), penalty)


# With constraints -------------------------------------------------------------------------------


@family
def planes(rng):
    A, x = rng.normal(size=(2, 6)), rng.normal(size=6)
    loss = made.Quadratic(convex(rng, 6), rng.normal(size=6))
    return instance(
        loss, np.zeros(6), mossp.Zero(), pen.separable(pen.nothing()), made.Planes(A, A @ x)
    )


@family
def halfspaces_mcp(rng):
    A, x = rng.normal(size=(3, 6)), rng.normal(size=6)
    lam, gamma = power(rng, -2, 0), rng.uniform(2, 5)
    loss = made.Quadratic(convex(rng, 6), rng.normal(size=6) * 3)
    bound = made.Planes(A, A @ x + rng.uniform(0, 1, size=3))
    penalty = pen.separable(pen.mcp(lam, gamma))
    return instance(loss, x, mossp.MCP(lam, gamma), penalty, None, bound)


@family
def polynomial_on_a_sphere_scad(rng):
    lam, bend = power(rng, -2, 0), rng.uniform(2.5, 5)
    loss = made.Polynomial(*rng.normal(size=(3, 5)))
    sphere = made.Ellipsoid(np.ones(5), power(rng, -0.5, 1))
    penalty = pen.separable(pen.scad(lam, bend))
    return instance(loss, rng.normal(size=5), mossp.SCAD(lam, bend), penalty, sphere)


@family
def product_under_an_ellipsoid(rng):
    bound = made.Ellipsoid(rng.uniform(1, 5, size=3), power(rng, 1, 3))
    return instance(
        made.Product(), np.ones(3), mossp.Zero(), pen.separable(pen.nothing()), None, bound
    )


@family
def exponentials_capped(rng):
    lam, theta = power(rng, -2, 0), rng.uniform(0.2, 2)
    loss = made.Exponentials(rng.normal(size=(4, 4)), rng.normal(size=4))
    penalty = pen.separable(pen.capped(lam, theta))
    bound = made.Both((made.ExpBound(rng.uniform(1.2, 5)), made.Ellipsoid(np.ones(4), 25.0)))
    return instance(loss, np.zeros(4), mossp.CappedL1(lam, theta), penalty, None, bound)


@family
def logarithms_on_the_simplex(rng):
    loss = made.Logarithms(
        rng.uniform(0.1, 2, size=5), power(rng, -3, 0) * np.ones(5), rng.normal(size=5)
    )
    penalty = pen.separable(pen.nothing(), lower=0)
    plane = made.Planes(np.ones((1, 5)), np.ones(1))
    return instance(loss, np.full(5, 0.2), mossp.Nonnegative(mossp.Zero()), penalty, plane)


@family
def ratio_transformed(rng):
    lam, a = power(rng, -2, 0), rng.uniform(0.5, 3)
    loss = made.Ratio(rng.normal(size=5) * 3, rng.normal(), rng.uniform(0.01, 1))
    penalty = pen.separable(pen.transformed(lam, a))
    ball = made.Ellipsoid(rng.uniform(0.5, 2, size=5), power(rng, -1, 1))
    return instance(loss, rng.normal(size=5), mossp.TransformedL1(lam, a), penalty, None, ball)


@family
def valley(rng):
    loss = made.Valley(rng.uniform(10, 100, size=3), rng.uniform(0.5, 1.5, size=3))
    ball = made.Ellipsoid(np.ones(4), rng.uniform(0.5, 8))
    x0 = np.array([-1.2, 1.0, -1.2, 1.0]) * 0.3
    return instance(loss, x0, mossp.Zero(), pen.separable(pen.nothing()), None, ball)


@family
def logistic_on_a_sphere(rng):
    A, b = labels(rng, 80, 6)
    lam = power(rng, -3, -0.5)
    sphere = made.Ellipsoid(np.ones(6), power(rng, -1, 1))
    penalty = pen.l1_minus_l2(lam)
    return on_rows("logistic", A, b, np.full(6, 0.3), mossp.L1MinusL2(lam), penalty, sphere)


@family
def huber_truncated_both(rng):
    A, b = regression(rng, 60, 6)
    lam, x = power(rng, -2, 0), rng.normal(size=6)
    plane = made.Planes(np.ones((1, 6)), np.array([x.sum()]))
    ball = made.Ellipsoid(np.ones(6), x @ x + 1)
    reg, penalty = mossp.TruncatedL1(lam, 2), pen.truncated(lam, 2)
    return on_rows("huber", A, b, np.zeros(6), reg, penalty, plane, ball)


@family
def squares_truncated_minus_l2(rng):
    A, b = regression(rng, 60, 6)
    lam = power(rng, -2, 0)
    bound = made.Planes(rng.normal(size=(1, 6)), rng.uniform(0.1, 1, size=1))
    reg, penalty = mossp.TruncatedL1MinusL2(lam, 2), pen.truncated(lam, 2, minus_l2=True)
    return on_rows("squared", A, b, np.zeros(6), reg, penalty, None, bound)


@family
def weighted_l1_minus_l2(rng):
    lam, weights = power(rng, -2, 0), np.array([0.0, 1, 0.5, 2, 1])
    loss = made.Quadratic(convex(rng, 5), rng.normal(size=5) * 2)
    plane = made.Planes(rng.normal(size=(1, 5)), rng.normal(size=1))
    reg = mossp.Weighted(mossp.L1MinusL2(lam), weights)
    return instance(loss, np.ones(5), reg, pen.l1_minus_l2(lam, weights), plane)


@family
def weighted_nonnegative_scad(rng):
    lam, weights = power(rng, -2, 0), rng.uniform(0, 2, size=5)
    loss = made.Quadratic(convex(rng, 5), rng.normal(size=5) * 2)
    reg = mossp.Nonnegative(mossp.Weighted(mossp.SCAD(lam, 3.7), weights))
    penalty = pen.separable(pen.scad(lam, 3.7), weights, lower=0)
    x = rng.uniform(0, 1, size=5)
    plane = made.Planes(np.ones((1, 5)), np.array([x.sum()]))
    return instance(loss, np.ones(5), reg, penalty, plane)


@family
def tree_in_blocks(rng):
    A, Y = rng.normal(size=(50, 3)), rng.normal(size=(50, 2)) * 2
    lam, gamma = power(rng, -2, 0), rng.uniform(2, 4)
    bound = made.TreeNorm(rng.uniform(0.1, 3))
    problem = mossp.Problem(
        made.TreeSquares(), (A, Y), mossp.Blocks({"w": mossp.MCP(lam, gamma)}), None, bound
    )
    penalty = pen.blocks([(slice(2, 8), pen.separable(pen.mcp(lam, gamma)))])
    reference = with_constraints(made.tree_squares(A, Y), penalty, None, bound)
    return Instance(problem, {"w": np.zeros((3, 2)), "b": np.zeros(2)}, reference, rows=(A, Y))


@family
def single_precision(rng):
    A, x = rng.normal(size=(1, 5)), rng.normal(size=5)
    lam = power(rng, -2, 0)
    A, x, lam = (np.asarray(a, np.float32).astype(float) for a in (A, x, lam))
    Q, b = (np.asarray(a, np.float32).astype(float) for a in (convex(rng, 5), rng.normal(size=5)))
    b_plane = np.asarray(A @ x, np.float32).astype(float)
    found = instance(
        made.Quadratic(Q, b), np.zeros(5), mossp.L1(float(lam)), pen.separable(pen.l1(lam)),
        made.Planes(A, b_plane), dtype="float32",
    )  # fmt: skip
    rounding = 256 * float(np.finfo(np.float32).eps)
    found.reference = dataclasses.replace(found.reference, rounding=rounding)
    return found


# Scales, and what is wrong on purpose -----------------------------------------------------------


@family
def scaled(rng):
    A, x = rng.normal(size=(1, 5)), rng.normal(size=5)
    loss = made.Quadratic(convex(rng, 5), rng.normal(size=5), power(rng, -4, 6))
    lam = float(loss.scale) * power(rng, -2, -0.5)
    plane = made.Planes(A, A @ x, power(rng, -4, 6))
    return instance(loss, np.zeros(5), mossp.L1(lam), pen.separable(pen.l1(lam)), plane)


@family
def scaled_rows(rng):
    A, b = regression(rng, 60, 5)
    scale = power(rng, -4, 6)
    lam = scale * power(rng, -2, -0.5)
    bound = made.Ellipsoid(np.ones(5), rng.uniform(0.2, 4), power(rng, -4, 4))
    problem = mossp.Problem(
        made.ScaledSquares(scale), (A, b), mossp.MCP(lam, 3 / scale), None, bound
    )
    penalty = pen.separable(pen.mcp(lam, 3 / scale))
    reference = with_constraints(made.of_rows("squared", A, b, scale), penalty, None, bound)
    return Instance(problem, np.zeros(5), reference, rows=(A, b))


@family
def infeasible_planes(rng):
    A, x = rng.normal(size=(1, 5)), rng.normal(size=5)
    twice = np.concatenate([A, A])
    b = np.concatenate([A @ x, A @ x + rng.choice([-1, 1]) * power(rng, -2, 1)])
    loss = made.Quadratic(convex(rng, 5), rng.normal(size=5))
    return instance(
        loss, np.zeros(5), mossp.L1(0.1), pen.separable(pen.l1(0.1)), made.Planes(twice, b),
        expect=Expect.INFEASIBLE,
    )  # fmt: skip


@family
def infeasible_inequalities(rng):
    """A ball and a halfspace beyond it."""
    a = rng.normal(size=4)
    a /= np.linalg.norm(a)
    r, gap = power(rng, -1, 1), power(rng, -1, 0.5)
    ball = made.Ellipsoid(np.ones(4), r * r)
    beyond = made.Planes(-a[None], -np.array([r + gap]))
    loss = made.Quadratic(convex(rng, 4), rng.normal(size=4))
    return instance(
        loss, rng.normal(size=4), mossp.MCP(0.1), pen.separable(pen.mcp(0.1, 3)), None,
        made.Both((ball, beyond)), expect=Expect.INFEASIBLE,
    )  # fmt: skip


@family
def rank_deficient(rng):
    A, x = rng.normal(size=(2, 5)), rng.normal(size=5)
    rows = np.concatenate([A, [A[0] + A[1]], [2 * A[0]]])
    loss = made.Quadratic(convex(rng, 5), rng.normal(size=5))
    return instance(
        loss, np.zeros(5), mossp.L1(0.1), pen.separable(pen.l1(0.1)), made.Planes(rows, rows @ x)
    )


@family
def degenerate(rng):
    """(a'x - b)^2 = 0 or <= 0: the gradient is 0 wherever it holds."""
    a, x = rng.normal(size=4), rng.normal(size=4)
    loss = made.Quadratic(convex(rng, 4), rng.normal(size=4))
    bound = made.Squared(a, float(a @ x))
    return instance(loss, x, mossp.Zero(), pen.separable(pen.nothing()), None, bound)


@family
def unbounded(rng):
    """A slope with no critical point, and a halfspace or two that do not stop it."""
    a = rng.normal(size=4)
    b = rng.normal(size=4)
    b -= a * (a @ b) / (a @ a)  # b + s a is never 0
    b /= np.linalg.norm(b)
    # Along -b + t a nothing holds it back, and the constraint's gradient is no help.
    side = rng.normal(size=4)
    side -= b * (b @ side) + a * (a @ side) / (a @ a)
    bound = made.Planes(side[None], np.ones(1))
    return instance(
        made.Slope(b, a), np.zeros(4), mossp.CappedL1(0.1), pen.separable(pen.capped(0.1, 1)),
        None, bound, expect=Expect.NO_MINIMUM,
    )  # fmt: skip


@family
def infimum_at_infinity(rng):
    loss = made.Decay(rng.uniform(0.5, 2, size=3))
    return instance(
        loss, np.zeros(3), mossp.Zero(), pen.separable(pen.nothing()), expect=Expect.NO_MINIMUM
    )


@family
def separable_labels(rng):
    """Logistic loss on rows that a plane separates, without a penalty."""
    A, truth = rng.normal(size=(40, 4)), rng.normal(size=4)
    b = np.where(A @ truth > 0, 1.0, -1.0)
    b[0], A[0] = 1.0, truth
    b[1], A[1] = -1.0, -truth
    return on_rows(
        "logistic", A, b, np.zeros(4), mossp.Zero(), pen.separable(pen.nothing()),
        expect=Expect.NO_MINIMUM,
    )  # fmt: skip


@family
def broken_loss(rng):
    """NaN on the way to the minimum, which lies where the loss is NaN."""
    edge = rng.uniform(0.2, 0.8)
    loss = made.Broken(np.concatenate([[edge + rng.uniform(0.2, 1)], rng.normal(size=3)]), edge)
    return instance(
        loss, np.zeros(4), mossp.L1(0.01), pen.separable(pen.l1(0.01)), expect=Expect.NO_MINIMUM
    )
