"""Schedules: the orders of the paper's results, the conditions of its proofs, the rules' names."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mossp
from mossp.measuring.step_sizes import retune_steps, violation_target
from mossp.schedules import (
    RULES,
    Auto,
    Constant,
    Corollary,
    Indexed,
    Paper,
    Schedule,
    Theorem,
    as_rule,
    with_alpha,
)

POLYAK, RECURSIVE = mossp.Polyak(), mossp.Recursive()
CONSTANTS = mossp.Constants(L_f=1.5, L_batch=4.0, sigma=1.0, G=1.0, G_c=2.0, C=0.5, L_c=2.0)
RESULTS = {  # exponents of K in rho, mu, alpha and b0; the exponent of ||c(x0)||^2
    "Theorem 3.1": (Theorem, POLYAK, (1 / 4, -1 / 2, -1 / 2, 0), -1 / 4),
    "Theorem 3.2": (Theorem, RECURSIVE, (1 / 3, -1 / 3, -2 / 3, 1 / 3), -1 / 3),
    "Corollary 3.1": (Corollary, POLYAK, (1 / 5, -2 / 5, -2 / 5, 0), None),
    "Corollary 3.2": (Corollary, RECURSIVE, (1 / 4, -1 / 4, -1 / 2, 0), None),
}


def slope(Ks, values):
    return np.polyfit(np.log(Ks), np.log(values), 1)[0]


# Orders -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RESULTS)
def test_orders_in_K(name):
    make, momentum, (r, m, a, b), feasible = RESULTS[name]
    Ks = 10.0 ** np.arange(3, 10)
    rule = make(rho0=0.7)
    made = [rule.schedule(momentum, int(K), CONSTANTS) for K in Ks]
    assert slope(Ks, [s.rho for s in made]) == pytest.approx(r, abs=1e-9)
    assert slope(Ks, [s.mu for s in made]) == pytest.approx(m, abs=1e-9)
    assert slope(Ks, [s.alpha for s in made]) == pytest.approx(a, abs=1e-9)
    assert slope(Ks, [rule.b0(momentum, int(K)) for K in Ks]) == pytest.approx(b, abs=5e-3)
    enough = [rule.feasible_enough(momentum, int(K)) for K in Ks]
    if feasible is None:
        assert enough == [math.inf] * len(Ks)
    else:
        assert slope(Ks, np.square(enough)) == pytest.approx(feasible, abs=1e-9)


OTHERS = (mossp.Plain(), mossp.SVRG(), mossp.Full(), mossp.Truncated(mossp.SVRG(), 1.0))


@pytest.mark.parametrize("momentum", OTHERS, ids=str)
@pytest.mark.parametrize("rule", [Theorem(), Corollary(), Indexed(), Paper()], ids=str)
def test_estimators_that_no_theorem_speaks_of_get_the_orders_that_ask_least(rule, momentum):
    """Two gradients a step do not make SVRG recursive: Theorem 3.2 proves nothing of it."""
    K = 10**6
    assert rule.schedule(momentum, K, CONSTANTS) == rule.schedule(POLYAK, K, CONSTANTS)
    assert rule.b0(momentum, K) == rule.b0(POLYAK, K) == 1
    assert rule.feasible_enough(momentum, K) == rule.feasible_enough(POLYAK, K)


def test_a_truncated_estimator_is_of_the_kind_of_the_one_inside():
    rule, K = Theorem(), 10**6
    for inner in (POLYAK, RECURSIVE):
        made = rule.schedule(mossp.Truncated(inner, 1.0), K, CONSTANTS)
        assert made == rule.schedule(inner, K, CONSTANTS)


@pytest.mark.parametrize("name", RESULTS)
def test_parameters_do_not_change_along_a_run(name, x64):
    make, momentum, _, _ = RESULTS[name]
    schedule = make().schedule(momentum, 5000, CONSTANTS)
    for k in (0, 1, 77, 4999):
        now = schedule.at(k)
        assert (now.mu, now.rho, now.alpha) == (schedule.mu, schedule.rho, schedule.alpha)


def test_values_of_the_theorems():
    """The formulas of the paper, written out."""
    K, rho0, mu0 = 4096, 0.5, 0.1
    M = max(1.5, 1.5 / rho0 + 2.0**2 + 0.5 * 2.0)
    p = Theorem(rho0=rho0, mu0=mu0, alpha0=9.0).schedule(POLYAK, K, CONSTANTS)
    assert p.rho == pytest.approx(rho0 * K**0.25, rel=1e-13)
    assert p.mu == pytest.approx(mu0 / (K**0.5 * M), rel=1e-13)
    assert p.alpha == pytest.approx(9.0 * mu0 / K**0.5, rel=1e-13)
    r = Theorem(rho0=rho0, mu0=mu0, alpha0=2.0).schedule(RECURSIVE, K, CONSTANTS)
    assert r.rho == pytest.approx(rho0 * 16, rel=1e-13)
    assert r.mu == pytest.approx(mu0 / (16 * M), rel=1e-13)
    assert r.alpha == pytest.approx(16 * 2.0 * mu0**2 / 256, rel=1e-13)
    assert Theorem().b0(RECURSIVE, K) == 16
    assert Theorem().b0(POLYAK, K) == Corollary().b0(RECURSIVE, K) == 1


def test_given_constants_take_the_place_of_estimates():
    other = CONSTANTS._replace(L_f=30.0, G_c=9.0)
    for rule in (Theorem, Corollary, Indexed, Paper):
        with_given = rule(constants=other).schedule(RECURSIVE, 10**6, CONSTANTS)
        assert with_given == rule().schedule(RECURSIVE, 10**6, other)
        assert with_given.mu != rule().schedule(RECURSIVE, 10**6, CONSTANTS).mu


# Conditions of the proofs -----------------------------------------------------------------

positive = st.floats(1e-3, 1e3)
some = st.builds(
    lambda L_f, G_c, C, L_c: mossp.Constants(L_f, 2 * L_f, 1.0, 1.0, G_c, C, L_c),
    positive, st.floats(0, 1e2), st.floats(0, 1e2), st.floats(0, 1e2),
)  # fmt: skip


def smoothness(constants, rho):
    """L_rho = L_f + rho (G_c^2 + C L_c), of Q_rho itself rather than the paper's bound."""
    return constants.L_f + rho * (constants.G_c**2 + constants.C * constants.L_c)


def produced(rule, momentum, K, constants):
    try:
        return rule.schedule(momentum, K, constants)
    except ValueError as error:
        assert "alpha < 1" in str(error)  # the only way in which the defaults may fail
        assume(False)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(some, positive, st.integers(1, 10**8), st.booleans())
def test_conditions_of_the_polyak_proof(constants, rho0, K, feasible):
    s = produced(Theorem(rho0=rho0, feasible=feasible), POLYAK, K, constants)
    slack = 1 + 1e-9
    paper = s.rho * constants.L_tilde(rho0)
    assert s.mu * paper <= 0.25 * slack
    assert s.mu * smoothness(constants, s.rho) <= 0.25 * slack
    assert 1 / s.alpha <= slack / (2 * s.mu)
    assert paper + 2 * constants.L_f**2 / s.alpha <= 3 / (8 * s.mu) * slack
    assert 0 < s.alpha < 1


@settings(derandomize=True, deadline=None, max_examples=300)
@given(some, positive, st.integers(1, 10**8), st.booleans())
def test_conditions_of_the_recursive_proof(constants, rho0, K, feasible):
    s = produced(Theorem(rho0=rho0, feasible=feasible), RECURSIVE, K, constants)
    slack = 1 + 1e-9
    assert s.mu * s.rho * constants.L_tilde(rho0) <= 0.25 * slack
    assert s.mu * smoothness(constants, s.rho) <= 0.25 * slack
    assert 0 < 32 * s.mu**2 * constants.L_f**2 <= s.alpha * slack
    assert s.alpha < 1


@settings(derandomize=True, deadline=None, max_examples=100)
@given(some, positive, st.floats(0.01, 1.0), st.floats(1.0, 100.0), st.booleans())
def test_conditions_hold_for_whatever_is_accepted(constants, rho0, share, factor, recursive):
    """mu0 below its bound, alpha0 above its own."""
    momentum = RECURSIVE if recursive else POLYAK
    M = constants.L_max(rho0)
    L_f = constants.L_f
    mu0 = share / 4 * min(1 / rho0, M / (math.sqrt(2) * L_f) if recursive else 1 / L_f)
    alpha0 = factor * (2 * L_f**2 / M**2 if recursive else 2 * max(1, 8 * L_f**2) / M)
    try:
        s = Theorem(rho0=rho0, mu0=mu0, alpha0=alpha0).schedule(momentum, 10**6, constants)
    except ValueError as error:
        too_large = recursive and alpha0 > 1 / (16 * mu0**2)
        assert "alpha0" in str(error) if too_large else "alpha < 1" in str(error)
        return
    slack = 1 + 1e-9
    assert s.mu * s.rho * constants.L_tilde(rho0) <= 0.25 * slack
    if recursive:
        assert 32 * s.mu**2 * L_f**2 <= s.alpha * slack <= slack
    else:
        assert 2 * s.mu <= s.alpha * slack
        assert s.mu * (s.rho * constants.L_tilde(rho0) + 2 * L_f**2 / s.alpha) <= 0.375 * slack


at = jax.jit(lambda schedule, k: schedule.at(k))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(some, positive, st.booleans())
def test_indexed_is_monotone_and_stable_at_every_step(constants, rho0, recursive):
    momentum = RECURSIVE if recursive else POLYAK
    s = Indexed(rho0=rho0).schedule(momentum, 1, constants)
    with jax.enable_x64(True):
        now = at(s, np.array([0, 1, 2, 5, 10, 100, 10**4, 10**7, 10**12]))
        now = jax.tree.map(np.asarray, now)
    assert (np.diff(now.rho) > 0).all()
    assert (np.diff(now.mu) < 0).all()
    assert (np.diff(now.alpha) < 0).all()
    assert (now.alpha > 0).all()
    assert now.alpha[0] == 1.0
    assert (now.mu * smoothness(constants, now.rho) <= 0.25 * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", ["Corollary 3.1", "Corollary 3.2"])
def test_orders_of_indexed(name, x64):
    _, momentum, (r, m, a, _), _ = RESULTS[name]
    s = Indexed(rho0=2.0, mu0=0.01, alpha0=0.5).schedule(momentum, 7, CONSTANTS)
    t = 10.0 ** np.arange(0, 7)
    now = s.at(t - 1)
    assert slope(t, now.rho) == pytest.approx(r, abs=1e-9)
    assert slope(t, now.mu) == pytest.approx(m, abs=1e-9)
    assert slope(t, now.alpha) == pytest.approx(a, abs=1e-9)
    assert (now.rho[0], now.mu[0], now.alpha[0]) == (2.0, 0.01, 0.5)
    assert not Indexed().needs_K
    assert Indexed().b0(momentum, 10**6) == 1


def test_indexed_alpha_never_exceeds_one(x64):
    s = Indexed(alpha0=5.0).schedule(RECURSIVE, 10, CONSTANTS)
    assert s.at(0).alpha == s.at(23).alpha == 1.0
    assert s.at(99).alpha == pytest.approx(0.5, rel=1e-12)


# Losses without curvature -------------------------------------------------------------------


@pytest.mark.parametrize("make", [Theorem, Corollary])
def test_recursive_momentum_needs_a_positive_alpha(make):
    """A linear loss: with alpha = 0 the noise of d_0 would stay for ever."""
    linear = CONSTANTS._replace(L_f=0.0)
    s = make().schedule(RECURSIVE, 1000, linear)
    assert 0 < s.alpha < 1


@pytest.mark.parametrize("name", ["theorem", "corollary", "indexed", "paper"])
@pytest.mark.parametrize("momentum", [POLYAK, RECURSIVE])
def test_a_problem_without_curvature_has_a_finite_step(name, momentum):
    """A linear loss, kept bounded by a Ball or a Box: every constant but G is 0."""
    zero = mossp.Constants(L_f=0.0, L_batch=0.0, sigma=1.0, G=1.0, G_c=0.0, C=0.0, L_c=0.0)
    s = RULES[name].schedule(momentum, 1000, zero)
    with jax.enable_x64(True):
        now = jax.tree.map(np.asarray, s.at(0))
    assert 0 < now.mu < 1e30
    assert 0 < now.alpha <= 1


# Errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [POLYAK, RECURSIVE])
def test_mu0_and_alpha0_outside_are_refused(momentum):
    def make(**changes):
        return Theorem(**changes).schedule(momentum, 10**6, CONSTANTS)

    M = CONSTANTS.L_max(1.0)
    polyak = momentum is POLYAK
    most = min(1 / 4, 1 / (4 * 1.5) if polyak else M / (4 * math.sqrt(2) * 1.5))
    least = 2 * max(1, 8 * 1.5**2) / M if polyak else 2 * 1.5**2 / M**2
    make(mu0=most * 0.999, alpha0=least * 1.001)
    with pytest.raises(ValueError, match="mu0 <= "):
        make(mu0=most * 1.001)
    with pytest.raises(ValueError, match="<= alpha0 <="):
        make(alpha0=least * 0.999)
    if polyak:
        with pytest.raises(ValueError, match=r"alpha < 1.*K = 1000000"):
            make(alpha0=1e4 / most)
    else:
        make(mu0=most, alpha0=0.999 / (16 * most**2))
        with pytest.raises(ValueError, match="<= alpha0 <="):
            make(mu0=most, alpha0=1.001 / (16 * most**2))


def test_too_few_steps_for_alpha_below_one():
    steep = CONSTANTS._replace(L_f=10.0)
    with pytest.raises(ValueError, match="alpha < 1, but K = 2 steps"):
        Theorem().schedule(POLYAK, 2, steep)
    assert Theorem().schedule(POLYAK, 100, steep).alpha < 1


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize(
    "make, name",
    [
        *((Theorem, name) for name in ("rho0", "mu0", "alpha0")),
        *((Corollary, name) for name in ("rho0", "mu0", "alpha0")),
        *((Indexed, name) for name in ("rho0", "mu0", "alpha0")),
        *((Paper, name) for name in ("rho0", "mu0")),
    ],
)
def test_settings_that_are_not_positive_are_refused(make, name, bad):
    with pytest.raises(ValueError, match=name):
        make(**{name: bad})


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"mu": 0.0}, "mu > 0"),
        ({"mu": -1.0}, "mu > 0"),
        ({"mu": float("nan")}, "mu > 0"),
        ({"rho": -1.0}, "rho"),
        ({"alpha": 0.0}, "0 < alpha <= 1"),
        ({"alpha": 1.1}, "0 < alpha <= 1"),
    ],
)
def test_constant_outside_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        Constant(**{"rho": 1.0, "mu": 0.1, "alpha": 0.5, **changes})


def test_constant_is_constant(x64):
    rule = Constant(rho=3.0, mu=0.2, alpha=0.4)
    assert not rule.needs_K
    assert rule.b0(RECURSIVE, 10**6) == 1
    schedule = rule.schedule(RECURSIVE, 10, CONSTANTS)
    for k in (0, 9, 10**6):
        assert tuple(map(float, schedule.at(k))) == (0.2, 3.0, 0.4, 0.2)
    apart = Constant(rho=3.0, mu=0.2, eta=0.05).schedule(RECURSIVE, 10, CONSTANTS)
    assert (float(apart.at(5).mu), float(apart.at(5).eta)) == (0.2, 0.05)
    assert Constant(rho=0.0, mu=1.0).alpha == 1.0  # no constraint, no momentum


# The paper's experiments, auto, names -------------------------------------------------------


def test_two_readings_of_the_papers_momentum():
    for momentum, alpha in ((POLYAK, 0.905), (RECURSIVE, 0.9)):
        literal = Paper().schedule(momentum, 10**4, CONSTANTS)
        averaging = Paper(averaging=True).schedule(momentum, 10**4, CONSTANTS)
        assert literal.alpha == alpha
        assert averaging.alpha == pytest.approx(1 - alpha, abs=1e-15)
        assert (literal.rho, literal.mu) == (averaging.rho, averaging.mu)
    assert RULES["paper"] == Paper()
    assert RULES["paper-averaging"] == Paper(averaging=True)


@pytest.mark.parametrize("name", ["Theorem 3.1", "Theorem 3.2"])
def test_the_papers_experiments_take_the_theorems_orders(name):
    _, momentum, (r, m, _, _), _ = RESULTS[name]
    Ks = 10.0 ** np.arange(3, 9)
    made = [Paper(rho0=2.0, mu0=0.3).schedule(momentum, int(K), CONSTANTS) for K in Ks]
    assert slope(Ks, [s.rho for s in made]) == pytest.approx(r, abs=1e-9)
    assert slope(Ks, [s.mu for s in made]) == pytest.approx(m, abs=1e-9)
    stable = Paper().schedule(momentum, 10**4, CONSTANTS)
    bend = CONSTANTS.G_c**2 + CONSTANTS.C * CONSTANTS.L_c
    assert stable.mu * (CONSTANTS.L_batch + stable.rho * bend) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("K", [10, 200, 10_000, 1_000_000])
def test_auto_settles(K, x64):
    """alpha is 0.1 for half of the run and falls geometrically to 20 / K, or not at all."""
    s = Auto().schedule(RECURSIVE, K, None)
    s = s.__class__(**{**vars(s), "mu": jnp.asarray(0.3), "mu_end": jnp.asarray(0.01)})
    now = s.at(np.arange(K))
    alpha, mu = np.asarray(now.alpha), np.asarray(now.mu)
    half = K // 2
    np.testing.assert_allclose(alpha[:half], 0.1, rtol=1e-14)
    np.testing.assert_allclose(mu[:half], 0.3, rtol=1e-14)
    assert alpha[-1] == pytest.approx(0.1 * min(1, 200 / K), rel=1e-12)
    assert mu[-1] == pytest.approx(0.003, rel=1e-12)
    for values in (alpha, mu):
        logs = np.log(values[half - 1 :])
        np.testing.assert_allclose(np.diff(logs), (logs[-1] - logs[0]) / (K - half), atol=1e-12)
    after = s.at(10 * K)  # it stays where it has settled
    assert (after.alpha, after.mu) == (alpha[-1], mu[-1])


def test_auto_measures_again_at_steps_that_depend_on_K_alone():
    for K in (1, 2, 50, 10_000):
        at = retune_steps(K)
        assert at[0] == 0
        assert all(a < b for a, b in itertools.pairwise(at))
        assert at[-1] < K
    assert violation_target(1e-2, 100) == 2.5e-3
    assert violation_target(1e-2, 10**8) == pytest.approx(2.5e-4, rel=1e-12)


def test_with_alpha(x64):
    schedule = Schedule(
        rho=1.0, mu=0.1, alpha=0.5, alpha_power=-0.5, alpha_end=0.1, settle_from=5.0, settled=10.0
    )
    assert with_alpha(schedule, mossp.Plain()) is schedule
    assert with_alpha(schedule, POLYAK) is schedule
    own = with_alpha(schedule, mossp.Polyak(0.25))
    for k in (0, 7, 100):
        assert own.at(k).alpha == 0.25
        assert own.at(k).mu == schedule.at(k).mu
    assert with_alpha(schedule, mossp.Truncated(mossp.Recursive(0.2), 1.0)).at(50).alpha == 0.2


def test_names():
    assert set(RULES) == {
        "auto", "theorem", "corollary", "indexed", "paper", "paper-averaging", "two-phase",
        "alacaoglu-wright", "lu-mei-xiao", "measured",
    }  # fmt: skip
    for name, rule in RULES.items():
        assert as_rule(name) is rule
        assert as_rule(rule) is rule
    assert as_rule("corollary").orders(POLYAK) == (1 / 5, 2 / 5, 2 / 5)
    for bad in ("theorems", 3, None, Theorem):
        with pytest.raises(ValueError, match="schedule must be one of 'auto'"):
            as_rule(bad)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_needs_K_refuses_a_budget_in_seconds(name):
    problem = mossp.Problem(lambda x: x @ x, equality=lambda x: x @ x - 1.0)
    if RULES[name].needs_K:
        with pytest.raises(ValueError, match=r"number of steps.*seconds.*'indexed'"):
            mossp.solve(problem, np.ones(2), method="mossp-r", schedule=name, seconds=0.01)
    else:
        assert name in ("indexed", "alacaoglu-wright", "lu-mei-xiao", "measured")
        result = mossp.solve(problem, np.ones(2), schedule=name, seconds=0.1)
        assert result.steps > 0


def test_a_rule_that_needs_K_takes_steps_and_seconds():
    problem = mossp.Problem(lambda x: x @ x, equality=lambda x: x @ x - 1.0)
    result = mossp.solve(problem, np.ones(2), schedule="theorem", steps=50, seconds=60.0)
    assert result.steps == 50


def test_b0_is_paid_for():
    """K^{1/3} samples before the first step, besides its own, in whole mini-batches."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    problem = mossp.Problem(
        lambda x, b: jnp.mean((b @ x - 1.0) ** 2), X, equality=lambda x: x @ x - 1.0
    )
    x0 = np.array([1.0, 0.0])
    result = mossp.solve(problem, x0, method="mossp-r", schedule="theorem", steps=512, batch_size=3)
    assert result.gradients == 2 * 3 * 512 + (9 - 3)  # ceil(8 / 3) batches, one of them a step's
