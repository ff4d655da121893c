"""Bounds on losses of classes and on unfairness, from mini-batches, against answers on all data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.utils.data import DataLoader, TensorDataset

from mossp.torch import Expected, MoSSP

pytestmark = pytest.mark.slow
F = torch.nn.functional


def loader(data, size, seed):
    draws = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(*data), size, shuffle=True, generator=draws)


def trained(model, optimizer, data, steps, penalty=0.0):
    torch.manual_seed(0)
    X, t = data[:2]
    for _ in range(steps):
        rows = torch.randint(len(X), (64,))

        def closure(rows=rows):
            squares = sum(p.square().sum() for p in model.parameters())
            loss = F.cross_entropy(model(X[rows]), t[rows]) + penalty / 2 * squares
            loss.backward()
            return loss

        optimizer.step(closure)
    return optimizer.evaluate()


# A softmax model, whose answer SciPy finds ----------------------------------------------------

BOUNDS = np.array([2.0, 0.75, 0.75])


def softmax_problem():
    rng = np.random.default_rng(0)
    t = rng.choice(3, 240, p=[0.6, 0.25, 0.15])
    X = np.array([[0, 0, 0], [1.2, 0, 0.5], [0, 1.2, -0.5]])[t] + rng.normal(size=(240, 3))
    A, one = np.column_stack([X, np.ones(240)]), np.eye(3)[t]

    def parts(w):
        scores = A @ w.reshape(3, 4).T
        losses = np.log(np.exp(scores).sum(1)) - scores[range(240), t]
        slopes = np.exp(scores) / np.exp(scores).sum(1, keepdims=True) - one
        return losses, slopes

    def objective(w):
        losses, slopes = parts(w)
        return losses.mean() + 0.025 * w @ w, (slopes.T @ A / 240).ravel() + 0.05 * w

    def room(w):
        return BOUNDS - one.T @ parts(w)[0] / one.sum(0)

    def slope_of_room(w):
        slopes = parts(w)[1]
        return -np.stack(
            [(slopes[t == k].T @ A[t == k]).ravel() / (t == k).sum() for k in range(3)]
        )

    constraint = {"type": "ineq", "fun": room, "jac": slope_of_room}
    settings = {"jac": True, "method": "SLSQP", "options": {"ftol": 1e-13, "maxiter": 500}}
    free = minimize(objective, np.zeros(12), **settings)
    best = minimize(objective, np.zeros(12), constraints=constraint, **settings)
    assert best.success and (room(free.x)[1:] < -0.2).all()
    gradient, rows = objective(best.x)[1], slope_of_room(best.x)[1:]
    q = np.linalg.lstsq(rows.T, gradient, rcond=None)[0]
    return torch.tensor(X), torch.tensor(t), best, q, objective


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_bounds_on_classes_lead_to_the_answer_on_all_data(momentum):
    """Of the unbounded model, classes 1 and 2 have losses of 0.97 and 1.21."""
    X, t, best, q, objective = softmax_problem()
    share = torch.bincount(t) / len(t)
    model = torch.nn.Linear(3, 3).double()
    for p in model.parameters():
        torch.nn.init.zeros_(p)

    def over(batch):
        rows, labels = batch
        each = F.cross_entropy(model(rows), labels, reduction="none")
        means = (each[:, None] * F.one_hot(labels, 3)).mean(0) / share
        return means - torch.tensor(BOUNDS)

    expected = Expected(over, loader((X, t), 64, 1), values=loader((X, t), 120, 2))
    optimizer = MoSSP(
        model.parameters(), inequality={"classes": expected}, momentum=momentum, multipliers=True,
        mu=lambda k: 0.02 / (1 + k / 300), rho=3.0,
    )  # fmt: skip
    found = trained(model, optimizer, (X, t), 1500, penalty=0.05)
    w = torch.cat([model.weight, model.bias[:, None]], 1).detach().numpy().ravel()
    assert np.abs(w - best.x).max() < 0.03
    assert abs(objective(w)[0] - best.fun) < 3e-3
    assert found.violation < 5e-3 and abs(optimizer.violation() - found.violation) < 0.02
    lam = optimizer._constraints.lam.numpy()
    np.testing.assert_allclose(lam, [0, *q], atol=0.05)


# A fair network -------------------------------------------------------------------------------


def test_a_network_is_fair_with_the_constraint_and_not_without():
    """Selection by a sigmoid: the gap between two groups is within 0.03 on all data, or 0.25."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 4)) + np.outer(group, [1.0, 0.5, 0, 0])
    y = (X[:, 0] ** 2 + X[:, 1] + 0.5 * rng.normal(size=600) > 1).astype(int)
    data = torch.tensor(X, dtype=torch.float32), torch.tensor(y), torch.tensor(group)
    share = data[2].float().mean()
    gaps = []
    for bound in (0.03, 10.0):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

        def gap(batch, model=model, bound=bound):
            rows, _, z = batch
            selected = torch.softmax(model(rows), 1)[:, 1]
            difference = (selected * (z / share - (1 - z) / (1 - share))).mean()
            return torch.stack([difference - bound, -difference - bound])

        expected = Expected(gap, loader(data, 64, 1), values=loader(data, 200, 2))
        optimizer = MoSSP(
            model.parameters(), inequality={"gap": expected}, multipliers=True, mu=0.05
        )
        found = trained(model, optimizer, data, 600)
        gaps.append(abs(found.values["inequality"]["gap"][0].item() + bound))
        with torch.no_grad():
            right = (model(data[0]).argmax(1) == data[1]).float().mean()
        assert right > 0.75
    assert gaps[0] < 0.035 and gaps[1] > 0.15


# What is left out -----------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", ["polyak", "recursive"])
def test_bounds_on_ten_classes_are_met_by_what_is_left_out(momentum):
    """mu and rho by themselves, 6 rows of a class in a batch; all losses are 2.3 at the start."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is optional")
    images, labels = datasets.load_digits(return_X_y=True)
    data = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    share = torch.bincount(data[1]) / len(labels)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10))

    def over(batch):
        rows, t = batch
        each = F.cross_entropy(model(rows), t, reduction="none")
        return (each[:, None] * F.one_hot(t, 10)).mean(0) / share - 0.3

    given = Expected(over, loader(data, 64, 1), values=loader(data, 256, 2))
    settings = {"momentum": momentum, "multipliers": True}
    optimizer = MoSSP(model.parameters(), inequality=given, **settings)
    start = optimizer.evaluate().violation
    found = trained(model, optimizer, data, 300)
    assert start > 5 and found.violation < 0.1
