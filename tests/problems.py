"""Problems that many tests share, and proximal maps from their definitions.

Nothing here calls mossp's own formulas, so that what is compared is independent. Functions without
arrays are shared on purpose: mossp keeps programs by function, and every file that states its
problem with these compiles it once.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

# Least squares: one shape for nearly all tests of a run, so that programs are shared ------------

N, n, BATCH = 200, 6, 16
rng = np.random.default_rng(0)
TRUTH = np.array([1.0, 0.0, 0.0, 2.0, 0.0, -1.0])
A = rng.normal(size=(N, n))
b = A @ TRUTH + 0.1 * rng.normal(size=N)
START = np.full(n, 0.3)


def squared_rows(x, batch):
    return 0.5 * jnp.mean((batch[0] @ x - batch[1]) ** 2)


def fragile_rows(x, batch):
    """NaN once x_0 is large: some replicas get there, by chance, and some do not."""
    return squared_rows(x, batch) * jnp.where(x[0] > 0.5, jnp.nan, 1.0)


def near_rows(x, rows):
    """Half the mean squared distance to the rows, or to samples."""
    return 0.5 * jnp.mean(jnp.sum((x - rows) ** 2, axis=1))


# Losses without data, and samples --------------------------------------------------


def bowl(x):
    return 0.5 * jnp.sum((x - 1.0) ** 2)


def cosines(key, count, columns=3):
    """Samples that are quicker to compile than those of jax.random."""
    number = jnp.sum(jax.random.key_data(key) % 1000).astype(float)
    return jnp.cos(number + jnp.arange(count * columns).reshape(count, columns) ** 2)


def logistic_gradient(x, X, y):
    """Of the mean of log(1 + exp(-y X x)), in NumPy."""
    return X.T @ (-y / (1 + np.exp(y * (X @ x)))) / len(y)


# Constraints ----------------------------------------------------------------------------------


def sphere(x):
    """The unit sphere as an equality, the unit ball as an inequality."""
    return x @ x - 1.0


def ball(radius, x):
    return x @ x - radius**2


def wide_ball(x):
    """Never active where it is used."""
    return x @ x - 100.0


def plane(x):
    return x.sum() - 3.0


class Halfspaces(eqx.Module):
    """W x <= b: arrays are leaves, so that every b shares one program."""

    W: Any
    b: Any

    def __call__(self, x):
        return self.W @ x - self.b


# Proximal maps: argmin_x phi(x) + |x - v|^2 / (2 mu) ----------------------------------------


def brute_prox(phi, v, mu, width=1e-9):
    """The minimiser and the minimum for one number v and an even convex phi, by search.

    It lies between 0 and v; `width` is how much farther the search goes on either side.
    """
    found = minimize_scalar(
        lambda x: phi(x) + (x - v) ** 2 / (2 * mu),
        bounds=(min(v, 0) - width, max(v, 0) + width), method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    return found.x, found.fun


def shrink(v, t):
    """Of t |x|_1 with mu = 1."""
    return np.sign(v) * np.maximum(np.abs(v) - t, 0)


def shrink_block(v, t):
    """Of t ||x|| with mu = 1."""
    length = np.linalg.norm(v)
    return v * max(0.0, 1 - t / length) if length else v


def huber(a, lam, gamma):
    """The concave part of MCP, at a >= 0."""
    return np.where(a <= gamma * lam, a**2 / (2 * gamma), lam * a - gamma * lam**2 / 2)


def prox_huber(v, mu, lam, gamma):
    return np.where(np.abs(v) <= lam * (gamma + mu), v * gamma / (gamma + mu), shrink(v, mu * lam))


def prox_excess(v, mu, lam, theta):
    """Of lam (|x| - theta)_+, the concave part of the capped l1 norm."""
    far = np.sign(v) * np.maximum(theta, np.abs(v) - mu * lam)
    return np.where(np.abs(v) <= theta, v, far)
