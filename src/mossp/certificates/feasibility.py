"""Phase one, a nearly feasible start, and restore, the nearest feasible point on the support.

Both are Levenberg-Marquardt on ||(c_E, [c_I]_+)||^2 / 2. There are usually far fewer constraints
than variables, so that its step is taken in the space of the constraints:

    dx = -J (J'J + nu I)^{-1} c
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from mossp._base import keys
from mossp._base.device import on_device
from mossp._base.structure import Structure
from mossp._base.types import (
    AnyVector,
    HostVector,
    HostVectors,
    PyTree,
)
from mossp.certificates.linearization import Violated, values
from mossp.oracles import Oracles
from mossp.problem import Problem, check_problem, checked_point
from mossp.regularizers import Regularizer

STUCK = 1e-6  # ||J c|| <= STUCK ||c||: a stationary point of the violation
ITERATIONS = 200
CREEPS = 0.9  # of the violation is left after the second half of these: it leads nowhere
PERTURBATIONS = 3
PULLS = 1e-3  # of the strongest pull: less takes no part in a conflict
MOST_NAMED = 6  # constraints in one sentence


@np.errstate(over="ignore", invalid="ignore")
def violation(oracles: Oracles, x: AnyVector) -> float:
    """||(c_E(x), [c_I(x)]_+)||."""
    c = values(oracles, on_device(x))
    return float(np.linalg.norm(oracles.positive_part(c)))


def on_host(oracles: Oracles) -> Regularizer:
    """The regulariser with NumPy numbers: its methods then run in NumPy and compile nothing."""
    return jax.tree.map(np.asarray, oracles.regularizer)


def into_domain(regularizer: Regularizer, x: HostVector) -> HostVector:
    """The nearest point of dom h: prox_{mu h} for mu -> 0."""
    return np.asarray(regularizer.prox_h(x, 1e-30), np.float64)


class Restoration(NamedTuple):
    x: HostVector
    violation: float
    stuck: bool  # at a stationary point of the violation that is not feasible, or on a plateau
    finite: bool  # whether c and J were finite all along


@np.errstate(over="ignore", invalid="ignore")  # a trial point that overflows is not taken
def reduce_violation(
    oracles: Oracles, x: AnyVector, free: HostVector, enough: float
) -> Restoration:
    """Levenberg-Marquardt over the free coordinates until the violation is at most `enough`."""
    regularizer = on_host(oracles)
    dtype = jax.dtypes.canonicalize_dtype(np.float64)  # float32 where that is worked in

    def evaluate(x: HostVector) -> Violated:
        return Violated.at(oracles, on_device(x, dtype), free)

    def steepness(x: HostVector, at: Violated) -> float:
        """||J v||, without the part that leads out of dom h."""
        pull = at.pull()
        if regularizer.finite:
            return float(np.linalg.norm(pull))
        t = 1 / max(float(np.sum(at.lengths**2)), 1e-300)
        return float(np.linalg.norm(x - into_domain(regularizer, x - t * pull))) / t

    x = into_domain(regularizer, np.asarray(x, np.float64))
    at = evaluate(x)
    if not at.finite:
        return Restoration(x, float("inf"), False, False)
    nu, exhausted, halfway = 1e-8, False, np.inf
    for k in range(ITERATIONS):
        length, slope = at.length, steepness(x, at)
        if length <= enough or slope <= STUCK * length:
            break
        halfway = length if k == ITERATIONS // 2 else halfway
        trial = into_domain(regularizer, x + at.step(nu))
        after = evaluate(trial)
        if after.finite and after.length < length:
            x, at, nu = trial, after, max(nu / 10, 1e-14)
        elif nu > 1e12:
            exhausted = True
            break
        else:
            nu *= 10
    length, slope, rows = at.length, steepness(x, at), at.lengths
    # In large units rounding keeps J v away from 0: there, that no step leads down will do. Along
    # J v, ||v||^2 / 2 falls by ||J v||^2 / (2 ||J||^2): less than its rounding is not seen.
    pulls = float(np.abs(at.v) @ rows)
    rounding = float(np.finfo(dtype).eps ** 0.5 * length * np.linalg.norm(rows))
    no_step = exhausted and slope <= max(PULLS * pulls, rounding)
    # The least violation may lie at infinity, as that of averaged sigmoids does.
    plateau = length > CREEPS * halfway
    still = slope <= STUCK * length or no_step or plateau
    return Restoration(x, length, bool(still and length > enough), True)


@np.errstate(over="ignore", invalid="ignore")
def conflict(oracles: Oracles, x: AnyVector) -> str:
    """A message that names the constraints behind a stationary point of the violation.

    There sum_j v_j grad c_j = 0 with v = (c_E, [c_I]_+), the multipliers of the feasibility
    problem: the rows that pull, ||v_j grad c_j|| > 0, pull against each other. A row that hardly
    pulls is not named, and where the sum is not 0, the boundary of dom h makes up for the rest.
    """
    at = Violated.at(oracles, on_device(x), np.ones(oracles.structure.size))
    v, pull = np.zeros(oracles.m), np.zeros(oracles.m)
    v[at.places], pull[at.places] = at.v, np.abs(at.v) * at.lengths
    strength = pull.max()
    # Where nothing pulls, as at a minimum of x**2 + 1 <= 0, what is violated is the whole of it.
    pull = pull if pull.max() > STUCK * np.linalg.norm(v) else np.abs(v)
    pull = np.round(pull / pull.max(), 6)  # equal ones in the order in which they were given
    order = [j for j in np.argsort(-pull, kind="stable") if pull[j] > PULLS]
    names = oracles.constraint_names()
    shown = [f"{names[j]} (violated by {abs(v[j]):.3g})" for j in order[:MOST_NAMED]]
    if len(order) > MOST_NAMED:
        shown.append(f"{len(order) - MOST_NAMED} more")
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    apart = np.linalg.norm(at.pull()) > PULLS * strength and not oracles.regularizer.finite
    bounds = " within the bounds on x" if apart else ""
    what = {1: "cannot hold", 2: "cannot both hold"}.get(len(shown), "cannot all hold")
    return f"Near this point {listed} {what}{bounds}: relax what is asked, or try another start."


def phase_one(oracles: Oracles, x0: AnyVector, enough: float, seed: int = 0) -> Restoration:
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
    oracles: Oracles, x: AnyVector, count: int, enough: float, seed: int = 0
) -> HostVectors:
    """`count` starts, one per row: x itself, then points around it and anywhere, made feasible.

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


def restore(problem: Problem, x: PyTree) -> PyTree:
    """The feasible point reached from x by Gauss-Newton over the nonzero entries of x.

    Zeros stay zeros, so that a sparse point stays as sparse as it is.

    Parameters
    ----------
    problem : Problem
        Whose constraints are to hold.
    x : array or pytree of arrays
        Where to begin.

    Returns
    -------
    array or pytree of arrays
        Where the support cannot carry a feasible point, the point of least violation that was met:
        evaluate the constraints there.

    Examples
    --------
    >>> import numpy as np, mossp
    >>> problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
    >>> mossp.restore(problem, np.array([0.9, 0.0])).tolist()
    [1.0, 0.0]
    """
    check_problem("restore", problem)
    x = checked_point("x", x)
    with jax.enable_x64(True):
        oracles = problem.oracles(x)
        structure = Structure.of(x)
        vector = structure.ravel(x)
        if oracles.m:
            free = (vector != 0) if vector.any() else np.ones_like(vector, bool)
            vector = reduce_violation(oracles, vector, free.astype(float), 0.0).x
        return structure.unravel(vector)
