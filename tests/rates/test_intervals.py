"""Intervals of rates and margins of bounds, against published formulas and by simulation."""

import numpy as np
import pytest
import scipy.stats

from mossp import rates
from mossp.rates.binding import bind
from mossp.rates.intervals import (
    clopper_pearson_upper,
    effective_rows,
    intervals,
    tightened,
    wilson,
    with_margin,
)


@pytest.mark.parametrize(("count", "rows"), [(0, 10), (1, 10), (7, 50), (50, 50), (333, 1000)])
def test_intervals_of_a_share_are_scipys(count, rows):
    found = scipy.stats.binomtest(count, rows).proportion_ci(0.9, "wilson")
    assert wilson(count / rows, rows, 0.9) == pytest.approx(tuple(found), abs=1e-12)
    exact = scipy.stats.binomtest(count, rows, alternative="less").proportion_ci(0.9, "exact")
    assert clopper_pearson_upper(count / rows, rows, 0.9) == pytest.approx(exact.high, abs=1e-12)


def test_a_tightened_bound_is_the_largest_count_that_is_safe():
    for end, rows in [(0.05, 1000), (0.3, 57), (0.9, 40)]:
        count = round(tightened(end, rows, 0.95) * rows)
        tests = [scipy.stats.binomtest(k, rows, alternative="less") for k in (count, count + 1)]
        safe, unsafe = (test.proportion_ci(0.95, "exact").high for test in tests)
        assert safe <= end < unsafe
    assert tightened(0.05, 10, 0.95) < 0  # not even 0 of 10
    assert tightened(1.0, 10, 0.95) == 1.0


def draw(rng, rows):
    z = rng.choice(["a", "b"], rows)
    y = (rng.random(rows) < 0.4).astype(int)
    p = np.where(z == "a", 0.2, 0.35) + 0.4 * y
    return y, z, (rng.random(rows) < p).astype(int)


TEXTS = [
    "fpr[z=a] <= 0.5",
    "tpr[z=b] >= 0.5",
    "selection[z=b] - selection[z=a] <= 0.3",
    "|tpr[z=a] - tpr[z=b]| <= 0.5",
    "precision >= 0.2",
    "2 * fpr[z=a] + tpr[z=b] <= 2",
]
TRUTH = [0.2, 0.75, 0.15, 0.15, None, 2 * 0.2 + 0.75]


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(0)
    bounds = [rates.parse(t) for t in TEXTS]
    y, z, d = draw(rng, 400_000)
    precise = bind(bounds, y, [0, 1], np.ones(len(y)), {"z": z}, check=False).values(d)
    hits = np.zeros(len(TEXTS))
    for _ in range(300):
        y, z, d = draw(rng, 300)
        bound = bind(bounds, y, [0, 1], np.ones(300), {"z": z}, check=False)
        for k, (text, (low, high)) in enumerate(intervals(bound, d).items()):
            truth = precise[text] if TRUTH[k] is None else TRUTH[k]
            hits[k] += low <= truth <= high
    assert (hits / 300 > 0.91).all() and (hits / 300 < 0.999).all(), hits / 300


def test_the_interval_of_a_mean_loss_is_that_of_a_mean():
    rng = np.random.default_rng(1)
    losses, z = rng.exponential(size=500), rng.choice(["a", "b"], 500)
    bound = bind([rates.mean_loss(z="a") <= 2], None, None, np.ones(500), {"z": z})
    mean, spread = losses[z == "a"].mean(), losses[z == "a"].std() / np.sqrt((z == "a").sum())
    (found,) = intervals(bound, None, losses).values()
    assert found == pytest.approx((mean - 1.959964 * spread, mean + 1.959964 * spread), rel=1e-6)


def test_weighted_rows_count_as_fewer():
    y, w = np.zeros(100, int), np.ones(100)
    for factor, expected in ((1.0, 100.0), (3.0, (50 + 150) ** 2 / (50 + 450))):
        w[:50] = factor
        bound = bind([rates.selection() <= 0.5], y, [0, 1], w)
        (part,) = bound.parts.values()
        assert effective_rows(bound, part, None) == pytest.approx(expected)


def test_a_bound_with_a_margin_holds_for_new_rows_as_often_as_it_says():
    """Of fixed decision rules whose rate on some rows just meets the margin, 95 % truly do."""
    rng = np.random.default_rng(2)
    rows, asked, kept = 500, 0.1, []
    for probability in np.linspace(0.06, 0.16, 41):
        for _ in range(40):
            d = (rng.random(rows) < probability).astype(int)
            bound = bind([rates.selection() <= asked], np.zeros(rows), [0, 1], np.ones(rows))
            if (with_margin(bound, 0.95).excess(d) <= 0).all():
                kept.append(probability <= asked)
    assert len(kept) > 200 and np.mean(kept) > 0.95


def test_margins_by_kind():
    rng = np.random.default_rng(3)
    y, z, d = draw(rng, 2000)
    bounds = [rates.parse(t) for t in TEXTS]
    plain = bind(bounds, y, [0, 1], np.ones(2000), {"z": z})
    safe = with_margin(plain, 0.95, d)
    assert (safe.excess(d) > plain.excess(d)).all()
    count = ((y == 0) & (z == "a")).sum()
    assert safe.excess(d)[0] - plain.excess(d)[0] == pytest.approx(
        0.5 - tightened(0.5, count, 0.95)
    )
    selected = int((d == 1).sum())
    ratio = [j for j, row in enumerate(plain.rows) if row.bound == 4]
    assert (safe.excess(d) - plain.excess(d))[ratio] == pytest.approx(
        [0.8 - tightened(0.8, selected, 0.95)], abs=1e-9
    )
    a, b = (z == "a").sum(), (z == "b").sum()
    assert safe.excess(d)[2] - plain.excess(d)[2] == pytest.approx(
        1.6448536 * np.sqrt(1 / (4 * a) + 1 / (4 * b)), rel=1e-6
    )


def test_margins_that_cannot_be():
    y, z = np.tile([0, 1], 20), np.repeat(["a", "b"], 20)
    made = lambda bound: bind([bound], y, [0, 1], np.ones(40), {"z": z})  # noqa: E731
    with pytest.raises(ValueError, match=r"cannot be promised .* its group has 10 rows"):
        with_margin(made(rates.fpr(z="a") <= 0.05), 0.95)
    with pytest.raises(ValueError, match="an equality, which leaves no room"):
        with_margin(made(rates.fpr() == 0.5), 0.95)
    with pytest.raises(ValueError, match="bounds a mean loss, which is no share of rows"):
        with_margin(made(rates.mean_loss() <= 0.5), 0.95)
