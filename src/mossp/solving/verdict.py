"""From the end of a run to a Result: which replica, what its certificate says, why it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.device import on_device
from mossp._base.types import PyTree
from mossp.certificates.certificate import (
    LARGE,
    RESIDUALS,
    Certificate,
    Residuals,
    Scales,
    Witness,
    certificate,
    expectation,
)
from mossp.certificates.feasibility import (
    Restoration,
    conflict,
    reduce_violation,
    violation,
)
from mossp.certificates.first_order import Pass
from mossp.certificates.fresh import decided, sample_count
from mossp.certificates.residuals import residuals_of
from mossp.certificates.stationarity import shortest_certificate
from mossp.newton.meter import Meter
from mossp.newton.recession import ADVICE, leads_to_infinity
from mossp.oracles import Oracles
from mossp.result import Status

NO_WORSE = 0.999  # where the start leads as near, it is rather taken than the end


@dataclasses.dataclass
class Ending:
    """How a run ended, before it is judged."""

    outputs: Witness  # leading axis: replicas
    random: Witness | None  # None where no step was taken
    lost: np.ndarray  # replicas that met NaN or infinity; their x is the last finite one
    diverged: np.ndarray
    early: Status | None = None  # INTERRUPTED or STOPPED
    notes: list[str] = dataclasses.field(default_factory=list)
    start: np.ndarray | None = None  # where the run started: the best point of phase one
    polished: bool = False  # and time is left: Newton's direction may be computed
    bounded: np.ndarray | None = None  # an x that polishing saw not to be on its way to infinity


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
    oracles: Oracles, ending: Ending, *, tol: float, batch_size: int, fresh: PyTree,
    more: Callable[[int], PyTree] = lambda number: None, most: int = 0,
    pass_over: Pass | None = None,
) -> Verdict:  # fmt: skip
    """`fresh` are draws that no step has seen; None where gradients are full or none are left.

    `more(number)` gives further ones, so that up to `most` samples decide where the first leave it
    open. `pass_over` is what takes values and slopes from all rows. Where the run ends infeasible,
    the point of least violation that is known takes the place of `ending.outputs.x[best]`.
    """
    usable = oracles.finite_sum or fresh is not None

    def evaluate() -> tuple[Residuals, Residuals | None]:
        """Of the outputs, and of the random ones."""
        if not usable:
            r = jax.device_get(without_gradient(oracles, ending.outputs))
            r = jax.tree.map(lambda a: np.array(a, np.float64), r)
            return r, r
        groups = (ending.outputs, *(() if ending.random is None else (ending.random,)))
        judged = residuals_of(oracles, groups, fresh, batch_size=batch_size, pass_over=pass_over)
        # Which may be changed below.
        each = jax.tree.map(lambda a: np.require(a, np.float64, "W"), judged)
        return each[0], None if ending.random is None else each[1]

    r, wide = evaluate()
    samples = None if oracles.finite_sum else sample_count(fresh, batch_size)
    bad = ending.lost | ~np.isfinite(r.objective if usable else r.feasibility)
    relative = r.feasibility / r.scales.feasibility
    best = best_replica(r.objective, relative, bad | ending.diverged, tol)
    one, x = jax.tree.map(lambda a: a[best], r), np.asarray(ending.outputs.x[best])
    if bad[best]:
        cert = unproved(oracles, one, samples)
    elif oracles.finite_sum:
        cert = strongest(oracles, x, one, tol)
    else:
        cert = decided(oracles, on_device(x), one, samples or 0, more, most, tol, batch_size)
        r.feasibility[best] = cert.feasibility  # which more samples may know better

    success = not bad[best] and not ending.diverged[best] and cert.is_kkt(tol, relative=True)
    endless = False
    seen = ending.bounded is not None and np.array_equal(ending.bounded, ending.outputs.x[best])
    if success and oracles.finite_sum and not seen:
        endless = leads_to_infinity(oracles, x, one.q, tol, Meter() if ending.polished else None)
    if endless:
        success, ending.diverged[best] = False, True
    status, notes, reason = why(ending, best, success, bool(bad[best])), list(ending.notes), ""
    known = None
    if ending.early is None and not cert.bound("feasibility", relative=True) <= tol:
        known = best_known(oracles, ending, best, tol)
    if known is not None:
        for part in ending.outputs:
            part[best] = 0.0
        ending.outputs.x[best] = ending.outputs.y[best] = known.x
        moved = jax.tree.map(lambda a: a[best], evaluate()[0])
        r.objective[best], r.feasibility[best] = moved.objective, moved.feasibility
        cert = unproved(oracles, moved, samples)
        if oracles.finite_sum and np.isfinite(moved.gradient).all():
            cert = shortest_certificate(oracles, ending.outputs.x[best], moved.gradient)
        if known.stuck:
            status, reason = Status.INFEASIBLE_STATIONARY, conflict(oracles, known.x)
        else:
            notes.append("The point returned is the one that the run started from.")
    lost = int(bad.sum())
    if 0 < lost < len(bad):
        notes.append(f"{lost} of {len(bad)} replicas met NaN or infinity and were left out.")
    if not usable:
        notes.append("The stream ended, so that no fresh samples were left to judge the answer.")
    kept = ~(ending.lost | ending.diverged)
    spread = None
    if usable and kept.all() and wide is not None:
        spread = expectation(wide)
    first = ADVICE if endless else describe(status, cert, tol)
    message = " ".join([first, *([reason] if reason else []), *notes])
    return Verdict(best, status, success, message, cert, spread, r.objective, r.feasibility)


def unproved(oracles: Oracles, one: Residuals, samples: int | None) -> Certificate:
    """Of a point without a witness: zero subgradients were never proved to be any."""
    return certificate(oracles, one._replace(criticality=np.nan), samples, "witness")


def strongest(oracles: Oracles, x: Any, one: Residuals, tol: float) -> Certificate:
    """What the witness proves, or what can be proved of x itself, if that is more."""
    cert = certificate(oracles, one, None, "witness")
    if cert.is_kkt(tol, relative=True):
        return cert
    shortest = shortest_certificate(oracles, x, one.gradient)
    return shortest if shortest.worst_relative < cert.worst_relative else cert


def best_known(oracles: Oracles, ending: Ending, best: int, tol: float) -> Restoration | None:
    """The point of least violation among the end of a run, its start, and where these lead to.

    None where a feasible point can be reached and the run did not make things worse: then it was
    too short, and the constraints are not to blame.
    """
    everywhere = np.ones(oracles.structure.size)
    end, start = ending.outputs.x[best], ending.start
    restored = reduce_violation(oracles, end, everywhere, tol)
    if start is not None and (restored.stuck or ending.diverged[best]):
        other = reduce_violation(oracles, start, everywhere, tol)
        if other.finite and NO_WORSE * other.violation <= restored.violation:
            restored = other
    if restored.stuck:
        return restored
    if ending.diverged[best] and start is not None:
        known = violation(oracles, start)
        if known < violation(oracles, end):
            return Restoration(np.asarray(start), known, stuck=False, finite=True)
    return None


def without_gradient(oracles: Oracles, w: Witness) -> Residuals:
    """The residuals that need no sample; the others are NaN."""

    def one(x: Any, y: Any) -> Residuals:
        c, pull = oracles.linearized(x)
        violated = oracles.positive_part(c)
        nan = jnp.full((), jnp.nan, x.dtype)
        one = jnp.ones((), x.dtype)
        return Residuals(
            nan, x * nan, nan, jnp.linalg.norm(x - y), jnp.linalg.norm(violated),
            jnp.linalg.norm(pull(violated)), nan, c * nan, nan, nan,
            Scales(one, one, one, one, nan), c,
        )  # fmt: skip

    return jax.vmap(one)(w.x, w.y)


def best_replica(funs: Any, violations: Any, bad: Any, tol: float) -> int:
    """The lowest F among replicas with violation <= tol, else the lowest violation.

    Examples
    --------
    >>> best_replica(np.array([1.0, 0.5, 0.7]), np.array([0.0, 0.3, 0.0]), np.zeros(3, bool), 0.1)
    2
    """
    usable = ~bad if not bad.all() else np.ones_like(bad)
    feasible = usable & (violations <= tol) & np.isfinite(funs)
    score = np.where(feasible, funs, np.inf) if feasible.any() else violations
    score = np.where(usable & ~np.isnan(score), score, np.inf)
    return int(np.argmin(score))


def why(ending: Ending, best: int, success: bool, lost: bool) -> Status:
    if ending.diverged[best]:
        return Status.DIVERGED
    if lost:
        return Status.NONFINITE
    if ending.early is not None:
        return ending.early
    return Status.CONVERGED if success else Status.BUDGET


def describe(status: Status, cert: Certificate, tol: float) -> str:
    text = status.value
    if status is Status.INFEASIBLE_STATIONARY:
        text += f" There ||c|| = {cert.feasibility:.3g}."
    if status is Status.BUDGET:
        short = [above(cert, name) for name in RESIDUALS if not cert.bound(name, True) <= tol]
        text += f" Above tol = {tol:g}: {', '.join(short) or 'a negative multiplier'}."
    if status is Status.CONVERGED and cert.feasibility_error > 0:
        text += (
            f" The violation is {cert.feasibility:.2g}, and at most "
            f"{cert.bound('feasibility', False):.2g} at 95 %."
        )
    if cert.largest_multiplier > LARGE:
        text += (
            f" A multiplier is {cert.largest_multiplier:.1e} times as large as what it balances: "
            "near this point the gradients of the constraints vanish, contradict each other, or "
            "have units that are far apart, and a small residual says little there."
        )
    return text


def above(cert: Certificate, name: str) -> str:
    """A residual that is too large, with its error and its scale where they matter."""
    value, error = getattr(cert, name), cert.error(name)
    scale = getattr(cert, f"{name}_scale")
    text = f"{name} = {value:.2g}"
    if error > 0:
        text += f" (at most {value + error:.2g})"
    return text if scale < 1.05 else f"{text}, or {cert.bound(name, True):.2g} of {scale:.2g}"
