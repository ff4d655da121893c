"""What every worker does: imports, a first call, random trials, then one run a seed.

Seconds are those of the processor, user and system, all threads counted, so that what else a
machine does counts for nobody. Settings are drawn with a fixed seed; the trial with the least

    objective + 100 violation

on all rows, the fastest of those that agree in it, is run once for every seed, each from a start of
its own. A job has

    trials, seeds   how many
    seconds         of a run whose end is the budget, and of a trial
    limit           of a run that ends by itself; after as much together, no other seed is run
    samples         instead of seconds: how many may be differentiated, in batches of 32
    trace           whether the run of the first seed notes points on its way
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.statement import Statement, load

BIG = 100.0
EQUAL = 1e-8  # relative: merits that are closer are equal
BATCH = 32  # where samples are counted
Settings = dict[str, Any]
Draw = Callable[[np.random.Generator], Any]
clock = time.process_time


class Late(Exception):
    """The time of a run is up."""


@dataclasses.dataclass
class Run:
    """Where a run ended; `said` is whether the solver calls it a success, None where it is mute."""

    x: np.ndarray
    said: bool | None = None
    passes: float = np.nan  # gradients of all rows
    others: np.ndarray | None = None  # of a mixture: its points, and
    weights: np.ndarray | None = None


@dataclasses.dataclass
class Budget:
    """When a run ends, and the points noted on its way."""

    seconds: float = np.inf
    samples: float = np.inf
    trace: bool = False
    began: float = dataclasses.field(default_factory=clock)
    points: list[tuple[float, float, np.ndarray]] = dataclasses.field(default_factory=list)
    noted: float = 0.0  # the time that noting took is not theirs

    def spent(self) -> float:
        return clock() - self.began - self.noted

    def used(self, samples: float = 0.0) -> float:
        """The share that is used up."""
        return max(self.spent() / max(self.seconds, 1e-9), samples / self.samples)

    def note(self, passes: float, x: Callable[[], np.ndarray]) -> None:
        """Points at times that grow by a fifth at least."""
        if self.trace and (not self.points or self.spent() > 1.2 * self.points[-1][0] + 1e-4):
            began = clock()
            self.points.append((self.spent(), passes, np.array(x(), float)))
            self.noted += clock() - began


def log_uniform(low: float, high: float) -> Draw:
    return lambda rng: float(np.exp(rng.uniform(np.log(low), np.log(high))))


def one_of(values: list[Any]) -> Draw:
    return lambda rng: values[rng.integers(len(values))]


Solve = Callable[[Statement, Settings, int, np.ndarray, Budget], Run]


def merit(problem: Statement, run: Run) -> float:
    with np.errstate(all="ignore"):
        value = problem.objective(run.x) + BIG * problem.violation(run.x)
    return float(value) if np.isfinite(value) else np.inf


def best_of(tried: list[tuple[float, float, Settings]]) -> Settings:
    """Of (merit, seconds, settings) the least merit; of those that equal it, the fastest."""
    least = min(value for value, *_ in tried)
    equal = [t for t in tried if t[0] <= least + EQUAL * max(1.0, abs(least))]
    return min(equal or tried, key=lambda t: t[1])[2]


def work(
    packages: list[str], ranges: dict[str, Draw], solve: Solve, ends_itself: bool,
    worth: Callable[[Statement, Run], float] = merit, deterministic: bool = False,
) -> None:  # fmt: skip
    """The whole of a worker, from the command line to the answer."""
    imports = clock()  # from the start of the process: the interpreter, NumPy, and the package
    problem_file, job_file, answer_file = sys.argv[1:4]
    warnings.simplefilter("ignore")  # how far an answer got is measured, not told by warnings
    with open(job_file) as file:
        asked = json.load(file)
    problem = load(problem_file)
    tuned_on = problem.starts[-1]

    def budget(seconds: float, trace: bool = False) -> Budget:
        return Budget(seconds, asked.get("samples") or np.inf, trace)

    rng = np.random.default_rng(0)
    drawn = [{k: draw(rng) for k, draw in ranges.items()} for _ in range(asked["trials"])]
    drawn = drawn if ranges else [{}]
    # A whole solve with its defaults, or a trial; one step where a run ends with the budget.
    most = (asked["seconds"] if ranges else asked["limit"]) if ends_itself else 0.0
    began = clock()
    solve(problem, drawn[0], 0, tuned_on, budget(most))
    first = clock() - began
    began, tried = clock(), []
    for settings in drawn if len(drawn) > 1 else []:
        clocked = budget(asked["seconds"])
        value = worth(problem, solve(problem, settings, 0, tuned_on, clocked))
        tried.append((value, clocked.spent(), settings))
    best = best_of(tried) if tried else drawn[0]
    tuning = clock() - began
    runs, seconds, points = [], [], []
    for seed in range(1 if deterministic else asked["seeds"]):
        most = asked["limit"] if ends_itself else asked["seconds"]
        clocked = budget(most, bool(asked.get("trace")) and seed == 0)
        runs.append(solve(problem, best, 1 + seed, problem.starts[seed], clocked))
        seconds.append(clocked.spent())
        points += clocked.points
        if ends_itself and sum(seconds) >= most:
            break  # the others would only take as long
    write(answer_file, runs, seconds, points, first=first, imports=imports, tuning=tuning,
          settings=json.dumps(best), versions=versions(packages),
          ends_itself=ends_itself)  # fmt: skip


def write(path: str, runs: list[Run], seconds: list[float], points: list, **more: Any) -> None:
    said = [-1 if run.said is None else int(run.said) for run in runs]
    mixtures = {
        f"{name}{k}": getattr(run, name)
        for k, run in enumerate(runs)
        for name in ("others", "weights")
        if getattr(run, name) is not None
    }
    np.savez(
        path, xs=np.array([run.x for run in runs]), said=np.array(said), seconds=np.array(seconds),
        passes=np.array([run.passes for run in runs]), times=np.array([p[0] for p in points]),
        passes_at=np.array([p[1] for p in points]),
        points=np.array([p[2] for p in points]), **mixtures, **more,
    )  # fmt: skip


def versions(packages: list[str]) -> str:
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
