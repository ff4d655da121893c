"""Sparse principal components."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg
from sklearn.utils.validation import check_array, check_is_fitted

from mossp.constraints import Orthogonal, Sphere
from mossp.losses import Loss
from mossp.problem import Problem
from mossp.sklearn.coefficients import regularizer_of
from mossp.sklearn.components import SMALL, Components, moments, signed


class Variance(Loss):
    """`-|V'(a - mean)|^2 / 2` a row: minus half the variance along the columns of V.

    What lies along the columns of `taken`, orthonormal or 0, does not count any more.
    """

    mean: Any
    taken: Any

    def __call__(self, x: Any, batch: Any) -> jax.Array:
        mean, Q = (jnp.asarray(a, x.dtype) for a in (self.mean, self.taken))
        x = x - Q @ (Q.T @ x)
        scores = batch[0] @ x - mean @ x
        return -0.5 * jnp.mean(jnp.sum(scores**2, axis=tuple(range(1, scores.ndim))))


class SparsePCA(Components):
    """Principal components with sparse loadings of length 1, with a certificate.

    Solves ::

        min  -(1/2N) sum_i |V'(a_i - mean)|^2 + reg(V)    s.t.  the columns of V have length 1

    from the ordinary principal components.

    Parameters
    ----------
    n_components : int
        How many.
    orthogonal : bool
        True: all at once, with orthonormal loadings, `V'V = I`. False: one after the other on the
        sphere, each on what the ones before have left (their scores are projected out of the data);
        loadings may then overlap.
    regularizer : str or Regularizer
        A name or an object: "l1", "l1-l2", "mcp", ...
    lam : float, optional
        Its strength.
    nonnegative : bool
        Loadings >= 0.
    method, steps, batch_size, tol
        Those of `mossp.solve`.
    n_starts : int
        So many runs from different starts; the best is kept.
    random_state : int or RandomState, optional
        None is 0: the same data give the same answer.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        Loadings, one component a row.
    explained_variance_ : array of shape (n_components,)
        What each component's scores add to the ones before.
    explained_variance_ratio_ : array of shape (n_components,)
        The same, as a part of the total variance.
    mean_ : array of shape (n_features,)
        Of the columns of X.
    certificates_ : list of Certificate
        One a solve: one for all components if `orthogonal`, else one a component.
    certificate_ : Certificate
        The worst of them.
    violation_ : float
        The largest violation of the constraints.
    n_iter_ : int
        Steps of the longest run.
    results_ : list of Result
        The whole answers of `mossp.solve`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1)) @ np.array([[2.0, 2, 1, 0, 0, 0]]) + rng.normal(size=(500, 6))
    >>> model = SparsePCA(lam=0.5).fit(X)
    >>> np.flatnonzero(model.components_[0]).tolist(), bool(model.certificate_.is_kkt(1e-10))
    ([0, 1, 2], True)
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        orthogonal: bool = True,
        regularizer: Any = "l1",
        lam: float | None = None,
        nonnegative: bool = False,
        method: Any = "auto",
        steps: int | None = None,
        batch_size: int | str | None = None,
        tol: float | None = None,
        n_starts: int = 1,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.orthogonal = orthogonal
        self.regularizer = regularizer
        self.lam = lam
        self.nonnegative = nonnegative
        self.method = method
        self.steps = steps
        self.batch_size = batch_size
        self.tol = tol
        self.n_starts = n_starts
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> SparsePCA:
        """Fit to rows X, which may be sparse and stay so."""
        X = self._checked(X, reset=True)
        n, k = X.shape[1], self._count(min(X.shape))
        self.mean_ = np.asarray(X.mean(axis=0), np.float64).ravel()
        reg = regularizer_of(self.regularizer, self.lam, self.nonnegative)
        if self.orthogonal:
            nothing = np.zeros((n, 0))
            start = self._leading(X, nothing, k)
            problem = Problem(Variance(self.mean_, nothing), (X,), reg, equality=Orthogonal())
            results = [self._solve(problem, start, 0)]
            V = results[0].x
        else:
            V, results = np.zeros((n, k)), []
            for j in range(k):
                taken = np.zeros((n, k - 1))  # of one shape for all, so that they share a program
                taken[:, :j] = np.linalg.qr(V[:, :j])[0]
                start = self._leading(X, taken, 1)[:, 0]
                problem = Problem(Variance(self.mean_, taken), (X,), reg, equality=Sphere())
                results.append(self._solve(problem, start, j))
                V[:, j] = results[-1].x
        self._keep(results)
        self.components_ = V.T
        T = np.asarray(X @ V) - self.mean_ @ V
        # Scores may be correlated: what each adds to the ones before is what it explains.
        self.explained_variance_ = np.diag(np.linalg.qr(T)[1]) ** 2 / (len(T) - 1)
        total = float(np.sum(moments(X)[1])) * len(T) / (len(T) - 1)
        self.explained_variance_ratio_ = self.explained_variance_ / (total or 1.0)
        return self

    def _leading(self, X: Any, taken: np.ndarray, k: int) -> np.ndarray:
        """The ordinary loadings of what is left: a start."""
        N, n = X.shape
        m, Q = self.mean_, taken

        def left(v: np.ndarray) -> np.ndarray:
            v = v - Q @ (Q.T @ v)
            s = np.asarray(X @ v) - m @ v
            r = (np.asarray(X.T @ s) - np.multiply.outer(m, s.sum(axis=0))) / N
            return r - Q @ (Q.T @ r)

        if n <= SMALL or k >= n - 1:
            vectors = np.linalg.eigh(left(np.eye(n)))[1][:, ::-1][:, :k]
        else:
            operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=left, dtype=float)
            first = np.cos(np.arange(n) ** 2.0)
            vectors = scipy.sparse.linalg.eigsh(operator, k, v0=first)[1][:, ::-1]
        vectors = signed(vectors)
        return np.abs(vectors) if self.nonnegative else vectors

    def transform(self, X: Any) -> np.ndarray:
        """The scores of every row, `(x - mean) V`."""
        check_is_fitted(self, "components_")
        X = self._checked(X, reset=False)
        return np.asarray(X @ self.components_.T) - self.mean_ @ self.components_.T

    def inverse_transform(self, X: Any) -> np.ndarray:
        """The rows that fit scores best, by least squares where loadings are not orthogonal."""
        check_is_fitted(self, "components_")
        scores = check_array(X, dtype=np.float64)
        return scores @ np.linalg.pinv(self.components_.T) + self.mean_

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
