"""Gradient estimators against their formulas, and the rule for the first b0 samples."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.engine import steps
from mossp.estimators import GradientEstimator
from mossp.schedules import Constant, Parameters, with_alpha

pytestmark = pytest.mark.usefixtures("x64")

N, n, B = 9, 4, 3


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, n)), rng.normal(size=N)


def problem(**settings):
    return mossp.Problem(
        lambda x, batch: jnp.mean(jnp.log(1 + (batch[0] @ x - batch[1]) ** 2)), data(), **settings
    )


def numpy_gradient(x, rows):
    X, y = data()
    r = X[rows] @ x - y[rows]
    return X[rows].T @ (2 * r / (1 + r**2)) / len(rows)


def update(momentum):
    """The estimator's update on given rows of the data, compiled."""
    oracles = problem().oracles(np.zeros(n))

    @jax.jit
    def apply(memory, x, rows, alpha):
        batch = oracles.source.batch(rows, B)
        return momentum.update(lambda x: oracles.gradient(x, batch), memory, x, alpha)

    return apply


def path(count=12):
    rng = np.random.default_rng(1)
    xs, rows = rng.normal(size=(count, n)), rng.integers(0, N, (count, B))
    return xs, rows, rng.uniform(0.05, 1.0, count), rng.normal(size=n)


# Formulas ---------------------------------------------------------------------------------


def test_plain_is_the_gradient():
    apply, (xs, rows, alphas, d) = update(mossp.Plain()), path()
    memory = mossp.Plain().init(d, xs[0])
    for x, r, alpha in zip(xs, rows, alphas, strict=True):
        d, memory = apply(memory, x, r, alpha)
        np.testing.assert_allclose(d, numpy_gradient(x, r), rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(memory.d, d)


def test_polyak_against_numpy():
    apply, (xs, rows, alphas, d) = update(mossp.Polyak()), path()
    memory, expected = mossp.Polyak().init(d, xs[0]), d
    for x, r, alpha in zip(xs, rows, alphas, strict=True):
        d, memory = apply(memory, x, r, alpha)
        expected = (1 - alpha) * expected + alpha * numpy_gradient(x, r)
        np.testing.assert_allclose(d, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(memory.d, d)


def test_recursive_against_numpy():
    apply, (xs, rows, alphas, d) = update(mossp.Recursive()), path()
    memory, expected, before = mossp.Recursive().init(d, xs[3]), d, xs[3]
    for x, r, alpha in zip(xs, rows, alphas, strict=True):
        d, memory = apply(memory, x, r, alpha)
        old = expected - numpy_gradient(before, r)
        expected, before = numpy_gradient(x, r) + (1 - alpha) * old, x
        np.testing.assert_allclose(d, expected, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(memory.x, x)


@pytest.mark.parametrize("radius", [1e-3, 0.3, 1e6])
@pytest.mark.parametrize("inner", [mossp.Plain(), mossp.Polyak(), mossp.Recursive()])
def test_truncated_is_a_projection(inner, radius):
    momentum = mossp.Truncated(inner, radius)
    assert momentum.gradients == inner.gradients
    apply, free, (xs, rows, alphas, d) = update(momentum), update(inner), path()
    memory = momentum.init(d, xs[0])
    for x, r, alpha in zip(xs, rows, alphas, strict=True):
        whole, _ = free(memory, x, r, alpha)
        d, memory = apply(memory, x, r, alpha)
        length = np.linalg.norm(whole)
        assert np.linalg.norm(d) <= radius * (1 + 1e-12)
        np.testing.assert_allclose(d, whole * min(1, radius / length), rtol=1e-12)
        np.testing.assert_array_equal(memory.d, d)


def test_truncated_zero_stays_zero():
    momentum = mossp.Truncated(mossp.Plain(), 1.0)
    zero = jnp.zeros(n)
    d, _ = momentum.update(lambda x: zero, momentum.init(zero, zero), zero, 1.0)
    np.testing.assert_array_equal(d, zero)


def test_svrg_at_its_anchor_is_the_full_gradient():
    oracles = problem().oracles(np.zeros(n))
    momentum, (xs, rows, _, d) = mossp.SVRG(), path()
    apply = update(momentum)
    memory = momentum.refresh(oracles.full_gradient, momentum.init(d, xs[0]), jnp.asarray(xs[1]))
    np.testing.assert_array_equal(memory.w, xs[1])
    full = numpy_gradient(xs[1], np.arange(N))
    np.testing.assert_allclose(memory.G, full, rtol=1e-12)
    for r in rows:
        got, after = apply(memory, xs[1], r, 0.3)
        np.testing.assert_allclose(got, full, rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(after.w, memory.w)
        np.testing.assert_array_equal(after.G, memory.G)


@pytest.mark.parametrize("size", [1, 2])
def test_svrg_is_unbiased_over_all_batches(size):
    oracles = problem().oracles(np.zeros(n))
    momentum, (xs, _, _, d) = mossp.SVRG(), path()
    memory = momentum.refresh(oracles.full_gradient, momentum.init(d, xs[0]), jnp.asarray(xs[1]))
    every = np.array(list(itertools.product(range(N), repeat=size)))
    assert len(every) == N**size

    @jax.jit
    @jax.vmap
    def estimate(rows):
        batch = oracles.source.batch(rows, size)
        return momentum.update(lambda x: oracles.gradient(x, batch), memory, xs[2], 1.0)[0]

    estimates = np.asarray(estimate(every))
    full = numpy_gradient(xs[2], np.arange(N))
    np.testing.assert_allclose(estimates.mean(axis=0), full, rtol=1e-11)
    assert estimates.std(axis=0).max() > 1e-3  # and yet no estimate is exact


# Equivalences, through whole steps of MoSSP ----------------------------------------------------


def run(momentum, alpha, count=25):
    """The points of some steps of MoSSP on fixed mini-batches."""
    oracles = problem(regularizer=mossp.L1MinusL2(0.05), equality=lambda x: x @ x - 1.0).oracles(
        np.zeros(n)
    )
    method = mossp.MoSSP(momentum=momentum, beta=0.8)
    rows = np.random.default_rng(5).integers(0, N, (count, B))

    def step(state, r):
        batch = oracles.source.batch(r, B)
        state = method.step(oracles, Parameters(0.05, 3.0, alpha), state, batch)
        return state, (state.x, state.z, state.memory.d)

    x0 = jnp.linspace(-1.0, 1.0, n)
    start = method.init(oracles, x0, jnp.full(n, 7.0))
    return jax.jit(lambda s: jax.lax.scan(step, s, rows)[1])(start)


@pytest.mark.parametrize("momentum", [mossp.Polyak(), mossp.Recursive()])
def test_alpha_one_is_plain(momentum):
    plain = run(mossp.Plain(), 1.0)
    for ours, theirs in zip(run(momentum, 1.0), plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert np.abs(np.asarray(run(momentum, 0.9)[0]) - np.asarray(plain[0])).max() > 1e-4


def test_a_wide_ball_truncates_nothing():
    for ours, theirs in zip(
        run(mossp.Truncated(mossp.Recursive(), 1e9), 0.3), run(mossp.Recursive(), 0.3), strict=True
    ):
        # Two programs, which the compiler may round apart.
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


# The first step ---------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [mossp.Polyak(), mossp.Recursive()])
@pytest.mark.parametrize("extra", [0, 4])
def test_the_first_estimate_is_the_mean_over_b0_samples(momentum, extra):
    """d_{-1}: the mean over `extra` mini-batches; then one step with alpha = B / b0."""
    posed = problem(equality=lambda x: x @ x - 1.0)
    x0 = jnp.linspace(-1.0, 1.0, n)
    oracles = posed.oracles(x0)
    method = mossp.MoSSP(momentum=momentum)
    context = steps.Context(oracles, jnp.asarray(1 / (1 + extra)))
    schedule = Constant(rho=2.0, mu=0.1, alpha=0.5).schedule(momentum, 10, None)
    each = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (method, schedule))
    rng = np.random.default_rng(3)
    first, later = rng.integers(0, N, (1, 8, B)), rng.integers(0, N, (1, 8, B))
    d0 = steps.first_estimate(oracles, x0, first[0], extra, batch_size=B, full=False)
    carry = steps.start(context, *each, x0[None], d0[None])
    if extra:
        np.testing.assert_allclose(
            carry.state.memory.d[0], numpy_gradient(x0, first[0, :extra].ravel()), rtol=1e-12
        )
    keep = np.array([False])
    carry = steps.advance(context, carry, later, 0, keep, 0, 1, group=1, batch_size=B, shared=False)
    rows = np.concatenate([first[0, :extra].ravel(), later[0, 0]])
    np.testing.assert_allclose(carry.state.memory.d[0], numpy_gradient(x0, rows), rtol=1e-11)
    # The second step takes the schedule's alpha.
    before = carry.state
    carry = steps.advance(context, carry, later, 0, keep, 1, 2, group=1, batch_size=B, shared=False)
    x, d = np.asarray(before.x[0]), np.asarray(before.memory.d[0])
    new = numpy_gradient(x, later[0, 1])
    old = d if isinstance(momentum, mossp.Polyak) else d - numpy_gradient(x0, later[0, 1])
    expected = 0.5 * d + 0.5 * new if isinstance(momentum, mossp.Polyak) else new + 0.5 * old
    np.testing.assert_allclose(carry.state.memory.d[0], expected, rtol=1e-11)


# Validation -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [mossp.Polyak, mossp.Recursive])
@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.5, float("nan"), float("inf"), np.float32(2.0)])
def test_alpha_outside_is_refused(kind, alpha):
    with pytest.raises(ValueError, match="0 < alpha <= 1"):
        kind(alpha)


@pytest.mark.parametrize("kind", [mossp.Polyak, mossp.Recursive])
def test_alpha_inside_is_taken(kind):
    for alpha in (1, 1.0, 1e-6, np.float64(0.3), jnp.asarray(0.3)):
        assert kind(alpha).alpha == alpha
    assert kind().alpha is None
    jax.jit(lambda alpha: kind(alpha).alpha)(0.5)  # a traced alpha cannot be checked


@pytest.mark.parametrize("kind", [mossp.Polyak, mossp.Recursive])
def test_alpha_that_is_no_number_is_refused(kind):
    with pytest.raises((TypeError, ValueError), match="alpha"):
        kind("0.1")


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), np.float32(-1.0), None])
def test_radius_outside_is_refused(radius):
    with pytest.raises((TypeError, ValueError), match="radius"):
        mossp.Truncated(mossp.Plain(), radius)


def test_what_is_no_estimator_is_refused():
    with pytest.raises(TypeError, match="estimator"):
        mossp.MoSSP(momentum="polyak")
    with pytest.raises(TypeError):
        mossp.Truncated("polyak", 1.0)


@pytest.mark.parametrize("epoch", [0, -3])
def test_an_epoch_without_steps_is_refused(epoch):
    with pytest.raises(ValueError, match="epoch"):
        mossp.SVRG(epoch=epoch)


def test_a_truncated_svrg_keeps_its_anchor():
    """Without full gradients at the anchor, SVRG is wrong."""
    momentum = mossp.Truncated(mossp.SVRG(epoch=5), 1e6)
    assert momentum.anchored
    oracles = problem().oracles(np.zeros(n))
    x = jnp.linspace(-1.0, 1.0, n)
    memory = momentum.refresh(oracles.full_gradient, momentum.init(jnp.zeros(n), jnp.zeros(n)), x)
    np.testing.assert_allclose(memory.G, numpy_gradient(np.asarray(x), np.arange(N)), rtol=1e-12)
    assert momentum.epoch == 5


KINDS = {
    mossp.Plain(): ("plain", False, False),
    mossp.Polyak(): ("Polyak", True, False),
    mossp.Recursive(): ("recursive", True, False),
    mossp.SVRG(): ("anchored", True, True),
    mossp.Full(): ("full", False, True),
}


@pytest.mark.parametrize("momentum", KINDS, ids=str)
def test_an_estimator_says_its_kind(momentum):
    for m in (momentum, mossp.Truncated(momentum, 1.0)):
        assert (m.kind.value, m.averages, m.vanishing) == KINDS[momentum]
        assert (m.anchored, m.full) == (m.kind.value == "anchored", m.kind.value == "full")


def test_what_is_claimed_and_assumed_goes_by_the_kind():
    """Theorems 3.1 and 3.2 speak of Polyak and recursive momentum, of nothing else."""
    about = {m.kind.value: mossp.MoSSP(momentum=m).about for m in KINDS}
    claims = {kind: a.complexity for kind, a in about.items()}
    assert claims == {
        "plain": "-", "Polyak": "eps^-4", "recursive": "eps^-3", "anchored": "-", "full": "-"
    }  # fmt: skip
    assumed = {kind: a.assumption for kind, a in about.items()}
    assert assumed == {
        "plain": "L-smooth", "Polyak": "L-smooth", "recursive": "mean-sq.",
        "anchored": "mean-sq.", "full": "full",
    }  # fmt: skip


def test_costs_and_own_alpha():
    assert [m.gradients for m in (mossp.Plain(), mossp.Polyak(), mossp.Recursive())] == [1, 1, 2]
    assert (mossp.SVRG().gradients, mossp.SVRG().anchored) == (2, True)
    assert mossp.Truncated(mossp.Polyak(0.2), 1.0).alpha == 0.2
    schedule = Constant(rho=1.0, mu=0.1, alpha=0.5).schedule(mossp.Polyak(), 5, None)
    for momentum in (mossp.Polyak(0.2), mossp.Truncated(mossp.Recursive(0.2), 1.0)):
        assert isinstance(momentum, GradientEstimator)
        assert with_alpha(schedule, momentum).at(3).alpha == 0.2
    assert with_alpha(schedule, mossp.Polyak()).at(3).alpha == 0.5
