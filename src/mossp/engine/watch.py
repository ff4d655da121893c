"""What is seen of a run: its trace, trouble with NaN or infinity, and the best point met."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base.programs import compiled
from mossp.certificates.certificate import Residuals, Witness, residuals
from mossp.certificates.feasibility import into_domain, on_host
from mossp.engine.loop import Loop
from mossp.engine.steps import Observation
from mossp.oracles import Oracles
from mossp.result import Trace

PyTree = Any

GROWTH = 1e8  # ||x|| or ||c|| beyond this many times where they started: diverged


class Watch:
    """The record of a run. One row an observation, one entry a replica."""

    def __init__(
        self, oracles: Oracles, loop: Loop, rows: PyTree, start: np.ndarray, before: np.ndarray,
        keep_best: bool, tol: float,
    ) -> None:  # fmt: skip
        """`start` is where the run starts, `before` where it was before phase one."""
        self.oracles, self.loop, self.rows, self.tol = oracles, loop, rows, tol
        self.start, self.before = start, before
        self.history: list[list[Any]] = []
        self.lost = np.zeros(loop.replicas, bool)
        self.diverged = np.zeros(loop.replicas, bool)
        self.frozen: dict[int, np.ndarray] = {}  # the last finite points of lost replicas
        self.notes: list[str] = []
        self.keeps_best = keep_best
        self.best: tuple[np.ndarray, Witness] | None = None
        self.first = self.look()

    def look(self) -> Observation:
        return self.loop.observe(self.rows)

    @property
    def given_up(self) -> np.ndarray:
        return self.lost | self.diverged

    @property
    def far_away(self) -> float:
        """The length of x beyond which it has diverged, whatever led there."""
        return GROWTH * (1 + float(np.linalg.norm(self.start)))

    @property
    def hopeless(self) -> bool:
        return bool(self.given_up.all())

    def record(self, seen: Observation, gradients: int, seconds: float) -> None:
        self.history.append(
            [self.loop.k, gradients, seconds, seen.objective, seen.violation, seen.proximity]
        )
        if self.keeps_best and self.loop.k:
            self._keep_best(seen)

    def levels_off(self, part: float) -> bool:
        """Whether F has changed since the last look by less than this part of its whole change."""
        if len(self.history) < 3:
            return False
        first, before, now = (self.history[i][3] for i in (0, -2, -1))
        change, whole = np.abs(now - before), np.abs(now - first)
        return bool(np.all((change <= part * whole) | self.given_up))

    def trace(self, rows: int) -> Trace:
        step, gradients, seconds, objective, violation, proximity = (
            np.array(column) for column in zip(*self.history, strict=True)
        )
        return Trace(step, gradients, seconds, objective, violation, proximity, rows)

    @np.errstate(over="ignore")
    def find_trouble(self, seen: Observation) -> None:
        """Replicas that are no longer finite, or have left for infinity."""
        far_away = self.far_away
        for r in np.flatnonzero(~seen.finite & ~self.lost).tolist():
            self.lost[r] = True
            step, x, after = 0, self.before, self.start
            if self.loop.k:
                step, x, after = self.loop.last_finite(r, self.rows)
            self.frozen[r] = x
            self.diverged[r] = np.linalg.norm(x) > far_away
            if not self.diverged[r] and not self.notes:
                self.notes.append(self._blame(x, after, step))
        far = (seen.length > far_away) | (seen.violation > GROWTH * (1 + self.first.violation))
        self.diverged |= far & seen.finite

    def _blame(self, x: np.ndarray, after: np.ndarray, step: int) -> str:
        """A sentence that names the function behind NaN or infinity, at the point after x."""
        for point, number in ((x, step), (after, step + 1)):
            if not np.isfinite(point).all():
                continue
            values = _values(self.oracles, jnp.asarray(point), self.rows)
            bad = [name for name, v in values.items() if not np.isfinite(np.asarray(v)).all()]
            if bad:
                where = f"after {number} steps" if self.loop.k else "at the start"
                return f"NaN or infinity came from {' and '.join(bad)} {where}."
        return f"NaN or infinity came up in step {step + 1}, on its mini-batch."

    def _keep_best(self, seen: Observation) -> None:
        """For output="best": the observed point with the lowest F at violation <= tol."""
        # Behind every feasible point, by violation v: 1e300 (1 + v / (1 + v)) cannot overflow.
        infeasible = 1e300 * (1 + seen.violation / (1 + seen.violation))
        score = np.where(seen.violation <= self.tol, seen.objective, infeasible)
        score = np.where(np.isfinite(seen.objective), score, np.inf)
        last = self.loop.carry().last
        if self.best is None:
            self.best = (score, last)
            return
        better = score < self.best[0]

        def choose(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            return np.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        self.best = (choose(score, self.best[0]), jax.tree.map(choose, last, self.best[1]))

    def judged(self, batch_size: int) -> list[Residuals]:
        """What the last witness of every replica proves, on all of the data."""
        carry = self.loop.carry()
        # As many witnesses as are judged at the end, by the same program.
        both = jax.tree.map(lambda *a: np.concatenate(a), carry.last, carry.random)
        judged = jax.device_get(residuals(self.oracles, both, None, batch_size=batch_size))
        return [jax.tree.map(lambda a, r=r: a[r], judged) for r in range(self.loop.replicas)]

    def outputs(self, which: str) -> Witness:
        """The witness of every replica; lost replicas stand at their last finite point."""
        carry = self.loop.carry()
        chosen: Witness = carry.random if which == "random" else carry.last
        if which == "best" and self.best is not None:
            chosen = self.best[1]
        chosen = jax.tree.map(np.array, chosen)
        for r, x in self.frozen.items():
            chosen.x[r], chosen.y[r] = x, x
            chosen.s_h[r], chosen.s_g[r], chosen.lam[r], chosen.rho[r] = 0, 0, 0, 0
        regularizer = on_host(self.oracles)
        for r, x in enumerate(chosen.x):
            nearest = into_domain(regularizer, np.asarray(x, np.float64)).astype(x.dtype)
            if np.allclose(nearest, x, rtol=1e-6, atol=1e-12):
                continue
            # Steps by subgradients of h, and a start from which no step was taken, may be outside.
            zero = np.zeros(len(x))
            chosen.x[r] = chosen.y[r] = nearest
            chosen.s_h[r] = regularizer.nearest_h(nearest, zero)
            chosen.s_g[r] = regularizer.subgradient_g(nearest)
            chosen.lam[r], chosen.rho[r] = 0, 0
        return chosen


@compiled
def _values(oracles: Oracles, x: Any, rows: PyTree) -> dict[str, Any]:
    full = rows is None
    c, pullback = jax.vjp(oracles.c, x)
    return {
        "the loss": oracles.full_value(x) if full else oracles.f(x, rows),
        "the gradient of the loss": oracles.full_gradient(x) if full else oracles.gradient(x, rows),
        "a constraint": c,
        "the gradient of a constraint": pullback(jnp.ones_like(c))[0],
    }
