"""Constraints that are means over rows: exact on finite data, honest on samples without end.

With f(x) = mean_i |x - t_i|^2 / 2 and the constraint mean_i a_i'x <= b the answer is that of the
plane of the mean row, which is known: x = t - q a, q the positive part of (a't - b) / |a|^2.
"""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp.data import Joint, Rows
from tests.compilations import compilations, compiled_by

N, n, BOUND = 300, 4, 0.5
RNG = np.random.default_rng(3)
T = np.array([1.5, -1.0, 0.8, 0.2]) + 0.3 * RNG.standard_normal((N, n))
A = np.array([1.0, -0.5, 0.5, 0.0]) + RNG.standard_normal((N, n))
OTHER = A[:200]  # rows of a constraint's own


def distance(x, batch):
    return 0.5 * jnp.mean(jnp.sum((x - batch[0]) ** 2, axis=1))


def mean_of(x, batch):
    return jnp.mean(batch[1] @ x) - BOUND


def mean_of_own(x, rows):
    return jnp.mean(rows @ x) - BOUND


def ball(x):
    return x @ x - 9.0


def projected(a, t=None, equality=False):
    """The nearest point to t with a'x <= b (or = b); t is the mean row unless given."""
    t = T.mean(axis=0) if t is None else t
    q = (a @ t - BOUND) / (a @ a)
    return t - (q if equality else max(q, 0.0)) * a


def solve(problem, x0=None, **settings):
    return mossp.solve(problem, np.zeros(n) if x0 is None else x0, **settings)


ASKED = {
    "the problem's rows": ({"inequality": mossp.Expected(mean_of)}, A),
    "rows of its own": ({"inequality": mossp.Expected(mean_of_own, data=OTHER)}, OTHER),
    "sparse rows": (
        {"inequality": mossp.Expected(mean_of_own, scipy.sparse.csr_matrix(OTHER))}, OTHER
    ),
    "an equality": ({"equality": mossp.Expected(mean_of, batch_size=50)}, A),
    "a dict": ({"inequality": {"ball": ball, "mean": mossp.Expected(mean_of)}}, A),
    "a list": ({"inequality": [mossp.Expected(mean_of), ball]}, A),
    "a vector": (
        {"inequality": mossp.Expected(lambda x, b: jnp.stack([mean_of(x, b), x[0] - 50.0]))}, A
    ),
    "a dict of values": (
        {"inequality": mossp.Expected(lambda x, b: {"m": mean_of(x, b), "x": x[1:] - 50.0})}, A
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", ASKED)
def test_exact_on_finite_data(how):
    constraints, rows = ASKED[how]
    found = solve(mossp.Problem(distance, (T, A), **constraints))
    assert found.success and found.tol == 1e-10, found.message
    expected = projected(rows.mean(axis=0), equality="equality" in constraints)
    np.testing.assert_allclose(found.x, expected, atol=1e-9)
    # Full gradients ended it: each pass differentiates the constraints with the loss.
    assert found.values == 0 and found.gradients >= found.steps * len(T) > 0


def test_multipliers_carry_the_names_of_mixed_constraints():
    problem = mossp.Problem(distance, (T, A), **ASKED["a dict"][0])
    multipliers = solve(problem).certificate.multipliers["inequality"]
    a = A.mean(axis=0)
    assert set(multipliers) == {"ball", "mean"} and multipliers["ball"] == 0
    np.testing.assert_allclose(multipliers["mean"], (a @ T.mean(axis=0) - BOUND) / (a @ a))


def test_x_may_be_any_tree_and_single_precision():
    problem = mossp.Problem(
        lambda x, b: distance(x["w"], b),
        (T, A),
        mossp.L1(1e-3),
        inequality=mossp.Expected(lambda x, b: mean_of(x["w"], b)),
    )
    found = solve(problem, {"w": np.zeros(n)}, dtype="float32")
    assert found.success, found.message
    double = solve(problem, {"w": np.zeros(n)})
    np.testing.assert_allclose(found.x["w"], double.x["w"], atol=1e-4)


def test_a_deterministic_loss_under_a_sampled_constraint():
    target = np.array([1.5, -1.0, 0.8, 0.2])
    found = solve(
        mossp.Problem(
            lambda x: 0.5 * jnp.sum((x - target) ** 2),
            inequality=mossp.Expected(mean_of_own, data=A),
        )
    )
    assert found.success, found.message
    np.testing.assert_allclose(found.x, projected(A.mean(axis=0), target), atol=1e-9)


def test_curved_constraints_and_a_concave_part_agree_with_an_independent_solver():
    """A Neyman-Pearson problem; SLSQP on the smooth one, and exact zeros with l1 - l2."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(600, 5)), np.ones(600)]
    y = np.sign(X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=600))
    miss, alarm = X[y > 0], X[y < 0]

    def loss(x, rows):
        return jnp.mean(jax.nn.softplus(-(rows @ x)))

    def rate(x, rows):
        return jnp.mean(jax.nn.sigmoid(rows @ x)) - 0.1

    def posed(regularizer):
        constraint = mossp.Expected(rate, data=alarm)
        return mossp.Problem(loss, miss, regularizer, inequality={"alarm": constraint})

    found = solve(posed(None), np.zeros(6))
    with jax.enable_x64(True):
        value = jax.jit(jax.value_and_grad(lambda x: loss(x, jnp.asarray(miss))))
        bound = jax.jit(jax.value_and_grad(lambda x: -rate(x, jnp.asarray(alarm))))
        reference = minimize(
            lambda x: tuple(map(np.asarray, value(x))), np.zeros(6), jac=True, method="SLSQP",
            constraints={"type": "ineq", "fun": lambda x: float(bound(x)[0]),
                         "jac": lambda x: np.asarray(bound(x)[1])},
            options={"ftol": 1e-14, "maxiter": 500},
        )  # fmt: skip
    assert found.success and found.fun <= reference.fun + 1e-8
    sparse = posed(mossp.L1MinusL2(0.1))
    found = solve(sparse, np.zeros(6))
    assert found.success and 0 < np.count_nonzero(found.x) < 6
    assert mossp.stationarity(sparse, found.x) <= 1e-9
    moved = mossp.restore(sparse, 1.1 * found.x)
    assert np.mean(1 / (1 + np.exp(-alarm @ moved))) - 0.1 <= 1e-8
    mossp.check_gradients(sparse, found.x)


# What the oracles compute ----------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_means_over_sources_are_those_over_all_rows():
    """More rows than a block holds, three sources, terms in another order than their sources."""
    rng = np.random.default_rng(1)
    X, own = rng.normal(size=(5000, n)), rng.normal(size=(9000, n))
    problem = mossp.Problem(
        lambda x, b: jnp.mean((b @ x) ** 2),
        X,
        equality=mossp.Expected(lambda x, b: jnp.mean(jnp.tanh(b @ x)), data=own),
        inequality=[
            lambda x: x @ x - 1.0,
            mossp.Expected(lambda x, b: jnp.mean(jnp.sin(b) * x, axis=0)),
        ],
    )
    x, q, v = (jnp.asarray(rng.normal(size=k)) for k in (n, n + 2, n))
    oracles = problem.oracles(np.zeros(n))

    def c(x):
        means = jnp.mean(jnp.tanh(own @ x)), x @ x - 1.0, jnp.mean(jnp.sin(X) * x, axis=0)
        return jnp.concatenate([jnp.ravel(part) for part in means])

    f = lambda x: jnp.mean((X @ x) ** 2)  # noqa: E731
    J = jax.jacobian(c)(x)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)  # noqa: E731
    close(oracles.c(x), c(x))
    close(oracles.linearized(x)[1](q), q @ J)
    close(oracles.pull(x, q), q @ J)
    close(oracles.tangent(x)(v), J @ v)
    close(oracles.jacobian(x), J)
    for ours, theirs in zip(oracles.first_order(x), (f(x), jax.grad(f)(x), c(x), J), strict=True):
        close(ours, theirs)
    H = jax.hessian(lambda x: q @ c(x))(x)
    close(oracles.bend(x, q, v), H @ v)
    close(oracles.bend_along(x, v), jnp.einsum("jab,a,b->j", jax.hessian(c)(x), v, v))
    slopes = sum(source.mean(lambda b, s=s: s(x, b)) for source, s in oracles.slopes(q))
    close(slopes, jax.grad(f)(x) + q @ J)
    assert oracles.rows_per_pass == 5000 + 5000 + 9000
    # Pools stand for all rows, nearly.
    assert 0 < np.abs(oracles.on_pools().c(x) - c(x)).max() < 0.1


@pytest.mark.usefixtures("x64")
def test_a_sampled_constraint_has_the_right_mean_and_the_noise_that_is_measured():
    problem = mossp.Problem(distance, (T, A), inequality=mossp.Expected(mean_of, batch_size=20))
    oracles, source = problem.oracles(np.zeros(n)), problem.steps()
    assert isinstance(source, Joint)
    draws = source.draw(np.random.default_rng(0), 4000, 8)
    batches = oracles.steps.batches(jax.tree.map(jnp.asarray, draws), 8)
    assert isinstance(batches, Rows)
    assert batches.values[0][1].shape == (4000, 20, n)
    assert batches.gradients[0][0].shape == (4000, 8, n)
    x = jnp.asarray(RNG.normal(size=n))
    values = jax.vmap(lambda rows: oracles.sampled_c(x, rows.values)[0])(batches)
    error = float(values.std()) / 4000**0.5
    assert abs(float(values.mean()) - float(oracles.c(x)[0])) < 4 * error
    assert float(oracles.value_noise(x, 8)[0]) == pytest.approx(float(values.std()), rel=0.5)
    q = jnp.ones(1)
    pulls = jax.vmap(lambda rows: oracles.sampled_pull(x, q, rows.gradients))(batches)
    assert np.abs(pulls.mean(axis=0) - A.mean(axis=0)).max() < 5 * pulls.std() / 4000**0.5


# Methods ---------------------------------------------------------------------------------------

TAKES = ("mossp-r", "mossp-p", "mossp-al", "sqp-dc", "ssl-alm")


@pytest.mark.parametrize("name", TAKES)
def test_methods_come_near_by_steps_alone(name):
    found = solve(
        mossp.Problem(distance, (T, A), inequality=mossp.Expected(mean_of)),
        method=name, steps=4000, batch_size=16, tol=5e-2,
    )  # fmt: skip
    assert found.violation <= 2e-2
    np.testing.assert_allclose(found.x, projected(A.mean(axis=0)), atol=0.1)
    gradients = 2 if name in ("mossp-r", "mossp-al", "sqp-dc") else 1
    assert found.gradients == 16 + 4000 * gradients * (16 + 16)
    assert found.values == 4000 * gradients * 8 * 16


@pytest.mark.parametrize("method", [mossp.MoSSPAL, mossp.SQPDC])
def test_anchored_estimates_converge_to_the_answer(method):
    found = solve(
        mossp.Problem(distance, (T, A), inequality=mossp.Expected(mean_of)),
        method=method(momentum=mossp.SVRG()), steps=20_000, batch_size=16,
    )  # fmt: skip
    assert found.success and found.tol == 1e-10, found.message
    np.testing.assert_allclose(found.x, projected(A.mean(axis=0)), atol=1e-9)


@pytest.mark.parametrize("name", [m for m in mossp.METHODS if m not in TAKES])
def test_others_refuse_in_a_sentence(name):
    problem = mossp.Problem(distance, (T, A), inequality=mossp.Expected(mean_of))
    with pytest.raises(ValueError, match="one is a mean over rows: use method='mossp-r'"):
        solve(problem, method=name)


@pytest.mark.parametrize("method", [mossp.MoSSP, mossp.SQPDC])
def test_a_mean_that_does_not_depend_on_rows_is_a_function_of_x(method):
    """Step for step, with full gradients: what is estimated is exact.

    mossp-al takes c(x) in place of c(x+) for its multipliers: see the formulas below.
    """
    sphere = lambda x: x @ x - 1.0  # noqa: E731
    runs = [
        mossp.Problem(distance, (T, A), mossp.L1MinusL2(0.1), equality=constraint)
        for constraint in (sphere, mossp.Expected(lambda x, batch: x @ x - 1.0))
    ]
    settings = {
        "method": method(momentum=mossp.Full()), "steps": 25, "polish": False,
        "schedule": mossp.schedules.Constant(mu=0.1, rho=2.0),
    }  # fmt: skip
    a, b = (solve(run, np.full(n, 0.6), **settings) for run in runs)
    np.testing.assert_allclose(a.x, b.x, rtol=1e-12)


def test_steps_follow_the_formulas_of_the_tracked_augmented_lagrangian(monkeypatch):
    """Against NumPy, on a stream whose batches are shared out: even rows for J, odd ones for c."""
    monkeypatch.setattr("mossp.data.joint.turned", lambda rng, batches: batches)  # without chance
    rng = np.random.default_rng(7)
    stream = [(rng.normal(size=(6, n)), rng.normal(size=(6, n))) for _ in range(12)]
    mu, rho, alpha, dual, lam0 = 0.05, 3.0, 0.3, 0.1, 0.02
    problem = mossp.Problem(
        distance, mossp.Stream(stream), mossp.L1(lam0), inequality=mossp.Expected(mean_of)
    )
    method = mossp.MoSSPAL(momentum=mossp.Recursive(alpha), dual=dual)
    schedule = mossp.schedules.Constant(mu=mu, rho=rho, alpha=alpha)
    start = np.full(n, 0.5)
    found = solve(problem, start, method=method, schedule=schedule, steps=10)

    a0 = lambda batch: batch[1][0::2].mean(axis=0)  # noqa: E731
    value = lambda x, batch: (batch[1][1::2] @ x).mean() - BOUND  # noqa: E731
    slope = lambda x, batch: x - batch[0][0::2].mean(axis=0)  # noqa: E731
    x, z, before, lam = start, start, start, 0.0
    for k, batch in enumerate(stream[:10]):  # nothing is used up before the first step
        weight = 1.0 if k == 0 else max(alpha, 1 / (k + 1))
        if k == 0:
            d, u = slope(x, batch), value(x, batch)
            q = max(lam + rho * u, 0.0)
            p = a0(batch) * q
        else:
            d = slope(x, batch) + (1 - alpha) * (d - slope(before, batch))
            u = value(x, batch) + (1 - weight) * (u - value(before, batch))
            last, q = q, max(lam + rho * u, 0.0)
            p = a0(batch) * q + (1 - weight) * (p - a0(batch) * last)
        v = z - mu * (d + p)
        before, x = x, np.sign(v) * np.maximum(np.abs(v) - mu * lam0, 0.0)
        z = x
        lam = max(lam + alpha * dual * rho * u, 0.0)
    np.testing.assert_allclose(found.x, x, rtol=1e-10)


# A run is a run ----------------------------------------------------------------------------------


def test_replicas_checkpoints_copies_and_programs(tmp_path):
    problem = mossp.Problem(
        distance, (T, A), mossp.L1(0.01), inequality={"m": mossp.Expected(mean_of_own, data=OTHER)}
    )
    settings = {"method": "mossp-al", "batch_size": 16, "steps": 600}
    alone = solve(problem, **settings)
    together = solve(problem, replicas=3, **settings)
    np.testing.assert_allclose(together.xs[0], alone.xs[0], atol=1e-12)
    assert not np.allclose(together.xs[1], together.xs[0], atol=1e-6)
    assert compiled_by(lambda: solve(problem, seed=1, **settings)) == 0
    copied = solve(pickle.loads(pickle.dumps(problem)), **settings)
    assert np.array_equal(copied.x, alone.x)

    path = tmp_path / "run.npz"
    stop = lambda progress: progress.step >= 300  # noqa: E731
    solve(problem, checkpoint=path, callback=stop, **settings)
    assert np.array_equal(solve(problem, checkpoint=path, **settings).x, alone.x)


def test_paths_and_starts():
    problem = mossp.Problem(distance, (T, A), mossp.L1(1.0), inequality=mossp.Expected(mean_of))
    found = mossp.path(problem, [0.3, 0.1, 0.01], np.zeros(n))
    assert found.success and found.nonzeros[0] <= found.nonzeros[-1]
    assert solve(problem, starts=3).success


def test_a_start_that_is_the_answer_ends_at_once():
    problem = mossp.Problem(distance, (T, A), mossp.L1(0.1), inequality=mossp.Expected(mean_of))
    first = solve(problem)
    assert solve(problem, first).steps == 0


# Bounds that cannot hold, and samples without end -------------------------------------------------


def test_bounds_that_contradict_each_other_are_named():
    low = mossp.Expected(lambda x, b: jnp.mean(jax.nn.sigmoid(b[1] @ x)) - 0.3)
    high = mossp.Expected(lambda x, b: 0.6 - jnp.mean(jax.nn.sigmoid(b[1] @ x)))
    found = solve(mossp.Problem(distance, (T, A), inequality={"at most": low, "at least": high}))
    assert found.status is mossp.Status.INFEASIBLE_STATIONARY and not found.success
    assert "at most" in found.message and "at least" in found.message
    assert 0.1 < found.violation < 0.4


def gaussian(key, size):
    first, second = jax.random.split(key)
    shift = jnp.array([1.5, -1.0, 0.8, 0.2])
    rows = 0.3 * jax.random.normal(first, (size, n)) + shift
    return rows, jax.random.normal(second, (size, n)) + jnp.array([1.0, -0.5, 0.5, 0.0])


def test_samples_without_end_are_judged_with_an_interval():
    problem = mossp.Problem(distance, mossp.Sampler(gaussian), inequality=mossp.Expected(mean_of))
    found = solve(problem, steps=6000, tol=3e-2)
    a, t = np.array([1.0, -0.5, 0.5, 0.0]), np.array([1.5, -1.0, 0.8, 0.2])
    assert found.success, found.message
    assert "at 95 %" in found.message
    np.testing.assert_allclose(found.x, projected(a, t), atol=0.05)
    cert = found.certificate
    assert 0 < cert.feasibility_error < 3e-2
    assert cert.bound("feasibility", False) == cert.feasibility + cert.feasibility_error
    true = max(a @ found.x - BOUND, 0.0)
    assert abs(true - cert.feasibility) <= 2 * cert.feasibility_error
    # An interval that ends above tol is no success, whatever its middle.
    assert cert.is_kkt(3e-2, relative=True)
    assert not cert.is_kkt(0.9 * cert.bound("feasibility", False))


@pytest.mark.parametrize("which", ["loss", "constraint"])
def test_one_side_without_end(which):
    stream = mossp.Stream([(T[i : i + 30], A[i : i + 30]) for i in range(0, N, 30)])
    if which == "loss":
        problem = mossp.Problem(distance, stream, inequality=mossp.Expected(mean_of_own, data=A))
    else:
        problem = mossp.Problem(distance, (T, A), inequality=mossp.Expected(mean_of, data=stream))
    found = solve(problem, steps=3000, tol=5e-2)
    assert found.certificate.samples is not None
    assert found.violation <= 5e-2
    np.testing.assert_allclose(found.x, projected(A.mean(axis=0)), atol=0.15)
    assert (found.certificate.feasibility_error > 0) == (which == "constraint")


def test_a_run_that_is_fed():
    from mossp.solving.online import Online

    run = Online(distance, np.zeros(n), inequality=mossp.Expected(mean_of))
    for _ in range(20):
        run.feed([(T[i : i + 30], A[i : i + 30]) for i in range(0, N, 30)])
    assert run.steps == 200 and run.finite
    np.testing.assert_allclose(run.x, projected(A.mean(axis=0)), atol=0.2)


def test_batches_that_come_again_show_all_their_rows_to_values_and_derivatives():
    rng = np.random.default_rng(5)
    rows = np.repeat([[0.0, 0.0], [1.0, 1.0]], 40, axis=0)
    rows = rng.permutation(rows + 0.1 * rng.normal(size=rows.shape))
    nearest = mossp.Problem(
        lambda x, batch: jnp.mean(jnp.sum((x - batch) ** 2, axis=1)) / 2,
        mossp.Stream([rows[:40], rows[40:]]),
        inequality=mossp.Expected(lambda x, batch: jnp.mean((batch - x)[:, 0]) + 0.1),
    )  # x = the mean of the rows, and at least 0.1 more in the first entry
    result = mossp.solve(nearest, np.zeros(2), steps=4000)
    assert result.success and result.certificate.feasibility_error > 0
    first, second = rows.mean(axis=0)
    np.testing.assert_allclose(result.x, [first + 0.1, second], atol=0.03)


# Wrong input --------------------------------------------------------------------------------------

WRONG = {
    "a sum": (lambda: mossp.Expected(lambda x, b: jnp.sum(b[1] @ x)), ValueError,
              "inequality constraint must be the mean over the rows"),
    "one value per row": (lambda: mossp.Expected(lambda x, b: b[1] @ x), ValueError,
                          "must return means over the rows of the batch"),
    "one value a row, in a dict": (lambda: {"fpr": mossp.Expected(lambda x, b: b[1] @ x)},
                                   ValueError, "constraint 'fpr' must return means"),
    "rows that it was not given": (lambda: mossp.Expected(lambda x, b: jnp.mean(b[2] @ x)),
                                   ValueError, "inequality constraint cannot be evaluated"),
    "a mean over a group in the batch": (
        lambda: mossp.Expected(lambda x, b: jnp.mean(b[1] @ x, where=b[0][:, 0] > 1.5)),
        ValueError, "give mossp.group_weights",
    ),
    "a step function": (lambda: mossp.Expected(lambda x, b: jnp.mean(b[1] @ x > 0) - 0.1),
                        ValueError, "its derivative is 0 everywhere"),
    "no return": (lambda: mossp.Expected(lambda x, b: None), TypeError, "is a `return` missing"),
    "a truth value": (lambda: mossp.Expected(lambda x, b: jnp.mean(b[1] @ x) <= 0), TypeError,
                      "must return real numbers"),
    "no function": (lambda: mossp.Expected(0.5), TypeError, "needs a function of x and a batch"),
    "no rows": (lambda: mossp.Expected(mean_of, batch_size=0), ValueError, "at least 1"),
    "half a row": (lambda: mossp.Expected(mean_of, batch_size=0.5), TypeError, "whole number"),
    "an entry that is a number": (lambda: {"a": ball, "b": 3.0}, TypeError,
                                  "constraint 'b' must be a function of x or mossp.Expected"),
    "a batch without Expected": (lambda: {"fpr": lambda x, b: jnp.mean(b[1] @ x)}, TypeError,
                                 "asks for x and b: write mossp.Expected"),
    "NaN in its data": (lambda: mossp.Expected(mean_of_own, data=np.full((3, n), np.nan)),
                        ValueError, "NaN"),
}  # fmt: skip


BY_VALUES = ("a sum", "a mean over a group in the batch", "a step function")


@pytest.mark.parametrize("what", WRONG)
def test_wrong_input_is_one_sentence_before_anything_is_compiled(what):
    make, error, sentence = WRONG[what]
    compilations.clear()
    with pytest.raises(error, match=sentence):
        solve(mossp.Problem(distance, (T, A), inequality=make()))
    assert what in BY_VALUES or not compilations


def test_a_problem_without_data_has_no_rows_to_look_at():
    with pytest.raises(ValueError, match="looks at the rows of the problem, which has no data"):
        mossp.Problem(ball, inequality=mossp.Expected(mean_of))
    with pytest.raises(ValueError, match=r"concave part .* alone \(the problem has no data\)"):
        solve(mossp.Problem(ball, concave=lambda x, b: jnp.mean(b @ x)))


def test_group_weights_make_a_mean_over_all_rows_that_of_a_group():
    group, weights, values = RNG.random(50) < 0.3, RNG.random(50), RNG.normal(size=50)
    w = mossp.group_weights(group)
    assert np.mean(w * values) == pytest.approx(values[group].mean())
    own = mossp.group_weights(group, weights)
    assert np.mean(own * values) == pytest.approx(np.average(values[group], weights=weights[group]))
    with pytest.raises(ValueError, match="no row"):
        mossp.group_weights(np.zeros(3, bool))
    with pytest.raises(TypeError, match="one truth value per row"):
        mossp.group_weights([0, 1, 2])
    with pytest.raises(ValueError, match="one number for each of the 50 rows"):
        mossp.group_weights(group, [1.0])
