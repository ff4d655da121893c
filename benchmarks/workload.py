"""The data that the benchmarks share: a9a where it is, else rows of the same shape."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import mossp


def unit_rows(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def dataset(name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """(unit rows, labels -1/+1) of a LIBSVM file in the folder MOSSP_DATA; None if absent."""
    from sklearn.datasets import load_svmlight_file

    path = Path(os.environ.get("MOSSP_DATA", ".")) / name
    if not path.is_file():
        return None
    X, y = load_svmlight_file(str(path))
    return unit_rows(X.toarray()), np.where(y > 0, 1.0, -1.0)


def a9a_or_like() -> tuple[np.ndarray, np.ndarray, str]:
    found = dataset("a9a")
    if found is not None:
        return *found, "a9a"
    rng = np.random.default_rng(0)
    N, n = 32_561, 123
    X = unit_rows((rng.random((N, n)) < 14 / n) + 1e-3)
    y = np.where(X @ rng.normal(size=n) + 0.1 * rng.normal(size=N) > 0, 1.0, -1.0)
    return X, y, "generated rows of a9a's shape"


def unit_start(n: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=n)
    return x / np.linalg.norm(x)


def random_quadratics(n: int, M: int = 20, seed: int = 0) -> mossp.constraints.DiagonalQuadratics:
    """The equalities of the paper's Appendix D.3: x' diag(Q_j) x / 2 + a_j'x = b_j, feasible."""
    rng = np.random.default_rng(seed)
    Q, a = rng.uniform(0.5, 1, (M, n)) / n, rng.normal(size=(M, n)) / np.sqrt(n)
    feasible = rng.normal(size=n)
    feasible /= np.linalg.norm(feasible)
    return mossp.constraints.DiagonalQuadratics(
        Q, a, 0.5 * Q @ (feasible * feasible) + a @ feasible
    )
