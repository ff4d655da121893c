"""cooper-optim: simultaneous steps on the Lagrangian, or the augmented one."""

from __future__ import annotations

import functools

import cooper
import torch

from benchmarks.peers.workers import job
from benchmarks.peers.workers.torch_parts import COMMON, Step, Task, train

RANGES = {
    **COMMON,
    "lr": job.log_uniform(1e-5, 0.3),
    "dual_lr": job.log_uniform(1e-3, 10.0),
    "penalty": job.one_of([0.0, 0.1, 1.0, 10.0, 100.0]),
}


def steps(task: Task, x: torch.nn.Parameter, optimizer, s: job.Settings, _: int) -> Step:
    m, augmented = task.constraints, s["penalty"] > 0
    multiplier = cooper.multipliers.DenseMultiplier(num_constraints=m, dtype=torch.float64)
    coefficient = cooper.penalty_coefficients.DensePenaltyCoefficient(
        init=torch.full((m,), s["penalty"])
    )
    kinds, forms = cooper.ConstraintType, cooper.formulations
    constraint = cooper.Constraint(
        kinds.EQUALITY if task.problem.equalities else kinds.INEQUALITY,
        forms.AugmentedLagrangian if augmented else forms.Lagrangian,
        multiplier=multiplier,
        penalty_coefficient=coefficient if augmented else None,
    )

    class Stated(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            self.only = constraint

        def compute_cmp_state(self, rows):
            f, c = task(x, rows)
            return cooper.CMPState(
                loss=f, observed_constraints={self.only: cooper.ConstraintState(c)}
            )

    problem = Stated()
    dual = torch.optim.SGD(problem.dual_parameters(), lr=s["dual_lr"], maximize=True)
    both = cooper.optim.SimultaneousOptimizer(
        cmp=problem, primal_optimizers=optimizer, dual_optimizers=dual
    )
    return lambda rows: both.roll(compute_cmp_state_kwargs={"rows": rows})


if __name__ == "__main__":
    job.work(["cooper-optim", "torch"], RANGES, functools.partial(train, steps), False)
