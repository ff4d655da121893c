"""
A sparse portfolio of given risk
================================

Of 60 assets with expected returns r and covariances C, hold few, none of them short, with exactly the
risk that was agreed on::

    max  r'x - cost(x)    s.t.  sum(x) = 1,  x'C x = risk^2,  x >= 0

The sum is fixed, so that an l1 penalty would be a constant. A capped one, lam sum_i min(x_i, theta),
charges every position alike once it is larger than theta: the number of positions is what it costs.
"""

# %%
# Returns from three factors, as they are often modelled.

import matplotlib.pyplot as plt
import numpy as np
from jax.tree_util import Partial

import mossp

rng = np.random.default_rng(0)
n, factors = 60, 3
loadings = rng.normal(size=(n, factors)) * [0.15, 0.08, 0.05]
C = loadings @ loadings.T + np.diag(rng.uniform(0.05, 0.25, n) ** 2)
r = 0.02 + 0.4 * np.abs(loadings[:, 0]) + 0.03 * rng.normal(size=n)

# %%
# The risk is a nonconvex equality: the portfolios of a given risk are no convex set. ``Partial`` makes the risk an
# argument of the constraint, so that another one needs no new compilation.


def loss(x):
    return -(r @ x)


def agreed(risk, x):
    return {"budget": x.sum() - 1.0, "risk": x @ C @ x - risk**2}


def problem(risk: float, lam: float) -> mossp.Problem:
    return mossp.Problem(
        loss=loss,
        regularizer=mossp.Nonnegative(mossp.CappedL1(lam, theta=0.02)),
        equality=Partial(agreed, risk),
    )


RISKS, LAMS = (0.08, 0.10, 0.12, 0.14), (0.0, 0.1, 0.3)
found = {}
for risk in RISKS:
    for lam in LAMS:
        result = mossp.solve(problem(risk, lam), np.full(n, 1 / n), starts=4)
        found[risk, lam] = result
        print(
            f"risk {risk:.2f}, lam {lam:.1f}: return {r @ result.x:.4f}, "
            f"{np.count_nonzero(result.x):2d} positions, violation {result.violation:.0e}, "
            f"{result.status.name}"
        )

# %%
# Fewer positions cost some return, and the risk is met to the last digits.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for lam in LAMS:
    points = [found[risk, lam] for risk in RISKS]
    left.plot(RISKS, [r @ p.x for p in points], marker="o", label=f"lam = {lam}")
    right.plot(RISKS, [np.count_nonzero(p.x) for p in points], marker="o")
left.set(xlabel="risk", ylabel="expected return")
right.set(xlabel="risk", ylabel="positions")
left.legend(frameon=False)

assert max(p.violation for p in found.values()) < 1e-8
