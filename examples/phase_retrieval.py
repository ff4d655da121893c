"""
A sparse signal from the sizes of its measurements
==================================================

Phase retrieval: of a'x only the square is measured. Some measurements are exact and must hold, y_j =
(a_j'x)^2 for j = 1, ..., m: quadratic equalities, as nonconvex as they come. Many more are noisy and make
up the loss::

    min  (1/4N) sum_i ((b_i'x)^2 - w_i)^2 + lam (|x|_1 - |x|_2)    s.t.  (a_j'x)^2 = y_j
"""

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import mossp

rng = np.random.default_rng(1)
n, m, N = 40, 6, 600
truth = np.zeros(n)
truth[rng.choice(n, 5, replace=False)] = rng.choice([-1.0, 1.0], 5) * rng.uniform(0.5, 1.5, 5)
A, B = rng.normal(size=(m, n)), rng.normal(size=(N, n))
y = (A @ truth) ** 2
w = (B @ truth) ** 2 * (1 + 0.05 * rng.normal(size=N))


def loss(x, batch):
    rows, squares = batch
    return 0.25 * jnp.mean(((rows @ x) ** 2 - squares) ** 2)


# %%
# A start is what decides here: an equality (a'x)^2 = y holds the sign of a'x fast. So the noisy measurements alone
# come first, from the leading eigenvector of their weighted moments, and the equalities then, from that answer.

values, vectors = np.linalg.eigh((B.T * w) @ B / N)
x0 = vectors[:, -1] * np.sqrt(w.mean())
penalty = mossp.L1MinusL2(1.0)
first = mossp.solve(mossp.Problem(loss, (B, w), penalty), x0)
squares = mossp.constraints.Quadratics(2 * A[:, :, None] * A[:, None, :], np.zeros((m, n)), y)
result = mossp.solve(mossp.Problem(loss, (B, w), penalty, equality=squares), first)
x = result.x * np.sign(result.x @ truth)  # the sign of x cannot be seen
print(result.status.name, f"violation {result.violation:.0e}")
print("support:", np.flatnonzero(x).tolist(), "true:", np.flatnonzero(truth).tolist())
print(f"relative error {np.linalg.norm(x - truth) / np.linalg.norm(truth):.3f}")

# %%
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.stem(truth, linefmt="C7-", markerfmt="C7o", basefmt=" ", label="true")
axes.stem(np.arange(n) + 0.3, x, linefmt="C0-", markerfmt="C0.", basefmt=" ", label="found")
axes.set(xlabel="entry", ylabel="value")
axes.legend(frameon=False)

assert set(np.flatnonzero(truth)) <= set(np.flatnonzero(x)) and result.violation < 1e-8
