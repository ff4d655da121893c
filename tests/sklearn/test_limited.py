"""At most k features: against all subsets, with constraints, groups and rates; never more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

import mossp
from mossp import losses
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV, limited
from mossp.sklearn.rows import Rows
from mossp.sklearn.splicing import KNOWN, Search, best_columns

rng = np.random.default_rng(0)
N, n = 120, 8
X = rng.normal(size=(N, n))
for j in range(1, n):
    X[:, j] = 0.7 * X[:, j - 1] + 0.7 * X[:, j]
SCORE = X @ np.array([1.0, 0, -0.8, 0, 0.5, 0, 0, 0.4])
Y = SCORE + 0.5 * rng.normal(size=N) + 2.0
SIGN = np.where(SCORE + rng.logistic(size=N) > 0, 1.0, -1.0)
COUNTS = rng.poisson(np.exp(0.5 * SCORE)).astype(float)
CASES = {"squared": Y, "logistic": SIGN, "poisson": COUNTS}


def every_subset(loss, y, k, weights):
    rows = Rows(X, y, weights)
    search = Search(KNOWN[type(loss)], rows, k, True)
    subsets = itertools.combinations(range(n), k)
    return min((search.fit(np.array(s), None, 1e-10) for s in subsets), key=lambda fit: fit.loss)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_search_finds_the_best_of_all_subsets(kind, k):
    loss, y, weights = getattr(losses, kind), CASES[kind], rng.uniform(0.5, 2.0, N)
    best = every_subset(loss, y, k, weights)
    rows = Rows(X, y, weights)
    found = best_columns(loss, rows, k, intercept=True)
    assert found.loss == pytest.approx(best.loss, abs=1e-9)
    sparse = best_columns(loss, Rows(scipy.sparse.csr_matrix(X), y, weights), k, intercept=True)
    np.testing.assert_array_equal(sparse.columns, found.columns)


def test_fits_are_those_of_scikit_learn():
    from sklearn.linear_model import LinearRegression, LogisticRegression

    columns = np.array([0, 2, 7])
    fit = Search(KNOWN[losses.Squared], Rows(X, Y, np.ones(N)), 3, True).fit(columns, None, 1e-10)
    theirs = LinearRegression().fit(X[:, columns], Y)
    np.testing.assert_allclose(fit.coef, theirs.coef_, atol=1e-8)
    fit = Search(KNOWN[losses.Logistic], Rows(X, SIGN, np.ones(N)), 3, True).fit(
        columns, None, 1e-10
    )
    theirs = LogisticRegression(C=1e12, tol=1e-10, max_iter=1000).fit(X[:, columns], SIGN)
    np.testing.assert_allclose(fit.coef, theirs.coef_[0], atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_estimator_of_k_features_is_certified(dtype):
    model = MoSSPRegressor(max_features=3, dtype=dtype).fit(X, Y)
    best = every_subset(losses.squared, Y, 3, np.ones(N))
    assert np.count_nonzero(model.coef_) == 3 and model.result_.success
    np.testing.assert_array_equal(np.flatnonzero(model.coef_), best.columns)
    assert model.result_.fun == pytest.approx(best.loss, abs=1e-9)
    assert model.certificate_.is_kkt(1e-10)
    none = MoSSPRegressor(max_features=0).fit(X, Y)
    assert not none.coef_.any() and none.intercept_ == pytest.approx(Y.mean())
    every = MoSSPRegressor(max_features=99).fit(X, Y)
    assert np.count_nonzero(every.coef_) == n


def test_separable_rows_are_no_success():
    model = MoSSPClassifier(max_features=1)
    with pytest.warns(UserWarning, match="There is no minimiser"):
        model.fit(X[:, :2], X[:, 0] > 0)
    assert not model.result_.success and np.flatnonzero(model.coef_).tolist() == [0]


def test_a_column_without_any_positive_row_is_no_success():
    """Its coefficient falls for ever, beside others that have a limit."""
    marked = np.arange(N) % 10 == 0
    y = (SIGN > 0) & ~marked
    model = MoSSPClassifier(max_features=2)
    with pytest.warns(UserWarning, match="There is no minimiser"):
        model.fit(np.column_stack([X[:, :2], marked]), y)
    assert not model.result_.success and model.coef_[0, 2] < -10


def test_large_scores_of_classes_that_overlap_need_no_linear_program(monkeypatch):
    """One row far away has a score that says nothing of the others."""
    monkeypatch.setattr(limited.scipy.optimize, "linprog", None)  # not to be called
    far = X[:, :2].copy()
    far[0] = 60.0
    y = SIGN.copy()
    y[0] = 1.0
    model = MoSSPClassifier(max_features=1).fit(far, y)
    assert model.result_.success and np.abs(model.decision_function(far)).max() > limited.FAR


def test_fits_of_the_search_do_not_depend_on_how_rows_lie_in_memory():
    weights = rng.uniform(0.5, 2.0, N)
    found = [best_columns(losses.logistic, Rows(A, SIGN, weights), 3, intercept=True)
             for A in (np.ascontiguousarray(X), np.asfortranarray(X))]  # fmt: skip
    np.testing.assert_array_equal(found[0].columns, found[1].columns)
    assert found[0].loss == pytest.approx(found[1].loss, rel=1e-14)


@pytest.mark.slow
def test_a_limit_with_constraints_classes_and_rates():
    held = MoSSPRegressor(max_features=2, inequality="x[0] <= 0.3").fit(X, Y)
    assert np.count_nonzero(held.coef_) <= 2 and held.coef_[0] <= 0.3 + 1e-9
    assert held.result_.success
    three = np.digitize(SCORE, [-1.0, 1.0])
    many = MoSSPClassifier(max_features=2).fit(X, three)
    used = np.flatnonzero(np.abs(many.coef_).sum(axis=0))
    assert many.coef_.shape == (3, n) and len(used) <= 2  # a feature is zero for all classes
    rated = MoSSPClassifier(max_features=2, rates="fpr <= 0.1").fit(X, SIGN)
    assert np.count_nonzero(rated.coef_) <= 2 and rated.rates_["fpr <= 0.1"] <= 0.1


def least_squares_that_sum_to_one(columns):
    """The minimum over columns that hold sum(x) = 1, from its KKT system."""
    A = np.column_stack([X[:, columns], np.ones(N)])
    e = np.append(np.ones(len(columns)), 0.0)
    K = np.block([[A.T @ A / N, e[:, None]], [e[None], np.zeros((1, 1))]])
    x = np.linalg.solve(K, np.append(A.T @ Y / N, 1.0))[:-1]
    return np.mean((A @ x - Y) ** 2) / 2


def test_the_search_under_a_constraint_finds_the_best_of_all_subsets():
    model = MoSSPRegressor(max_features=3, equality="sum(x) = 1").fit(X, Y)
    subsets = [list(s) for s in itertools.combinations(range(n), 3)]
    best = min(subsets, key=least_squares_that_sum_to_one)
    assert np.flatnonzero(model.coef_).tolist() == best and model.result_.success
    assert model.result_.fun == pytest.approx(least_squares_that_sum_to_one(best), abs=1e-9)
    assert model.certificate_.is_kkt(1e-10)


def test_a_rate_keeps_the_columns_that_are_best_without_it():
    free = MoSSPClassifier(max_features=3).fit(X, SIGN)
    rated = MoSSPClassifier(max_features=3, rates="fpr <= 0.05").fit(X, SIGN)
    assert np.mean(free.predict(X)[SIGN < 0] > 0) > 0.05  # so that the bound binds
    assert np.flatnonzero(rated.coef_).tolist() == np.flatnonzero(free.coef_).tolist()
    assert rated.rates_["fpr <= 0.05"] <= 0.05 and rated.result_.success


def test_cardinality_in_a_problem_of_ones_own():
    target = np.array([3.0, -0.5, 2.0, 1.0, -2.5, 0.1])

    def bowl(x):
        return 0.5 * (x - target) @ (x - target)

    result = mossp.solve(mossp.Problem(bowl, regularizer=mossp.Cardinality(3)), [0.0] * 6)
    np.testing.assert_allclose(result.x, [3, 0, 2, 0, -2.5, 0], atol=1e-8)
    assert result.success and result.settings["regularizer"] == "Cardinality"
    pairs = mossp.Group(mossp.Cardinality(1), [0, 0, 1, 1, 2, 2])
    result = mossp.solve(mossp.Problem(bowl, regularizer=pairs), [0.0] * 6)
    np.testing.assert_allclose(result.x, [3, -0.5, 0, 0, 0, 0], atol=1e-8)


def test_never_more_than_k_though_the_run_be_short():
    """A run of three steps has any number of nonzeros: the largest are kept."""
    problem = mossp.Problem(losses.squared, (X, Y), mossp.Cardinality(2))
    result = mossp.solve(problem, np.ones(n), method="mossp-r", steps=3)
    assert np.count_nonzero(result.x) <= 2


@pytest.mark.parametrize("wrong, part", [
    ({"max_features": 1.5}, "whole number"), ({"max_features": -1}, "whole number"),
    ({"max_features": 2, "lam": 0.1}, "in place of a regulariser"),
    ({"max_features": 2, "regularizer": "mcp"}, "in place of a regulariser"),
])  # fmt: skip
def test_what_is_refused(wrong, part):
    with pytest.raises(ValueError, match=part):
        MoSSPRegressor(**wrong).fit(X, Y)


def test_no_strength_is_chosen_under_a_limit():
    with pytest.raises(ValueError, match="takes the place of a strength"):
        PathCV(MoSSPRegressor(max_features=2)).fit(X, Y)
