"""The floor: MoSSP on the sphere-constrained l1 - l2 logistic regression, by hand in Numba."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def logistic_gradient(X, y, rows, x, out):
    """out <- the mini-batch gradient at x."""
    n = x.size
    out[:] = 0.0
    for i in rows:
        margin = 0.0
        for j in range(n):
            margin += X[i, j] * x[j]
        weight = -y[i] / (1.0 + np.exp(y[i] * margin)) / rows.size
        for j in range(n):
            out[j] += weight * X[i, j]


@numba.njit(cache=True)
def mossp(X, y, x0, steps, batch_size, lam, rho, mu, alpha, seed, recursive):
    """MoSSP-P, or MoSSP-R if `recursive`, with constant parameters and beta = 1."""
    np.random.seed(seed)  # noqa: NPY002 (what Numba compiles)
    N, n = X.shape
    x, z, previous = x0.copy(), x0.copy(), x0.copy()
    d, gradient, old = np.zeros(n), np.zeros(n), np.zeros(n)
    rows = np.empty(batch_size, np.int64)
    for k in range(steps):
        for b in range(batch_size):
            rows[b] = np.random.randint(0, N)  # noqa: NPY002
        a = 1.0 if k == 0 else alpha
        logistic_gradient(X, y, rows, x, gradient)
        if recursive:
            logistic_gradient(X, y, rows, previous, old)
            for j in range(n):
                d[j] = gradient[j] + (1 - a) * (d[j] - old[j])
        else:
            for j in range(n):
                d[j] = (1 - a) * d[j] + a * gradient[j]
        square, length = 0.0, 0.0
        for j in range(n):
            square += x[j] * x[j]
            length += z[j] * z[j]
        c, shrink = square - 1.0, max(1.0 - mu * lam / np.sqrt(length), 0.0)
        for j in range(n):
            previous[j] = x[j]
            v = z[j] - mu * (d[j] + rho * 2.0 * x[j] * c)
            new = np.sign(v) * max(abs(v) - mu * lam, 0.0)
            z[j] = z[j] - (shrink * z[j] - new)
            x[j] = new
    return x
