"""Sparse canonical correlations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from mossp._base.module import Module
from mossp._base.surroundings import refuse_traced
from mossp.data import is_sparse
from mossp.losses import Loss
from mossp.problem import Problem
from mossp.regularizers import Blocks
from mossp.sklearn.coefficients import regularizer_of
from mossp.sklearn.components import SMALL, Components, moments, signed


class CrossCovariance(Loss):
    """-u'(a - mean_a) (b - mean_b)'v a row, columns scaled, less what earlier pairs explain."""

    centres: tuple[Any, Any]
    scales: tuple[Any, Any]
    taken: tuple[Any, Any, Any]  # U, V and their covariances d: sum_j d_j (U_j'u) (V_j'v)

    def __call__(self, x: Any, batch: Any) -> jax.Array:
        dtype = x["u"].dtype
        scores = [
            A @ (w / jnp.asarray(scale, dtype)) - jnp.asarray(centre / scale, dtype) @ w
            for A, w, centre, scale in zip(
                batch, (x["u"], x["v"]), self.centres, self.scales, strict=True
            )
        ]
        U, V, d = (jnp.asarray(a, dtype) for a in self.taken)
        return d @ ((U @ x["u"]) * (V @ x["v"])) - jnp.mean(scores[0] * scores[1])


class Spheres(Module):
    """`|u|^2 = 1` and `|v|^2 = 1`."""

    def __call__(self, x: Any) -> dict[str, jax.Array]:
        return {name: part @ part - 1.0 for name, part in x.items()}


class SparseCCA(Components):
    """Sparse canonical loadings of two sets of columns, with a certificate.

    Solves ::

        min  -u'C v + reg_u(u) + reg_v(v)    s.t.  |u|^2 = 1,  |v|^2 = 1,  u, v >= 0 if asked

    with C the correlations (covariances, if `scale` is False) of the columns of X with those of Y:
    penalised matrix decomposition, the canonical correlation for columns that are taken as
    uncorrelated within X and within Y. Further pairs are found on what the ones before have left.

    Parameters
    ----------
    n_components : int
        How many pairs.
    regularizer : str or Regularizer, or a pair of these
        A name or an object; a pair of them for u and v.
    lam : float or a pair of floats, optional
        Its strength.
    nonnegative : bool
        Loadings >= 0.
    scale : bool
        Divide the columns by their standard deviations.
    method, steps, batch_size, tol
        Those of `mossp.solve`.
    n_starts : int
        So many runs from different starts; the best is kept.
    random_state : int or RandomState, optional
        None is 0: the same data give the same answer.

    Attributes
    ----------
    x_weights_, y_weights_ : array of shape (n_features, n_components)
        Loadings of the columns of X and of Y, one pair a column.
    correlations_ : array of shape (n_components,)
        Of the scores of each pair.
    x_mean_, y_mean_, x_scale_, y_scale_ : array
        By which the columns are centred and divided.
    certificates_ : list of Certificate
        One a pair.
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
    >>> t = rng.normal(size=(400, 1))
    >>> X = t @ np.array([[1.0, 1, 0, 0, 0]]) + rng.normal(size=(400, 5))
    >>> Y = t @ np.array([[0, 0, 1.0, 1]]) + rng.normal(size=(400, 4))
    >>> model = SparseCCA(regularizer="capped-l1", lam=0.2, nonnegative=True).fit(X, Y)
    >>> np.flatnonzero(model.x_weights_).tolist(), np.flatnonzero(model.y_weights_).tolist()
    ([0, 1], [2, 3])
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        regularizer: Any = "l1",
        lam: Any = None,
        nonnegative: bool = False,
        scale: bool = True,
        method: Any = "auto",
        steps: int | None = None,
        batch_size: int | str | None = None,
        tol: float | None = None,
        n_starts: int = 1,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.regularizer = regularizer
        self.lam = lam
        self.nonnegative = nonnegative
        self.scale = scale
        self.method = method
        self.steps = steps
        self.batch_size = batch_size
        self.tol = tol
        self.n_starts = n_starts
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> SparseCCA:
        """Fit to rows X and y, of which either may be sparse; one row of each a sample."""
        refuse_traced(X, y)
        X, Y = validate_data(
            self, X, y, validate_separately=(
                {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": 2},
                {"accept_sparse": "csr", "dtype": np.float64, "ensure_2d": False},
            ),
        )  # fmt: skip
        Y = Y.reshape(-1, 1) if Y.ndim == 1 else Y
        check_consistent_length(X, Y)
        (p, q), k = (X.shape[1], Y.shape[1]), self._count(min(X.shape[1], Y.shape[1]))
        (self.x_mean_, x_var), (self.y_mean_, y_var) = moments(X), moments(Y)
        self.x_scale_, self.y_scale_ = self._scaled(x_var), self._scaled(y_var)
        regs = self._regularizers()
        U, V, d = np.zeros((p, k)), np.zeros((q, k)), np.zeros(k)
        C = self._cross(X, Y)
        results = []
        for j in range(k):
            loss = CrossCovariance(
                (self.x_mean_, self.y_mean_), (self.x_scale_, self.y_scale_), (U.T, V.T, d)
            )
            problem = Problem(loss, (X, Y), regs, equality=Spheres())
            results.append(self._solve(problem, self._leading(C, U, V, d), j))
            U[:, j], V[:, j] = results[-1].x["u"], results[-1].x["v"]
            d[j] = U[:, j] @ (C @ V[:, j]) - d @ ((U.T @ U[:, j]) * (V.T @ V[:, j]))
        self._keep(results)
        self.x_weights_, self.y_weights_ = U, V
        S, T = self.transform(X, Y)
        self.correlations_ = np.array(
            [
                np.corrcoef(s, t)[0, 1] if s.std() * t.std() > 0 else 0.0
                for s, t in zip(S.T, T.T, strict=True)
            ]
        )
        return self

    def _scaled(self, variance: np.ndarray) -> np.ndarray:
        return np.sqrt(np.where(variance > 0, variance, 1.0)) if self.scale else 0 * variance + 1

    def _regularizers(self) -> Blocks:
        def pair(name: str) -> Any:
            given = getattr(self, name)
            if not isinstance(given, (tuple, list)):
                return given, given
            if len(given) != 2:
                raise ValueError(
                    f"{name} must be one for both sets of columns or a pair, but {given!r} was "
                    "given."
                )
            return given

        both = zip("uv", pair("regularizer"), pair("lam"), strict=True)
        return Blocks({w: regularizer_of(reg, lam, self.nonnegative) for w, reg, lam in both})

    def _cross(self, X: Any, Y: Any) -> np.ndarray:
        """C, of so many entries as loadings of one set by those of the other."""
        product = X.T @ Y
        product = product.toarray() if is_sparse(product) else np.asarray(product)
        C = product / X.shape[0] - np.outer(self.x_mean_, self.y_mean_)
        return C / np.outer(self.x_scale_, self.y_scale_)

    def _leading(self, C: np.ndarray, U: np.ndarray, V: np.ndarray, d: np.ndarray) -> Any:
        """The ordinary pair of what is left: a start."""
        left = C - (U * d) @ V.T
        if min(C.shape) <= SMALL:
            u, _, v = np.linalg.svd(left, full_matrices=False)
            u, v = u[:, 0], v[0]
        else:
            u, _, v = scipy.sparse.linalg.svds(left, 1, v0=np.ones(min(C.shape)))
            u, v = u[:, 0], v[0]
        sign = np.sign(signed(u[:, None])[:, 0] @ u)
        u, v = sign * u, sign * v
        if self.nonnegative:  # the sign pattern with the larger part of the pair
            u, v = (np.maximum(w, 0) if w.max() >= -w.min() else np.maximum(-w, 0) for w in (u, v))
            u, v = (
                w / np.linalg.norm(w) if w.any() else np.ones_like(w) / np.sqrt(w.size)
                for w in (u, v)
            )
        return {"u": u, "v": v}

    def transform(self, X: Any, y: Any = None) -> Any:
        """The scores of the rows of X; with y, a pair: those of y as well."""
        check_is_fitted(self, "x_weights_")
        X = self._checked(X, reset=False)
        scores = project(X, self.x_mean_, self.x_scale_, self.x_weights_)
        if y is None:
            return scores
        Y = check_array(y, accept_sparse="csr", dtype=np.float64, ensure_2d=False)
        Y = Y.reshape(-1, 1) if Y.ndim == 1 else Y
        return scores, project(Y, self.y_mean_, self.y_scale_, self.y_weights_)

    def score(self, X: Any, y: Any) -> float:
        """The correlation of the scores, averaged over the pairs."""
        S, T = self.transform(X, y)
        return float(np.mean([np.corrcoef(s, t)[0, 1] for s, t in zip(S.T, T.T, strict=True)]))

    @property
    def _n_features_out(self) -> int:
        return self.x_weights_.shape[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


def project(X: Any, mean: np.ndarray, scale: np.ndarray, weights: np.ndarray) -> np.ndarray:
    W = weights / scale[:, None]
    return np.asarray(X @ W) - mean @ W
