"""The optimiser of PyTorch: against the methods in JAX step for step, and as torch's own behave."""

from __future__ import annotations

import copy
import doctest
import io
import pickle
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import mossp
import mossp.torch as ours
from mossp.schedules import Schedule
from mossp.torch import Expected, MoSSP
from mossp.torch.parameters import Table
from tests.torch.models import (
    REGULARIZERS,
    RHO,
    ROWS,
    VARYING,
    X0,
    Model,
    N,
    W,
    X,
    by_jax,
    closure_of,
    constrained,
    falling,
    run,
)


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
    np.testing.assert_allclose(optimizer._constraints.lam, states.lam[-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(optimizer._constraints.weights, states.weights[-1], rtol=1e-12)
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
        return torch.cat([model.x, optimizer._constraints.lam]).detach()

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
        ({"concave": 3.0}, "concave must be a function without arguments .* but it is 3.0"),
        ({"concave": lambda: None, "eta": -1.0}, "eta > 0"),
        ({"eta": 1.0}, "eta is of steps with a concave part"),
    ],
)
def test_wrong_settings_get_a_sentence_from_the_constructor(settings, says):
    with pytest.raises(ValueError, match=says):
        MoSSP(Model().parameters(), **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"equality": lambda: 0.0}, "equality must return a tensor"),
        ({"inequality": lambda: torch.zeros(2)}, "inequality depends on no parameter"),
        ({"concave": lambda: 0.0}, "concave must return .* but it returned 0.0"),
        ({"concave": lambda: torch.zeros(3)}, "but it returned a tensor of 3 entries"),
        ({"concave": lambda: torch.zeros(1)}, "concave depends on no parameter"),
    ],
)
def test_functions_are_judged_by_the_first_step_which_moves_nothing(settings, says):
    model = Model()
    optimizer = MoSSP(model.parameters(), **settings)
    with pytest.raises(ValueError, match=says):
        optimizer.step(closure_of(model, ROWS[0]))
    assert torch.equal(model.x, Model().x) and not optimizer.state


def test_a_constructor_calls_no_function_and_opens_no_loader():
    """What they look at may be made by the training loop."""
    model, batch = Model(), {}

    class Rows:
        def __iter__(self):
            return iter(batch["made"])

    given = {
        "exact": lambda: batch["scale"] * model.x.sum(),
        "rows": Expected(lambda rows: (rows @ model.x).mean(), Rows(), values=Rows()),
        "drawn": Expected(lambda: (batch["made"][0] @ model.x).mean()),
    }
    optimizer = MoSSP(
        model.parameters(), inequality=given,
        concave=lambda: batch["scale"] * (batch["made"][1] @ model.x).square().mean(),
    )  # fmt: skip
    batch.update(scale=0.1, made=[torch.tensor(X[:4]), torch.tensor(X[4:8])])
    optimizer.step(closure_of(model, ROWS[0]))
    assert not torch.equal(model.x, Model().x)


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
