"""cooper on a problem behind a pipe: steps on the (augmented) Lagrangian until it is stopped.

The parent says in the first line which settings to use. Values, gradients and Jacobians enter the
graph as linear functions through the present point.
"""

from __future__ import annotations

import cooper
import torch

from benchmarks.peers.workers.remote import Oracle, serve

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


class Through(torch.autograd.Function):
    """A vector of values with this Jacobian."""

    @staticmethod
    def forward(ctx, x, values, J):
        ctx.save_for_backward(J)
        return values.clone()

    @staticmethod
    def backward(ctx, q):
        (J,) = ctx.saved_tensors
        return q @ J, None, None


def solve(oracle: Oracle) -> None:
    s, m_E = oracle.stated["settings"], oracle.m_E
    x = torch.nn.Parameter(torch.from_numpy(oracle.x0.copy()))
    m = len(oracle(oracle.x0)["c"])
    kinds, forms = cooper.ConstraintType, cooper.formulations
    augmented = s["penalty"] > 0

    def constraint(kind, count):
        penalty = cooper.penalty_coefficients.DensePenaltyCoefficient(
            init=torch.full((count,), s["penalty"])
        )
        return cooper.Constraint(
            kind, forms.AugmentedLagrangian if augmented else forms.Lagrangian,
            multiplier=cooper.multipliers.DenseMultiplier(num_constraints=count,
                                                          dtype=torch.float64),
            penalty_coefficient=penalty if augmented else None,
        )  # fmt: skip

    class Stated(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            if m_E:
                self.equal = constraint(kinds.EQUALITY, m_E)
            if m > m_E:
                self.below = constraint(kinds.INEQUALITY, m - m_E)

        def compute_cmp_state(self):
            at = {k: torch.from_numpy(v) for k, v in oracle.anew(x.detach().numpy()).items()}
            slope = (at["gradient"] + at["subgradient"])[None]
            F = Through.apply(x, (at["f"] + at["penalty"]).reshape(1), slope)[0]
            c = Through.apply(x, at["c"], at["J"])
            seen = {}
            if m_E:
                seen[self.equal] = cooper.ConstraintState(c[:m_E])
            if m > m_E:
                seen[self.below] = cooper.ConstraintState(c[m_E:])
            return cooper.CMPState(loss=F, observed_constraints=seen)

    problem = Stated()
    kind = torch.optim.Adam if s["optimizer"] == "Adam" else torch.optim.SGD
    primal = kind([x], lr=s["lr"])
    dual = torch.optim.SGD(problem.dual_parameters(), lr=s["dual_lr"], maximize=True)
    both = cooper.optim.SimultaneousOptimizer(
        cmp=problem, primal_optimizers=primal, dual_optimizers=dual
    )
    shrink = s["decay"] ** (1 / oracle.stated["gradients"])
    while True:
        both.roll()
        primal.param_groups[0]["lr"] *= shrink


if __name__ == "__main__":
    serve(solve)
