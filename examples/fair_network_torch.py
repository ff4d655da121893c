"""
A fair network in PyTorch
=========================

A network learns from past decisions that favoured one group. How often it selects somebody, it should say of both groups alike, and
it should serve neither worse: two constraints that are means over data, of which a training step sees a mini-batch.
``mossp.torch.Expected`` says so; the loader, the loss and the loop are those of any training. For a linear model, with a bound on
covariances, see :ref:`sphx_glr_gallery_fair_classification.py`.
"""

# %%
# Applicants with a skill, a group, and scores in which the group shows. Past decisions favoured group 1, and in a way that no linear
# model would find.

import itertools

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from mossp.torch import Expected, MoSSP

torch.set_num_threads(1)  # a small network, which more of them slow down
rng = np.random.default_rng(0)
N = 4000
group = rng.integers(0, 2, N)
skill = rng.normal(size=N)
scores = np.column_stack(
    [
        skill + 0.5 * rng.normal(size=N),
        skill + 1.2 * group + 0.5 * rng.normal(size=N),  # a proxy of the group
        group + rng.normal(size=N),  # another
        rng.normal(size=(N, 3)),  # noise
    ]
)
decision = skill + 0.8 * group * (scores[:, 2] > 0) + 0.3 * rng.normal(size=N) > 0.4
X = torch.tensor((scores - scores.mean(0)) / scores.std(0), dtype=torch.float32)
data = X, torch.tensor(decision).float(), torch.tensor(group).float()
train, test = [t[:2500] for t in data], [t[2500:] for t in data]
share = train[2].mean()  # of group 1


def loader(size: int, seed: int) -> DataLoader:
    """Batches in a random order, each taken from the tensors at once."""
    draws = torch.Generator().manual_seed(seed)
    order = RandomSampler(train[0], generator=draws)
    batches = BatchSampler(order, size, drop_last=False)
    return DataLoader(TensorDataset(*train), batch_size=None, sampler=batches, generator=draws)


# %%
# The constraints. A mean over a group is a mean over all rows, divided by the share of the group in all of the data: so it is right
# on average, whatever part of a mini-batch the group is. ``loss`` is a tensor of two, the losses of both groups; ``selection`` bounds
# a difference from both sides.

cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits


def differences(model, batch):
    """Of the groups' selection rates, by the sigmoid of the logits; and the loss of each group."""
    rows, labels, z = batch
    logits = model(rows)[:, 0]
    weights = torch.stack([(1 - z) / (1 - share), z / share])
    zero, one = (weights * torch.sigmoid(logits)).mean(1)
    return one - zero, (weights * cross_entropy(logits, labels, reduction="none")).mean(1)


def fairness(model, bound: float, worst_loss: float):
    def over(batch):
        difference, losses = differences(model, batch)
        return {
            "selection": torch.stack([difference - bound, -difference - bound]),
            "loss": losses - worst_loss,
        }

    return over


# %%
# One network for each bound. Values are estimated on mini-batches of their own, which are larger: they cost no backward pass.


def trained(bound: float, steps: int = 1200):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    expected = Expected(fairness(model, bound, 0.42), loader(64, 1), values=loader(256, 2))
    optimizer = MoSSP(
        model.parameters(),
        "l1:0.0005",
        inequality={"fair": expected},
        mu=lambda k: 0.1 / (1 + k / 500),
        multipliers=True,
    )
    epochs = itertools.repeat(loader(64, 3))
    for batch in itertools.islice(itertools.chain.from_iterable(epochs), steps):

        def closure(batch=batch):
            loss = cross_entropy(model(batch[0])[:, 0], batch[1])
            loss.backward()
            return loss

        optimizer.step(closure)
    return model, optimizer


def true_rates(model) -> tuple[float, float]:
    """Accuracy and the gap of decisions, not of their proxy, on the rows for testing."""
    rows, labels, z = test
    with torch.no_grad():
        chosen = (model(rows)[:, 0] > 0).float()
    gap = chosen[z == 1].mean() - chosen[z == 0].mean()
    return float((chosen == labels).float().mean()), float(gap)


# %%
# While training, ``optimizer.violation()`` is what the steps have tracked. ``optimizer.evaluate()`` goes through all of the data, any
# loader's, and tells standard errors as well.

found = []
for bound in (1.0, 0.2, 0.1, 0.05, 0.02):
    model, optimizer = trained(bound)
    now = optimizer.evaluate()
    selection = float(now.values["inequality"]["fair"]["selection"][0]) + bound
    error = float(now.errors["inequality"]["fair"]["selection"][0])
    accuracy, gap = true_rates(model)
    found.append((bound, selection, accuracy, gap, now.violation))
    q = float(optimizer.multipliers["inequality"]["fair"]["selection"][0])
    print(
        f"bound {bound:.2f}: difference {selection:.3f} +- {error:.3f}, violation {now.violation:.4f}, multiplier {q:.2f}; "
        f"on test rows: accuracy {accuracy:.3f}, gap of decisions {gap:.3f}"
    )

# %%
# The multiplier is what fairness costs: the loss rises by so much for each unit by which the bound falls.

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, column, marker in (("sigmoids, training rows", 1, "o"), ("decisions, test rows", 3, "s")):
    axes.plot([f[column] for f in found], [f[2] for f in found], marker=marker, label=name)
axes.set(xlabel="difference of the groups' selection rates", ylabel="accuracy (test)")
axes.legend(frameon=False)

assert found[0][1] > 0.2  # without a bound
assert all(
    selection <= bound + 0.01 and violation <= 0.01 for bound, selection, *_, violation in found
)
