"""The data: a9a where it is, and generated sets with fixed seeds. Labels are -1 and +1."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse


class Shape(NamedTuple):
    """A generated set: rows, columns, the share of entries that are not zero.

    Columns are filled alike, or a few of them much more than the others.
    """

    rows: int
    columns: int
    filled: float = 1.0
    alike: bool = True


SHAPES = {
    "sparse": Shape(50_000, 300, 0.04),
    "wide": Shape(20_000, 100_000, 0.001),
    "text": Shape(20_000, 100_000, 0.001, alike=False),
    "dense": Shape(2_000, 500),
    "dense-wide": Shape(500, 5_000),
}
QUICK_SHAPES = {
    "sparse": Shape(3_000, 60, 0.04),
    "wide": Shape(500, 2_000, 0.01),
    "text": Shape(500, 2_000, 0.01, alike=False),
    "dense": Shape(300, 50),
    "dense-wide": Shape(60, 300),
}
NAMES = ("a9a", *SHAPES)
QUICK_ROWS = 1_000  # of a9a
TRUE_FEATURES = 10
NOISE = 1.0  # standard deviation of what is added to the margin before its sign is taken


@functools.cache
def load(name: str, quick: bool = False) -> tuple[Any, np.ndarray] | None:
    """(X, y), X in CSR or a dense array; None where a9a is not to be found."""
    if name == "a9a":
        return a9a(quick)
    return generated((QUICK_SHAPES if quick else SHAPES)[name])


def a9a(quick: bool) -> tuple[Any, np.ndarray] | None:
    from sklearn.datasets import load_svmlight_file

    repository = Path(__file__).resolve().parents[2]
    for folder in (os.environ.get("MOSSP_DATA"), repository.parent / "shared" / "data"):
        if folder and (Path(folder) / "a9a").is_file():
            X, y = load_svmlight_file(str(Path(folder) / "a9a"), n_features=123)
            rows = slice(QUICK_ROWS if quick else None)
            return scipy.sparse.csr_matrix(X)[rows], np.where(y > 0, 1.0, -1.0)[rows]
    return None


def generated(shape: Shape, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Normal entries, ten true features of coefficients 1 to 2 in size, and noise.

    Columns of sparse sets that are filled alike are scaled to unit variance, as the dense ones;
    where they are not, the true features are among the hundred fullest.
    """
    rng = np.random.default_rng(seed)
    X = (dense if shape.filled == 1 else filled_alike if shape.alike else like_text)(shape, rng)
    truth = np.zeros(shape.columns)
    among = shape.columns if shape.alike else 100
    chosen = rng.choice(among, TRUE_FEATURES, replace=False)
    truth[chosen] = rng.choice([-1.0, 1.0], TRUE_FEATURES) * rng.uniform(1, 2, TRUE_FEATURES)
    y = np.where(X @ truth + NOISE * rng.standard_normal(shape.rows) > 0, 1.0, -1.0)
    return X, y


def dense(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((shape.rows, shape.columns))


def filled_alike(shape: Shape, rng: np.random.Generator) -> scipy.sparse.csr_matrix:
    X = scipy.sparse.random_array(
        (shape.rows, shape.columns), density=shape.filled, format="csr", rng=rng,
        data_sampler=lambda size: rng.standard_normal(size),
    )  # fmt: skip
    return scipy.sparse.csr_matrix(X / np.sqrt(shape.filled))


def like_text(shape: Shape, rng: np.random.Generator) -> scipy.sparse.csr_matrix:
    """As words in texts: column j is drawn in proportion to 1 / (j + 10)."""
    count = int(shape.filled * shape.rows * shape.columns)
    ends = np.cumsum(1 / (np.arange(shape.columns) + 10.0))
    columns = np.searchsorted(ends, rng.random(count) * ends[-1])
    places = rng.integers(shape.rows, size=count), columns
    X = scipy.sparse.csr_matrix(
        (rng.standard_normal(count), places), (shape.rows, shape.columns)
    )  # fmt: skip
    X.sum_duplicates()
    return X


def largest_strength(X: Any, y: np.ndarray) -> float:
    """lam_max: the least strength at which l1 makes all coefficients zero, without an intercept.

    The gradient of mean log(1 + exp(-y a'w)) at w = 0 is -A'y / (2 N).
    """
    return float(np.abs(X.T @ y).max() / (2 * len(y)))
