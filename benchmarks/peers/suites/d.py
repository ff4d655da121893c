"""Noisy nonlinear programmes: families of tests/adversarial, gradient noise 0, 0.01 and 0.1.

Five problems of every family (`families.py`), at most 10 variables and constraints. Noise is
normal, relative to the gradient at the start, added to the gradient of f; values and constraints
are exact. Everyone may use 3,000 gradients. Ours takes Hessian-vector products of samples besides,
which its budget does not bound: each counts as two in its cost. Without noise a point is solved at
a relative tolerance of 1e-6, with noise at 1e-2. The cost of a peer is the number
of gradients at which it first stood at a solved point, whether it knew or not; ours is what it used
until it ended. cooper is tuned a family and noise, on a problem of its own: every trial with 300
gradients, the best six once more with 1,000. A false success: a solver says that it succeeded, and
the point is not solved, or the problem has no answer; cooper, which says nothing, is not run on
families without one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.peers import counted, figures, scoring
from benchmarks.peers.asked import Asked, Outcome
from benchmarks.peers.environments import ROOT, NotAvailable, last_line, version
from benchmarks.peers.families import NAMES, Evaluated, drawn, verdict
from benchmarks.peers.results import Row
from benchmarks.peers.running import ONE_THREAD
from benchmarks.peers.workers.job import log_uniform, one_of
from tests.adversarial.families import Expect

NOISES = (0.0, 0.01, 0.1)
GRADIENTS = 3_000
TRIALS = (300, 1_000)  # gradients of a first and of a second trial
AGAIN = 6  # settings that have a second one
TUNED_ON = 99  # the number of the problem
PEERS = {
    "SLSQP": ("scipy", "remote_scipy", "SLSQP"),
    "trust-constr": ("scipy", "remote_scipy", "trust-constr"),
    "cooper": ("cooper", "remote_cooper"),
}
PACKAGE = {"SLSQP": "scipy", "trust-constr": "scipy", "cooper": "cooper-optim"}
RANGES = {
    "optimizer": one_of(["SGD", "Adam"]), "lr": log_uniform(1e-4, 0.3),
    "decay": log_uniform(1e-3, 1.0), "dual_lr": log_uniform(1e-3, 10.0),
    "penalty": one_of([0.0, 0.1, 1.0, 10.0, 100.0]),
}  # fmt: skip
SPACING = 1.15  # points are judged at counts that grow by this


class Pipe:
    """A worker of a peer that is told the oracle's answers, run by run."""

    def __init__(self, python: str, worker: str, *said: str) -> None:
        command = [python, "-W", "ignore", "-m", f"benchmarks.peers.workers.{worker}", *said]
        environment = {**os.environ, **ONE_THREAD}
        environment.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def __enter__(self) -> Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for end in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                end.close()

    def run(self, problem: Evaluated, gradients: int, **more: Any) -> dict[str, Any]:
        """{end, said, gradients, points}: some of the points that were asked for."""
        self.tell({**problem.stated(), "gradients": gradients, **more})
        count, points, x = 0, [], problem.case.x0
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise NotAvailable(last_line(RuntimeError(self.process.stderr.read())))
            asked = json.loads(line)
            if "end" in asked:
                return {"end": np.array(asked["end"]), "said": asked["said"], "gradients": count,
                        "points": points}  # fmt: skip
            x = np.array(asked["x"])
            if count >= gradients or not np.isfinite(x).all():
                self.process.stdin.write("stop\n")
                return {"end": x, "said": None, "gradients": count, "points": points}
            count += 1
            if not points or count >= SPACING * points[-1][0]:
                points.append((count, x))
            self.tell(problem(x))

    def tell(self, what: dict[str, Any]) -> None:
        self.process.stdin.write(json.dumps(what) + "\n")


def run(asked: Asked) -> Outcome:
    families = NAMES[: 3 if asked.quick else asked.problems]
    tasks = [lambda f=family: ours(asked, f) for family in families]
    tasks += [
        lambda f=family, e=noise, s=solver: theirs(asked, f, e, s)
        for noise in NOISES for solver in PEERS for family in families
        if solver != "cooper" or drawn(family, TUNED_ON).expect is Expect.HONEST
    ]  # fmt: skip
    rows = [row for found in asked.each(tasks) for row in found]
    panels, solvers = [f"noise {noise:g}" for noise in NOISES], ["mossp", *PEERS]
    rows.sort(key=lambda row: (panels.index(panel(row)), solvers.index(row.solver)))

    def draw() -> None:
        title = "Nonlinear programmes with noisy gradients"
        figures.profiles(costs(rows), "profiles", title, "gradients")

    return Outcome(rows, draw)


def ours(asked: Asked, family: str) -> list[Row]:
    """All noises in one process, which share the programs of the solver."""
    command = [sys.executable, "-m", "benchmarks.peers.workers.ours_families", family,
               str(asked.seeds), str(GRADIENTS), *map(str, NOISES)]  # fmt: skip
    environment = {**os.environ, **ONE_THREAD, "MOSSP_CACHE": "off"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, check=True, text=True,
                              capture_output=True, timeout=3600)  # fmt: skip
    except (subprocess.SubprocessError, OSError) as error:
        reason = NotAvailable(last_line(error))
        return [row for e in NOISES for row in entered(asked, family, e, "mossp", reason, "")]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    versions = version(sys.executable, "mossp")
    return [
        row
        for k, noise in enumerate(NOISES)
        for row in entered(asked, family, noise, "mossp",
                           answers[k * asked.seeds : (k + 1) * asked.seeds], versions)
    ]  # fmt: skip


def theirs(asked: Asked, family: str, noise: float, solver: str) -> list[Row]:
    try:
        python = asked.environments.python(PEERS[solver][0])
        answers: list[dict[str, Any]] | NotAvailable = answered(
            asked, python, family, noise, solver
        )
        versions = version(python, PACKAGE[solver])
    except NotAvailable as reason:
        answers, versions = reason, ""
    return entered(asked, family, noise, solver, answers, versions)


def entered(
    asked: Asked, family: str, noise: float, solver: str,
    answers: list[dict[str, Any]] | NotAvailable, versions: str,
) -> list[Row]:  # fmt: skip
    """A row an answer; one row where there are none."""
    name = f"{family}, noise {noise:g}"
    if isinstance(answers, NotAvailable):
        print(f"  {name}: {solver}: N/A: {answers}", flush=True)
        return [scoring.missing("d", name, solver, answers, **asked.stamp)]
    rows = [
        judged(name, family, noise, solver, number, answer, asked, versions)
        for number, answer in enumerate(answers)
    ]
    said = sum(row.said == "yes" for row in rows)
    print(f"  {name}: {solver}: solved {sum(row.converged for row in rows)}, said {said}, of "
          f"{len(rows)}", flush=True)  # fmt: skip
    return rows


def panel(row: Row) -> str:
    return "noise " + row.problem.rpartition("noise ")[2]


def answered(
    asked: Asked, python: str, family: str, noise: float, solver: str
) -> list[dict[str, Any]]:
    with Pipe(python, *PEERS[solver][1:]) as pipe:
        more: dict[str, Any] = {}
        if solver == "cooper":
            more["settings"] = tuned(pipe, family, noise, asked.trials)
        return [
            pipe.run(Evaluated(drawn(family, number), noise, number), GRADIENTS, **more)
            for number in range(asked.seeds)
        ]


def tuned(pipe: Pipe, family: str, noise: float, trials: int) -> dict[str, Any]:
    """Of random settings those whose last point has the least merit, by successive halving."""
    rng = np.random.default_rng(0)
    left = [{name: draw(rng) for name, draw in RANGES.items()} for _ in range(trials)]
    for gradients, kept in zip(TRIALS, (AGAIN, 1), strict=True):
        merits = []
        for settings in left:
            problem = Evaluated(drawn(family, TUNED_ON), noise, TUNED_ON)
            end = pipe.run(problem, gradients, settings=settings)["end"]
            merits.append(problem.merit(end))
        left = [left[k] for k in np.argsort(merits, kind="stable")[:kept]]
    return left[0]


def judged(
    name: str, family: str, noise: float, solver: str, number: int, answer: dict[str, Any],
    asked: Asked, versions: str,
) -> Row:  # fmt: skip
    case, end = drawn(family, number), np.array(answer["end"])
    solved, criticality, violation = verdict(case, end, noise)
    cost = float(answer["gradients"])
    for count, x in answer.get("points", []):
        if solved and verdict(case, x, noise)[0]:
            cost = min(cost, float(count))
            break
    has_answer = case.expect is Expect.HONEST
    return Row(
        "d", name, solver, number, float(case.reference.f(end.astype(np.longdouble)).value),
        violation, kkt_independent=criticality, seconds=answer.get("seconds", np.nan),
        import_seconds=answer.get("imports", np.nan), converged=solved,
        said={True: "yes", False: "no", None: ""}[answer["said"]], passes=cost,
        trials=asked.trials if solver == "cooper" else 0, budget=f"{GRADIENTS} gradients",
        note=counted.SOLVABLE if has_answer else counted.NOT, versions=versions, **asked.stamp,
    )  # fmt: skip


def costs(rows: list[Row]) -> dict[str, dict[str, np.ndarray]]:
    """Panel -> solver -> cost of every problem that has an answer."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row.note == counted.SOLVABLE:
            cost = row.passes if row.converged else np.inf
            found.setdefault(panel(row), {}).setdefault(row.solver, []).append(cost)
    whole = max((len(c) for by in found.values() for c in by.values()), default=0)
    return {
        name: {solver: np.array(c) for solver, c in by.items() if len(c) == whole}
        for name, by in found.items()
    }
