"""Ready problems to look at, solve and vary. They need scikit-learn for their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mossp import constraints, losses
from mossp.problem import Problem
from mossp.regularizers import L1MinusL2


class Example(NamedTuple):
    """A problem, a start for each seed, and the names of the variables."""

    problem: Problem
    start: Callable[[int], np.ndarray]
    names: tuple[str, ...]


def breast_cancer(lam: float = 0.01) -> Example:
    """Sparse logistic regression with coefficients of length 1, on scikit-learn's tumour data.

    The problem is ::

        min  mean log(1 + exp(-y_i a_i'x)) + lam (||x||_1 - ||x||_2)    s.t.  ||x||^2 = 1

    569 rows of 30 measurements: columns standardised, then rows scaled to unit norm; y = +1 for a
    benign tumour, -1 for a malignant one.

    Parameters
    ----------
    lam : float
        Strength of the regulariser.

    Examples
    --------
    >>> import mossp
    >>> problem, start, names = breast_cancer()
    >>> names[0], start(0).shape
    ('mean radius', (30,))
    >>> mossp.solve(problem, start(0), steps=500).settings["regularizer"]
    'L1MinusL2'
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise ImportError(
            "The breast-cancer example needs scikit-learn: pip install 'mossp[cli]'."
        ) from None
    data = load_breast_cancer()
    columns = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    rows = columns / np.linalg.norm(columns, axis=1, keepdims=True)
    problem = Problem(
        loss=losses.logistic,
        data=(rows, np.where(data.target == 1, 1.0, -1.0)),
        regularizer=L1MinusL2(lam),
        equality=constraints.Sphere(),
    )
    size = rows.shape[1]

    def start(seed: int) -> np.ndarray:
        """A random direction."""
        if seed < 0:
            raise ValueError(f"seed must be at least 0, but {seed} was given.")
        x0 = np.random.default_rng(seed).normal(size=size)
        return x0 / np.linalg.norm(x0)

    return Example(problem, start, tuple(str(name) for name in data.feature_names))
