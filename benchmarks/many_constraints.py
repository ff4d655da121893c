"""Time and memory of problems under many inequality constraints, n = 200.

    python benchmarks/many_constraints.py                      # m = 50, 500, 5,000, of both kinds
    python benchmarks/many_constraints.py linear 5000          # one of them

    linear     C x <= d, a random polytope around 0, with the logistic loss of 2,000 rows
    expected   the mean loss of each of m groups of 10 rows is bounded, by what a point that is
               known to be feasible has there

Both with l1 - l2, by method="auto" at tol = 1e-8. Each runs in a process of its own; constraints
are evaluated once more in NumPy at the answer. On a busy machine, set OPENBLAS_NUM_THREADS=1: with
two threads on two busy cores, a system of order 174 was seen to take 0.27 s.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np

n, ROWS, SIZES, TOL = 200, 2000, (50, 500, 5000), 1e-8
ROOM = 0.02  # that a feasible point leaves in the bound of each group


def linear(m):
    """(the problem, c in NumPy)."""
    import mossp

    rng = np.random.default_rng(0)
    A, truth = rng.normal(size=(ROWS, n)), rng.normal(size=n)
    b = np.sign(A @ truth + rng.normal(size=ROWS))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    C = rng.normal(size=(m, n))
    C /= np.linalg.norm(C, axis=1, keepdims=True)
    d = rng.uniform(0.5, 1.0, m)
    problem = mossp.Problem(
        mossp.losses.logistic, (A, b), mossp.L1MinusL2(1e-3),
        inequality=mossp.constraints.Linear(C, d),
    )  # fmt: skip
    return problem, lambda x: C @ x - d


def expected(m):
    """(the problem, c in NumPy)."""
    import jax
    import jax.numpy as jnp

    import mossp

    rng = np.random.default_rng(1)
    N, group = 10 * m, np.arange(10 * m) % m
    A, truth = rng.normal(size=(N, n)) / np.sqrt(n), 4 * rng.normal(size=n)
    b = np.sign(A @ truth + rng.logistic(size=N))
    inside = 0.4 * truth

    def means(x):
        return np.bincount(group, np.logaddexp(0, -b * (A @ x)), m) / 10

    bound = means(inside) + ROOM

    def losses(x, batch):
        A, b, group = batch
        rows = jnp.logaddexp(0.0, -b * (A @ x))
        return jax.ops.segment_sum(rows, group, m) * (m / len(b)) - bound

    problem = mossp.Problem(
        mossp.losses.logistic, (A, b), mossp.L1MinusL2(1e-3),
        inequality=mossp.Expected(losses, data=(A, b, group)),
    )  # fmt: skip
    return problem, lambda x: means(x) - bound


def run(kind, m):
    import mossp

    problem, c = {"linear": linear, "expected": expected}[kind](m)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    began = time.perf_counter(), time.process_time()
    r = mossp.solve(problem, np.zeros(n), tol=TOL)
    took = time.perf_counter() - began[0], time.process_time() - began[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    active = int(np.sum(np.asarray(r.certificate.multipliers["inequality"]) > 0))
    print(
        f"{kind:9s} m = {m:5d}  {'certified' if r.success else r.status.name} at "
        f"{r.certificate.worst_relative:.0e}  max c = {c(r.x).max():.1e}  {active} active, "
        f"{np.count_nonzero(r.x)} nonzeros  F = {r.fun:.10f}  {took[0]:.0f} s ({took[1]:.0f} s of "
        f"the processor)  peak {peak:.0f} MB, {before:.0f} MB before",
        flush=True,
    )
    print(f"          {r.message}", flush=True)


def main() -> None:
    if len(sys.argv) > 2:
        run(sys.argv[1], int(sys.argv[2]))
        return
    for kind in sys.argv[1:] or ("linear", "expected"):
        for m in SIZES:
            subprocess.run([sys.executable, __file__, kind, str(m)], check=True)


if __name__ == "__main__":
    main()
