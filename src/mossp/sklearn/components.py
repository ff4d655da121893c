"""What sparse PCA and sparse CCA share: settings of the run, what is kept of it, moments."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from mossp._base.disk import on_by_default
from mossp._base.surroundings import refuse_traced
from mossp.data import is_sparse
from mossp.problem import Problem
from mossp.result import Result, Status
from mossp.sklearn.formulation import seed_of
from mossp.solving.arguments import whole
from mossp.solving.solve import solve

SMALL = 1000  # columns whose covariances are formed


class Components(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What both have in common: settings, and what is said of an answer."""

    method: Any
    steps: int | None
    batch_size: int | str | None
    tol: float | None
    n_starts: int
    random_state: Any

    def _solve(self, problem: Problem, x0: Any, number: int) -> Result:
        with on_by_default():
            result = solve(
                problem, x0, method=self.method, steps=self.steps, batch_size=self.batch_size,
                tol=self.tol, starts=self.n_starts, seed=seed_of(self.random_state),
            )  # fmt: skip
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if not result.success:
            warnings.warn(f"Component {number}: {result.message}", ConvergenceWarning, stacklevel=4)
        return result

    def _keep(self, results: list[Result]) -> None:
        self.results_ = results
        self.certificates_ = [result.certificate for result in results]
        self.certificate_ = max(self.certificates_, key=lambda c: c.worst_relative)
        self.violation_ = max(result.violation for result in results)
        self.n_iter_ = max(1, *(result.steps for result in results))

    def _count(self, most: int) -> int:
        count = whole("n_components", self.n_components, 1)
        if count > most:
            raise ValueError(f"n_components = {count} is more than the {most} there can be.")
        return count

    def _checked(self, X: Any, reset: bool) -> Any:
        refuse_traced(X)
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=np.float64, accept_large_sparse=False,
            ensure_min_samples=2 if reset else 1,
        )  # fmt: skip

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def moments(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance) of every column, without making a sparse matrix dense."""
    mean = np.asarray(X.mean(axis=0), np.float64).ravel()
    if is_sparse(X):
        squares = np.asarray(X.multiply(X).mean(axis=0)).ravel() - mean**2
        return mean, np.maximum(squares, 0.0)
    return mean, np.asarray(X.var(axis=0), np.float64)


def signed(vectors: np.ndarray) -> np.ndarray:
    """Columns whose entry of largest size is positive: eigenvectors have a sign by chance."""
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
