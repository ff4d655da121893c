"""
The same budget in PyTorch
==========================

A training loop as PyTorch has it, with ``mossp.torch.MoSSP`` as its optimizer: a regulariser for the weights, none for the biases,
constraints as closures over the model, multipliers so that they are met and not only approached. The problem is that of
:ref:`sphx_glr_gallery_energy_budget.py`: the energy of the weights that are not zero must stay within a budget.
"""

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import mossp
from mossp.torch import MoSSP

torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
parts = train_test_split(X / 16, y, test_size=0.3, random_state=0, stratify=y)
train_X, test_X = (torch.tensor(a, dtype=torch.float32) for a in parts[:2])
train_y, test_y = (torch.tensor(a) for a in parts[2:])
COST, DELTA, HIDDEN = (1.0, 2.0), 0.05, 32
FULL = COST[0] * 64 * HIDDEN + COST[1] * HIDDEN * 10


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 10)
    )


def layers(model):
    return [model[0].weight, model[2].weight]


def phi(w):
    return (w**2 / (w**2 + DELTA**2)).sum()


def accuracy(model) -> float:
    with torch.no_grad():
        return float((model(test_X).argmax(1) == test_y).float().mean())


def energy(model) -> float:
    return float(sum(c * (w != 0).sum() for c, w in zip(COST, layers(model), strict=True)))


def train(model, optimizer, steps: int, seed: int = 0) -> None:
    draws = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        rows = torch.randint(len(train_X), (64,), generator=draws)

        def closure(rows=rows):
            loss = torch.nn.functional.cross_entropy(model(train_X[rows]), train_y[rows])
            loss.backward()
            return loss

        optimizer.step(closure)


# %%
# The dense network, without a regulariser.

dense = network()
train(dense, MoSSP(dense.parameters(), momentum="polyak", mu=0.2), 3000)
print(f"dense: accuracy {accuracy(dense):.3f}")

# %%
# For each budget: cut the smallest weights off, then train under the constraints. The shares s of the layers are a parameter as
# well, in units of the budget.


def budgeted(part: float) -> tuple[torch.nn.Sequential, MoSSP]:
    model = network()
    model.load_state_dict(dense.state_dict())
    budget = part * FULL
    kept = []
    with torch.no_grad():
        for w in layers(model):
            count = int(0.95 * part * w.numel())
            w *= w.abs() >= w.abs().flatten().sort().values[-count]
            kept.append(count)
    shares = torch.nn.Parameter(
        torch.tensor([c * k / budget for c, k in zip(COST, kept, strict=True)])
    )

    def over():
        spent = torch.stack([c * phi(w) / budget for c, w in zip(COST, layers(model), strict=True)])
        return {"layers": spent - shares, "budget": shares.sum() - 1.0}

    weights, biases = layers(model), [model[0].bias, model[2].bias]
    optimizer = MoSSP(
        [
            {"params": weights, "regularizer": mossp.CappedL1(2e-2, theta=0.1)},
            {"params": biases},
            {"params": [shares], "regularizer": mossp.Nonnegative(mossp.Zero())},
        ],
        inequality=over,
        momentum="polyak",
        mu=lambda k: 0.05 / (1 + k / 1000),
        rho=2.0,
        multipliers=True,
    )
    return model, optimizer


found = []
for part in (0.5, 0.25, 0.15, 0.1):
    model, optimizer = budgeted(part)
    train(model, optimizer, 4000)
    found.append((part, energy(model) / FULL, accuracy(model), optimizer.violation()))
    print("budget {:.0%}: energy {:.1%}, accuracy {:.3f}, violation {:.0e}".format(*found[-1]))

# %%
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.plot([f[1] for f in found], [f[2] for f in found], marker="o")
axes.axhline(accuracy(dense), color="0.5", linestyle=":", label="dense network")
axes.set(xlabel="energy, as a part of the dense network's", ylabel="accuracy on test images")
axes.legend(frameon=False)

assert all(violation <= 1e-3 for *_, violation in found)
