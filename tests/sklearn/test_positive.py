"""Positive and unlabelled rows: the risks against their definitions, and what a fit is worth."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from mossp import losses
from mossp.sklearn import MoSSPClassifier, PUClassifier
from mossp.sklearn.unlabelled import PositiveUnlabelled

RNG = np.random.default_rng(0)
N = 600
X = RNG.normal(size=(N, 4)) + RNG.choice([-0.9, 0.9], N)[:, None] * np.array([1.0, 1.0, 0.0, 0.0])
TRUTH = (X[:, 0] + X[:, 1] + 0.3 * RNG.normal(size=N) > 0).astype(int)
LABELLED = TRUTH * (RNG.random(N) < 0.3)
PRIOR = TRUTH.mean()


def logistic(m):
    return np.logaddexp(0, -m)


def hinge(m, delta=0.5):
    short = 1 - m
    return np.where(
        short <= 0, 0, np.where(short < delta, short**2 / (2 * delta), short - delta / 2)
    )


@pytest.mark.parametrize("scenario", ["single-set", "case-control"])
@pytest.mark.parametrize("loss, l", [(losses.logistic, logistic), (losses.huberized_hinge, hinge)])
def test_the_risk_is_that_of_its_definition(scenario, loss, l):
    model = PUClassifier(
        prior=0.6, risk="unbiased", threshold="half", scenario=scenario, loss=loss,
        regularizer="l1", steps=1, polish=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, LABELLED)
    m, P = model.decision_function(X), LABELLED == 1
    population = np.ones(N, bool) if scenario == "single-set" else ~P
    risk = 0.6 * l(m[P]).mean() + l(-m[population]).mean() - 0.6 * l(-m[P]).mean()
    lam = 0.5 * 0.6 * np.median(X.std(axis=0)) * np.sqrt(2 * np.log(8) / P.sum())
    fun = model.result_.fun - lam * np.abs(model.coef_).sum()
    np.testing.assert_allclose(fun, risk, rtol=1e-9)


@pytest.mark.parametrize("scenario", ["single-set", "case-control"])
def test_the_likelihood_is_that_of_its_definition(scenario):
    model = PUClassifier(
        prior=0.6, threshold="half", scenario=scenario, regularizer="l1", steps=1, polish=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, LABELLED)
    p, share = 1 / (1 + np.exp(-model.decision_function(X))), LABELLED.mean()
    if scenario == "single-set":  # a positive is labelled with probability share / prior
        chance = share / 0.6 * p
    else:  # density p(x | +) = p(x) p / prior, and so many labelled rows for each unlabelled one
        odds = share / (1 - share) * p / 0.6
        chance = odds / (1 + odds)
    # What x does not change is left out: for every labelled row the factor of p.
    minus_log = -np.where(LABELLED == 1, np.log(chance), np.log1p(-chance)).mean()
    left_out = share * np.log(
        share / 0.6 if scenario == "single-set" else share / (1 - share) / 0.6
    )
    lam = 0.25 * share * np.median(X.std(axis=0)) * np.sqrt(2 * np.log(8) / LABELLED.sum())
    fun = model.result_.fun - lam * np.abs(model.coef_).sum()
    np.testing.assert_allclose(fun, minus_log + left_out, rtol=1e-9)


def test_the_likelihood_is_at_its_minimum():
    c, lam = LABELLED.mean() / PRIOR, 2 * X.var(axis=0).sum() / N
    model = PUClassifier(prior=PRIOR, threshold="half", lam=lam).fit(X, LABELLED)
    assert model.result_.success

    def objective(z):
        p = 1 / (1 + np.exp(-X @ z[:-1] - z[-1]))
        rows = -np.where(LABELLED == 1, np.log(p), np.log1p(-c * p))
        return rows.mean() + lam / 2 * z[:-1] @ z[:-1]

    best = scipy.optimize.minimize(objective, np.zeros(5), method="BFGS", tol=1e-10)
    np.testing.assert_allclose(np.append(model.coef_[0], model.intercept_), best.x, atol=1e-4)


@pytest.mark.parametrize("scenario", ["single-set", "case-control"])
def test_as_many_are_called_positive_as_there_are(scenario):
    model = PUClassifier(prior=PRIOR, scenario=scenario, threshold="prior").fit(X, LABELLED)
    population = slice(None) if scenario == "single-set" else LABELLED == 0
    np.testing.assert_allclose(model.predict(X[population]).mean(), PRIOR, atol=1 / N)
    # It is the intercept alone that moves, and not where something else speaks of it.
    half = PUClassifier(prior=PRIOR, scenario=scenario, threshold="half").fit(X, LABELLED)
    np.testing.assert_array_equal(half.coef_, model.coef_)
    np.testing.assert_array_equal(half.intercept_, half.result_.x["intercept"])
    assert half.intercept_ != model.intercept_
    held = PUClassifier(prior=PRIOR, scenario=scenario, inequality="intercept <= -2")
    assert held.fit(X, LABELLED).intercept_ <= -2 + 1e-9
    assert PUClassifier(prior=PRIOR, fit_intercept=False).fit(X, LABELLED).intercept_ == 0


@pytest.mark.parametrize("regularizer", ["l1", "mcp", "l1-l2", "elastic-net", "scad:0.01"])
def test_regularisers_and_constraints(regularizer):
    model = PUClassifier(prior=PRIOR, regularizer=regularizer, equality="sum(x) = 1.5")
    model.fit(X, LABELLED)
    assert model.result_.success and model.certificate_.is_kkt(1e-9)
    np.testing.assert_allclose(model.coef_.sum(), 1.5, atol=1e-9)
    assert model.score(X, TRUTH) > 0.9


def test_it_finds_what_naive_labels_hide():
    model = PUClassifier(prior=PRIOR).fit(X, LABELLED)
    naive = MoSSPClassifier(lam=0.01).fit(X, LABELLED)
    assert model.result_.success and model.score(X, TRUTH) > 0.9
    assert model.score(X, TRUTH) > naive.score(X, TRUTH) + 0.2
    np.testing.assert_allclose(model.predict_proba(X)[:, 1].mean(), PRIOR, atol=0.1)
    assert (model.predict_proba(X).argmax(axis=1) == model.predict(X)).all()
    # Labels -1 and +1, sparse rows, and a copy of the model: the same coefficients.
    other = clone(model).fit(scipy.sparse.csr_matrix(X), 2 * LABELLED - 1)
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-8)


def test_the_nonnegative_risk_is_kept():
    few = LABELLED * (RNG.random(N) < 0.2)
    model = PUClassifier(
        prior=0.5, risk="nonnegative", threshold="half", regularizer="l1", lam=1e-3
    )
    model.fit(X, few)
    m, P = model.decision_function(X), few == 1
    negatives = logistic(-m).mean() - 0.5 * logistic(-m[P]).mean()
    assert model.result_.success and negatives > -1e-9


def test_a_prior_that_is_left_out_is_estimated_with_a_warning():
    with pytest.warns(UserWarning, match="Elkan and Noto"):
        model = PUClassifier().fit(X, LABELLED)
    assert abs(model.prior_ - PRIOR) < 0.25, (model.prior_, PRIOR)
    assert model.score(X, TRUTH) > 0.75


def test_a_rate_is_met():
    model = PUClassifier(prior=PRIOR, rates="selection <= 0.3").fit(X, LABELLED)
    assert model.predict(X).mean() <= 0.3 and model.rates_["selection <= 0.3"] <= 0.3


def test_wrong_input_gets_a_sentence():
    for prior in (0.0, 1.0, "half"):
        with pytest.raises(ValueError, match="prior must be the share"):
            PUClassifier(prior=prior).fit(X, LABELLED)
    with pytest.raises(ValueError, match="below the share"):
        PUClassifier(prior=0.01).fit(X, LABELLED)
    with pytest.raises(ValueError, match="risk must be"):
        PUClassifier(prior=0.5, risk="brave").fit(X, LABELLED)
    with pytest.raises(ValueError, match="threshold must be"):
        PUClassifier(prior=0.5, threshold=0.3).fit(X, LABELLED)
    with pytest.raises(ValueError, match="by the likelihood of the labels"):
        PUClassifier(prior=0.5, risk="unbiased", threshold="calibrated").fit(X, LABELLED)
    with pytest.raises(ValueError, match="that of the logistic model"):
        PUClassifier(prior=0.5, risk="likelihood", loss="huberized-hinge").fit(X, LABELLED)
    with pytest.raises(ValueError, match="Only binary"):
        PUClassifier(prior=0.5).fit(X, np.arange(N) % 3)
    with pytest.raises(AttributeError, match="no partial_fit"):
        PUClassifier(prior=0.5).partial_fit(X, LABELLED)


def test_the_loss_of_a_row_needs_no_labels_but_two():
    risk = PositiveUnlabelled(losses.logistic, 2.0, 1.0, 1.0)
    assert risk.convex and not PositiveUnlabelled(losses.huberized_hinge, 2.0, 1.0, 1.0).convex
    with pytest.raises(ValueError, match="labels"):
        risk.check((np.eye(2), np.array([0.0, 2.0])))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([PUClassifier()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_a_prior_below_the_labelled_share_names_the_label_that_was_taken_for_positive():
    rng = np.random.default_rng(0)
    X, labelled = rng.normal(size=(60, 2)), np.arange(60) < 10
    with pytest.raises(ValueError, match="those with y = unlabelled, the larger label"):
        PUClassifier(prior=0.4).fit(X, np.where(labelled, "positive", "unlabelled"))
