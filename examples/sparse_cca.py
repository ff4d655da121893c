"""
Nonnegative sparse CCA
======================

Two sets of measurements of the same things: which few columns of one go along with which few of the other? Loadings u
and v of length 1, not negative, under a capped l1 penalty, as in the paper::

    min  -u'C v + reg(u) + reg(v)    s.t.  |u|^2 = 1,  |v|^2 = 1,  u, v >= 0

First where the loadings are known, then on tumours: the means of ten measurements of a tumour's cells against the worst
of its cells.
"""

# %%
# Known loadings: columns 0, 1, 2 of X and 3, 4 of Y share a signal.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from mossp.sklearn import SparseCCA

rng = np.random.default_rng(0)
N, p, q = 500, 12, 10
u, v = np.zeros(p), np.zeros(q)
u[:3], v[3:5] = 1.0, 1.0
signal = rng.normal(size=(N, 1))
X = signal * u + rng.normal(size=(N, p))
Y = signal * v + rng.normal(size=(N, q))

model = SparseCCA(regularizer="capped-l1:0.2,0.3", nonnegative=True).fit(X, Y)
print(
    "X:", np.flatnonzero(model.x_weights_).tolist(), "Y:", np.flatnonzero(model.y_weights_).tolist()
)
print(
    f"certificate at 1e-10: {model.certificate_.is_kkt(1e-10)}, correlation {model.correlations_[0]:.2f}"
)
assert np.flatnonzero(model.x_weights_).tolist() == [0, 1, 2]
assert np.flatnonzero(model.y_weights_).tolist() == [3, 4]

# %%
# Tumours: with a growing strength fewer measurements speak for the rest.

data = load_breast_cancer()
means, worst = data.data[:, :10], data.data[:, 20:]
names = [str(name).removeprefix("mean ") for name in data.feature_names[:10]]
strengths = (0.4, 0.8, 1.2)
fits = [
    SparseCCA(regularizer="capped-l1", lam=lam, nonnegative=True).fit(means, worst)
    for lam in strengths
]
for lam, fit in zip(strengths, fits, strict=True):
    chosen = [name for name, w in zip(names, fit.x_weights_[:, 0], strict=True) if w]
    print(f"lam {lam}: correlation {fit.correlations_[0]:.3f}, means of {', '.join(chosen)}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for a, side in zip(axes, ("x_weights_", "y_weights_"), strict=True):
    for k, (lam, fit) in enumerate(zip(strengths, fits, strict=True)):
        a.barh(
            np.arange(10) + 0.27 * (k - 1),
            getattr(fit, side)[:, 0],
            height=0.25,
            label=f"lam = {lam}",
        )
    a.set(
        title="mean of the cells" if side == "x_weights_" else "worst of the cells",
        xlabel="loading",
    )
axes[0].set_yticks(np.arange(10), names)
axes[0].invert_yaxis()
axes[1].legend(frameon=False)
