"""Ready problems to look at, solve and vary. They need scikit-learn for their data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp import constraints, losses
from mossp.expected import Expected, group_weights
from mossp.problem import Problem
from mossp.regularizers import MCP, L1MinusL2, Weighted

SOFTNESS = 0.25  # of the smooth share of rows on the wrong side: sigmoid(-margin / SOFTNESS)


class Example(NamedTuple):
    """A problem, a start for each seed, and the names of the variables."""

    problem: Problem
    start: Callable[[int], np.ndarray]
    names: tuple[str, ...]


class Screened(NamedTuple):
    """What a linear rule for screening does to all tumours at hand."""

    rule: str
    features: int
    missed: int  # malignant tumours that it calls benign
    malignant: int
    alarms: int  # benign ones that it calls malignant
    benign: int


def screening(lam: float = 0.05, missed: float = 0.01) -> Example:
    """A sparse rule that misses few malignant tumours, on scikit-learn's tumour data.

    The problem is ::

        min  mean log(1 + exp(-y_i (a_i'w + b))) + MCP(w)
        s.t. mean of sigmoid(-(a_i'w + b) / 0.25) over the malignant  <=  missed

    569 rows of 30 measurements, columns standardised; y = +1 for a malignant tumour. The constraint
    bounds a smooth version of the share that is missed. x is w and, last, the intercept b.

    Parameters
    ----------
    lam : float
        Strength of the regulariser; the intercept is free.
    missed : float
        The share of malignant tumours that may be missed.

    Examples
    --------
    >>> import mossp
    >>> problem, start, names = screening()
    >>> result = mossp.solve(problem, start(0))
    >>> result.status.name, int((result.x[:-1] != 0).sum())
    ('CONVERGED', 6)
    >>> screened("this rule", result.x)
    Screened(rule='this rule', features=6, missed=1, malignant=212, alarms=20, benign=357)
    """
    rows, y, names = _standardised()
    rows = np.column_stack([rows, np.ones(len(y))])

    def share_missed(x: Any, batch: Any) -> Any:
        A, weights = batch
        share = jnp.mean(weights * jax.nn.sigmoid(-(A @ x) / SOFTNESS))
        return {f"malignant tumours missed <= {missed:g}": share - missed}

    penalised = np.append(np.ones(len(names)), 0.0)
    problem = Problem(
        loss=losses.logistic,
        data=(rows, y),
        regularizer=Weighted(MCP(lam), penalised),
        inequality=Expected(share_missed, data=(rows, group_weights(y > 0))),
    )

    def start(seed: int) -> np.ndarray:
        """Small random coefficients; the first are 0."""
        return 0.1 * _random(seed, rows.shape[1]) if seed else np.zeros(rows.shape[1])

    return Example(problem, start, (*names, "intercept"))


def screened(rule: str, x: np.ndarray) -> Screened:
    """What the rule a'w + b > 0 for "malignant" does, x = (w, b) in units of standardised columns.

    Parameters
    ----------
    rule : str
        Its name.
    x : array
        Coefficients of the 30 measurements, and the intercept.

    Examples
    --------
    >>> import numpy as np
    >>> screened("all are malignant", np.append(np.zeros(30), 1.0)).alarms
    357
    """
    rows, y, _ = _standardised()
    called = rows @ x[:-1] + x[-1] > 0
    malignant = y > 0
    return Screened(
        rule,
        features=int(np.count_nonzero(x[:-1])),
        missed=int((malignant & ~called).sum()),
        malignant=int(malignant.sum()),
        alarms=int((~malignant & called).sum()),
        benign=int((~malignant).sum()),
    )


def screened_without() -> list[Screened]:
    """The same for scikit-learn's logistic regression: its default, and with l1, nearly as sparse.

    Examples
    --------
    >>> [(found.features, found.missed) for found in screened_without()]
    [(30, 5), (7, 16)]
    """
    from sklearn.linear_model import LogisticRegression

    rows, y, _ = _standardised()
    models = {
        "LogisticRegression()": LogisticRegression(),
        "with l1, C = 0.06": LogisticRegression(
            l1_ratio=1.0, solver="liblinear", C=0.06, intercept_scaling=100.0, random_state=0
        ),
    }
    found = []
    for rule, model in models.items():
        model.fit(rows, y)
        found.append(screened(rule, np.append(model.coef_[0], model.intercept_)))
    return found


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
    columns, y, names = _standardised()
    rows = columns / np.linalg.norm(columns, axis=1, keepdims=True)
    problem = Problem(
        loss=losses.logistic,
        data=(rows, -y),
        regularizer=L1MinusL2(lam),
        equality=constraints.Sphere(),
    )

    def start(seed: int) -> np.ndarray:
        """A random direction."""
        x0 = _random(seed, rows.shape[1])
        return x0 / np.linalg.norm(x0)

    return Example(problem, start, names)


def _standardised() -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Columns of mean 0 and variance 1, +1 for malignant and -1 for benign, and their names."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise ImportError(
            "The built-in example needs scikit-learn: pip install 'mossp[cli]'."
        ) from None
    data = load_breast_cancer()
    columns = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    names = tuple(str(name) for name in data.feature_names)
    return columns, np.where(data.target == 0, 1.0, -1.0), names


def _random(seed: int, size: int) -> np.ndarray:
    if seed < 0:
        raise ValueError(f"seed must be at least 0, but {seed} was given.")
    return np.random.default_rng(seed).normal(size=size)
