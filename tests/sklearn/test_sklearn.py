"""The estimators for scikit-learn: their answers against independent ones, and their manners.

Compilation costs most of the time: nearly all tests share the shape of one data set, whose five
folds fall into the same bucket of rows.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import pickle

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from scipy.special import expit, logsumexp, softmax
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression, PoissonRegressor, QuantileRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import compute_sample_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

from mossp.regularizers import L1, MCP, Group, TruncatedL1
from mossp.result import Status
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV, SparseCCA, SparsePCA, linear

compilations: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compilations.append(event) if "backend_compile" in event else None
)

N, n = 125, 6
rng = np.random.default_rng(0)
X = rng.normal(size=(N, n))
X[np.abs(X) < 0.4] = 0.0
S = scipy.sparse.csr_array(X)
TARGET = X @ np.array([1.5, -1.0, 0.5, 0, 0, 0]) + 0.3 + rng.normal(size=N)
COUNTS = rng.poisson(np.exp(0.4 * TARGET)).astype(float)
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


def unit_ball(x):
    return x @ x - 1.0


def compiled_by(again):
    compilations.clear()
    again()
    return len(compilations)


def same(a, b, tol=1e-8):
    np.testing.assert_allclose(a.coef_, b.coef_, atol=tol)
    np.testing.assert_allclose(a.intercept_, b.intercept_, atol=tol)
    return True


# Losses in NumPy, with their slopes in the prediction ----------------------------------------


def huber(p, delta=0.5):
    r = p - TARGET
    t = np.clip(r, -delta, delta)
    return np.where(np.abs(r) <= delta, r**2 / 2, delta * (np.abs(r) - delta / 2)), t


def pinball(p, tau=0.8, delta=0.1):
    r = TARGET - p
    s = np.clip(r / delta, tau - 1, tau)
    return s * r - delta * s**2 / 2, -s


def hinge(p, b=ONE_AGAINST_REST, delta=0.5):
    m = 1 - b * p
    value = np.where(m <= 0, 0, np.where(m <= delta, m**2 / (2 * delta), m - delta / 2))
    slope = np.where(m <= 0, 0, np.where(m <= delta, m / delta, 1.0))
    return value, -b * slope


def cross_entropy(p):
    own = np.arange(3) == THREE[:, None]
    return logsumexp(p, axis=1) - p[own], softmax(p, axis=1) - own


def squared(p):
    return (p - TARGET) ** 2 / 2, p - TARGET


def poisson(p):
    return np.exp(p) - COUNTS * p, np.exp(p) - COUNTS


def log_loss(p):
    return np.logaddexp(0, -SIGN * p), -SIGN * expit(-SIGN * p)


LOSSES = {
    "logistic": (MoSSPClassifier(), TWO, log_loss, ()),
    "softmax": (MoSSPClassifier(), THREE, cross_entropy, (3,)),
    "hinge of three classes": (MoSSPClassifier("huberized-hinge"), THREE, hinge, (3,)),
    "squared": (MoSSPRegressor(), TARGET, squared, ()),
    "huber": (MoSSPRegressor("huber:0.5"), TARGET, huber, ()),
    "quantile": (MoSSPRegressor("quantile:0.8,0.1"), TARGET, pinball, ()),
    "poisson": (MoSSPRegressor("poisson"), COUNTS, poisson, ()),
}


class Reference:
    """min mean loss + lam sum_j w_j |x_j|, by L-BFGS or SLSQP in x = p - q with p, q >= 0."""

    def __init__(self, loss, outputs=(), lam=0.01, weights=1.0, on_intercept=0.0, intercept=True):
        self.loss, self.shape, self.intercept = loss, (n, *outputs), intercept
        self.size, self.last = int(np.prod(self.shape)), int(np.prod(outputs))
        w = np.broadcast_to(np.reshape(weights, (-1,) + (1,) * len(outputs)), self.shape)
        self.cost = lam * np.concatenate([np.ravel(w), np.full(self.last, on_intercept)])

    def value(self, coef, intercept):
        v = np.concatenate([np.ravel(coef), np.ravel(intercept)])
        return self._smooth(v)[0] + self.cost @ np.abs(v)

    def of(self, model):
        coef = model.coef_.T if len(self.shape) == 2 else np.ravel(model.coef_)
        return self.value(coef, model.intercept_)

    def _smooth(self, v):
        coef, intercept = v[: self.size].reshape(self.shape), v[self.size :]
        losses, slope = self.loss(X @ coef + (intercept if len(self.shape) == 2 else intercept[0]))
        gradient = np.concatenate([np.ravel(X.T @ slope), np.ravel(slope.sum(axis=0))]) / N
        gradient[self.size :] *= self.intercept
        return np.sum(losses) / N, gradient

    def solve(self, inequality=None):
        k = self.size + self.last

        def both(z):
            f, g = self._smooth(z[:k] - z[k:])
            return f + self.cost @ (z[:k] + z[k:]), np.concatenate([g, -g]) + np.tile(self.cost, 2)

        how = {"method": "L-BFGS-B", "options": {"maxiter": 50_000, "maxfun": 50_000, "ftol": 0}}
        if inequality is not None:
            constraint = {"type": "ineq", "fun": lambda z: -inequality(z[:k] - z[k:])}
            how = {"method": "SLSQP", "constraints": constraint, "options": {"ftol": 1e-14}}
            how["options"]["maxiter"] = 1000
        found = scipy.optimize.minimize(both, np.full(2 * k, 0.01), jac=True,
                                        bounds=[(0, None)] * (2 * k), **how)  # fmt: skip
        v = found.x[:k] - found.x[k:]
        return found.fun, v[: self.size].reshape(self.shape), v[self.size :]


# scikit-learn's own checks -------------------------------------------------------------------


CHECKED = [MoSSPClassifier(), MoSSPRegressor(), SparsePCA(), SparseCCA()]
if os.environ.get("MOSSP_ALL_CHECKS"):  # a minute more
    CHECKED += [PathCV(model, lams=2, cv=2) for model in (MoSSPRegressor(), MoSSPClassifier())]


@parametrize_with_checks(CHECKED)
def test_estimator_checks(estimator, check):
    check(estimator)


# The optimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
def test_optimum_is_that_of_scipy(name):
    model, y, loss, outputs = LOSSES[name]
    model = clone(model).fit(X, y)
    reference = Reference(loss, outputs)
    fun, coef, _ = reference.solve()
    assert abs(reference.of(model) - model.result_.fun) < 1e-12
    assert model.result_.fun <= fun + 1e-12 and fun <= model.result_.fun + 1e-7
    np.testing.assert_allclose(np.squeeze(model.coef_), coef.T, atol=5e-3)
    assert model.certificate_.is_kkt(1e-10)


CHANGES = {
    "weights of features": (
        {"feature_weights": [0, 1, 2, 0.5, 1, 10]},
        {"weights": [0, 1, 2, 0.5, 1, 10]},
    ),
    "a penalised intercept": ({"penalize_intercept": True}, {"on_intercept": 1.0}),
    "no intercept": ({"fit_intercept": False}, {"intercept": False}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_optimum_with(name):
    ours, theirs = CHANGES[name]
    model = MoSSPRegressor(lam=0.1, **ours).fit(X, TARGET)
    fun, coef, intercept = Reference(squared, lam=0.1, **theirs).solve()
    assert abs(model.result_.fun - fun) < 1e-8
    np.testing.assert_allclose(model.coef_, coef, atol=1e-4)
    if model.fit_intercept:
        assert abs(model.intercept_ - intercept[0]) < 1e-4
    else:
        assert model.intercept_ == 0.0


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two classes", "three classes"])
def test_logistic_is_that_of_scikit_learn(y):
    lam = 0.02
    model = MoSSPClassifier(lam=lam).fit(X, y)
    theirs = LogisticRegression(
        C=1 / (N * lam), l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=100_000
    ).fit(X, y)
    assert same(model, theirs, 1e-5)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    np.testing.assert_allclose(model.decision_function(X), theirs.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
    assert model.predict(X).dtype == y.dtype and model.coef_.shape == theirs.coef_.shape


def test_lasso_is_that_of_scikit_learn():
    model = MoSSPRegressor(lam=0.1).fit(X, TARGET)
    theirs = Lasso(alpha=0.1, tol=1e-12).fit(X, TARGET)
    assert same(model, theirs, 1e-6)
    assert abs(model.score(X, TARGET) - theirs.score(X, TARGET)) < 1e-7


def test_nonnegative_lasso_is_that_of_scikit_learn():
    model = MoSSPRegressor(lam=0.1, nonnegative=True).fit(X, TARGET)
    assert same(model, Lasso(alpha=0.1, tol=1e-12, positive=True).fit(X, TARGET), 1e-6)
    assert (model.coef_ >= 0).all() and (model.coef_ == 0).any()


def test_poisson_is_that_of_scikit_learn():
    model = MoSSPRegressor("poisson", lam=0.0).fit(X, COUNTS)
    theirs = PoissonRegressor(alpha=0, tol=1e-10, max_iter=10_000).fit(X, COUNTS)
    assert same(model, theirs, 1e-5)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-4)


def test_quantile_is_that_of_scikit_learn_up_to_smoothing():
    tau, delta = 0.8, 0.05
    model = MoSSPRegressor(f"quantile:{tau},{delta}", lam=0.0).fit(X, TARGET)
    theirs = QuantileRegressor(quantile=tau, alpha=0.0).fit(X, TARGET)

    def sharp(m):
        r = TARGET - m.predict(X)
        return np.mean(np.maximum(tau * r, (tau - 1) * r))

    assert sharp(theirs) - 1e-9 <= sharp(model) <= sharp(theirs) + delta * tau**2 / 2


def test_quantile_with_little_smoothing():
    model = MoSSPRegressor("quantile:0.8,0.01", lam=0.0).fit(X, TARGET)
    assert model.certificate_.is_kkt(1e-8)


# Weights -------------------------------------------------------------------------------------

MODELS = {
    "classifier": (MoSSPClassifier(), TWO),
    "regressor": (MoSSPRegressor(), TARGET),
}
ON = pytest.mark.parametrize("A", [X, S], ids=["dense", "sparse"])
BOTH = pytest.mark.parametrize("kind", ["classifier", "regressor"])


@ON
@BOTH
def test_weights_are_repetitions_and_removals(kind, A):
    model, y = MODELS[kind]
    rows = np.repeat(np.arange(N), WEIGHTS)
    weighted = clone(model).fit(A, y, sample_weight=3.0 * WEIGHTS)
    assert same(weighted, clone(model).fit(A[rows], y[rows]))
    plain = clone(model).fit(A, y)
    assert np.abs(weighted.coef_ - plain.coef_).max() > 1e-3


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two classes", "three classes"])
def test_class_weights_are_weights_of_samples(y):
    balanced = MoSSPClassifier(class_weight="balanced").fit(X, y)
    assert same(
        balanced, MoSSPClassifier().fit(X, y, sample_weight=compute_sample_weight("balanced", y))
    )
    values = np.unique(y)
    given = dict(zip(values.tolist(), [1.0, 3.0, 0.5], strict=False))
    both = MoSSPClassifier(class_weight=given).fit(X, y, sample_weight=WEIGHTS)
    w = WEIGHTS * np.array([given[label] for label in y.tolist()])
    assert same(both, MoSSPClassifier().fit(X, y, sample_weight=w))


# Kinds of data -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
def test_dense_and_sparse_agree(kind):
    model, y = MODELS[kind]
    dense, sparse = clone(model).fit(X, y), clone(model).fit(S, y)
    assert same(dense, sparse)
    np.testing.assert_allclose(dense.predict(S) == y, sparse.predict(X) == y)
    assert same(dense, clone(model).fit(scipy.sparse.csc_matrix(X), y))


def test_names_of_columns():
    """Constraints by the names of columns, in pandas and in polars."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    bounds = ["age <= 0.5", 'x["mean radius"] >= -0.25']
    models = []
    for frame in (pandas.DataFrame(X, columns=NAMES), polars.DataFrame(X, schema=NAMES)):
        model = MoSSPRegressor(inequality=bounds).fit(frame, TARGET)
        assert model.feature_names_in_.tolist() == NAMES
        np.testing.assert_allclose(model.predict(frame), X @ model.coef_ + model.intercept_)
        models.append(model)
    assert same(*models, tol=0)
    assert abs(model.coef_[0] - 0.5) < 1e-10 and abs(model.coef_[1] + 0.25) < 1e-10
    multipliers = model.certificate_.multipliers["inequality"]
    assert set(multipliers) == set(bounds) and min(multipliers.values()) > 0.1
    with pytest.raises(ValueError, match="did you mean `age`"):
        MoSSPRegressor(inequality="agee <= 1").fit(frame, TARGET)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename({"age": "year"}))


def test_in_a_pipeline_and_a_search():
    pipeline = make_pipeline(StandardScaler(), MoSSPRegressor())
    scores = cross_val_score(pipeline, X * [1, 10, 100, 1, 1, 1], TARGET, cv=FOLDS)
    np.testing.assert_allclose(
        scores, cross_val_score(make_pipeline(StandardScaler(), MoSSPRegressor()), X, TARGET)
    )
    search = GridSearchCV(pipeline, {"mosspregressor__lam": [0.01, 9.0]})
    assert search.fit(X, TARGET).best_params_ == {"mosspregressor__lam": 0.01}


@BOTH
def test_pickled_and_cloned(kind):
    model, y = MODELS[kind]
    fitted = clone(model).set_params(lam=0.02).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.certificate_.worst == fitted.certificate_.worst
    assert not hasattr(clone(fitted), "coef_") and clone(fitted).lam == 0.02
    assert same(clone(fitted).fit(X, y), fitted, tol=0)


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
        MoSSPRegressor(inequality=["x <= 0.5", unit_ball]),
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
    GridSearchCV(Counted(), {"lam": lams}, cv=5).fit(X[:120, :5], TWO[:120])
    return np.array(Counted.counts)


def test_two_fits_of_a_search_compile_and_hardly_any_other(counts):
    """One for the 96 rows of a fold, one for all 120; a small program may come in later."""
    assert len(counts) == 51 and counts[0] > 1 and counts[-1] > 1
    assert counts[1:-1].sum() <= 1


def test_at_most_two_fits_of_a_search_compile(counts):
    assert np.count_nonzero(counts) <= 2


# Constraints and regularisers ----------------------------------------------------------------


def test_equality_holds_to_the_last_digits():
    model = MoSSPClassifier(equality=SPHERE).fit(X, TWO)
    assert abs(np.sum(model.coef_**2) - 1) < 1e-10 and model.violation_ < 1e-10
    assert model.certificate_.is_kkt(1e-10)
    b = model.coef_[0]
    gradient = X.T @ log_loss(X @ b + model.intercept_)[1] / N
    q = model.certificate_.multipliers["equality"][SPHERE]
    np.testing.assert_allclose((gradient + 0.01 * np.sign(b) + 2 * q * b)[b != 0], 0, atol=1e-9)


def test_inequalities_as_text_and_as_a_function():
    model = MoSSPRegressor(inequality=["x <= 0.5", unit_ball], lam=0.01).fit(X, TARGET)
    limits = lambda v: np.concatenate([v[:n] - 0.5, [v[:n] @ v[:n] - 1]])  # noqa: E731
    fun, coef, _ = Reference(squared).solve(limits)
    assert abs(model.result_.fun - fun) < 1e-7 and model.certificate_.is_kkt(1e-10)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-3)
    multipliers = model.certificate_.multipliers["inequality"]
    assert multipliers["x <= 0.5"][0] > 0.1 and abs(model.coef_[0] - 0.5) < 1e-10
    assert multipliers["x <= 0.5"][1] == 0 and multipliers["1"] > 0.01


def test_inactive_constraints_change_nothing():
    model = MoSSPRegressor(inequality=["x <= 0.5", unit_ball], lam=1.2).fit(X, TARGET)
    assert same(model, MoSSPRegressor(lam=1.2).fit(X, TARGET)) and model.coef_.any()
    multipliers = model.certificate_.multipliers["inequality"]
    assert not multipliers["x <= 0.5"].any() and multipliers["1"] == 0


def test_constrained_intercept():
    """A function sees it as the last entry; text may speak of it anyway."""
    shapes = []

    def bound(x):
        shapes.append(x.shape)
        return x[-1] - 0.1

    given = [bound, "intercept + x[2] <= 0.3"]
    model = MoSSPRegressor(inequality=given, constrain_intercept=True).fit(X, TARGET)
    assert set(shapes) == {(n + 1,)} and model.certificate_.is_kkt(1e-10)
    fun, coef, intercept = Reference(squared).solve(lambda v: v[[n, n]] + [-0.1, v[2] - 0.3])
    assert abs(model.result_.fun - fun) < 1e-7 and abs(model.intercept_ - intercept[0]) < 1e-4
    assert abs(model.intercept_ + model.coef_[2] - 0.3) < 1e-10 and abs(coef[2]) > 0.1


def test_constraints_of_three_classes():
    def first_class(x):
        assert x.shape == (n, 3)
        return x[0, 0] - 0.25

    model = MoSSPClassifier(equality=["sum(x[:, 1]) = 0.5", first_class]).fit(X, THREE)
    assert model.coef_.shape == (3, n) and model.certificate_.is_kkt(1e-10)
    assert abs(model.coef_[1].sum() - 0.5) < 1e-10 and abs(model.coef_[0, 0] - 0.25) < 1e-10


def gradient_of(model):
    return X.T @ (X @ model.coef_ + model.intercept_ - TARGET) / N


def test_mcp_by_name_and_as_an_object():
    model = MoSSPRegressor(regularizer="mcp:0.2,3").fit(X, TARGET)
    x, slope = model.coef_, -gradient_of(model)
    large = np.abs(x) > 0.6
    assert large.any() and (x == 0).any()
    np.testing.assert_allclose(slope[large], 0, atol=1e-9)
    between = (x != 0) & ~large
    np.testing.assert_allclose(slope[between], (np.sign(x) * 0.2 - x / 3)[between], atol=1e-9)
    assert (np.abs(slope[x == 0]) <= 0.2 + 1e-9).all()
    for regularizer, lam in (
        (MCP(0.2, 3.0), None),
        (MCP(7.0, 3.0), 0.2),
        ("mcp:5,3", 0.2),
        ("mcp", 0.2),
    ):
        other = MoSSPRegressor(regularizer=regularizer, lam=lam).fit(X, TARGET)
        assert same(model, other, tol=1e-9) or regularizer == "mcp"


def test_groups_vanish_together():
    groups = [0, 1, 0, 1, 2, 2]
    model = MoSSPRegressor(regularizer=Group(L1(1.0), groups), lam=0.4).fit(X, TARGET)
    slope = -gradient_of(model)
    for g in range(3):
        own = np.array(groups) == g
        x = model.coef_[own]
        if x.any():
            np.testing.assert_allclose(slope[own], 0.4 * x / np.linalg.norm(x), atol=1e-9)
        else:
            assert np.linalg.norm(slope[own]) <= 0.4
    assert not model.coef_[4:].any() and model.coef_[:4].all()


def test_truncated_l1_leaves_the_largest_alone():
    model = MoSSPRegressor(regularizer=TruncatedL1(0.4, 2)).fit(X, TARGET)
    x, slope = model.coef_, -gradient_of(model)
    assert sorted(np.argsort(-np.abs(x))[:2]) == [0, 1]
    np.testing.assert_allclose(slope[:2], 0, atol=1e-9)
    small = np.r_[False, False, x[2:] != 0]
    np.testing.assert_allclose(slope[small], 0.4 * np.sign(x[small]), atol=1e-9)
    assert (x == 0).any() and (np.abs(slope[x == 0]) <= 0.4).all()


# Settings ------------------------------------------------------------------------------------


def test_warm_start_goes_on_from_the_coefficients():
    cold = MoSSPClassifier(equality=SPHERE, warm_start=True).fit(X, TWO)
    first, coef = cold.n_iter_, cold.coef_
    cold.fit(X, TWO)
    assert cold.result_.steps == 0 and cold.n_iter_ == 1 < first  # scikit-learn counts from 1
    np.testing.assert_allclose(cold.coef_, coef, atol=1e-9)


def test_stochastic_run_is_reproducible():
    settings = {"equality": SPHERE, "method": "mossp-r", "steps": 4000, "tol": 1e-2}
    models = [MoSSPClassifier(**settings, random_state=seed).fit(X, TWO) for seed in (3, 3, 4)]
    assert same(models[0], models[1], tol=0) and np.any(models[0].coef_ != models[2].coef_)
    assert models[0].certificate_.is_kkt(1e-2) and models[0].n_iter_ == 4000
    given = [np.random.RandomState(5) for _ in range(2)]
    models = [MoSSPClassifier(**settings, random_state=state).fit(X, TWO) for state in given]
    assert same(*models, tol=0)


def test_replicas_and_starts_keep_the_best():
    for more in ({"n_replicas": 2}, {"n_starts": 2}):
        model = MoSSPRegressor(regularizer="mcp", lam=0.2, **more).fit(X, TARGET)
        assert len(model.result_.funs) == 2
        assert model.result_.fun <= model.result_.funs.min() + 1e-12
        assert model.certificate_.is_kkt(1e-10)


def test_single_precision():
    model = MoSSPClassifier(dtype="float32").fit(X, TWO)
    assert same(model, MoSSPClassifier().fit(X, TWO), tol=1e-3)


def test_warning_where_the_certificate_does_not_hold():
    with pytest.warns(ConvergenceWarning, match="certificate does not hold"):
        model = MoSSPClassifier(steps=1, polish=False).fit(X, TWO)
    assert model.coef_.shape == (1, n) and model.n_iter_ == 1
    assert not model.certificate_.is_kkt(1e-10) and not model.result_.success
    assert set(model.predict(X)) <= {"yes", "no"}


def test_ctrl_c(monkeypatch):
    result = MoSSPRegressor().fit(X, TARGET).result_
    stopped = dataclasses.replace(result, status=Status.INTERRUPTED, success=False)
    monkeypatch.setattr(linear, "solve", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt):
        MoSSPRegressor().fit(X, TARGET)
    monkeypatch.setattr(
        importlib.import_module("mossp.solving.path"), "solve", lambda *_, **__: stopped
    )
    with pytest.raises(KeyboardInterrupt):
        PathCV(MoSSPRegressor(), lams=[0.1]).fit(X, TARGET)


# Streams -------------------------------------------------------------------------------------


def feed(model, y, A=X, batches=200, seed=0, first=0, **given):
    """Random batches of 32 rows, from number `first` on."""
    if isinstance(model, MoSSPClassifier):
        given["classes"] = np.unique(y)
    draw = np.random.default_rng(seed)
    chosen = [draw.integers(0, N, 32) for _ in range(batches)]
    for rows in chosen[first:]:
        model.partial_fit(A[rows], y[rows], **given)
    return model


@pytest.mark.parametrize("kind, error", [("classifier", 0.1), ("regressor", 0.05)])
def test_stream_comes_near_to_fit(kind, error):
    model, y = MODELS[kind]
    fitted, fed = clone(model).fit(X, y), feed(clone(model), y)
    assert fed.n_iter_ == 200 and not hasattr(fed, "certificate_")
    assert np.linalg.norm(fed.coef_ - fitted.coef_) < error * np.linalg.norm(fitted.coef_)
    assert abs(fed.score(X, y) - fitted.score(X, y)) < 0.03


def test_stream_pickled_in_the_middle_goes_on_alike():
    whole = feed(MoSSPClassifier(equality=SPHERE), TWO, batches=40)
    assert abs(np.sum(whole.coef_**2) - 1) < 1e-2
    draw = feed(MoSSPClassifier(equality=SPHERE), TWO, batches=20)
    rest = feed(pickle.loads(pickle.dumps(draw)), TWO, batches=40, first=20)
    assert rest.n_iter_ == whole.n_iter_ == 40
    assert same(whole, rest, tol=0)


def chunks(A):
    """Rows are cut into batches of 32: filled up with weight 0, in one program."""
    model = MoSSPRegressor()
    for start, size in ((0, 40), (40, 1), (41, 64), (105, 20)):
        rows = slice(start, start + size)
        model.partial_fit(A[rows], TARGET[rows])
    assert model.n_iter_ == 2 + 1 + 2 + 1
    return model


def test_stream_of_uneven_and_sparse_chunks():
    dense = chunks(X)
    assert same(dense, chunks(scipy.sparse.csr_matrix(X)), tol=1e-9)


def test_stream_of_sparse_arrays():
    assert same(chunks(X), chunks(S), tol=1e-9)


def test_stream_with_weights():
    kept = WEIGHTS > 0
    weighted, without = MoSSPRegressor(), MoSSPRegressor()
    for _ in range(5):
        weighted.partial_fit(X[:32], TARGET[:32], sample_weight=kept[:32])
        without.partial_fit(X[:32][kept[:32]], TARGET[:32][kept[:32]])
    assert same(weighted, without, tol=1e-6)


def test_stream_with_chunks_of_little_weight():
    plain, light = MoSSPRegressor(), MoSSPRegressor()
    for i in range(3):
        rows = slice(32 * i, 32 * i + 32)
        plain.partial_fit(X[rows], TARGET[rows])
        light.partial_fit(X[rows], TARGET[rows], sample_weight=np.full(32, 10.0**-i))
    assert np.any(plain.coef_ != light.coef_)


def test_stream_goes_on_from_a_fit():
    model = MoSSPRegressor().fit(X, TARGET)
    coef = model.coef_
    model.partial_fit(X[:32], TARGET[:32])
    assert np.any(model.coef_ != coef) and np.abs(model.coef_ - coef).max() < 0.3
    assert np.abs(MoSSPRegressor().partial_fit(X[:32], TARGET[:32]).coef_ - coef).max() > 0.3


def test_stream_has_no_certificate_of_an_earlier_fit():
    model = MoSSPRegressor().fit(X, TARGET).partial_fit(X[:32], TARGET[:32])
    assert not hasattr(model, "certificate_") or not model.certificate_.is_kkt(1e-10)


def test_stream_refuses():
    model = MoSSPClassifier()
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        model.partial_fit(X, TWO)
    model = MoSSPClassifier().fit(X, TWO)
    with pytest.raises(ValueError, match=r"'perhaps'.*the classes are"):
        model.partial_fit(X[:2], ["yes", "perhaps"])
    with pytest.raises(ValueError, match="classes must stay"):
        model.partial_fit(X, TWO, classes=["a", "b"])
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(X[:, :5], TWO)
    with pytest.raises(ValueError, match="needs counts"):
        MoSSPRegressor("poisson").partial_fit(X, TARGET)


# The path ------------------------------------------------------------------------------------


def test_path_agrees_with_a_search():
    model = PathCV(MoSSPClassifier(), lams=6, cv=FOLDS, scoring="neg_log_loss").fit(X, TWO)
    search = GridSearchCV(
        MoSSPClassifier(), {"lam": model.lams_}, cv=FOLDS, scoring="neg_log_loss"
    ).fit(X, TWO)
    theirs = [search.cv_results_[f"split{i}_test_score"] for i in range(5)]
    np.testing.assert_allclose(model.scores_, theirs, atol=1e-7)
    assert model.lam_ == search.best_params_["lam"] and 0 < model.lam_ < model.lams_[0]
    assert same(model, search.best_estimator_)
    assert abs(model.score(X, TWO) - search.score(X, TWO)) < 1e-7
    np.testing.assert_allclose(model.predict_proba(X), search.predict_proba(X), atol=1e-7)
    assert model.classes_.tolist() == ["no", "yes"] and model.n_features_in_ == n


def test_path_starts_where_coefficients_begin():
    model = PathCV(MoSSPRegressor(), lams=5, cv=FOLDS).fit(X, TARGET)
    top = np.abs(X.T @ (TARGET - TARGET.mean())).max() / N
    np.testing.assert_allclose(model.lams_, np.geomspace(top, top / 1000, 5), rtol=1e-5)
    assert model.scores_.shape == (5, 5) and model.path_.success
    coefs = model.path_.xs["coef"]
    assert coefs.shape == (5, n) and not coefs[0].any() and coefs[1].any()
    np.testing.assert_array_equal(model.coef_, coefs[model.lams_ == model.lam_][0])
    assert not MoSSPRegressor(lam=1.001 * top).fit(X, TARGET).coef_.any()
    assert MoSSPRegressor(lam=0.98 * top).fit(X, TARGET).coef_.any()


def test_path_with_weights():
    rows = np.repeat(np.arange(N), WEIGHTS)
    found = PathCV(MoSSPRegressor(), lams=[0.1, 1.0], cv=FOLDS)
    weighted = clone(found).fit(X, TARGET, sample_weight=WEIGHTS)
    assert weighted.lams_.tolist() == [1.0, 0.1]
    np.testing.assert_allclose(
        weighted.path_.xs["coef"], clone(found).fit(X[rows], TARGET[rows]).path_.xs["coef"],
        atol=1e-8,
    )  # fmt: skip


STARTS = {
    "weights below 1": ({"feature_weights": np.full(n, 0.5)}),
    "groups": ({"regularizer": Group(L1(1.0), [0, 0, 1, 1, 2, 2])}),
}


@pytest.mark.parametrize("name", STARTS)
def test_path_starts_at_zero_with(name):
    model = PathCV(MoSSPRegressor(**STARTS[name]), lams=1, cv=FOLDS).fit(X, TARGET)
    assert not model.path_.xs["coef"][0].any()


def test_probabilities_are_there_for_the_logistic_loss_only():
    for wrap in (lambda m: m, PathCV):
        assert hasattr(wrap(MoSSPClassifier()), "predict_proba")
        assert not hasattr(wrap(MoSSPClassifier("huberized-hinge")), "predict_proba")
        assert not hasattr(wrap(MoSSPRegressor()), "predict_log_proba")


@pytest.mark.parametrize(
    "model, error, text",
    [
        (PathCV(Lasso()), TypeError, "PathCV needs a MoSSPClassifier or a MoSSPRegressor"),
        (PathCV(MoSSPRegressor(regularizer="none")), ValueError, "has no strength to choose"),
        (PathCV(MoSSPRegressor(), lams=[-1.0]), ValueError, "lams must be a list of numbers >= 0"),
        (PathCV(MoSSPRegressor(), lams=[]), ValueError, "lams must be a list of numbers >= 0"),
        (PathCV(MoSSPRegressor(), lams=0), ValueError, "lams must be at least 1"),
    ],
)
def test_path_refuses(model, error, text):
    with pytest.raises(error, match=text):
        model.fit(X, TARGET)


# Components ----------------------------------------------------------------------------------


def assert_best(value, v, count=20_000):
    """No point nearby, and none of the sphere's, is better; v and the draws have length 1."""
    draw = np.random.default_rng(0).normal(size=(count, len(v)))
    draw[: count // 2] = v + draw[: count // 2] * np.geomspace(1e-4, 1, count // 2)[:, None]
    assert value(v) <= value(draw / np.linalg.norm(draw, axis=1, keepdims=True)).min() + 1e-9


def test_nonnegative_component_of_sparse_rows_is_the_best_one():
    """By a grid on the sphere, in three features."""
    A = np.where(np.abs(MIXED[:, :3]) < 0.3, 0, MIXED[:, :3])
    C, lam = np.cov(A.T, bias=True), 0.5
    model = SparsePCA(lam=lam, nonnegative=True).fit(scipy.sparse.csr_array(A))
    t = np.linspace(0, np.pi / 2, 721)
    a, b = np.meshgrid(t, t)
    grid = np.stack([np.sin(a) * np.cos(b), np.sin(a) * np.sin(b), np.cos(a)], -1)
    value = lambda v: -0.5 * np.einsum("...i,ij,...j", v, C, v) + lam * v.sum(-1)  # noqa: E731
    v = model.components_[0]
    assert value(v) <= value(grid).min() + 1e-9 and (v >= 0).all()
    assert abs(v @ v - 1) < 1e-10 and model.certificate_.is_kkt(1e-10)
    np.testing.assert_allclose(model.transform(scipy.sparse.csr_array(A)), model.transform(A))
    total = np.trace(C) * N / (N - 1)
    np.testing.assert_allclose(model.explained_variance_ratio_, np.var(A @ v, ddof=1) / total)


def test_components_without_a_penalty_are_pca():
    model, theirs = SparsePCA(2, lam=0.0).fit(MIXED), PCA(2).fit(MIXED)
    agreement = np.abs(model.components_ @ theirs.components_.T)
    np.testing.assert_allclose(agreement, np.eye(2), atol=1e-6)
    for name in ("explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(model, name), getattr(theirs, name), rtol=1e-8)
    ours, others = model.transform(MIXED), theirs.transform(MIXED)
    np.testing.assert_allclose(np.abs(ours), np.abs(others), atol=1e-5)
    back = model.inverse_transform(ours)
    np.testing.assert_allclose(back, theirs.inverse_transform(others), atol=1e-5)


def test_orthogonal_components():
    model = SparsePCA(2, lam=0.4).fit(MIXED)
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(2), atol=1e-10)
    assert model.certificate_.is_kkt(1e-10) and (V == 0).any()
    frame = clone(model).set_output(transform="pandas").fit_transform(MIXED)
    assert frame.columns.tolist() == ["sparsepca0", "sparsepca1"]
    np.testing.assert_allclose(frame, model.transform(MIXED))
    assert model.explained_variance_.sum() < PCA(2).fit(MIXED).explained_variance_.sum()


def test_components_one_after_the_other():
    model = SparsePCA(2, lam=0.0, orthogonal=False).fit(MIXED)
    theirs = PCA(2).fit(MIXED)
    agreement = np.abs(model.components_ @ theirs.components_.T)
    np.testing.assert_allclose(agreement, np.eye(2), atol=1e-6)
    model = SparsePCA(2, lam=0.4, orthogonal=False).fit(MIXED)
    np.testing.assert_allclose(np.sum(model.components_**2, axis=1), 1, atol=1e-10)
    assert len(model.certificates_) == 2 and model.certificate_.is_kkt(1e-10)
    C = np.cov(MIXED.T, bias=True)
    value = lambda v: -0.5 * np.einsum("...i,ij,...j", v, C, v) + 0.4 * np.abs(v).sum(-1)  # noqa: E731
    assert_best(value, model.components_[0])
    scores = model.transform(MIXED)
    np.testing.assert_allclose(model.transform(model.inverse_transform(scores)), scores, atol=1e-9)


COMMON = np.random.default_rng(2).normal(size=(N, 2))
LEFT = np.random.default_rng(3).normal(size=(N, 5))
LEFT[:, :2] += 2 * COMMON[:, :1]
LEFT[:, 4] += COMMON[:, 1]
RIGHT = np.random.default_rng(4).normal(size=(N, 4))
RIGHT[:, 1] += 2 * COMMON[:, 0]
RIGHT[:, 2:] += COMMON[:, 1:]


def correlations(A, B):
    return np.corrcoef(A.T, B.T)[: A.shape[1], A.shape[1] :]


def test_pairs_have_the_known_support():
    """And the first one cannot be improved, near or far."""
    model = SparseCCA(2, regularizer=("l1", "l1-l2"), lam=(0.2, 0.3)).fit(LEFT, RIGHT)
    assert [np.flatnonzero(u).tolist() for u in model.x_weights_.T] == [[0, 1], [4]]
    assert [np.flatnonzero(v).tolist() for v in model.y_weights_.T] == [[1], [2, 3]]
    assert model.certificate_.is_kkt(1e-10) and model.violation_ < 1e-10
    S, T = model.transform(LEFT, RIGHT)
    np.testing.assert_allclose(np.diag(correlations(S, T)), model.correlations_)
    assert abs(model.score(LEFT, RIGHT) - model.correlations_.mean()) < 1e-12
    frame = model.set_output(transform="pandas").transform(LEFT)
    assert frame.columns.tolist() == ["sparsecca0", "sparsecca1"]
    C = correlations(LEFT, RIGHT)

    def value(w):
        u, v = (
            part / np.linalg.norm(part, axis=-1, keepdims=True) for part in np.split(w, [5], -1)
        )
        penalty = 0.2 * np.abs(u).sum(-1) + 0.3 * (np.abs(v).sum(-1) - 1)
        return penalty - np.einsum("...i,ij,...j", u, C, v)

    assert_best(value, np.concatenate([model.x_weights_[:, 0], model.y_weights_[:, 0]]))


def test_nonnegative_pair_of_one_column():
    model = SparseCCA(lam=(0.1, 0.0), nonnegative=True).fit(S, TARGET)
    assert model.y_weights_.tolist() == [[1.0]] and (model.x_weights_ >= 0).all()
    c = np.maximum(correlations(X, TARGET[:, None])[:, 0] - 0.1, 0)  # soft, then scaled
    np.testing.assert_allclose(model.x_weights_[:, 0], c / np.linalg.norm(c), atol=1e-8)


# Wrong input ---------------------------------------------------------------------------------

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
        SparseCCA(lam=(1, 2, 3)).fit(LEFT, RIGHT)


def test_path_refuses_a_fold_without_weight():
    w = np.r_[np.ones(25), np.zeros(100)]
    with pytest.raises(ValueError, match="weight"):
        PathCV(MoSSPRegressor(), lams=[0.1], cv=FOLDS).fit(X, TARGET, sample_weight=w)
