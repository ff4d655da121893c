"""Where default solves end: F over data sets, regularisers, constraints and starts.

    MOSSP_DATA=... python benchmarks/endings.py write before.json     # with one version
    MOSSP_DATA=... python benchmarks/endings.py write after.json      # with another
    ... write some.json australian tanh                               # some of the data sets
    python benchmarks/endings.py compare before.json after.json

A problem that is not convex has many critical points: a change of what "auto" does may lead to
others, and must not lead to worse ones. Compared are F, relative to 1 + |F|, and how often
`success` was claimed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from workload import dataset, random_quadratics, unit_start

import mossp

LAM = 0.01
STARTS = 5
SAME = 1e-9  # relative difference of F below which two ends are one
PENALTIES = {
    "l1 - l2": mossp.L1MinusL2(LAM),
    "capped l1": mossp.CappedL1(LAM, 0.1),
    "MCP": mossp.MCP(LAM),
    "SCAD": mossp.SCAD(LAM),
    "log-sum": mossp.LogSum(LAM, 0.5),
    "transformed l1": mossp.TransformedL1(LAM),
    "truncated l1": mossp.TruncatedL1(LAM, 3),
    "truncated l1 - l2": mossp.TruncatedL1MinusL2(LAM, 1),
    "nonnegative l1 - l2": mossp.Nonnegative(mossp.L1MinusL2(LAM)),
}
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "sphere": {"equality": mossp.constraints.Sphere()},
    "|x|^2 <= 1": {"inequality": lambda x: x @ x - 1.0},
    "|x|^2 <= 1e4": {"inequality": lambda x: x @ x - 1e4},
}


def generated(N: int = 3000, n: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, n))
    return X, np.sign(X[:, 0] + 0.5 * rng.normal(size=N))


def bent(x: Any, batch: Any) -> Any:
    """Squared error of tanh(A x): a loss that is neither convex nor known to be linear in x."""
    import jax.numpy as jnp

    A, b = batch
    return jnp.mean((jnp.tanh(A @ x) - b) ** 2)


def cases() -> Iterator[tuple[str, mossp.Problem, int, list[np.ndarray]]]:
    """(name, problem, batch size, starts)."""
    sets = {name: dataset(name) for name in ("australian", "phishing", "a9a")}
    sets["generated"] = generated()
    for name, data in sets.items():
        if data is None:
            print(f"{name}: not in MOSSP_DATA")
            continue
        n, batch = data[0].shape[1], 16 if name == "australian" else 32
        few = {k: PENALTIES[k] for k in ("l1 - l2", "MCP")} if name == "a9a" else PENALTIES
        starts = [unit_start(n, seed) for seed in range(2 if name == "a9a" else STARTS)]
        for penalty, regularizer in few.items():
            for constraint, given in CONSTRAINTS.items():
                if name in ("a9a", "phishing") and constraint != "sphere":
                    continue
                problem = mossp.Problem(mossp.losses.logistic, data, regularizer, **given)
                yield f"{name}, {penalty}, {constraint}", problem, batch, starts
        if name in ("phishing", "generated"):
            quadratics = random_quadratics(n)
            problem = mossp.Problem(
                mossp.losses.logistic, data, mossp.L1MinusL2(LAM), equality=quadratics
            )
            yield f"{name}, l1 - l2, 20 quadratics", problem, batch, starts
    X, y = generated(1000, 20)
    for penalty in ("l1 - l2", "MCP"):
        for constraint in ("sphere", "|x|^2 <= 1e4"):
            given = CONSTRAINTS[constraint]
            problem = mossp.Problem(bent, (X, y), PENALTIES[penalty], **given)
            starts = [unit_start(20, seed) for seed in range(STARTS)]
            yield f"tanh, {penalty}, {constraint}", problem, 32, starts


def write(path: str, *some: str) -> None:
    ends = {}
    for name, problem, batch, starts in cases():
        if some and not name.startswith(some):
            continue
        found = []
        for x0 in starts:
            began = time.perf_counter()
            r = mossp.solve(problem, x0, batch_size=batch)
            found.append((r.fun, bool(r.success), int(r.steps), time.perf_counter() - began))
        ends[name] = found
        print(f"{name:<44}", *(f"{F:.6f}{'' if ok else '!'}" for F, ok, _, _ in found), flush=True)
        with open(path, "w") as file:
            json.dump(ends, file, indent=1)


def compare(first: str, second: str) -> None:
    with open(first) as one, open(second) as two:
        before, after = json.load(one), json.load(two)
    lower = higher = same = 0
    total = 0.0
    print(f"{'':<44} same lower higher   mean change   worst     median s   claimed")
    for name in before:
        if name not in after:
            continue
        a, b = (np.array([row[0] for row in ends[name]]) for ends in (before, after))
        change = (b - a) / (1 + np.abs(a))
        counts = [int(np.sum(np.abs(change) <= SAME)), int(np.sum(change < -SAME))]
        counts.append(int(np.sum(change > SAME)))
        same, lower, higher = same + counts[0], lower + counts[1], higher + counts[2]
        total += float(change.mean())
        seconds = [np.median([row[3] for row in ends[name]]) for ends in (before, after)]
        claims = [sum(row[1] for row in ends[name]) for ends in (before, after)]
        print(f"{name:<44} {counts[0]:>4} {counts[1]:>5} {counts[2]:>6}   {change.mean():+.1e}"
              f"   {change.max():+.1e}   {seconds[0]:.2f} {seconds[1]:.2f}"
              f"   {claims[0]} {claims[1]}")  # fmt: skip
    print(f"{same} the same, {lower} lower, {higher} higher; mean of the means {total:+.1e}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(*sys.argv[2:])
    else:
        compare(*sys.argv[2:4])
