"""One data set for nearly all tests, whose five folds fall into the same bucket of rows.

Compilation costs most of the time.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.model_selection import KFold

from mossp.sklearn import MoSSPClassifier, MoSSPRegressor

N, n = 125, 6
rng = np.random.default_rng(0)
X = rng.normal(size=(N, n))
X[np.abs(X) < 0.4] = 0.0
S = scipy.sparse.csr_array(X)
TARGET = X @ np.array([1.5, -1.0, 0.5, 0, 0, 0]) + 0.3 + rng.normal(size=N)
COUNTS = rng.poisson(np.exp(0.4 * TARGET)).astype(float)
AMOUNTS = np.exp(0.4 * TARGET) * np.random.default_rng(2).gamma(2.0, size=N)
TWO = np.where(TARGET > 0.2, "yes", "no")
SIGN = np.where(TARGET > 0.2, 1.0, -1.0)
THREE = np.digitize(TARGET, [-0.8, 1.2])
ONE_AGAINST_REST = np.where(THREE[:, None] == np.arange(3), 1.0, -1.0)
WEIGHTS = np.ones(N, int)  # some rows left out, others twice: as many rows as before
WEIGHTS[:10], WEIGHTS[10:20] = 0, 2
MIXED = X @ np.random.default_rng(1).normal(size=(n, n))
NAMES = ["age", "mean radius", "bmi", "d", "e", "f"]
SPHERE = "sum(x**2) = 1"
FOLDS = KFold(5)


def same(a, b, tol=1e-8):
    np.testing.assert_allclose(a.coef_, b.coef_, atol=tol)
    np.testing.assert_allclose(a.intercept_, b.intercept_, atol=tol)
    return True


MODELS = {
    "classifier": (MoSSPClassifier(), TWO),
    "regressor": (MoSSPRegressor(), TARGET),
}
BOTH = pytest.mark.parametrize("kind", ["classifier", "regressor"])
