"""partial_fit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.base import clone

from mossp.sklearn import MoSSPClassifier, MoSSPRegressor
from tests.sklearn.rows import MODELS, SPHERE, TARGET, TWO, WEIGHTS, N, S, X, same

pytestmark = pytest.mark.slow


def feed(model, y, A=X, batches=200, seed=0, first=0, **given):
    """Random batches of 32 rows, from number `first` on."""
    if isinstance(model, MoSSPClassifier):
        given["classes"] = np.unique(y)
    draw = np.random.default_rng(seed)
    chosen = [draw.integers(0, N, 32) for _ in range(batches)]
    for rows in chosen[first:]:
        model.partial_fit(A[rows], y[rows], **given)
    return model


@pytest.mark.parametrize("kind, error", [("classifier", 0.1), ("regressor", 0.05)])
def test_stream_comes_near_to_fit(kind, error):
    model, y = MODELS[kind]
    fitted, fed = clone(model).fit(X, y), feed(clone(model), y)
    assert fed.n_iter_ == 200 and not hasattr(fed, "certificate_")
    assert np.linalg.norm(fed.coef_ - fitted.coef_) < error * np.linalg.norm(fitted.coef_)
    assert abs(fed.score(X, y) - fitted.score(X, y)) < 0.03


def test_stream_pickled_in_the_middle_goes_on_alike():
    whole = feed(MoSSPClassifier(equality=SPHERE), TWO, batches=40)
    assert abs(np.sum(whole.coef_**2) - 1) < 1e-2
    draw = feed(MoSSPClassifier(equality=SPHERE), TWO, batches=20)
    rest = feed(pickle.loads(pickle.dumps(draw)), TWO, batches=40, first=20)
    assert rest.n_iter_ == whole.n_iter_ == 40
    assert same(whole, rest, tol=0)


def chunks(A):
    """Rows are cut into batches of 32: filled up with weight 0, in one program."""
    model = MoSSPRegressor()
    for start, size in ((0, 40), (40, 1), (41, 64), (105, 20)):
        rows = slice(start, start + size)
        model.partial_fit(A[rows], TARGET[rows])
    assert model.n_iter_ == 2 + 1 + 2 + 1
    return model


def test_stream_of_uneven_and_sparse_chunks():
    dense = chunks(X)
    assert same(dense, chunks(scipy.sparse.csr_matrix(X)), tol=1e-9)


def test_stream_of_sparse_arrays():
    assert same(chunks(X), chunks(S), tol=1e-9)


def test_stream_with_weights():
    kept = WEIGHTS > 0
    weighted, without = MoSSPRegressor(), MoSSPRegressor()
    for _ in range(5):
        weighted.partial_fit(X[:32], TARGET[:32], sample_weight=kept[:32])
        without.partial_fit(X[:32][kept[:32]], TARGET[:32][kept[:32]])
    assert same(weighted, without, tol=1e-6)


def test_stream_with_chunks_of_little_weight():
    plain, light = MoSSPRegressor(), MoSSPRegressor()
    for i in range(3):
        rows = slice(32 * i, 32 * i + 32)
        plain.partial_fit(X[rows], TARGET[rows])
        light.partial_fit(X[rows], TARGET[rows], sample_weight=np.full(32, 10.0**-i))
    assert np.any(plain.coef_ != light.coef_)


def test_stream_goes_on_from_a_fit():
    model = MoSSPRegressor().fit(X, TARGET)
    coef = model.coef_
    model.partial_fit(X[:32], TARGET[:32])
    assert np.any(model.coef_ != coef) and np.abs(model.coef_ - coef).max() < 0.3
    assert np.abs(MoSSPRegressor().partial_fit(X[:32], TARGET[:32]).coef_ - coef).max() > 0.3


def test_stream_has_no_certificate_of_an_earlier_fit():
    model = MoSSPRegressor().fit(X, TARGET).partial_fit(X[:32], TARGET[:32])
    assert not hasattr(model, "certificate_") or not model.certificate_.is_kkt(1e-10)


def test_stream_refuses():
    model = MoSSPClassifier()
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        model.partial_fit(X, TWO)
    model = MoSSPClassifier().fit(X, TWO)
    with pytest.raises(ValueError, match=r"'perhaps'.*the classes are"):
        model.partial_fit(X[:2], ["yes", "perhaps"])
    with pytest.raises(ValueError, match="classes must stay"):
        model.partial_fit(X, TWO, classes=["a", "b"])
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(X[:, :5], TWO)
    with pytest.raises(ValueError, match="needs counts"):
        MoSSPRegressor("poisson").partial_fit(X, TARGET)
