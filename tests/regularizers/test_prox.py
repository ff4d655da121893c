"""Proximal formulas against brute force, against theory, and in every array library."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mossp.regularizers import prox
from tests.problems import brute_prox, huber

# name: (prox(v, mu), g(a) for a >= 0) with the parameters fixed
LAM, THETA, GAMMA, SCAD_A, TL1_A = 0.8, 0.6, 2.5, 3.1, 0.7


def scad(a):
    bend = np.maximum(a - LAM, 0) ** 2 / (2 * (SCAD_A - 1))
    return np.where(a <= SCAD_A * LAM, bend, LAM * a - (SCAD_A + 1) * LAM**2 / 2)


SCALAR = {
    "soft": (lambda v, mu: prox.soft_threshold(v, mu * LAM), lambda a: LAM * a),
    "capped": (
        lambda v, mu: prox.prox_capped(v, mu, LAM, THETA),
        lambda a: LAM * np.maximum(a - THETA, 0),
    ),
    "huber": (
        lambda v, mu: prox.prox_huber(v, mu, LAM, GAMMA),
        lambda a: huber(a, LAM, GAMMA),
    ),
    "scad": (lambda v, mu: prox.prox_scad(v, mu, LAM, SCAD_A), scad),
    "log_sum": (
        lambda v, mu: prox.prox_log_sum(v, mu, LAM, THETA),
        lambda a: LAM * (a / THETA - np.log1p(a / THETA)),
    ),
    "transformed": (
        lambda v, mu: prox.prox_transformed(v, mu, LAM, TL1_A),
        lambda a: LAM * (TL1_A + 1) * a**2 / (TL1_A * (TL1_A + a)),
    ),
}


def top_k(x, k):
    return np.sort(np.abs(x))[::-1][:k].sum()


def top_k_l2(x, k):
    a = np.sort(np.abs(x))[::-1]
    return a[:k].sum() + np.linalg.norm(a[k:])


def weights(n):
    return np.resize([1.0, 0.3, 0.0, 2.0, 1.0], n)


VECTOR = {
    "l2": (lambda v, t: prox.prox_l2(v, t), np.linalg.norm),
    "weighted_l2": (
        lambda v, t: prox.prox_weighted_l2(v, t, weights(v.shape[0])),
        lambda x: np.linalg.norm(weights(x.size) * x),
    ),
    "top_0": (lambda v, t: prox.prox_top_k(v, t, 0), lambda x: top_k(x, 0)),
    "top_2": (lambda v, t: prox.prox_top_k(v, t, 2), lambda x: top_k(x, 2)),
    "top_all": (lambda v, t: prox.prox_top_k(v, t, 99), lambda x: top_k(x, 99)),
    "top_0_l2": (lambda v, t: prox.prox_top_k_l2(v, t, 0), lambda x: top_k_l2(x, 0)),
    "top_1_l2": (lambda v, t: prox.prox_top_k_l2(v, t, 1), lambda x: top_k_l2(x, 1)),
    "top_3_l2": (lambda v, t: prox.prox_top_k_l2(v, t, 3), lambda x: top_k_l2(x, 3)),
}
ALL = {name: f for name, (f, _) in (SCALAR | VECTOR).items()}
COMPILED = [*SCALAR, "l2", "weighted_l2", "top_2", "top_3_l2"]

# Rounded numbers make ties and zeros common.
entries = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-8, 8, allow_nan=False).map(lambda x: round(x, 2)),
)
vectors = st.lists(entries, min_size=1, max_size=7).map(np.array)
steps = st.floats(-2, 1.5).map(lambda e: 10.0**e)
quick = settings(max_examples=40, deadline=None, derandomize=True)


def proximal_gap(phi, v, p, mu, x):
    """phi(x) + |x-v|^2/2mu - phi(p) - |p-v|^2/2mu - |x-p|^2/2mu: never negative iff p is right."""
    return phi(x) - phi(p) + ((x - p) @ (p - v)) / mu


@pytest.mark.parametrize("name", SCALAR)
def test_scalar_maps_minimise(name):
    f, value = SCALAR[name]
    rng = np.random.default_rng(1)
    for _ in range(40):
        v, mu = rng.normal() * 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1.5, 1.5)
        best, _ = brute_prox(lambda x: value(np.abs(x)), v, mu)
        assert float(f(np.array([v]), mu)[0]) == pytest.approx(best, abs=3e-7)


@pytest.mark.parametrize("name", VECTOR)
@quick
@given(v=vectors, mu=steps, seed=st.integers(0, 10**6))
def test_vector_maps_satisfy_the_subgradient_inequality(name, v, mu, seed):
    f, phi = VECTOR[name]
    p, rng = f(v, mu), np.random.default_rng(seed)
    assert p.shape == v.shape
    trials = [p + s * rng.normal(size=v.shape) for s in (1e-5, 1e-3, 0.1, 1, 5) for _ in range(5)]
    for x in [*trials, v, 0 * v, -p]:
        assert proximal_gap(phi, v, p, mu, x) > -1e-12 * (1 + np.abs(v).max() ** 2 / mu)


@pytest.mark.parametrize("name", ALL)
@quick
@given(u=vectors, seed=st.integers(0, 10**6), mu=steps)
def test_maps_are_firmly_nonexpansive(name, u, seed, mu):
    v = u + np.random.default_rng(seed).normal(size=u.shape)
    p, q = ALL[name](u, mu), ALL[name](v, mu)
    assert (p - q) @ (p - q) <= (p - q) @ (u - v) + 1e-12 * (1 + np.abs(u).max() ** 2)


@quick
@given(v=vectors, t=steps, k=st.integers(0, 5))
def test_moreau_identity_gives_the_dual_projection(v, t, k):
    """The rest v - prox_{t norm}(v) is the projection of v on the dual ball of radius t."""
    size = 1e-12 * (1 + np.abs(v).max())
    d = v - prox.soft_threshold(v, t)
    assert np.allclose(d, np.clip(v, -t, t), atol=size)
    d = v - prox.prox_l2(v, t)
    assert np.allclose(d, v * min(1, t / max(np.linalg.norm(v), 1e-300)), atol=size)
    d = v - prox.prox_top_k(v, t, k)
    assert np.abs(d).max() <= t + size
    assert np.abs(d).sum() <= k * t + 9 * size
    # the projection on the intersection is the identity on it
    assert np.allclose(0.999 * d - prox.prox_top_k(0.999 * d, t, k), 0.999 * d, atol=9 * size)


@quick
@given(v=vectors, t=steps)
def test_special_cases_agree(v, t):
    n = v.size
    assert np.allclose(prox.prox_top_k(v, t, n), prox.soft_threshold(v, t), atol=1e-13)
    assert np.allclose(prox.prox_top_k_l2(v, t, n), prox.soft_threshold(v, t), atol=1e-13)
    assert np.allclose(prox.prox_top_k_l2(v, t, 0), prox.prox_l2(v, t), atol=1e-13)
    equal = prox.prox_weighted_l2(v, t, np.full(n, 2.0))
    assert np.allclose(equal, prox.prox_l2(v, 2 * t), atol=1e-13)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mu", [1e-12, 1e12])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extreme_steps(name, mu, dtype):
    """As mu -> 0 it gives v, as mu -> inf a point where g = 0."""
    v = np.array([1.5, -1.5, 0.0, 0.3, 2.0], dtype)
    p = ALL[name](v, mu)
    assert p.dtype == dtype
    eps = np.finfo(dtype).eps
    if mu < 1:
        assert np.allclose(p, v, rtol=0, atol=1e-11 + 8 * eps)
    else:
        value = SCALAR[name][1](np.abs(p)).sum() if name in SCALAR else VECTOR[name][1](p)
        assert value <= 1e-9 + 8 * eps


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("mu", [0, 0.0, np.float64(0)])
def test_zero_step_returns_v_itself(name, mu):
    v = np.array([1.5, -1.5, 0.0, 0.3, 1e-9, 7e5])
    assert np.array_equal(ALL[name](v, mu), v)


@pytest.mark.parametrize("name", ALL)
def test_nan_is_not_hidden(name):
    assert np.isnan(np.asarray(ALL[name](np.array([1.0, np.nan, 2.0]), 0.5))).any()


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("x64", [True, False])
def test_jax_compiled_equals_numpy(name, x64):
    f = ALL[name]
    with jax.enable_x64(x64):
        v = np.array([3.0, -3.0, 0.0, 0.5, 1.25, 1.25], np.float64 if x64 else np.float32)
        for mu in (0.0, 1e-3, 0.4, 3.0):
            compiled = jax.jit(f)(jnp.asarray(v), mu)
            assert compiled.dtype == v.dtype
            assert np.allclose(compiled, f(v, mu), rtol=0, atol=20 * np.finfo(v.dtype).eps)
        batch = jax.vmap(f, (0, None))(jnp.stack([v, 2 * v]), 0.4)
        assert np.allclose(batch[1], f(2 * v, 0.4), rtol=0, atol=40 * np.finfo(v.dtype).eps)


@pytest.mark.parametrize("name", COMPILED)
def test_derivatives_are_finite_everywhere_and_right_where_smooth(name):
    f = ALL[name]
    with jax.enable_x64(True):
        jacobian = jax.jit(jax.jacrev(f))
        for v in ([0.0] * 5, [1.0, -1.0, 1.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0, 0.0]):
            for mu in (0.0, 0.7):
                assert np.isfinite(jacobian(jnp.array(v), mu)).all()
        v = np.array([3.1, -2.3, 0.37, 1.21, 2.9])
        differences = [(f(v + 1e-6 * e, 0.7) - f(v - 1e-6 * e, 0.7)) / 2e-6 for e in np.eye(v.size)]
        assert np.allclose(jacobian(jnp.array(v), 0.7), np.array(differences).T, atol=1e-7)


def test_transformed_root_is_precise_over_decades():
    rng = np.random.default_rng(0)
    n = 20_000
    v, mu, a = (10 ** rng.uniform(lo, hi, n) for lo, hi in ((-8, 8), (-12, 12), (-2, 2)))
    near = rng.random(n) < 0.5  # where the slope of g nearly balances v, the hardest part
    v[near] = (mu * (a + 1) / a)[near] * (1 + 10 ** rng.uniform(-8, 1, near.sum()))
    x = prox.prox_transformed(v, mu, 1.0, a)
    c = mu * (a + 1)
    terms = np.array([x, c * x * (2 * a + x) / (a * (a + x) ** 2), -v])
    assert np.all(np.abs(terms.sum(0)) <= 8 * np.finfo(float).eps * np.abs(terms).sum(0))


def test_log_sum_root_is_precise_over_decades():
    rng = np.random.default_rng(0)
    v, mu, theta = (10 ** rng.uniform(lo, hi, 20_000) for lo, hi in ((-8, 8), (-12, 12), (-2, 2)))
    x = prox.prox_log_sum(v, mu, 1.0, theta)
    terms = np.array([x, mu * x / (theta * (theta + x)), -v])
    assert np.all(np.abs(terms.sum(0)) <= 8 * np.finfo(float).eps * np.abs(terms).sum(0))


def test_weighted_l2_root_is_precise_over_decades():
    rng = np.random.default_rng(0)
    nonzero = 0
    for _ in range(300):
        w, v = 10 ** rng.uniform(-3, 3, 8), rng.normal(size=8) * 10 ** rng.uniform(-3, 3, 8)
        t = 10 ** rng.uniform(-6, 3)
        x = prox.prox_weighted_l2(v, t, w)
        if np.any(x):
            nonzero += 1
            size = np.linalg.norm(w * x)
            assert np.allclose(x + t * w**2 * x / size, v, rtol=1e-9, atol=1e-13 * abs(v).max())
        else:
            assert np.linalg.norm(v / w) <= t
    assert 50 < nonzero < 290


def test_lam_may_be_traced_while_v_is_numpy():
    v = np.array([3.0, -1.0, 0.5], np.float32)
    many = jax.vmap(lambda lam: prox.prox_top_k_l2(v, lam, 1))(jnp.array([0.0, 0.5]))
    assert np.allclose(many[0], v)
    assert np.allclose(many[1], prox.prox_top_k_l2(v, 0.5, 1), atol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_torch_tensors(name):
    torch = pytest.importorskip("torch", reason="torch is an optional dependency")
    v = np.array([3.0, -3.0, 0.0, 0.5, 1.25])
    p = ALL[name](torch.as_tensor(v), 0.4)
    assert isinstance(p, torch.Tensor)
    assert np.allclose(p.numpy(), ALL[name](v, 0.4), atol=1e-13)
