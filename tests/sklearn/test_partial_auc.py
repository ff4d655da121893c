"""Partial AUC: the surrogate against sums over all pairs, the measure against scikit-learn's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import mossp
from mossp.sklearn import PartialAUCClassifier, partial_auc
from mossp.sklearn.ranks import BlockLoss, Blocks, Range, Ranked, above, smoothed_top, unlikely
from mossp.sklearn.rows import Rows
from tests.compilations import compiled_by

RNG = np.random.default_rng(2)
N = 300
X = RNG.normal(size=(N, 4))
Y = (X[:, 0] - 0.5 * X[:, 1] + 0.8 * RNG.normal(size=N) > 1).astype(int)


def test_pairs_by_sorting_are_those_one_by_one():
    with jax.enable_x64(True):
        m, n, u = RNG.normal(size=17), RNG.normal(size=23), RNG.random(17)
        u /= u.sum()
        pairs = np.maximum(1 - m[:, None] + n, 0) ** 2
        m, n, u = map(jnp.asarray, (m, n, u))
        np.testing.assert_allclose(above(m, n, u), u @ pairs, rtol=1e-12)
        # Its derivative, along a direction in both.
        a, b = RNG.normal(size=17), RNG.normal(size=23)
        slope = jax.jvp(lambda m, n: above(m, n, u), (m, n), (jnp.asarray(a), jnp.asarray(b)))[1]
        by_hand = np.asarray(u) @ (2 * np.maximum(1 - np.asarray(m)[:, None] + np.asarray(n), 0)
                                   * (b - a[:, None]))  # fmt: skip
        np.testing.assert_allclose(slope, by_hand, rtol=1e-10)


def test_the_smoothed_top_is_near_the_mean_of_the_largest():
    with jax.enable_x64(True):
        G, v = jnp.asarray(RNG.random(50)), jnp.full(50, 1 / 50)
        sharp = np.sort(G)[-10:].sum() / 50
        f = lambda G: smoothed_top(G, v, 0.2, 1e-3)  # noqa: E731
        assert abs(f(G) - sharp) < 1e-3
        e = jnp.asarray(RNG.normal(size=50))
        smooth = lambda G: smoothed_top(G, v, 0.2, 0.1)  # noqa: E731
        bend = (jax.grad(smooth)(G + 1e-5 * e) - jax.grad(smooth)(G - 1e-5 * e)) / 2e-5
        np.testing.assert_allclose(jax.hessian(smooth)(G) @ e, bend, rtol=1e-4, atol=1e-8)


def test_the_measure_is_scikit_learns():
    scores = X[:, 0] + 0.3 * RNG.normal(size=N)
    scores[:40] = np.round(scores[:40])  # ties
    np.testing.assert_allclose(partial_auc(Y, scores), roc_auc_score(Y, scores), rtol=1e-12)
    standardised = roc_auc_score(Y, scores, max_fpr=0.2)  # McClish: (1 + (A - a) / (b - a)) / 2
    area = 0.2 * partial_auc(Y, scores, max_fpr=0.2)
    np.testing.assert_allclose((1 + (area - 0.02) / (0.2 - 0.02)) / 2, standardised, rtol=1e-12)
    parts = 0.2 * partial_auc(Y, scores, 0.2), 0.3 * partial_auc(Y, scores, 0.5, 0.2)
    np.testing.assert_allclose(sum(parts), 0.5 * partial_auc(Y, scores, 0.5), rtol=1e-12)
    for negatives in range(40, 300):  # one negative on top: 1 from 0.05 on, without rounding
        labels = np.append(np.arange(negatives + 6) >= negatives - 1, False)
        assert partial_auc(labels, np.arange(negatives + 7), 0.2, 0.05) == 1


def test_the_likelihood_is_that_of_a_logistic_regression():
    with jax.enable_x64(True):
        m, n, u, v = RNG.normal(size=7), RNG.normal(size=9) - 0.5, RNG.random(7), RNG.random(9)
        u, v = u / u.sum(), v / v.sum()

        def by_hand(m, n):
            cost = lambda c: (  # noqa: E731
                u @ np.logaddexp(0, -12 * m - c) + 3 * v @ np.logaddexp(0, 12 * n + c)
            )
            return scipy.optimize.minimize_scalar(cost, bracket=(-20, 20), tol=1e-12).fun / 4.5

        value = lambda s: unlikely(s[:7], s[7:], u, v, 3.0)  # noqa: E731
        s, e = jnp.asarray(np.append(m, n)), RNG.normal(size=16)
        np.testing.assert_allclose(value(s), by_hand(m, n), rtol=1e-10)
        np.testing.assert_allclose(
            jax.grad(value)(0 * s), 2 * np.append(-u, v), rtol=1e-9
        )  # that of the mean over all pairs
        bend = (jax.grad(value)(s + 1e-5 * e) - jax.grad(value)(s - 1e-5 * e)) / 2e-5
        np.testing.assert_allclose(jax.hessian(value)(s) @ e, bend, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "surrogate, shares, likely",
    [("range", (0.2,), 0.0), ("wide", (0.2, 0.4), 0.0), ("mixed", (0.2, 0.4), 0.8)],
)
def test_the_answer_is_the_minimum_of_the_surrogate(surrogate, shares, likely):
    model = PartialAUCClassifier(0.2, surrogate=surrogate, lam=0.1).fit(X, Y)
    assert model.result_.success

    def objective(w):
        """Over all pairs, with its smoothing by a one-dimensional search."""
        G = np.mean(np.maximum(1 - (X[Y == 1] @ w)[:, None] + X[Y == 0] @ w, 0) ** 2, axis=0)

        def mean_of_largest(share):
            top = lambda t: share * t + np.mean(0.05 * np.logaddexp(0, (G - t) / 0.05))  # noqa: E731
            found = scipy.optimize.minimize_scalar(top, bracket=(0, G.max()), tol=1e-12)
            return found.fun / share

        pairs = np.mean([mean_of_largest(share) for share in shares])
        cost = lambda c: np.sum(np.logaddexp(0, -(2 * Y - 1) * (12 * X @ w + c)))  # noqa: E731
        labels = scipy.optimize.minimize_scalar(cost, bracket=(-20, 20), tol=1e-12).fun
        rows = likely * labels / 6 * (1 / np.sum(Y == 1) + 1 / np.sum(Y == 0))
        return (1 - likely) * pairs + rows + mossp.Ridge(0.1)(w)

    best = scipy.optimize.minimize(objective, np.zeros(4), method="BFGS", tol=1e-9)
    np.testing.assert_allclose(model.coef_[0], best.x, atol=1e-4)
    np.testing.assert_allclose(
        model.surrogate_ + 0.05 * np.sum(model.coef_**2), best.fun, atol=1e-7
    )
    assert model.partial_auc_ == partial_auc(Y, X @ model.coef_[0], 0.2)
    np.testing.assert_allclose(np.mean(model.predict(X)[Y == 0]), 0.2, atol=2 / N)


@pytest.mark.parametrize("surrogate", ["mixed", "wide", "range"])
def test_a_range_sparse_rows_and_a_constraint(surrogate):
    asked = {"surrogate": surrogate, "inequality": "x[0] <= 0.5", "lam": 0.01}
    model = PartialAUCClassifier(0.3, 0.1, **asked).fit(X, Y)
    assert model.result_.success and model.coef_[0, 0] <= 0.5 + 1e-9
    sparse = PartialAUCClassifier(0.3, 0.1, **asked).fit(scipy.sparse.csr_matrix(X), Y)
    np.testing.assert_allclose(sparse.coef_, model.coef_, atol=1e-6)
    mean = mossp.Expected(lambda x, batch: jnp.mean(batch[0] @ x) - 1.0)
    assert PartialAUCClassifier(0.3, inequality=mean).fit(X, Y).result_.success


@pytest.mark.parametrize("surrogate", ["mixed", "wide", "range"])
def test_mini_batches_of_pairs_come_near_full_passes(surrogate):
    asked = {"surrogate": surrogate, "lam": 0.02}
    full = PartialAUCClassifier(0.3, 0.1, **asked).fit(X, Y)
    model = PartialAUCClassifier(0.3, 0.1, **asked, batch_size=40, steps=100, tol=0.3)
    model.fit(X, Y)
    assert model.result_.success and model.certificate_.samples > 0  # judged on fresh blocks
    assert model.surrogate_ < 1.05 * full.surrogate_
    assert model.partial_auc_ > full.partial_auc_ - 0.05


def test_the_regulariser_left_out_is_a_ridge_and_l1_has_zeros():
    rare = np.column_stack([X, 0.01 * RNG.normal(size=(N, 3))])
    model = PartialAUCClassifier(0.2).fit(rare, Y)
    k = 1 / np.sum(Y == 1) + (0.2 * (1 / 0.2 + 1 / 0.4) / 2 + 0.8) / np.sum(Y == 0)
    same = PartialAUCClassifier(0.2, lam=k * rare.var(axis=0).sum(), regularizer="ridge")
    np.testing.assert_allclose(model.coef_, same.fit(rare, Y).coef_, atol=1e-8)
    assert model.result_.success and model.certificate_.is_kkt(1e-8)
    assert np.all(model.coef_ != 0)
    sparse = PartialAUCClassifier(0.2, regularizer="l1").fit(rare, Y)
    assert sparse.result_.success and np.all(sparse.coef_[0, 4:] == 0)


def test_a_fit_compiles_few_programs():
    """Operations one by one would be some 40 more for every number of rows."""
    rows = slice(0, N - 7)  # as many as no other test has
    assert 0 < compiled_by(lambda: PartialAUCClassifier(0.2).fit(X[rows], Y[rows])) <= 10


def test_wide_ends_at_all_negatives_and_a_range_at_its_own():
    np.testing.assert_allclose(Range.wide(0.7).shares, [0.7, 1.0], rtol=1e-8)
    np.testing.assert_allclose(Range.wide(0.7).factors, [0.5 / 0.7, 0.5])
    added, taken = Range.alone(0.05, 0.2).parts()
    assert added.shares.tolist() == [0.2] and taken.shares.tolist() == [0.05]
    np.testing.assert_allclose([*added.factors, *taken.factors], 1 / 0.15)
    assert Range.wide(0.2).parts()[1] is None and Range.alone(0.0, 0.2).parts()[1] is None
    np.testing.assert_allclose([Range.alone(0.0, 0.2).length, Range.alone(0.05, 0.2).length],
                               [0.2, 0.15])  # fmt: skip


def test_blocks_are_drawn_by_weight_and_cost_what_their_pairs_do():
    with jax.enable_x64(True):
        u = np.array([0.0, 0.25, 0.75])
        i, j = Blocks.of(u, np.full(40, 1 / 40), 5, 7)(jax.random.key(0), 4000)
        np.testing.assert_allclose(np.bincount(np.ravel(i), minlength=3) / i.size, u, atol=0.01)
        assert np.ravel(j).min() == 0 and np.ravel(j).max() == 39
        P, Q, w = RNG.normal(size=(3, 2)), RNG.normal(size=(40, 2)), RNG.normal(size=2)
        loss = BlockLoss(P, Q, 40 / 3, Ranked.of(Range.alone(0.2, 0.5), 1e-6))
        value = loss({"coef": jnp.asarray(w)}, (i[:3], j[:3]))
        by_hand = []
        for k in range(3):
            pairs = np.maximum(1 - (P[i[k]] @ w)[:, None] + Q[j[k]] @ w, 0) ** 2
            G = np.sort(pairs.mean(axis=0))[::-1]
            upper, lower = np.interp([3.5, 1.4], range(8), np.append(0, np.cumsum(G))) / 7
            by_hand.append((upper - lower) / 0.3)
        np.testing.assert_allclose(value, np.mean(by_hand), atol=1e-4)


def test_large_data_take_mini_batches():
    def size(count, batch_size=None):
        rows = Rows(np.broadcast_to(0.0, (count, 50)), np.ones(count), np.ones(count))
        return PartialAUCClassifier(batch_size=batch_size)._block_size(rows)

    assert size(1_000_000) is None and size(1_000_001) == 1024  # beyond 5e7 entries
    assert size(1_000_001, "full") is None and size(100, 300) == 300


def test_wrong_input_gets_a_sentence():
    with pytest.raises(ValueError, match="0 <= min_fpr < max_fpr <= 1"):
        PartialAUCClassifier(0.1, 0.2).fit(X, Y)
    with pytest.raises(TypeError, match="max_fpr must be a number"):
        PartialAUCClassifier("much").fit(X, Y)
    with pytest.raises(ValueError, match="batch_size must be a whole number or 'full'"):
        PartialAUCClassifier(batch_size="some").fit(X, Y)
    with pytest.raises(ValueError, match="batch_size must be at least 2"):
        PartialAUCClassifier(batch_size=1).fit(X, Y)
    with pytest.raises(ValueError, match="takes no rates"):
        PartialAUCClassifier(rates="fpr <= 0.1").fit(X, Y)
    with pytest.raises(ValueError, match="delta must be positive"):
        PartialAUCClassifier(delta=0.0).fit(X, Y)
    with pytest.raises(ValueError, match="Only binary"):
        PartialAUCClassifier().fit(X, np.arange(N) % 3)


@pytest.mark.slow
@parametrize_with_checks([PartialAUCClassifier()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)
