"""A run with a checkpoint, to be killed: `python -m tests.adversarial.victim MODE FILE [FAULT]`.

It prints "ready" at its first look at the run, and at the end one line of JSON with every number
of the answer in hexadecimal. FAULT is what the disk does from the third save on.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import mossp
from mossp._base import archive

STEPS, LOOKS = 3000, 60
PAUSE = 0.02  # at every look, and at every sync and rename: most kills then fall on a save


def problem() -> Any:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 6))
    b = A @ np.array([1.0, 0, 0, 2.0, 0, -1.0]) + 0.1 * rng.normal(size=300)
    return mossp.Problem(
        mossp.losses.squared, (A, b), mossp.L1MinusL2(0.05), equality=lambda x: jnp.sum(x) - 1.0
    )


MODES: dict[str, dict[str, Any]] = {
    "recursive": {"method": "mossp-r", "replicas": 2, "output": "random"},
    "svrg": {"method": mossp.MoSSP(momentum=mossp.SVRG(epoch=77)), "output": "best"},
    "multipliers": {"method": "mossp-al"},
    "single": {"method": "mossp-p", "dtype": "float32"},
}
FAULTS = ("file size", "sync", "rename", "open")


def slowly(name: str) -> None:
    real = getattr(os, name)

    def slow(*arguments: Any) -> Any:
        time.sleep(PAUSE)
        return real(*arguments)

    setattr(os, name, slow)


def full_disk(fault: str) -> None:
    """From now on no file can be written."""

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if fault == "file size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    elif fault == "sync":
        os.fsync = fail
    elif fault == "rename":
        os.replace = fail
    else:
        archive.open = fail  # a name of the module's own comes before the built-in one


def digest(result: Any) -> dict[str, Any]:
    """Everything that must be the same bit for bit."""
    trace = [getattr(result.trace, name) for name in ("steps", "gradients", "objective")]
    parts = [result.xs, result.funs, result.violations, *trace]
    content = b"".join(np.ascontiguousarray(np.asarray(part)).tobytes() for part in parts)
    return {
        "status": result.status.name,
        "steps": result.steps,
        "gradients": result.gradients,
        "x": [float(v).hex() for v in result.x],
        "fun": float(result.fun).hex(),
        "criticality": float(result.certificate.criticality).hex(),
        "all": hashlib.sha256(content).hexdigest(),
    }


def main(mode: str, file: str, fault: str = "") -> None:
    # A save at every look, not every ten seconds.
    importlib.import_module("mossp.solving.run").CHECKPOINT_SECONDS = -1.0  # type: ignore[attr-defined]
    for name in ("fsync", "replace"):
        slowly(name)
    looks = 0

    def look(progress: Any) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            print("ready", flush=True)
        if looks == 3 and fault:
            full_disk(fault)
        time.sleep(PAUSE)

    settings = {"steps": STEPS, "batch_size": 16, "seed": 0, "trace": LOOKS, **MODES[mode]}
    saved = {"checkpoint": Path(file)} if file != "-" else {}
    try:
        result = mossp.solve(problem(), np.full(6, 0.3), callback=look, **settings, **saved)
    except mossp.CheckpointError as error:
        partial = error.result
        finite = partial is not None and bool(np.isfinite(partial.x).all())
        print(json.dumps({"error": str(error), "finite": finite}), flush=True)
        return
    print(json.dumps(digest(result)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
