"""MoSSPClassifier and MoSSPRegressor: their answers against independent ones, and their manners."""

from __future__ import annotations

import dataclasses
import importlib
import pickle

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from scipy.special import expit, logsumexp, softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
    TweedieRegressor,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import compute_sample_weight

from mossp.regularizers import L1, MCP, Group, PlusRidge, TruncatedL1
from mossp.result import Status
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV, paths
from tests.problems import sphere
from tests.sklearn.rows import (
    AMOUNTS,
    BOTH,
    COUNTS,
    FOLDS,
    MODELS,
    NAMES,
    ONE_AGAINST_REST,
    SIGN,
    SPHERE,
    TARGET,
    THREE,
    TWO,
    WEIGHTS,
    N,
    S,
    X,
    n,
    same,
)

pytestmark = pytest.mark.slow


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


def gamma(p):
    return AMOUNTS * np.exp(-p) + p, 1 - AMOUNTS * np.exp(-p)


def tweedie(p, q=1.3):
    value = COUNTS * np.exp((1 - q) * p) / (q - 1) + np.exp((2 - q) * p) / (2 - q)
    return value, np.exp((2 - q) * p) - COUNTS * np.exp((1 - q) * p)


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
    "gamma": (MoSSPRegressor("gamma"), AMOUNTS, gamma, ()),
    "tweedie": (MoSSPRegressor("tweedie:1.3"), COUNTS, tweedie, ()),
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


LOG_LINKS = {
    "poisson": (COUNTS, PoissonRegressor),
    "gamma": (AMOUNTS, GammaRegressor),
    "tweedie:1.3": (COUNTS, lambda **how: TweedieRegressor(power=1.3, link="log", **how)),
}


@pytest.mark.parametrize("loss", LOG_LINKS)
def test_a_ridge_with_a_logarithmic_link_is_that_of_scikit_learn(loss):
    y, make = LOG_LINKS[loss]
    model = MoSSPRegressor(loss, regularizer="ridge", lam=0.05).fit(X, y, sample_weight=WEIGHTS)
    theirs = make(alpha=0.05, tol=1e-10, max_iter=10_000).fit(X, y, sample_weight=WEIGHTS)
    assert same(model, theirs, 1e-6) and model.certificate_.is_kkt(1e-10)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-5)


@pytest.mark.parametrize("lam", [1e-4, 0.1, 1e3])
def test_ridge_is_that_of_scikit_learn(lam):
    model = MoSSPRegressor(regularizer="ridge", lam=lam).fit(X, TARGET)
    assert same(model, Ridge(alpha=N * lam).fit(X, TARGET), 1e-10)
    assert model.certificate_.is_kkt(1e-10) and model.coef_.all()


def test_ridge_takes_weights_of_features():
    w = np.array([0.0, 1.0, 2.0, 0.5, 1.0, 10.0])
    model = MoSSPRegressor(regularizer="ridge", lam=0.1, feature_weights=w).fit(X, TARGET)
    A = np.column_stack([X, np.ones(N)])
    normal = A.T @ A / N + np.diag(np.append(0.1 * w, 0.0))
    expected = np.linalg.solve(normal, A.T @ TARGET / N)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), expected, atol=1e-10)


@pytest.mark.parametrize("positive", [False, True])
def test_elastic_net_is_that_of_scikit_learn(positive):
    model = MoSSPRegressor(regularizer="elastic-net:0.2,0.3", nonnegative=positive).fit(X, TARGET)
    theirs = ElasticNet(alpha=0.2, l1_ratio=0.3, tol=1e-13, positive=positive).fit(X, TARGET)
    assert same(model, theirs, 1e-8) and model.certificate_.is_kkt(1e-10)
    np.testing.assert_array_equal(model.coef_ == 0, theirs.coef_ == 0)
    assert np.any(model.coef_ == 0)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two classes", "three classes"])
def test_logistic_elastic_net_is_that_of_scikit_learn(y):
    model = MoSSPClassifier(regularizer="elastic-net:0.04,0.5").fit(X, y)
    theirs = LogisticRegression(
        C=1 / (N * 0.04), l1_ratio=0.5, solver="saga", tol=1e-10, max_iter=100_000
    ).fit(X, y)
    assert same(model, theirs, 1e-6) and model.certificate_.is_kkt(1e-10)


def test_a_ridge_steadies_a_penalty_that_does_not_shrink():
    """Nonconvex: the point is critical by its own formula, and certified, on the sphere too."""
    reg = PlusRidge(MCP(0.1, 3.0), 0.2)
    model = MoSSPRegressor(regularizer=reg).fit(X, TARGET)
    assert model.certificate_.is_kkt(1e-10)
    x, slope = model.coef_, X.T @ (X @ model.coef_ + model.intercept_ - TARGET) / N
    on = x != 0
    whole = slope + np.sign(x) * np.maximum(0.1 - np.abs(x) / 3, 0) + 0.2 * x
    assert np.abs(whole[on]).max() < 1e-9 and np.abs(slope[~on]).max() <= 0.1 and not on.all()
    sphere = MoSSPRegressor(regularizer=reg, equality=SPHERE).fit(X, TARGET)
    assert sphere.certificate_.is_kkt(1e-10) and np.sum(sphere.coef_**2) == pytest.approx(1)


def test_single_precision_with_a_ridge():
    model = MoSSPRegressor(regularizer="ridge", lam=0.1, dtype="float32").fit(X, TARGET)
    assert same(model, Ridge(alpha=N * 0.1).fit(X, TARGET), 1e-5)


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

ON = pytest.mark.parametrize("A", [X, S], ids=["dense", "sparse"])


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
    model = MoSSPRegressor(inequality=["x <= 0.5", sphere], lam=0.01).fit(X, TARGET)
    limits = lambda v: np.concatenate([v[:n] - 0.5, [v[:n] @ v[:n] - 1]])  # noqa: E731
    fun, coef, _ = Reference(squared).solve(limits)
    assert abs(model.result_.fun - fun) < 1e-7 and model.certificate_.is_kkt(1e-10)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-3)
    multipliers = model.certificate_.multipliers["inequality"]
    assert multipliers["x <= 0.5"][0] > 0.1 and abs(model.coef_[0] - 0.5) < 1e-10
    assert multipliers["x <= 0.5"][1] == 0 and multipliers["1"] > 0.01


def test_inactive_constraints_change_nothing():
    model = MoSSPRegressor(inequality=["x <= 0.5", sphere], lam=1.2).fit(X, TARGET)
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
        assert same(model, other, tol=1e-9)


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
    monkeypatch.setattr(paths, "solve", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt):
        MoSSPRegressor().fit(X, TARGET)
    monkeypatch.setattr(
        importlib.import_module("mossp.solving.path"), "solve", lambda *_, **__: stopped
    )
    with pytest.raises(KeyboardInterrupt):
        PathCV(MoSSPRegressor(), lams=[0.1]).fit(X, TARGET)
