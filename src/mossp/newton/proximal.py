"""Proximal Newton steps: from afar, where the pieces that a point identifies are not yet right.

The next point is the minimum of a convex model of the problem, which includes h and the linearised
constraints,

    min  <grad f(x) - grad g(x), d> + d'M d / 2 + h(x + d)    s.t.  c(x) + J d = 0  (<= 0)

with M = |H| where entries are free or nonzero, 1/t elsewhere, and some damping; or, should none of
these lead down, M = I / t with ever smaller t: a proximal gradient step, for which no product with
H is needed, but which is slow. Models are minimised by accelerated proximal gradient steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import compiled
from mossp._base.types import AnyVector
from mossp.methods.dual import constrained_prox
from mossp.newton import multipliers, quadratic
from mossp.newton.conjugate import Curvature
from mossp.newton.hessian import is_dense
from mossp.newton.linear import LinearLoss
from mossp.newton.residual import Evaluation
from mossp.newton.search import Search
from mossp.newton.system import by_products
from mossp.oracles import Oracles

# Where a loss is flat but for a bend, H says too little: the more is added to M, in units of 1/t,
# the shorter is the step. The first is as good as none.
DAMPING = (1e-8, 1e-4, 1e-2)
# And the proximal gradient steps after these: t is divided by 16 each time, down to 4096 times
# shorter than 1/||H||.
SHORTENINGS, SHORTENING = 4, 16
# A step is tried at full length and at a quarter of the last: 1/64 in the end.
LENGTHS, SHRINKING = 4, 4
ARMIJO = 1e-4  # of the decrease that the model promises must come: the usual fraction, any descent
# A model is minimised until a step is this part of the first one: it is a model only.
MODEL_ACCURACY, MODEL_STEPS = 1e-3, 1000
# Beyond so many constraints, and then to this accuracy of the linearised ones, by multipliers.
FEW_CONSTRAINTS, MULTIPLIER_ACCURACY = 32, 1e-5
SYSTEM_ACCURACY = 1e-2  # of systems on the way to that minimum, by conjugate gradients
STEPS_TOGETHER = 100  # in one call of a program: an end of the budget is noticed between two calls
# nu is multiplied by RAISE, at most RAISES times, until a model's minimum leaves at most this part
# of the violation: else it is too weak to pull towards the constraints.
RAISES, RAISE, VIOLATION_LEFT = 4, 4, 0.1
FALLS = 0.9  # of the violation that the smaller nu left: a larger one must leave less
# Nor may it push a point that is feasible across a constraint: by this part of the way at most.
PUSHED = 0.3


class Model(NamedTuple):
    """A convex model of the problem around x."""

    x: AnyVector
    gradient: AnyVector  # of f
    c: AnyVector
    J: Any
    M: Any  # a matrix, or a number times the identity
    step: Any  # 1 / ||M||
    bound: AnyVector  # on the multipliers: nu times the length of each row of J


class Descent(NamedTuple):
    """Where the minimisation of a model stands."""

    k: Any
    x: AnyVector
    y: AnyVector  # ahead of x, by acceleration
    q: AnyVector
    speed: Any
    left: Any  # the length of the last step
    enough: Any  # the length at which it ends

    @classmethod
    def begin(cls, x: AnyVector, q: AnyVector) -> Descent:
        zero, one = np.zeros((), x.dtype), np.ones((), x.dtype)
        return cls(np.zeros((), np.int32), x, x, q, one, one, zero)


def model_step(search: Search, at: Evaluation) -> Evaluation | None:
    """The first pair along the minima of models that lowers the exact penalty enough."""
    penalty, lengths = search.penalty, np.linalg.norm(at.J, axis=1)
    penalty.require(float(np.linalg.norm(at.gradient)) / max(lengths.max(initial=0), 1))
    for M in models(search, at):
        x, q = minimum(search, at, M)
        dx, size = x - at.x, 1.0
        enough = ARMIJO * float(dx @ (M @ dx if M.ndim else M * dx))
        for _ in range(LENGTHS):
            trial = search.evaluate(at.x + size * dx, q, at.t)
            if penalty(trial) < penalty(at) - size * enough:
                return trial
            size /= SHRINKING
    return None


def models(search: Search, at: Evaluation) -> Iterator[Any]:
    """M, from the best model on: a matrix or its products, or a number where there are none."""
    n = len(at.x)
    one = np.eye(n) if is_dense(n) and not by_factors(search) else np.ones(())
    f = search.kkt.linear
    if isinstance(f, LinearLoss) and by_products(search.kkt, n):
        for damping in DAMPING:
            yield Curvature(f, at.x, damping / at.t, SYSTEM_ACCURACY, search.meter)
    elif is_dense(n):
        (S,) = np.nonzero(at.free | (at.x != 0))
        M = np.eye(n) / at.t
        M[np.ix_(S, S)] = positive(search.hessian.block(at, S, np.zeros(n)).H)
        for damping in DAMPING:
            yield M + damping / at.t * np.eye(n)
    for power in range(SHORTENINGS):
        yield one * (SHORTENING**power / at.t)


def by_factors(search: Search) -> bool:
    """Whether models are minimised by factorisations on the host: h is separable, c is empty."""
    return search.kkt.on_host and not search.kkt.oracles.m


def positive(H: np.ndarray) -> np.ndarray:
    """|H|, with the eigenvalues of a symmetric matrix replaced by their absolute values."""
    if not len(H) or quadratic.positive_factor(H) is not None:
        return H
    values, vectors = np.linalg.eigh(H)
    return H if values[0] >= 0 else (vectors * np.abs(values)) @ vectors.T


def minimum(
    search: Search, at: Evaluation, M: Any, most: int = MODEL_STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """The minimum of a model, and its multipliers, by `most` steps.

    Multipliers are bounded by nu, so that a model has a minimum also where the linearised
    constraints contradict each other; nu is raised where that keeps it from feasible points.
    """
    dtype, penalty = search.kkt.dtype, search.penalty
    if by_factors(search):
        reg, w = search.kkt.regularizer, at.W
        if not M.ndim:
            return np.asarray(reg.prox_h(at.x - w / M, 1 / M)), at.q
        search.meter.check()
        return quadratic.minimum(reg, at.x, w, M, at.t, MODEL_ACCURACY), at.q
    L = np.linalg.norm(M, 2) if M.ndim else M
    lengths = np.linalg.norm(at.J, axis=1)
    nu, before = penalty.nu, np.inf
    for _ in range(RAISES):
        parts: Any = (at.x, at.gradient, at.c, at.J, M, 1 / L, nu * lengths)
        model = Model(*(np.asarray(a, dtype) for a in parts))
        begin = Descent.begin(model.x, np.asarray(at.q, dtype))
        x, q, left = descend(search, model, begin, most if M.ndim else 1)
        moved = float(np.linalg.norm(at.J @ (x - at.x)))
        if left >= FALLS * before:  # they contradict each other: no nu is large enough
            return x, q
        penalty.require(nu)
        if left <= VIOLATION_LEFT * at.violation + PUSHED * moved:
            break
        nu, before = RAISE * nu, left
    return x, q


def descend(
    search: Search, model: Model, at: Any, most: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """The minimum of a model, its multipliers, and the violation that it leaves."""
    if search.kkt.on_host and model.M.ndim and len(model.c) > FEW_CONSTRAINTS:
        search.meter.check()
        return by_multipliers(search, model, at)
    while True:
        search.meter.check()
        until = np.asarray(min(int(at.k) + STEPS_TOGETHER, most), np.int32)
        at, violation, done = _descend(search.kkt.oracles, model, at, until)
        if done or int(at.k) >= most:
            return np.asarray(at.x, float), np.asarray(at.q, float), float(violation)


def by_multipliers(search: Search, model: Model, at: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """The same on the host, under many constraints: systems are of the order of x, not of c."""
    kkt, reg = search.kkt, search.kkt.regularizer
    x, gradient, c, J, M = (np.asarray(a, np.float64) for a in model[:5])
    w = gradient - np.asarray(reg.subgradient_g(x))
    lengths = np.linalg.norm(J, axis=1)
    nu = np.asarray(model.bound, np.float64) / np.where(lengths > 0, lengths, 1.0)
    lower, q = np.where(kkt.is_equality, -nu, 0.0), np.asarray(at.q, np.float64)
    y, q = multipliers.minimum(reg, x, w, M, c, J, lower, nu, q, MULTIPLIER_ACCURACY)
    left = np.linalg.norm(kkt.oracles.positive_part(c + J @ (y - x)))
    return y, q, float(left)


@compiled
def _descend(oracles: Oracles, model: Model, at: Descent, until: Any) -> tuple[Descent, Any, Any]:
    """(the descent at step `until`, the violation left, whether it has ended).

    Accelerated proximal steps, each of which meets the linearised constraints:

        x+ = prox_{step h}(y - step (grad f - grad g + M (y - x0)))  over them
    """
    reg = oracles.regularizer
    x, gradient, c, J, M, t, bound = model
    w = gradient - reg.subgradient_g(x)

    def step(at: Descent) -> Descent:
        move = at.y - x
        v = at.y - t * (w + (M @ move if M.ndim else M * move))
        if oracles.m == 0:
            new, q = reg.prox_h(v, t), at.q
        else:
            found = constrained_prox(reg.h, reg.prox_h, v, t, x, c, J, oracles.m_E, at.q, bound)
            new, q = found.x, found.y
        # Started anew where it runs the wrong way (O'Donoghue and Candes).
        speed = jnp.where((at.y - new) @ (new - at.x) > 0, 1.0, at.speed)
        faster = (1 + jnp.sqrt(1 + 4 * speed**2)) / 2
        ahead = new + (speed - 1) / faster * (new - at.x)
        left = jnp.linalg.norm(at.y - new)
        enough = jnp.where(at.k == 0, MODEL_ACCURACY * left, at.enough)
        return Descent(at.k + 1, new, ahead, q, faster, left, enough)

    unfinished = lambda at: at.left > at.enough  # noqa: E731
    end = jax.lax.while_loop(lambda at: (at.k < until) & unfinished(at), step, at)
    return end, jnp.linalg.norm(oracles.positive_part(c + J @ (end.x - x))), ~unfinished(end)
