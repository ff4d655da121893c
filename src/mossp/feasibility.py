"""Phase one, a nearly feasible start, and restore, the nearest feasible point on the support.

Both are Levenberg-Marquardt on ||(c_E, [c_I]_+)||^2 / 2. There are usually far fewer constraints
than variables, so that its step is taken in the space of the constraints:

    dx = -J (J'J + nu I)^{-1} c
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp import keys
from mossp.problem import Oracles, Problem
from mossp.programs import compiled
from mossp.structure import Structure

Vector = Any

STUCK = 1e-6  # ||J c|| <= STUCK ||c||: a stationary point of the violation
ITERATIONS = 200
PERTURBATIONS = 3


@compiled
def constraints_and_jacobian(oracles: Oracles, x: Vector) -> tuple[Any, Any]:
    """c(x) and its Jacobian, one row a constraint. Used outside of the loop only."""
    c, pullback = jax.vjp(oracles.c, x)
    return c, jax.vmap(lambda e: pullback(e)[0])(jnp.eye(oracles.m, dtype=x.dtype))


@np.errstate(over="ignore", invalid="ignore")
def violation(oracles: Oracles, x: Vector) -> float:
    """||(c_E(x), [c_I(x)]_+)||."""
    c = np.asarray(constraints_and_jacobian(oracles, jnp.asarray(x))[0])
    return float(np.linalg.norm(np.where(np.arange(oracles.m) < oracles.m_E, c, np.maximum(c, 0))))


def on_host(oracles: Oracles) -> Any:
    """The regulariser with NumPy numbers: its methods then run in NumPy and compile nothing."""
    return jax.tree.map(np.asarray, oracles.regularizer)


def into_domain(regularizer: Any, x: np.ndarray) -> np.ndarray:
    """The nearest point of dom h: prox_{mu h} for mu -> 0."""
    return np.asarray(regularizer.prox_h(x, 1e-30), np.float64)


class Restoration(NamedTuple):
    x: np.ndarray
    violation: float
    stuck: bool  # at a stationary point of the violation that is not feasible
    finite: bool  # whether c and J were finite all along


@np.errstate(over="ignore", invalid="ignore")  # a trial point that overflows is not taken
def reduce_violation(oracles: Oracles, x: Vector, free: Any, enough: float) -> Restoration:
    """Levenberg-Marquardt over the free coordinates until the violation is at most `enough`."""
    m_E, regularizer = oracles.m_E, on_host(oracles)
    dtype = jax.dtypes.canonicalize_dtype(np.float64)  # float32 where that is worked in

    def look(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        c, J = (
            np.array(a, np.float64)
            for a in constraints_and_jacobian(oracles, jnp.asarray(x, dtype))
        )
        felt = (np.arange(len(c)) < m_E) | (c > 0)
        return np.where(felt, c, 0.0), J * felt[:, None] * free

    x = into_domain(regularizer, np.asarray(x, np.float64))
    v, J = look(x)
    if not (np.isfinite(v).all() and np.isfinite(J).all()):
        return Restoration(x, float("inf"), False, False)
    nu = 1e-8
    for _ in range(ITERATIONS):
        length, slope = np.linalg.norm(v), np.linalg.norm(v @ J)
        if length <= enough or slope <= STUCK * length:
            break
        normal = J @ J.T
        damped = normal + nu * max(np.trace(normal), 1e-300) / len(v) * np.eye(len(v))
        step = -np.linalg.lstsq(damped, v, rcond=None)[0] @ J
        trial = into_domain(regularizer, x + step)
        v1, J1 = look(trial)
        better = np.isfinite(v1).all() and np.isfinite(J1).all() and np.linalg.norm(v1) < length
        if better:
            x, v, J, nu = trial, v1, J1, max(nu / 10, 1e-14)
        elif nu > 1e12:
            break
        else:
            nu *= 10
    length, slope = np.linalg.norm(v), np.linalg.norm(v @ J)
    return Restoration(x, float(length), bool(slope <= STUCK * length and length > enough), True)


def phase_one(oracles: Oracles, x0: Vector, enough: float, seed: Any = 0) -> Restoration:
    """A start with violation <= enough if one is found, else the best point met.

    Where J c is nearly 0 and c is not, as at x0 = 0 on the sphere, the start is perturbed.
    """
    free = np.ones(oracles.structure.size)
    best = reduce_violation(oracles, x0, free, enough)
    for attempt in range(PERTURBATIONS):
        if best.violation <= enough or not best.finite:
            break
        rng = keys.generator(seed, keys.Purpose.PERTURB, number=attempt)
        noise = rng.standard_normal(free.shape)
        size = 0.3 * (1 + attempt) * max(float(np.linalg.norm(best.x)), 1.0)
        trial = reduce_violation(
            oracles, best.x + size * noise / np.linalg.norm(noise), free, enough
        )
        if trial.finite and trial.violation < best.violation:
            best = trial
    return best


def different_starts(
    oracles: Oracles, x: Vector, count: int, enough: float, seed: Any = 0
) -> np.ndarray:
    """`count` starts, one a row: x itself, then points around it and anywhere, made feasible.

    With e a standard normal vector and s = max(||x||, 1) / sqrt(n), by turns x + s e / 2 and s e;
    phase one takes each to the feasible set where it can, and else it stays where it was drawn.
    """
    x = np.asarray(x, np.float64)
    scale = max(float(np.linalg.norm(x)), 1.0) / np.sqrt(len(x))
    found = [x]
    for r in range(1, count):
        e = keys.generator(seed, keys.Purpose.START, r).standard_normal(len(x))
        drawn = into_domain(on_host(oracles), x + scale * e / 2 if r % 2 else scale * e)
        near = phase_one(oracles, drawn, enough, seed) if oracles.m else None
        found.append(near.x if near is not None and near.finite else drawn)
    return np.array(found)


def restore(problem: Problem, x: Any) -> Any:
    """The feasible point reached from x by Gauss-Newton over the nonzero entries of x.

    Zeros stay zeros, so that a sparse point stays as sparse as it is. Where the support cannot
    carry a feasible point, the point of least violation that was met is returned: look at it.

    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
    >>> mossp.restore(problem, np.array([0.9, 0.0])).tolist()
    [1.0, 0.0]
    """
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        structure = Structure.of(x)
        vector = structure.ravel(x)
        if oracles.m:
            free = (vector != 0) if vector.any() else np.ones_like(vector, bool)
            vector = reduce_violation(oracles, vector, free.astype(float), 0.0).x
        return structure.unravel(vector)
