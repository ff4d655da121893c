"""A statement as a `mossp.Problem`: for our worker, and to judge every point by."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mossp
from benchmarks.peers.statement import Statement


def as_problem(given: Statement) -> mossp.Problem:
    """With all rows at hand."""
    of_f = given.w > 0  # equal weights on the rows that count
    return mossp.Problem(
        mossp.losses.logistic, (given.X[of_f], given.y[of_f]), regularizer(given),
        equality=equality(given), inequality=inequality(given),
    )  # fmt: skip


def as_endless(given: Statement) -> mossp.Problem:
    """With rows drawn anew for ever."""
    arrays = given.X, given.y, given.d

    def draw(key, size):
        rows = jax.random.choice(key, len(given.y), (size,))
        return tuple(jnp.asarray(a)[rows] for a in arrays)

    def loss(x, batch):
        X, y, _ = batch
        return jnp.mean(jax.nn.softplus(-y * (X @ x)))

    return mossp.Problem(
        loss, mossp.Sampler(draw), regularizer(given), inequality=mossp.Expected(bounded(given))
    )


def regularizer(given: Statement) -> Any:
    return mossp.L1MinusL2(given.lam) if given.lam else None


def equality(given: Statement) -> Any:
    if not given.equalities:
        return None
    if is_sphere(given):
        return mossp.constraints.Sphere()
    return mossp.constraints.DiagonalQuadratics(given.Q, given.p, given.r)


def is_sphere(given: Statement) -> bool:
    return given.equalities == 1 and bool(
        (given.Q == 2).all() and not given.p.any() and given.r == 1
    )


def inequality(given: Statement) -> Any:
    if not given.sides:
        return None
    rows = given.d != 0  # means over these are means over all, times their share
    share = rows.mean()
    data = given.X[rows], given.y[rows], given.d[rows] * share
    return mossp.Expected(bounded(given), data=data)


def bounded(given: Statement) -> Any:
    def c(x, batch):
        X, y, d = batch
        margins = X @ x
        if given.kind == "loss":
            v = jax.nn.softplus(-y * margins)
        else:
            v = jax.nn.sigmoid(margins / given.softness)
        gap = jnp.mean(d * v)
        return jnp.stack([side * gap for side in given.sides]) - given.bound

    return c


def stationarity(problem: mossp.Problem, x: np.ndarray) -> float:
    return float(mossp.stationarity(problem, x)) if np.isfinite(x).all() else np.inf
