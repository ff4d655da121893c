"""Speed as ratios in one run: mossp against a Numba loop and against a bare scan of gradients.

    python benchmarks/speed.py          (uses a9a from the folder MOSSP_DATA if it is there)

Everything is timed after a warm-up, rounds alternate between the candidates, and the ratio of two
candidates is the median over rounds of their ratio in that round, since the speed of a machine
drifts. `solve` is timed whole: phase one, retuning, trace and certificate included.
"""

from __future__ import annotations

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from floor import mossp as numba_mossp
from workload import a9a_or_like, unit_start

import mossp

STEPS, BATCH, LAM, ROUNDS = 25_000, 32, 0.01, 9


def bare_scan(X, y, x, recursive: bool):
    """A lax.scan that draws the samples, 1024 steps at once, and evaluates the gradients."""

    def gradient(x, batch):
        return jax.grad(mossp.losses.logistic)(x, batch)

    def block(g, key):
        def step(g, rows):
            batch = (X[rows], y[rows])
            new = gradient(x + 1e-9 * g, batch)
            return (new + gradient(x - 1e-9 * g, batch) if recursive else new), None

        return jax.lax.scan(step, g, jax.random.randint(key, (1024, BATCH), 0, X.shape[0]))

    blocks = -(-STEPS // 1024)
    keys = jax.random.split(jax.random.key(0), blocks)
    return jax.lax.scan(block, jnp.zeros_like(x), keys)[0] * (STEPS / (1024 * blocks))


def timed(function) -> float:
    began = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - began


def main() -> None:
    X, y, name = a9a_or_like()
    x0 = unit_start(X.shape[1])
    problem = mossp.Problem(
        loss=mossp.losses.logistic,
        data=(X, y),
        regularizer=mossp.L1MinusL2(LAM),
        equality=mossp.constraints.Sphere(),
    )

    def solve(method, **settings):
        return lambda: mossp.solve(problem, x0, method=method, steps=STEPS, **settings).x

    def by_numba(recursive):
        return lambda: numba_mossp(X, y, x0, STEPS, BATCH, LAM, 12.0, 0.015, 0.1, 0, recursive)

    scan = jax.jit(bare_scan, static_argnums=3)
    with jax.enable_x64(True):
        Xj, yj, xj = jnp.asarray(X), jnp.asarray(y), jnp.asarray(x0)

    def by_scan(recursive):
        def run():
            with jax.enable_x64(True):
                # Whole blocks of 1024 are a little more than STEPS steps: scaled back below.
                return scan(Xj, yj, xj, recursive)

        return run

    excess = -(-STEPS // 1024) * 1024 / STEPS
    candidates = {
        "mossp-p": solve("mossp-p"),
        "mossp-r": solve("mossp-r"),
        "mossp-p x10": solve("mossp-p", replicas=10),
        "mossp-p f32": solve("mossp-p", dtype="float32"),
        "mossp-p f32 x10": solve("mossp-p", dtype="float32", replicas=10),
        "numba p": by_numba(False),
        "numba r": by_numba(True),
        "scan p": by_scan(False),
        "scan r": by_scan(True),
    }
    first = {label: timed(run) for label, run in candidates.items()}
    rounds = [{label: timed(run) for label, run in candidates.items()} for _ in range(ROUNDS)]
    for row in rounds:
        row["scan p"] /= excess
        row["scan r"] /= excess

    def median(label):
        return float(np.median([row[label] for row in rounds]))

    print(f"{name}, {STEPS:,} steps, batch {BATCH}, median of {ROUNDS} rounds")
    for label in candidates:
        print(f"  {label:<16} {median(label):7.3f} s   first call {first[label]:6.2f} s")
    print(f"{'ratio':<40} measured   bound")
    for above, below, bound in [
        ("mossp-p", "numba p", 1.5),
        ("mossp-r", "numba r", 2.0),
        ("mossp-p", "scan p", 1.3),
        ("mossp-r", "scan r", 1.3),
        ("mossp-p x10", "mossp-p", 10.0),
        ("mossp-p f32 x10", "mossp-p f32", 5.0),
    ]:
        ratio = float(np.median([row[above] / row[below] for row in rounds]))
        print(f"{above + ' / ' + below:<40} {ratio:8.2f}   {bound:5.1f}{warning(ratio > bound)}")
    added = max(first[m] - median(m) for m in ("mossp-p", "mossp-r"))
    print(f"{'first call adds (s)':<40} {added:8.2f}   {4.0:5.1f}{warning(added > 4)}")
    code = "import time; t = time.perf_counter(); import mossp; print(time.perf_counter() - t)"
    runs = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(5)]
    seconds = float(np.median([float(text) for text in runs]))
    print(f"{'import mossp (s)':<40} {seconds:8.2f}   {1.5:5.1f}{warning(seconds > 1.5)}")


def warning(short: bool) -> str:
    return "   SHORT" if short else ""


if __name__ == "__main__":
    main()
