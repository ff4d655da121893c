"""What the workers on PyTorch share: the statement as tensors, and the loop over mini-batches.

Rows are drawn uniformly and each step's batch serves f and c; means over groups are means over the
batch with weights 1 / (share of the group), hence unbiased. The primal step size falls
geometrically, by a factor that is tuned too. Float64, one thread; the answer is the last iterate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.peers.statement import Statement
from benchmarks.peers.workers.job import BATCH, Budget, Run, Settings, log_uniform, one_of

BATCHES = [32, 256, 2048, 0]  # 0: all rows
COMMON = {
    "optimizer": one_of(["SGD", "Adam"]),
    "decay": log_uniform(1e-3, 1.0),
    "batch": one_of(BATCHES),
    # The step of SGD is `lr` times 100: unit rows make the loss's curvature at most 1/4.
    "lr": log_uniform(1e-3, 0.3),
}

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)  # batches are small

Step = Callable[[torch.Tensor | None], None]


class Task:
    """F and c on a batch of rows, or on all."""

    def __init__(self, problem: Statement) -> None:
        self.problem = problem
        to = torch.from_numpy
        self.X, self.y, self.d = (to(a) for a in (problem.X, problem.y, problem.d))
        self.w = to(problem.w * len(problem.w))
        self.Q, self.p, self.r = (to(a) for a in (problem.Q, problem.p, problem.r))

    @property
    def constraints(self) -> int:
        return self.problem.equalities + len(self.problem.sides)

    def __call__(self, x: torch.Tensor, rows: torch.Tensor | None = None):
        given = self.problem
        X, y, d, w = (a if rows is None else a[rows] for a in (self.X, self.y, self.d, self.w))
        margins = X @ x
        losses = torch.nn.functional.softplus(-y * margins)
        F = torch.mean(w * losses)
        if given.lam:
            F = F + given.lam * (x.abs().sum() - torch.linalg.vector_norm(x))
        if given.equalities:
            return F, 0.5 * self.Q @ (x * x) + self.p @ x - self.r
        v = losses if given.kind == "loss" else torch.sigmoid(margins / given.softness)
        gap = torch.mean(d * v)
        return F, torch.stack([side * gap - given.bound for side in given.sides])


def primal(x: torch.Tensor, s: Settings) -> torch.optim.Optimizer:
    if s["optimizer"] == "Adam":
        return torch.optim.Adam([x], lr=s["lr"])
    return torch.optim.SGD([x], lr=100 * s["lr"])


def train(
    make: Callable[..., Step], problem: Statement, s: Settings, seed: int, x0: np.ndarray,
    budget: Budget,
) -> Run:  # fmt: skip
    """Steps until the budget is used up."""
    torch.manual_seed(seed)
    task = Task(problem)
    N, size = len(task.y), BATCH if np.isfinite(budget.samples) else s["batch"]
    size = 0 if size >= N else size
    x = torch.nn.Parameter(torch.from_numpy(x0.copy()))
    optimizer = primal(x, s)
    step = make(task, x, optimizer, s, max(1, N // size if size else 1))
    first, used, samples = optimizer.param_groups[0]["lr"], 0.0, 0
    differentiated = 2 if problem.sides else 1  # for f and for c
    while used < 1:
        budget.note(samples / N, lambda: x.detach().numpy())
        optimizer.param_groups[0]["lr"] = first * s["decay"] ** used
        step(torch.randint(N, (size,)) if size else None)
        samples += differentiated * (size or N)
        used = budget.used(samples)
    return Run(x.detach().numpy(), None, samples / N)
