"""A solver of benchmarks/glm on one problem; the fourth argument is its name there.

Its trials are the tolerances 1e-4, 3e-5, 1e-5, ...; the loosest whose answer is accurate enough is
taken and called once a seed. Ours runs with its default.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "glm"))  # scripts there, too

import optimality
from solvers import SOLVERS, import_for, rows_for

from benchmarks.peers.workers.job import Run, clock, versions, write

PACKAGES = {"sklearn": "scikit-learn", "mossp": "mossp", "skglm": "skglm", "celer": "celer"}


def accuracy(X, y, w, penalty: str, lam: float) -> float:
    """The relative duality gap for l1; the KKT residual relative to lam else."""
    if penalty == "l1":
        return optimality.gap(X, y, w, lam)
    return optimality.criticality(X, y, w, penalty, lam)


def main() -> None:
    solver = SOLVERS[sys.argv[4]]
    warnings.simplefilter("ignore")
    import_for(solver)
    imports = clock()
    with open(sys.argv[2]) as file:
        asked = json.load(file)
    found = np.load(sys.argv[1])
    X = found["X"] if "X" in found else scipy.sparse.csr_matrix(
        (found["values"], found["columns"], found["rows"]), found["shape"]
    )  # fmt: skip
    y, penalty, lam = found["y"], str(found["penalty"]), float(found["lam"])
    given = rows_for(solver, X)

    def call(tol: float | None) -> tuple[np.ndarray, float]:
        # Compiled loops and C cannot be interrupted: time is looked at when they return.
        began = clock()
        return solver.fit(given, y, penalty, lam, tol), clock() - began

    ladder = [None] if solver.ours else [10.0 ** (-4 - k / 2) for k in range(asked["trials"])]
    w, first = call(ladder[0])
    warm = 0.0 if solver.ours else call(ladder[0])[1]
    tuning = 0.0
    for tol in ladder:
        w, took = call(tol)
        tuning += took
        if tuning > asked["limit"] or accuracy(X, y, w, penalty, lam) <= asked["good"]:
            break
    runs, seconds = [], []
    while len(runs) < asked["seeds"]:
        if runs and sum(seconds) > asked["limit"]:
            break
        x, took = call(tol)
        runs.append(Run(x))
        seconds.append(took)
    # What a new process pays on top: the first call less the same call once more.
    first = first if solver.ours else max(first - warm, 0.0) + seconds[0]
    write(sys.argv[3], runs, seconds, [], first=first, imports=imports, tuning=tuning,
          settings=json.dumps({"tol": tol}), versions=versions([PACKAGES[solver.package]]),
          ends_itself=True)  # fmt: skip


if __name__ == "__main__":
    main()
