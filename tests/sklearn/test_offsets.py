"""Offsets: against SciPy and against models that say the same without one."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from scipy.special import expit, log_softmax
from sklearn.metrics import make_scorer, mean_poisson_deviance
from sklearn.model_selection import GridSearchCV

import mossp
from mossp.fairness import DemographicParity
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV
from mossp.sklearn.paths import regularization_path
from mossp.sklearn.promises import rates_on
from tests.sklearn.rows import COUNTS, FOLDS, SIGN, TARGET, THREE, TWO, WEIGHTS, N, S, X, n, same

pytestmark = pytest.mark.slow

EXPOSURE = np.random.default_rng(7).uniform(0.5, 3.0, N)
OFFSET = np.log(EXPOSURE)
SCORES = np.random.default_rng(8).normal(size=N)  # of another model


def test_an_exposure_is_a_weight_of_rates():
    """exp(p) e - b p = e (exp(p) - (b/e) p): the same problem, its mean over e instead of rows."""
    model = MoSSPRegressor("poisson", lam=0.02).fit(X, COUNTS, offset=OFFSET)
    share = EXPOSURE.mean()
    rates = MoSSPRegressor("poisson", lam=0.02 / share)
    rates.fit(X, COUNTS / EXPOSURE, sample_weight=EXPOSURE)
    assert same(model, rates) and model.with_offset_ and not rates.with_offset_
    assert model.certificate_.is_kkt(1e-10) and np.any(model.coef_ == 0)
    np.testing.assert_allclose(model.predict(X, offset=OFFSET), EXPOSURE * rates.predict(X))
    np.testing.assert_allclose(model.predict(X, offset=0.0), rates.predict(X))


def test_squares_with_an_offset_are_those_of_what_it_leaves():
    model = MoSSPRegressor(regularizer="mcp", lam=0.1).fit(S, TARGET, WEIGHTS, offset=SCORES)
    rest = MoSSPRegressor(regularizer="mcp", lam=0.1).fit(S, TARGET - SCORES, WEIGHTS)
    assert same(model, rest)
    np.testing.assert_allclose(model.predict(S, SCORES), rest.predict(S) + SCORES, atol=1e-8)
    score = model.score(X, TARGET, sample_weight=WEIGHTS, offset=SCORES)
    left = (TARGET - model.predict(X, SCORES)) ** 2 @ WEIGHTS
    mean = np.average(TARGET, weights=WEIGHTS)
    assert score == pytest.approx(1 - left / ((TARGET - mean) ** 2 @ WEIGHTS))


def test_two_classes_with_an_offset_against_scipy():
    def value(x):
        p = X @ x[:n] + x[n] + SCORES
        slope = -SIGN * expit(-SIGN * p) / N
        gradient = np.append(X.T @ slope + 0.05 * x[:n], slope.sum())
        return np.logaddexp(0, -SIGN * p).mean() + 0.025 * x[:n] @ x[:n], gradient

    found = scipy.optimize.minimize(value, np.zeros(n + 1), jac=True, tol=1e-12).x
    model = MoSSPClassifier(regularizer="ridge", lam=0.05).fit(X, TWO, offset=SCORES)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), found, atol=1e-6)
    p = X @ found[:n] + found[n] + SCORES
    np.testing.assert_allclose(model.decision_function(X, SCORES), p, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X, SCORES)[:, 1], expit(p), atol=1e-5)
    np.testing.assert_array_equal(model.predict(X, SCORES), np.where(p > 0, "yes", "no"))
    assert model.score(X, TWO, offset=SCORES) == np.mean(model.predict(X, SCORES) == TWO)


def test_three_classes_take_an_offset_each():
    shift = np.array([0.0, 1.0, -2.0])
    model = MoSSPClassifier().fit(X, THREE, offset=np.tile(shift, (N, 1)))
    plain = MoSSPClassifier().fit(X, THREE)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-8)
    # Intercepts take constants back, up to what all classes share.
    np.testing.assert_allclose(model.intercept_ + shift - shift.mean(), plain.intercept_, atol=1e-8)
    scores = model.decision_function(X, np.tile(shift, (N, 1)))
    np.testing.assert_allclose(log_softmax(scores, axis=1), plain.predict_log_proba(X), atol=1e-8)
    with pytest.raises(ValueError, match=r"one number for each row and class, the shape \(125, 3"):
        MoSSPClassifier().fit(X, THREE, offset=SCORES)


def test_a_search_cuts_the_offset_with_its_folds():
    lams = [0.2, 0.05, 0.01]
    found = PathCV(
        MoSSPRegressor("poisson"), lams=lams, cv=FOLDS, scoring="neg_mean_poisson_deviance"
    )
    found.fit(X, COUNTS, offset=OFFSET)
    for k, (train, test) in enumerate(FOLDS.split(X)):
        for j, lam in enumerate(lams):
            model = MoSSPRegressor("poisson", lam=lam).fit(
                X[train], COUNTS[train], offset=OFFSET[train]
            )
            left = mean_poisson_deviance(COUNTS[test], model.predict(X[test], OFFSET[test]))
            assert found.scores_[k, j] == pytest.approx(-left, abs=1e-7)
    by_hand = MoSSPRegressor("poisson", lam=found.lam_).fit(X, COUNTS, offset=OFFSET)
    assert same(found, by_hand) and found.with_offset_
    np.testing.assert_allclose(found.predict(X, OFFSET), by_hand.predict(X, OFFSET), rtol=1e-7)
    left = mean_poisson_deviance(COUNTS, found.predict(X, OFFSET))
    assert found.score(X, COUNTS, offset=OFFSET) == pytest.approx(-left)
    path = regularization_path(MoSSPRegressor("poisson"), X, COUNTS, lams=lams, offset=OFFSET)
    np.testing.assert_allclose(path.xs["coef"], found.path_.xs["coef"], atol=1e-8)


def test_a_search_of_classes_with_probabilities():
    found = PathCV(MoSSPClassifier(), lams=[0.1, 0.01], cv=FOLDS, scoring="neg_log_loss")
    found.fit(X, TWO, offset=SCORES)
    train, test = next(iter(FOLDS.split(X)))
    model = MoSSPClassifier(lam=0.01).fit(X[train], TWO[train], offset=SCORES[train])
    p = model.predict_proba(X[test], SCORES[test])[np.arange(len(test)), (TWO[test] == "yes") * 1]
    assert found.scores_[0, 1] == pytest.approx(np.log(p).mean(), abs=1e-7)


def test_a_grid_search_says_that_its_scorer_has_no_offset():
    search = GridSearchCV(MoSSPRegressor(), {"lam": [0.1]}, cv=FOLDS, error_score="raise",
                          scoring=make_scorer(mean_poisson_deviance))  # fmt: skip
    with pytest.raises(ValueError, match="was fitted with an offset"):
        search.fit(X, TARGET, offset=SCORES)


def test_rates_are_of_the_scores_with_the_offset():
    model = MoSSPClassifier(lam=0.01, rates="fpr <= 0.1").fit(X, TWO, offset=SCORES)
    decided = model.predict(X, SCORES) == "yes"
    assert decided[TWO == "no"].mean() == pytest.approx(model.rates_["fpr <= 0.1"])
    assert decided[TWO == "no"].mean() <= 0.1 + 1e-9
    seen = rates_on(model, X, TWO, offset=SCORES)["fpr <= 0.1"][0]
    assert seen == pytest.approx(model.rates_["fpr <= 0.1"])


def test_a_fairness_bound_is_on_the_scores_with_the_offset():
    z = (np.random.default_rng(9).random(N) < 0.5) * 1.0
    shift = SCORES + 2 * z
    model = MoSSPClassifier(lam=0.001, inequality=DemographicParity(0.01))
    p = model.fit(X, TWO, sensitive=z, offset=shift).decision_function(X, shift)
    assert abs(np.cov(z, p, bias=True)[0, 1]) == pytest.approx(0.01, abs=1e-8)
    three = np.random.default_rng(3).normal(size=(N, 3))
    bound = DemographicParity(0.01).on(X, THREE, np.ones(N), sensitive=z, classes=3, offset=three)
    W = np.random.default_rng(4).normal(size=(n, 3))
    cov = [np.cov(z, s, bias=True)[0, 1] for s in (X @ W + three).T]
    np.testing.assert_allclose(bound(W)[:3], np.array(cov) - 0.01, atol=1e-6)


def test_a_mean_over_rows_sees_the_offset_after_the_weights():
    seen = []

    def mean_count(x, batch):
        A, _, w, o = batch
        seen.append(len(batch))
        return (w * jnp.exp(A @ x[:-1] + x[-1] + o)).mean() - 0.8

    model = MoSSPRegressor("poisson", inequality=mossp.Expected(mean_count),
                           constrain_intercept=True)  # fmt: skip
    model.fit(X, COUNTS, offset=OFFSET)
    assert model.predict(X, OFFSET).mean() == pytest.approx(0.8, abs=1e-8) and set(seen) == {4}


def test_a_stream_takes_an_offset():
    model, rest = MoSSPRegressor(), MoSSPRegressor()
    for i in range(3):
        rows = slice(30 * i, 30 * i + 30)
        model.partial_fit(X[rows], TARGET[rows], offset=SCORES[rows])
        rest.partial_fit(X[rows], TARGET[rows] - SCORES[rows])
    assert same(model, rest, tol=1e-6)
    with pytest.raises(ValueError, match="was fitted with an offset"):
        model.partial_fit(X, TARGET)
    two = MoSSPClassifier().partial_fit(X, TWO, classes=["no", "yes"], offset=SCORES)
    assert two.with_offset_ and two.predict(X, SCORES).shape == (N,)


def test_an_offset_that_does_not_suit_is_refused_in_a_sentence():
    model = MoSSPRegressor().fit(X, TARGET)
    with pytest.raises(ValueError, match="was fitted without an offset"):
        model.predict(X, offset=SCORES)
    for wrong, says in {
        "shape": (SCORES[:-1], r"the shape \(125,\), but its shape is \(124,\)"),
        "NaN": (np.full(N, np.nan), "offset must be finite numbers"),
        "text": (TWO, "offset must be finite numbers"),
    }.values():
        with pytest.raises(ValueError, match=says):
            MoSSPRegressor().fit(X, TARGET, offset=wrong)
    with pytest.raises(ValueError, match="or offset=0"):
        model.fit(X, TARGET, offset=SCORES).predict(X)
    assert model.fit(X, TARGET).predict(X).shape == (N,)  # a later fit without one needs none
