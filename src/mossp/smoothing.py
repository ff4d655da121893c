"""Kinks, and what smooths them: ready parts of a concave part g, with a parameter delta.

    positive_part   max(t, 0)             delta log(1 + exp(t / delta))
    absolute        |t|                   (t^2 + delta^2)^{1/2}
    maximum         max_i t_i             delta log sum_i exp(t_i / delta)
    top_k_sum       the k largest t_i     min_s  k s + sum_i delta log(1 + exp((t_i - s) / delta))

Each is convex, never below what it smooths, and above it by at most delta times log 2, 1, log n and
n log 2. delta = 0 is the kink itself. A function g(x, batch, delta) that is made of them tells
`solve` how to smooth it: `Smoothable(g)`. One without any kink is `Smooth(g)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mossp._base.module import Module
from mossp._base.printing import shown
from mossp._base.types import Array, Batch, PyTree, Scalar
from mossp._base.validation import positive

__all__ = [
    "Smooth",
    "Smoothable",
    "absolute",
    "maximum",
    "positive_part",
    "top_k_sum",
]

# The search for the threshold of a smoothed sum of the k largest: each halves an interval.
HALVINGS = 60


class Smooth(Module):
    """A concave part g without kinks: f - g may then be treated as one loss.

    Parameters
    ----------
    function : callable
        `g(x, batch)`, or `g(x)` in a problem without data.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, mossp
    >>> problem = mossp.Problem(
    ...     lambda x: jnp.sum(x**4), concave=mossp.smoothing.Smooth(lambda x: jnp.sum(x**2))
    ... )
    >>> np.round(np.abs(mossp.solve(problem, np.array([0.3])).x), 8)
    array([0.70710678])
    """

    function: Callable[..., PyTree]

    def __check_init__(self) -> None:
        check_function(self)

    def __call__(self, x: PyTree, *batch: Batch) -> PyTree:
        return self.function(x, *batch)


class Smoothable(Module):
    """A concave part g with kinks that a parameter delta > 0 smooths.

    `solve` with method="auto" then solves the smoothed problem, f - g_delta as one loss, for a
    delta that shrinks, and goes on from its answer with g itself.

    Parameters
    ----------
    function : callable
        `g(x, batch, delta)`, or `g(x, delta)` in a problem without data; delta is 0 or positive.
    first, last : float
        The first and the last delta, in the units of what has the kinks; each is a tenth of the
        one before.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, mossp
    >>> from mossp.smoothing import Smoothable, absolute
    >>> g = Smoothable(lambda x, rows, delta: jnp.mean(jnp.sum(absolute(x - rows, delta), axis=1)))
    >>> problem = mossp.Problem(
    ...     lambda x, rows: x @ x, data=np.array([[1.0], [2.0], [4.0]]), concave=g
    ... )
    >>> result = mossp.solve(problem, np.array([0.1]))
    >>> result.success, result.x.round(8).tolist()
    (True, [-0.5])
    """

    function: Callable[..., PyTree]
    first: float = eqx.field(default=1.0, static=True)
    last: float = eqx.field(default=1e-3, static=True)

    def __check_init__(self) -> None:
        check_function(self)
        if positive("first", self.first) < positive("last", self.last):
            raise ValueError(
                f"Smoothable needs first >= last, but first = {shown(self.first)} and last = "
                f"{shown(self.last)} were given."
            )

    def __call__(self, x: PyTree, *batch: Batch) -> PyTree:
        return self.function(x, *batch, 0.0)

    def deltas(self) -> list[float]:
        """From the first to the last.

        Examples
        --------
        >>> Smoothable(lambda x, delta: 0.0 * x[0], first=1.0, last=0.02).deltas()
        [1.0, 0.1, 0.02]
        """
        count = int(np.ceil(np.log10(self.first / self.last) - 1e-9))
        return [self.first * 0.1**k for k in range(count)] + [self.last]

    def at(self, delta: float) -> Smooth:
        """The smooth function with this delta."""
        width = np.array(delta)  # a number of the function, which needs no program of its own
        return Smooth(lambda x, *batch: self.function(x, *batch, width))


def check_function(given: Any) -> None:
    if not callable(given.function):
        raise TypeError(
            f"{type(given).__name__} needs a function of x and a batch, but "
            f"{shown(given.function)} was given."
        )


def is_sharp(delta: Any) -> bool:
    """Whether delta is the number 0, with which nothing is smoothed."""
    return isinstance(delta, (int, float)) and delta == 0


def positive_part(t: Array, delta: Any = 0.0) -> Array:
    """max(t, 0), or delta log(1 + exp(t / delta)).

    Parameters
    ----------
    t : array
    delta : float
        0 leaves the kink.

    Examples
    --------
    >>> [round(float(positive_part(0.0, delta)), 4) for delta in (0.0, 0.1)]
    [0.0, 0.0693]
    """
    return jnp.maximum(t, 0.0) if is_sharp(delta) else delta * jax.nn.softplus(t / delta)


def absolute(t: Array, delta: Any = 0.0) -> Array:
    """The absolute value of t, or (t^2 + delta^2)^{1/2}.

    Examples
    --------
    >>> float(absolute(-3.0)), float(absolute(3.0, 4.0))
    (3.0, 5.0)
    """
    return jnp.abs(t) if is_sharp(delta) else jnp.sqrt(jnp.square(t) + delta**2)


def maximum(t: Array, delta: Any = 0.0, axis: int = -1) -> Array:
    """The largest along an axis, or delta log sum_i exp(t_i / delta).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> round(float(maximum(jnp.array([1.0, 2.0]), 0.1)), 4)
    2.0
    """
    if is_sharp(delta):
        return jnp.max(t, axis=axis)
    return delta * jax.scipy.special.logsumexp(t / delta, axis=axis)


def top_k_sum(t: Array, k: float, delta: Any = 0.0) -> Scalar:
    """The sum of the k largest entries of a vector, or its smoothed form.

    Parameters
    ----------
    t : array of shape (n,)
    k : float
        0 < k < n; of a fraction, that part of the next largest entry counts.
    delta : float

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> t = jnp.array([3.0, 1.0, 2.0])
    >>> float(top_k_sum(t, 2)), float(top_k_sum(t, 1.5)), round(float(top_k_sum(t, 2, 0.01)), 3)
    (5.0, 4.0, 5.0)
    """
    if not 0 < k < t.shape[0]:
        raise ValueError(
            f"top_k_sum needs 0 < k < n, but k = {shown(k)} and n = {t.shape[0]} were given."
        )
    whole = int(k)
    if is_sharp(delta):
        largest = lax.top_k(t, whole + 1)[0]
        return jnp.sum(largest[:whole]) + (k - whole) * largest[whole]
    s = threshold(t, k, delta)
    return k * s + jnp.sum(delta * jax.nn.softplus((t - s) / delta))


def threshold(t: Array, k: float, delta: Any) -> Scalar:
    """The s with sum_i sigmoid((t_i - s) / delta) = k, differentiable in t.

    It is found by halving an interval; one Newton step from there changes nothing but has the
    derivative of s.
    """
    fixed = lax.stop_gradient(t)
    # At the ends of this interval every term is below, or above, k / n.
    n = t.shape[0]
    wide = delta * abs(np.log(k / (n - k)))

    def halve(_: int, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = (low + high) / 2
        more = jnp.sum(jax.nn.sigmoid((fixed - middle) / delta)) > k
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    low, high = lax.fori_loop(0, HALVINGS, halve, (jnp.min(fixed) - wide, jnp.max(fixed) + wide))
    s = (low + high) / 2
    each = jax.nn.sigmoid((fixed - s) / delta)
    slope = jnp.maximum(jnp.sum(each * (1 - each)) / delta, jnp.finfo(t.dtype).tiny)
    return s + (jnp.sum(jax.nn.sigmoid((t - s) / delta)) - k) / slope
