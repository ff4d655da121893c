"""mossp with its defaults on problems of a family: arguments FAMILY NUMBERS GRADIENTS NOISE...

With noise the loss is f(x) + xi'x, whose gradient is grad f(x) + xi; the constraints are exact.
One line of JSON a problem.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mossp
from benchmarks.peers.families import drawn, noise_size
from tests.adversarial.families import Instance


class Noisy(eqx.Module):
    """f(x) + mean(xi)'x."""

    loss: Any
    rows: Any  # of f itself, None without data

    def __call__(self, x, xi):
        f = self.loss(x) if self.rows is None else self.loss(x, self.rows)
        return f + jnp.mean(xi, axis=0) @ x


def normal(shape: Any, key: Any, size: int) -> Any:
    return shape * jax.random.normal(key, (size, len(shape)), shape.dtype)


def noisy(case: Instance, noise: float) -> mossp.Problem:
    p, n = case.problem, len(case.x0)
    spread = np.full(n, noise_size(case, noise))
    data = mossp.Sampler(jax.tree_util.Partial(normal, spread))
    rows = case.rows or None
    return mossp.Problem(Noisy(p.loss, rows), data, p.regularizer, p.equality, p.inequality)


def main(family: str, numbers: int, gradients: int, noises: list[float]) -> None:
    warnings.simplefilter("ignore")
    imports = time.process_time()
    for noise, number in itertools.product(noises, range(numbers)):
        case = drawn(family, number)
        problem = noisy(case, noise) if noise else case.problem
        budget = {"gradients": gradients, "tol": 1e-2} if noise else {}
        began = time.process_time()
        r = mossp.solve(problem, case.x0, seed=number, **budget)
        print(json.dumps({
            "end": [float(v) for v in r.x], "said": bool(r.success),
            "gradients": int(r.gradients + 2 * r.hessian_products),
            "seconds": time.process_time() - began, "imports": imports,
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [float(e) for e in sys.argv[4:]])
