"""PyGRANSO: BFGS-SQP for nonsmooth problems, full gradients by PyTorch.

It ends by itself or by the budget, which is looked at in every evaluation; it then has the point of
the least merit among those it evaluated.
"""

from __future__ import annotations

import contextlib
import io

import numpy as np
import torch
from pygranso.pygranso import pygranso
from pygranso.pygransoStruct import pygransoStruct

from benchmarks.peers.statement import Statement
from benchmarks.peers.workers import job
from benchmarks.peers.workers.torch_parts import Task

RANGES = {
    "mu0": job.log_uniform(0.01, 100.0),
    "opt_tol": job.log_uniform(1e-10, 1e-4),
    "memory": job.one_of([0, 5, 20]),  # 0: a full matrix
}


def solve(
    problem: Statement, s: job.Settings, seed: int, x0: np.ndarray, budget: job.Budget
) -> job.Run:
    task, n, passes = Task(problem), problem.n, 0
    best, least = x0, np.inf

    def evaluated(given):
        nonlocal passes, best, least
        x = given.x.reshape(-1)
        f, c = task(x)
        value = float(f.detach() + job.BIG * torch.linalg.vector_norm(c.detach()))
        if value < least:
            best, least = x.detach().numpy().copy(), value
        budget.note(passes, lambda: best)
        passes += 1
        if budget.used() >= 1 and passes > 1:
            raise job.Late
        held = pygransoStruct()
        held.c1 = c.reshape(-1, 1)
        return [f, None, held] if problem.equalities else [f, held, None]

    options = pygransoStruct()
    options.torch_device = torch.device("cpu")
    options.x0 = torch.from_numpy(x0.copy()).reshape(-1, 1)
    options.mu0, options.opt_tol = s["mu0"], s["opt_tol"]
    options.limited_mem_size = s["memory"]
    options.viol_eq_tol = options.viol_ineq_tol = 1e-6
    options.maxit, options.print_level, options.quadprog_info_msg = 100_000, 0, False
    said, end = False, None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            found = pygranso(var_spec={"x": [n, 1]}, combined_fn=evaluated, user_opts=options)
            end = found.final.x.detach().numpy().reshape(-1)
            said = found.termination_code == 0
        except (Exception, SystemExit) as error:  # it exits where an evaluation raises
            if budget.used() < 1:
                raise RuntimeError(printed.getvalue().strip()[-200:]) from error
    return job.Run(best if end is None else end, said, passes)


if __name__ == "__main__":
    job.work(["pygranso", "torch"], RANGES, solve, True)
