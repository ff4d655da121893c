"""SparsePCA and SparseCCA against independent answers."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.base import clone
from sklearn.decomposition import PCA

from mossp.sklearn import SparseCCA, SparsePCA
from tests.sklearn.rows import MIXED, TARGET, N, S, X

pytestmark = pytest.mark.slow


def assert_best(value, v, count=20_000):
    """No point nearby, and none of the sphere's, is better; v and the draws have length 1."""
    draw = np.random.default_rng(0).normal(size=(count, len(v)))
    draw[: count // 2] = v + draw[: count // 2] * np.geomspace(1e-4, 1, count // 2)[:, None]
    assert value(v) <= value(draw / np.linalg.norm(draw, axis=1, keepdims=True)).min() + 1e-9


def test_nonnegative_component_of_sparse_rows_is_the_best_one():
    """By a grid on the sphere, in three features."""
    A = np.where(np.abs(MIXED[:, :3]) < 0.3, 0, MIXED[:, :3])
    C, lam = np.cov(A.T, bias=True), 0.5
    model = SparsePCA(lam=lam, nonnegative=True).fit(scipy.sparse.csr_array(A))
    t = np.linspace(0, np.pi / 2, 721)
    a, b = np.meshgrid(t, t)
    grid = np.stack([np.sin(a) * np.cos(b), np.sin(a) * np.sin(b), np.cos(a)], -1)
    value = lambda v: -0.5 * np.einsum("...i,ij,...j", v, C, v) + lam * v.sum(-1)  # noqa: E731
    v = model.components_[0]
    assert value(v) <= value(grid).min() + 1e-9 and (v >= 0).all()
    assert abs(v @ v - 1) < 1e-10 and model.certificate_.is_kkt(1e-10)
    np.testing.assert_allclose(model.transform(scipy.sparse.csr_array(A)), model.transform(A))
    total = np.trace(C) * N / (N - 1)
    np.testing.assert_allclose(model.explained_variance_ratio_, np.var(A @ v, ddof=1) / total)


def test_components_without_a_penalty_are_pca():
    model, theirs = SparsePCA(2, lam=0.0).fit(MIXED), PCA(2).fit(MIXED)
    agreement = np.abs(model.components_ @ theirs.components_.T)
    np.testing.assert_allclose(agreement, np.eye(2), atol=1e-6)
    for name in ("explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(model, name), getattr(theirs, name), rtol=1e-8)
    ours, others = model.transform(MIXED), theirs.transform(MIXED)
    np.testing.assert_allclose(np.abs(ours), np.abs(others), atol=1e-5)
    back = model.inverse_transform(ours)
    np.testing.assert_allclose(back, theirs.inverse_transform(others), atol=1e-5)


def test_orthogonal_components():
    model = SparsePCA(2, lam=0.4).fit(MIXED)
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(2), atol=1e-10)
    assert model.certificate_.is_kkt(1e-10) and (V == 0).any()
    frame = clone(model).set_output(transform="pandas").fit_transform(MIXED)
    assert frame.columns.tolist() == ["sparsepca0", "sparsepca1"]
    np.testing.assert_allclose(frame, model.transform(MIXED))
    assert model.explained_variance_.sum() < PCA(2).fit(MIXED).explained_variance_.sum()


def test_components_one_after_the_other():
    model = SparsePCA(2, lam=0.0, orthogonal=False).fit(MIXED)
    theirs = PCA(2).fit(MIXED)
    agreement = np.abs(model.components_ @ theirs.components_.T)
    np.testing.assert_allclose(agreement, np.eye(2), atol=1e-6)
    model = SparsePCA(2, lam=0.4, orthogonal=False).fit(MIXED)
    np.testing.assert_allclose(np.sum(model.components_**2, axis=1), 1, atol=1e-10)
    assert len(model.certificates_) == 2 and model.certificate_.is_kkt(1e-10)
    C = np.cov(MIXED.T, bias=True)
    value = lambda v: -0.5 * np.einsum("...i,ij,...j", v, C, v) + 0.4 * np.abs(v).sum(-1)  # noqa: E731
    assert_best(value, model.components_[0])
    scores = model.transform(MIXED)
    np.testing.assert_allclose(model.transform(model.inverse_transform(scores)), scores, atol=1e-9)


COMMON = np.random.default_rng(2).normal(size=(N, 2))
LEFT = np.random.default_rng(3).normal(size=(N, 5))
LEFT[:, :2] += 2 * COMMON[:, :1]
LEFT[:, 4] += COMMON[:, 1]
RIGHT = np.random.default_rng(4).normal(size=(N, 4))
RIGHT[:, 1] += 2 * COMMON[:, 0]
RIGHT[:, 2:] += COMMON[:, 1:]


def correlations(A, B):
    return np.corrcoef(A.T, B.T)[: A.shape[1], A.shape[1] :]


def test_pairs_have_the_known_support():
    """And the first one cannot be improved, near or far."""
    model = SparseCCA(2, regularizer=("l1", "l1-l2"), lam=(0.2, 0.3)).fit(LEFT, RIGHT)
    assert [np.flatnonzero(u).tolist() for u in model.x_weights_.T] == [[0, 1], [4]]
    assert [np.flatnonzero(v).tolist() for v in model.y_weights_.T] == [[1], [2, 3]]
    assert model.certificate_.is_kkt(1e-10) and model.violation_ < 1e-10
    S, T = model.transform(LEFT, RIGHT)
    np.testing.assert_allclose(np.diag(correlations(S, T)), model.correlations_)
    assert abs(model.score(LEFT, RIGHT) - model.correlations_.mean()) < 1e-12
    frame = model.set_output(transform="pandas").transform(LEFT)
    assert frame.columns.tolist() == ["sparsecca0", "sparsecca1"]
    C = correlations(LEFT, RIGHT)

    def value(w):
        u, v = (
            part / np.linalg.norm(part, axis=-1, keepdims=True) for part in np.split(w, [5], -1)
        )
        penalty = 0.2 * np.abs(u).sum(-1) + 0.3 * (np.abs(v).sum(-1) - 1)
        return penalty - np.einsum("...i,ij,...j", u, C, v)

    assert_best(value, np.concatenate([model.x_weights_[:, 0], model.y_weights_[:, 0]]))


def test_nonnegative_pair_of_one_column():
    model = SparseCCA(lam=(0.1, 0.0), nonnegative=True).fit(S, TARGET)
    assert model.y_weights_.tolist() == [[1.0]] and (model.x_weights_ >= 0).all()
    c = np.maximum(correlations(X, TARGET[:, None])[:, 0] - 0.1, 0)  # soft, then scaled
    np.testing.assert_allclose(model.x_weights_[:, 0], c / np.linalg.norm(c), atol=1e-8)
