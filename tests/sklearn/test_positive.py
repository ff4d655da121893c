"""Positive and unlabelled rows: the risks against their definitions, and what a fit is worth."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from mossp import losses
from mossp.sklearn import MoSSPClassifier, PUClassifier
from mossp.sklearn.positive import PositiveUnlabelled

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
        prior=0.6, risk="unbiased", scenario=scenario, loss=loss, steps=1, polish=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, LABELLED)
    m, P = model.decision_function(X), LABELLED == 1
    population = np.ones(N, bool) if scenario == "single-set" else ~P
    risk = 0.6 * l(m[P]).mean() + l(-m[population]).mean() - 0.6 * l(-m[P]).mean()
    lam = 0.5 * 0.6 * np.median(X.std(axis=0)) * np.sqrt(2 * np.log(8) / P.sum())
    fun = model.result_.fun - lam * np.abs(model.coef_).sum()
    np.testing.assert_allclose(fun, risk, rtol=1e-9)


def test_it_finds_what_naive_labels_hide():
    model = PUClassifier(prior=PRIOR).fit(X, LABELLED)
    naive = MoSSPClassifier(lam=0.01).fit(X, LABELLED)
    assert model.result_.success and model.score(X, TRUTH) > 0.9
    assert model.score(X, TRUTH) > naive.score(X, TRUTH) + 0.2
    np.testing.assert_allclose(model.predict_proba(X)[:, 1].mean(), PRIOR, atol=0.1)
    # Labels -1 and +1, sparse rows, and a copy of the model: the same coefficients.
    other = clone(model).fit(scipy.sparse.csr_matrix(X), 2 * LABELLED - 1)
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-8)


def test_the_nonnegative_risk_is_kept():
    few = LABELLED * (RNG.random(N) < 0.2)
    model = PUClassifier(prior=0.5, risk="nonnegative", lam=1e-3).fit(X, few)
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
