"""Other packages on the problems of data_constraints.py, in an environment of their own.

    python peers.py data.npz job.json answer.npz

Needs torch, cooper-optim, humancompatible-train and fairlearn, and nothing of mossp. The job says
which solver and problem, how many trials and seeds, and the budget of a run: seconds, with a batch
size that is tuned, or a number of samples differentiated, with batches of 32. Settings are drawn at
random from the ranges below with a fixed seed; the trial with the least

    objective + BIG * violation      on all rows

is run again with other seeds. Rows are drawn uniformly, each step's batch serves f and c, and group
means are means over the batch with weights 1 / (share of the group), hence unbiased. Step sizes of
the primal fall geometrically, by a factor that is tuned too. Float64, one thread.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

BIG = 100.0
BATCHES = [32, 256, 2048, 0]  # 0: all rows
Settings = dict[str, Any]


def log_uniform(low: float, high: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(np.exp(rng.uniform(np.log(low), np.log(high))))


def one_of(values: list) -> Callable[[np.random.Generator], Any]:
    return lambda rng: values[rng.integers(len(values))]


COMMON = {"optimizer": one_of(["SGD", "Adam"]), "decay": log_uniform(1e-3, 1.0)}
# The step of SGD is `lr` times 100: unit rows make the loss's curvature at most 1/4.
RANGES = {
    "cooper": {
        **COMMON, "lr": log_uniform(1e-3, 0.3), "dual_lr": log_uniform(1e-3, 10.0),
        "penalty": one_of([0.0, 0.1, 1.0, 10.0, 100.0]),
    },
    "hc SSL-ALM": {
        **COMMON, "lr": log_uniform(1e-3, 0.3), "dual_lr": log_uniform(1e-3, 10.0),
        "penalty": log_uniform(0.1, 100.0), "mu": log_uniform(1e-3, 2.0),
        "beta": log_uniform(0.05, 1.0),
    },
    "hc PBM": {
        **COMMON, "lr": log_uniform(1e-3, 0.3), "penalty_mult": log_uniform(0.1, 0.99),
        "gamma": log_uniform(0.05, 0.95), "least_penalty": log_uniform(1e-3, 0.5),
    },
    "fairlearn": {
        "difference_bound": log_uniform(1e-3, 0.03), "C": log_uniform(0.1, 1e3),
        "eta0": log_uniform(0.5, 5.0),
    },
}  # fmt: skip


class Task:
    """f and c = (v - bound, -v - bound), v the difference of two groups' means, on a batch."""

    def __init__(self, path: str, kind: str, bound: float, softness: float) -> None:
        found = np.load(path)
        self.X, self.y, self.d = (torch.from_numpy(found[k]) for k in ("X", "y", "d"))
        self.kind, self.bound, self.softness = kind, bound, softness

    def __call__(self, x: torch.Tensor, rows: torch.Tensor | None = None):
        X, y, d = (a if rows is None else a[rows] for a in (self.X, self.y, self.d))
        margins = X @ x
        losses = torch.nn.functional.softplus(-y * margins)
        v = losses if self.kind == "loss" else torch.sigmoid(margins / self.softness)
        gap = torch.mean(d * v)
        return losses.mean(), torch.stack([gap - self.bound, -gap - self.bound])

    def merit(self, x: np.ndarray) -> float:
        with torch.no_grad():
            f, c = self(torch.from_numpy(x))
        value = float(f + BIG * torch.clamp(c.max(), min=0.0))
        return value if np.isfinite(value) else np.inf


Step = Callable[[torch.Tensor | None], None]


def primal(x: torch.Tensor, s: Settings) -> torch.optim.Optimizer:
    if s["optimizer"] == "Adam":
        return torch.optim.Adam([x], lr=s["lr"])
    return torch.optim.SGD([x], lr=100 * s["lr"])


def cooper_step(task: Task, x: torch.nn.Parameter, optimizer, s: Settings, _: int) -> Step:
    import cooper

    augmented = s["penalty"] > 0
    multiplier = cooper.multipliers.DenseMultiplier(num_constraints=2, dtype=torch.float64)
    coefficient = cooper.penalty_coefficients.DensePenaltyCoefficient(
        init=torch.full((2,), s["penalty"])
    )
    constraint = cooper.Constraint(
        cooper.ConstraintType.INEQUALITY,
        cooper.formulations.AugmentedLagrangian if augmented else cooper.formulations.Lagrangian,
        multiplier=multiplier,
        penalty_coefficient=coefficient if augmented else None,
    )

    class Stated(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            self.gap = constraint

        def compute_cmp_state(self, rows):
            f, c = task(x, rows)
            return cooper.CMPState(
                loss=f, observed_constraints={self.gap: cooper.ConstraintState(c)}
            )

    problem = Stated()
    dual = torch.optim.SGD(problem.dual_parameters(), lr=s["dual_lr"], maximize=True)
    both = cooper.optim.SimultaneousOptimizer(
        cmp=problem, primal_optimizers=optimizer, dual_optimizers=dual
    )
    return lambda rows: both.roll(compute_cmp_state_kwargs={"rows": rows})


def ssl_alm_step(task: Task, x: torch.nn.Parameter, optimizer, s: Settings, _: int) -> Step:
    from humancompatible.train.dual_optim import ALM, MoreauEnvelope

    dual = ALM(m=2, lr=s["dual_lr"], penalty=s["penalty"], is_ineq=True)
    smoothed = MoreauEnvelope(optimizer, mu=s["mu"], beta=s["beta"])

    def step(rows):
        optimizer.zero_grad()
        dual.forward_update(*task(x, rows)).backward()
        smoothed.step()

    return step


def pbm_step(task: Task, x: torch.nn.Parameter, optimizer, s: Settings, epoch: int) -> Step:
    from humancompatible.train.dual_optim import PBM

    dual = PBM(m=2, penalty_mult=s["penalty_mult"], gamma=s["gamma"], epoch_length=epoch,
               penalty_range=(s["least_penalty"], 1.0), init_duals=1e-2)  # fmt: skip

    def step(rows):
        optimizer.zero_grad()
        dual.forward_update(*task(x, rows)).backward()
        optimizer.step()

    return step


STEPS = {"cooper": cooper_step, "hc SSL-ALM": ssl_alm_step, "hc PBM": pbm_step}


def train(task: Task, solver: str, s: Settings, seed: int, budget: Settings) -> dict[str, Any]:
    """One run from x = 0; the last iterate."""
    torch.manual_seed(seed)
    N, size = len(task.y), s["batch"]
    x = torch.nn.Parameter(torch.zeros(task.X.shape[1]))
    optimizer = primal(x, s)
    step = STEPS[solver](task, x, optimizer, s, max(1, N // size if size else 1))
    first = optimizer.param_groups[0]["lr"]
    limit, seconds = budget.get("samples", np.inf), budget.get("seconds", np.inf)
    began, samples, done = time.perf_counter(), 0, 0.0
    while done < 1:
        optimizer.param_groups[0]["lr"] = first * s["decay"] ** done
        step(torch.randint(N, (size,)) if size else None)
        samples += 2 * (size or N)  # differentiated for f and for c
        done = max(samples / limit, (time.perf_counter() - began) / seconds)
    took = time.perf_counter() - began
    return {"xs": x.detach().numpy()[None], "weights": [1.0], "seconds": took, "samples": samples}


def reduce_unfairness(task: Task, _: str, s: Settings, __: int, ___: Settings) -> dict[str, Any]:
    """A mixture of classifiers: all of their weights. It is deterministic."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    X = task.X.numpy()  # it takes no sparse rows
    group = (task.d > 0).numpy().astype(int)
    kept = (task.d != 0).numpy()
    began = time.perf_counter()
    model = ExponentiatedGradient(
        LogisticRegression(C=s["C"], fit_intercept=False),
        DemographicParity(difference_bound=s["difference_bound"]),
        eps=s["difference_bound"], eta0=s["eta0"], max_iter=15,
    )  # fmt: skip
    model.fit(X[kept], (task.y.numpy()[kept] > 0).astype(int), sensitive_features=group[kept])
    took = time.perf_counter() - began
    used = [k for k, w in model.weights_.items() if w > 0]
    xs = np.array([model.predictors_[k].coef_[0] for k in used])
    return {"xs": xs, "weights": [float(model.weights_[k]) for k in used], "seconds": took,
            "samples": 0}  # fmt: skip


def mixed_merit(task: Task, answer: dict[str, Any]) -> float:
    """Of a mixture: the mean loss, and the true selection difference, which is what it bounds."""
    if len(answer["xs"]) == 1 and answer["samples"]:
        return task.merit(answer["xs"][0])
    w, X = np.array(answer["weights"]), task.X.numpy()
    margins = X @ answer["xs"].T
    loss = np.logaddexp(0, -task.y.numpy()[:, None] * margins).mean(0) @ w
    gap = abs(np.mean(task.d.numpy() * ((margins > 0) @ w)))
    return float(loss + BIG * max(gap - task.bound, 0.0))


def main(data: str, job: str, answer: str) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # batches are small
    with open(job) as file:
        asked = json.load(file)
    solver, budget = asked["solver"], asked["budget"]
    task = Task(data, asked["kind"], asked["bound"], asked["softness"])
    run = reduce_unfairness if solver == "fairlearn" else train
    rng, ranges = np.random.default_rng(0), RANGES[solver]
    best, least, began = {}, np.inf, time.perf_counter()
    for _ in range(asked["trials"]):
        s = {name: draw(rng) for name, draw in ranges.items()}
        s["batch"] = one_of(BATCHES)(rng) if "seconds" in budget else 32
        merit = mixed_merit(task, run(task, solver, s, 0, budget))
        if merit < least or not best:
            best, least = s, merit
    tuning = time.perf_counter() - began
    runs = [run(task, solver, best, 1 + seed, budget) for seed in range(asked["seeds"])]
    arrays = {f"xs{k}": r["xs"] for k, r in enumerate(runs)}
    arrays |= {f"weights{k}": np.array(r["weights"]) for k, r in enumerate(runs)}
    arrays |= {name: np.array([r[name] for r in runs]) for name in ("seconds", "samples")}
    np.savez(answer, settings=json.dumps(best), tuning=tuning, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
