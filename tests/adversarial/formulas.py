"""Losses and constraints twice: in JAX for mossp, and in NumPy with derivatives by hand.

Coefficients are leaves of the pytree, so that all problems of a family share one program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from tests.adversarial.kkt import Smooth
from tests.adversarial.penalties import Long, Vector, length, long


class Formula(eqx.Module):
    """A function of x in JAX (`__call__`) and in NumPy (`by_hand`); a constraint has `rows`."""

    @property
    def rows(self) -> int:
        return 1

    def by_hand(self, x: Vector) -> Smooth:
        raise NotImplementedError


def total(*parts: Vector) -> Any:
    """The size of the terms of a sum."""
    return sum((length(part) for part in parts), Long(0))


# Losses without data ----------------------------------------------------------------------------


class Quadratic(Formula):
    """scale (x'Qx / 2 + b'x)."""

    Q: Any
    b: Any
    scale: Any = 1.0

    def __call__(self, x):
        return self.scale * (0.5 * x @ (self.Q @ x) + self.b @ x)

    def by_hand(self, x):
        Q, b, s = long(self.Q), long(self.b), Long(self.scale)
        size = s * (np.abs(x) @ np.abs(Q) @ np.abs(x) + np.abs(b) @ np.abs(x))
        slope = s * (Q @ x + b)
        return Smooth(
            s * (x @ Q @ x / 2 + b @ x), slope, size + s * total(np.abs(Q) @ np.abs(x), b)
        )


class Polynomial(Formula):
    """scale sum_i (a_i x_i^4 + b_i x_i^3 + d_i x_i)."""

    a: Any
    b: Any
    d: Any
    scale: Any = 1.0

    def __call__(self, x):
        return self.scale * jnp.sum(self.a * x**4 + self.b * x**3 + self.d * x)

    def by_hand(self, x):
        a, b, d, s = long(self.a), long(self.b), long(self.d), Long(self.scale)
        size = total(a * x**4, b * x**3, d * x, 4 * a * x**3, 3 * b * x**2, d)
        value = (a * x**4 + b * x**3 + d * x).sum()
        return Smooth(s * value, s * (4 * a * x**3 + 3 * b * x**2 + d), s * size * 3)


class Product(Formula):
    """-x_1 x_2 ... x_n."""

    scale: Any = 1.0

    def __call__(self, x):
        return -self.scale * jnp.prod(x)

    def by_hand(self, x):
        s = Long(self.scale)
        others = long([np.prod(np.delete(x, i)) for i in range(len(x))])
        return Smooth(-s * np.prod(x), -s * others, s * (abs(np.prod(x)) + length(others)) * 4)


class Exponentials(Formula):
    """sum_j exp(a_j'x) + b'x."""

    A: Any
    b: Any
    scale: Any = 1.0

    def __call__(self, x):
        return self.scale * (jnp.sum(jnp.exp(self.A @ x)) + self.b @ x)

    def by_hand(self, x):
        A, b, s = long(self.A), long(self.b), Long(self.scale)
        e = np.exp(A @ x)
        # The error of exp(t) is |t| times that of t.
        weight = e * (1 + np.abs(A) @ np.abs(x))
        size = weight.sum() + np.abs(b) @ np.abs(x) + total(np.abs(A).T @ weight, b)
        return Smooth(s * (e.sum() + b @ x), s * (A.T @ e + b), s * size)


class Logarithms(Formula):
    """-sum_i w_i log(x_i + d_i) + b'x: finite where x > -d."""

    w: Any
    d: Any
    b: Any

    def __call__(self, x):
        return jnp.sum(-self.w * jnp.log(x + self.d)) + self.b @ x

    def by_hand(self, x):
        w, d, b = long(self.w), long(self.d), long(self.b)
        with np.errstate(all="ignore"):
            value = (-w * np.log(x + d)).sum() + b @ x
            slope = -w / (x + d) + b
            near = (np.abs(x) + np.abs(d)) / np.abs(x + d)  # cancellation in x + d
            size = total(w * (1 + np.abs(np.log(np.abs(x + d))) + near), b * x, b)
            size += total(w / (x + d) * near)
        if not (x + d > 0).all():
            value = Long(np.nan)
        return Smooth(value, slope, size)


class Ratio(Formula):
    """(a'x + p) / (1 + x'x) + c/2 x'x."""

    a: Any
    p: Any
    c: Any

    def __call__(self, x):
        return (self.a @ x + self.p) / (1 + x @ x) + 0.5 * self.c * (x @ x)

    def by_hand(self, x):
        a, p, c = long(self.a), Long(self.p), Long(self.c)
        top, bottom = a @ x + p, 1 + x @ x
        slope = a / bottom - 2 * top * x / bottom**2 + c * x
        size = np.abs(a) @ np.abs(x) + abs(p) + c * (x @ x) + total(a, 2 * top * x, c * x)
        return Smooth(top / bottom + c / 2 * (x @ x), slope, size)


class Valley(Formula):
    """Rosenbrock's: sum_i k (x_{i+1} - x_i^2)^2 + (t_i - x_i)^2."""

    k: Any
    t: Any

    def __call__(self, x):
        return jnp.sum(self.k * (x[1:] - x[:-1] ** 2) ** 2 + (self.t - x[:-1]) ** 2)

    def by_hand(self, x):
        k, t = long(self.k), long(self.t)
        bend, off = x[1:] - x[:-1] ** 2, t - x[:-1]
        slope = 0 * x
        slope[1:] += 2 * k * bend
        slope[:-1] += -4 * k * bend * x[:-1] - 2 * off
        parts = np.abs(x[1:]) + x[:-1] ** 2
        size = (k * parts**2).sum() + (off**2).sum()
        return Smooth(
            (k * bend**2 + off**2).sum(), slope, size + total(6 * k * parts * (1 + np.abs(x[:-1])))
        )


class Slope(Formula):
    """b'x + log(1 + exp(a'x)): no critical point where b is not a multiple of a."""

    b: Any
    a: Any

    def __call__(self, x):
        return self.b @ x + jnp.logaddexp(0.0, self.a @ x)

    def by_hand(self, x):
        a, b = long(self.a), long(self.b)
        t = a @ x
        s = 1 / (1 + np.exp(-t))
        return Smooth(b @ x + np.logaddexp(0, t), b + s * a, total(b * x, a * x, a, b))


class Decay(Formula):
    """sum_i w_i exp(-x_i): falls for ever, and its slope with it."""

    w: Any

    def __call__(self, x):
        return jnp.sum(self.w * jnp.exp(-x))

    def by_hand(self, x):
        e = long(self.w) * np.exp(-x)
        return Smooth(e.sum(), -e, total(e * (1 + np.abs(x))) * 2)


class Broken(Formula):
    """(x - t)'(x - t) / 2, but NaN where x_1 > edge; the minimum t lies beyond the edge."""

    t: Any
    edge: Any

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.t) ** 2) * jnp.where(x[0] > self.edge, jnp.nan, 1.0)

    def by_hand(self, x):
        d = x - long(self.t)
        bad = Long(np.nan if x[0] > self.edge else 1)
        return Smooth(d @ d / 2 * bad, d * bad, d @ d + total(x, self.t))


# Losses on rows (A, b), by hand; mossp has them ready -------------------------------------------


def dense(A: Any) -> Vector:
    return long(A.toarray() if scipy.sparse.issparse(A) else A)


def of_rows(kind: str, A: Any, b: Any, scale: float = 1.0) -> Callable[[Vector], Smooth]:
    """The mean over rows of the logistic, squared or Huber (delta = 1) loss."""
    A, b = dense(A), long(b)

    def by_hand(x: Vector) -> Smooth:
        p = A @ x
        if kind == "logistic":
            value, slope = np.logaddexp(0, -b * p), -b / (1 + np.exp(b * p))
        elif kind == "squared":
            value, slope = (p - b) ** 2 / 2, p - b
        else:
            t = np.clip(p - b, -1, 1)
            value, slope = t * (p - b - t / 2), t
        s, N = Long(scale), len(b)
        spread = np.abs(A) @ np.abs(x) + np.abs(b)
        size = value.mean() + total(np.abs(A).T @ (np.abs(slope) + spread)) / N
        return Smooth(s * value.mean(), s * (A.T @ slope) / N, s * size)

    return by_hand


class ScaledSquares(Formula):
    """scale times the mean of (a'x - b)^2 / 2, for x of any scale; takes a batch."""

    scale: Any

    def __call__(self, x, batch):
        A, b = batch
        return self.scale * jnp.mean(0.5 * (A @ x - b) ** 2)


class TreeSquares(Formula):
    """x = {"b": (2,), "w": (3, 2)}: the mean of |a'w + b - y|^2 / 2 over rows of two targets."""

    def __call__(self, x, batch):
        A, Y = batch
        return 0.5 * jnp.mean(jnp.sum((A @ x["w"] + x["b"] - Y) ** 2, axis=1))


def tree_squares(A: Any, Y: Any) -> Callable[[Vector], Smooth]:
    A, Y = long(A), long(Y)

    def by_hand(x: Vector) -> Smooth:
        b, w = x[:2], x[2:].reshape(3, 2)
        R = A @ w + b - Y
        slope = np.concatenate([R.sum(axis=0), (A.T @ R).ravel()]) / len(A)
        spread = np.abs(A) @ np.abs(w) + np.abs(b) + np.abs(Y)
        size = (R**2).sum() + total(np.abs(A).T @ spread, spread)
        return Smooth((R**2).sum() / (2 * len(A)), slope, size / len(A))

    return by_hand


# Constraints ------------------------------------------------------------------------------------


class Planes(Formula):
    """scale (A x - b)."""

    A: Any
    b: Any
    scale: Any = 1.0

    @property
    def rows(self):
        return len(self.b)

    def __call__(self, x):
        return self.scale * (self.A @ x - self.b)

    def by_hand(self, x):
        A, b, s = long(self.A), long(self.b), Long(self.scale)
        return Smooth(s * (A @ x - b), s * A, s * total(np.abs(A) @ np.abs(x), b))


class Ellipsoid(Formula):
    """scale (x'diag(D)x - r)."""

    D: Any
    r: Any
    scale: Any = 1.0

    def __call__(self, x):
        return self.scale * (jnp.sum(self.D * x * x) - self.r)

    def by_hand(self, x):
        D, s = long(self.D), Long(self.scale)
        size = s * (np.abs(D * x * x).sum() + abs(Long(self.r)))
        value = s * ((D * x * x).sum() - Long(self.r))
        return Smooth(long([value]), s * (2 * D * x)[None], size)


class ExpBound(Formula):
    """sum_i exp(x_i) / n - r."""

    r: Any

    def __call__(self, x):
        return jnp.mean(jnp.exp(x)) - self.r

    def by_hand(self, x):
        e = np.exp(x) / len(x)
        size = (e * (1 + np.abs(x))).sum() + abs(Long(self.r))
        return Smooth(long([e.sum() - Long(self.r)]), e[None], size)


class Squared(Formula):
    """(a'x - b)^2, which is 0 with a gradient of 0: no constraint qualification holds."""

    a: Any
    b: Any

    def __call__(self, x):
        return (self.a @ x - self.b) ** 2

    def by_hand(self, x):
        a = long(self.a)
        d = a @ x - Long(self.b)
        size = np.abs(a) @ np.abs(x) + abs(Long(self.b))
        return Smooth(long([d * d]), (2 * d * a)[None], size * size + total(a) * size)


class TreeNorm(Formula):
    """|w|^2 + |b|^2 - r for the pytree of `TreeSquares`."""

    r: Any

    def __call__(self, x):
        return {"norm": jnp.sum(x["w"] ** 2) + jnp.sum(x["b"] ** 2) - self.r}

    def by_hand(self, x):
        return Smooth(long([x @ x - Long(self.r)]), 2 * x[None], x @ x + abs(Long(self.r)))


class Both(Formula):
    """Several constraints as one vector."""

    parts: tuple[Formula, ...]

    @property
    def rows(self):
        return sum(part.rows for part in self.parts)

    def __call__(self, x):
        return jnp.concatenate([jnp.atleast_1d(part(x)) for part in self.parts])

    def by_hand(self, x):
        return stacked(*(part.by_hand(x) for part in self.parts))


def stacked(*parts: Smooth) -> Smooth:
    return Smooth(
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.slope for part in parts]),
        sum((part.magnitude for part in parts), Long(0)),
    )
