"""A proximal step that meets linearised constraints, solved in the dual.

    min_x  h(x) + |x - w|^2 / (2 eta)    s.t.  e_E + J_E (x - x0) = 0,  e_I + J_I (x - x0) <= 0

For multipliers y the minimiser of the Lagrangian is x(y) = prox_{eta h}(w - eta J'y), and the dual
function is concave with the gradient e + J (x(y) - x0) and, in general, the second derivative
-eta J D J', where D is the derivative of the proximal map. It is maximised by a semismooth Newton
method with a line search: one equation is a monotone scalar root, hundreds are m x m systems.

The multipliers stay in a box. Where the linearised constraints contradict each other the dual has
no maximum, and the box gives the x that violates them least (in the l1 norm, rows of unit length).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from mossp._base.types import Vector

STEPS = 60
SHORTER = 60  # halvings in a line search
# Relative to the gradient, between these: keeps singular systems solvable, and their steps finite.
RIDGE, LEAST_RIDGE, MOST_RIDGE = 1e-2, 1e-12, 1e-4


class Step(NamedTuple):
    x: Vector
    y: Vector  # multipliers
    v: Vector  # w - eta J'y, so that x = prox_{eta h}(v)
    residual: Any  # how far the linearised constraints are from being met, rows of unit length


def constrained_prox(
    h: Callable[[Vector], Any], prox_h: Callable[[Vector, Any], Vector], w: Vector, eta: Any,
    x0: Vector, e: Vector, J: Any, m_E: int, y: Vector, bound: Any,
) -> Step:  # fmt: skip
    """The step; `J` has one row a constraint, the first m_E of them equalities.

    y is where the search starts: the multipliers of the step before are close. `bound` limits the
    multipliers of rows of unit length; it is one number, or one a row.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> zero, same = (lambda x: 0.0), (lambda v, eta: v)
    >>> x0, J = jnp.zeros(2), jnp.array([[1.0, 1.0]])
    >>> step = constrained_prox(
    ...     zero, same, jnp.array([3.0, 1.0]), 1.0, x0, -jnp.ones(1) * 2, J, 1, jnp.zeros(1), 1e3
    ... )
    >>> step.x.tolist(), step.y.tolist()
    ([2.0, 0.0], [1.0])
    """
    lengths = jnp.linalg.norm(J, axis=1)
    longest = jnp.max(lengths)
    longest = jnp.where(longest > 0, longest, 1.0)
    lengths = jnp.where(lengths > 1e-12 * longest, lengths, longest)
    J, e, y = J / lengths[:, None], e / lengths, y * lengths
    low = jnp.where(jnp.arange(len(e)) < m_E, -bound, 0.0)
    eps = jnp.finfo(w.dtype).eps

    def at(y: Vector) -> tuple[Any, Vector, Vector, Vector]:
        """(dual value, gradient, x, v)."""
        v = w - eta * (y @ J)
        x = prox_h(v, eta)
        gradient = e + J @ (x - x0)
        return h(x) + jnp.sum((x - w) ** 2) / (2 * eta) + y @ gradient, gradient, x, v

    def free(y: Vector, gradient: Vector) -> Any:
        """Multipliers that may move: not held at a bound."""
        return ~(((y <= low) & (gradient <= 0)) | ((y >= bound) & (gradient >= 0)))

    size = jnp.max(jnp.abs(e)) + jnp.max(jnp.abs(J @ x0)) + jnp.max(jnp.abs(x0))
    enough = 8 * eps * jnp.maximum(size, eps)

    def left(y: Vector, gradient: Vector) -> Any:
        """How far y is from being a maximum."""
        return jnp.max(jnp.where(free(y, gradient), jnp.abs(gradient), 0.0))

    def unfinished(carry: Any) -> Any:
        k, y, (_, gradient, _, _), moved = carry
        return (k < STEPS) & moved & (left(y, gradient) > enough)

    def newton(carry: Any) -> Any:
        k, y, (value, gradient, _, v), _ = carry
        moves = free(y, gradient)
        D = jax.vmap(lambda row: jax.jvp(lambda v: prox_h(v, eta), (v,), (row,))[1])(J)
        M = eta * jnp.nan_to_num(D) @ J.T
        M = jnp.where(moves[:, None] & moves[None, :], M, 0.0)
        # Where a direction has no curvature its steps double, towards the bound of the box.
        slope = jnp.max(jnp.abs(gradient)) * 0.5**k
        ridge = jnp.where(moves, eta * jnp.clip(RIDGE * slope, LEAST_RIDGE, MOST_RIDGE), 1.0)
        p = solved(M + jnp.diag(ridge), jnp.where(moves, gradient, 0.0))

        def try_(s: Any) -> tuple[Vector, Any]:
            trial = jnp.clip(y + s * p, low, bound)
            return trial, at(trial)

        def too_long(attempt: Any) -> Any:
            j, _, trial, (new, ahead, _, _) = attempt
            # Near the maximum the value no longer tells: a smaller gradient will do.
            gain = gradient @ (trial - y)
            higher = new >= value + 1e-4 * gain
            closer = left(trial, ahead) <= 0.5 * left(y, gradient)
            return ~(higher | closer) & (j < SHORTER)

        def halve(attempt: Any) -> Any:
            j, s, _, _ = attempt
            return (j + 1, s / 2, *try_(s / 2))

        j, _, y, found = lax.while_loop(too_long, halve, (0, jnp.ones_like(eta), *try_(1.0)))
        return k + 1, y, found, j < SHORTER

    y = jnp.clip(y, low, bound)
    _, y, (_, gradient, x, v), _ = lax.while_loop(unfinished, newton, (0, y, at(y), True))
    residual = jnp.where(jnp.arange(len(e)) < m_E, gradient, jnp.maximum(gradient, 0.0))
    return Step(x, y / lengths, v, jnp.linalg.norm(residual))


def solved(M: Any, b: Vector) -> Vector:
    """M^{-1} b; one equation needs no factorisation, which would take long to compile."""
    return b / M[0] if len(b) == 1 else jnp.linalg.solve(M, b)
