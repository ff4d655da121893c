"""How a solver's time is found: the loosest tolerance that is good enough, then the median.

A peer's time is that of the loosest of its own tolerances 1e-4, 3e-5, 1e-5, ..., 1e-14 whose answer
is as accurate as asked. Ours runs with its defaults, and its accuracy is measured in the same way.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import statistics
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from calls import Case, Run, ready, single
from solvers import SOLVERS
from worker import NotAvailable, Worker

LADDER = tuple(10.0 ** (-k / 2) for k in range(8, 29))
RUNS = 5
LONG = 10.0  # seconds: a call that takes longer is timed once
LADDER_TIME = 2.0  # limits that all tolerances of one peer may take together
LEAST = 0.15  # seconds: no peer counts as faster


@dataclasses.dataclass
class Entry:
    """A solver's line in a table; `reason` says why there is no time."""

    solver: str
    tol: float | None = None  # None: the default
    accuracy: float = float("nan")
    run: Run | None = None
    seconds: float | None = None  # of the second call, the median
    first: float | None = None  # of the first call, in a fresh process, imports excluded
    on_disk: float | None = None  # the same with programs on disk
    reason: str = ""

    @property
    def ours(self) -> bool:
        return SOLVERS[self.solver].ours


@dataclasses.dataclass
class Comparison:
    """Solvers on one problem, in one process.

    Parameters
    ----------
    call : callable
        (solver, case, tol, *more) -> Run, a function of `calls`.
    accuracy : callable
        w -> how far it is from a solution.
    good : float
        What the accuracy of a peer must be at most.
    limit : float
        Seconds for a call.
    """

    worker: Worker
    case: Case
    accuracy: Callable[[Any], float]
    good: float
    limit: float
    runs: int = RUNS
    call: Callable[..., Run] = single
    more: tuple[Any, ...] = ()
    ladder: Sequence[float] = LADDER
    _warm: set[tuple[int, str]] = dataclasses.field(default_factory=set)

    def enter(self, solver: str) -> Entry:
        """The line of a solver, with the time of one call."""
        entry = Entry(solver)
        try:
            if importlib.util.find_spec(SOLVERS[solver].package) is None:
                raise NotAvailable(
                    f"{SOLVERS[solver].package} is not installed: pip install -e '.[bench]'"
                )
            self.worker.call(ready, solver, self.case, limit=self.limit)
            if entry.ours:
                self._attempt(entry, None)
            else:
                self._climb(entry)
        except NotAvailable as reason:
            entry.reason, entry.run = str(reason), None
        return entry

    def time(self, entries: list[Entry]) -> None:
        """Fill in medians of second calls, the solvers taking turns."""
        times: dict[str, list[float]] = {e.solver: [] for e in entries}
        for _ in range(self.runs):
            for e in entries:
                long = bool(times[e.solver]) and times[e.solver][0] > LONG
                if e.run is None or long:
                    continue
                try:
                    times[e.solver].append(self._second(e))
                except NotAvailable as reason:
                    e.reason, e.run = str(reason), None
        for e in entries:
            if e.run is not None:
                e.seconds = statistics.median(times[e.solver])

    def first(self, entry: Entry, cache: str | None = None) -> float | None:
        """Seconds of the first call in a fresh process; programs kept on disk are in `cache`."""
        with tempfile.TemporaryDirectory() as empty, Worker(MOSSP_CACHE=cache or empty) as fresh:
            try:
                fresh.call(ready, entry.solver, self.case, limit=self.limit)
                args = (entry.solver, self.case, entry.tol, *self.more)
                return fresh.call(self.call, *args, limit=2 * self.limit).seconds
            except NotAvailable:
                return None

    def _climb(self, entry: Entry) -> None:
        spent = 0.0
        for tol in self.ladder:
            self._attempt(entry, tol)
            if entry.accuracy <= self.good:
                return
            spent += entry.run.seconds
            if spent > LADDER_TIME * self.limit:
                break
        raise NotAvailable(f"reaches {entry.accuracy:.1e} with tol = {entry.tol:.0e}")

    def _attempt(self, entry: Entry, tol: float | None) -> None:
        entry.tol = tol
        entry.run = self._run(entry.solver, tol)
        entry.accuracy = self.accuracy(entry.run.w)

    def _second(self, entry: Entry) -> float:
        if (self.worker.generation, entry.solver) not in self._warm:
            self._run(entry.solver, entry.tol)
        return self._run(entry.solver, entry.tol).seconds

    def _run(self, solver: str, tol: float | None) -> Run:
        args = (solver, self.case, tol, *self.more)
        run = self.worker.call(self.call, *args, limit=self.limit)
        self._warm.add((self.worker.generation, solver))
        return run


def best_of(entries: list[Entry]) -> Entry | None:
    """The fastest peer that is accurate enough."""
    there = [e for e in entries if not e.ours and e.seconds is not None]
    return min(there, key=lambda e: e.seconds, default=None)
