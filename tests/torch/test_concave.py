"""A concave part -E[g(x; xi)]: against the method in JAX step for step, and known answers."""

from __future__ import annotations

import copy
import functools
import io
import math
import pickle

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import mossp
import mossp.torch as ours
from mossp.schedules import Schedule
from mossp.torch import Expected, MoSSP
from tests.torch.models import (
    MU,
    REGULARIZERS,
    ROWS,
    VARYING,
    X0,
    Model,
    X,
    Y,
    by_jax,
    closure_of,
    constrained,
    run,
)

F = torch.nn.functional
ETA = np.random.default_rng(3).uniform(0.005, 0.05, len(MU))


def kinked(x, batch):
    """Convex, with a kink for every row."""
    return jnp.mean(jnp.maximum(0.0, 0.5 - batch[1] * (batch[0] @ x)))


def hinge(model, rows):
    margins = torch.as_tensor(Y[rows]) * (torch.as_tensor(X[rows]) @ model.x)
    return F.relu(0.5 - margins).mean()


class Batch:
    """The rows of a step, which both closures look at."""

    def __init__(self, model):
        self.model, self.rows = model, None

    def __call__(self):
        return hinge(self.model, self.rows)


def run_both(model, optimizer, batch, rows=ROWS):
    seen = []
    for batch.rows in rows:
        optimizer.step(closure_of(model, batch.rows))
        seen.append(model.x.detach().numpy().copy())
    return np.stack(seen)


# The formulas ---------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
@pytest.mark.parametrize(("name", "eta"), [("none", None), ("L1MinusL2", ETA), ("MCP", ETA)])
def test_steps_are_those_of_the_method_in_jax(name, momentum, eta):
    beta = 0.7 if name == "MCP" else 1.0
    estimator = mossp.Recursive() if momentum == "recursive" else mossp.Polyak()
    states = by_jax(mossp.MoSSP(estimator, beta), REGULARIZERS[name], kinked, eta)
    model = Model()
    batch = Batch(model)
    settings = constrained(model, beta=beta, momentum=momentum, concave=batch, **VARYING)
    if eta is not None:
        settings["eta"] = eta.__getitem__
    optimizer = MoSSP(model.parameters(), REGULARIZERS[name], **settings)
    x = run_both(model, optimizer, batch)
    np.testing.assert_allclose(x, states.x, rtol=0, atol=1e-12)
    for part, field in (
        ("z", states.z), ("y", states.y), ("d", states.memory.d), ("v", states.concave.d),
    ):  # fmt: skip
        entries = [optimizer.state[p][part].reshape(-1) for p in model.parameters()]
        np.testing.assert_allclose(torch.cat(entries), field[-1], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(x == 0, states.x == 0)
    assert np.abs(x[-1] - X0).max() > 0.1 and np.abs(states.concave.d).max() > 0.1


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_with_eta_infinite_and_g_zero_it_is_the_optimizer_without(momentum):
    points = []
    for given in (False, True):
        model = Model()
        zero = functools.partial(lambda model: 0.0 * model.x.sum(), model)
        settings = {"concave": zero, "eta": math.inf} if given else {}
        every = constrained(model, momentum=momentum, beta=0.7, **VARYING, **settings)
        points.append(run(model, MoSSP(model.parameters(), "l1:0.3", **every)))
    np.testing.assert_allclose(*points, rtol=0, atol=1e-14)


def test_a_schedule_has_an_eta_of_its_own():
    points = []
    schedule = Schedule(rho=2.0, mu=0.02, alpha=0.5, mu_power=-0.2, eta=0.05)
    functions = {
        "mu": lambda k: 0.02 * (k + 1) ** -0.2, "eta": lambda k: 0.05 * (k + 1) ** -0.2,
        "rho": 2.0, "alpha": 0.5,
    }  # fmt: skip
    for settings in ({"schedule": schedule}, functions):
        model = Model()
        batch = Batch(model)
        optimizer = MoSSP(model.parameters(), "mcp:0.1", concave=batch, **settings)
        points.append(run_both(model, optimizer, batch))
    np.testing.assert_allclose(*points, rtol=0, atol=1e-14)


def test_an_lr_that_ends_at_zero_moves_x_to_the_mean_of_x_and_z():
    """tau is 0, and nothing is divided by it."""
    model = Model()
    batch = Batch(model)
    optimizer = MoSSP(model.parameters(), concave=batch, lr=0.05)
    run_both(model, optimizer, batch, ROWS[:5])
    optimizer.param_groups[0]["lr"] = 0.0
    x, z = (
        model.x.detach(),
        torch.cat([optimizer.state[p]["z"].reshape(-1) for p in (model.a, model.b)]),
    )
    run_both(model, optimizer, batch, ROWS[5:6])
    torch.testing.assert_close(model.x.detach(), (x + z) / 2)


def test_a_change_of_the_damping_keeps_the_subgradient_that_z_stands_for(monkeypatch):
    """At a critical point of x^2 - |x|, which steps of another length must not leave."""
    x = torch.nn.Parameter(torch.full((1,), 0.5001, dtype=torch.float64))
    optimizer = MoSSP([x], concave=lambda: x.abs().sum(), alpha=1.0)

    def closure():
        loss = (x**2).sum()
        loss.backward()
        return loss

    for _ in range(1000):
        optimizer.step(closure)
    z = optimizer.state[x]["z"].item()
    assert z - 0.5 == pytest.approx(0.01, rel=1e-4) and optimizer.damping == 1.0
    monkeypatch.setattr("mossp.torch.step.damped", lambda damping, seen: 0.02)
    for _ in range(20):
        optimizer.step(closure)
        assert x.item() == pytest.approx(0.5, abs=1e-6)
    assert optimizer.state[x]["z"].item() - 0.5 == pytest.approx(0.02 * 0.01, rel=1e-4)


# Known answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_a_capped_loss_finds_the_bulk_of_the_data_as_a_grid_does(momentum):
    """min(r^2 / 2, 1 / 2) = r^2 / 2 - (r^2 / 2 - 1 / 2)_+ of a location, a fifth of it outliers."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(400, 2)) * 0.4 + [1.0, -0.5]
    data[:80] = rng.normal(size=(80, 2)) * 0.5 + [4.0, 5.0]
    rows = torch.tensor(data)

    def squares(batch):
        return (x - batch).square() / 2

    def objective(points):
        return np.minimum((points[:, None] - data) ** 2 / 2, 0.5).mean(1)

    grid = np.linspace(-2, 2, 4001)
    best = grid[objective(np.stack([grid, grid], 1)).argmin(0)]  # the coordinates are separate
    x = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    draws = DataLoader(
        TensorDataset(rows), 32, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    capped = Expected(lambda batch: F.relu(squares(batch[0]) - 0.5).sum(1).mean(), draws)
    optimizer = MoSSP(
        [x], concave=capped, momentum=momentum, mu=lambda k: 0.2 / (1 + k / 100), alpha=0.1
    )
    torch.manual_seed(0)
    for _ in range(1500):
        batch = rows[torch.randint(400, (32,))]
        optimizer.step(lambda batch=batch: squares(batch).sum(1).mean().backward())
    np.testing.assert_allclose(x.detach(), best, atol=0.05)
    assert np.abs(data.mean(0) - best).min() > 0.4  # without the cap


def test_under_a_constraint_it_ends_at_a_kkt_point():
    """All rows at every step; the conditions are those of the capped loss itself, in NumPy."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 4))
    b = A @ [0.6, 0.4, 0.0, 0.0] + 0.1 * rng.normal(size=60)
    b[:10] = 5.0
    x = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    rows, labels = torch.tensor(A), torch.tensor(b)

    def terms():
        return (rows @ x - labels).square() / 2

    optimizer = MoSSP(
        [x], "l1:0.02", equality=lambda: x.sum() - 1.0, multipliers=True, dual=0.5, mu=0.1,
        rho=2.0, concave=lambda: F.relu(terms() - 0.5).mean(),
    )  # fmt: skip
    for _ in range(1500):
        optimizer.step(lambda: terms().mean().backward())
    found, q = x.detach().numpy(), optimizer.multipliers["equality"].item()
    r = A @ found - b
    near = np.abs(r) < 1
    slope = A[near].T @ r[near] / 60 + q
    assert optimizer.violation() < 1e-8 and 40 < near.sum() < 55
    on = found != 0
    assert 1 < on.sum() < 4
    np.testing.assert_allclose(slope[on], -0.02 * np.sign(found[on]), atol=1e-8)
    assert (np.abs(slope[~on]) <= 0.02 + 1e-8).all()


# The state, and numbers that are not finite ---------------------------------------------------


def over(model, batch):
    """With random numbers of its own, as of dropout."""
    rows, labels = batch
    each = F.relu(0.5 - labels * (rows @ model.x))
    return (each * (0.5 + torch.rand(len(each)))).mean()


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
@pytest.mark.parametrize("mu", [None, 0.02])
@pytest.mark.parametrize("kind", ["loader", "closure"])
def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(kind, momentum, mu):
    data = TensorDataset(torch.tensor(X), torch.tensor(Y))

    def start():
        torch.manual_seed(5)
        model = Model()
        order = torch.Generator().manual_seed(1)
        loader = DataLoader(data, 4, shuffle=True, generator=order)
        g = {
            "loader": Expected(functools.partial(over, model), loader, check=False),
            "closure": functools.partial(over, model, data.tensors),
        }
        every = constrained(model, momentum=momentum, mu=mu, multipliers=True, concave=g[kind])
        return model, MoSSP(model.parameters(), "mcp:0.1", **every)

    def go(model, optimizer, batches, numbers=None):
        if numbers is not None:
            torch.set_rng_state(numbers)
        points = run(model, optimizer, batches)
        y = [optimizer.state[p]["y"].reshape(-1) for p in model.parameters()]
        return np.append(points[-1], torch.cat(y))

    model, optimizer = start()
    go(model, optimizer, ROWS[:18])
    file, numbers = io.BytesIO(), torch.get_rng_state()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    copies = [copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))]
    expected = go(model, optimizer, ROWS[18:])
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    resumed, other = start()
    resumed.load_state_dict(weights)
    other.load_state_dict(state)
    for pair in [(resumed, other), *copies]:
        np.testing.assert_array_equal(go(*pair, ROWS[18:], numbers), expected)
    assert (go(*start(), ROWS[18:], numbers) != expected).any()  # the state matters


def test_states_with_and_without_a_concave_part_are_told_apart():
    model = Model()
    plain, closure = MoSSP(model.parameters()), MoSSP(model.parameters(), concave=model.x.sum)
    loader = MoSSP(model.parameters(), concave=Expected(model.x.sum, [1]))
    with pytest.raises(ValueError, match=r"without a concave part, but here is one with .* no loa"):
        closure.load_state_dict(plain.state_dict())
    with pytest.raises(ValueError, match="has a loader, but here is one without a concave part"):
        plain.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match=r"has no loader, but here is one .* has a loader"):
        loader.load_state_dict(closure.state_dict())


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_a_concave_part_that_is_not_finite_is_named_left_out_and_the_step_before_undone(momentum):
    good = [torch.tensor(X[i : i + 4]) for i in range(0, 20, 4)]
    batches = [*good[:3], good[0] * math.nan, *good[3:]]
    model = Model()
    g = Expected(lambda rows: (rows @ model.x).abs().mean(), batches)
    optimizer = MoSSP(model.named_parameters(), "mcp:0.1", concave=g, momentum=momentum)
    for rows in ROWS[:3]:
        before = model.x.detach().clone()
        optimizer.step(closure_of(model, rows))
    v = optimizer.state[model.b]["v"].clone()
    with pytest.raises(ours.NonFiniteError, match=r"At step 3 the concave part is nan: .* again"):
        optimizer.step(closure_of(model, ROWS[3]))
    assert torch.equal(model.x, before) and torch.equal(optimizer.state[model.b]["v"], v)
    for part in ("y", "z"):
        assert torch.equal(optimizer.state[model.b][part], model.b)
    for rows in ROWS[4:8]:  # the batch is not seen again
        optimizer.step(closure_of(model, rows))
    assert model.x.isfinite().all() and not torch.equal(model.x, before)


def test_a_gradient_of_the_concave_part_that_is_not_finite_is_named():
    model = Model()
    optimizer = MoSSP(model.named_parameters(), concave=lambda: torch.sqrt(0.0 * model.b[1]))
    says = r"At step 0 the gradient of the concave part by parameter 'b'\[1\] is nan: no step was"
    with pytest.raises(ours.NonFiniteError, match=says):
        optimizer.step(closure_of(model, ROWS[0]))
    assert torch.equal(model.x, Model().x) and not optimizer.state


def test_a_concave_part_that_calls_backward_is_refused():
    """A linear one, which could be differentiated again without an error of torch's."""
    model = Model()

    def g():
        value = model.x.sum()
        value.backward()
        return value

    with pytest.raises(ValueError, match="must return g without calling backward"):
        MoSSP(model.parameters(), concave=g).step(closure_of(model, ROWS[0]))
    assert torch.equal(model.x, Model().x)


def test_a_concave_part_that_raises_leaves_everything_as_it_was():
    model, unbroken, broken = Model(), Model(), False

    def start(model):
        def g():
            if broken:
                raise KeyboardInterrupt
            return hinge(model, ROWS[0])

        return MoSSP(model.parameters(), "mcp:0.2", concave=g, mu=0.02)

    whole = run(unbroken, start(unbroken))
    optimizer = start(model)
    run(model, optimizer, ROWS[:7])
    broken = True
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure_of(model, ROWS[9]))
    broken = False
    np.testing.assert_array_equal(run(model, optimizer, ROWS[7:]), whole[7:])


# Parameters -----------------------------------------------------------------------------------


def test_groups_half_precision_frozen_and_late_parameters():
    model = Model()
    narrow = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    groups = [{"params": [*model.parameters()]}, {"params": [narrow, frozen], "mu": 0.125}]
    g = lambda: model.x.abs().mean() + 2 * narrow.float().sum()  # noqa: E731
    optimizer = MoSSP(groups, "l1:0.01", concave=g)
    optimizer.step(lambda: (model(ROWS[0]) + 2 * narrow.float().sum()).backward())
    state = optimizer.state[narrow]
    assert state["y"].dtype == state["v"].dtype == torch.float32 and (state["v"] == 2).all()
    assert torch.equal(frozen, torch.ones(3)) and frozen not in optimizer.state
    late = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer.add_param_group({"params": [late], "regularizer": None})
    optimizer.step(lambda: (model(ROWS[0]) + 3 * late.sum()).backward())
    assert optimizer.state[late]["d"].item() == 3.0 and optimizer.state[late]["v"].item() == 0.0


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (lambda g: Expected(g, [X], values=[X]), ValueError, "leave values out"),
        (lambda g: Expected(g, []), ValueError, "The loader of concave has no batches"),
        (lambda g: Expected(lambda rows: 20 * g(rows), [torch.tensor(X)]), None, ""),
        (
            lambda g: Expected(lambda rows: len(rows) * g(rows), [torch.tensor(X)]),
            ValueError,
            "concave must be the mean over the rows of a batch",
        ),
    ],
)
def test_an_expected_one_is_judged_as_constraints_are(given, error, says):
    model = Model()

    def trained():
        expected = given(lambda rows: (rows @ model.x).abs().mean())
        MoSSP(model.parameters(), concave=expected).step(closure_of(model, ROWS[0]))

    if error is None:
        return trained()
    with pytest.raises(error, match=says):
        trained()
    assert torch.equal(model.x, Model().x)
    return None
