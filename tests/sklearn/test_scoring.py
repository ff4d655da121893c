"""What decides along a path: the model's own loss, or any of scikit-learn's scores."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics
from sklearn.model_selection import KFold

from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV
from mossp.sklearn.scoring import judged_by, minus_loss, scorer_of

rng = np.random.default_rng(0)
N, n = 300, 4
X = rng.normal(size=(N, n))
RARE = np.where(X[:, 0] - 2.6 + rng.logistic(size=N) > 0, "yes", "no")  # about a tenth
LAMS = [0.2, 0.05, 0.01, 0.002]


def fixed(model, coef, intercept, classes=None):
    """A model with given coefficients: no solve."""
    model.coef_, model.intercept_ = np.asarray(coef, float), intercept
    model.n_features_in_, model.with_offset_ = n, False
    if classes is not None:
        model.classes_ = np.array(classes)
    return model


def test_the_own_loss_is_that_of_scikit_learn():
    weights = rng.uniform(0.5, 2, N)
    two = fixed(MoSSPClassifier(), [[1.0, -0.5, 0, 0]], np.array([-2.0]), ["no", "yes"])
    expected = metrics.log_loss(RARE, two.predict_proba(X), sample_weight=weights)
    assert minus_loss(two, X, RARE, weights) == pytest.approx(-expected, abs=1e-9)
    three = fixed(MoSSPClassifier(), rng.normal(size=(3, n)), np.zeros(3), ["a", "b", "c"])
    y = rng.choice(["a", "b", "c"], N)
    assert minus_loss(three, X, y) == pytest.approx(-metrics.log_loss(y, three.predict_proba(X)))
    hinge = fixed(MoSSPClassifier("huberized-hinge:1e-6"), [[1.0, 0, 0, 0]], np.array([0.1]),
                  ["no", "yes"])  # fmt: skip
    scores = hinge.decision_function(X)
    assert minus_loss(hinge, X, RARE) == pytest.approx(-metrics.hinge_loss(RARE, scores), abs=1e-5)
    counts = rng.poisson(2.0, N)
    poisson = fixed(MoSSPRegressor("poisson"), [0.1, 0, 0, 0], 0.5)
    other = fixed(MoSSPRegressor("poisson"), [0.2, 0, 0, 0.1], 0.6)
    deviance = [metrics.mean_poisson_deviance(counts, m.predict(X)) for m in (poisson, other)]
    ours = [minus_loss(m, X, counts) for m in (poisson, other)]
    assert ours[1] - ours[0] == pytest.approx((deviance[0] - deviance[1]) / 2)


def test_text_classes_have_a_positive_one():
    model = fixed(MoSSPClassifier(), [[1.0, -0.5, 0, 0]], np.array([-1.0]), ["no", "yes"])
    truth, taken = RARE == "yes", model.predict(X) == "yes"
    for name, expected in {
        "f1": metrics.f1_score(truth, taken),
        "average_precision": metrics.average_precision_score(truth, model.decision_function(X)),
        "recall": metrics.recall_score(truth, taken),
        "balanced_accuracy": metrics.balanced_accuracy_score(truth, taken),
        "neg_log_loss": -metrics.log_loss(RARE, model.predict_proba(X)),
    }.items():
        judged, targets = judged_by(name, model, RARE)
        assert scorer_of(model, name)(judged, X, targets) == pytest.approx(expected), name
    with pytest.raises(ValueError, match="no scoring 'roc_acu' in scikit-learn"):
        scorer_of(model, "roc_acu")


def test_log_loss_decides_and_both_choices_are_kept():
    folds = KFold(3, shuffle=True, random_state=0)
    by_default = PathCV(MoSSPClassifier(), lams=LAMS, cv=folds).fit(X, RARE)
    by_name = PathCV(MoSSPClassifier(), lams=LAMS, cv=folds, scoring="neg_log_loss").fit(X, RARE)
    np.testing.assert_allclose(by_default.scores_, by_name.scores_, atol=1e-9)
    assert by_default.lam_ == by_default.lam_best_ <= by_default.lam_1se_
    assert by_default.score(X, RARE) == np.mean(by_default.predict(X) == RARE)  # still the accuracy
    wide = PathCV(MoSSPClassifier(), lams=LAMS, cv=folds, choose="1se").fit(X, RARE)
    assert wide.lam_ == wide.lam_1se_ == by_default.lam_1se_
    ranked = PathCV(MoSSPClassifier(), lams=LAMS, cv=folds, scoring="average_precision")
    assert 0 < ranked.fit(X, RARE).score(X, RARE) < 1
