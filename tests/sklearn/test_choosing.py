"""Which strength PathCV chooses, by one standard error and by BIC, and where paths begin."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LassoLarsIC, LogisticRegression, RidgeCV
from sklearn.metrics import mean_gamma_deviance, mean_pinball_loss
from sklearn.model_selection import ShuffleSplit

from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV
from tests.sklearn.rows import AMOUNTS, COUNTS, FOLDS, TARGET, THREE, TWO, WEIGHTS, N, X

pytestmark = pytest.mark.slow


def test_one_standard_error_gives_the_largest_strength_that_is_as_good():
    best = PathCV(MoSSPRegressor(), cv=FOLDS).fit(X, TARGET)
    model = PathCV(MoSSPRegressor(), cv=FOLDS, choose="1se").fit(X, TARGET)
    np.testing.assert_array_equal(model.scores_, best.scores_)
    mean = [np.mean(column) for column in model.scores_.T]
    top = int(np.argmax(mean))
    column = model.scores_[:, top]
    error = np.sqrt(np.sum((column - column.mean()) ** 2) / (5 - 1)) / np.sqrt(5)
    good = [lam for lam, m in zip(model.lams_, mean, strict=True) if m >= mean[top] - error]
    assert model.lam_ == max(good) > best.lam_ == model.lams_[top]
    assert np.count_nonzero(model.coef_) <= np.count_nonzero(best.coef_)
    np.testing.assert_array_equal(model.coef_, model.path_.xs["coef"][model.lams_ == model.lam_][0])


def test_bic_of_squares_takes_what_the_formula_says():
    model = PathCV(MoSSPRegressor(regularizer="mcp"), choose="bic").fit(X, TARGET)
    assert not hasattr(model, "scores_") and model.bic_.shape == (20,)
    left = [np.sum((TARGET - X @ r.x["coef"] - r.x["intercept"]) ** 2) for r in model.path_.results]
    k = 1 + np.count_nonzero(model.path_.xs["coef"], axis=1)
    by_hand = N * np.log(np.array(left) / N) + np.log(N) * k
    np.testing.assert_allclose(model.bic_, by_hand, rtol=1e-9)
    assert model.lam_ == model.lams_[by_hand.argmin()]
    assert np.flatnonzero(model.coef_).tolist() == [0, 1, 2]


def test_bic_does_not_depend_on_the_units_of_the_target():
    search = PathCV(MoSSPRegressor(), choose="bic", lams=10)
    plain = search.fit(X, TARGET).lam_
    assert search.fit(X, 1e4 * TARGET).lam_ == pytest.approx(1e4 * plain, rel=1e-5)


def test_bic_ranks_the_strengths_of_a_lasso_as_scikit_learn_does():
    """Theirs takes the variance of the full model; the best of theirs is the best of ours."""
    theirs = LassoLarsIC(criterion="bic").fit(X, TARGET)
    model = PathCV(MoSSPRegressor(), lams=theirs.alphas_[:-1], choose="bic").fit(X, TARGET)
    assert model.lam_ == pytest.approx(theirs.alpha_, rel=1e-9)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two classes", "three classes"])
def test_bic_of_classes_is_twice_the_log_loss_and_the_nonzeros(y):
    lams = [0.1, 0.03, 0.003]
    model = PathCV(MoSSPClassifier(), lams=lams, choose="bic").fit(X, y, sample_weight=WEIGHTS)
    for lam, bic in zip(lams, model.bic_, strict=True):
        theirs = LogisticRegression(
            C=1 / (WEIGHTS.sum() * lam), l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=100_000
        ).fit(X, y, sample_weight=WEIGHTS)
        p = theirs.predict_proba(X)[np.arange(N), np.searchsorted(theirs.classes_, y)]
        rows = np.count_nonzero(WEIGHTS)
        k = np.count_nonzero(np.abs(theirs.coef_) > 1e-7) + len(theirs.intercept_)
        expected = -2 * rows * np.average(np.log(p), weights=WEIGHTS) + np.log(rows) * k
        assert bic == pytest.approx(expected, abs=1e-4)


def test_bic_with_other_losses():
    lams = [0.3, 0.05, 0.01]
    counts = PathCV(MoSSPRegressor("poisson"), lams=lams, choose="bic").fit(X, COUNTS)
    amounts = PathCV(MoSSPRegressor("gamma"), lams=lams, choose="bic").fit(X, AMOUNTS)
    median = PathCV(MoSSPRegressor("quantile:0.5,0.01"), lams=lams, choose="bic").fit(X, TARGET)
    for model, first in (
        (counts, lambda p: 2 * np.sum(np.exp(p) - COUNTS * p)),
        (amounts, lambda p: N * np.log(mean_gamma_deviance(AMOUNTS, np.exp(p)))),
        (median, lambda p: 2 * N * np.log(mean_pinball_loss(TARGET, p))),
    ):
        for r, bic in zip(model.path_.results, model.bic_, strict=True):
            k = np.count_nonzero(r.x["coef"]) + 1
            near = 1.0 if model is median else 1e-6  # its pinball loss is smoothed
            p = X @ r.x["coef"] + r.x["intercept"]
            assert bic == pytest.approx(first(p) + np.log(N) * k, abs=near)


def test_bic_takes_no_model_with_as_many_coefficients_as_rows():
    few = slice(0, 6)  # six features and an intercept: that they fit six rows says nothing
    model = PathCV(MoSSPRegressor(), lams=[0.1, 1e-6], choose="bic").fit(X[few], TARGET[few])
    assert model.path_.nonzeros[1] >= 6 and np.isinf(model.bic_[1])
    assert model.lam_ == 0.1


def test_a_ridge_has_a_path_of_its_own():
    model = PathCV(MoSSPRegressor(regularizer="ridge"), cv=FOLDS).fit(X, TARGET)
    largest = np.linalg.eigvalsh(X.T @ X / N)[-1]
    np.testing.assert_allclose(
        model.lams_, np.geomspace(10 * largest, 1e-5 * largest, 20), rtol=0.05
    )
    theirs = RidgeCV(alphas=0.8 * N * model.lams_, cv=FOLDS).fit(X, TARGET)
    assert theirs.alpha_ == pytest.approx(0.8 * N * model.lam_)  # a fold has 0.8 N rows
    first, last = model.path_.xs["coef"][[0, -1]]
    assert np.abs(first).max() < 0.1 * np.abs(last).max() and model.path_.success


def test_an_elastic_net_starts_where_coefficients_begin():
    model = PathCV(MoSSPRegressor(regularizer="elastic-net"), lams=3, cv=FOLDS).fit(X, TARGET)
    top = np.abs(X.T @ (TARGET - TARGET.mean())).max() / N / 0.5
    np.testing.assert_allclose(model.lams_, np.geomspace(top, top / 1000, 3), rtol=1e-5)
    assert not model.path_.xs["coef"][0].any() and model.path_.success


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (PathCV(MoSSPRegressor(), choose="aic"), "choose must be one of best, 1se, bic"),
        (PathCV(MoSSPRegressor(regularizer="ridge"), choose="bic"), "a ridge makes none zero"),
        (
            PathCV(MoSSPRegressor(), lams=[0.1], cv=ShuffleSplit(1), choose="1se"),
            "at least two folds",
        ),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(model, text):
    with pytest.raises(ValueError, match=text):
        model.fit(X, TARGET)
