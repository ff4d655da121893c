"""The orders of Theorems 3.1, 3.2 and Corollaries 3.1, 3.2, measured where constants are known.

The sampled gradient is (1 + e/2)(x - t) + 0.3 e' with standard normal e (a number) and e' (a
vector), c(x) = ||x||^2 - 1, l1 - l2 with lam = 0.05, n = 10. The schedules are the paper's, inside
the bounds of their proofs. The runs are those of `solve`: the same preparation, the same loop.
Residuals, with the exact gradient x - t, are averaged over replicas and over steps at equal
distances, which is their expectation over the random output R.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from mossp.certificates.certificate import Witness
from mossp.constants import Constants
from mossp.constraints import Sphere
from mossp.data import Sampler
from mossp.estimators import Polyak, Recursive
from mossp.methods import MoSSP
from mossp.problem import Problem
from mossp.regularizers import L1MinusL2
from mossp.schedules import Theorem
from mossp.solving.arguments import checked
from mossp.solving.prepare import prepare
from mossp.solving.run import run
from mossp.solving.state import State

TARGET = np.array([1.5, -1.0, 0.5] + [0.0] * 7)
GROUPS = 8  # of replicas: the spread of their slopes gives the confidence interval
STEPS_AVERAGED = 256  # of a run
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


def averages(
    setting: Setting, momentum: Any, K: int, replicas: int, seed: int, averaged: int
) -> tuple[np.ndarray, float]:
    """Means over steps of ||u||^2, ||x - y||^2, ||c||^2, one row per replica; the largest ||x||."""
    problem = Problem(loss, Sampler(sample), L1MinusL2(0.05), equality=Sphere())
    rule = Theorem(rho0=1.0, feasible=setting.feasible, constants=constants(setting.region))
    seen: list[np.ndarray] = []
    lengths: list[float] = []
    with jax.enable_x64(True):
        arguments = checked(
            problem, setting.x0, method=MoSSP(momentum=momentum), schedule=rule, steps=K,
            batch_size=1, replicas=replicas, seed=seed, output="random", trace=averaged,
        )  # fmt: skip
        prepared = prepare(problem, arguments)

        def note(state: State) -> None:
            last = prepared.loop.carry(state.position).last
            seen.append(residuals(last))
            lengths.append(float(np.linalg.norm(last.x, axis=1).max()))

        run(prepared, prepared.initial, note)
        prepared.loop.close()
    return np.mean(seen, axis=0), max(lengths)


def residuals(w: Witness) -> np.ndarray:
    c = np.sum(w.x**2, axis=1) - 1
    q = w.lam[:, 0] + w.rho * c
    u = (w.x - TARGET) + 2 * w.x * q[:, None] + w.s_h - w.s_g
    return np.stack([np.sum(u**2, 1), np.sum((w.x - w.y) ** 2, 1), c**2], axis=1)


def measure(
    setting: Setting, exponents: tuple[int, ...], replicas: int, seed: int,
    averaged: int = STEPS_AVERAGED,
) -> dict:  # fmt: skip
    """Residuals against K = 2^e, and their slopes over the last half with 95 % intervals."""
    momentum: Any = Polyak() if setting.letter == "P" else Recursive()
    Ks = [2**e for e in exponents]
    each = [averages(setting, momentum, K, replicas, seed, averaged) for K in Ks]
    values = np.array([means for means, _ in each])  # K x replica x residual
    return {
        "K": Ks,
        "means": values.mean(axis=1).tolist(),
        "slopes": [slope(Ks, values[:, :, r]) for r in range(len(RESIDUALS))],
        "largest": max(longest for _, longest in each),
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
