"""The partial AUC loss: against sums over pairs, the linear estimator's, and differences."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import mossp.torch as ours
from mossp.torch import MoSSP, partial_auc_loss, partial_auc_parts

RNG = np.random.default_rng(2)
SCORES = RNG.normal(size=60)
LABELS = RNG.permutation(np.arange(60) < 17).astype(int)
RANGES = [(0.1, 0.0), (0.3, 0.1), (1.0, 0.0), (0.5, 0.02), (0.01, 0.0)]


def by_pairs(scores, labels, high, low):
    """Negatives one by one, in the order of their scores; a part of one where a rate cuts it."""
    m, n = scores[labels > 0], np.sort(scores[labels <= 0])[::-1]
    total = 0.0
    for rank, score in enumerate(n):
        inside = min(high, (rank + 1) / len(n)) - max(low, rank / len(n))
        total += max(inside, 0.0) * np.mean(np.maximum(1 - m + score, 0) ** 2)
    return total / (high - low)


def tensors(dtype=torch.float64):
    return torch.tensor(SCORES, dtype=dtype), torch.tensor(LABELS)


@pytest.mark.parametrize(("high", "low"), RANGES)
def test_it_is_the_mean_over_pairs(high, low):
    scores, labels = tensors()
    expected = by_pairs(SCORES, LABELS, high, low)
    assert partial_auc_loss(scores, labels, high, low).item() == pytest.approx(expected, rel=1e-12)
    for other in (labels.bool()[:, None], 2.0 * labels - 1):  # other ways to write the same
        again = partial_auc_loss(scores[:, None], other, high, low)
        assert again.item() == pytest.approx(expected, rel=1e-12)
    shifted = partial_auc_loss((scores + 1e4).float(), labels, high, low)  # rounds at 5e-4
    assert shifted.dtype == torch.float32 and shifted.item() == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(("high", "low"), RANGES[:4])
@pytest.mark.parametrize("delta", [0.0, 0.05, 0.5])
def test_gradients_are_those_of_differences(high, low, delta):
    scores, labels = tensors()
    scores.requires_grad_()
    for part in (0, 1):
        torch.autograd.gradcheck(
            lambda s, part=part: partial_auc_parts(s, labels, high, low, delta=delta)[part], scores
        )


def test_both_parts_are_convex_in_the_scores():
    """Along segments, on which a negative overtakes others; their difference is not."""
    labels = torch.tensor(LABELS)
    one = int((labels == 0).nonzero()[0])
    gaps = []
    for move in RNG.normal(size=(100, 60)):
        a = torch.tensor(RNG.normal(size=60))
        b = a + 0.1 * torch.tensor(move)
        b[one] += 4.0
        at = [torch.stack(partial_auc_parts(s, labels, 0.3, 0.1)) for s in (a, b, (a + b) / 2)]
        gaps.append((at[0] + at[1]) / 2 - at[2])
    convex = torch.stack(gaps)
    assert (convex > -1e-12).all() and (convex[:, 0] - convex[:, 1] < -1e-2).any()


@pytest.mark.parametrize(("high", "low"), [(0.2, 0.0), (0.3, 0.1), (1.0, 0.0)])
def test_it_is_the_loss_of_the_linear_estimator(high, low):
    linear = pytest.importorskip("mossp.sklearn.ranks", reason="scikit-learn is optional")
    scores, labels = tensors()
    with jax.enable_x64(True):
        m, n = jnp.asarray(SCORES[LABELS > 0]), jnp.asarray(SCORES[LABELS == 0])
        G, v = linear.above(m, n, jnp.full(17, 1 / 17)), jnp.full(43, 1 / 43)
        parts = [
            float(linear.smoothed_top(G, v, min(share, 1 - 1e-9), 0.05)) if share else 0.0
            for share in (high, low)
        ]
    found = partial_auc_parts(scores, labels, high, low, delta=0.05)
    np.testing.assert_allclose(found, np.divide(parts, high - low), rtol=1e-10)
    sharp = partial_auc_loss(scores, labels, high, low)
    smooth = partial_auc_loss(scores, labels, high, low, delta=1e-9)
    assert smooth.item() == pytest.approx(sharp.item(), abs=1e-6)


def test_it_is_what_the_linear_estimator_reports():
    estimators = pytest.importorskip("mossp.sklearn", reason="scikit-learn is optional")
    X = RNG.normal(size=(300, 4))
    y = (X[:, 0] - 0.5 * X[:, 1] + 0.8 * RNG.normal(size=300) > 1).astype(int)
    model = estimators.PartialAUCClassifier(0.3, 0.1, surrogate="range").fit(X, y)
    scores, labels = torch.tensor(X @ model.coef_[0]), torch.tensor(y)
    smoothed = partial_auc_loss(scores, labels, 0.3, 0.1, delta=0.05)
    assert smoothed.item() == pytest.approx(model.surrogate_, rel=1e-10)


def area_of_network(for_range, X, y):
    """The true partial AUC over [0.05, 0.2], after training on mini-batches."""
    estimators = pytest.importorskip("mossp.sklearn", reason="scikit-learn is optional")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    batch = {}

    def scores():
        return model(X[batch["rows"]])[:, 0]

    def parts():
        return partial_auc_parts(scores(), y[batch["rows"]], 0.2, 0.05)

    def closure():
        entropy = torch.nn.functional.binary_cross_entropy_with_logits
        loss = parts().loss if for_range else entropy(scores(), y[batch["rows"]])
        loss.backward()
        return loss

    concave = (lambda: parts().concave) if for_range else None
    optimizer = MoSSP(model.parameters(), concave=concave, lr=0.05)
    for _ in range(300):
        batch["rows"] = torch.randint(len(X), (200,))
        optimizer.step(closure)
    with torch.no_grad():
        return estimators.partial_auc(y.numpy(), model(X)[:, 0].numpy(), 0.2, 0.05)


def test_a_network_learns_the_range_that_is_asked_for():
    torch.manual_seed(0)
    X = torch.randn(600, 3)
    y = (X[:, 0] ** 2 + X[:, 1] + 0.5 * torch.randn(600) > 2).float()
    found, other = (area_of_network(for_range, X, y) for for_range in (True, False))
    assert found > 0.85 and found > other


def test_scores_that_are_nan_stop_the_step():
    x = torch.nn.Parameter(torch.ones(1))
    row, y = torch.tensor([1.0, 2.0, math.nan, 0.5]), torch.tensor([1, 0, 1, 0])
    with pytest.raises(ours.NonFiniteError, match="the loss is nan"):
        optimizer = MoSSP([x])

        def closure():
            loss = partial_auc_loss(row * x, y)
            loss.backward()
            return loss

        optimizer.step(closure)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"max_fpr": 0.0}, ValueError, "0 <= min_fpr < max_fpr <= 1"),
        ({"min_fpr": 0.2}, ValueError, "min_fpr = 0.2 and max_fpr = 0.1"),
        ({"max_fpr": "much"}, TypeError, "max_fpr must be a number"),
        ({"delta": -1.0}, ValueError, "delta must be a number >= 0"),
        ({"labels": torch.ones(60)}, ValueError, "60 positives .* among 60 rows: draw batches"),
        ({"labels": torch.zeros(60)}, ValueError, "0 positives"),
        ({"labels": torch.ones(3)}, ValueError, "60 scores, but 3 labels"),
        ({"scores": SCORES}, TypeError, "scores must be a tensor"),
        ({"scores": torch.ones(60, 2)}, ValueError, r"one for a row, but they are of \(60, 2\)"),
    ],
)
def test_wrong_input_gets_a_sentence(change, error, says):
    scores, labels = tensors()
    with pytest.raises(error, match=says):
        partial_auc_loss(**{"scores": scores, "labels": labels, **change})
