"""partial_fit with bounds on rates: estimates by hand, steering on fresh rows, refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse

from mossp import rates
from mossp.rates.binding import bind, unshared
from mossp.rates.running import Running
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor

BOUNDS = [
    rates.fpr() <= 0.3,
    abs(rates.tpr(sex="F") - rates.tpr(sex="M")) <= 0.1,
    rates.precision(sex="M") >= 0.5,
    rates.accuracy() >= 0.5,
    rates.mean_loss(sex="F") <= 2.0,
]
OF_THREE = [
    rates.accuracy(class_="b") >= 0.4,
    rates.tpr(class_="c", sex="F") >= 0.2,
    rates.accuracy() >= 0.1,
]


def decided(N, classes=2, seed=0):
    """Random classes, decisions, losses, weights and an attribute."""
    rng = np.random.default_rng(seed)
    y, d = rng.integers(classes, size=(2, N))
    sex = rng.choice(["F", "M"], N)
    return y, d, rng.random(N), rng.uniform(0.5, 2, N), {"sex": sex}


def fed(bounds, parts, classes):
    """What the estimates are after these parts, the first of them judged as well."""
    running = None
    for y, d, losses, w, columns in parts:
        rows = unshared(bounds, y, classes, w, columns, strict=running is None)
        running = Running.of(rows) if running is None else running
        true = np.stack(rows.bounded.seen(d, losses), axis=1)
        running = running.grown(rows).seen(rows, true, true / 2)
    return running


@pytest.mark.parametrize("classes", [2, 3])
def test_estimates_are_weighted_rates(classes):
    """Those of all rows with weights i^3 w_i, by the code that `fit` counts with."""
    names = list("abc"[:classes])
    bounds = BOUNDS if classes == 2 else OF_THREE
    y, d, losses, w, columns = decided(240, classes)
    cuts = [slice(0, 70), slice(70, 71), slice(71, 160), slice(160, 240)]
    parts = [(y[c], d[c], losses[c], w[c], {"sex": columns["sex"][c]}) for c in cuts]
    running = fed(bounds, parts, names)
    grown = w * np.arange(1, 241) ** 3.0
    whole = bind(bounds, y, names, grown, columns, check=False).values(d, losses)
    found = running.values()
    assert {text: value for text, (value, _) in found.items()} == pytest.approx(whole, rel=1e-9)
    # Half of every decision: the shift is half of what is linear in them.
    exact = bind(bounds, y, names, grown, columns, check=False)
    means = exact.means(d, losses)
    if classes == 2:
        np.testing.assert_allclose(running.shift, -exact.matrix @ means / 2, rtol=1e-9)
        np.testing.assert_allclose(running.bounded.constant, exact.constant)


def test_standard_errors_are_those_of_repetition():
    """Over many streams, estimates scatter as they say they do."""
    bounds, found = BOUNDS[:3], []
    for seed in range(300):
        found.append(fed(bounds, [decided(150, seed=seed), decided(150, seed=seed + 1000)], "ab"))
    for bound in bounds[:1] + bounds[2:]:  # the other one has a kink at 0, its mean
        values, errors = np.array([running.values()[bound.text] for running in found]).T
        assert np.std(values) == pytest.approx(np.sqrt(np.mean(errors**2)), rel=0.15)


def test_errors_are_no_less_than_one_row():
    y, _, losses, w, columns = decided(50)
    running = fed(BOUNDS[:1], [(y, np.zeros(50, int), losses, w, columns)], "ab")
    value, error = running.values()["fpr <= 0.3"]
    assert value == 0 and 1 / 50 < error < 0.2


def test_groups_that_come_later_keep_their_columns():
    y, _, _, w, columns = decided(60)
    for only in ("F", "M"):
        some = columns["sex"] == only
        part = unshared(BOUNDS, y[some], "ab", w[some], {"sex": columns["sex"][some]})
        whole = unshared(BOUNDS, y, "ab", w, columns)
        assert part.bounded.kinds == whole.bounded.kinds
        np.testing.assert_array_equal(part.counted, whole.counted[some])
        np.testing.assert_array_equal(part.members, whole.members[some])
        np.testing.assert_array_equal(part.bounded.matrix, whole.bounded.matrix)


# Estimators ---------------------------------------------------------------------------------------


def stream(N, seed):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["F", "M"], N, p=[0.4, 0.6])
    X = rng.normal(size=(N, 5))
    X[:, 1] += 0.8 * (sex == "M")
    return X, (X @ [1.0, 0.8, -0.5, 0.0, 0.3] + rng.logistic(size=N) > 0.5).astype(int), sex


def steered(model, calls, rows=512, first=0, form=np.asarray):
    for k in range(first, calls):
        X, y, sex = stream(rows, k)
        model.partial_fit(form(X), y, classes=[0, 1], sensitive={"sex": sex})
    return model


@pytest.mark.slow
def test_rates_of_a_stream_come_near_to_their_bounds():
    both = ["fpr <= 0.1", "|tpr[sex=F] - tpr[sex=M]| <= 0.02"]
    model = steered(MoSSPClassifier(lam=0.001, rates=both), 60)
    X, y, sex = stream(50_000, 999)
    decisions = model.predict(X)
    free = steered(MoSSPClassifier(lam=0.001), 20).predict(X)

    def gap(d):
        return abs(d[(y == 1) & (sex == "F")].mean() - d[(y == 1) & (sex == "M")].mean())

    assert free[y == 0].mean() > 0.2 and gap(free) > 0.08
    assert decisions[y == 0].mean() <= 0.12 and gap(decisions) <= 0.06
    assert decisions[y == 1].mean() > 0.25  # and not by deciding for nothing
    for text, truth in zip(both, (decisions[y == 0].mean(), gap(decisions)), strict=True):
        assert model.rates_[text] == pytest.approx(truth, abs=0.05)
        assert 0 < model.rates_error_[text] < 0.05
    assert not hasattr(model, "certificate_")


@pytest.mark.slow
def test_a_stream_with_rates_pickled_in_the_middle_goes_on_alike():
    model = MoSSPClassifier(rates="fpr <= 0.1")
    whole = steered(MoSSPClassifier(rates="fpr <= 0.1"), 4, rows=96)
    half = pickle.loads(pickle.dumps(steered(model, 2, rows=96)))
    rest = steered(half, 4, rows=96, first=2)
    np.testing.assert_array_equal(whole.coef_, rest.coef_)
    assert whole.rates_ == rest.rates_ and whole.rates_error_ == rest.rates_error_
    sparse = steered(MoSSPClassifier(rates="fpr <= 0.1"), 4, rows=96, form=scipy.sparse.csr_matrix)
    np.testing.assert_allclose(sparse.coef_, whole.coef_, atol=1e-8)


@pytest.mark.slow
def test_a_stream_of_numbers_with_a_bounded_loss():
    model = MoSSPRegressor(lam=0.001, rates="mean loss[F] <= 0.3")
    alone = MoSSPRegressor(lam=0.001)
    for k in range(40):
        X, _, sex = stream(256, k)
        y = np.where(sex == "F", -1.0, 1.0) * X[:, 0]  # the minority wants the opposite
        model.partial_fit(X, y, sensitive=sex)
        alone.partial_fit(X, y)
    X, _, sex = stream(20_000, 999)
    loss = [np.mean((m.predict(X) + X[:, 0])[sex == "F"] ** 2) / 2 for m in (model, alone)]
    assert loss[1] > 0.5 and loss[0] < 0.4
    assert model.rates_["mean loss[F] <= 0.3"] == pytest.approx(loss[0], abs=0.15)


@pytest.mark.slow
def test_fit_forgets_the_estimates_of_a_stream():
    model = steered(MoSSPClassifier(rates="fpr <= 0.3"), 2, rows=96)
    assert np.isfinite(model.rates_error_["fpr <= 0.3"])
    X, y, sex = stream(300, 5)
    model.fit(X, y, sensitive={"sex": sex})
    assert model.rates_["fpr <= 0.3"] <= 0.3 and not hasattr(model, "rates_error_")


def test_what_a_stream_cannot_have_is_said_first():
    X, y, sex = stream(64, 0)

    def fails(match, first=True, **settings):
        model = MoSSPClassifier(**settings)
        with pytest.raises(ValueError, match=match):
            model.partial_fit(X, y, [0, 1], sensitive={"sex": sex} if first else None)

    fails("first call of partial_fit must have rows", rates="tpr[sex=X] >= 0.1")
    fails("first call of partial_fit must have rows", rates="tpr[sex=F] >= 0.1", first=False)
    fails("rates_margin is a promise", rates="fpr <= 0.1", rates_margin=0.95)
    fails("contradict one another", rates=["fpr <= 0.1", "fpr >= 0.2"])


@pytest.mark.slow
def test_every_call_needs_the_columns_and_not_the_groups():
    X, y, sex = stream(64, 0)
    model = MoSSPClassifier(rates="tpr[sex=F] >= 0.1").partial_fit(
        X, y, [0, 1], sensitive={"sex": sex}
    )
    before = model.coef_
    with pytest.raises(ValueError, match="column `sex`, which is not there: give partial_fit"):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.coef_, before)
    men = sex == "M"
    model.partial_fit(X[men], y[men], sensitive={"sex": sex[men]})
    assert np.isnan(model.rates_["tpr[sex=F] >= 0.1"])  # of those judged, none was a woman
    model.partial_fit(X, y, sensitive={"sex": sex})
    assert np.isfinite(model.rates_["tpr[sex=F] >= 0.1"])
