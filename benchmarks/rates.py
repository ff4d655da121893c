"""The orders of Theorems 3.1 and 3.2, measured on an instance whose constants are known.

    python benchmarks/rates.py

The sampled gradient is (1 + e/2)(x - t) + 0.3 e' with standard normal e (a number) and e' (a
vector), c(x) = ||x||^2 - 1, l1 - l2 with lam = 0.05, n = 10. The schedules are the theorems',
inside the bounds of their proofs. Residuals are averaged over 64 replicas and over all steps,
which is their expectation over the random output R, with the exact gradient x - t; each step is
the library's own.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

import mossp
from mossp.schedules import Theorem

TARGET = np.array([1.5, -1.0, 0.5] + [0.0] * 7)
REPLICAS = 64
EXPONENTS = range(9, 17)
# The iterates stay in ||x|| <= REGION, which is checked: there ||J|| <= 2 REGION and
# |c| <= REGION^2 - 1. E (1 + e/2)^2 = 1.25 is the mean-squared L_f^2.
REGION = 1.1
CONSTANTS = mossp.Constants(
    L_f=1.25**0.5, L_batch=1.25**0.5, sigma=1.5, G=3.0, G_c=2 * REGION, C=REGION**2 - 1, L_c=2.0
)


def loss(x, batch):
    e, noise = batch
    return jnp.mean(0.5 * (1 + e / 2) * jnp.sum((x - TARGET) ** 2) + 0.3 * noise @ x)


def sample(key, size):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (size,)), jax.random.normal(b, (size, TARGET.size))


@functools.partial(jax.jit, static_argnames="b0")
def averages(oracles, method, schedule, x0, key, K, b0):
    """The means over k < K and the replicas of ||u||^2, ||x - y||^2, ||c||^2; the largest ||x||."""

    def one(key):
        d0 = oracles.gradient(x0, sample(jax.random.fold_in(key, 0), b0))

        def step(k, carry):
            state, sums, longest = carry
            batch = sample(jax.random.fold_in(key, k + 1), 1)
            now = schedule.at(k)
            # Step 0 takes d0 as it is: the mean over the initial batch.
            now = now._replace(alpha=jnp.where(k == 0, 0.0, now.alpha))
            state = method.step(oracles, now, state, batch)
            w = method.witness(oracles, now, state)
            q = oracles.multipliers(w.x, w.lam, w.rho)
            u = (w.x - TARGET) + 2 * w.x * q[0] + w.s_h - w.s_g
            c = w.x @ w.x - 1
            sums += jnp.array([u @ u, (w.x - w.y) @ (w.x - w.y), c * c])
            return state, sums, jnp.maximum(longest, jnp.linalg.norm(w.x))

        start = (method.init(oracles, x0, d0), jnp.zeros(3), 0.0)
        _, sums, longest = jax.lax.fori_loop(0, K, step, start)
        return sums / K, longest

    sums, longest = jax.vmap(one)(jax.random.split(key, REPLICAS))
    return jnp.mean(sums, axis=0), jnp.max(longest)


def main() -> None:
    problem = mossp.Problem(
        loss=loss,
        data=mossp.Sampler(sample),
        regularizer=mossp.L1MinusL2(0.05),
        equality=mossp.constraints.Sphere(),
    )
    x0 = np.ones(TARGET.size) / TARGET.size**0.5
    Ks = 2 ** np.array(EXPONENTS)
    for name, momentum in (("P", mossp.Polyak()), ("R", mossp.Recursive())):
        rows = []
        with jax.enable_x64(True):
            oracles, method = problem.oracles(x0), mossp.MoSSP(momentum=momentum)
            for K in Ks.tolist():
                rule = Theorem(rho0=1.0)
                made = rule.schedule(momentum, K, CONSTANTS)
                schedule = jax.tree.map(jnp.asarray, made)
                b0 = 1 << (rule.b0(momentum, K) - 1).bit_length()
                means, longest = averages(oracles, method, schedule, x0, jax.random.key(1), K, b0)
                if longest > REGION:
                    print(f"K = {K}: ||x|| reached {longest:.3f}, outside of the region.")
                rows.append(means)
        residuals = np.array(rows)
        print(f"MoSSP-{name}      K      E||u||^2   E||x-y||^2     E||c||^2")
        for K, row in zip(Ks, residuals, strict=True):
            print(f"      {K:8d}  " + "  ".join(f"{value:11.3e}" for value in row))
        half = len(Ks) // 2
        slopes = np.polyfit(np.log(Ks[half:]), np.log(residuals[half:]), 1)[0]
        bound = -0.4 if name == "P" else -0.6
        for label, slope in zip(("||u||^2", "||x-y||^2", "||c||^2"), slopes, strict=True):
            short = "   SHORT" if slope > bound else ""
            print(f"  slope of E{label:<10} over the last half {slope:6.2f}   bound {bound}{short}")


if __name__ == "__main__":
    main()
