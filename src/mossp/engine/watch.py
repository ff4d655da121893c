"""What is seen of a run: its trace, trouble with NaN or infinity, and the best point met.

A `Record` is a value that grows by observations, and saves and restores itself; a `Watch` makes the
next record from one, with what it needs to observe a run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import layout
from mossp._base.device import on_device
from mossp._base.programs import compiled
from mossp._base.types import PyTree
from mossp.certificates.certificate import Residuals, Witness
from mossp.certificates.feasibility import into_domain, on_host
from mossp.certificates.residuals import residuals_of
from mossp.engine.checkpoint import flattened, rebuilt
from mossp.engine.loop import Chunk, Loop, Position
from mossp.engine.steps import Observation
from mossp.oracles import Oracles
from mossp.result import Trace

GROWTH = 1e8  # ||x|| or ||c|| beyond this many times where they started: diverged
COLUMNS = 6  # of the history: step, gradients, seconds; objective, violation, proximity by replica


class Record(NamedTuple):
    """What has been seen so far: one row per observation, one entry per replica."""

    lost: np.ndarray  # replicas that met NaN or infinity
    diverged: np.ndarray
    history: tuple[tuple[Any, ...], ...] = ()
    frozen: Mapping[int, np.ndarray] = {}  # the last finite points of lost replicas
    notes: tuple[str, ...] = ()
    best: tuple[np.ndarray, Witness] | None = None  # (score, witness), for output="best"

    @classmethod
    def empty(cls, replicas: int) -> Record:
        return cls(np.zeros(replicas, bool), np.zeros(replicas, bool))

    @property
    def given_up(self) -> np.ndarray:
        return self.lost | self.diverged

    def levels_off(self, part: float) -> bool:
        """Whether F has changed since the last observation by less than this part of all of it."""
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

    # Checkpoints ---------------------------------------------------------------------------

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What a checkpoint keeps of it: arrays, and what JSON can hold."""
        arrays = {"trouble": np.stack([self.lost, self.diverged])}
        for i, column in enumerate(zip(*self.history, strict=True)):
            arrays[f"history/{i}"] = np.array(column)
        if self.best is not None:
            arrays |= flattened("best", self.best)
        arrays |= {f"frozen/{r}": x for r, x in self.frozen.items()}
        return arrays, {"notes": list(self.notes)}

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any], like: Witness) -> Record:
        """The saved record; LayoutError where it is none of a run with such witnesses."""
        count, n = like.x.shape
        trouble = layout.array(arrays, "trouble", "b", (2, count))
        frozen = {
            r: layout.array(arrays, f"frozen/{r}", "f", (n,))
            for r in np.flatnonzero(trouble[0]).tolist()
        }
        length = len(layout.array(arrays, "history/0", "iu", (None,)))
        columns = [
            layout.array(arrays, f"history/{i}", "iuf", (length, *(count,) * (i > 2)))
            for i in range(COLUMNS)
        ]
        best = rebuilt(arrays, "best", (np.zeros(count), like))
        lost, diverged = (row.copy() for row in trouble)
        history = tuple(zip(*columns, strict=True))
        return cls(lost, diverged, history, frozen, tuple(meta["notes"]), best)


@dataclasses.dataclass(frozen=True)
class Watch:
    """What it takes to observe a run."""

    oracles: Oracles
    loop: Loop
    representative: Callable[[], PyTree]  # the rows below, fetched when they are first needed
    start: np.ndarray  # where the run starts
    before: np.ndarray  # where it was before phase one
    initial: Position  # where its steps begin
    keeps_best: bool
    tol: float

    @functools.cached_property
    def rows(self) -> PyTree:
        """Rows that stand for the data; None where all of it is looked at."""
        return self.representative()

    @functools.cached_property
    def first(self) -> Observation:
        """What is seen before the first step."""
        return self.observe(self.initial)

    @property
    def far_away(self) -> float:
        """The length of x beyond which it has diverged, whatever led there."""
        return GROWTH * (1 + float(np.linalg.norm(self.start)))

    def observe(self, at: Position) -> Observation:
        return self.loop.observe(at, self.rows)

    def recorded(
        self, record: Record, at: Position, seen: Observation, gradients: int, seconds: float
    ) -> Record:
        """The record with one more row."""
        row = (at.k, gradients, seconds, seen.objective, seen.violation, seen.proximity)
        record = record._replace(history=(*record.history, row))
        if self.keeps_best and at.k:
            record = record._replace(best=self._best(record, at, seen))
        return record

    @np.errstate(over="ignore")
    def troubled(
        self, record: Record, at: Position, seen: Observation, chunks: list[Chunk]
    ) -> Record:
        """The record with replicas that are no longer finite, or have diverged."""
        lost, diverged, frozen = record.lost.copy(), record.diverged.copy(), dict(record.frozen)
        notes = record.notes
        for r in np.flatnonzero(~seen.finite & ~lost).tolist():
            lost[r] = True
            step, x, after = 0, self.before, self.start
            if at.k:
                step, x, after = self.loop.last_finite(at, chunks, r, self.rows)
            frozen[r] = x
            diverged[r] = np.linalg.norm(x) > self.far_away
            if not diverged[r] and not notes:
                notes = (self._blame(x, after, step, at.k),)
        first = self.first if at.k else seen
        far = (seen.length > self.far_away) | (seen.violation > GROWTH * (1 + first.violation))
        diverged |= far & seen.finite
        return record._replace(lost=lost, diverged=diverged, frozen=frozen, notes=notes)

    def _blame(self, x: np.ndarray, after: np.ndarray, step: int, k: int) -> str:
        """A sentence that names the function behind NaN or infinity, at the point after x."""
        for point, number in ((x, step), (after, step + 1)):
            if not np.isfinite(point).all():
                continue
            values = _values(self.oracles, on_device(point), self.rows)
            bad = [name for name, v in values.items() if not np.isfinite(np.asarray(v)).all()]
            if bad:
                where = f"after {number} steps" if k else "at the start"
                return f"NaN or infinity came from {' and '.join(bad)} {where}."
        return f"NaN or infinity came up in step {step + 1}, on its mini-batch."

    def _best(self, record: Record, at: Position, seen: Observation) -> tuple[np.ndarray, Witness]:
        """For output="best": the observed point with the lowest F at violation <= tol."""
        # Behind every feasible point, by violation v: 1e300 (1 + v / (1 + v)) cannot overflow.
        infeasible = 1e300 * (1 + seen.violation / (1 + seen.violation))
        score = np.where(seen.violation <= self.tol, seen.objective, infeasible)
        score = np.where(np.isfinite(seen.objective), score, np.inf)
        last, _ = self.loop.witnesses(at)
        if record.best is None:
            return score, last
        before, kept = record.best
        better = score < before

        def choose(new: np.ndarray, old: np.ndarray) -> np.ndarray:
            return np.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return choose(score, before), jax.tree.map(choose, last, kept)

    def judged(self, at: Position, batch_size: int) -> list[Residuals]:
        """What the last witness of every replica proves, on all of the data."""
        # As many witnesses as are judged at the end, by the same program.
        both = self.loop.witnesses(at)
        judged = residuals_of(self.oracles, both, None, batch_size=batch_size)[0]
        return [jax.tree.map(lambda a, r=r: a[r], judged) for r in range(self.loop.replicas)]

    def outputs(self, record: Record, at: Position, which: str) -> Witness:
        """The witness of every replica; lost replicas stand at their last finite point."""
        last, random = self.loop.witnesses(at)
        chosen: Witness = random if which == "random" else last
        if which == "best" and record.best is not None:
            chosen = record.best[1]
        chosen = jax.tree.map(np.array, chosen)
        for r, x in record.frozen.items():
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
    c, pull = oracles.linearized(x)
    return {
        "the loss": oracles.full_value(x) if full else oracles.value_on(x, rows),
        "the gradient of the loss": oracles.full_gradient(x) if full else oracles.gradient(x, rows),
        "a constraint": c,
        "the gradient of a constraint": pull(jnp.ones_like(c)),
    }
