"""Untuned accuracy on the paper's data, from the folder MOSSP_DATA.

    MOSSP_DATA=... python benchmarks/accuracy.py

Sphere: ||x||^2 = 1, l1 - l2 with lam = 0.01, 25,000 steps, five replicas, schedule "auto".
Quadratics: the 20 random equalities of the paper's Appendix D.3, 20,000 steps. DC: regularisers
whose concave part matters, certificates against the number of steps.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from workload import dataset, random_quadratics, unit_start

import mossp

METHODS = ("mossp-p", "mossp-r")
BATCH = {"a9a": 32, "phishing": 32, "australian": 16}
# Computed independently to ten digits: the optimal value and its number of nonzeros.
OPTIMA = {
    "a9a": (0.590736953, 18),
    "phishing": (0.644830453, 10),
    "australian": (0.623845135, 2),
}


def problem_on(X, y, regularizer, **constraints):
    return mossp.Problem(
        loss=mossp.losses.logistic, data=(X, y), regularizer=regularizer, **constraints
    )


def sphere() -> None:
    print("sphere            F - F*    (std)     | ||x||^2 - 1 |   nonzeros   status")
    for name, (best, nonzeros) in OPTIMA.items():
        found = dataset(name)
        if found is None:
            print(f"{name}: not in MOSSP_DATA")
            continue
        X, y = found
        problem = problem_on(X, y, mossp.L1MinusL2(0.01), equality=mossp.constraints.Sphere())
        for method in METHODS:
            r = mossp.solve(
                problem, unit_start(X.shape[1]), method=method, steps=25_000,
                batch_size=BATCH[name], replicas=5,
            )  # fmt: skip
            gap, count = r.funs - best, (r.xs != 0).sum(axis=1).mean()
            short = abs(gap.mean()) > 5e-4 or r.violations.mean() > 5e-3
            short |= count > 1.5 * nonzeros + 2
            print(
                f"{name:<11}{method}  {gap.mean():+.1e}  ({gap.std():.0e})  "
                f"{r.violations.mean():.1e}         {count:4.1f} / {nonzeros:<3}  {r.status.name}"
                f"{'   SHORT' if short else ''}"
            )


def quadratics() -> None:
    print("\n20 quadratics     sum |c_j|    F          ||u||     status")
    for name in ("a9a", "phishing"):
        found = dataset(name)
        if found is None:
            continue
        X, y = found
        n = X.shape[1]
        constraint = random_quadratics(n)
        problem = problem_on(X, y, mossp.L1MinusL2(0.01), equality=constraint)
        for method in METHODS:
            r = mossp.solve(problem, unit_start(n, 1), method=method, steps=20_000, replicas=5)
            sums = [np.abs(np.asarray(constraint(x))).sum() for x in r.xs]
            short = "   SHORT" if np.mean(sums) > 3e-2 else ""
            print(
                f"{name:<11}{method}  {np.mean(sums):.1e}     {r.funs.mean():.6f}   "
                f"{r.certificate.criticality:.1e}   {r.status.name}{short}"
            )


def concave_parts() -> None:
    found = dataset("a9a")
    if found is None:
        return
    X, y = found
    x0, Ks = unit_start(X.shape[1]), (1_000, 4_000, 16_000, 64_000)
    on_sphere = {"equality": mossp.constraints.Sphere()}
    cases = {
        "capped l1": (mossp.CappedL1(0.01, 0.2), on_sphere),
        "MCP": (mossp.MCP(0.01, 20.0), on_sphere),
        "SCAD": (mossp.SCAD(0.01, 3.7), on_sphere),
        "truncated l1": (mossp.TruncatedL1(0.01, 5), on_sphere),
        "l1 - l2, ||x||^2 <= 4": (
            mossp.L1MinusL2(0.01),
            {"inequality": lambda x: jnp.sum(x * x) - 4},
        ),
    }
    print("\na9a: ||u|| / ||c|| / status for K = " + ", ".join(f"{K:,}" for K in Ks))
    for label, (regularizer, constraints) in cases.items():
        problem = problem_on(X, y, regularizer, **constraints)
        for method in METHODS:
            cells = []
            for K in Ks:
                r = mossp.solve(problem, x0, method=method, steps=K)
                c = r.certificate
                cells.append(f"{c.criticality:.1e}/{c.feasibility:.1e}/{r.status.name}")
            print(f"{label:<22} {method}  " + "  ".join(cells))


if __name__ == "__main__":
    sphere()
    quadratics()
    concave_parts()
