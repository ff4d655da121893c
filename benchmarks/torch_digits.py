"""A bound on the loss of every class of scikit-learn's digits: MoSSP against Adam with a penalty.

    python benchmarks/torch_digits.py          a table; about five minutes on one core

    min  mean loss + 0.003 ||weights||_1   subject to   mean loss of class k <= 0.2,  k = 0, ..., 9

on the training rows, for a network of 64, 32 and 10 units, in 4000 steps on mini-batches of 64 rows
for the loss. Adam takes the gradient of the loss, the l1 norm and rho/2 sum_k [c_k]_+^2, the c_k of
256 rows more. MoSSP differentiates 64 rows for the constraints and looks at 256 for their values.
All step sizes fall by the same cosine. Each has nine settings, tried on two splits: of those within
the bound on the training rows (or else nearest to it) the one with the least objective on the
validation rows is taken. Then five other splits and starts are run with it. Test rows are the same
throughout, and no setting has seen them.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from mossp.torch import Expected, MoSSP, NonFiniteError

BOUND, LAM, STEPS = 0.2, 3e-3, 4000
TUNED_ON, SEEDS = (100, 101), range(5)
CUT = 1e-3  # below which a weight of Adam's counts as none, in a row of its own
F = torch.nn.functional


class Rows(NamedTuple):
    X: Any
    y: Any


class Split(NamedTuple):
    train: Rows
    validation: Rows
    test: Rows


def split(seed: int) -> Split:
    images, labels = load_digits(return_X_y=True)
    X = (images / 16).astype(np.float32)
    halves = train_test_split(X, labels, test_size=0.2, random_state=0, stratify=labels)
    rest, test, rest_y, test_y = halves
    train, validation, train_y, validation_y = train_test_split(
        rest, rest_y, test_size=0.25, random_state=seed, stratify=rest_y
    )
    pairs = (train, train_y), (validation, validation_y), (test, test_y)
    return Split(*(Rows(torch.tensor(A), torch.tensor(y)) for A, y in pairs))


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))


def loader(rows: Rows, size: int, seed: int) -> Any:
    """Batches in a random order, each taken from the tensors at once."""
    draws = torch.Generator().manual_seed(seed)
    order = BatchSampler(RandomSampler(rows.X, generator=draws), size, drop_last=True)
    return DataLoader(TensorDataset(*rows), batch_size=None, sampler=order, generator=draws)


def forever(batches: Any) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.repeat(batches))


def fall(k: int) -> float:
    """From 1 to 0.02, by a cosine."""
    return 0.02 + 0.98 * (1 + math.cos(math.pi * k / STEPS)) / 2


def over(model: Any, rows: Rows) -> Callable[[Any], Any]:
    """The loss of every class less the bound, as a mean over the rows of a batch."""
    share = torch.bincount(rows.y) / len(rows.y)

    def function(batch: Any) -> Any:
        each = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return (each[:, None] * F.one_hot(batch[1], 10)).mean(0) / share - BOUND

    return function


# The contenders -------------------------------------------------------------------------------


def by_mossp(model: Any, train: Rows, seed: int, lr: float, rho: float, momentum: str) -> None:
    weights, biases = [model[0].weight, model[2].weight], [model[0].bias, model[2].bias]
    batches = loader(train, 64, seed + 1), loader(train, 256, seed + 2)
    optimizer = MoSSP(
        [{"params": weights, "regularizer": f"l1:{LAM}"}, {"params": biases}],
        inequality={"classes": Expected(over(model, train), batches[0], values=batches[1])},
        momentum=momentum, multipliers=True, rho=rho,
        mu=lambda k: lr * fall(k), alpha=lambda k: 0.1 * max(fall(k), 0.1),
    )  # fmt: skip
    for _, (X, y) in zip(range(STEPS), forever(loader(train, 64, seed)), strict=False):

        def closure(X: Any = X, y: Any = y) -> Any:
            loss = F.cross_entropy(model(X), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def by_adam(model: Any, train: Rows, seed: int, lr: float, rho: float) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, fall)
    c, more = over(model, train), forever(loader(train, 256, seed + 1))
    for _, (X, y) in zip(range(STEPS), forever(loader(train, 64, seed)), strict=False):
        optimizer.zero_grad()
        l1 = model[0].weight.abs().sum() + model[2].weight.abs().sum()
        loss = F.cross_entropy(model(X), y) + LAM * l1
        if rho:
            loss = loss + rho / 2 * c(next(more)).clamp(min=0).square().sum()
        loss.backward()
        optimizer.step()
        scheduler.step()


CONTENDERS: dict[str, tuple[Callable[..., None], tuple[float, ...], tuple[float, ...]]] = {
    "MoSSP, Polyak": (lambda *a: by_mossp(*a, "polyak"), (0.3, 1.0, 3.0), (0.03, 0.1, 0.3)),
    "MoSSP, recursive": (lambda *a: by_mossp(*a, "recursive"), (0.3, 1.0, 3.0), (0.03, 0.1, 0.3)),
    "Adam, penalty": (by_adam, (0.01, 0.03, 0.1), (0.3, 1.0, 10.0)),
    "Adam, no bound": (by_adam, (0.01, 0.03, 0.1), (0.0,)),
}


# What is reported -----------------------------------------------------------------------------


class Found(NamedTuple):
    worst: float  # the loss of the worst class: training rows
    worst_test: float  # and test rows
    accuracy: float  # test rows
    objective: float  # mean loss + lam ||weights||_1, training rows
    nonzeros: int
    seconds: float


@torch.no_grad()
def worst_loss(model: Any, rows: Rows) -> float:
    each = F.cross_entropy(model(rows.X), rows.y, reduction="none")
    return max(float(each[rows.y == k].mean()) for k in range(10))


@torch.no_grad()
def objective(model: Any, rows: Rows) -> float:
    l1 = model[0].weight.abs().sum() + model[2].weight.abs().sum()
    return float(F.cross_entropy(model(rows.X), rows.y) + LAM * l1)


@torch.no_grad()
def measured(model: Any, data: Split, seconds: float) -> Found:
    weights = torch.cat([model[0].weight.ravel(), model[2].weight.ravel()])
    return Found(
        worst_loss(model, data.train),
        worst_loss(model, data.test),
        float((model(data.test.X).argmax(1) == data.test.y).float().mean()),
        objective(model, data.train),
        int((weights != 0).sum()),
        seconds,
    )


def trained(
    train: Callable[..., None], seed: int, lr: float, rho: float
) -> tuple[Any, Split, float]:
    model, data = network(seed), split(seed)
    began = time.process_time()
    train(model, data.train, 10 * seed, lr, rho)
    return model, data, time.process_time() - began


def judged(train: Callable[..., None], lr: float, rho: float) -> tuple[float, float]:
    """How far over the bound on training rows, and the objective on validation rows."""
    try:
        runs = [trained(train, seed, lr, rho) for seed in TUNED_ON]
    except NonFiniteError:
        return math.inf, math.inf
    over_it = [max(worst_loss(model, data.train) - BOUND, 0.0) for model, data, _ in runs]
    return max(over_it), float(np.mean([objective(m, data.validation) for m, data, _ in runs]))


def row(name: str, settings: str, found: list[Found]) -> str:
    mean, within = Found(*np.mean(found, axis=0)), sum(f.worst <= BOUND for f in found)
    low, high = min(f.worst for f in found), max(f.worst for f in found)
    return (
        f"| {name} | {settings} | {within} of {len(found)} "
        f"| {mean.worst:.3f} ({low:.3f}-{high:.3f}) | {mean.worst_test:.2f} "
        f"| {mean.accuracy:.3f} | {mean.objective:.3f} | {mean.nonzeros:.0f} | {mean.seconds:.1f} |"
    )


def main() -> None:
    torch.set_num_threads(1)
    weights = 64 * 32 + 32 * 10
    print(
        f"{weights} weights; means of {len(SEEDS)} seeds, CPU seconds\n\n"
        "| | lr, rho | within the bound | worst class (range) | worst class, test | accuracy, test "
        "| objective | nonzeros | seconds |\n|---|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name, (train, sizes, penalties) in CONTENDERS.items():
        grid = itertools.product(sizes, penalties)
        lr, rho = min(grid, key=lambda setting: judged(train, *setting))
        runs = [trained(train, seed, lr, rho) for seed in SEEDS]
        settings = f"{lr:g}, {rho:g}" if rho else f"{lr:g}"
        print(row(name, settings, [measured(*run) for run in runs]), flush=True)
        if name == "Adam, penalty":
            for model, _, _ in runs:
                for layer in (model[0], model[2]):
                    layer.weight.data[layer.weight.abs() < CUT] = 0.0
            cut = [measured(*run) for run in runs]
            print(row(f"the same, weights below {CUT:g} cut", settings, cut), flush=True)


if __name__ == "__main__":
    main()
