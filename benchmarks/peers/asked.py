"""What the command line decides, and how problems and solvers of a suite are gone through."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import ours, results, scoring
from benchmarks.peers.environments import Environments, NotAvailable
from benchmarks.peers.results import Row
from benchmarks.peers.running import OURS, Peer, run
from benchmarks.peers.statement import Statement

Job = dict[str, Any]


@dataclasses.dataclass
class Asked:
    """Who takes part, and for how long."""

    environments: Environments
    trials: int = 20
    seeds: int = 5
    floor: float = 0.5  # seconds that a peer's run has at least
    factor: float = 5.0  # times ours, if that is more
    limit: float = 20.0  # seconds of a run that ends by itself
    jobs: int = 2  # workers side by side
    quick: bool = False
    problems: int | None = None  # at most so many of a suite, the first ones
    samples: int = 640_000  # that may be differentiated where they are counted
    only: str = ""  # a regular expression that the names of those that are run have in them
    stamp: dict[str, str] = dataclasses.field(default_factory=results.stamp)

    def job(self, seconds: float, **more: Any) -> Job:
        return {"trials": self.trials, "seeds": self.seeds, "seconds": seconds,
                "limit": self.limit, **more}  # fmt: skip

    def each(self, tasks: list[Callable[[], Any]]) -> list[Any]:
        """Results in the order of the tasks, some of which run side by side."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return [future.result() for future in [pool.submit(task) for task in tasks]]


@dataclasses.dataclass
class Outcome:
    """What a suite returns: rows, which are written first, and a figure to draw after that."""

    rows: list[Row]
    draw: Callable[[], None] = lambda: None


@dataclasses.dataclass
class Compared:
    """Rows, and the answers that a figure may be made from."""

    rows: list[Row]
    answers: dict[tuple[str, str], dict[str, Any]]


def compare(
    asked: Asked, suite: str, problems: list[Statement], peers: Callable[[Statement], list[Peer]],
    job: Callable[[Statement, float], Job], own: tuple[Peer, ...] = (OURS,),
    judge: Callable[..., list[Row]] = scoring.rows,
) -> Compared:  # fmt: skip
    """Ours first, for it sets the others' time; then every peer on every problem."""
    problems = [g for g in problems if re.search(asked.only, g.name)][: asked.problems]
    answers: dict[tuple[str, str], dict[str, Any]] = {}
    found: dict[tuple[str, str], list[Row]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {}
        for given in problems:
            files[given.name] = folder / f"{given.name.replace(' ', '-').replace(',', '')}.npz"
            given.save(files[given.name])

        def enter(given: Statement, peer: Peer, asked_for: Job) -> float:
            """Runs and judges; the median of the seconds."""
            key = (given.name, peer.name)
            try:
                answer = run(asked.environments, peer, files[given.name], asked_for, folder)
            except NotAvailable as reason:
                found[key] = [scoring.missing(suite, *key, reason, **asked.stamp)]
                print(f"  {given.name}: {peer.name}: N/A: {reason}", flush=True)
                return np.nan
            answers[key] = answer
            found[key] = judge(
                given, ours.as_problem(given), suite, peer.name, answer, asked_for, **asked.stamp
            )
            say(given.name, peer.name, found[key], answer)
            return float(np.median(answer["seconds"]))

        first = [(given, peer) for given in problems for peer in own]
        took = asked.each([
            lambda g=given, p=peer: enter(g, p, job(g, np.nan)) for given, peer in first
        ])  # fmt: skip
        seconds = {
            given.name: s for (given, _), s in zip(reversed(first), reversed(took), strict=True)
        }
        later = [(given, peer) for given in problems for peer in peers(given)]
        asked.each([
            lambda g=given, p=peer: enter(g, p, job(g, seconds[g.name])) for given, peer in later
        ])  # fmt: skip
    order = [(g.name, p.name) for g in problems for p in [*own, *peers(g)]]
    return Compared([row for key in order for row in found[key]], answers)


def say(problem: str, solver: str, rows: list[Row], answer: dict[str, Any]) -> None:
    def middle(name: str) -> float:
        return float(np.median([getattr(row, name) for row in rows]))

    print(
        f"  {problem}: {solver}: F {middle('objective'):.9f} violation {middle('violation'):.0e} "
        f"KKT {middle('kkt'):.0e} / {middle('kkt_independent'):.0e} {middle('seconds'):.3f} s, "
        f"tuned in {float(answer['tuning']):.0f} s", flush=True,
    )  # fmt: skip
