"""
Nonnegative shares of a mixture
===============================

A measured spectrum is a mixture of known ones: which substances are in it, and how much of each? Shares are not
negative, none exceeds 1, and they add up to at most 1. Bounds are part of the regulariser (a box), so that they
hold exactly, and so do the zeros.
"""

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import mossp

rng = np.random.default_rng(0)
channels, substances = 300, 25
grid = np.linspace(0, 1, channels)
centres, widths = rng.uniform(0, 1, (substances, 3)), rng.uniform(0.02, 0.06, (substances, 3))
library = np.exp(-((grid[:, None, None] - centres) ** 2) / widths**2 / 2).sum(axis=2)
shares = np.zeros(substances)
shares[[2, 7, 19]] = [0.5, 0.3, 0.15]
spectrum = library @ shares + 0.02 * rng.normal(size=channels)


def solve(regularizer: mossp.Regularizer, **constraints) -> mossp.Result:
    problem = mossp.Problem(mossp.losses.squared, (library, spectrum), regularizer, **constraints)
    return mossp.solve(problem, np.full(substances, 1 / substances))


# %%
# Least squares alone spreads over all substances; nonnegativity helps, MCP in the box finds the three.

answers = {
    "least squares": solve(mossp.Zero()),
    "nonnegative": solve(mossp.Nonnegative(mossp.Zero())),
    "MCP in a box": solve(
        mossp.Box(mossp.MCP(0.01, 20.0), 0.0, 1.0), inequality=lambda x: jnp.sum(x) - 1.0
    ),
}
for name, result in answers.items():
    print(
        f"{name:14} {np.count_nonzero(result.x):2d} substances, smallest share {result.x.min():+.3f}, "
        f"error {np.abs(result.x - shares).max():.3f}, {result.status.name}"
    )

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
for a, (name, result) in zip(axes, answers.items(), strict=True):
    a.bar(np.arange(substances), result.x, color="C0", label="found")
    a.plot(np.flatnonzero(shares), shares[shares > 0], "k_", markersize=12, label="true")
    a.set(title=name, xlabel="substance")
axes[0].set_ylabel("share")
axes[0].legend(frameon=False)

boxed = answers["MCP in a box"].x
assert (boxed >= 0).all() and boxed.sum() <= 1 + 1e-9
assert np.flatnonzero(boxed).tolist() == [2, 7, 19]
