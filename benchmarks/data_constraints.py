"""Constraints about data on a9a, against packages that take them too.

    MOSSP_DATA=folder python benchmarks/data_constraints.py [exact] [noise] [--csv FILE]

The logistic loss on unit rows, no intercept and no regulariser, x0 = 0; groups A and B are the rows
in which column 71 or 72 (counted from 0) is not 0.

loss        |mean loss of A - mean loss of B| <= 0.005
selection   |selection of A - selection of B| <= 0.02, by sigmoid(margin / 0.5) for 1[margin > 0];
            the difference of the true selection rates stands beside it

exact   `mossp.solve` untuned, all rows at hand, against cooper (Lagrangian and augmented),
        humancompatible-train (SSL-ALM, PBM) and fairlearn (ExponentiatedGradient with
        DemographicParity, which bounds the true rates of a mixture of classifiers: no KKT
        residual; its objective and violation are the mixture's means; deterministic, one run).
noise   batches of 32 of rows drawn anew for ever, an equal number of samples differentiated, for f
        and for c; ours also evaluates c on samples that it does not differentiate: `values`.

Peers have 20 random trials each on the merit objective + 100 violation, ranges in peers.py, then 5
seeds; medians. The violation is max(|difference| - bound, 0) on all rows, KKT is
`mossp.stationarity` at the point (a multiplier is 0 where the slack is above 1e-6), restored is the
objective after `mossp.restore`, at equal violation. Seconds of ours are of later calls; where one
is stopped at --limit, there is no other. Peers run in an environment of their own, made in
--environment unless --python names an interpreter that has them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from workload import dataset

import mossp

COLUMNS = 71, 72
SOFTNESS = 0.5
BOUNDS = {"loss": 0.005, "selection": 0.02}
PEERS = ["cooper", "hc SSL-ALM", "hc PBM"]
METHODS = ["auto", "mossp-al", "mossp-r"]
BATCH = 32
PACKAGES = ["cooper-optim", "humancompatible-train", "fairlearn"]


class Data(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    d: np.ndarray  # mean(d * v) is the mean of v over A less that over B


class Row(NamedTuple):
    """One answer, judged on all rows."""

    objective: float
    violation: float
    true_difference: float  # of selection rates
    kkt: float
    restored: float
    nonzeros: float
    seconds: float
    gradients: float = np.nan
    values: float = np.nan


def load() -> Data | None:
    found = dataset("a9a")
    if found is None:
        return None
    X, y = found
    A, B = (mossp.group_weights(X[:, column] > 0) for column in COLUMNS)
    return Data(X, y, A - B)


# The problem, for all rows and for rows without end. -----------------------------------------


def difference(kind: str, x, batch):
    X, y, d = batch
    margins = X @ x
    v = jax.nn.softplus(-y * margins) if kind == "loss" else jax.nn.sigmoid(margins / SOFTNESS)
    return jnp.mean(d * v)


def bounded(kind: str):
    def both(x, batch):
        gap = difference(kind, x, batch)
        return jnp.stack([gap, -gap]) - BOUNDS[kind]

    return both


def finite(data: Data, kind: str) -> mossp.Problem:
    return mossp.Problem(mossp.losses.logistic, (data.X, data.y),
                         inequality=mossp.Expected(bounded(kind), data=tuple(data)))  # fmt: skip


def endless(data: Data, kind: str) -> mossp.Problem:
    def draw(key, size):
        rows = jax.random.choice(key, len(data.y), (size,))
        return tuple(jnp.asarray(a)[rows] for a in data)

    def loss(x, batch):
        X, y, _ = batch
        return jnp.mean(jax.nn.softplus(-y * (X @ x)))

    return mossp.Problem(loss, mossp.Sampler(draw), inequality=mossp.Expected(bounded(kind)))


# What an answer is worth. --------------------------------------------------------------------


def judged(data: Data, kind: str, problem: mossp.Problem, x, seconds, *counts) -> Row:
    """`problem` has all rows."""
    if not np.isfinite(x).all():
        return Row(*[np.nan] * 6, seconds, *counts)
    f, gap = objective(data, x), proxy_difference(data, kind, x)
    return Row(
        f, max(abs(gap) - BOUNDS[kind], 0.0), selection_difference(data, x),
        mossp.stationarity(problem, x), objective(data, mossp.restore(problem, x)),
        np.count_nonzero(x), seconds, *counts,
    )  # fmt: skip


def objective(data: Data, x) -> float:
    return float(np.logaddexp(0, -data.y * (data.X @ x)).mean())


def proxy_difference(data: Data, kind: str, x) -> float:
    with jax.enable_x64(True):
        return float(difference(kind, jnp.asarray(x), tuple(map(jnp.asarray, data))))


def selection_difference(data: Data, x) -> float:
    return float(abs(np.mean(data.d * (data.X @ x > 0))))


def mixture(data: Data, xs: np.ndarray, weights: np.ndarray, seconds: float) -> Row:
    """A classifier drawn by its weight: means of the loss, and of the decisions."""
    chosen = ((data.X @ xs.T) > 0) @ weights
    gap = float(abs(np.mean(data.d * chosen)))
    f = float(weights @ [objective(data, x) for x in xs])
    violation = max(gap - BOUNDS["selection"], 0.0)
    return Row(f, violation, gap, np.nan, np.nan, np.count_nonzero(xs.any(axis=0)), seconds)


def median(rows: list[Row]) -> Row:
    """Over the runs that ended with finite numbers."""
    ended = [row for row in rows if np.isfinite(row.objective)] or rows
    return Row(*np.median(np.array(ended, float), axis=0))


# The solvers. --------------------------------------------------------------------------------


def ours_exact(data: Data, kind: str, asked) -> list[Row]:
    problem, x0, rows = finite(data, kind), np.zeros(data.X.shape[1]), []
    r, first = timed_solve(problem, x0, seconds=asked.limit)
    if asked.limit and r.seconds >= asked.limit:  # the others would only take as long
        rows.append(judged(data, kind, problem, r.x, r.seconds, r.gradients, r.values))
    for seed in range(asked.seeds if not rows else 0):
        r, seconds = timed_solve(problem, x0, seconds=asked.limit, seed=seed)
        rows.append(judged(data, kind, problem, r.x, seconds, r.gradients, r.values))
    print(f"    mossp: {r.status.name}, first call {first:.1f} s; {r.message}", flush=True)
    return rows


def ours_endless(data: Data, kind: str, method: str, asked) -> list[Row]:
    problem, x0, all_rows = endless(data, kind), np.zeros(data.X.shape[1]), finite(data, kind)
    settings = {"method": method, "gradients": asked.samples, "batch_size": BATCH}
    rows = []
    for seed in range(asked.seeds):  # compilation, in the first, does not move the median
        r, seconds = timed_solve(problem, x0, **settings, seed=seed)
        rows.append(judged(data, kind, all_rows, r.x, seconds, r.gradients, r.values))
    print(f"    {method}: {r.status.name}; {r.message}", flush=True)
    return rows


def timed_solve(problem, x0, **settings) -> tuple[mossp.Result, float]:
    began = time.perf_counter()
    r = mossp.solve(problem, x0, **settings)
    return r, time.perf_counter() - began


def peer(python: str, folder: Path, data: Data, kind: str, solver: str, asked, budget) -> list[Row]:
    """Tuned and run in the other environment; judged here."""
    job, answer = folder / "job.json", folder / "answer.npz"
    seeds = 1 if solver == "fairlearn" else asked.seeds
    job.write_text(json.dumps({
        "solver": solver, "kind": kind, "bound": BOUNDS[kind], "softness": SOFTNESS,
        "budget": budget, "trials": asked.trials, "seeds": seeds,
    }))  # fmt: skip
    script = Path(__file__).with_name("peers.py")
    command = [python, "-W", "ignore", str(script), str(folder / "data.npz"), str(job), str(answer)]
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # of several, most wait
    subprocess.run(command, check=True, env={**os.environ, **one_thread})
    found, problem, rows = np.load(answer), finite(data, kind), []
    for seed in range(seeds):
        xs, weights, took = found[f"xs{seed}"], found[f"weights{seed}"], found["seconds"][seed]
        if solver == "fairlearn":
            rows.append(mixture(data, xs, weights, took))
        else:
            rows.append(judged(data, kind, problem, xs[0], took, found["samples"][seed], 0))
    tuning = float(found["tuning"])
    print(f"    {solver}: tuned in {tuning:.0f} s: {settings_of(found)}", flush=True)
    return rows


def settings_of(found) -> str:
    pairs = json.loads(str(found["settings"])).items()
    return ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in pairs)


def environment(folder: Path) -> str:
    """An interpreter that has the peers."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        # torch first and exactly: the others would take one with a graphics card's libraries.
        for wanted in (["torch==2.13.0"], PACKAGES):
            subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True)
    return str(python)


# The tables. ---------------------------------------------------------------------------------

HEAD = (
    f"    {'solver':<12} {'objective':>11} {'violation':>9} {'true sel.':>9} {'KKT':>7} "
    f"{'restored':>11} {'nnz':>4} {'seconds':>8} {'gradients':>11} {'values':>11}"
)


def show(part: str, kind: str, table: dict[str, list[Row]]) -> list[list[Any]]:
    print(HEAD)
    lines = []
    for solver, rows in table.items():
        r = median(rows)
        print(
            f"    {solver:<12} {r.objective:11.8f} {r.violation:9.1e} {r.true_difference:9.5f} "
            f"{r.kkt:7.0e} {r.restored:11.8f} {r.nonzeros:4.0f} {r.seconds:8.2f} "
            f"{r.gradients:11,.0f} {r.values:11,.0f}{failed(rows)}",
            flush=True,
        )
        lines += [[part, kind, solver, seed, *row] for seed, row in enumerate(rows)]
    return lines


def failed(rows: list[Row]) -> str:
    count = sum(not np.isfinite(row.objective) for row in rows)
    return f"   {count} of {len(rows)} seeds ended in NaN" if count else ""


def exact(python: str, folder: Path, data: Data, asked) -> list[list[Any]]:
    lines = []
    for kind in BOUNDS:
        limit = f", ours at most {asked.limit:g} s" if asked.limit else ""
        print(f"\nexact, {kind}: peers have {asked.seconds:g} s a run{limit}", flush=True)
        table = {"mossp": ours_exact(data, kind, asked)}
        for solver in [*PEERS, *(["fairlearn"] if kind == "selection" else [])]:
            budget = {"seconds": asked.seconds}
            table[solver] = peer(python, folder, data, kind, solver, asked, budget)
        lines += show("exact", kind, table)
    return lines


def noise(python: str, folder: Path, data: Data, asked) -> list[list[Any]]:
    lines = []
    for kind in BOUNDS:
        print(f"\nnoise, {kind}: batches of {BATCH}, {asked.samples:,} samples differentiated")
        table = {}
        for method in METHODS:
            table[method] = ours_endless(data, kind, method, asked)
        for solver in PEERS:
            budget = {"samples": asked.samples}
            table[solver] = peer(python, folder, data, kind, solver, asked, budget)
        lines += show("noise", kind, table)
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["exact", "noise"])
    parser.add_argument("--python", help="an interpreter that has the peers")
    parser.add_argument(
        "--environment",
        type=Path,
        help="where to make one",
        default=Path(tempfile.gettempdir()) / "mossp-peers",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of a peer's run, exact")
    parser.add_argument("--limit", type=float, help="seconds of one of our runs, exact")
    parser.add_argument("--samples", type=int, default=640_000, help="budget of a run, noise")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--csv", type=Path)
    return parser.parse_args()


def main() -> None:
    asked, data = arguments(), load()
    if data is None:
        sys.exit("Set MOSSP_DATA to a folder that has a9a (LIBSVM format).")
    python = asked.python or environment(asked.environment)
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "data.npz", **data._asdict())
        for part in (exact, noise):
            if part.__name__ in asked.parts:
                lines += part(python, folder, data, asked)
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            csv.writer(file).writerows(
                [["part", "problem", "solver", "seed", *Row._fields], *lines]
            )


if __name__ == "__main__":
    main()
