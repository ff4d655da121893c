"""An environment for every peer, made with venv and pip by name in build/peers/.

One that cannot be made gives a reason and never stops the others.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "peers"
# Exactly, and before anything that depends on it: the others would take one of another version,
# with a graphics card's libraries.
TORCH = "torch==2.13.0"
PACKAGES = {
    "cooper": [TORCH, "cooper-optim"],
    "humancompatible": [TORCH, "humancompatible-train"],
    "pygranso": [TORCH, "pygranso"],
    "scipy": ["scipy"],
    "fairlearn": ["scikit-learn", "fairlearn"],
    "sklearn": ["scikit-learn"],
    "skglm": ["skglm"],
    "celer": ["celer"],
}
# What they import and do not ask for.
BESIDES = {
    "pygranso": ["numpy<2", "scipy", "osqp", "gurobipy"],
    "cooper": ["numpy", "scipy"],
    "humancompatible": ["numpy", "scipy"],
}


class NotAvailable(Exception):
    """There is no figure, and the text says why."""


@dataclasses.dataclass
class Environments:
    """Interpreters by peer; `given` are those that a user has already."""

    given: dict[str, str]
    installing: float = 0.0  # seconds
    _made: dict[str, str | NotAvailable] = dataclasses.field(default_factory=dict)
    # Workers run side by side, and two that need the same peer must not both install it.
    _one_at_a_time: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def python(self, peer: str) -> str:
        """The interpreter that has the peer; NotAvailable says why there is none."""
        if peer == "ours":
            return sys.executable
        if peer in self.given or "all" in self.given:
            return self.given.get(peer) or self.given["all"]
        with self._one_at_a_time:
            if peer not in self._made:
                began = time.time()
                try:
                    self._made[peer] = make(peer)
                except NotAvailable as reason:
                    self._made[peer] = reason
                self.installing += time.time() - began
            found = self._made[peer]
        if isinstance(found, NotAvailable):
            raise found
        return found


def given(options: list[str]) -> dict[str, str]:
    """From `peer=/path/python`, and from PEERS_PYTHON, which is for all."""
    found = dict(option.split("=", 1) for option in options)
    if os.environ.get("PEERS_PYTHON"):
        found.setdefault("all", os.environ["PEERS_PYTHON"])
    return found


def make(peer: str) -> str:
    folder = FOLDER / peer
    python, done = folder / "bin" / "python", folder / ".installed"
    if done.exists():
        return str(python)
    print(f"    making an environment for {peer}", flush=True)
    try:
        venv.create(folder, with_pip=True, clear=True)
        wanted = PACKAGES[peer] + BESIDES.get(peer, [])
        first = [name for name in wanted if name == TORCH]
        for names in filter(None, (first, [name for name in wanted if name not in first])):
            install(python, names)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotAvailable(last_line(error)) from None
    done.touch()
    return str(python)


def install(python: Path, names: list[str]) -> None:
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *names]
    # torch stays what it is, whatever the others would like.
    pinned = ["-c", str(constraint(python.parent.parent))]
    subprocess.run([*command, *pinned], check=True, capture_output=True, text=True)


def constraint(folder: Path) -> Path:
    path = folder / "constraint.txt"
    path.write_text(TORCH + "\n")
    return path


@functools.cache
def version(python: str, package: str) -> str:
    """The name and the version of what an interpreter has, "" where it does not say."""
    asked = f"import importlib.metadata as m; print('{package}', m.version('{package}'))"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True)
    return done.stdout.strip()


def last_line(error: Exception) -> str:
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    told = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
    return told[-1].removeprefix("ERROR: ")[:160]
