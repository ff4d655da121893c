"""From the end of a run to a Result: which replica, what its certificate says, why it ended."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mossp.certificate import (
    Certificate,
    Residuals,
    Witness,
    certificate,
    expectation,
    residuals,
)
from mossp.feasibility import constraints_and_jacobian, reduce_violation
from mossp.polish import Polisher
from mossp.problem import Oracles
from mossp.recession import ADVICE, leads_to_infinity
from mossp.result import Status
from mossp.stationarity import exact_certificate

PyTree = Any


@dataclasses.dataclass
class Ending:
    """How a run ended, before it is judged."""

    outputs: Witness  # leading axis: replicas
    random: Witness
    lost: np.ndarray  # replicas that met NaN or infinity; their x is the last finite one
    diverged: np.ndarray
    early: Status | None = None  # INTERRUPTED or STOPPED
    notes: list[str] = dataclasses.field(default_factory=list)
    polished: bool = False


@dataclasses.dataclass
class Verdict:
    best: int
    status: Status
    success: bool
    message: str
    certificate: Certificate
    expectation: Any
    funs: np.ndarray
    violations: np.ndarray


def judge(
    oracles: Oracles, ending: Ending, *, tol: float, batch_size: int, fresh: PyTree
) -> Verdict:
    """`fresh` are draws that no step has seen; None where gradients are exact or none are left."""
    usable = oracles.exact or fresh is not None
    count = len(ending.lost)
    if usable:
        both = jax.tree.map(lambda *a: np.concatenate(a), ending.outputs, ending.random)
        judged = jax.device_get(residuals(oracles, both, fresh, batch_size=batch_size))
        r = jax.tree.map(lambda a: np.asarray(a[:count], np.float64), judged)
        wide = jax.tree.map(lambda a: np.asarray(a[count:], np.float64), judged)
    else:
        r = jax.device_get(without_gradient(oracles, ending.outputs))
        r = wide = jax.tree.map(lambda a: np.asarray(a, np.float64), r)
    funs, violations = r.objective, r.feasibility
    bad = ending.lost | ~np.isfinite(funs if usable else violations)
    best = best_replica(funs, violations, bad | ending.diverged, tol)

    samples = None if oracles.exact else sample_count(fresh, batch_size)
    one = jax.tree.map(lambda a: a[best], r)
    if bad[best]:  # zero subgradients were never proved to be any
        one = one._replace(criticality=np.nan)
    cert = certificate(oracles, one, samples, "witness")
    x = jnp.asarray(ending.outputs.x[best])
    if oracles.exact and not bad[best] and not cert.is_kkt(tol):
        exact = exact_certificate(oracles, x, jnp.asarray(one.gradient, x.dtype))
        cert = exact if exact.worst < cert.worst else cert

    success = not bad[best] and not ending.diverged[best] and cert.is_kkt(tol)
    endless = False
    if success and oracles.exact:
        polisher = Polisher(oracles, x) if ending.polished else None
        endless = leads_to_infinity(oracles, x, one.q, tol, polisher)
    if endless:
        success, ending.diverged[best] = False, True
    status = why(oracles, ending, best, cert, x, tol, success, bool(bad[best]))
    notes = list(ending.notes)
    lost = int(bad.sum())
    if 0 < lost < len(bad):
        notes.append(f"{lost} of {len(bad)} replicas met NaN or infinity and were left out.")
    if not usable:
        notes.append("The stream ended, so that no fresh samples were left to judge the answer.")
    kept = ~(ending.lost | ending.diverged)
    spread = None
    if usable and kept.all():
        spread = expectation(wide)
    said = ADVICE if endless else describe(status, cert, tol)
    message = " ".join([said, *notes])
    return Verdict(best, status, success, message, cert, spread, funs, violations)


def sample_count(draws: PyTree, batch_size: int) -> int:
    """Samples in two halves of equal size."""
    leaves = jax.tree.leaves(draws)
    return len(leaves[0]) // 2 * 2 * batch_size if leaves else 0


def without_gradient(oracles: Oracles, w: Witness) -> Residuals:
    """The residuals that need no sample; the others are NaN."""

    def one(x: Any, y: Any) -> Residuals:
        c, J = constraints_and_jacobian(oracles, x)
        violated = oracles.active(c)
        nan = jnp.full((), jnp.nan, x.dtype)
        return Residuals(
            nan, x * nan, nan, jnp.linalg.norm(x - y), jnp.linalg.norm(violated),
            jnp.linalg.norm(violated @ J), nan, c * nan,
        )  # fmt: skip

    return jax.vmap(one)(w.x, w.y)


def best_replica(funs: Any, violations: Any, bad: Any, tol: float) -> int:
    """The lowest F among replicas with violation <= tol, else the lowest violation.

    >>> best_replica(np.array([1.0, 0.5, 0.7]), np.array([0.0, 0.3, 0.0]), np.zeros(3, bool), 0.1)
    2
    """
    usable = ~bad if not bad.all() else np.ones_like(bad)
    feasible = usable & (violations <= tol) & np.isfinite(funs)
    score = np.where(feasible, funs, np.inf) if feasible.any() else violations
    score = np.where(usable & ~np.isnan(score), score, np.inf)
    return int(np.argmin(score))


def why(
    oracles: Oracles, ending: Ending, best: int, cert: Certificate, x: Any, tol: float,
    success: bool, lost: bool,
) -> Status:  # fmt: skip
    if ending.diverged[best]:
        return Status.DIVERGED
    if lost:
        return Status.NONFINITE
    if ending.early is not None:
        return ending.early
    if success:
        return Status.CONVERGED
    if cert.feasibility > tol:
        everywhere = np.ones(oracles.structure.size)
        if reduce_violation(oracles, x, everywhere, tol).stuck:
            return Status.INFEASIBLE_STATIONARY
    return Status.BUDGET


def describe(status: Status, cert: Certificate, tol: float) -> str:
    if status is Status.INFEASIBLE_STATIONARY:
        return (
            f"{status.value} There ||c|| = {cert.feasibility:.3g}: the constraints may have no "
            "solution near here; try another start."
        )
    if status is Status.BUDGET:
        named = {
            "criticality": cert.criticality,
            "proximity": cert.proximity,
            "feasibility": cert.feasibility,
            "complementarity": cert.complementarity,
        }
        short = [f"{name} = {value:.2g}" for name, value in named.items() if not value <= tol]
        return f"{status.value} Above tol = {tol:g}: {', '.join(short) or 'a negative multiplier'}."
    return status.value
