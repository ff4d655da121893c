"""One process that solves again and again with functions that are new each time.

`python -m tests.adversarial.long_process COUNT` prints after every solve the memory maps, the
resident bytes and the seconds. Nine of ten lambdas differ from the last one in a number, the tenth
in what it computes; and every third loss is no lambda, but one function that reads a list which
changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tests.adversarial import children
from tests.adversarial.table import Row

MOST_MAPS, MOST_GROWTH, SLOWER = 15_000, 400 * 2**20, 1.5
WARM = 5  # solves before memory is compared: JAX itself grows at first
PATIENCE = 240.0


CHANGING = [0.0]


def moving(x):
    return jnp.sum((x - CHANGING[0]) ** 2)


def moving_bound(x):
    return jnp.sum(x) - CHANGING[0]


def maps() -> int:
    with Path("/proc/self/maps").open("rb") as lines:
        return sum(1 for _ in lines)


def run(count: int) -> None:
    import mossp

    for i in range(count):
        began = time.process_time()  # of this process alone, however busy the machine is
        number, kind = float(1 + i % 37), i // 10 if i % 10 == 9 else 0

        def loss(x, number=number, kind=kind):
            total = jnp.sum((x - number) ** 2)
            for power in range(kind % 7):  # another program for each kind
                total = total + jnp.sum(jnp.cos(x) ** (power + 2)) / (kind + 1)
            return total

        bound = lambda x, number=number: jnp.sum(x) - number  # noqa: E731
        CHANGING[0] = number
        functions = (moving, moving_bound) if i % 3 == 1 and not kind else (loss, bound)
        problem = mossp.Problem(functions[0], inequality=functions[1])
        result = mossp.solve(problem, np.zeros(3))
        line = {
            "maps": maps(), "bytes": children.resident(), "seconds": time.process_time() - began,
            "new": kind != 0, "right": bool(result.success and answers(result.x, number, kind)),
        }  # fmt: skip
        print(json.dumps(line), flush=True)


def answers(x: Any, number: float, kind: int) -> bool:
    """min |x - number|^2 with sum(x) <= number: the answer of this problem, not of an older one."""
    return kind != 0 or bool(np.allclose(x, number / 3, atol=1e-8))


def attack(count: int) -> list[Row]:
    child = children.begin(
        "long_process", count, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    reports: list[Any] = []
    fault = children.follow(child, reports, count, PATIENCE)
    right = Row(
        "a result is about the functions as they are", "fresh lambdas, and a list that changes"
    )
    for number, report in enumerate(reports):
        right.add(None if report["right"] else f"solve {number} answers another problem")
    bounded = Row("a process does not grow", f"the same process, {count} solves")
    bounded.add(f"after {len(reports)} solves: {fault}" if fault else None)
    if len(reports) > 2 * WARM:
        growth = max(r["bytes"] for r in reports) - reports[WARM]["bytes"]
        most = max(r["maps"] for r in reports)
        fifth = max(1, len(reports) // 5)
        # Where what is computed is new there is a compilation: those are left out.
        took = [[r["seconds"] for r in part if not r["new"]] for part in (
            reports[WARM : WARM + fifth], reports[-fifth:],
        )]  # fmt: skip
        slower = float(np.median(took[1]) / np.median(took[0]))
        bounded.add(f"{most:,} memory maps" if most >= MOST_MAPS else None)
        bounded.add(f"{growth / 2**20:.0f} MB of growth" if growth >= MOST_GROWTH else None)
        bounded.add(f"{slower:.2f} times slower at the end" if slower > SLOWER else None)
        bounded.figures = (
            f"{most:,} maps, {growth / 2**20:.0f} MB growth, last fifth / first fifth {slower:.2f}"
        )
    return [right, bounded]


if __name__ == "__main__":
    run(int(sys.argv[1]))
