"""A step of a method against the bare gradient on its mini-batch, and in passes over a vector.

    python benchmarks/step.py           (two minutes)

Logistic loss with l1 - l2 on the sphere, batches of 32 rows: 100 dense columns, and sparse rows of
20 entries in 1e4 and 1e6 columns. Three things are timed in turn, in compiled loops:

    step    a chunk of the steps of `solve`, as it takes them: rows drawn, fetched, stepped on, and
            what is kept at the end of a chunk
    bare    jax.grad of the loss on rows that are fetched by number, and nothing else
    pass    y = a x + y on vectors of the length of x

Figures are medians over rounds of what a round says, since the speed of a machine drifts. At
n = 100 the ratio step / bare is bounded, beyond that the passes that a step makes besides the bare
gradient, (step - bare) / pass.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from workload import unit_rows, unit_start

import mossp
from mossp.solving.arguments import checked
from mossp.solving.prepare import prepare

BATCH, ENTRIES = 32, 20
MOST_RATIO, MOST_PASSES = 1.3, 12.0  # bounds for mossp-p
METHODS = {"mossp-p": 1, "mossp-r": 2, "sqp-dc": 2}  # with the gradients that a step takes
# Rows, steps in a chunk, gradients and passes in a loop, rounds. No chunk of `solve` is shorter.
SIZES = {
    100: (20_000, 4096, 4096, 50_000, 15),
    10_000: (20_000, 2048, 2048, 10_000, 15),
    1_000_000: (100_000, 256, 256, 256, 5),
}


def main() -> None:
    print(f"batches of {BATCH} rows; times in microseconds, medians over rounds")
    print(f"{'n':>9} {'rows':<10} {'method':<8} {'step':>9} {'bare':>9} {'pass':>8} "
          f"{'step/bare':>10} {'passes':>8}   bound")  # fmt: skip
    with jax.enable_x64(True):
        for n, numbers in SIZES.items():
            report(n, *numbers)


def report(n: int, N: int, steps: int, gradients: int, count_of_passes: int, rounds: int) -> None:
    dense = n <= 100
    indices, values, y = generated(N, n, dense)
    problem = mossp.Problem(
        loss=mossp.losses.logistic,
        data=(values if dense else as_matrix(indices, values, n), y),
        regularizer=mossp.L1MinusL2(0.1 / np.sqrt(n * N)),
        equality=mossp.constraints.Sphere(),
    )
    x0 = unit_start(n)
    candidates = {method: steps_of(problem, x0, method, steps) for method in METHODS}
    candidates |= {
        count: bare_gradients(indices, values, y, x0, gradients, count)
        for count in set(METHODS.values())
    }
    candidates["pass"] = passes(n, count_of_passes)
    for run in candidates.values():
        run()
    found = [{name: run() for name, run in candidates.items()} for _ in range(rounds)]
    for method, count in METHODS.items():
        step, bare, one = (
            np.array([row[name] for row in found]) for name in (method, count, "pass")
        )
        ratio, beyond = float(np.median(step / bare)), float(np.median((step - bare) / one))
        bound = ""
        if method == "mossp-p":
            bound = f"step/bare <= {MOST_RATIO}" if dense else f"passes <= {MOST_PASSES:g}"
            bound += "   SHORT" if (ratio > MOST_RATIO if dense else beyond > MOST_PASSES) else ""
        times = [1e6 * float(np.median(each)) for each in (step, bare, one)]
        rows = "dense" if dense else f"{ENTRIES} entries"
        print(f"{n:>9} {rows:<10} {method:<8} {times[0]:9.2f} {times[1]:9.2f} {times[2]:8.3f} "
              f"{ratio:10.2f} {beyond:8.1f}   {bound}", flush=True)  # fmt: skip


def generated(N: int, n: int, dense: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    """(columns, values, labels); columns are None for dense rows."""
    rng = np.random.default_rng(0)
    if dense:
        values = unit_rows(rng.normal(size=(N, n)))
        return None, values, np.where(values @ rng.normal(size=n) > 0, 1.0, -1.0)
    # One column from each of ENTRIES ranges: no column comes twice in a row.
    width = n // ENTRIES
    indices = rng.integers(0, width, (N, ENTRIES)) + width * np.arange(ENTRIES)
    values = unit_rows(rng.normal(size=(N, ENTRIES)))
    truth = rng.normal(size=n)
    return indices, values, np.where(np.sum(values * truth[indices], axis=1) > 0, 1.0, -1.0)


def as_matrix(indices: np.ndarray, values: np.ndarray, n: int) -> scipy.sparse.csr_matrix:
    starts = np.arange(0, indices.size + 1, ENTRIES)
    return scipy.sparse.csr_matrix((values.ravel(), indices.ravel(), starts), (len(indices), n))


def timed(function: Callable[[], Any], count: int) -> float:
    """Seconds for one of `count`."""
    began = time.perf_counter()
    jax.block_until_ready(function())
    return (time.perf_counter() - began) / count


def steps_of(problem: mossp.Problem, x0: Any, method: str, steps: int) -> Callable[[], float]:
    """Chunks of the loop of `solve`, each from rows that are drawn anew; none from the first ones.

    (The first steps end many short chunks, since each may be the random output.)
    """
    prepared = prepare(problem, checked(problem, x0, method=method, steps=10**6, batch_size=BATCH))
    position = prepared.loop.compile(prepared.initial.position)
    shard, carry = prepared.loop.shards[0], position.carries[0]
    block = itertools.count(shard.draws.length, shard.draws.length)

    def run() -> float:
        k = next(block)
        return timed(lambda: shard.advance(carry, k, k + steps)[0], steps)

    return run


def bare_gradients(
    indices: Any, values: np.ndarray, y: np.ndarray, x0: np.ndarray, steps: int, count: int
) -> Callable[[], float]:
    """`count` gradients a step on the same rows, at different points."""
    drawn = np.random.default_rng(0).integers(0, len(y), (steps, BATCH))
    arrays = jax.tree.map(jnp.asarray, (indices, values, y))

    def loss(x: Any, rows: Any) -> Any:
        columns, values, y = jax.tree.map(lambda a: a[rows], arrays)
        if columns is None:
            return mossp.losses.logistic(x, (values, y))
        return jnp.mean(mossp.losses.logistic.rows(jnp.sum(values * x[columns], axis=1), y))

    @jax.jit
    def run(points: Any, drawn: Any) -> Any:
        def step(k: Any, _: Any) -> Any:
            return tuple(jax.grad(loss)(x, drawn[k]) for x in points)

        return jax.lax.fori_loop(0, steps, step, points)

    points = tuple(jnp.asarray((1 + i) * x0) for i in range(count))
    return lambda: timed(lambda: run(points, jnp.asarray(drawn)), steps)


def passes(n: int, count: int) -> Callable[[], float]:
    @jax.jit
    def run(a: Any, x: Any, y: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda _, y: a * x + y, y)

    x = jnp.ones(n)
    return lambda: timed(lambda: run(1e-9, x, x), count)


if __name__ == "__main__":
    main()
