"""Proximal formulas, for NumPy, JAX and torch alike.

    prox_{mu phi}(v) = argmin_x phi(x) + |x - v|^2 / (2 mu)

Every function takes a vector `v` and numbers (Python, NumPy, or traced by JAX), and answers in the
library and dtype of `v`. Separable ones also take one `mu` per coordinate. mu = 0 gives v.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import array_api_compat
import jax
import jax.numpy as jnp
import numpy

from mossp._base.types import AnyArray, AnyNumber, AnyVector, Namespace

T = TypeVar("T")
Array = AnyArray  # the name that others import


# --- what makes one formula serve three array libraries ------------------------------------------


def aligned(v: AnyArray, *numbers: AnyArray) -> tuple[AnyArray, ...]:
    """(namespace, v, *numbers): v as a floating array, the numbers in its library and dtype.

    JAX wins over NumPy, because lam may be traced while v is a NumPy constant.

    Examples
    --------
    >>> import numpy as np
    >>> xp, v, t = aligned(np.array([3, -1]), 2)
    >>> v, t
    (array([ 3., -1.]), 2.0)
    """
    traced = any(isinstance(a, jax.Array) for a in (v, *numbers))
    if not traced and type(v) is numpy.ndarray and v.dtype.char in "fd":  # as on the host: at once
        plain = (a if type(a) is float else numpy.asarray(a, v.dtype) for a in numbers)
        return numpy, v, *plain
    if traced:
        xp: Namespace = jnp
    elif type(v) is numpy.ndarray:  # as of NumPy 2 it is such a namespace itself, and the faster
        xp = numpy
    elif array_api_compat.is_array_api_obj(v):
        xp = array_api_compat.array_namespace(v)
    else:
        xp = numpy
    v = xp.asarray(v)
    if not xp.isdtype(v.dtype, "real floating"):
        v = xp.asarray(v, dtype=float)
    # A plain Python number adapts to the dtype of v by itself; np.float64 would not. In torch,
    # comparing one gives no tensor, and `where` needs one.
    adapt = (int, float) if not array_api_compat.is_torch_namespace(xp) else ()
    same = (float(a) if type(a) in adapt else xp.asarray(a, dtype=v.dtype) for a in numbers)
    return xp, v, *same


def iterate(xp: Namespace, count: int, body: Callable[[T], T], state: T) -> T:
    """Apply body `count` times; one compiled loop in JAX, so that compilation stays short.

    Elsewhere it stops at a fixed point, which further passes would not change.
    """
    if xp is jnp:
        return jax.lax.fori_loop(0, count, lambda _, s: body(s), state)
    for _ in range(count):
        last, state = state, body(state)
        pairs = zip(jax.tree.leaves(last), jax.tree.leaves(state), strict=True)
        if all(bool(xp.all(old == new)) for old, new in pairs):
            break
    return state


def detached(xp: Namespace, x: AnyArray) -> AnyArray:
    """Hand x on as a constant to automatic differentiation."""
    if xp is jnp:
        return jax.lax.stop_gradient(x)
    return x.detach() if hasattr(x, "detach") else x


def nonzero(xp: Namespace, x: AnyArray) -> AnyArray:
    """Give x with its zeros replaced by 1, to divide by; NaN stays NaN."""
    return xp.where(x == 0, 1.0, x)


def positive_part(xp: Namespace, x: AnyArray) -> AnyArray:
    """max(x, 0), entry by entry."""
    return xp.clip(x, 0.0, None)


def sign(xp: Namespace, x: AnyArray) -> AnyArray:
    """-1, 0 or 1; torch's own, since the compatible one tests for NaN at some cost."""
    return x.sign() if array_api_compat.is_torch_namespace(xp) else xp.sign(x)


def root(xp: Namespace, q: AnyArray) -> AnyArray:
    """sqrt(q) for q >= 0, with derivative 0 instead of inf at 0."""
    return xp.where(q == 0, 0.0, xp.sqrt(nonzero(xp, q)))


def norm(xp: Namespace, x: AnyArray) -> AnyArray:
    """|x|_2, with the subgradient 0 at 0."""
    return root(xp, xp.sum(x * x))


def segment_sum(xp: Namespace, values: AnyArray, ids: AnyArray, count: int) -> AnyArray:
    """Sums of `values` over the entries with equal `ids` in 0 .. count - 1."""
    if xp is jnp:
        return jnp.zeros(count, values.dtype).at[ids].add(values)
    if array_api_compat.is_torch_namespace(xp):
        at = xp.asarray(ids, device=values.device)
        return xp.zeros(count, dtype=values.dtype, device=values.device).index_add(0, at, values)
    sums = xp.zeros(count, dtype=values.dtype)
    xp.add.at(sums, xp.asarray(ids), values)
    return sums


def rank(xp: Namespace, a: AnyArray) -> AnyArray:
    """Positions of the entries of `a` in decreasing order: 0 for the largest; ties by position."""
    order = xp.argsort(-a, stable=True)
    return xp.argsort(order, stable=True)


# --- separable functions -------------------------------------------------------------------------


def soft_threshold(v: AnyVector, t: AnyNumber) -> AnyVector:
    """Prox of t |x|_1: sign(v) (|v| - t)_+.

    Examples
    --------
    >>> import numpy as np
    >>> soft_threshold(np.array([3.0, -0.5, -2.0]), 1.0)
    array([ 2.,  0., -1.])
    """
    xp, v, t = aligned(v, t)
    return v - xp.clip(v, -t, t)  # in this form a zero is +0.0 and t = 0 gives v exactly


def prox_capped(v: AnyVector, mu: AnyNumber, lam: AnyNumber, theta: AnyNumber) -> AnyVector:
    """Prox of mu lam sum_i (|x_i| - theta)_+.

    Examples
    --------
    >>> import numpy as np
    >>> prox_capped(np.array([0.5, 1.5, -3.0]), 1.0, 1.0, 1.0)
    array([ 0.5,  1. , -2. ])
    """
    xp, v, mu, lam, theta = aligned(v, mu, lam, theta)
    a = xp.abs(v)
    return sign(xp, v) * xp.minimum(a, xp.clip(a - mu * lam, theta, None))


def prox_huber(v: AnyVector, mu: AnyNumber, lam: AnyNumber, gamma: AnyNumber) -> AnyVector:
    """Prox of mu times the Huber function: x^2 / (2 gamma) up to |x| = gamma lam, then slope lam.

    Examples
    --------
    >>> import numpy as np
    >>> prox_huber(np.array([2.0, -8.0]), 1.0, 1.0, 3.0)
    array([ 1.5, -7. ])
    """
    xp, v, mu, lam, gamma = aligned(v, mu, lam, gamma)
    near = xp.abs(v) <= lam * (gamma + mu)
    return xp.where(near, v * (gamma / (gamma + mu)), v - mu * lam * sign(xp, v))


def prox_scad(v: AnyVector, mu: AnyNumber, lam: AnyNumber, a: AnyNumber) -> AnyVector:
    """Prox of mu g for g = 0 up to lam, (|x| - lam)^2 / (2 (a - 1)) up to a lam, then slope lam.

    Examples
    --------
    >>> import numpy as np
    >>> prox_scad(np.array([0.5, 2.0, -9.0]), 1.0, 1.0, 3.0)
    array([ 0.5       ,  1.66666667, -8.        ])
    """
    xp, v, mu, lam, a = aligned(v, mu, lam, a)
    size, signs = xp.abs(v), sign(xp, v)
    middle = v * ((a - 1) / (a - 1 + mu)) + signs * (lam * (mu / (a - 1 + mu)))
    outer = xp.where(size <= lam * (a + mu), middle, v - mu * lam * signs)
    return xp.where(size <= lam, v, outer)


def prox_log_sum(v: AnyVector, mu: AnyNumber, lam: AnyNumber, theta: AnyNumber) -> AnyVector:
    """Prox of mu sum_i (lam/theta) |x_i| - lam log(1 + |x_i|/theta).

    The larger root of x^2 - b x - theta a = 0, b = a - mu lam/theta - theta, a = |v|.

    Examples
    --------
    >>> import numpy as np
    >>> prox_log_sum(np.array([1.5, 0.0]), 1.0, 1.0, 1.0)   # 1 + 1 / (1 + 1) = 1.5
    array([1., 0.])
    """
    xp, v, mu, lam, theta = aligned(v, mu, lam, theta)
    a = xp.abs(v)
    b = a - mu * lam / theta - theta
    r = xp.sqrt(b * b + 4 * theta * a)
    # Each form cancels where the other does not.
    falls = b < 0
    x = xp.where(falls, 2 * theta * a / xp.where(falls, r - b, 1.0), 0.5 * (b + r))
    return xp.where(mu * lam == 0, v, sign(xp, v) * x)


def prox_transformed(v: AnyVector, mu: AnyNumber, lam: AnyNumber, a: AnyNumber) -> AnyVector:
    """Prox of mu lam (a+1) sum_i x_i^2 / (a (a + |x_i|)).

    In units of a, x >= 0 solves x + c (1 - (1 + x)^-2) = |v| / a with c = mu lam (a+1) / a^2.
    The left side is concave and increasing: Newton from below the root rises to it.

    Examples
    --------
    >>> import numpy as np
    >>> prox_transformed(np.array([1.75, -1.75]), 1.0, 0.5, 1.0)   # 1 + 3/4
    array([ 1., -1.])
    """
    xp, v, mu, lam, a = aligned(v, mu, lam, a)

    def newton(x: AnyArray, c: AnyArray, size: AnyArray) -> AnyArray:
        y = 1 / (1 + x)
        residual = x + c * x * (2 + x) * y * y - size
        return x - residual / (1 + 2 * c * y * y * y)

    c, size = mu * lam * (a + 1) / a**2, xp.abs(v) / a
    c_, size_ = detached(xp, c + xp.zeros_like(size)), detached(xp, size)
    # y = 1 + x is the positive root of y^2 (y - b) = c, b = 1 + size - c. Halving c in the balance
    # of the two largest terms bounds y from below within a constant factor, so few steps do;
    # 0.99 keeps rounding from lifting the start above the root (and 0 above 0).
    b = 1 + size_ - c_
    cubic = (0.5 * c_) ** (1 / 3)
    square = xp.sqrt(c_ / (2 * nonzero(xp, xp.abs(b))))
    below = 0.99 * xp.where(b < 0, xp.minimum(cubic, square), xp.maximum(b, cubic)) - 1
    x = xp.maximum(xp.maximum(size_ / (1 + 2 * c_), size_ - c_), below)
    for _ in range(8):
        x = newton(x, c_, size_)
    x = newton(x, c, size)  # this step carries the derivative
    return xp.where(mu * lam == 0, v, sign(xp, v) * x * a)


# --- norms ---------------------------------------------------------------------------------------


def prox_l2(v: AnyVector, t: AnyNumber) -> AnyVector:
    """Prox of t |x|_2: (1 - t/|v|)_+ v.

    Examples
    --------
    >>> import numpy as np
    >>> prox_l2(np.array([3.0, 4.0]), 2.5)
    array([1.5, 2. ])
    """
    xp, v, t = aligned(v, t)
    size = norm(xp, v)
    scale = xp.where(size <= t, 0.0, (size - t) / nonzero(xp, size))
    return xp.where(t == 0, v, scale * v)


def prox_weighted_l2(v: AnyVector, t: AnyNumber, weights: AnyVector) -> AnyVector:
    """Prox of t |Wx|_2, W = diag(weights) >= 0; where a weight is 0, x = v.

    With d_i = t w_i^2: all weighted x_i are 0 if sum (w_i v_i / d_i)^2 <= 1, else
    x_i = v_i s / (s + d_i) with r(s) = |w v / (s + d)|_2 = 1. 1/r is concave and increasing and
    nearly linear, so Newton from below rises to the root in a few steps.

    Examples
    --------
    >>> import numpy as np
    >>> prox_weighted_l2(np.array([3.0, 4.0, 7.0]), 2.5, np.array([1.0, 1.0, 0.0]))
    array([1.5, 2. , 7. ])
    """
    xp, v, t, w = aligned(v, t, weights)
    b, d = w * v, t * w * w

    def inverse_norm_step(s: AnyArray, b: AnyArray, d: AnyArray) -> AnyArray:
        below = nonzero(xp, s + d)
        q = b / below
        square = nonzero(xp, xp.sum(q * q))
        steep = nonzero(xp, xp.sum(q * q / below))
        # s - (1/r - 1) / (1/r)' with (1/r)' = steep / r^3
        return positive_part(xp, s + (xp.sqrt(square) - 1) * square / steep)

    b_, d_ = detached(xp, b), detached(xp, d)
    # Each single term, and all of them with the largest d, bound s from below.
    s = xp.maximum(xp.max(xp.abs(b_) - d_), norm(xp, b_) - xp.max(d_))
    s = positive_part(xp, s)
    s = iterate(xp, 20, lambda s: inverse_norm_step(s, b_, d_), s)
    s = inverse_norm_step(s, b, d)
    ratio = b_ / nonzero(xp, d_)
    vanishes = xp.sum(ratio * ratio) <= 1
    return xp.where(d == 0, v, xp.where(vanishes, 0.0, v * (s / nonzero(xp, s + d))))


def water_level(
    xp: Namespace, a: AnyVector, t: AnyNumber, total: AnyNumber, among: AnyVector
) -> AnyNumber:
    """The tau with sum of clip(a_i - tau, 0, t) over `among` equal to `total`, by sorting.

    The sum is piecewise linear in tau and changes slope at a_i and a_i - t: walking down from the
    largest of these, it grows by (number of open entries) x (gap), which adds without cancelling.
    """
    a = xp.where(among, a, xp.max(a))  # entries left out must not add far-away breakpoints
    turn = xp.astype(among, a.dtype)
    marks, turns = xp.concat([a, a - t]), xp.concat([turn, -turn])
    order = xp.argsort(-marks)
    marks, turns = xp.take(marks, order), xp.take(turns, order)
    opened = xp.cumulative_sum(turns)
    zero = xp.zeros_like(marks[:1])
    gains = xp.concat([zero, opened[:-1] * (marks[:-1] - marks[1:])])
    reached = xp.cumulative_sum(gains)  # the sum at each of the marks
    passed = xp.sum(xp.astype(reached <= total, order.dtype)) - 1
    high = marks[passed]
    low = marks[xp.where(passed + 1 < marks.shape[0], passed + 1, passed)]
    # Between two marks the sum is linear. How many entries are open there is counted, not found by
    # comparing a - t with a copy of itself, which a compiler may round otherwise.
    count = opened[passed]
    tau = high - xp.where(count == 0, 0.0, (total - reached[passed]) / nonzero(xp, count))
    return xp.minimum(xp.maximum(tau, low), high)


def prox_top_k(v: AnyVector, t: AnyNumber, k: AnyNumber) -> AnyVector:
    """Prox of t (sum of the k largest |x_i|): v minus its projection on |y|_inf <= t, |y|_1 <= k t.

    Examples
    --------
    >>> import numpy as np
    >>> prox_top_k(np.array([3.0, -2.0, 0.5]), 1.0, 1)
    array([ 2. , -2. ,  0.5])
    """
    xp, v, t, k = aligned(v, t, k)
    a = xp.abs(v)
    tau = positive_part(xp, water_level(xp, a, t, k * t, a >= 0))
    return v - sign(xp, v) * xp.clip(a - tau, 0.0, t)


def prox_top_k_l2(v: AnyVector, t: AnyNumber, k: AnyNumber) -> AnyVector:
    """Prox of t (sum of the k largest |x_i| + |the others|_2).

    With the k largest |v_i| as head and the rest as tail, u is the level at which the two meet
    before shrinkage: tail entries are cut at u and then shrunk by kappa(u) = (1 - t/|tail|)_+,
    head entries are lowered by t but not below theta = u kappa(u). What the head is held up must
    equal what the tail is cut: a nondecreasing equation in u, solved by bisection.

    Examples
    --------
    >>> import numpy as np
    >>> prox_top_k_l2(np.array([9.0, 3.0, 4.0]), 2.5, 1)
    array([6.5, 1.5, 2. ])
    """
    xp, v, t, k = aligned(v, t, k)
    a = xp.abs(v)
    head = rank(xp, a) < k

    def at(u: AnyArray, a: AnyArray, t: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Excess of the head over the tail at level u, its slope in u, and kappa(u)."""
        tail = norm(xp, xp.where(head, 0.0, xp.minimum(a, u)))
        safe = nonzero(xp, tail)
        kappa = positive_part(xp, 1 - t / safe)
        held = xp.where(head, positive_part(xp, u * kappa - a + t), 0.0)
        cut = xp.where(head, 0.0, positive_part(xp, a - u))
        cuts = xp.sum(xp.astype(cut > 0, a.dtype))
        rise = xp.where(kappa > 0, kappa + t * u * u * cuts / safe**3, 0.0)
        slope = xp.sum(xp.astype(held > 0, a.dtype)) * rise + cuts
        return xp.sum(held) - xp.sum(cut), slope, kappa

    a_, t_ = detached(xp, a), detached(xp, xp.asarray(t, dtype=a.dtype))
    top = xp.max(xp.where(head, 0.0, a))
    top_ = detached(xp, top)

    def halve(bracket: tuple[AnyArray, AnyArray]) -> tuple[AnyArray, AnyArray]:
        low, high = bracket
        u = 0.5 * (low + high)
        left = at(u, a_, t_)[0] <= 0
        return xp.where(left, u, low), xp.where(left, high, u)

    bits = 56 if xp.finfo(a.dtype).bits == 64 else 28  # one halving per bit, and a few to spare
    _, u = iterate(xp, bits, halve, (xp.zeros_like(top_), top_))
    excess, slope, _ = at(u, a, t)
    u = xp.where(slope > 0, u - excess / nonzero(xp, slope), u)  # carries the derivative
    whole = at(top_, a_, t_)[0] <= 0  # head and tail do not meet: no entry of the tail is cut
    u = xp.where(whole, top, xp.minimum(positive_part(xp, u), top))
    kappa = at(u, a, t)[2]
    theta = u * kappa
    x = xp.where(head, xp.maximum(a - t, theta), xp.minimum(kappa * a, theta))
    return xp.where(t == 0, v, sign(xp, v) * x)
