"""scikit-learn's own checks, and how often an estimator compiles."""

from __future__ import annotations

import os

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV, SparseCCA, SparsePCA
from tests.compilations import compiled_by
from tests.problems import sphere
from tests.sklearn.rows import FOLDS, MIXED, SPHERE, TARGET, THREE, TWO, N, S, X

pytestmark = pytest.mark.slow


# scikit-learn's own checks -------------------------------------------------------------------


CHECKED = [MoSSPClassifier(), MoSSPRegressor(), SparsePCA(), SparseCCA()]
if os.environ.get("MOSSP_ALL_CHECKS"):  # a minute more
    CHECKED += [PathCV(model, lams=2, cv=2) for model in (MoSSPRegressor(), MoSSPClassifier())]


@parametrize_with_checks(CHECKED)
def test_estimator_checks(estimator, check):
    check(estimator)


# Compilation ---------------------------------------------------------------------------------

REPEATED = {
    "two classes": (MoSSPClassifier(), X, TWO),
    "three classes": (MoSSPClassifier(), X, THREE),
    "three classes, hinge": (MoSSPClassifier("huberized-hinge"), X, THREE),
    "regression": (MoSSPRegressor(), X, TARGET),
    "sparse classification": (MoSSPClassifier(), S, TWO),
    "sparse regression": (MoSSPRegressor(), S, TARGET),
    "a constraint as text": (MoSSPClassifier(equality=SPHERE), X, TWO),
    "constraints as text and as a function": (
        MoSSPRegressor(inequality=["x <= 0.5", sphere]),
        X,
        TARGET,
    ),
    "a path": (PathCV(MoSSPClassifier(), lams=4, cv=FOLDS), X, TWO),
    "components": (SparsePCA(2, lam=0.1), MIXED, None),
}


@pytest.mark.parametrize("name", REPEATED)
def test_second_fit_compiles_nothing(name):
    model, A, y = REPEATED[name]
    clone(model).fit(A, y)
    other = model if name == "a path" else clone(model).set_params(lam=0.03)
    rows = np.r_[5:N, 0:5]
    assert compiled_by(lambda: other.fit(A[rows], None if y is None else y[rows])) == 0


class Counted(MoSSPClassifier):
    """Notes how many programs every fit compiles."""

    counts: list[int] = []

    def fit(self, X, y, **given):
        Counted.counts.append(compiled_by(lambda: super(Counted, self).fit(X, y, **given)))
        return self


@pytest.fixture(scope="module")
def counts():
    """Programs compiled by each fit of a search, in a shape that no other test has."""
    Counted.counts.clear()
    lams = np.geomspace(0.1, 0.001, 10)
    search = GridSearchCV(Counted(inequality=sphere), {"lam": lams}, cv=5)
    search.fit(X[:120, :5], TWO[:120])
    return np.array(Counted.counts)


def test_two_fits_of_a_search_compile_and_hardly_any_other(counts):
    """One for the 96 rows of a fold, one for all 120; a small program may come in later."""
    assert len(counts) == 51 and counts[0] >= 1 and counts[-1] >= 1
    assert counts[1:-1].sum() <= 1


def test_at_most_two_fits_of_a_search_compile(counts):
    assert np.count_nonzero(counts) <= 2
