"""
A network under an energy budget
================================

The paper's example: train a network whose inference must not cost more than so much energy. The energy of a layer grows with
the number of its weights that are not zero, since each is fetched and multiplied once for every image::

    min  E[loss(W)] + reg(W)    s.t.  phi(w_u) <= s_u for every layer u,   psi(s) = sum_u e_u s_u <= budget

phi is a smooth count of the nonzeros, sum w^2 / (w^2 + delta^2), and s_u, a variable as well, is layer u's share of the budget:
how it is shared out is found by the training. A capped l1 penalty makes the small weights exactly zero. Data: scikit-learn's
handwritten digits.
"""

# %%
# A network of two layers; the second costs more a weight (its memory is farther away).

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import mossp

X, y = load_digits(return_X_y=True)
X = X / 16
train_X, test_X, train_y, test_y = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
HIDDEN = 32
COST = {"W1": 1.0, "W2": 2.0}  # nanojoules a nonzero weight
DELTA = 0.05
rng = np.random.default_rng(0)
start = {
    "W1": rng.normal(size=(64, HIDDEN)) / 8,
    "b1": np.zeros(HIDDEN),
    "W2": rng.normal(size=(HIDDEN, 10)) / np.sqrt(HIDDEN),
    "b2": np.zeros(10),
}
FULL = sum(COST[u] * start[u].size for u in COST)


def scores(x, images):
    return jnp.tanh(images @ x["W1"] + x["b1"]) @ x["W2"] + x["b2"]


def loss(x, batch):
    images, labels = batch
    out = scores(x, images)
    return jnp.mean(jax.nn.logsumexp(out, axis=1) - out[jnp.arange(len(labels)), labels])


def phi(w):
    return jnp.sum(w**2 / (w**2 + DELTA**2))


def accuracy(x):
    return float(np.mean(np.argmax(scores(x, test_X), axis=1) == test_y))


def energy(x):
    """With the true count."""
    return sum(COST[u] * np.count_nonzero(x[u]) for u in COST)


# %%
# The dense network, and one for each budget. Each starts from the one before, its smallest weights cut off, which is feasible
# and not good; weights that were cut off may come back. Constraints are in units of the budget, so that a violation of 1e-3 is a
# thousandth of it.

STEPS = 4000


def over_budget(budget, x):
    shares = x["s"]
    layers = {u: (phi(x[u]) - shares[i]) * COST[u] / budget for i, u in enumerate(COST)}
    total = sum(COST[u] * shares[i] for i, u in enumerate(COST))
    return {**layers, "budget": total / budget - 1.0}


def pruned(x, part):
    """The largest weights of every layer, and what they cost as its share."""
    kept = {**x, "s": np.array([0.95 * part * x[u].size for u in COST])}
    for u, share in zip(COST, kept["s"], strict=True):
        smallest = np.sort(np.abs(x[u]).ravel())[-int(share)]
        kept[u] = np.where(np.abs(x[u]) >= smallest, x[u], 0.0)
    return kept


dense = mossp.solve(
    mossp.Problem(loss, (train_X, train_y)), start, method="mossp-r", steps=STEPS, seed=0
).x
print(f"dense: energy {energy(dense):.0f}, accuracy {accuracy(dense):.3f}")

sparse = mossp.CappedL1(1e-2, theta=0.1)
regularizer = mossp.Blocks({"W1": sparse, "W2": sparse, "s": mossp.Nonnegative(mossp.Zero())})
found, last = {}, dense
for part in (0.5, 0.25, 0.15, 0.1):
    budget = part * FULL
    problem = mossp.Problem(
        loss,
        (train_X, train_y),
        regularizer,
        inequality=jax.tree_util.Partial(over_budget, budget),
    )
    x0 = pruned(last, part)
    result = mossp.solve(problem, x0, method="sqp-dc", steps=STEPS, batch_size=64, tol=0.1, seed=0)
    found[part], last = result, {u: w for u, w in result.x.items() if u != "s"}
    print(
        f"budget {part:.0%}: energy {energy(result.x) / FULL:.1%} of the dense one's, accuracy "
        f"{accuracy(result.x):.3f} (cut off alone {accuracy(x0):.3f}), violation "
        f"{result.violation:.0e}, shares {result.x['s'].round()}"
    )

# %%
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
parts = list(found)
axes.plot(
    [energy(found[p].x) / FULL for p in parts], [accuracy(found[p].x) for p in parts], marker="o"
)
axes.axhline(accuracy(dense), color="0.5", linestyle=":", label="dense network")
for p in parts:
    axes.annotate(f"budget {p:.0%}", (energy(found[p].x) / FULL, accuracy(found[p].x)),
                  textcoords="offset points", xytext=(6, -12), fontsize=8)  # fmt: skip
axes.set(
    xlabel="energy, as a part of the dense network's",
    ylabel="accuracy on test images",
    xscale="log",
)
axes.legend(frameon=False)

for part, result in found.items():
    assert result.violation <= 1e-3 and energy(result.x) <= part * FULL
