"""From a nearly stationary point to full precision: Newton's method on the KKT residual, made safe.

A step is taken if the exact penalty F + nu |c|_1 falls, or if the residual halves; else the step is
halved. t is short first, and long where that leads nowhere: far from a solution entries leave where
they are shorter than t times the error of W, so that a short t keeps those that are wanted and a
long one lets others go.

A patient search leads to a solution from afar: where Newton's step does not halve the residual, the
pieces are not the right ones yet, and a proximal Newton step takes its place if that leads down
further. The point that is handed back is never worse than the one that came.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from mossp._base.budget import Budget, UsedUp
from mossp._base.threads import limit
from mossp._base.types import AnyVector
from mossp.certificates.certificate import Witness
from mossp.certificates.feasibility import into_domain
from mossp.newton.confined import confined_step, within_reach
from mossp.newton.hessian import COLUMNS, is_dense, unit_rows
from mossp.newton.meter import Meter
from mossp.newton.proximal import by_factors, minimum, model_step
from mossp.newton.residual import KKT, Evaluation, row_count
from mossp.newton.search import Reach, Search
from mossp.newton.system import by_products, derivative, direction
from mossp.oracles import Oracles

# Steps of an attempt. Where it converges it takes some ten; the last attempt of a run, after which
# nothing comes, may take MORE times as many.
STEPS, MORE = 40, 5
SHORT = 0.1  # a short t, in units of a long one, which is 1/||H||
HALVINGS = 8  # of a step with a long t, and half as many with a short one, which a long one follows
ARMIJO = 1e-4  # of the slope's promise that the penalty must fall by: the usual fraction
HALF = 0.5  # of the residual: a step that leaves no more than this is at its best, and is taken
# A patient search takes such a step only if the penalty rises by no more than this, relative to F:
# the residual also halves on the way to a saddle or a maximum.
RISE = 1e-3
# A Newton step that leaves more than SLOW of the residual is tried up to FURTHEST times as long.
SLOW, FURTHEST = 0.25, 16
# A step with the matrix of an earlier pair is taken where it leaves no more than this.
CHORD = 0.1
# Multipliers that grow by this factor at once belong to constraints that nearly contradict each
# other: there are none at all.
GROWTH = 1e6
MARGIN = 2  # by which nu exceeds the multipliers, for the penalty to be exact
# A residual that falls to no less than this has stalled: it is what rounding leaves, if it is small
# enough otherwise.
STALLED = 0.1
# The aim, in units of tol: beyond it, so that the certificate, which is computed in another way,
# holds at tol; feasibility more so, since it comes for nothing.
TIGHT, FEASIBLE = 1e-2, 1e-3
# Units of rounding, relative to 1 + |F|, by which the penalty may rise from start to end.
ROUNDING = 1e3

Step = Callable[[Search, Evaluation], Evaluation | None]


class Polished(NamedTuple):
    """Where an attempt ended, with its proof, and what it took."""

    witness: Witness
    residual: float  # the largest, relative to its scale
    improved: bool  # whether the witness proves more than the point that came; else it is that one
    steps: int
    gradients: int  # samples differentiated
    products: int  # samples behind Hessian-vector products
    value: float  # F
    ended: str = ""  # what was used up, where that ended it


class Path(NamedTuple):
    """A search from its start to its end."""

    first: Evaluation
    best: Evaluation
    steps: int
    t: float  # the last one that was tried
    ended: str  # what was used up, or nothing


@np.errstate(over="ignore", invalid="ignore")  # a trial point that overflows is not taken
def polish(
    oracles: Oracles, x: AnyVector, tol: float, patient: bool = True, budget: Budget | None = None,
    patience: float = np.inf, before: float = 0.0, last: bool = False,
) -> Polished:  # fmt: skip
    """The KKT point that x leads to, with its proof; x itself where none is better.

    Parameters
    ----------
    oracles : Oracles
        The problem; its data are finite, or it has none.
    x : array
        The start.
    tol : float
        The largest relative residual of a KKT point.
    patient : bool
        Whether to go on by proximal Newton steps where x is not near a solution.
    budget : Budget, optional
        Where it ends, the search does.
    patience : float
        The search also ends after so many samples in which the residual has not fallen to a tenth.
    before : float
        The samples of the budget that have been spent before.
    last : bool
        Whether no other attempt follows, so that this one may take more steps.
    """
    x = np.asarray(x)
    kkt = KKT.of(oracles, x.dtype)
    search = Search.of(kkt, Meter(budget, patience, before, reserve=row_count(oracles)))
    # Steps that confine predictions lead on from afar, and are cheap.
    many = last or (patient and search.reach is not None)
    with limit.one() if kkt.linear is not None else contextlib.nullcontext():
        path = follow(search, x, tol, patient, STEPS * MORE if many else STEPS)
        end, s_h = proved(search, path, tol)
    left, first = kkt.proved(end, s_h), path.first
    rise = search.penalty(end) - search.penalty(first)
    resolution = ROUNDING * float(np.finfo(x.dtype).eps) * (1 + abs(first.F))
    as_feasible = end.violation <= max(first.violation, tol)
    improved = left < first.residual and rise <= resolution and as_feasible
    if not improved:
        end, s_h = first, kkt.nearest_subgradient(first)
    witness = Witness(x=end.x, y=end.x, s_h=s_h, s_g=end.s_g, lam=end.q, rho=np.zeros(()))
    return Polished(
        witness=jax.tree.map(lambda a: np.asarray(a, x.dtype), witness),
        residual=kkt.relative(end, end.W + s_h),
        improved=improved,
        steps=path.steps,
        gradients=search.meter.gradients,
        products=search.meter.products,
        value=end.F,
        ended=path.ended,
    )


def proved(search: Search, path: Path, tol: float) -> tuple[Evaluation, np.ndarray]:
    """The end of a path, and the element of dh there that proves most."""
    kkt, end = search.kkt, path.best
    s_h = kkt.nearest_subgradient(end)
    if kkt.relative(end, end.W + s_h) <= tol:
        return end, s_h
    # p = prox_{t h}(x - t W) has an element of dh of its own: (x - p) / t - W.
    at = kkt.with_t(end, path.t)
    search.meter.count(gradients=kkt.rows)
    return kkt.evaluate(at.p, at.q, at.t), (at.x - at.p) / at.t - at.W


def follow(search: Search, x: np.ndarray, tol: float, patient: bool, most: int) -> Path:
    """Newton steps from x until the residual is small, no step leads on, or the budget ends."""
    kkt, meter, t, steps, ended = search.kkt, search.meter, 1.0, 0, ""
    meter.count(gradients=kkt.rows)
    first = best = kkt.evaluate(x, np.zeros(kkt.oracles.m), t)
    if not np.isfinite(first.residual) or not np.isfinite(first.J).all():
        return Path(first, first, steps, t, ended)
    try:
        L = search.hessian.norm(first)
        long = 1 / L if np.isfinite(L) and L > 0 else 1.0
        t = SHORT * long
        first = best = at = with_least_multipliers(search, first, t)
        meter.note(*reached(first))
        if (
            patient and is_dense(len(x)) and not by_factors(search) and search.reach is None
        ):  # compiled with the rest, not by the run that needs it
            minimum(search, at, np.eye(len(x)) / long)
        while steps < most:
            meter.check()
            after = None
            for t, step in trials(patient, long):
                after = step(search, kkt.with_t(at, t))
                if after is not None:
                    break
            if after is None:
                break
            steps += 1
            best = after if patient or after.residual < best.residual else best
            meter.note(*reached(after))
            search.hessian.settles = after.residual <= CHORD * at.residual
            if arrived(search, at, after, tol):
                break
            at = after
    except UsedUp as reason:
        ended = str(reason)
    return Path(first, best, steps, t, ended)


def reached(at: Evaluation) -> tuple[np.ndarray, float, float, float]:
    """What those who look on are told."""
    return at.x, at.F, at.violation, at.residual


@np.errstate(over="ignore", invalid="ignore")
def compile_steps(oracles: Oracles, x: AnyVector, budget: Budget) -> None:
    """Run what steps need once at x, for those who must not wait for the compiler later."""
    x = np.asarray(x)
    kkt = KKT.of(oracles, x.dtype)
    search = Search.of(kkt, Meter(budget))
    at = kkt.evaluate(x, np.zeros(oracles.m), 1.0)
    if not np.isfinite(at.residual) or not np.isfinite(at.J).all():
        return
    L = search.hessian.norm(at)
    long = 1 / L if np.isfinite(L) and L > 0 else 1.0
    at = with_least_multipliers(search, at, SHORT * long)
    some = unit_rows(np.arange(min(len(x), COLUMNS)), len(x))
    # By products on the host one row is as good as many: nothing is compiled for their number.
    search.hessian.products(at, some if kkt.linear is None else some[:1])
    derivative(kkt, at, some)
    if search.reach is None:
        one = np.eye(len(x)) if is_dense(len(x)) else np.ones(())
        minimum(search, at, one / long, most=1)


def with_least_multipliers(search: Search, at: Evaluation, t: float) -> Evaluation:
    """x with its least-squares multipliers, which nu then exceeds."""
    q = search.kkt.multipliers(at, t)
    search.penalty.require(MARGIN * float(np.abs(q).max(initial=0.0)))
    return search.kkt.with_multipliers(at, q, t)


def trials(patient: bool, long: float) -> list[tuple[float, Step]]:
    """The steps to be tried one after the other, each with its t."""
    newton = [
        (SHORT * long, functools.partial(newton_step, halvings=HALVINGS // 2)),
        (long, functools.partial(newton_step, halvings=HALVINGS)),
    ]
    return [(long, patient_step), *newton] if patient else [*newton]


def arrived(search: Search, at: Evaluation, after: Evaluation, tol: float) -> bool:
    """Whether the residual is small enough, or is as small as rounding lets it be."""
    if after.residual <= TIGHT * tol and after.violation <= FEASIBLE * tol:
        return True
    if after.residual < STALLED * at.residual:
        return False
    u = after.W + search.kkt.nearest_subgradient(after)
    return after.residual <= tol or search.kkt.relative(after, u) <= TIGHT * tol


def newton_step(
    search: Search, at: Evaluation, halvings: int,
    allowed: Callable[[np.ndarray], bool] = lambda dx: True,
) -> Evaluation | None:  # fmt: skip
    """The next pair in Newton's direction, or None where no length of the step is good enough.

    A direction that is not `allowed` is not tried.
    """
    again = chord_step(search, at, allowed)
    if again is not None:
        return again
    found, penalty = direction(search.kkt, search.hessian, at), search.penalty
    if found is None:
        return None
    dx, dq, block = found
    largest = float(np.abs(at.q + dq).max(initial=0.0))
    if largest > GROWTH * (1 + penalty.nu):
        return None
    penalty.require(MARGIN * largest)
    if not allowed(dx):
        return None
    now, size = penalty(at), 1.0
    for _ in range(halvings):
        x = into_domain(search.kkt.regularizer, at.x + size * dx)
        trial = search.evaluate(x, at.q + dq, at.t)
        enough = now + ARMIJO * size * min(float(at.W @ dx), 0.0)
        lower = trial.residual < np.inf and penalty(trial) < min(enough, now)
        if trial.residual <= HALF * at.residual or lower:
            if search.hessian.thinned and block is not None and size == 1:
                search.hessian.learn(block, at, trial)
            return trial
        size /= 2
    return None


def chord_step(
    search: Search, at: Evaluation, allowed: Callable[[np.ndarray], bool]
) -> Evaluation | None:
    """Newton's step with the matrix of an earlier pair, where it leaves next to nothing.

    Near a solution the matrix changes little from one pair to the next, and takes longer to form
    than the pass over the data that shows what a step has led to.
    """
    hessian = search.hessian
    (S,) = np.nonzero(at.free)
    if not hessian.lasts(S) or by_products(search.kkt, len(S)):
        return None
    hessian.again = True
    try:
        found = direction(search.kkt, hessian, at)
    finally:
        hessian.again = False
    if found is None or not allowed(found.dx):
        return None
    trial = search.evaluate(into_domain(search.kkt.regularizer, at.x + found.dx), at.q, at.t)
    return trial if trial.residual <= CHORD * at.residual else None


def confined_or_newton(search: Search, reach: Reach, at: Evaluation) -> Evaluation | None:
    """Newton's where it is at its best and moves no prediction far; else a confined one."""
    penalty = search.penalty
    newton = newton_step(search, at, halvings=1, allowed=lambda dx: within_reach(search, reach, dx))
    if (
        newton is not None
        and newton.residual <= HALF * at.residual
        and penalty(newton) - penalty(at) <= RISE * (1 + abs(at.F))
    ):
        return stretched(search, at, newton)
    return confined_step(search, reach, at)


def stretched(search: Search, at: Evaluation, newton: Evaluation) -> Evaluation:
    """Newton's step, or further along it while that pays: evaluations, and no Hessian.

    Where a loss tends to its infimum like exp(-t) along a ray, Newton's method goes on by one unit
    of t at a time, for ever; so it does towards a minimum at which the curvature vanishes.
    """
    size, dx, dq = 1.0, newton.x - at.x, newton.q - at.q
    best, slow = newton, newton.residual > SLOW * at.residual
    while slow and size < FURTHEST:
        size *= 2
        trial = search.evaluate(at.x + size * dx, at.q + dq, at.t)
        rise = search.penalty(trial) - search.penalty(at)
        if not (trial.residual <= HALF * best.residual and rise <= RISE * (1 + abs(at.F))):
            break
        best = trial
    return best


def patient_step(search: Search, at: Evaluation) -> Evaluation | None:
    """Newton's where it is at its best; else the one of two that leads down further."""
    if search.reach is not None:
        return confined_or_newton(search, search.reach, at)
    penalty, newton = search.penalty, newton_step(search, at, halvings=1)
    if newton is not None and newton.residual <= HALF * at.residual:
        rise = penalty(newton) - penalty(at)
        if rise <= RISE * (1 + abs(at.F)):
            return newton
    model = model_step(search, at)
    if newton is not None and model is not None and penalty(newton) < penalty(model):
        return newton
    return model
