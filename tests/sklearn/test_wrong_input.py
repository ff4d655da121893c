"""Wrong input is refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV, SparseCCA, SparsePCA
from tests.sklearn.rows import FOLDS, TARGET, TWO, N, X

BROKEN = X.copy()
BROKEN[3, 2] = np.nan
C, R = MoSSPClassifier, MoSSPRegressor

WRONG = {
    "a loss that is not there": (C("logistc"), X, TWO, {}, "Did you mean 'logistic'"),
    "a loss of regression": (C("huber"), X, TWO, {}, "takes the losses logistic"),
    "a loss of classification": (R("logistic"), X, TARGET, {}, "takes the losses squared"),
    "a number as loss": (C(3), X, TWO, {}, "loss must be a name"),
    "a regulariser": (C(regularizer="mpc"), X, TWO, {}, "no regulariser 'mpc'.*Did you mean 'mcp'"),
    "a number as regulariser": (C(regularizer=1), X, TWO, {}, "regularizer must be a name"),
    "a negative strength": (C(lam=-1.0), X, TWO, {}, "lam"),
    "a constraint on nothing": (C(equality="1 = 2"), X, TWO, {}, "it constrains nothing"),
    "an unknown column": (C(inequality="age <= 1"), X, TWO, {}, "age"),
    "a column too many": (C(inequality="x[6] <= 1"), X, TWO, {}, "6"),
    "the wrong relation": (C(equality="x <= 1"), X, TWO, {}, "give it as inequality"),
    "the other wrong relation": (C(inequality="x = 1"), X, TWO, {}, "give it as equality"),
    "a number as constraint": (C(equality=[1.0]), X, TWO, {}, "equality must be a function"),
    "one class": (C(), X, np.ones(N), {}, "at least 2 classes, but y has one class only"),
    "a long class": (C(), X, np.full(N, "c" * 450), {}, "one class only: 'c{59}…c{20}'"),
    "NaN": (C(), BROKEN, TWO, {}, "NaN"),
    "a negative weight": (R(), X, TARGET, {"sample_weight": np.full(N, -1.0)}, "[Nn]egative"),
    "no weight": (R(), X, TARGET, {"sample_weight": np.zeros(N)}, "at least one"),
    "few weights of features": (
        R(feature_weights=[1.0]),
        X,
        TARGET,
        {},
        "one weight for each of the 6 features",
    ),
    "negative counts": (R("poisson"), X, TARGET, {}, "needs counts"),
    "negative amounts": (R("gamma"), X, TARGET, {}, "needs positive numbers"),
    "a power": (R("tweedie:2.5"), X, TARGET, {}, "power between 1 and 2"),
    "l2": (R(regularizer="l2"), X, TARGET, {}, "Did you mean 'ridge'"),
    "too many components": (SparsePCA(7), X, None, {}, "n_components = 7 is more than the 6"),
    "no component": (SparsePCA(0), X, None, {}, "n_components must be at least 1"),
    "too many pairs": (SparseCCA(2), X, TARGET, {}, "n_components = 2 is more than the 1"),
    "starts and replicas": (C(n_starts=2, n_replicas=2), X, TWO, {}, "leave one of them out"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_a_sentence(name):
    model, A, y, given, text = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=text):
        model.fit(A, y, **given)


def test_three_strengths_of_a_pair_are_refused():
    with pytest.raises(ValueError, match="pair"):
        SparseCCA(lam=(1, 2, 3)).fit(X[:, :3], X[:, 3:])


def test_path_refuses_a_fold_without_weight():
    w = np.r_[np.ones(25), np.zeros(100)]
    with pytest.raises(ValueError, match="weight"):
        PathCV(MoSSPRegressor(), lams=[0.1], cv=FOLDS).fit(X, TARGET, sample_weight=w)
