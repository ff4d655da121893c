"""Smoothed parts: convex, above what they smooth by no more than is said, and differentiable."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mossp import smoothing

RNG = np.random.default_rng(0)
DELTAS = [0.5, 0.02]

# (smoothed, exact, how far above in units of delta) as functions of a vector
PARTS = {
    "positive_part": (
        lambda t, d: jnp.sum(smoothing.positive_part(t, d)),
        lambda t: np.maximum(t, 0).sum(), 5 * np.log(2),
    ),
    "absolute": (lambda t, d: jnp.sum(smoothing.absolute(t, d)), lambda t: np.abs(t).sum(), 5),
    "maximum": (lambda t, d: smoothing.maximum(t, d), lambda t: t.max(), np.log(5)),
    "top_k_sum": (
        lambda t, d: smoothing.top_k_sum(t, 2, d), lambda t: np.sort(t)[-2:].sum(), 5 * np.log(2),
    ),
    "top_k_sum of a fraction": (
        lambda t, d: smoothing.top_k_sum(t, 1.25, d),
        lambda t: np.sort(t)[-1] + 0.25 * np.sort(t)[-2], 5 * np.log(2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts_against_their_definition(name):
    part, exact, above = PARTS[name]
    with jax.enable_x64(True):
        T = RNG.normal(size=(20, 5))
        np.testing.assert_allclose([part(t, 0.0) for t in T], [exact(t) for t in T], rtol=1e-12)
        for delta in DELTAS:
            values = np.array([part(jnp.asarray(t), jnp.asarray(delta)) for t in T])
            gap = values - [exact(t) for t in T]
            assert (gap > -1e-12).all() and (gap <= above * delta + 1e-12).all()
            middle = part(jnp.asarray(T[0] + T[1]) / 2, jnp.asarray(delta))
            assert middle <= (values[0] + values[1]) / 2 + 1e-12


@pytest.mark.parametrize("name", PARTS)
def test_derivatives_against_differences(name):
    part = PARTS[name][0]
    with jax.enable_x64(True):
        f = lambda t: part(t, jnp.asarray(0.3))  # noqa: E731
        t, e = jnp.asarray(RNG.normal(size=5)), jnp.asarray(RNG.normal(size=5))
        slope = (f(t + 1e-5 * e) - f(t - 1e-5 * e)) / 2e-5
        np.testing.assert_allclose(jax.grad(f)(t) @ e, slope, rtol=1e-7)
        bend = (jax.grad(f)(t + 1e-5 * e) - jax.grad(f)(t - 1e-5 * e)) / 2e-5
        np.testing.assert_allclose(jax.hessian(f)(t) @ e, bend, rtol=1e-5, atol=1e-8)


def test_wrong_input_gets_a_sentence():
    with pytest.raises(ValueError, match="0 < k < n"):
        smoothing.top_k_sum(jnp.ones(3), 3)
    with pytest.raises(ValueError, match="first >= last"):
        smoothing.Smoothable(lambda x, delta: 0.0, first=0.1, last=1.0)
    with pytest.raises(TypeError, match="needs a function"):
        smoothing.Smooth(3.0)
