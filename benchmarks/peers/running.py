"""A worker of a peer, run in the peer's environment on a problem that lies in a file."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.environments import ROOT, Environments, NotAvailable, last_line

PATIENCE = 3.0  # times what a job may take by its own clock, on a busy machine some more
ONE_THREAD = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Peer:
    """A solver of a table: its environment, its worker, and what is said to that."""

    name: str
    environment: str
    worker: str
    said: tuple[str, ...] = ()


OURS = Peer("mossp", "ours", "ours")
COOPER = Peer("cooper", "cooper", "cooper")
SSL_ALM = Peer("hc SSL-ALM", "humancompatible", "humancompatible")
PBM = Peer("hc PBM", "humancompatible", "humancompatible", ("pbm",))
GRANSO = Peer("PyGRANSO", "pygranso", "granso")
SLSQP = Peer("SLSQP", "scipy", "scipy_minimize")
TRUST = Peer("trust-constr", "scipy", "scipy_minimize", ("trust-constr",))
FAIRLEARN = Peer("fairlearn", "fairlearn", "reductions")


def run(
    environments: Environments, peer: Peer, problem: Path, job: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """What the worker wrote; NotAvailable says why there is nothing."""
    python = environments.python(peer.environment)
    stem = f"{problem.stem}-{peer.name}".replace(" ", "-")
    asked, answer = folder / f"{stem}.json", folder / f"{stem}.answer.npz"
    asked.write_text(json.dumps(job))
    command = [
        python, "-W", "ignore", "-m", f"benchmarks.peers.workers.{peer.worker}", str(problem),
        str(asked), str(answer), *peer.said,
    ]  # fmt: skip
    environment = {**os.environ, **ONE_THREAD, "MOSSP_CACHE": "off", "MPLBACKEND": "agg"}
    if peer.environment != "ours":
        environment.pop("PYTHONPATH", None)
    try:
        subprocess.run(
            command, check=True, env=environment, cwd=ROOT, capture_output=True, text=True,
            timeout=patience(job),
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise NotAvailable(f"more than {late.timeout:.0f} s for all of its runs") from None
    except (subprocess.CalledProcessError, OSError) as error:
        raise NotAvailable(last_line(error)) from None
    if not answer.exists():
        raise NotAvailable("the process ended without an answer")
    with np.load(answer) as found:
        return dict(found)


def patience(job: dict[str, Any]) -> float:
    """Seconds of the wall after which a worker hangs; its own clock is the processor's."""
    runs = job["trials"] * job["seconds"] + (1 + job["seeds"]) * max(job["limit"], job["seconds"])
    return 120 + 10 * PATIENCE * runs
