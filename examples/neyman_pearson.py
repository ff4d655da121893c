"""
What a bound on false alarms costs
==================================

A test should miss as few of the ill as it can, while at most a given share of the healthy is alarmed: Neyman-Pearson classification. Both
are means over rows of their own, so that the bound is a constraint about data, ``mossp.Expected``. Smooth functions take the place of both
rates while solving; what is drawn are the true ones, on rows that no solve has seen.
"""

# %%
# Twelve measurements of healthy and of ill people, of which three tell something.

import itertools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import mossp

rng = np.random.default_rng(0)


def people(count, shift):
    A = rng.normal(size=(count, 12))
    A[:, :3] += shift
    return np.column_stack([A, np.ones(count)])  # an intercept


ill, healthy = people(1200, 1.0), people(2000, 0.0)
new_ill, new_healthy = people(20_000, 1.0), people(20_000, 0.0)

# %%
# The loss is the logistic one over the ill; false alarms are counted by a sigmoid over the healthy. The bound is a number that the function
# holds, so that all bounds share one compiled program. The intercept is not penalised.

WIDTH = 0.25  # of the sigmoid, in units of the margin
sparse = mossp.Weighted(mossp.L1MinusL2(0.05), np.r_[np.ones(12), 0.0])


def misses(x, rows):
    return jnp.mean(jax.nn.softplus(-(rows @ x)))


def false_alarms(bound, x, rows):
    return jnp.mean(jax.nn.sigmoid(rows @ x / WIDTH)) - bound


def solved(bound, x0):
    expected = mossp.Expected(jax.tree_util.Partial(false_alarms, bound), data=healthy)
    problem = mossp.Problem(misses, ill, sparse, inequality={"false alarms": expected})
    return mossp.solve(problem, x0)


# %%
# Each solve starts from the answer for the bound before. The multiplier is the price: by how much the loss falls for a unit of the bound.

bounds = [0.02, 0.03, 0.05, 0.08, 0.12, 0.2]
found, last = [], np.zeros(13)
for bound in bounds:
    result = solved(bound, last)
    last = result.x
    smooth = float(np.mean(1 / (1 + np.exp(-healthy @ last / WIDTH))))
    alarms, missed = np.mean(new_healthy @ last > 0), np.mean(new_ill @ last <= 0)
    found.append((result, smooth, float(np.mean(healthy @ last > 0)), alarms, missed))
    price = float(result.certificate.multipliers["inequality"]["false alarms"])
    print(
        f"bound {bound:.0%}: sigmoid {smooth:.4f}, {np.count_nonzero(last[:12])} of 12 coefficients, price {price:.2f}; "
        f"on new rows {alarms:.1%} false alarms, {missed:.1%} missed"
    )

# %%
# The true rates are below the bounds on the sigmoids, which count those near the threshold as well: 5 % there are 3.1 % on new rows. The best
# that any test can do on these data is known, since both classes are Gaussian.

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
rate = np.linspace(0.001, 0.21, 200)
axes.plot(
    rate, norm.cdf(norm.isf(rate) - np.sqrt(3.0)), color="0.6", label="the best possible test"
)
axes.plot([f[3] for f in found], [f[4] for f in found], "o-", label="true rates, new rows")
axes.plot(bounds, [f[4] for f in found], "s--", label="against the bound on the sigmoids")
axes.set(xlabel="share of the healthy who are alarmed", ylabel="share of the ill who are missed")
axes.set(xlim=(0, 0.21), ylim=(0, 1))
axes.legend(frameon=False)

for bound, (result, smooth, training, alarms, _) in zip(bounds, found, strict=True):
    assert result.success and result.certificate.is_kkt(1e-10, relative=True)
    assert abs(smooth - bound) < 1e-9 and training <= bound and alarms <= bound
assert all(a[4] > b[4] for a, b in itertools.pairwise(found))
