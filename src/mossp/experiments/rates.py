"""The orders of Theorems 3.1, 3.2 and Corollaries 3.1, 3.2, measured where constants are known.

The sampled gradient is (1 + e/2)(x - t) + 0.3 e' with standard normal e (a number) and e' (a
vector), c(x) = ||x||^2 - 1, l1 - l2 with lam = 0.05, n = 10. The schedules are the paper's, inside
the bounds of their proofs. Residuals are averaged over replicas and over all steps, which is their
expectation over the random output R, with the exact gradient x - t; each step is the library's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from mossp._base.programs import compiled
from mossp.constants import Constants
from mossp.constraints import Sphere
from mossp.data import Sampler
from mossp.estimators import Polyak, Recursive
from mossp.methods import Method, MoSSP
from mossp.oracles import Oracles
from mossp.problem import Problem
from mossp.regularizers import L1MinusL2
from mossp.schedules import Schedule, Theorem

TARGET = np.array([1.5, -1.0, 0.5] + [0.0] * 7)
GROUPS = 8  # of replicas: the spread of their slopes gives the confidence interval
RESIDUALS = ("||u||^2", "||x - y||^2", "||c||^2")


class Setting(NamedTuple):
    """One of the paper's four results."""

    result: str
    letter: str
    feasible: bool
    order: float  # of the residuals in K

    @property
    def x0(self) -> np.ndarray:
        """On the sphere, or off it."""
        return np.ones(TARGET.size) / TARGET.size**0.5 * (1.0 if self.feasible else 1.4)

    @property
    def region(self) -> float:
        """The iterates stay in ||x|| <= region, which is checked: there the constants hold."""
        return 1.1 if self.feasible else 1.6


SETTINGS = (
    Setting("Theorem 3.1", "P", True, -1 / 2),
    Setting("Theorem 3.2", "R", True, -2 / 3),
    Setting("Corollary 3.1", "P", False, -2 / 5),
    Setting("Corollary 3.2", "R", False, -1 / 2),
)


def constants(region: float) -> Constants:
    """There ||J|| <= 2 region, |c| <= region^2 - 1; E (1 + e/2)^2 = 1.25 is the mean square."""
    L = 1.25**0.5
    return Constants(L_f=L, L_batch=L, sigma=1.5, G=3.0, G_c=2 * region, C=region**2 - 1, L_c=2.0)


def loss(x: Any, batch: Any) -> Any:
    e, noise = batch
    return jnp.mean(0.5 * (1 + e / 2) * jnp.sum((x - TARGET) ** 2) + 0.3 * noise @ x)


def sample(key: Any, size: int) -> Any:
    a, b = jax.random.split(key)
    return jax.random.normal(a, (size,)), jax.random.normal(b, (size, TARGET.size))


@compiled(static_argnames="replicas")
def averages(
    oracles: Oracles, method: Method, schedule: Schedule, x0: Any, key: Any, K: Any, b0: Any,
    replicas: int = 64,
) -> tuple[Any, Any]:  # fmt: skip
    """Means over k < K of ||u||^2, ||x - y||^2, ||c||^2, a replica each; the largest ||x||."""

    def one(key: Any) -> tuple[Any, Any]:
        def first(j: Any, total: Any) -> Any:
            own = jax.random.fold_in(jax.random.fold_in(key, 0), j)
            return total + oracles.gradient(x0, sample(own, 1))

        d0 = jax.lax.fori_loop(0, b0, first, jnp.zeros(x0.shape)) / b0

        def step(k: Any, carry: Any) -> Any:
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

    sums, longest = jax.vmap(one)(jax.random.split(key, replicas))
    return sums, jnp.max(longest)


def measure(setting: Setting, exponents: tuple[int, ...], replicas: int, seed: int) -> dict:
    """Residuals against K = 2^e, and their slopes over the last half with 95 % intervals."""
    problem = Problem(loss, Sampler(sample), L1MinusL2(0.05), equality=Sphere())
    momentum: Any = Polyak() if setting.letter == "P" else Recursive()
    rule = Theorem(rho0=1.0, feasible=setting.feasible)
    Ks, each, largest = [2**e for e in exponents], [], 0.0
    with jax.enable_x64(True):
        oracles, method = problem.oracles(setting.x0), MoSSP(momentum=momentum)
        for K in Ks:
            made = rule.schedule(momentum, K, constants(setting.region))
            schedule = jax.tree.map(jnp.asarray, made)
            b0 = rule.b0(momentum, K)
            sums, longest = averages(
                oracles, method, schedule, setting.x0, jax.random.key(seed + 1), K, b0, replicas
            )
            each.append(np.asarray(sums))
            largest = max(largest, float(longest))
    values = np.array(each)  # K x replica x residual
    return {
        "K": Ks,
        "means": values.mean(axis=1).tolist(),
        "slopes": [slope(Ks, values[:, :, r]) for r in range(len(RESIDUALS))],
        "largest": largest,
    }


def slope(Ks: list[int], values: np.ndarray) -> list[float]:
    """(fitted order over the last half of the K, lower and upper end of its 95 % interval)."""
    half = len(Ks) // 2
    x = np.log(Ks[half:])

    def fit(rows: np.ndarray) -> float:
        return float(np.polyfit(x, np.log(rows.mean(axis=1)[half:]), 1)[0])

    groups = np.array([fit(part) for part in np.array_split(values, GROUPS, axis=1)])
    width = scipy.stats.t.ppf(0.975, GROUPS - 1) * groups.std(ddof=1) / np.sqrt(GROUPS)
    middle = fit(values)
    return [middle, middle - width, middle + width]
