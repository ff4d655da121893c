"""Every regulariser: proximal maps, nearest subgradients, wrappers, values, compilation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from mossp.regularizers import (
    L1,
    MCP,
    SCAD,
    Ball,
    Blocks,
    Box,
    CappedL1,
    ElasticNet,
    Group,
    L1MinusL2,
    LogSum,
    Nonnegative,
    PlusRidge,
    Regularizer,
    Relaxed,
    Ridge,
    TransformedL1,
    TruncatedL1,
    TruncatedL1MinusL2,
    Weighted,
    Zero,
    check_regularizer,
    named,
)
from mossp.regularizers.strength import strengthened, with_strength
from tests.problems import brute_prox

N = 6
W = np.array([1.0, 0.0, 2.0, 0.5, 1.0, 3.0])
MASK = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
IDS = np.array([0, 1, 0, 2, 1, 2])

PLAIN = {
    "Zero": Zero(),
    "L1": L1(0.7),
    "Ridge": Ridge(0.7),
    "ElasticNet": ElasticNet(0.7, 0.4),
    "PlusRidge-MCP": PlusRidge(MCP(0.7, 2.0), 0.3),
    "PlusRidge-TruncatedL1": PlusRidge(TruncatedL1(0.7, 2), 0.3),
    "L1MinusL2": L1MinusL2(0.7),
    "CappedL1": CappedL1(0.7, 1.0),
    "MCP": MCP(0.7, 2.0),
    "SCAD": SCAD(0.7),
    "LogSum": LogSum(0.7, 0.5),
    "TransformedL1": TransformedL1(0.7, 0.8),
    "TruncatedL1": TruncatedL1(0.7, 2),
    "TruncatedL1-0": TruncatedL1(0.7, 0),
    "TruncatedL1-all": TruncatedL1(0.7, 9),
    "TruncatedL1MinusL2": TruncatedL1MinusL2(0.7, 2),
    "TruncatedL1MinusL2-0": TruncatedL1MinusL2(0.7, 0),
    "TruncatedL1MinusL2-all": TruncatedL1MinusL2(0.7, 9),
}
WRAPPED = {
    "Nonnegative-L1MinusL2": Nonnegative(L1MinusL2(0.7)),
    "Nonnegative-Group": Nonnegative(Group(L1MinusL2(0.7), IDS)),
    "Box-CappedL1": Box(CappedL1(0.7, 1.0), -1.0, np.array([0.0, 1.0, 2.0, 1.0, np.inf, 3.0])),
    "Box-Nonnegative": Box(Nonnegative(L1(0.7)), 0.0, 1.0),
    "Ball-L1": Ball(L1(0.7), 2.0),
    "Ball-Zero": Ball(Zero(), 1.0),
    "Ball-Nonnegative": Ball(Nonnegative(TruncatedL1(0.7, 2)), 2.0),
    "Ball-Group": Ball(Group(MCP(0.7), IDS), 2.0),
    "Nonnegative-Ball": Nonnegative(Ball(L1MinusL2(0.7), 2.0)),
    "Weighted-L1": Weighted(L1(0.7), W),
    "Weighted-MCP": Weighted(MCP(0.7), W),
    "Weighted-CappedL1": Weighted(CappedL1(0.7), W),
    "Weighted-TransformedL1": Weighted(TransformedL1(0.7), W),
    "Weighted-L1MinusL2": Weighted(L1MinusL2(0.7), W),
    "Weighted-TruncatedL1": Weighted(TruncatedL1(0.7, 2), MASK),
    "Weighted-TruncatedL1MinusL2": Weighted(TruncatedL1MinusL2(0.7, 1), MASK),
    "Weighted-Nonnegative": Weighted(Nonnegative(SCAD(0.7)), W),
    "Weighted-Weighted": Weighted(Weighted(LogSum(0.7), W), W),
    "Nonnegative-Weighted": Nonnegative(Weighted(L1MinusL2(0.7), W)),
    "Group-Weighted": Group(Weighted(L1MinusL2(0.7), np.array([1.0, 0.0, 2.0])), IDS),
    "Weighted-Ridge": Weighted(Ridge(0.7), W),
    "Weighted-ElasticNet": Weighted(ElasticNet(0.7, 0.4), W),
    "Weighted-PlusRidge": Weighted(PlusRidge(L1MinusL2(0.7), 0.5), W),
    "PlusRidge-Weighted": PlusRidge(Weighted(MCP(0.7), W), W[::-1].copy()),
    "Group-ElasticNet": Group(Weighted(ElasticNet(0.7), np.array([1.0, 0.0, 2.0])), IDS),
    "PlusRidge-Ball": PlusRidge(Ball(L1MinusL2(0.7), 2.0), 0.5),
    "PlusRidge-Group": PlusRidge(Group(L1(0.7), IDS), 0.5),
    "PlusRidge-PlusRidge": PlusRidge(ElasticNet(0.7), 0.5),
    "Nonnegative-ElasticNet": Nonnegative(ElasticNet(0.7)),
    "Nonnegative-Weighted-Ridge": Nonnegative(Weighted(Ridge(0.7), W)),
    "Box-ElasticNet": Box(ElasticNet(0.7), -1.0, np.array([0.0, 1.0, 2.0, 1.0, np.inf, 3.0])),
    "Box-PlusRidge": Box(PlusRidge(CappedL1(0.7), W), -1.0, 1.0),
    "Blocks": Blocks({"b": L1MinusL2(0.7), "d": TruncatedL1(0.7, 1)}).on(
        {"a": (0, 1), "b": (1, 3), "c": (3, 4), "d": (4, 6)}
    ),
}
GROUPED = {
    f"Group-{name}": Group(PLAIN[name], IDS)
    for name in (
        "L1MinusL2",
        "CappedL1",
        "MCP",
        "TruncatedL1",
        "TruncatedL1MinusL2",
        "Ridge",
        "ElasticNet",
        "PlusRidge-MCP",
    )
}
ALL = PLAIN | WRAPPED | GROUPED
# Another k is the same program.
PROGRAMS = [name for name in ALL if not name.endswith(("-0", "-all"))]


def points(reg, count=30, seed=3):
    """Points of the domain of h, with zeros, ties, bounds and kinks among them."""
    rng = np.random.default_rng(seed)
    for trial in range(count):
        x = rng.normal(size=N) * rng.choice([0.5, 2.0])
        if trial % 2:
            x = np.round(x)
        if trial % 3 == 0:
            x[rng.random(N) < 0.6] = 0.0
        if trial % 5 == 0:
            x[:] = rng.choice([-1.0, 0.0, 1.0], size=N)
        if trial % 7 == 0:
            x = rng.choice([-1.0, 1.0], size=N) * rng.permutation([2.0, 1.0, 1.0, 1.0, 0.0, 0.0])
        yield np.asarray(reg.prox_h(x, 0.0)) + 0.0, rng.normal(size=N) * rng.choice([0.3, 1.0, 3.0])


@pytest.mark.parametrize("name", ALL)
def test_check_finds_nothing(name):
    check_regularizer(ALL[name], n=N, trials=12)


@pytest.mark.parametrize("name", ALL)
def test_nearest_subgradients_equal_the_limit_of_the_proximal_maps(name):
    """Regularizer's own nearest_* uses the proximal maps only; the exact formulas override it."""
    reg = ALL[name]
    for x, w in points(reg):
        for exact, limit in (
            (reg.nearest_h(x, w), Regularizer.nearest_h(reg, x, w)),
            (reg.nearest_g(x, w), Regularizer.nearest_g(reg, x, w)),
        ):
            assert np.allclose(exact, limit, atol=3e-6), (x, w)


@pytest.mark.parametrize("name", ALL)
def test_nearest_point_of_the_difference_of_subdifferentials(name):
    """The answer is in dh - dg, by directional derivatives, and no element of it is nearer."""
    reg, rng = ALL[name], np.random.default_rng(0)
    for x, v in points(reg, 10):
        q = reg.nearest(x, v)
        for _ in range(8):
            d = rng.normal(size=N) * (rng.random(N) < 0.5)
            t = 1e-7
            slope = (reg.h(x + t * d) - reg.h(x)) / t + (reg.g(x - t * d) - reg.g(x)) / t
            assert q @ d <= slope + 1e-5
            far = 5 * rng.normal(size=(2, N))
            s = reg.nearest_h(x, far[0]) - reg.nearest_g(x, far[1])
            assert (v - q) @ (s - q) <= 1e-6


@pytest.mark.parametrize("name", ALL)
def test_subgradient_is_an_element_of_the_subdifferential(name):
    reg = ALL[name]
    for x, _ in points(reg):
        s = reg.subgradient_g(x)
        assert np.allclose(reg.nearest_g(x, s), s, atol=1e-13)


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_and_batched_equal_numpy(name):
    reg = ALL[name]

    def everything(reg, v, mu):
        x = reg.prox_h(v, mu)
        return (
            x, reg.prox_g(v, mu), reg.subgradient_g(v), reg.nearest_h(x, v), reg.nearest_g(v, x),
            jnp.asarray(reg.h(x)), jnp.asarray(reg.g(v)), jnp.asarray(reg(x)),
        )  # fmt: skip

    with jax.enable_x64(True):
        vs = np.stack([x for x, _ in points(reg, 4, seed=5)])
        batch = jax.jit(jax.vmap(everything, (None, 0, None)))(reg, vs, 0.3)
        for i, v in enumerate(vs):
            for ours, eager in zip(batch, everything(reg, v, 0.3), strict=True):
                assert np.allclose(ours[i], eager, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ALL)
def test_numpy_in_numpy_out_and_dtype_kept(name):
    reg = ALL[name]
    v = np.linspace(-2, 2, N).astype(np.float32)
    x = reg.prox_h(v, 0.3)
    for answer in (x, reg.prox_g(v, 0.3), reg.subgradient_g(v), reg.nearest(x, v)):
        assert isinstance(answer, np.ndarray)
        assert answer.dtype == np.float32
    assert np.isfinite(reg(x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_finite_at_zero_and_ties(name):
    reg = ALL[name]
    gradient = jax.jit(
        jax.grad(lambda x: reg.g(x) + reg.prox_g(x, 0.5).sum() + reg.prox_h(x, 0.5).sum())
    )
    for x in (np.zeros(N), np.ones(N), np.array([1.0, -1.0, 0.0, 0.0, 1.0, 2.0])):
        assert np.isfinite(gradient(jnp.asarray(x, jnp.float32))).all()


@pytest.mark.parametrize(
    "make", [L1, L1MinusL2, MCP, Ridge, ElasticNet, lambda lam: TruncatedL1(lam, 2)]
)
def test_many_lam_at_once_without_compiling_again(make):
    v = np.array([2.0, -1.0, 0.5, 0.0, 1.0, 1.0], np.float32)
    traces = []

    @jax.jit
    def step(reg, v):
        traces.append(1)
        return reg.prox_g(reg.prox_h(v, 0.3), 0.3)

    lams = jnp.array([0.0, 0.5, 2.0])
    many = jax.vmap(lambda lam: make(lam).prox_g(make(lam).prox_h(v, 0.3), 0.3))(lams)
    for lam, row in zip(lams, many, strict=True):
        assert np.allclose(step(make(float(lam)), v), row, atol=1e-6)
    assert len(traces) == 1


def test_values_equal_the_penalties_they_are_named_after():
    x = np.array([0.0, 0.4, -1.3, 2.5, -0.9, 7.0])
    a, lam = np.abs(x), 0.7
    assert CappedL1(lam, 1.2)(x) == pytest.approx(lam * np.minimum(a, 1.2).sum())
    assert LogSum(lam, 0.4)(x) == pytest.approx(lam * np.log1p(a / 0.4).sum())
    assert TransformedL1(lam, 0.6)(x) == pytest.approx(lam * (1.6 * a / (0.6 + a)).sum())
    flat = np.where(a <= 2 * lam, lam * a - a**2 / 4, lam**2)
    assert MCP(lam, 2.0)(x) == pytest.approx(flat.sum())
    middle = (2 * 3.7 * lam * a - a**2 - lam**2) / (2 * 2.7)
    scad = np.where(a <= lam, lam * a, np.where(a <= 3.7 * lam, middle, lam**2 * 4.7 / 2))
    assert SCAD(lam)(x) == pytest.approx(scad.sum())
    assert Ridge(lam)(x) == pytest.approx(lam * (x @ x) / 2)
    assert ElasticNet(lam, 0.2)(x) == pytest.approx(lam * (0.2 * a.sum() + 0.4 * (x @ x)))
    assert PlusRidge(MCP(lam, 2.0), 0.3)(x) == pytest.approx(flat.sum() + 0.15 * (x @ x))
    assert Weighted(ElasticNet(lam, 0.2), W)(x) == pytest.approx(
        lam * (0.2 * (W @ a) + 0.4 * (W @ x**2))
    )
    rest = np.sort(a)[:-2]
    assert TruncatedL1(lam, 2)(x) == pytest.approx(lam * rest.sum())
    expected = lam * (rest.sum() - np.linalg.norm(rest))
    assert TruncatedL1MinusL2(lam, 2)(x) == pytest.approx(expected)
    expected = lam * ((W * a).sum() - np.linalg.norm(W * a))
    assert Weighted(L1MinusL2(lam), W)(x) == pytest.approx(expected)
    radii = [np.linalg.norm(x[i]) for i in ([0, 2], [1, 4], [3, 5])]
    assert Group(L1(lam), IDS)(x) == pytest.approx(lam * sum(radii))


def test_h_is_infinite_outside_the_constraints_and_finite_on_their_boundary():
    x = np.array([1.0, -1.0])
    assert Nonnegative(L1(1.0)).h(x) == np.inf
    assert Box(L1(1.0), -0.5, 2.0).h(x) == np.inf
    assert Box(L1(1.0), -1.0, 1.0).h(x) == 2.0
    assert Ball(L1(1.0), 1.0).h(x) == np.inf
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        ball = Ball(L1(0.1), 3.0)
        p = ball.prox_h((50 * rng.normal(size=2000)).astype(dtype), 1.0)
        assert np.isfinite(ball.h(p))
        assert ball.nearest_h(p, 9 * p) @ p > 20  # the multiplier of the ball is seen


def test_weights_zero_leave_a_coordinate_alone():
    v = np.array([3.0, -3.0, 3.0, 1.0, 0.5, 2.0])
    for reg in (
        Weighted(MCP(5.0), W),
        Weighted(L1MinusL2(5.0), W),
        Weighted(TruncatedL1(5.0, 1), MASK),
    ):
        assert reg.prox_h(v, 1.0)[1] == v[1]
        assert reg.prox_g(v, 1.0)[1] == v[1]
        assert reg.prox_h(v, 1.0)[0] == 0.0


def test_groups_given_as_lists_or_as_numbers():
    v = np.arange(1.0, 7.0)
    lists = Group(L1(1.0), [[0, 2], [1, 4], [3, 5]])
    assert np.array_equal(lists.prox_h(v, 2.0), Group(L1(1.0), IDS).prox_h(v, 2.0))
    assert np.array_equal(lists.prox_h(v, 2.0), Group(L1(1.0), 10 * IDS + 3).prox_h(v, 2.0))


def test_blocks_take_and_return_pytrees():
    x = {
        "layers": [{"w": np.ones((2, 2)), "b": np.array([1.0, -2.0])}, {"w": np.full(3, 0.1)}],
        "scale": np.array(5.0),
    }
    reg = Blocks({"layers/0": L1MinusL2(0.5), "layers/1/w": L1(1.0)})
    p = reg.prox_h(x, 1.0)
    assert jax.tree.structure(p) == jax.tree.structure(x)
    assert np.array_equal(p["layers"][0]["w"], np.full((2, 2), 0.5))
    assert np.array_equal(p["layers"][1]["w"], np.zeros(3))
    assert p["scale"] == 5.0
    subtree = np.array([1.0, -2.0, 1, 1, 1, 1])
    assert reg.g(x) == pytest.approx(0.5 * np.linalg.norm(subtree))
    flat = reg.on(
        {"layers/0/b": (0, 2), "layers/0/w": (2, 6), "layers/1/w": (6, 9), "scale": (9, 10)}
    )
    vector = np.asarray(ravel_pytree(x)[0])
    for ours, theirs in (
        (reg.prox_g(x, 0.5), flat.prox_g(vector, 0.5)),
        (reg.subgradient_g(x), flat.subgradient_g(vector)),
        (reg.nearest(x, x), flat.nearest(vector, vector)),
    ):
        assert np.allclose(ravel_pytree(ours)[0], theirs, atol=1e-6)
    assert flat.subgradient_g(vector)[9] == 0.0
    compiled = jax.jit(lambda reg, x: reg.prox_g(x, 0.5))(reg, x)
    assert np.allclose(compiled["layers"][0]["w"], reg.prox_g(x, 0.5)["layers"][0]["w"], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: L1(-1.0), r"L1 needs lam >= 0, but lam = -1.0 was given."),
        (lambda: L1(float("nan")), "L1 needs lam >= 0"),
        (lambda: L1("0.1"), "L1 needs lam >= 0, but lam = '0.1'"),
        (lambda: L1MinusL2(jnp.array(-1.0)), "L1MinusL2 needs lam >= 0"),
        (lambda: CappedL1(1.0, 0.0), "CappedL1 needs theta > 0"),
        (lambda: MCP(1.0, -2.0), "MCP needs gamma > 0"),
        (lambda: SCAD(1.0, 2.0), "SCAD needs a > 2"),
        (lambda: LogSum(1.0, np.float64(-1)), "LogSum needs theta > 0"),
        (lambda: TransformedL1(1.0, 0), "TransformedL1 needs a > 0"),
        (lambda: TruncatedL1(1.0, 1.5), "whole number k"),
        (lambda: TruncatedL1MinusL2(1.0, -1), "whole number k"),
        (lambda: Weighted(L1(1.0), [1.0, -1.0]), "Weighted needs weights >= 0"),
        (lambda: Weighted(TruncatedL1(1.0, 1), [1.0, 2.0]), "only the weights 0 and 1"),
        (lambda: Weighted(Group(L1(1.0), [0, 1]), [1.0, 2.0]), "a weight a group"),
        (lambda: Weighted(L1(1.0), [1.0]).h(np.ones(2)), r"shape \(1,\)"),
        (lambda: Group(L1(1.0), [0.5, 1.0]), "whole numbers"),
        (lambda: Group(L1(1.0), [[0, 1], [1, 2]]), "exactly one"),
        (lambda: Group(L1(1.0), [0, 1]).h(np.ones(3)), "2 coordinates"),
        (lambda: Group(Nonnegative(L1(1.0)), [0, 1]), "around Group"),
        (lambda: Box(Group(L1(1.0), [0, 1]), 0, 1), "Box needs .* sum over the coordinates"),
        (lambda: Box(L1(1.0), 1.0, 0.0), "lower <= upper"),
        (lambda: Ball(Box(L1(1.0), 0, 1), 1.0), "Ball needs .* a norm"),
        (lambda: Ball(L1(1.0), 0.0), "Ball needs radius > 0"),
        (lambda: Ball(Ridge(1.0), 1.0), r"Ball needs .* a norm.* Write PlusRidge\(Ball"),
        (lambda: Ridge(-1.0), "Ridge needs lam >= 0"),
        (lambda: ElasticNet(1.0, 1.5), "ElasticNet needs l1_ratio from 0 to 1"),
        (lambda: PlusRidge(L1(1.0), [1.0, -1.0]), "PlusRidge needs l2 >= 0"),
        (lambda: PlusRidge(Blocks({"w": L1(1.0)}), 1.0), "around the regulariser of each block"),
        (lambda: PlusRidge(Ball(L1(1.0), 1.0), [1.0, 2.0]), "one number l2 .* Ball"),
        (lambda: Weighted(PlusRidge(Ball(L1(1.0), 1.0), 1.0), [1.0, 2.0]), "weights inside"),
        (lambda: Nonnegative(Box(L1(1.0), 0, 1)), "Nonnegative needs"),
        (lambda: Blocks({"w": 3.0}), "Blocks needs a regulariser"),
        (lambda: Blocks({"a": L1(1.0), "a/b": L1(1.0)}), "'a/b' is inside 'a'"),
        (lambda: Blocks({"v": L1(1.0)}).h({"w": np.ones(2), "b": np.ones(1)}), "'v'.*'b', 'w'"),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class Elastic(Regularizer):
    """lam |x|_1 + |x|^2/2 minus lam |x|_2, as a user would write it."""

    lam: float

    def h(self, x):
        return self.lam * jnp.abs(x).sum() + (x @ x) / 2

    def g(self, x):
        return self.lam * jnp.sqrt(x @ x)

    def prox_h(self, v, mu):
        return jnp.sign(v) * jnp.maximum(jnp.abs(v) - mu * self.lam, 0) / (1 + mu)

    def prox_g(self, v, mu):
        return v * jnp.maximum(1 - mu * self.lam / jnp.maximum(jnp.sqrt(v @ v), 1e-300), 0)

    def subgradient_g(self, x):
        return self.lam * x / jnp.maximum(jnp.sqrt(x @ x), 1e-300)


def test_a_users_class_gets_the_rest_for_free():
    reg = Elastic(0.5)
    check_regularizer(reg)
    with jax.enable_x64(True):
        x, v = np.array([1.0, 0.0, -2.0]), np.array([0.3, 0.2, 0.1])
        s = 0.5 * np.sign(x) + x - 0.5 * x / np.linalg.norm(x)
        s[1] = v[1]
        assert np.allclose(reg.nearest(x, v), s, atol=1e-6)
        assert float(reg(x)) == pytest.approx(1.5 + 2.5 - 0.5 * np.sqrt(5))
        q = np.asarray(reg.nearest(np.zeros(3), np.array([3.0, 0.0, 0.0])))
        assert np.allclose(q, [1.0, 0.0, 0.0], atol=1e-6)


def planted(method, mistake):
    return type("Planted", (Elastic,), {method: mistake})(0.5)


@pytest.mark.parametrize(
    ("method", "mistake", "words"),
    [
        (
            "prox_h",
            lambda self, v, mu: jnp.sign(v) * jnp.maximum(jnp.abs(v) - mu, 0),
            "prox_h is wrong",
        ),
        ("prox_h", lambda self, v, mu: Elastic.prox_h(self, v, 1.001 * mu), "prox_h is wrong"),
        ("prox_g", lambda self, v, mu: v, "prox_g is wrong: at v = .* mu = .* by "),
        ("prox_g", lambda self, v, mu: v * np.nan, "prox_g must return finite"),
        ("prox_g", lambda self, v, mu: v[:2], "prox_g must return a vector of shape"),
        ("g", lambda self, x: self.lam * jnp.sqrt(jnp.abs(x)).sum(), "g is not convex"),
        ("g", lambda self, x: 0.9 * Elastic.g(self, x), "prox_g is wrong"),
        ("g", lambda self, x: self.lam * jnp.abs(x), "g.x. must be a single number"),
        ("subgradient_g", lambda self, x: 0.5 * self.lam * x, "subgradient_g is wrong"),
        ("subgradient_g", lambda self, x: self.lam * jnp.ones_like(x), "subgradient_g is wrong"),
        ("subgradient_g", lambda self, x: x / jnp.sqrt(x @ x), "subgradient_g"),
    ],
)
def test_check_finds_planted_mistakes(method, mistake, words):
    with pytest.raises(ValueError, match=words):
        check_regularizer(planted(method, mistake))


def test_check_finds_a_function_that_is_not_convex():
    """The map is a true minimiser (hard thresholding), so only convexity is at fault."""

    class Counting(L1):
        def h(self, x):
            return 1.0 * np.count_nonzero(x)

        def prox_h(self, v, mu):
            return np.where(v * v > 2 * mu, v, 0.0)

    with pytest.raises(ValueError, match="not convex"):
        check_regularizer(Counting(1.0))


def test_check_finds_a_proximal_map_that_leaves_the_domain():
    class Leaky(Nonnegative):
        def prox_h(self, v, mu):
            return self.reg.prox_h(v, mu)

    with pytest.raises(ValueError, match="where h is infinite"):
        check_regularizer(Leaky(L1(0.1)))


def test_regularizers_by_name():
    assert named("mcp:0.1,4") == MCP(0.1, 4.0) and named("none") == Zero()
    assert named("l1").lam == 0.01 and named("l1:0.5", 0.2).lam == 0.2
    assert named("truncated-l1:0.1,3") == TruncatedL1(0.1, 3)
    assert named("ridge:0.3") == Ridge(0.3) and named("elastic-net", 0.2) == ElasticNet(0.2, 0.5)
    assert named("elastic-net:0.1,0.9", 0.2) == ElasticNet(0.2, 0.9)
    for text, says in {
        "l1-l3": "Did you mean",
        "l2": "Did you mean 'ridge'",
        "L2:0.1": "Did you mean 'ridge'",
        "lasso": "Did you mean 'l1'",
        "elasticnet": "Did you mean 'elastic-net'",
        "truncated-l1:0.1": "does not suit TruncatedL1",
        "truncated-l1:0.1,2.5": "must be whole",
        "l1:0.1,2": "has 2 numbers",
        "l1:-1": "lam >= 0",
        "none:1": "does not suit Zero",
    }.items():
        with pytest.raises(ValueError, match=says):
            named(text)


def test_relaxed_is_the_convex_part():
    reg = MCP(0.5, 2.0)
    relaxed, x, w = Relaxed(reg), np.array([3.0, 0.0, -0.2]), np.array([0.1, 0.2, -3.0])
    assert relaxed.convex and float(relaxed.g(x)) == 0 and float(relaxed(x)) == float(reg.h(x))
    np.testing.assert_array_equal(relaxed.prox_h(x, 0.5), reg.prox_h(x, 0.5))
    np.testing.assert_array_equal(relaxed.nearest_h(x, w), reg.nearest_h(x, w))
    assert not relaxed.subgradient_g(x).any() and not relaxed.nearest_g(x, w).any()
    np.testing.assert_array_equal(relaxed.prox_g(x, 0.5), x)
    half = Relaxed(reg, 0.5)
    assert float(half.h(x)) == 0.5 * float(reg.h(x))
    np.testing.assert_allclose(half.prox_h(x, 1.0), reg.prox_h(x, 0.5))
    np.testing.assert_allclose(half.nearest_h(x, w), 0.5 * reg.nearest_h(x, 2 * w))


def test_what_a_strength_moves_where_there_is_a_ridge():
    assert with_strength(Nonnegative(Ridge(0.1)), 2.0) == Nonnegative(Ridge(2.0))
    assert with_strength(ElasticNet(0.1, 0.3), 2.0) == ElasticNet(2.0, 0.3)
    assert with_strength(PlusRidge(MCP(0.1), 0.3), 2.0) == PlusRidge(MCP(2.0), 0.3)
    assert strengthened(PlusRidge(ElasticNet(0.1), 0.3), 3.0).reg.lam == pytest.approx(0.3)
    with pytest.raises(ValueError, match="PlusRidge has no lam"):
        with_strength(PlusRidge(Zero(), 0.3), 2.0)


def test_what_a_ridge_leaves_of_what_wrappers_and_methods_must_know():
    """h + l2 |x|^2 / 2 stays a sum over coordinates of sizes; it is no norm any more."""
    for reg in (Ridge(1.0), ElasticNet(1.0), PlusRidge(MCP(1.0), 0.5)):
        assert reg.separable and reg.absolute and reg.finite and reg.smooth
        assert not reg.homogeneous and not Weighted(reg, W).homogeneous
    assert Ridge(1.0).convex and ElasticNet(1.0).convex
    assert not PlusRidge(MCP(1.0), 0.5).convex and not PlusRidge(CappedL1(1.0), 0.5).smooth
    assert not PlusRidge(Ball(L1(1.0), 1.0), 0.5).finite


@pytest.mark.parametrize(
    ("reg", "phi"),
    [
        (Ridge(0.8), lambda a: 0.4 * a**2),
        (ElasticNet(0.8, 0.25), lambda a: 0.2 * abs(a) + 0.3 * a**2),
        (PlusRidge(L1(0.5), 2.0), lambda a: 0.5 * abs(a) + a**2),
    ],
    ids=["Ridge", "ElasticNet", "PlusRidge"],
)
def test_a_ridge_against_brute_force(reg, phi):
    for v in (-3.0, -0.3, 0.0, 0.7, 5.0):
        for mu in (0.05, 1.0, 20.0):
            found = reg.prox_h(np.array([v]), mu)[0]
            assert found == pytest.approx(brute_prox(phi, v, mu)[0], abs=1e-7)


def test_a_ridge_of_strength_zero_is_none():
    v = np.array([2.0, -1.0, 0.5, 0.0, 1.0, 1.0])
    for reg in (L1(0.7), MCP(0.7), Ball(L1(0.7), 1.0)):
        assert np.array_equal(PlusRidge(reg, 0.0).prox_h(v, 0.3), reg.prox_h(v, 0.3))
        assert np.array_equal(PlusRidge(reg, 0.0).nearest_h(v, v), reg.nearest_h(v, v))
