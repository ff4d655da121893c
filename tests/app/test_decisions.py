"""Thresholds of decisions, by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="`mossp fit` is built on the estimators")

from sklearn import metrics

from mossp.app.features import Features
from mossp.app.fitting.decisions import confusion, decided, threshold_of
from mossp.app.fitting.rows import Sample
from mossp.app.model import Model, ModelError

rng = np.random.default_rng(1)
Y = np.where(rng.random(200) < 0.15, "yes", "no")
P = np.round(np.clip(0.12 + 0.2 * (Y == "yes") + 0.15 * rng.normal(size=200), 0.01, 0.99), 2)


class Known:
    classes_ = np.array(["no", "yes"])

    def predict_proba(self, X, offset=None):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X, offset=None):
        return self.classes_[(X[:, 0] > 0.5).astype(int)]


ROWS = Sample(P[:, None], Y, None, {})
CUTS = np.concatenate([np.unique(P)[:-1] + 0.0025])


def at(cut):
    return metrics.recall_score(Y == "yes", cut < P), metrics.precision_score(Y == "yes", cut < P)


@pytest.mark.parametrize("text", ["balanced", "f1", "recall>=0.8", "precision >= 0.6", "fpr<=0.05"])
def test_a_criterion_is_met_and_no_threshold_is_better(text):
    found = threshold_of(text, Known(), ROWS)
    decisions = decided(Known(), ROWS, found) == "yes"
    truth = Y == "yes"
    if text in ("balanced", "f1"):
        score = metrics.balanced_accuracy_score if text == "balanced" else metrics.f1_score
        assert score(truth, decisions) == pytest.approx(max(score(truth, c < P) for c in CUTS))
        return
    recall, precision = at(found)
    fpr = np.mean(decisions[~truth])
    if text.startswith("recall"):
        assert recall >= 0.8 and all(at(c)[0] < 0.8 for c in CUTS if c > found + 0.01)
    elif text.startswith("precision"):
        assert precision >= 0.6 and all(at(c)[1] < 0.6 for c in CUTS if c < found - 0.01)
    else:
        assert fpr <= 0.05
        assert all(np.mean((c < P)[~truth]) > 0.05 for c in CUTS if c < found - 0.01)


def test_confusion_counts():
    table = confusion(Known(), ROWS, 0.3)
    expected = metrics.confusion_matrix(Y, np.where(P > 0.3, "yes", "no"))
    assert table == expected.tolist() and sum(map(sum, table)) == 200


def test_what_is_no_threshold():
    for text, part in {
        "often": "--threshold must be a number", "recall<=0.5": "must be a number",
        "1.5": "between 0 and 1", "precision>=1.1": "No threshold has",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=part):
            threshold_of(text, Known(), ROWS)


def test_the_model_decides_at_its_threshold(tmp_path):
    features = Features((("a", None),), (0.0,), (1.0,))
    make = lambda t: Model("classifier", "logistic", "y", ["n", "y"], features, [[1.0]], [0.0],  # noqa: E731
                           threshold=t)  # fmt: skip
    X = np.linspace(-3, 3, 50)[:, None]
    model = make(0.2)
    np.testing.assert_array_equal(model.predict(X) == "y", model.probabilities(X)[:, 1] > 0.2)
    assert Model.load(model.save(tmp_path / "m")).threshold == 0.2
    for wrong in (0.0, 1.0, np.nan):
        with pytest.raises(ModelError, match="A threshold is for two classes"):
            make(wrong)
