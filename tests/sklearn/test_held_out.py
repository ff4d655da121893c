"""Scores of rows left out: the strength that is chosen by them, and the share called positive."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit

from mossp.sklearn import PUClassifier
from mossp.sklearn.held_out import FACTORS, FOLDS, calibrated, folds_of, general, held_out, ridges
from mossp.sklearn.rows import Rows
from mossp.sklearn.unlabelled import PositiveLikelihood

RNG = np.random.default_rng(5)
N = 2000
X = RNG.normal(size=(N, 6))
CHANCE = expit(1.5 * X[:, 0] - X[:, 1] - 1.5)  # classes overlap, and positives are fewer
TRUTH = (RNG.random(N) < CHANCE).astype(int)
LABELLED = TRUTH * (RNG.random(N) < 0.3)
PRIOR = TRUTH.mean()
USUAL = 2 * X.var(axis=0).sum() / N  # the strength of a ridge that stands without folds
LOSSES = [PositiveLikelihood.single_set(0.3), PositiveLikelihood.case_control(0.4)]


def rows_of(labelled=LABELLED, **others):
    given = Rows(X, np.where(labelled, 1.0, -1.0), np.ones(N), np.array([0, 1]))
    return dataclasses.replace(given, **others)


@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_in_numpy_are_those_of_jax(loss):
    m = np.append(RNG.normal(size=20) * 5, [800.0, -800.0, 800.0, -800.0])
    b = np.where(np.arange(24) % 4 < 2, 1.0, -1.0)
    with jax.enable_x64(True):
        each = lambda m: loss.rows(m, jnp.asarray(b))  # noqa: E731
        first = jax.grad(lambda m: each(m).sum())
        values, slopes = each(jnp.asarray(m)), first(jnp.asarray(m))
        curvatures = jax.jvp(first, (jnp.asarray(m),), (jnp.ones(24),))[1]
    found = loss.on_host(m, b)
    for one, other in zip(
        (*found[:2], found.curvatures()), (values, slopes, curvatures), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-14)


def test_a_row_twice_is_a_row_of_weight_two_in_one_fold():
    folds = folds_of(rows_of(), 0)
    assert set(folds) == set(range(FOLDS))
    for labelled in (0, 1):  # about as many in all
        counts = np.bincount(folds[labelled == LABELLED])
        assert counts.max() - counts.min() <= 1
    order = RNG.permutation(N)
    shuffled = rows_of(LABELLED[order], X=X[order])
    np.testing.assert_array_equal(folds_of(shuffled, 0), folds[order])
    weights = RNG.integers(0, 3, N).astype(float)
    weighted = folds_of(rows_of(weights=weights), 0)
    again = np.repeat(np.arange(N), weights.astype(int))
    repeated = Rows(X[again], np.where(LABELLED[again], 1.0, -1.0), np.ones(len(again)))
    np.testing.assert_array_equal(folds_of(repeated, 0), weighted[again])
    assert (weighted[weights == 0] == -1).all()
    sparse = rows_of(X=scipy.sparse.csr_matrix(X))
    assert np.mean(folds_of(sparse, 0) == folds) > 0.99
    assert np.mean(folds_of(rows_of(), 1) == folds) < 0.5


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_quick_search_finds_what_the_solver_does(fit_intercept):
    model = PUClassifier(prior=PRIOR, fit_intercept=fit_intercept)
    params = {**vars(model), "loss": PositiveLikelihood.single_set(LABELLED.mean() / PRIOR)}
    lams, rows = [10 * USUAL, USUAL, 0.1 * USUAL], rows_of(offset=0.3 * X[:, 2])
    quick, slow = ridges(params, rows, lams), general(params, rows, lams)
    for one, other in zip(quick, slow, strict=True):
        np.testing.assert_allclose(one["coef"], other["coef"], atol=1e-3)
        assert ("intercept" in one) == fit_intercept
    scores = held_out(params, rows, lams)
    fold = folds_of(rows, 0) == 0
    x = general(params, rows.at(np.flatnonzero(~fold)), lams)[1]
    np.testing.assert_allclose(
        scores[1, fold], (X @ x["coef"] + x.get("intercept", 0.0) + 0.3 * X[:, 2])[fold], atol=5e-3
    )


def test_calibration_finds_the_share_whatever_the_scale():
    rows, scores = rows_of(), 1.5 * X[:, 0] - X[:, 1]
    loss = PositiveLikelihood.single_set(LABELLED.mean() / PRIOR)
    found = calibrated(loss, scores, rows, np.ones(N), PRIOR)
    best = np.mean(CHANCE > 0.5)
    assert abs(found.share - best) < 0.04 and best < PRIOR - 0.05
    other = calibrated(loss, 7 + scores / 30, rows, np.ones(N), PRIOR)
    np.testing.assert_allclose(other, found, rtol=1e-6)
    worse = calibrated(loss, scores + 2 * RNG.normal(size=N), rows, np.ones(N), PRIOR)
    assert worse.loss > found.loss


@pytest.mark.parametrize("regularizer", ["ridge", "l1"])
@pytest.mark.parametrize("scenario", ["single-set", "case-control"])
def test_fewer_are_called_positive_where_classes_overlap(scenario, regularizer):
    asked = {"prior": PRIOR, "scenario": scenario, "regularizer": regularizer}
    labels = LABELLED
    rows = np.ones(N, bool) if scenario == "single-set" else LABELLED == 0
    model = PUClassifier(**asked).fit(X, labels)
    asked["lam"] = model.lam_
    by_prior = PUClassifier(**asked, threshold="prior").fit(X, labels)
    np.testing.assert_allclose(model.coef_, by_prior.coef_, atol=1e-8)
    np.testing.assert_allclose(model.predict(X[rows]).mean(), model.share_, atol=2 / rows.sum())
    assert model.share_ < PRIOR == by_prior.share_
    assert model.score(X, TRUTH) > by_prior.score(X, TRUTH)


def test_the_strength_is_chosen_by_rows_left_out():
    many = PUClassifier(prior=PRIOR).fit(X, LABELLED)
    assert np.isclose(many.lam_ / USUAL, FACTORS).any() and many.result_.success
    noise = np.column_stack([X, RNG.normal(size=(N, 150))])
    few = LABELLED * (RNG.random(N) < 0.3)
    usual = 2 * noise.var(axis=0).sum() / N
    chosen = PUClassifier(prior=PRIOR).fit(noise, few)
    weak = PUClassifier(prior=PRIOR, lam=FACTORS[-1] * usual).fit(noise, few)
    assert chosen.lam_ >= 0.1 * usual and chosen.score(noise, TRUTH) > weak.score(noise, TRUTH)


def test_too_few_labels_leave_the_usual_strength_and_the_prior():
    one = np.zeros(N, int)
    one[np.argmax(CHANCE)] = 1
    model = PUClassifier(prior=PRIOR).fit(X, one)
    np.testing.assert_allclose(model.lam_, USUAL)
    assert model.share_ == model.prior_ == PRIOR
