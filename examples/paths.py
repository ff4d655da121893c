"""
Paths: what a penalty does to what it keeps
===========================================

The same regression at many strengths, each answer started from the one before. l1 shrinks what it keeps, and
takes in wrong columns to make up for it; MCP and SCAD let go of large coefficients.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import mossp

rng = np.random.default_rng(3)
N, n = 300, 30
truth = np.r_[3.0, -2.0, 1.0, np.zeros(n - 3)]
mixing = np.linalg.cholesky(0.5 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))))
X = rng.normal(size=(N, n)) @ mixing.T  # neighbours are correlated
y = X @ truth + rng.normal(size=N)
lams = np.geomspace(3.0, 0.02, 25)

paths = {
    name: mossp.path(mossp.Problem(mossp.losses.squared, (X, y), reg), lams)
    for name, reg in {"L1": mossp.L1(1.0), "MCP": mossp.MCP(1.0), "SCAD": mossp.SCAD(1.0)}.items()
}

# %%
# At its best strength, how far is each from the truth, and with how many nonzeros?

for name, path in paths.items():
    errors = np.linalg.norm(path.xs - truth, axis=1)
    best = int(errors.argmin())
    print(
        f"{name:5} error {errors[best]:.3f} at lam = {lams[best]:.3f} with {path.nonzeros[best]} "
        f"nonzeros; all certified: {path.success}"
    )

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for a, (name, path) in zip(axes, paths.items(), strict=True):
    a.plot(lams, path.xs[:, 3:], color="0.7", linewidth=0.8)
    a.plot(lams, path.xs[:, :3], linewidth=1.8)
    for value in truth[:3]:
        a.axhline(value, color="0.5", linestyle=":", linewidth=0.8)
    a.set(title=name, xlabel="lam", xscale="log")
axes[0].set_ylabel("coefficients")

assert all(path.success for path in paths.values())
