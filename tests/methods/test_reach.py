"""What methods declare and which problems they refuse; what regularisers say of h and g."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import METHODS, constraints
from mossp.methods import objection
from mossp.methods.penalty import GrowingPenalty
from mossp.schedules import Constant
from tests.compilations import compilations
from tests.problems import bowl, cosines, sphere

pytestmark = pytest.mark.slow


n, K = 3, 5
START = np.array([0.3, 0.2, 0.1])
ROWS = np.random.default_rng(0).normal(size=(40, n))
SCHEDULE = Constant(rho=2.0, mu=0.01, alpha=0.2)


def rows_loss(x, rows):
    return 0.5 * jnp.mean((rows @ x - 1.0) ** 2)


def bent(curvature):
    """One program, whether the constraint is linear or not."""
    return constraints.DiagonalQuadratics(np.full((1, n), curvature), np.ones((1, n)), np.ones(1))


def problem(**changes):
    return mossp.Problem(**{"loss": bowl, "regularizer": mossp.L1(0.1), **changes})


PROBLEMS = {
    "nonlinear equality": lambda: problem(equality=bent(1.0)),
    "linear equality": lambda: problem(equality=bent(0.0)),
    "inequality": lambda: problem(inequality=sphere),
    "equality and inequality": lambda: problem(equality=bent(0.0), inequality=sphere),
    "unconstrained, g = 0": problem,
    "nonsmooth g": lambda: problem(regularizer=mossp.L1MinusL2(0.1)),
    "smooth g": lambda: problem(regularizer=mossp.MCP(0.1)),
    "indicator": lambda: problem(regularizer=mossp.Nonnegative(mossp.L1(0.1))),
    "sampler": lambda: problem(loss=rows_loss, data=mossp.Sampler(cosines)),
    "stream": lambda: problem(
        loss=rows_loss, data=mossp.Stream([ROWS[i : i + 8] for i in range(0, 40, 8)])
    ),
}
# Written by hand from the articles: what a method refuses, and in which words. All others take all.
FULL = "full gradients, which a Sampler or a Stream cannot give"
BOTH = {"sampler": FULL, "stream": FULL}
BALLS = {
    "nonlinear equality": "inequalities only.* equality constraint",
    "linear equality": "inequalities only.* equality constraint",
    "equality and inequality": "inequalities only.* equality constraint",
} | BOTH
CONVEX = {"nonsmooth g": "no concave part.*L1MinusL2", "smooth g": "no concave part.*MCP"}
REFUSED = {
    "mlalm": CONVEX,
    "ssl-alm": CONVEX,
    "clcdc-alm": {
        "nonlinear equality": "linear equalities only.* not linear",
        "inequality": "linear equalities only.* inequality constraint",
        "equality and inequality": "linear equalities only.* inequality constraint",
    }
    | BOTH,
    "imba-dc": BALLS,
    "scp-ls": BALLS,
    "smag": {"indicator": "subgradients of h.*Nonnegative is infinite"},
}


@functools.cache
def stated(name):
    return PROBLEMS[name]()


def run(method, what, x0=START, **settings):
    given = {"steps": K, "schedule": SCHEDULE}
    return mossp.solve(what, x0, method=method, **{**given, **settings})


def refusal(method, what, x0=START):
    """The one sentence with which a problem is refused, and the method that it names."""
    with pytest.raises(ValueError) as caught:
        run(method, what, x0)
    said = str(caught.value)
    assert said.count(". ") == 0 and said.endswith(".") and "\n" not in said
    return said, re.search(r": use method='([^']+)' instead\.$", said)[1]


def takes(method, what, x0=START):
    with jax.enable_x64(True):
        return objection(METHODS[method](), what.oracles(x0), x0) is None


# Methods and problems -------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_declarations(name):
    about, method = METHODS[name]().about, METHODS[name]()
    for text in (about.reference, about.assumption, about.complexity):
        assert isinstance(text, str) and text.strip() == text != ""
    assert 2010 <= about.year <= 2030
    assert about.constraints in ("any", "inequalities", "linear", "none")
    assert about.concave in ("any", "smooth", "zero")
    assert isinstance(about.single_loop, bool)
    assert method.momentum.full == (name in ("clcdc-alm", "imba-dc", "scp-ls"))
    double = ("spdc", "salm", "spd", "ssdc", "clcdc", "imba", "scp")
    assert about.single_loop == (name.split("-")[0] not in double)


@pytest.mark.parametrize("what", PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_reach(method, what):
    words = REFUSED.get(method, {}).get(what)
    if words is None:
        assert takes(method, stated(what))
        if runs(method, what):
            r = run(method, stated(what))
            assert 0 < r.steps <= K and np.isfinite(r.x).all() and np.isfinite(r.fun)
            assert r.steps == K or r.success  # exact methods may arrive
        return
    assert not takes(method, stated(what))
    said, other = refusal(method, stated(what))
    assert said.startswith(f"{method} ") and re.search(words, said), said
    assert other != method and takes(other, stated(what))
    run(other, stated(what))


def runs(method, what):
    """Each method on one of its problems, by turns: programs take time, other files run more."""
    taken = [name for name in PROBLEMS if name not in REFUSED.get(method, {})]
    return what == taken[list(METHODS).index(method) % len(taken)]


def test_a_method_of_ones_own_is_refused_like_its_name():
    said, _ = refusal(mossp.MoSSP(momentum=mossp.Full()), stated("sampler"))
    assert said.startswith("MoSSP(Full) needs full gradients")
    said, _ = refusal(mossp.MoSSP(momentum=mossp.Truncated(mossp.SVRG(), 1.0)), stated("stream"))
    assert said.startswith("MoSSP(Truncated) needs full gradients")
    said, _ = refusal(mossp.SPDC(h="subgradient"), stated("indicator"))
    assert said.startswith("SPDC(Recursive) takes subgradients of h")
    for method, what in (
        (mossp.MLALM(dc=True), "nonsmooth g"),
        (mossp.SMAG(h="prox"), "indicator"),
        (mossp.MoSSP(momentum=mossp.SVRG()), "nonlinear equality"),
    ):
        with jax.enable_x64(True):
            assert objection(method, stated(what).oracles(START), START) is None


SOLVE = [f"jit({name})" for name in ("start", "_advance", "_observe", "residuals", "_mean_of_rows")]


@pytest.mark.parametrize(
    ("method", "what"), [(method, what) for method, few in REFUSED.items() for what in few]
)
def test_nothing_is_compiled_before_a_refusal(method, what):
    """Not even what JAX compiles for a line of Python: of a size that no other test has.

    Whether a constraint is linear takes a few such lines to see.
    """
    size = 11 + 2 * list(PROBLEMS).index(what) + (method == "clcdc-alm")
    curved = constraints.DiagonalQuadratics(
        np.full((1, size), 1.0 if what == "nonlinear equality" else 0.0), np.ones((1, size)), [1.0]
    )
    changes = {"equality": curved} if "equality" in what else {}
    changes |= {"inequality": sphere} if "inequality" in what else {}
    given = stated(what)
    fresh = mossp.Problem(
        lambda x, *rows: jnp.sum(jnp.cosh(x)), None if what not in BOTH else given.data,
        given.regularizer, **changes,
    )  # fmt: skip
    compilations.clear()
    refusal(method, fresh, np.linspace(0.1, 0.3, size))
    if (method, what) == ("clcdc-alm", "nonlinear equality"):
        assert len(compilations) < 15 and not any(name in SOLVE for name in compilations)
    else:
        assert not compilations


# Linear or not --------------------------------------------------------------------------------

MATRIX = np.array([[1.0, 2.0, 3.0], [0.0, -1.0, 1e-6]])
TREE = {"a": np.array([[0.3, 0.2]]), "b": np.array(0.1)}
LINEAR = {
    "a lambda": (lambda x: x[0] - 2 * x[1] + 1.0, START),
    "a dict": (lambda x: {"p": jnp.sum(x), "q": x[1] - 1e3}, START),
    "Linear": (constraints.Linear(MATRIX, np.ones(2)), START),
    "Budget": (constraints.Budget([1.0, 2.0, 3.0], 1.0), START),
    "a quadratic without curvature": (bent(0.0), START),
    "Linear of a pytree": (constraints.Linear(MATRIX, np.ones(2)), TREE),
    "a lambda of a pytree": (lambda x: jnp.sum(x["a"]) - x["b"], TREE),
    "rows of very different sizes": (lambda x: jnp.stack([1e9 * x[0], 1e-9 * x[1]]), START),
    "far from the origin": (lambda x: jnp.sum(x) - 1.0, 1e8 * START),
}
NONLINEAR = {
    "cubes, flat at 0": (lambda x: jnp.sum(x**3) - 1.0, np.zeros(n)),
    "absolute values at a kink": (lambda x: jnp.sum(jnp.abs(x)) - 1.0, np.zeros(n)),
    "a small sine": (lambda x: jnp.sum(x) - 1.0 + 1e-4 * jnp.sin(x[0]), START),
    "a fast sine": (lambda x: jnp.sum(x) - 1.0 + 1e-4 * jnp.sin(1e3 * x[0]), START),
    "a product of a pytree": (lambda x: jnp.sum(x["a"]) * x["b"] - 1.0, TREE),
    "a slightly bent plane": (lambda x: jnp.sum(x) - 1.0 + 1e-5 * x @ x, START),
    "a logarithm": (lambda x: jnp.log(x[0]), START),
    "a small sine next to a steep plane": (
        lambda x: jnp.stack([1e9 * jnp.sum(x), jnp.sin(x[0])]), START,
    ),
    "a sphere": (constraints.Sphere(), START),
} | {
    f"{kind} of x[{i}] from {at:+.0f}": (
        lambda x, i=i, bend=bend: bend(x[i]) - 1.0, np.full(n, at),
    )
    for kind, bend in (("|x|", jnp.abs), ("[x]_+", jax.nn.relu))
    for i in range(n) for at in (1.0, -1.0)
}  # fmt: skip


def found_linear(c, x0, dtype):
    given = mossp.Problem(lambda x: sum(jnp.sum(v**2) for v in jax.tree.leaves(x)), equality=c)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(x0)]).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        said = objection(mossp.CLCDC(), given.oracles(x0, dtype), flat)
    assert said is None or "the equality constraint is not linear" in said
    return said is None


@pytest.mark.parametrize("name", LINEAR)
def test_linear_constraints_are_recognised(name):
    assert found_linear(*LINEAR[name], "float64") and found_linear(*LINEAR[name], "float32")


@pytest.mark.parametrize("name", NONLINEAR)
def test_nonlinear_constraints_are_refused(name):
    assert not found_linear(*NONLINEAR[name], "float64")


# What regularisers say of h and g -------------------------------------------------------------

L1, L12, MCP = mossp.L1(0.5), mossp.L1MinusL2(0.5), mossp.MCP(0.5, 2.0)
TOP = mossp.TruncatedL1(0.5, 2)
PAIRS, WEIGHTS = [0, 0, 1, 1], np.array([1.0, 2.0, 0.5, 0.0])
SAYS = {  # convex (g = 0), smooth (g), finite (h)
    "Zero": (mossp.Zero(), True, True, True),
    "L1": (L1, True, True, True),
    "L1MinusL2": (L12, False, False, True),
    "CappedL1": (mossp.CappedL1(0.5, 1.0), False, False, True),
    "MCP": (MCP, False, True, True),
    "SCAD": (mossp.SCAD(0.5, 3.0), False, True, True),
    "LogSum": (mossp.LogSum(0.5, 0.5), False, True, True),
    "TransformedL1": (mossp.TransformedL1(0.5, 1.0), False, True, True),
    "TruncatedL1": (TOP, False, False, True),
    "TruncatedL1MinusL2": (mossp.TruncatedL1MinusL2(0.5, 1), False, False, True),
    "Group of L1": (mossp.Group(L1, PAIRS), True, True, True),
    "Group of L1MinusL2": (mossp.Group(L12, PAIRS), False, False, True),
    "Group of MCP": (mossp.Group(MCP, PAIRS), False, True, True),
    "Ball of a Group": (mossp.Ball(mossp.Group(L1, PAIRS), 1.0), True, True, False),
    "Nonnegative": (mossp.Nonnegative(L1), True, True, False),
    "Nonnegative L1MinusL2": (mossp.Nonnegative(L12), False, False, False),
    "Box of MCP": (mossp.Box(MCP, -1.0, 2.0), False, True, False),
    "Ball of L1MinusL2": (mossp.Ball(L12, 1.0), False, False, False),
    "Weighted MCP": (mossp.Weighted(MCP, WEIGHTS), False, True, True),
    "Weighted L1": (mossp.Weighted(L1, WEIGHTS), True, True, True),
    "Weighted L1MinusL2": (mossp.Weighted(L12, WEIGHTS), False, False, True),
    "Weighted TruncatedL1": (mossp.Weighted(TOP, np.sign(WEIGHTS)), False, False, True),
    "Weighted Nonnegative": (mossp.Weighted(mossp.Nonnegative(L1), WEIGHTS), True, True, False),
    "Blocks, smooth": (mossp.Blocks({"u": L1, "v": MCP}), False, True, True),
    "Blocks, convex": (mossp.Blocks({"u": L1}), True, True, True),
    "Blocks, one with kinks": (mossp.Blocks({"u": MCP, "v": L12}), False, False, True),
    "Blocks, one in a box": (mossp.Blocks({"v": mossp.Box(L1, 0.0, 1.0)}), True, True, False),
}


def points():
    """Generic points, and all where some entries are zero, equal in size or at a kink."""
    special = np.array(np.meshgrid(*[[0.0, 1.0, -0.5]] * 4)).reshape(4, -1).T
    return np.concatenate([special, np.random.default_rng(1).normal(size=(10, 4)) * 2.0])


@pytest.mark.parametrize("name", SAYS)
def test_what_a_regulariser_says_is_so(name):
    reg, convex, smooth, finite = SAYS[name]
    flat = reg.on({"u": (0, 2), "v": (2, 4)})
    for r in (reg, flat):
        assert (r.convex, r.smooth, r.finite) == (convex, smooth, finite)
    directions = np.random.default_rng(2).normal(size=(3, 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    t, at = 1e-6, points()
    g = np.array([float(flat.g(x)) for x in at])
    kink = max(
        float(flat.g(x + t * v)) + float(flat.g(x - t * v)) - 2 * value
        for x, value in zip(at, g, strict=True) for v in directions
    ) / t  # fmt: skip
    assert (np.abs(g).max() == 0) == convex
    assert kink < 1e-4 if smooth else kink > 1e-2  # of a smooth g it is t times a curvature
    far = [float(flat.h(scale * x)) for x in at for scale in (1.0, 10.0)]
    assert np.isfinite(far).all() == finite


def test_an_indicator_inside_of_a_group():
    """It is infinite somewhere, and says so."""
    reg = mossp.Group(mossp.Ball(L1, 1.0), PAIRS)
    assert not reg.finite and reg.h(np.full(4, 9.0)) == np.inf


PENALTIES = {
    "mossp-r": "GrowingPenalty()", "mossp-p": "GrowingPenalty()", "spdc-r": "GrowingPenalty()",
    "mossp-al": "ScaledPenalty(rho=20.0)", "salm-p": "ScaledPenalty(rho=5.0)",
    "mlalm": "ScaledPenalty(rho=20.0)", "clcdc-alm": "ScaledPenalty(rho=20.0)",
    "ssl-alm": "ScaledPenalty(rho=20.0)",
    "sqp-dc": "NoPenalty()", "imba-dc": "NoPenalty()", "scp-ls": "NoPenalty()",
}  # fmt: skip


@pytest.mark.parametrize("name", PENALTIES)
def test_a_method_says_what_it_does_with_a_penalty(name):
    method = METHODS[name]()
    assert repr(method.penalty) == PENALTIES[name]
    if method.exact:
        assert not isinstance(method.penalty, GrowingPenalty) and method.momentum.vanishing
    assert method.exact == (name in ("clcdc-alm", "imba-dc", "scp-ls"))
