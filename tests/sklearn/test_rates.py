"""Bounds on true rates: what estimators promise, by counting their predictions anew."""

import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mossp
from mossp import rates
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV
from mossp.sklearn.captured import captured

pytestmark = pytest.mark.slow

N = 900


def made():
    rng = np.random.default_rng(0)
    sex = rng.choice(["F", "M"], N, p=[0.4, 0.6])
    X = rng.normal(size=(N, 5))
    X[:, 1] += 0.8 * (sex == "M")
    score = X @ np.array([1.0, 0.8, -0.5, 0.0, 0.3]) + rng.logistic(size=N)
    return X, (score > 0.5).astype(int), sex, score


X, Y, SEX, SCORE = made()
LOGISTIC = MoSSPClassifier(lam=0.01)


def rate(name, predicted, mask=slice(None), truth=Y):
    tn, fp, fn, tp = confusion_matrix(truth[mask], predicted[mask]).ravel()
    return {"fpr": fp / (fp + tn), "tpr": tp / (tp + fn), "precision": tp / (tp + fp),
            "selection": (tp + fp) / (tp + fp + fn + tn)}[name]  # fmt: skip


def fitted(*bounds, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return clone(LOGISTIC).set_params(rates=list(bounds), **settings).fit(
            X, Y, sensitive={"sex": SEX, "unused": np.arange(N)}
        )  # fmt: skip


# What is promised ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "group", "bound", "below"),
    [
        ("fpr <= 0.05", "fpr", None, 0.05, True),
        ("tpr[sex=F] >= 0.75", "tpr", "F", 0.75, False),
        ("precision >= 0.85", "precision", None, 0.85, False),
        ("selection = 0.3", "selection", None, 0.3, None),
    ],
)
def test_one_true_rate_is_met_with_little_to_spare(text, name, group, bound, below):
    model = fitted(text)
    mask = np.ones(N, bool) if group is None else group == SEX
    predicted = model.predict(X)
    found = rate(name, predicted, mask)
    rows = {"fpr": (mask & (Y == 0)).sum(), "tpr": (mask & (Y == 1)).sum(), "selection": N,
            "precision": predicted.sum()}[name]  # fmt: skip
    assert model.rates_ == pytest.approx({text: found}, abs=1e-12)
    if below is None:
        assert abs(found - bound) <= 1 / rows + 1e-9
    else:
        slack = bound - found if below else found - bound
        assert -1e-9 <= slack <= 1 / rows + 0.002
    assert model.result_.success and model.certificate_.is_kkt(1e-10, relative=True)
    told = model.result_.settings["rates"]
    assert told["met"] and told["true"] == model.rates_ and text in told["smooth"]


def test_several_rates_and_a_constraint_on_coefficients():
    gap = "|selection[sex=F] - selection[sex=M]| <= 0.05"
    model = fitted("fpr <= 0.15", gap, rates.tpr() >= 0.5, inequality="x[0] <= 0.5")
    predicted = model.predict(X)
    difference = rate("selection", predicted, SEX == "F") - rate("selection", predicted, SEX == "M")
    assert abs(difference) <= 0.05 + 1e-9
    assert rate("fpr", predicted) <= 0.15 + 1e-9
    assert rate("tpr", predicted) >= 0.5 - 1e-9
    assert model.coef_[0, 0] <= 0.5 + 1e-9
    assert list(model.rates_) == ["fpr <= 0.15", gap, "tpr >= 0.5"]


def test_rates_that_hold_anyway_change_nothing():
    free = clone(LOGISTIC).fit(X, Y)
    model = fitted("fpr <= 0.9")
    np.testing.assert_allclose(model.coef_, free.coef_, atol=1e-9)
    assert model.result_.settings["rates"]["solves"] == 1


def test_what_no_coefficients_reach_is_said_and_the_nearest_is_handed_back():
    model = clone(LOGISTIC).set_params(rates=["tpr >= 0.97", "fpr <= 0.02"])
    with pytest.warns(ConvergenceWarning, match="No coefficients were found whose true rates"):
        model.fit(X, Y)
    assert not model.result_.success
    assert model.result_.status.name in ("INFEASIBLE_STATIONARY", "BUDGET")
    assert model.rates_["tpr >= 0.97"] == pytest.approx(rate("tpr", model.predict(X)))
    missed = 0.97 - model.rates_["tpr >= 0.97"], model.rates_["fpr <= 0.02"] - 0.02
    plain = clone(LOGISTIC).fit(X, Y)
    free = plain.predict(X)
    assert max(missed) <= max(0.97 - rate("tpr", free), rate("fpr", free) - 0.02)
    # Not on its way to infinity, where smooth rates come as near as they can.
    assert np.abs(model.coef_).max() < 100 * np.abs(plain.coef_).max()


def test_three_classes_by_name():
    y = np.array(["a", "b", "c"])[np.digitize(SCORE, [-0.3, 1.3])]
    model = MoSSPClassifier(lam=0.005, rates=["tpr[b] >= 0.6", "fpr[c] <= 0.1"]).fit(X, y)
    predicted = model.predict(X)
    assert (predicted[y == "b"] == "b").mean() >= 0.6 - 1e-9
    assert (predicted[y != "c"] == "c").mean() <= 0.1 + 1e-9


def test_weights_of_rows_count_and_weights_of_classes_do_not():
    w = np.random.default_rng(1).random(N)
    model = clone(LOGISTIC).set_params(rates="selection <= 0.2", class_weight="balanced")
    model.fit(X, Y, sample_weight=w)
    (found,) = model.rates_.values()
    assert found == pytest.approx(np.average(model.predict(X), weights=w))
    assert 0.195 < found <= 0.2 + 1e-9


def test_a_margin_for_new_rows_is_what_a_binomial_bound_needs():
    import scipy.stats

    model = fitted("fpr <= 0.1", rates_margin=0.9)
    count, rows = model.predict(X)[Y == 0].sum(), (Y == 0).sum()
    test = scipy.stats.binomtest(int(count), int(rows), alternative="less")
    assert test.proportion_ci(0.9, "exact").high <= 0.1
    more = scipy.stats.binomtest(int(count + 4), int(rows), alternative="less")
    assert more.proportion_ci(0.9, "exact").high > 0.1  # nor is much given away
    assert fitted("precision >= 0.8", rates_margin=0.9).rates_["precision >= 0.8"] > 0.815


def test_a_regressor_bounds_the_mean_loss_of_a_group_exactly():
    target = X @ np.array([1.0, 0.5, 0.0, 0.0, 0.0]) + np.where(SEX == "F", 1.5 * X[:, 3], 0.1)
    free = MoSSPRegressor(lam=0.05).fit(X, target)
    loss = lambda m: 0.5 * np.mean((m.predict(X) - target)[SEX == "F"] ** 2)  # noqa: E731
    text = "mean loss[sex=F] <= 0.3"
    model = MoSSPRegressor(lam=0.05, rates=text).fit(X, target, sensitive={"sex": SEX})
    assert loss(free) > 0.4
    assert loss(model) == pytest.approx(0.3, abs=1e-8)
    assert model.rates_ == {text: pytest.approx(0.3, abs=1e-8)}
    assert model.result_.success


def test_a_hinge_keeps_rates_too():
    model = fitted("fpr <= 0.1", loss="huberized-hinge")
    assert 0.1 - 1 / (Y == 0).sum() - 0.002 <= rate("fpr", model.predict(X)) <= 0.1 + 1e-9


# Where groups come from ---------------------------------------------------------------------------


def test_groups_from_all_that_sensitive_may_be():
    text = "|selection[sex=F] - selection[sex=M]| <= 0.05"
    model = clone(LOGISTIC).set_params(rates=text)
    by_dict = clone(model).fit(X, Y, sensitive={"sex": SEX}).coef_
    frame = pd.DataFrame({"other": np.arange(N), "sex": SEX})
    for given in (frame, frame["sex"], SEX):
        np.testing.assert_array_equal(clone(model).fit(X, Y, sensitive=given).coef_, by_dict)
    unnamed = model.set_params(rates="|selection[F] - selection[sensitive=M]| <= 0.05")
    np.testing.assert_array_equal(clone(unnamed).fit(X, Y, sensitive=SEX).coef_, by_dict)


def test_groups_from_a_column_of_a_data_frame():
    frame = pd.DataFrame(X, columns=list("abcde")).assign(male=(SEX == "M").astype(int))
    text = "|tpr[male=0] - tpr[male=1]| <= 0.03"
    model = clone(LOGISTIC).set_params(rates=text).fit(frame, Y)
    predicted = model.predict(frame)
    gap = rate("tpr", predicted, SEX == "F") - rate("tpr", predicted, SEX == "M")
    assert abs(gap) <= 0.03 + 1e-9
    scaler = StandardScaler().set_output(transform="pandas")
    piped = make_pipeline(scaler, clone(LOGISTIC).set_params(rates="tpr[sex=F] >= 0.7"))
    piped.fit(frame, Y, mosspclassifier__sensitive=pd.Series(SEX, name="sex"))
    assert rate("tpr", piped.predict(frame), SEX == "F") >= 0.7 - 1e-9


# Folds, copies, streams ---------------------------------------------------------------------------


def test_folds_are_bound_to_their_own_rows():
    seen = []

    def counted(model, X_test, y_test):
        seen.append(model.rates_["fpr[sex=F] <= 0.05"])
        return model.score(X_test, y_test)

    model = clone(LOGISTIC).set_params(rates=["fpr[sex=F] <= 0.05"])
    frame = pd.DataFrame({"sex": SEX})
    search = GridSearchCV(model, {"lam": [0.02, 0.005]}, cv=KFold(2), scoring=counted)
    search.fit(X, Y, sensitive=frame)
    train = np.arange(N) >= N // 2  # of the first fold
    again = clone(model).set_params(lam=0.02).fit(X[train], Y[train], sensitive=frame[train])
    assert seen[0] == again.rates_["fpr[sex=F] <= 0.05"]
    assert len(seen) == 4 and max(seen) <= 0.05 + 1e-9
    women = SEX == "F"
    assert rate("fpr", search.predict(X), women) <= 0.05 + 1e-9
    with pytest.raises(ValueError, match="do not cut a dict: give a data frame"):
        GridSearchCV(model, {"lam": [0.02]}, cv=KFold(2), error_score="raise").fit(
            X, Y, sensitive={"sex": SEX}
        )


def test_a_path_chooses_among_strengths_that_meet_the_rates():
    model = clone(LOGISTIC).set_params(rates=["fpr[sex=F] <= 0.05"])
    search = PathCV(model, lams=[0.02, 0.005], cv=KFold(2)).fit(X, Y, sensitive={"sex": SEX})
    counted = rate("fpr", search.predict(X), SEX == "F")
    assert search.rates_["fpr[sex=F] <= 0.05"] == pytest.approx(counted)
    assert search.rates_["fpr[sex=F] <= 0.05"] <= 0.05 + 1e-9
    assert all(r.settings["rates"]["met"] for r in search.path_.results)


def test_copies_and_pickles_keep_rates():
    model = fitted(rates.fpr() <= 0.05)
    other = pickle.loads(pickle.dumps(model))
    assert other.rates_ == model.rates_
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    again = clone(model).fit(X, Y)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert not hasattr(again.set_params(rates=None).fit(X, Y), "rates_")


# Means over rows as constraints of an estimator ---------------------------------------------------


def squares(x, batch):
    A, _, _ = batch
    return jnp.mean((A @ x) ** 2) - 0.2


def test_an_expected_constraint_is_of_the_rows_fitted_to():
    model = clone(LOGISTIC).set_params(inequality=[mossp.Expected(squares), "x[0] <= 0.3"])
    for rows in (slice(0, 500), slice(400, 900)):
        made = clone(model).fit(X[rows], Y[rows])
        mean = np.mean((X[rows] @ made.coef_[0]) ** 2)
        assert mean == pytest.approx(0.2, abs=1e-9)
        assert made.coef_[0, 0] <= 0.3 + 1e-9 and made.result_.success
    own = clone(LOGISTIC).set_params(
        inequality=mossp.Expected(lambda x, batch: jnp.mean((batch @ x) ** 2) - 0.1, data=X[:100])
    )
    assert np.mean((X[:100] @ own.fit(X, Y).coef_[0]) ** 2) == pytest.approx(0.1, abs=1e-9)


def test_rows_that_a_constraint_captured_are_said_in_cross_validation():
    held = jnp.asarray(X)
    function = lambda x: jnp.mean((held @ x) ** 2) - 0.2  # noqa: E731
    model = clone(LOGISTIC).set_params(inequality=function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).fit(X, Y)  # of all rows, as it says
        clone(LOGISTIC).set_params(inequality=mossp.Expected(squares))
    for run in (
        lambda: PathCV(model, lams=[0.02, 0.01], cv=2).fit(X, Y),
        lambda: cross_val_score(model, X, Y, cv=2),
        lambda: cross_val_predict(model, X, Y, cv=2),
    ):
        with pytest.warns(UserWarning, match=r"holds `held` with 900 rows, as many as X has"):
            run()


def test_where_captured_rows_are_found():
    import functools

    long, short = np.zeros((N, 2)), np.zeros(3)
    assert captured(lambda x: x @ long, N) == "`long`"
    assert captured(lambda x, a=long: x @ a, N) == "`a`"
    assert captured(lambda x: X @ x, N) == "`X`"  # of this module
    assert captured(lambda x: x @ short, N) is None
    assert captured(functools.partial(lambda a, x: x, long), N) == "an argument of shape (900, 2)"
    assert captured(mossp.constraints.Linear(np.ones((N, 2)), np.ones(N)), N) is not None
    assert captured(mossp.constraints.Sphere(), N) is None

    def margins(x):
        return long @ x

    rows = {"X": long, "y": short}
    assert captured(lambda x: jnp.mean(margins(x)), N) == "`long`"  # of a helper
    jitted = jax.jit(margins)
    assert captured(lambda x: jnp.mean(jitted(x)), N) == "`long`"
    assert captured(lambda x: (lambda w: long @ w)(x), N) == "`long`"
    assert captured(lambda x: (lambda w: X @ w)(x), N) == "`X`"
    assert captured(lambda x: rows["X"] @ x, N) == "`rows`"
    assert captured(lambda x, a=long.T: x @ a, N) == "`a`"
    assert captured(lambda x: jnp.mean(x * short), N) is None


def test_constraints_of_an_estimator_may_have_names():
    given = {
        "size": mossp.Expected(squares),
        "first": lambda x: x[0] - 0.4,
        "text": "x[1] <= 0.3",
    }
    model = clone(LOGISTIC).set_params(inequality=given).fit(X, Y)
    multipliers = model.certificate_.multipliers["inequality"]
    assert model.result_.success and set(multipliers) == {"coefficients", "size"}
    assert {"first", "text"} <= set(multipliers["coefficients"])
    listed = clone(LOGISTIC).set_params(inequality=list(given.values())).fit(X, Y)
    np.testing.assert_allclose(listed.coef_, model.coef_, atol=1e-9)
    with pytest.raises(ValueError, match="cannot have the name 'coefficients': choose another"):
        clone(LOGISTIC).set_params(inequality={"coefficients": given["first"]}).fit(X, Y)
    with pytest.raises(TypeError, match=r"asks for x and batch: write mossp\.Expected"):
        clone(LOGISTIC).set_params(inequality=squares).fit(X, Y)


# Wrong input --------------------------------------------------------------------------------------

WRONG = {
    "text": ({"rates": "frp <= 0.1"}, {}, "There is no rate `frp`"),
    "type": ({"rates": [0.05]}, {}, "rates must be text such as 'fpr <= 0.05'"),
    "one object": ({"rates": 0.05}, {}, "rates must be text such as 'fpr <= 0.05'"),
    "column": ({"rates": "tpr[sx=F] >= 0.5"}, {"sensitive": {"sex": SEX}}, "did you mean `sex`?"),
    "value": ({"rates": "tpr[sex=f] >= 0.5"}, {"sensitive": {"sex": SEX}}, "did you mean `F`?"),
    "no column": ({"rates": "tpr[sex=F] >= 0.5"}, {}, "there are none: give fit"),
    "against": ({"rates": ["fpr <= 0.1", "fpr >= 0.2"]}, {}, "contradict each other"),
    "class": ({"rates": "tpr[7] >= 0.5"}, {}, "names the class `7`"),
    "margin": ({"rates": "fpr <= 0.1", "rates_margin": 95}, {}, "a confidence from 0.5 to below 1"),
    "few": ({"rates": "fpr[sex=F] <= 0.01", "rates_margin": 0.999}, {"sensitive": {"sex": SEX}},
            "cannot be promised for new rows"),
    "short": ({"rates": "tpr[sex=F] >= 0.5"}, {"sensitive": {"sex": SEX[1:]}},
              "one value for each of the 900 rows in its column sex"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_sentence_before_anything_is_solved(case, monkeypatch):
    params, given, sentence = WRONG[case]
    monkeypatch.setattr("mossp.sklearn.rates.solve", lambda *_, **__: pytest.fail("solved"))
    with pytest.raises((ValueError, TypeError)) as caught:
        clone(LOGISTIC).set_params(**params).fit(X, Y, **given)
    assert sentence in str(caught.value)


def test_a_regressor_makes_no_decisions():
    with pytest.raises(ValueError, match="is about decisions, but the target is a number"):
        MoSSPRegressor(rates="fpr <= 0.1").fit(X, SCORE)
