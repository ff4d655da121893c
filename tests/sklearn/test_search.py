"""PathCV against a search."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Lasso
from sklearn.model_selection import GridSearchCV

from mossp.regularizers import L1, Group
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV
from tests.sklearn.rows import FOLDS, TARGET, TWO, WEIGHTS, N, X, n, same

pytestmark = pytest.mark.slow


def test_path_agrees_with_a_search():
    model = PathCV(MoSSPClassifier(), lams=6, cv=FOLDS, scoring="neg_log_loss").fit(X, TWO)
    search = GridSearchCV(
        MoSSPClassifier(), {"lam": model.lams_}, cv=FOLDS, scoring="neg_log_loss"
    ).fit(X, TWO)
    theirs = [search.cv_results_[f"split{i}_test_score"] for i in range(5)]
    np.testing.assert_allclose(model.scores_, theirs, atol=1e-7)
    assert model.lam_ == search.best_params_["lam"] and 0 < model.lam_ < model.lams_[0]
    assert same(model, search.best_estimator_)
    assert abs(model.score(X, TWO) - search.score(X, TWO)) < 1e-7
    np.testing.assert_allclose(model.predict_proba(X), search.predict_proba(X), atol=1e-7)
    assert model.classes_.tolist() == ["no", "yes"] and model.n_features_in_ == n


def test_path_starts_where_coefficients_begin():
    model = PathCV(MoSSPRegressor(), lams=5, cv=FOLDS).fit(X, TARGET)
    top = np.abs(X.T @ (TARGET - TARGET.mean())).max() / N
    np.testing.assert_allclose(model.lams_, np.geomspace(top, top / 1000, 5), rtol=1e-5)
    assert model.scores_.shape == (5, 5) and model.path_.success
    coefs = model.path_.xs["coef"]
    assert coefs.shape == (5, n) and not coefs[0].any() and coefs[1].any()
    np.testing.assert_array_equal(model.coef_, coefs[model.lams_ == model.lam_][0])
    assert not MoSSPRegressor(lam=1.001 * top).fit(X, TARGET).coef_.any()
    assert MoSSPRegressor(lam=0.98 * top).fit(X, TARGET).coef_.any()


def test_path_with_weights():
    rows = np.repeat(np.arange(N), WEIGHTS)
    found = PathCV(MoSSPRegressor(), lams=[0.1, 1.0], cv=FOLDS)
    weighted = clone(found).fit(X, TARGET, sample_weight=WEIGHTS)
    assert weighted.lams_.tolist() == [1.0, 0.1]
    np.testing.assert_allclose(
        weighted.path_.xs["coef"], clone(found).fit(X[rows], TARGET[rows]).path_.xs["coef"],
        atol=1e-8,
    )  # fmt: skip


def test_folds_in_threads_score_as_one_after_the_other(capsys):
    """Each fold's coefficients are judged on its own rows, whichever thread is ahead."""
    one = PathCV(MoSSPClassifier(), lams=[0.1, 0.01], cv=FOLDS, scoring="neg_log_loss")
    two = clone(one).set_params(n_jobs=3, verbose=True).fit(X, TWO)
    one.fit(X, TWO)
    np.testing.assert_array_equal(one.scores_, two.scores_)
    assert one.lam_ == two.lam_ and same(one, two)
    assert capsys.readouterr().err.count("cross-validation") == 5
    broken = clone(two).set_params(scoring=lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        broken.fit(X, TWO)


STARTS = {
    "weights below 1": ({"feature_weights": np.full(n, 0.5)}),
    "groups": ({"regularizer": Group(L1(1.0), [0, 0, 1, 1, 2, 2])}),
}


@pytest.mark.parametrize("name", STARTS)
def test_path_starts_at_zero_with(name):
    model = PathCV(MoSSPRegressor(**STARTS[name]), lams=1, cv=FOLDS).fit(X, TARGET)
    assert not model.path_.xs["coef"][0].any()


def test_probabilities_are_there_for_the_logistic_loss_only():
    for wrap in (lambda m: m, PathCV):
        assert hasattr(wrap(MoSSPClassifier()), "predict_proba")
        assert not hasattr(wrap(MoSSPClassifier("huberized-hinge")), "predict_proba")
        assert not hasattr(wrap(MoSSPRegressor()), "predict_log_proba")


@pytest.mark.parametrize(
    "model, error, text",
    [
        (PathCV(Lasso()), TypeError, "PathCV needs a MoSSPClassifier or a MoSSPRegressor"),
        (PathCV(MoSSPRegressor(regularizer="none")), ValueError, "has no strength to choose"),
        (PathCV(MoSSPRegressor(), lams=[-1.0]), ValueError, "lams must be a list of numbers >= 0"),
        (PathCV(MoSSPRegressor(), lams=[]), ValueError, "lams must be a list of numbers >= 0"),
        (PathCV(MoSSPRegressor(), lams=0), ValueError, "lams must be at least 1"),
    ],
)
def test_path_refuses(model, error, text):
    with pytest.raises(error, match=text):
        model.fit(X, TARGET)
