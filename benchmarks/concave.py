"""A concave part that is a mean over rows: known answers, orders of the residuals, false successes.

    python benchmarks/concave.py

f(x) = mean_i |x - t_i|^2 / 2, g(x) = mean_i sum_j phi(x_j - r_ij) with phi piecewise linear, h =
lam |x|_1: coordinate by coordinate, every critical point is found by trying all pieces.
"""

from __future__ import annotations

import time

import jax.numpy as jnp
import numpy as np

import mossp

N, n = 200, 3
TEN = 10
RANDOM = 200
STEPS = (500, 2000, 8000, 32_000)
KINDS = ((-0.6, 0.6), (0.0, 1.0), (-0.3, 0.9), (-1.0, 0.2), (0.2, 1.4))  # slopes of phi


def near(x, batch):
    return 0.5 * jnp.mean(jnp.sum((x - batch[0]) ** 2, axis=1))


def kinked(x, batch):
    t, ends = x - batch[1], batch[2]
    return jnp.mean(jnp.sum(jnp.maximum(ends[:, :1] * t, ends[:, 1:] * t), axis=1))


class Instance:
    def __init__(self, number):
        rng = np.random.default_rng(number)
        self.low, self.high = KINDS[number % len(KINDS)]
        self.lam = (0.0, 0.1)[number % 2]
        self.T = rng.normal(size=(N, n)) * 0.5 + rng.normal(size=n) * 0.3
        self.R = rng.choice([-1.0, 0.0, 1.5], (N, n)) + 0.2 * rng.standard_normal((N, n))
        ends = np.tile([self.low, self.high], (N, 1))
        self.problem = mossp.Problem(
            near, (self.T, self.R, ends), mossp.L1(self.lam), concave=kinked
        )
        self.start = rng.normal(size=n) * 0.3

    def slopes(self, j, x):
        """The interval of slopes of E[g] in coordinate j."""
        r = self.R[:, j]
        below, at = np.mean(r < x - 1e-12), np.mean(np.abs(r - x) <= 1e-12)
        slope = lambda share: self.low + (self.high - self.low) * share  # noqa: E731
        return slope(below), slope(below + at)

    def critical(self, j):
        """All critical points of coordinate j that lie on no kink of g."""
        r, t = np.sort(self.R[:, j]), self.T[:, j].mean()
        edges = np.concatenate([[-np.inf], r, [np.inf]])
        k = np.arange(N + 1)
        aim = t + (self.low * (N - k) + self.high * k) / N
        x = np.sign(aim) * np.maximum(np.abs(aim) - self.lam, 0)
        return x[(edges[:-1] < x) & (x < edges[1:])]

    def distance(self, x):
        return max(np.abs(self.critical(j) - x[j]).min() for j in range(n))

    def residual(self, x, within):
        """The shortest u with -g linearised at most `within` away, in NumPy."""
        left = np.zeros(n)
        for j in range(n):
            pieces = [self.slopes(j, y) for y in np.linspace(x[j] - within, x[j] + within, 41)]
            s_h = (self.lam * np.sign(x[j]),) * 2 if x[j] else (-self.lam, self.lam)
            base = x[j] - self.T[:, j].mean()
            low = base + s_h[0] - max(p[1] for p in pieces)
            high = base + s_h[1] - min(p[0] for p in pieces)
            left[j] = max(low, -high, 0.0)
        return float(np.linalg.norm(left))


def main():
    ten = [Instance(k) for k in range(TEN)]
    print("ten known problems: the largest distance to a critical point, medians of residuals")
    for name in ("mossp-p", "mossp-r"):
        medians = []
        for K in STEPS:
            found = [mossp.solve(i.problem, i.start, method=name, steps=K) for i in ten]
            far = max(i.distance(r.x) for i, r in zip(ten, found, strict=True))
            worst = np.array([r.certificate.worst for r in found])
            medians.append(np.median(worst))
            print(f"  {name} K = {K}: {far:.1e}, {medians[-1]:.1e}, "
                  f"{sum(r.success for r in found)} of {TEN} certified at 1e-2")  # fmt: skip
        slope = np.polyfit(np.log(STEPS), np.log(medians), 1)[0]
        print(f"  {name}: residuals fall like K^{slope:.2f}", flush=True)
    found = [mossp.solve(i.problem, i.start) for i in ten]
    far = max(i.distance(r.x) for i, r in zip(ten, found, strict=True))
    print(
        f"  auto: {far:.1e}, {sum(r.success for r in found)} of {TEN} certified at 1e-10",
        flush=True,
    )
    began, said, wrong = time.process_time(), 0, 0
    for number in range(RANDOM):
        i = Instance(1000 + number)
        r = mossp.solve(i.problem, i.start)
        said += r.success
        wrong += r.success and i.residual(r.x, 1e-9) > 1e-8
        short = mossp.solve(i.problem, i.start, method="mossp-r", steps=300, seed=number)
        said += short.success
        wrong += short.success and i.residual(short.x, 0.02) > 0.015 * max(
            np.linalg.norm(short.x), 1
        )
    seconds = time.process_time() - began
    print(f"{RANDOM} random ones, auto and a short mossp-r: {said} successes, {wrong} false "
          f"({seconds:.0f} s CPU)")  # fmt: skip


if __name__ == "__main__":
    main()
