"""Orders of Theorems 3.1 and 3.2 on a short range of K; benchmarks/rates.py has the long one."""

import numpy as np
import pytest

from mossp.experiments import rates


@pytest.mark.parametrize("setting", rates.SETTINGS, ids=lambda s: s.result)
def test_residuals_fall_at_the_papers_orders(setting):
    seen = rates.measure(setting, (10, 11, 12, 13), replicas=64, seed=0, averaged=64)
    assert seen["largest"] <= setting.region  # where the constants hold
    means = np.array(seen["means"])
    slopes = np.log(means[-1] / means[0]) / np.log(8)
    assert slopes[0] <= setting.order + 0.2  # E||u||^2
    assert slopes[2] <= -0.15  # E||c||^2, which settles later
    # The fits over the last half, with their intervals: none of the three falls by chance.
    highest = (setting.order + 0.2, -1.0, -0.25)  # ||x - y||^2 is of a higher order
    for (middle, low, high), most in zip(seen["slopes"], highest, strict=True):
        assert high <= most and low < middle < high < low + 0.25


def test_a_slope_and_its_interval():
    """Exact powers have an interval of no width; noise gives it some."""
    Ks, rng = [2**e for e in range(4, 12)], np.random.default_rng(0)
    exact = np.array(Ks, float)[:, None] ** -0.5 * np.ones(16)
    np.testing.assert_allclose(rates.slope(Ks, exact), -0.5, atol=1e-12)
    middle, low, high = rates.slope(Ks, exact * rng.lognormal(sigma=0.2, size=exact.shape))
    assert low < -0.5 < high and high - low < 0.5 and abs(middle + 0.5) < 0.2
