"""
Fair classification
===================

A classifier learns from past decisions that favoured one group. The covariance between its margin and the protected
attribute is bounded, over all applicants (demographic parity) or over those who deserve it (equal opportunity). How
much accuracy does which bound cost?
"""

# %%
# Applicants with a skill, a group, and a score in which the group already shows. Past decisions favoured group 1.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale

from mossp.fairness import DemographicParity, EqualOpportunity, selection_rates
from mossp.sklearn import MoSSPClassifier

rng = np.random.default_rng(0)
N = 3000
group = rng.integers(0, 2, N)
skill = rng.normal(size=N)
X = np.column_stack(
    [
        skill + 0.5 * rng.normal(size=N),
        skill + 1.2 * group + 0.5 * rng.normal(size=N),  # a proxy of the group
        1.0 * group + rng.normal(size=N),  # another
        rng.normal(size=(N, 5)),  # noise
    ]
)
X = scale(X)
y = (skill + 0.6 * group + 0.3 * rng.normal(size=N) > 0.3).astype(int)
train, test = train_test_split(np.arange(N), test_size=0.4, random_state=0)

# %%
# One fit for each bound. The attribute itself is no feature: it is given to ``fit`` only.


def gap(model: MoSSPClassifier, deserving: bool) -> float:
    truth = y[test] if deserving else None
    rates = selection_rates(model.predict(X[test]), group[test], truth)
    return abs(rates[1] - rates[0])


bounds = [None, 0.2, 0.1, 0.05, 0.02, 0.0]
kinds = {"demographic parity": DemographicParity, "equal opportunity": EqualOpportunity}
table = {}
for name, kind in kinds.items():
    for bound in bounds:
        inequality = None if bound is None else kind(bound)
        model = MoSSPClassifier(regularizer="mcp", lam=0.02, inequality=inequality)
        model.fit(X[train], y[train], sensitive=group[train])
        table[name, bound] = (
            model.score(X[test], y[test]),
            gap(model, deserving=kind is EqualOpportunity),
            model.violation_,
        )
        print(
            f"{name}, bound {bound}: accuracy {table[name, bound][0]:.3f}, "
            f"gap {table[name, bound][1]:.3f}, violation {model.violation_:.0e}"
        )

# %%
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name in kinds:
    accuracy, gaps, _ = zip(*(table[name, b] for b in bounds), strict=True)
    axes.plot(gaps, accuracy, marker="o", label=name)
axes.set(xlabel="gap between the groups' rates (test)", ylabel="accuracy (test)")
axes.legend(frameon=False)

assert all(table[name, 0.0][1] < 0.5 * table[name, None][1] for name in kinds)
