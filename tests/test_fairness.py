"""Fairness bounds: covariances by hand, and what a fitted classifier makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from mossp.fairness import DemographicParity, EqualOpportunity, selection_rates
from mossp.sklearn import MoSSPClassifier, PathCV
from tests.compilations import compilations

pytestmark = pytest.mark.slow


N, n = 125, 6
rng = np.random.default_rng(0)
SEX = rng.choice(["f", "m"], size=N)
REGION = rng.choice(["east", "north", "south"], size=N)
AGE = rng.uniform(20, 60, size=N)
X = rng.normal(size=(N, n))
X[:, 0] += 1.5 * (SEX == "m")  # biased
X[:, 5] = SEX == "m"
X[np.abs(X) < 0.3] = 0.0
S = scipy.sparse.csr_array(X)
SCORE = X @ np.array([1.0, 1, 0, 0, 0, 0.5]) + 0.7 * rng.normal(size=N)
Y = (SCORE.mean() < SCORE).astype(int)
THREE = np.digitize(SCORE, [0.0, 1.5])
LABELS = 2.0 * Y - 1
WEIGHTS = rng.uniform(0.5, 2.0, size=N)
NAMES = ["income", "b", "c", "d", "e", "male"]
PARITY = MoSSPClassifier(inequality=DemographicParity(0.01))
KINDS = pytest.mark.parametrize("kind", [DemographicParity, EqualOpportunity])


def covariance(z, scores, w=None, rows=slice(None)):
    w = np.ones(N)[rows] if w is None else w[rows]
    z, scores = np.asarray(z, float)[rows], scores[rows]
    return np.average((z - np.average(z, weights=w)) * scores, weights=w, axis=0)


def chosen(kind):
    return slice(None) if kind is DemographicParity else Y == 1


def bound_of(constraint, x):
    """The covariances that a constraint sees: (c - bound, -c - bound) -> c."""
    upper, lower = np.split(np.asarray(constraint(x)), 2)
    np.testing.assert_allclose(upper + lower, -2 * constraint.bound, atol=1e-6)
    return (upper - lower) / 2


W = np.random.default_rng(1).normal(size=n)


@pytest.mark.parametrize("A", [X, S], ids=["dense", "sparse"])
@KINDS
def test_covariance_by_hand(kind, A):
    for w in (np.ones(N), WEIGHTS):
        constraint = kind(0.1).on(A, LABELS, w, sensitive=SEX)
        by_hand = covariance(SEX == "m", X @ W, w, chosen(kind))
        np.testing.assert_allclose(bound_of(constraint, W), [by_hand], atol=1e-5)


@KINDS
def test_attributes_of_several_values(kind):
    on = lambda z: bound_of(kind(0.1).on(X, LABELS, WEIGHTS, sensitive=z), W)  # noqa: E731
    hand = lambda z: covariance(z, X @ W, WEIGHTS, chosen(kind))  # noqa: E731
    np.testing.assert_allclose(on(AGE), [hand(AGE)], atol=1e-4)
    several = [hand(REGION == "north"), hand(REGION == "south")]
    np.testing.assert_allclose(on(REGION), several, atol=1e-5)
    np.testing.assert_allclose(on(REGION.tolist()), several, atol=1e-5)


@KINDS
def test_attribute_as_a_column(kind):
    given = kind(0.1).on(X, LABELS, WEIGHTS, sensitive=X[:, 5])
    for where, A in (("male", X), (5, X), (-1, S)):
        constraint = kind(0.1, where).on(A, LABELS, WEIGHTS, names=NAMES)
        np.testing.assert_allclose(constraint.directions, given.directions, atol=1e-12)


@KINDS
def test_covariance_of_every_class(kind):
    V = np.random.default_rng(2).normal(size=(n, 3))
    constraint = kind(0.1).on(X, THREE, WEIGHTS, sensitive=SEX, classes=3)
    rows = [slice(None)] * 3 if kind is DemographicParity else [c == THREE for c in range(3)]
    by_hand = [covariance(SEX == "m", X @ V[:, c], WEIGHTS, rows[c]) for c in range(3)]
    np.testing.assert_allclose(bound_of(constraint, V), by_hand, atol=1e-5)


def gap(model, truth=None):
    rates = selection_rates(model.predict(X) == 1, SEX, truth)
    return abs(rates["m"] - rates["f"])


def test_bound_holds_and_rates_come_closer():
    free = MoSSPClassifier().fit(X, Y)
    model = clone(PARITY).fit(X, Y, sensitive=SEX)
    unbounded = covariance(SEX == "m", free.decision_function(X))
    assert abs(unbounded) > 0.2 and gap(free) > 0.3
    bounded = covariance(SEX == "m", model.decision_function(X))
    assert abs(bounded - 0.01) < 1e-9 and model.certificate_.is_kkt(1e-10)  # active
    assert np.max(model.certificate_.multipliers["inequality"]) > 0
    assert gap(model) < gap(free) / 2
    wide = MoSSPClassifier(inequality=DemographicParity(10.0)).fit(X, Y, sensitive=SEX)
    np.testing.assert_allclose(wide.coef_, free.coef_, atol=1e-7)


def test_bounds_of_all_sizes_share_a_program():
    clone(PARITY).fit(X, Y, sensitive=SEX)
    compilations.clear()
    for bound in (0.05, 0.02):
        model = MoSSPClassifier(inequality=DemographicParity(bound)).fit(X, Y, sensitive=AGE > 40)
        assert abs(covariance(AGE > 40, model.decision_function(X))) <= bound + 1e-9
    assert not compilations


def test_bound_of_zero():
    model = MoSSPClassifier(inequality=DemographicParity(0)).fit(X, Y, sensitive=SEX)
    assert abs(covariance(SEX == "m", model.decision_function(X))) < 1e-9
    assert model.coef_.any()


def test_equal_opportunity_with_weights_and_a_second_constraint():
    model = MoSSPClassifier(inequality=[EqualOpportunity(0.02, "male"), "income <= 0.5"])
    pandas = pytest.importorskip("pandas")
    model.fit(pandas.DataFrame(X, columns=NAMES), Y, sample_weight=WEIGHTS)
    scores = X @ model.coef_[0] + model.intercept_
    assert abs(covariance(X[:, 5], scores, WEIGHTS, Y == 1)) <= 0.02 + 1e-9
    assert model.coef_[0, 0] <= 0.5 + 1e-9 and model.certificate_.is_kkt(1e-10)
    assert set(model.certificate_.multipliers["inequality"]) == {"0", "income <= 0.5"}


def test_every_class_is_bounded():
    model = MoSSPClassifier(inequality=DemographicParity(0.02)).fit(X, THREE, sensitive=SEX)
    free = MoSSPClassifier().fit(X, THREE)
    bounded, unbounded = (
        np.abs([covariance(SEX == "m", column) for column in m.decision_function(X).T])
        for m in (model, free)
    )
    assert unbounded.max() > 0.2 and model.certificate_.is_kkt(1e-10)
    assert abs(bounded.max() - 0.02) < 1e-9  # active


def test_folds_take_their_part_of_the_attribute():
    lams = [0.01, 0.05]
    search = GridSearchCV(PARITY, {"lam": lams}, cv=KFold(5)).fit(X, Y, sensitive=SEX)
    train, test = next(iter(KFold(5).split(X)))
    model = clone(PARITY).set_params(lam=0.01).fit(X[train], Y[train], sensitive=SEX[train])
    assert search.cv_results_["split0_test_score"][0] == model.score(X[test], Y[test])
    path = PathCV(PARITY, lams=lams, cv=KFold(5)).fit(X, Y, sensitive=SEX.tolist())
    assert path.lam_ == search.best_params_["lam"]
    np.testing.assert_allclose(path.coef_, search.best_estimator_.coef_, atol=1e-7)


def test_bound_beside_a_constrained_intercept():
    model = clone(PARITY).set_params(constrain_intercept=True).fit(X, Y, sensitive=SEX)
    assert abs(covariance(SEX == "m", model.decision_function(X))) <= 0.01 + 1e-9
    assert model.certificate_.is_kkt(1e-8)
    free = clone(PARITY).fit(X, Y, sensitive=SEX)  # a covariance does not see the intercept
    np.testing.assert_allclose(model.coef_, free.coef_, atol=1e-7)
    np.testing.assert_allclose(model.intercept_, free.intercept_, atol=1e-7)


def test_stream_has_no_bound_over_all_rows():
    with pytest.raises(ValueError, match="over all rows, and partial_fit sees some"):
        clone(PARITY).partial_fit(X[:32], Y[:32], classes=[0, 1])


def test_missing_value_of_a_text_attribute():
    with pytest.raises(ValueError, match="missing"):
        clone(PARITY).fit(X, Y, sensitive=[None, *SEX[1:]])


def test_selection_rates():
    decided, z, truth = [1, 0, 1, 1, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1]
    assert selection_rates(decided, z) == {0: 0.5, 1: pytest.approx(2 / 3)}
    assert selection_rates(decided, z, truth) == {0: 1.0, 1: 0.5}


def test_bounds_are_values():
    assert DemographicParity(0.1) == DemographicParity(0.1) != EqualOpportunity(0.1)
    assert repr(EqualOpportunity(0.1, "sex")) == "EqualOpportunity(0.1, attribute='sex')"
    assert len({DemographicParity(0.1), DemographicParity(0.1), DemographicParity(0.2)}) == 2


WRONG = {
    "no attribute": (DemographicParity(0.1), {}, "needs the protected attribute of every row"),
    "too short": (DemographicParity(0.1), {"sensitive": SEX[1:]}, "one value for each of the 125"),
    "one value": (DemographicParity(0.1), {"sensitive": ["f"] * N}, "one value only, f"),
    "NaN": (DemographicParity(0.1), {"sensitive": np.r_[np.nan, AGE[1:]]}, "missing or infinite"),
    "a name without names": (DemographicParity(0.1, "sex"), {}, "give its number, or a data frame"),
    "a column too many": (EqualOpportunity(0.1, 6), {}, "names column 6, but X has 6 columns"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_a_sentence(name):
    bound, given, text = WRONG[name]
    with pytest.raises(ValueError, match=text):
        MoSSPClassifier(inequality=bound).fit(X, Y, **given)


def test_wrong_bounds():
    with pytest.raises(ValueError, match="bound must be at least 0 and finite, but -1"):
        DemographicParity(-1)
    with pytest.raises(TypeError, match="bound must be a number"):
        DemographicParity("0.1")
    with pytest.raises(TypeError, match="equality must be a function"):
        MoSSPClassifier(equality=DemographicParity(0.1)).fit(X, Y, sensitive=SEX)
