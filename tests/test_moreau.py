"""Envelopes: against brute force, finite differences, and the inequalities of the paper."""

from __future__ import annotations

import numpy as np
import pytest

from mossp import moreau
from mossp.regularizers import MCP, CappedL1, Group, L1MinusL2, Nonnegative, TruncatedL1
from tests.problems import brute_prox

REGS = {
    "L1MinusL2": L1MinusL2(0.6),
    "CappedL1": CappedL1(0.6, 0.5),
    "MCP": MCP(0.6),
    "TruncatedL1": TruncatedL1(0.6, 2),
    "Nonnegative": Nonnegative(L1MinusL2(0.6)),
    "Group": Group(L1MinusL2(0.6), [0, 1, 0, 1, 2]),
}


def draws(count=20):
    rng = np.random.default_rng(2)
    for _ in range(count):
        yield rng.normal(size=5) * 2, 10 ** rng.uniform(-1.5, 1)


def test_envelope_is_the_minimum():
    reg = CappedL1(0.6, 0.5)
    for z, mu in draws():
        z = z[:1]
        _, least = brute_prox(lambda x: reg.g(np.array([x])), z[0], mu)
        assert moreau.envelope(reg.g, reg.prox_g, z, mu) == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("name", REGS)
def test_gradients_match_finite_differences(name):
    reg = REGS[name]
    for z, mu in draws():
        t = 1e-6 * mu
        for value, gradient in (
            (
                lambda z, mu=mu: moreau.difference_of_envelopes(reg, z, mu),
                moreau.difference_gradient(reg, z, mu),
            ),
            (
                lambda z, mu=mu: moreau.envelope(reg.h, reg.prox_h, z, mu),
                moreau.envelope_gradient(reg.prox_h, z, mu),
            ),
        ):
            slopes = [(value(z + t * e) - value(z - t * e)) / (2 * t) for e in np.eye(5)]
            assert np.allclose(slopes, gradient, rtol=1e-5, atol=1e-5 + 1e-8 / mu)


@pytest.mark.parametrize("name", REGS)
def test_difference_lies_between_its_bounds_and_is_smooth(name):
    reg = REGS[name]
    for z, mu in draws():
        low, high = moreau.difference_bounds(reg, z, mu)
        value = moreau.difference_of_envelopes(reg, z, mu)
        assert low - 1e-12 <= value <= high + 1e-12
        other = z[::-1] + 0.1
        step = moreau.difference_gradient(reg, z, mu) - moreau.difference_gradient(reg, other, mu)
        bound = moreau.difference_lipschitz(mu) * np.linalg.norm(z - other)
        assert np.linalg.norm(step) <= bound * (1 + 1e-12)


def test_lipschitz_constant():
    assert moreau.difference_lipschitz(0.25) == 8.0
    assert moreau.difference_lipschitz(0.25, 2.0) == pytest.approx(1.5 / (0.25 - 0.125))
    for mu, m in ((0.0, 0.0), (0.5, 2.0), (-1.0, 0.0)):
        with pytest.raises(ValueError, match="between 0 and 1/m"):
            moreau.difference_lipschitz(mu, m)


def test_a_stationary_point_of_the_smoothed_function_is_critical():
    """At z = x + mu s, s in dh(x) and in dg(x), both proximal points are x and the values agree."""
    reg, mu = L1MinusL2(0.6), 0.7
    x = np.array([0.0, 2.0, 0.0])
    z = x + mu * reg.subgradient_g(x)
    assert np.allclose(reg.prox_h(z, mu), x)
    assert np.allclose(moreau.difference_gradient(reg, z, mu), 0, atol=1e-14)
    assert moreau.difference_of_envelopes(reg, z, mu) == pytest.approx(reg(x), abs=1e-14)


def test_potential_and_its_lower_bound():
    """For Q = |x - t|^2/2 with l1 - l2, where G = lam."""
    reg, target = L1MinusL2(0.6), np.array([0.1, -0.2, 0.0, 0.3, 0.1])

    def Q(x):
        return (x - target) @ (x - target) / 2

    # All |t_i| are below lam, so that F* is reached with one nonzero: there l1 - l2 is 0.
    F_star = min(Q(x) + reg(x) for x in np.diag(target))
    for z, mu in draws():
        x = z + np.random.default_rng(0).normal(size=5)
        value = moreau.potential(Q(x), reg, x, z, mu)
        direct = Q(x) + reg.h(x) + (x - z) @ (x - z) / (2 * mu)
        direct -= moreau.envelope(reg.g, reg.prox_g, z, mu)
        assert value == pytest.approx(direct)
        assert value >= moreau.potential_lower_bound(F_star, 0.6, mu)
        # minimised over x it is the difference of envelopes plus Q at the most
        p = reg.prox_h(z, mu)
        smooth = moreau.difference_of_envelopes(reg, z, mu)
        assert moreau.potential(0.0, reg, p, z, mu) == pytest.approx(smooth, abs=1e-12)
    assert moreau.potential_lower_bound(3.0, 2.0, 0.5) == 2.0
