"""The optimiser of PyTorch: against the methods in JAX step for step, and as torch's own behave."""

from __future__ import annotations

import copy
import datetime
import doctest
import functools
import io
import pickle
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp.schedules import Parameters, Schedule

torch = pytest.importorskip("torch", reason="PyTorch is an optional dependency: mossp[torch]")

import mossp.torch as ours  # noqa: E402
from mossp.torch import MoSSP  # noqa: E402
from mossp.torch.parameters import Table  # noqa: E402

N, n, B, STEPS = 20, 6, 4, 50
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(N, n)), np.where(rng.random(N) < 0.5, -1.0, 1.0)
X0, ROWS = rng.normal(size=n), rng.integers(0, N, (STEPS, B))
W = rng.normal(size=(2, n))
MU, RHO = rng.uniform(0.01, 0.03, STEPS), rng.uniform(1, 3, STEPS)
ALPHA = np.append(1.0, rng.uniform(0.05, 0.9, STEPS - 1))
REGULARIZERS = {
    "none": None,
    "L1": mossp.L1(0.3),
    "L1MinusL2": mossp.L1MinusL2(0.3),
    "MCP": mossp.MCP(0.3, 2.0),
    "CappedL1": mossp.CappedL1(0.3, 0.4),
    "TruncatedL1": mossp.TruncatedL1(0.3, 2),
    "Group": mossp.Group(mossp.MCP(0.3), [0, 0, 1, 1, 2, 2]),
    "LogSum": mossp.LogSum(0.1, 0.5),
}


class Model(torch.nn.Module):
    """A linear classifier whose weights are in two parameters of different shapes."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        x = torch.tensor(X0, dtype=dtype)
        self.a = torch.nn.Parameter(x[:2].reshape(1, 2).clone())
        self.b = torch.nn.Parameter(x[2:].clone())

    @property
    def x(self):
        return torch.cat([self.a.reshape(-1), self.b])

    def forward(self, rows):
        margins = torch.as_tensor(Y[rows]) * (torch.as_tensor(X[rows]) @ self.x.double())
        return torch.nn.functional.softplus(-margins).mean()


def sphere(model):
    return model.x @ model.x - 1.0


def planes(model):
    return {"w": torch.as_tensor(W, dtype=model.b.dtype) @ model.x - 0.1}


def constrained(model, **settings):
    """Both kinds of constraints; partial, so that copies and pickles have their own model."""
    partial = functools.partial
    return {"equality": partial(sphere, model), "inequality": partial(planes, model), **settings}


def closure_of(model, rows):
    def closure():
        loss = model(rows)
        loss.backward()
        return loss

    return closure


def run(model, optimizer, batches=ROWS):
    """The points of every step."""
    seen = []
    for rows in batches:
        optimizer.step(closure_of(model, rows))
        seen.append(model.x.detach().numpy().copy())
    return np.stack(seen)


def by_jax(method, reg):
    with jax.enable_x64(True):
        problem = mossp.Problem(
            mossp.losses.logistic, (X, Y), reg or mossp.Zero(),
            equality=lambda x: x @ x - 1.0, inequality=lambda x: W @ x - 0.1,
        )  # fmt: skip
        oracles = problem.oracles(X0)

        def step(state, rows, now):
            return method.step(oracles, Parameters(*now), state, oracles.source.batch(rows, B))

        step = jax.jit(step)
        state, states = method.init(oracles, jnp.asarray(X0), jnp.zeros(n)), []
        for rows, *now in zip(ROWS, MU, RHO, ALPHA, strict=True):
            state = step(state, jnp.asarray(rows, jnp.int32), now)
            states.append(jax.tree.map(np.asarray, state))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


def falling(k):
    return 0.02 / (k + 1) ** 0.1


VARYING = {"mu": MU.__getitem__, "rho": RHO.__getitem__, "alpha": ALPHA.__getitem__}


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
@pytest.mark.parametrize("name", REGULARIZERS)
def test_steps_are_those_of_the_method_in_jax(name, momentum):
    beta = 0.7 if name in ("MCP", "L1") else 1.0
    estimator = mossp.Recursive() if momentum == "recursive" else mossp.Polyak()
    states = by_jax(mossp.MoSSP(estimator, beta), REGULARIZERS[name])
    model = Model()
    optimizer = MoSSP(
        model.parameters(), REGULARIZERS[name], **constrained(model, beta=beta, **VARYING),
        momentum=momentum,
    )  # fmt: skip
    x = run(model, optimizer)
    np.testing.assert_allclose(x, states.x, rtol=0, atol=1e-12)
    for part, field in (("z", states.z), ("d", states.memory.d)):
        entries = [optimizer.state[p][part].reshape(-1) for p in model.parameters()]
        np.testing.assert_allclose(torch.cat(entries), field[-1], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(x == 0, states.x == 0)  # exact zeros, the same ones
    assert np.abs(x[-1] - X0).max() > 0.1


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_multipliers_are_those_of_the_method_in_jax(momentum):
    estimator = mossp.Recursive() if momentum == "recursive" else mossp.Polyak()
    method = mossp.MoSSPAL(estimator, dual=0.5, bound=0.2)
    states = by_jax(method, mossp.L1MinusL2(0.3))
    model = Model()
    optimizer = MoSSP(
        model.parameters(), "l1-l2:0.3", momentum=momentum, multipliers=True, dual=0.5, bound=0.2,
        **constrained(model, **VARYING),
    )  # fmt: skip
    np.testing.assert_allclose(run(model, optimizer), states.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(optimizer._lam, states.lam[-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(optimizer._weights, states.weights[-1], rtol=1e-12)
    assert np.abs(states.lam).max() == 0.2  # the bound was met
    x = model.x.detach().numpy()
    c = np.append(x @ x - 1, W @ x - 0.1)
    q = np.asarray(states.lam[-1]) + RHO[-1] * np.asarray(states.weights[-1]) * c
    found = optimizer.multipliers
    np.testing.assert_allclose(found["equality"], q[0], atol=1e-11)
    np.testing.assert_allclose(found["inequality"]["w"], np.maximum(q[1:], 0), atol=1e-11)
    length = np.linalg.norm(np.append(c[0], np.maximum(c[1:], 0)))
    assert optimizer.violation() == pytest.approx(length, rel=1e-12)


def test_multipliers_meet_the_constraints_where_the_penalty_does_not():
    violations = []
    for multipliers in (False, True):
        model = Model()
        settings = constrained(model, rho=2.0, mu=0.02, alpha=1.0, multipliers=multipliers)
        optimizer = MoSSP(model.parameters(), **settings)
        run(model, optimizer, [np.arange(N)] * 800)
        violations.append(optimizer.violation())
    assert violations[0] > 1e-2 and violations[1] < 1e-3


def test_a_schedule_gives_what_functions_give():
    schedule = Schedule(rho=2.0, mu=0.02, alpha=0.9, rho_power=0.3, mu_power=-0.2, alpha_power=-0.4)
    functions = {
        "mu": lambda k: 0.02 * (k + 1) ** -0.2,
        "rho": lambda k: 2.0 * (k + 1) ** 0.3,
        "alpha": lambda k: 0.9 * (k + 1) ** -0.4,
    }
    points = []
    for settings in ({"schedule": schedule}, functions):
        model = Model()
        optimizer = MoSSP(model.parameters(), "l1:0.1", **constrained(model, **settings))
        points.append(run(model, optimizer))
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02 * 50**-0.2, rel=1e-14)
    np.testing.assert_allclose(*points, rtol=0, atol=1e-14)
    assert Table(schedule, "mu")(5000) == pytest.approx(0.02 * 5001**-0.2, rel=1e-14)


def test_groups_have_their_own_regulariser_mu_and_beta():
    """The group without one is what it is with Zero; two groups are not one vector."""
    points = []
    for reg in (None, mossp.Zero()):
        model = Model()
        groups = [
            {"params": [model.a], "regularizer": reg, "mu": 0.01},
            {"params": [model.b], "lr": falling, "beta": 0.5},
            {"params": []},
        ]
        optimizer = MoSSP(groups, "l1-l2:5", momentum="polyak")
        points.append(run(model, optimizer))
        assert optimizer.param_groups[1]["lr"] == pytest.approx(0.02 / 50**0.1)
        assert optimizer.param_groups[0]["lr"] == 0.01
        assert model.a.all() and not model.b.all()
    np.testing.assert_allclose(*points, rtol=0, atol=1e-15)


def test_schedulers_of_torch_act_on_mu():
    by_scheduler, by_function = Model(), Model()
    optimizer = MoSSP(by_scheduler.parameters(), "mcp:0.1", lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    seen = []
    for rows in ROWS:
        seen.append(run(by_scheduler, optimizer, [rows])[0])
        scheduler.step()
    other = MoSSP(by_function.parameters(), "mcp:0.1", mu=lambda k: 0.1 * 0.5 ** (k // 10))
    np.testing.assert_array_equal(seen, run(by_function, other))


# The closure ----------------------------------------------------------------------------------


def test_polyak_does_without_a_closure_and_recursive_says_that_it_cannot():
    with_closure, without = Model(), Model()
    points = run(with_closure, MoSSP(with_closure.parameters(), "l1:0.1", momentum="polyak"))
    optimizer = MoSSP(without.parameters(), "l1:0.1", momentum="polyak")
    for rows in ROWS:
        optimizer.zero_grad()
        without(rows).backward()
        assert optimizer.step() is None
    np.testing.assert_array_equal(without.x.detach(), points[-1])
    with pytest.raises(ValueError, match="needs a closure"):
        MoSSP(without.parameters()).step()
    with pytest.raises(ValueError, match="was backward called"):
        MoSSP(without.parameters()).step(lambda: without(ROWS[0]).detach())


def test_the_closure_sees_the_point_before_and_then_the_current_one():
    """With the same random numbers; the loss returned is that of the current point."""
    model, seen, dropped = Model(), [], []
    optimizer = MoSSP(model.parameters(), mu=0.05)
    for rows in ROWS[:4]:
        closure = closure_of(model, rows)

        def watched(closure=closure):
            seen.append(model.x.detach().clone())
            dropped.append(torch.rand(3))
            return closure()

        before = model.x.detach().clone()
        expected = model(rows).item()
        assert optimizer.step(watched).item() == expected
        assert torch.equal(seen[-1], before)
    assert len(seen) == 7  # once at the first step
    for k in (1, 3, 5):
        assert torch.equal(seen[k], seen[k - 1])
        assert torch.equal(dropped[k], dropped[k + 1])
    assert not torch.equal(dropped[2], dropped[4])


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_closure_that_raises_leaves_everything_as_it_was(fails_at):
    unbroken, model = Model(), Model()
    optimizer = MoSSP(model.parameters(), "mcp:0.2", **constrained(model))
    run(model, optimizer, ROWS[:5])
    calls = 0

    def broken():
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise KeyboardInterrupt
        return closure_of(model, ROWS[7])()

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(broken)
    rest = run(model, optimizer, ROWS[5:])
    whole = run(unbroken, MoSSP(unbroken.parameters(), "mcp:0.2", **constrained(unbroken)))
    np.testing.assert_array_equal(rest, whole[5:])


# The state ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(momentum, dtype):
    def start():
        model = Model(dtype)
        settings = constrained(model, mu=falling, multipliers=True)
        return model, MoSSP(model.parameters(), "l1-l2:0.1", momentum=momentum, **settings)

    def go(model, optimizer, batches):
        for rows in batches:
            optimizer.step(closure_of(model, rows))
        return torch.cat([model.x, optimizer._lam]).detach()

    model, optimizer = start()
    go(model, optimizer, ROWS[:20])
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    copies = [copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))]
    expected = go(model, optimizer, ROWS[20:])
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    resumed, other = start()
    resumed.load_state_dict(weights)
    other.load_state_dict(state)
    for pair in [(resumed, other), *copies]:
        assert torch.equal(go(*pair, ROWS[20:]), expected)
        assert pair[0].a.dtype == dtype
    assert optimizer.state[model.a]["z"].dtype == torch.promote_types(dtype, torch.float32)
    with pytest.raises(ValueError, match="not the state of"):
        other.load_state_dict(torch.optim.SGD(resumed.parameters(), lr=0.1).state_dict())


def test_single_precision_follows_double():
    points = []
    for dtype in (torch.float64, torch.float32):
        model = Model(dtype)
        points.append(run(model, MoSSP(model.parameters(), "l1-l2:0.3", **constrained(model))))
    np.testing.assert_allclose(*points, atol=2e-5)


def test_frozen_unused_and_late_parameters():
    model = Model()
    extra = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    optimizer = MoSSP([*model.parameters(), extra, frozen], "l1:0.5", mu=0.05)
    run(model, optimizer, ROWS[:10])
    assert torch.equal(frozen, torch.ones(3)) and frozen not in optimizer.state
    torch.testing.assert_close(extra.detach(), torch.ones(2, dtype=torch.float64) * 0.75)
    late = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer.add_param_group({"params": [late], "regularizer": None})
    optimizer.step(lambda: (model(ROWS[0]) + 3 * late.sum()).backward())
    assert optimizer.state[late]["d"].item() == 3.0  # its first gradient, whole
    assert late.item() == pytest.approx(1 - 0.05 * 3)


def test_sparse_gradients_are_refused():
    layer = torch.nn.Embedding(4, 2, sparse=True)
    with pytest.raises(ValueError, match="dense gradients only"):
        MoSSP(layer.parameters()).step(lambda: layer(torch.tensor([1])).sum().backward())


# Wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mu": -1.0}, "mu > 0"),
        ({"lr": 0.0}, "mu > 0"),
        ({"mu": lambda k: float("nan")}, "mu > 0"),
        ({"mu": 0.1, "lr": 0.1}, "another name"),
        ({"mu": "big"}, "mu > 0"),
        ({"rho": -1.0}, "rho >= 0"),
        ({"alpha": 0.0}, "0 < alpha <= 1"),
        ({"alpha": 1.5}, "0 < alpha <= 1"),
        ({"beta": 2.0}, "0 < beta <= 1"),
        ({"dual": 0.0, "multipliers": True}, "0 < dual <= 1"),
        ({"bound": -1.0}, "bound > 0"),
        ({"momentum": "nesterov"}, "'polyak' or 'recursive'"),
        ({"regularizer": "mcpp:1"}, "Did you mean 'mcp'"),
        ({"regularizer": 0.1}, "must be a regulariser"),
        ({"regularizer": mossp.Group(mossp.L1(1.0), [0, 1])}, "groups of 2 coordinates"),
        ({"regularizer": mossp.L1(jnp.asarray(0.1))}, "does not fit"),
        ({"schedule": mossp.schedules.Theorem()}, "schedule must be"),
        ({"schedule": Schedule(1.0, 0.1, 0.5), "rho": 3.0}, "leave rho out"),
        ({"equality": 3.0}, "function without arguments"),
        ({"equality": lambda: 0.0}, "must return a tensor"),
        ({"inequality": lambda: torch.zeros(2)}, "depends on no parameter"),
    ],
)
def test_wrong_settings_get_a_sentence_before_any_step(settings, says):
    with pytest.raises(ValueError, match=says):
        MoSSP(Model().parameters(), **settings)


def test_wrong_groups_get_a_sentence_and_are_not_added():
    model = Model()
    optimizer = MoSSP([model.a])
    other = torch.nn.Parameter(torch.zeros(2))
    for group, says in (
        ({"params": [model.b, other]}, "share a dtype"),
        ({"params": [model.b], "regulariser": "l1"}, "'regulariser' was given"),
        ({"params": [model.b], "maximize": True}, "'maximize' was given"),
        ({"params": [torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))]}, "must be real"),
    ):
        with pytest.raises(ValueError, match=says):
            optimizer.add_param_group(group)
        assert len(optimizer.param_groups) == 1
    optimizer.param_groups[0]["lr"] = -1.0
    with pytest.raises(ValueError, match="lr >= 0"):
        optimizer.step(closure_of(model, ROWS[0]))


# What is left out, and what is not finite --------------------------------------------------------


def digits(scale, **settings):
    """A small network with a bound on the mean loss of every class."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is optional")
    images, labels = datasets.load_digits(return_X_y=True)
    A, t = torch.tensor(scale * images, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)
    model, loss = torch.nn.Sequential(*layers), torch.nn.functional.cross_entropy

    def over():
        each = loss(model(A), t, reduction="none")
        return torch.stack([each[t == label].mean() for label in range(10)]) - 0.3

    optimizer = MoSSP(model.parameters(), inequality=over, **settings)

    def closure():
        rows = torch.randint(len(A), (64,))
        value = loss(model(A[rows]), t[rows])
        value.backward()
        return value

    return model, optimizer, closure


@pytest.mark.parametrize(
    ("scale", "settings"),
    [
        (1 / 16, {"momentum": "recursive", "multipliers": True}),
        (1 / 16, {"momentum": "polyak"}),
        (1.0, {"momentum": "polyak", "multipliers": True}),
        (1.0, {"momentum": "recursive"}),
    ],
)
def test_bounds_on_the_loss_of_every_class_are_met_by_what_is_left_out(scale, settings):
    """With mu = 0.01 and rho = 10 as numbers, the weights are NaN within 100 steps."""
    model, optimizer, closure = digits(scale, **settings)
    start = optimizer.violation()
    for _ in range(300):
        optimizer.step(closure)
    assert start > 5 and optimizer.violation() < 0.15
    assert 0 < optimizer.damping <= 1
    assert optimizer.param_groups[0]["lr"] == 0.01
    model, optimizer, closure = digits(scale, mu=0.01, rho=10.0, **settings)
    with pytest.raises(
        ours.NonFiniteError, match=r"At step \d+ .* is (nan|-?inf).*smaller lr or rho"
    ):
        for _ in range(100):
            optimizer.step(closure)
    assert all(p.isfinite().all() for p in model.parameters())
    assert np.isfinite(optimizer.violation())


@pytest.mark.parametrize("curvature", [1e2, 1e5, 1e10])
@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
@pytest.mark.parametrize("reg", [None, "l1:0.1", "mcp:0.1"])
def test_a_steep_loss_is_descended(curvature, momentum, reg):
    """Without a closure, too; lr = 0.01 is up to 1e8 times too long."""
    x = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    optimizer = MoSSP([x], reg, momentum=momentum, beta=0.7)
    scales = curvature * torch.tensor([1.0, 0.5, 0.1])

    def closure():
        optimizer.zero_grad()
        loss = 0.5 * (scales * (x - 1) ** 2).sum()
        loss.backward()
        return loss

    first = closure().item()
    for _ in range(400):
        if momentum == "polyak":
            closure()
            optimizer.step()
        else:
            optimizer.step(closure)
    assert closure().item() < 1e-2 * first


def test_a_mu_that_is_given_is_not_damped():
    """Two groups, one of them damped: the other's steps are lr times its gradient."""
    a, b = (torch.nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2))
    optimizer = MoSSP([{"params": [a]}, {"params": [b], "mu": 0.125}], alpha=1.0)
    for k in range(1, 11):
        optimizer.step(lambda: (500 * a**2 + b).sum().backward())
        assert b.item() == 1 - 0.125 * k
    assert optimizer.damping < 0.5 and abs(a.item()) < 0.2


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_a_resumed_run_is_damped_as_the_unbroken_one(momentum):
    def start():
        model = Model()
        settings = constrained(model, momentum=momentum, rho=1e3)
        return model, MoSSP(model.parameters(), "mcp:0.1", **settings)

    whole, optimizer = start()
    expected = run(whole, optimizer)
    model, first = start()
    run(model, first, ROWS[:20])
    assert first.damping < 1
    state = copy.deepcopy(first.state_dict())
    resumed, second = start()
    resumed.load_state_dict(model.state_dict())
    second.load_state_dict(state)
    np.testing.assert_array_equal(run(resumed, second, ROWS[20:]), expected[20:])
    assert second.damping == optimizer.damping


def bad_at(model, step):
    """Closures that compute the loss, NaN at one step."""
    factors = [1.0] * step + [float("nan")]

    def closure_at(k, rows):
        def closure():
            loss = factors[k] * model(rows)
            loss.backward()
            return loss

        return closure

    return [closure_at(k, ROWS[k]) for k in range(step + 1)]


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
@pytest.mark.parametrize("mu", [None, 0.01])
def test_a_loss_that_is_nan_is_named_and_the_step_before_is_undone(momentum, mu):
    model = Model()
    settings = constrained(model, momentum=momentum, mu=mu, multipliers=True)
    optimizer = MoSSP(model.parameters(), "mcp:0.2", **settings)
    *good, bad = bad_at(model, 5)
    for closure in good:
        before, lam = model.x.detach().clone(), optimizer._lam
        optimizer.step(closure)
    damping = optimizer.damping
    with pytest.raises(ours.NonFiniteError, match=r"At step 5 the loss is nan: .* again those of"):
        optimizer.step(bad)
    assert torch.equal(model.x, before) and torch.equal(optimizer._lam, lam)
    assert optimizer.damping == pytest.approx(0.1 * damping)
    with pytest.raises(ours.NonFiniteError, match="the loss is nan: no step was taken"):
        optimizer.step(bad)
    assert torch.equal(model.x, before) and optimizer.damping == pytest.approx(0.1 * damping)
    for entry in optimizer.state.values():
        assert all(value.isfinite().all() for value in entry.values())
    optimizer.step(good[0])  # and training goes on
    assert model.x.isfinite().all() and not torch.equal(model.x, before)


def root(model):
    return {"fine": model.b.sum(), "root": torch.sqrt(0.0 * model.b)}


def infinite(model):
    return torch.stack([model.b.sum(), -torch.log(model.a.sum() * 0)])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"inequality": root}, r"the gradient of inequality\['root'\]\[0\] is not finite"),
        ({"equality": infinite}, r"equality\[1\] is inf"),
        (
            {"equality": lambda model: 1e200 * model.b, "rho": 1e200},
            "the gradient of the penalty is infinite",
        ),
    ],
)
def test_the_constraint_that_is_not_finite_is_named(settings, says):
    model = Model()
    functions = {
        name: functools.partial(it, model) if callable(it) else it for name, it in settings.items()
    }
    optimizer = MoSSP(model.parameters(), **functions)
    with pytest.raises(ours.NonFiniteError, match=f"At step 0 {says}: no step was taken"):
        optimizer.step(closure_of(model, ROWS[0]))
    assert torch.equal(model.x, Model().x) and not optimizer.state


def test_parameters_and_gradients_that_are_not_finite_are_named():
    model = Model()
    with torch.no_grad():
        model.b[2] = float("inf")
    optimizer = MoSSP(model.named_parameters())
    with pytest.raises(ours.NonFiniteError, match=r"At step 0 parameter 'b'\[2\] is inf"):
        optimizer.step(closure_of(model, ROWS[0]))
    model = Model()
    optimizer = MoSSP(model.named_parameters(), momentum="polyak")
    model(ROWS[0]).backward()
    model.a.grad[0, 1] = float("nan")
    with pytest.raises(ours.NonFiniteError, match=r"by parameter 'a'\[0, 1\] is nan"):
        optimizer.step()
    with pytest.raises(ours.NonFiniteError, match="the loss is inf"):  # a float, as item() gives
        optimizer.step(lambda: model(ROWS[0]).backward() or float("inf"))


def test_large_numbers_are_not_taken_for_infinite_ones():
    """The square of a gradient of 1e30 overflows in single precision."""
    x = torch.nn.Parameter(torch.ones(3))
    optimizer = MoSSP([x])
    optimizer.step(lambda: (1e30 * x.sum()).backward())
    assert torch.allclose(x.detach(), torch.full((3,), 1 - 0.1), atol=1e-6)  # a tenth of ||x||


# Several processes ----------------------------------------------------------------------------


def trained(wrap, part):
    """Where training ends, by momentum, on a part of every mini-batch."""
    ends = {}
    for momentum in ("polyak", "recursive"):
        model = Model()
        whole = wrap(model)
        settings = constrained(model, momentum=momentum, mu=0.02, multipliers=True)
        optimizer = MoSSP(whole.parameters(), "l1-l2:0.1", **settings)
        for rows in ROWS:
            optimizer.step(closure_of(whole, rows[part]))
        ends[momentum] = torch.cat([model.x, optimizer._lam]).tolist()
    return ends


def train(rank, port, queue):
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=40),
    )  # fmt: skip
    wrap = torch.nn.parallel.DistributedDataParallel
    ends = trained(wrap, slice(2 * rank, 2 * rank + 2))
    model = Model()
    whole = wrap(model)
    optimizer = MoSSP(whole.named_parameters())
    factors = 1.0, 1.0, float("nan") if rank == 1 else 1.0  # one process has the NaN
    try:
        for factor in factors:
            optimizer.step(lambda factor=factor: (factor * whole(ROWS[rank])).backward())
            ends["last"] = model.x.tolist()
            ends["before"] = optimizer.state[model.b]["before"].tolist()
    except ours.NonFiniteError as error:
        ends["said"], ends["restored"] = str(error), model.b.tolist()
    queue.put((rank, ends))
    dist.destroy_process_group()


def test_processes_agree_and_follow_one_on_the_joint_batch():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=train, args=(r, port, queue), daemon=True) for r in range(2)]
    for worker in workers:
        worker.start()
    try:
        ends = dict(queue.get(timeout=90) for _ in workers)
        for worker in workers:
            worker.join(timeout=20)
    finally:
        for worker in workers:
            worker.kill()
    assert ends[0] == ends[1]
    assert "At step 2 the gradient of the loss by parameter" in ends[0]["said"]
    assert ends[0]["restored"] == ends[0]["before"]
    for momentum, alone in trained(lambda model: model, slice(None)).items():
        np.testing.assert_allclose(ends[0][momentum], alone, rtol=0, atol=1e-12)


# The module -----------------------------------------------------------------------------------


def test_its_examples_run():
    assert doctest.testmod(ours) == (0, 9)


def test_torch_is_asked_for_by_one_sentence_and_only_when_needed():
    code = (
        "import sys; import mossp; assert 'torch' not in sys.modules; sys.modules['torch'] = None\n"
        "try: import mossp.torch\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "mossp.torch needs PyTorch: pip install 'mossp[torch]'"
