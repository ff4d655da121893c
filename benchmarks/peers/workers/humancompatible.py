"""humancompatible-train: SSL-ALM, or with `pbm` as a fourth argument the penalty-barrier method."""

from __future__ import annotations

import functools
import sys

import torch
from humancompatible.train.dual_optim import ALM, PBM, MoreauEnvelope

from benchmarks.peers.workers import job
from benchmarks.peers.workers.torch_parts import COMMON, Step, Task, train

SSL_ALM = {
    **COMMON,
    "lr": job.log_uniform(1e-5, 0.3),
    "dual_lr": job.log_uniform(1e-3, 10.0),
    "penalty": job.log_uniform(0.1, 100.0),
    "mu": job.log_uniform(1e-3, 2.0),
    "beta": job.log_uniform(0.05, 1.0),
}
BARRIER = {
    **COMMON,
    "penalty_mult": job.log_uniform(0.1, 0.99),
    "gamma": job.log_uniform(0.05, 0.95),
    "least_penalty": job.log_uniform(1e-3, 0.5),
}


def ssl_alm(task: Task, x: torch.nn.Parameter, optimizer, s: job.Settings, _: int) -> Step:
    is_ineq = not task.problem.equalities
    dual = ALM(m=task.constraints, lr=s["dual_lr"], penalty=s["penalty"], is_ineq=is_ineq)
    smoothed = MoreauEnvelope(optimizer, mu=s["mu"], beta=s["beta"])

    def step(rows):
        optimizer.zero_grad()
        dual.forward_update(*task(x, rows)).backward()
        smoothed.step()

    return step


def pbm(task: Task, x: torch.nn.Parameter, optimizer, s: job.Settings, epoch: int) -> Step:
    dual = PBM(m=task.constraints, penalty_mult=s["penalty_mult"], gamma=s["gamma"],
               epoch_length=epoch, penalty_range=(s["least_penalty"], 1.0),
               init_duals=1e-2)  # fmt: skip

    def step(rows):
        optimizer.zero_grad()
        dual.forward_update(*task(x, rows)).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    make, ranges = (pbm, BARRIER) if "pbm" in sys.argv[4:] else (ssl_alm, SSL_ALM)
    packages = ["humancompatible-train", "torch"]
    job.work(packages, ranges, functools.partial(train, make), False)
