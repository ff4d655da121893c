"""Sparse generalised linear models: l1 and MCP (gamma = 3) logistic regression, no intercept.

The solvers and the data are those of benchmarks/glm. Here a trial is a tolerance: the loosest of
1e-4, 3e-5, 1e-5, ... that reaches a relative duality gap of 1e-9 (l1) or a KKT residual of 1e-8 lam
(MCP) is taken; ours runs with its default. Not converged: no tolerance got there, or not within
the limit. The answers' columns are as in the other suites, without constraints.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import mossp
from benchmarks.peers import kkt, scoring
from benchmarks.peers.asked import Asked, Outcome, say
from benchmarks.peers.environments import NotAvailable
from benchmarks.peers.results import Row
from benchmarks.peers.running import Peer
from benchmarks.peers.running import run as run_worker

sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "glm")
)  # scripts there import one another

import optimality
import sets

GAP, RESIDUAL = 1e-9, 1e-8
LIMIT = 20.0  # seconds for all trials of a peer on one problem
PROBLEMS = [
    ("a9a", "l1", 10), ("a9a", "l1", 100), ("sparse", "l1", 10), ("sparse", "l1", 100),
    ("text", "l1", 10), ("text", "l1", 100), ("dense", "l1", 10), ("dense", "l1", 100),
    ("a9a", "mcp", 10), ("sparse", "mcp", 10), ("text", "mcp", 10), ("dense", "mcp", 10),
]  # fmt: skip
QUICK = [("dense", "l1", 10), ("dense", "mcp", 10)]
OURS = Peer("mossp", "ours", "glm", ("ours: solve",))
SKGLM = [Peer(name, "skglm", "glm", (name,)) for name in ("skglm CD", "skglm PN")]
PEERS = {
    "l1": [
        OURS, Peer("liblinear", "sklearn", "glm", ("liblinear",)),
        Peer("saga", "sklearn", "glm", ("saga",)), *SKGLM,
        Peer("celer CD", "celer", "glm", ("celer CD",)),
        Peer("celer PN", "celer", "glm", ("celer PN",)),
    ],
    "mcp": [OURS, *SKGLM],
}  # fmt: skip


class Model(NamedTuple):
    name: str
    X: Any
    y: np.ndarray
    penalty: str
    lam: float

    def save(self, path: Path) -> None:
        X = self.X
        stored = {"values": X.data, "columns": X.indices, "rows": X.indptr, "shape": X.shape} \
            if scipy.sparse.issparse(X) else {"X": X}  # fmt: skip
        np.savez(path, y=self.y, penalty=self.penalty, lam=self.lam, **stored)

    def problem(self) -> mossp.Problem:
        kinds = {"l1": lambda: mossp.L1(self.lam),
                 "mcp": lambda: mossp.MCP(self.lam, optimality.MCP_GAMMA)}  # fmt: skip
        return mossp.Problem(mossp.losses.logistic, (self.X, self.y), kinds[self.penalty]())


def models(quick: bool) -> list[Model]:
    found = []
    for name, penalty, part in QUICK if quick else PROBLEMS:
        rows = sets.load(name, quick)
        if rows is None:
            print(f"  {name}: left out, set MOSSP_DATA to a folder that has it")
            continue
        X, y = rows
        lam = sets.largest_strength(X, y) / part
        found.append(Model(f"{name}, {penalty}, lam_max/{part}", X, y, penalty, lam))
    return found


def run(asked: Asked) -> Outcome:
    given = models(asked.quick)[: asked.problems]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / f"{k}.npz" for k in range(len(given))]
        for model, path in zip(given, files, strict=True):
            model.save(path)
        tasks = [
            lambda m=model, p=path, s=peer: entered(asked, m, p, s, folder)
            for model, path in zip(given, files, strict=True) for peer in PEERS[model.penalty]
        ]  # fmt: skip
        return Outcome([row for rows in asked.each(tasks) for row in rows])


def entered(asked: Asked, model: Model, path: Path, peer: Peer, folder: Path) -> list[Row]:
    good = GAP if model.penalty == "l1" else RESIDUAL
    limit = min(LIMIT, asked.limit)
    job = {**asked.job(1.0), "limit": limit, "good": good}
    try:
        answer = run_worker(asked.environments, peer, path, job, folder)
    except NotAvailable as reason:
        print(f"  {model.name}: {peer.name}: N/A: {reason}", flush=True)
        return [scoring.missing("c", model.name, peer.name, reason, **asked.stamp)]
    rows = [judged(model, peer.name, answer, seed, job, asked) for seed in range(len(answer["xs"]))]
    say(model.name, peer.name, rows, answer)
    return rows


def judged(model: Model, solver: str, answer: Any, seed: int, job: Any, asked: Asked) -> Row:
    w = answer["xs"][seed]
    X, y, penalty, lam = model.X, model.y, model.penalty, model.lam
    measure = optimality.gap(X, y, w, lam) if penalty == "l1" else \
        optimality.criticality(X, y, w, penalty, lam)  # fmt: skip
    more = scoring.common(answer, seed, job)
    if measure > job["good"]:
        more["note"] = f"{'gap' if penalty == 'l1' else 'KKT / lam'} {measure:.0e}"
    return Row(
        "c", model.name, solver, seed, optimality.objective(X, y, w, penalty, lam), 0.0,
        float(mossp.stationarity(model.problem(), w)),
        kkt.separable(X, y, w, penalty, lam, optimality.MCP_GAMMA),
        converged=measure <= job["good"], **more, **asked.stamp,
    )  # fmt: skip
