"""Every method on one synthetic instance, beside the values of an earlier, independent prototype.

    python benchmarks/methods.py

Logistic loss, N = 2000 unit rows, n = 30, on the sphere ||x||^2 = 1, l1 - l2 with lam = 0.01,
batch 32, 20,000 steps. The prototype's instance had the same sizes and nearly the same multiplier,
not the same numbers: orders of magnitude can be compared. F* comes from MLALM with an SVRG anchor.
"""

from __future__ import annotations

import numpy as np
from workload import unit_rows, unit_start

import mossp
from mossp.schedules import AlacaogluWright, Constant, LuMeiXiao

N, n, LAM, STEPS, BATCH = 2000, 30, 0.01, 20_000, 32
CELLS = "  {:>9}  {:>9}  {:>9}  {:>4}"


def instance() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(N, n)), np.zeros(n)
    w[:5] = [2.0, -1.5, 1.0, -1.0, 0.8]
    noise = 0.65 * np.linalg.norm(w) * rng.normal(size=N)
    return unit_rows(X), np.where(X @ w + noise > 0, 1.0, -1.0)


# The prototype's F - F*, stationarity, violation and nonzeros.
PROTOTYPE = {
    "MoSSP rho=5, Polyak .095": (-9.1e-5, 8e-4, 4.5e-3, 5),
    "MoSSP rho=20, Polyak .095": (-2.4e-5, 3e-4, 1.1e-3, 5),
    "MoSSP rho=5, Polyak .905": (3.4e-5, 4e-2, 3.5e-3, 25),
    "MoSSP rho=5, SVRG": (-9.6e-5, 1e-15, 4.4e-3, 5),
    "MoSSP-AL, SVRG": (1e-16, 1e-15, 0.0, 5),
    "SPD rho=5": (-9.4e-5, 1e-2, 4.4e-3, 9),
    "SSDC-SPG, gamma=3L": (5.5e-2, 7e-2, 1.1e-3, 30),
    "SMAG rho=5": (-2.6e-5, 5e-2, 4.2e-3, 30),
    "SDC recursive, exact prox": (-5.2e-5, 4e-4, 2.5e-3, 5),
    "MLALM, recursive .1": (4.1e-6, 3e-3, 1.4e-4, 6),
    "MLALM, SVRG": (2e-16, 2e-15, 0.0, 5),
    "SPDC-P rho=5, T=5": (-9.1e-5, 3e-3, 4.3e-3, 6),
    "SPDC-R rho=5, T=5": (-9.1e-5, 3e-3, 4.3e-3, 6),
    "SALM-P rho=.5, T=5": (3e-6, 3e-3, 1.5e-4, 6),
    "SALM-R rho=.5, T=5": (3e-6, 3e-3, 1.5e-4, 6),
    "Alacaoglu-Wright": (-3.9e-5, 3e-4, 1.8e-3, 5),
    "Lu-Mei-Xiao, no log": (-1.7e-5, 3e-4, 8.0e-4, 5),
    "SQP-DC, SVRG, 4000 steps": (1e-16, 1e-17, 0.0, 5),
    "SCP_ls, ||x||^2 <= 1, 21 it.": (0.0, 1e-16, 0.0, 5),
}


def runs(problem: mossp.Problem, x0: np.ndarray) -> dict:
    """(method, schedule) of every row on the sphere."""
    L = mossp.estimate_constants(problem, x0).L_batch

    def step(rho: float) -> float:
        return 1 / (L + 1.3 * rho * 4)  # ||J||^2 = 4 on the sphere

    def fixed(rho: float, alpha: float = 0.095, mu: float = 1.0, eta: float = 1.0) -> Constant:
        return Constant(rho=rho, mu=mu * step(rho), eta=eta * step(rho), alpha=alpha)

    P, R, svrg = mossp.Polyak(), mossp.Recursive(), mossp.SVRG()
    salm = Constant(rho=0.5, mu=0.05, alpha=0.095)  # the paper's grid has this mu
    return {
        "MoSSP rho=5, Polyak .095": (mossp.MoSSP(P), fixed(5)),
        "MoSSP rho=20, Polyak .095": (mossp.MoSSP(P), fixed(20)),
        "MoSSP rho=5, Polyak .905": (mossp.MoSSP(P), fixed(5, 0.905)),
        "MoSSP rho=5, SVRG": (mossp.MoSSP(svrg), fixed(5)),
        "MoSSP-AL, SVRG": (mossp.MoSSPAL(svrg), "auto"),
        "SPD rho=5": (mossp.SPD(), fixed(5, mu=20, eta=0.2)),
        "SSDC-SPG, gamma=3L": (mossp.SSDC(), fixed(5, mu=1 / 3)),
        "SMAG rho=5": (mossp.SMAG(), fixed(5, mu=0.5, eta=0.25)),
        "SDC recursive, exact prox": (mossp.SDC(R), fixed(5, mu=0.5, eta=1 / 3)),
        "MLALM, recursive .1": (mossp.MLALM(dc=True), fixed(5, 0.1)),
        "MLALM, SVRG": (mossp.MLALM(svrg, dc=True), fixed(5)),
        "SPDC-P rho=5, T=5": (mossp.SPDC(P), fixed(5, mu=20)),
        "SPDC-R rho=5, T=5": (mossp.SPDC(R), fixed(5, mu=20)),
        "SALM-P rho=.5, T=5": (mossp.SALM(P), salm),
        "SALM-R rho=.5, T=5": (mossp.SALM(R), salm),
        "Alacaoglu-Wright": (mossp.MoSSP(R), AlacaogluWright()),
        "Lu-Mei-Xiao, no log": (mossp.MoSSP(R), LuMeiXiao()),
        "SQP-DC, SVRG, 4000 steps": (mossp.SQPDC(svrg), "auto"),
    }


def main() -> None:
    X, y = instance()
    x0 = unit_start(n, 1)

    def problem(**constraints) -> mossp.Problem:
        return mossp.Problem(mossp.losses.logistic, (X, y), mossp.L1MinusL2(LAM), **constraints)

    sphere = problem(equality=lambda x: x @ x - 1.0)
    exact = mossp.MLALM(mossp.SVRG(), dc=True)
    reference = mossp.solve(sphere, x0, method=exact, steps=STEPS, tol=1e-13)
    multiplier = float(reference.certificate.multipliers["equality"])
    print(
        f"F* = {reference.fun:.12f}, multiplier {multiplier:.4f}, "
        f"{np.count_nonzero(reference.x)} nonzeros, "
        f"stationarity {mossp.stationarity(sphere, reference.x):.0e}"
    )

    def cells(gap, stationarity, violation, nonzeros) -> str:
        return CELLS.format(f"{gap:+.1e}", f"{stationarity:.0e}", f"{violation:.1e}", int(nonzeros))

    def seen(posed: mossp.Problem, result: mossp.Result) -> str:
        x, gap = result.x, result.fun - reference.fun
        return cells(gap, mossp.stationarity(posed, x), abs(x @ x - 1), np.count_nonzero(x))

    head = CELLS.format("F - F*", "stat.", "violation", "nnz")
    print(f"{'':<28}{head}  |{head}   (prototype)")
    for name, (method, schedule) in runs(sphere, x0).items():
        result = mossp.solve(
            sphere, x0, method=method, schedule=schedule, batch_size=BATCH,
            steps=4000 if name.startswith("SQP-DC") else STEPS,
            tol=1e-13 if method.exact else None,
        )  # fmt: skip
        print(f"{name:<28}{seen(sphere, result)}  |{cells(*PROTOTYPE[name])}")
    ball, name = problem(inequality=lambda x: x @ x - 1.0), "SCP_ls, ||x||^2 <= 1, 21 it."
    result = mossp.solve(ball, x0, method="scp-ls", steps=21, tol=1e-13)
    print(f"{name:<28}{seen(ball, result)}  |{cells(*PROTOTYPE[name])}")

    print(f"\nuntuned, schedule 'auto'\n{'':<28}{head}   status")
    for name in mossp.METHODS:
        try:
            result = mossp.solve(sphere, x0, method=name, steps=STEPS, batch_size=BATCH)
        except ValueError as refusal:
            print(f"{name:<28}  {refusal}")
        else:
            print(f"{name:<28}{seen(sphere, result)}   {result.status.name}")


if __name__ == "__main__":
    main()
