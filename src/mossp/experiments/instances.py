"""The paper's problems on a data set: (4.1), the sphere, and (D.1), quadratic equalities."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp import losses
from mossp._base.programs import compiled
from mossp.certificates.feasibility import restore
from mossp.constraints import DiagonalQuadratics, Sphere
from mossp.data import load_data
from mossp.estimators import SVRG
from mossp.experiments.protocol import BATCH, Protocol
from mossp.methods import MoSSPAL
from mossp.oracles import Oracles
from mossp.problem import Problem
from mossp.regularizers import CappedL1, L1MinusL2, Regularizer, TruncatedL1
from mossp.result import Status
from mossp.solving.solve import solve

Folder = str | os.PathLike[str] | None

THETA, TOP = 0.2, 5  # of capped l1 and truncated l1


class Instance(NamedTuple):
    experiment: str
    data: str
    regularizer: str
    lam: float
    problem: Problem
    x0: np.ndarray
    batch_size: int


def rows_of(name: str, folder: Folder) -> tuple[np.ndarray, np.ndarray]:
    """Rows of length 1 and labels -1, +1."""
    if name != "generated":
        return load_data(name, folder).unit_rows()
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 12))
    y = np.where(X[:, 0] - 2 * X[:, 1] + X[:, 2] + rng.normal(size=400) > 0, 1.0, -1.0)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def regularizer(name: str, lam: float) -> Regularizer:
    made: dict[str, Any] = {
        "l1-l2": lambda: L1MinusL2(lam),
        "capped-l1": lambda: CappedL1(lam, THETA),
        "truncated-l1": lambda: TruncatedL1(lam, TOP),
    }
    return made[name]()


def instance(
    protocol: Protocol, experiment: str, data: str, reg: str, lam: float, folder: Folder
) -> Instance:
    X, y = rows_of(data, folder)
    n, rng = X.shape[1], np.random.default_rng(protocol.seed)
    x0 = unit_vector(rng, n)
    constraint: Any = Sphere()
    if experiment == "quadratics":
        M = protocol.constraints
        Q, a = rng.uniform(0.5, 1.0, (M, n)) / n, rng.normal(size=(M, n)) / np.sqrt(n)
        feasible = unit_vector(rng, n)
        constraint = DiagonalQuadratics(Q, a, 0.5 * Q @ feasible**2 + a @ feasible)
    problem = Problem(losses.logistic, (X, y), regularizer(reg, lam), equality=constraint)
    if experiment == "quadratics":
        x0 = restore(problem, x0)  # the start that all methods share is feasible, as on the sphere
    return Instance(experiment, data, reg, lam, problem, x0, BATCH.get(data, 16))


def unit_vector(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.normal(size=n)
    return x / np.linalg.norm(x)


class Optimum(NamedTuple):
    """The best critical point that an exact method found from several starts."""

    value: float
    nonzeros: int
    certified: bool


def optimum(given: Instance, starts: int, seed: int) -> Optimum:
    rng, best = np.random.default_rng(seed + 1), None
    epoch = -(-(given.problem.samples or 1) // given.batch_size)
    for number in range(starts):
        x0 = given.x0 if number == 0 else unit_vector(rng, given.x0.size)
        result = solve(
            given.problem, x0, method=MoSSPAL(momentum=SVRG()), steps=max(60 * epoch, 4000),
            batch_size=given.batch_size, tol=1e-9, seed=seed,
        )  # fmt: skip
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        key = (not result.success, result.fun)
        if best is None or key < best[0]:
            best = key, Optimum(result.fun, int(np.count_nonzero(result.x)), result.success)
    assert best is not None
    return best[1]


@compiled
def _measured(oracles: Oracles, xs: jax.Array) -> tuple[jax.Array, jax.Array]:
    def one(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        value = oracles.full_value(x) + oracles.regularizer(x)
        return value, jnp.sum(jnp.abs(oracles.positive_part(oracles.c(x))))

    return jax.lax.map(one, xs, batch_size=16)


def measured(problem: Problem, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(F(x), ||c(x)||_1) for points along all axes but the last, on all the data."""
    with jax.enable_x64(True):
        oracles = problem.oracles(xs.reshape(-1, xs.shape[-1])[0])
        F, v = _measured(oracles, jnp.asarray(xs.reshape(-1, xs.shape[-1])))
        return np.asarray(F).reshape(xs.shape[:-1]), np.asarray(v).reshape(xs.shape[:-1])
