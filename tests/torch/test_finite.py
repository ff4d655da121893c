"""Step sizes that are left out, and numbers that are not finite."""

from __future__ import annotations

import copy
import functools
import math

import numpy as np
import pytest
import torch

import mossp.torch as ours
from mossp.torch import MoSSP
from tests.torch.models import ROWS, Model, closure_of, constrained, run


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
@pytest.mark.slow
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
        before, lam = model.x.detach().clone(), optimizer._constraints.lam
        optimizer.step(closure)
    damping = optimizer.damping
    with pytest.raises(ours.NonFiniteError, match=r"At step 5 the loss is nan: .* again those of"):
        optimizer.step(bad)
    assert torch.equal(model.x, before) and torch.equal(optimizer._constraints.lam, lam)
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
            {"inequality": lambda model: {"\x1b" + "c" * 450: model.b.sum() * math.nan}},
            r"inequality\['.x1bc{58}…c{20}'\] is nan",
        ),
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
