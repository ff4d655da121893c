"""kill -9, SIGTERM and Ctrl-C at random moments, and disks that are full: nothing is lost."""

from __future__ import annotations

import functools
import json
import queue
import random
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from mossp._base import archive
from tests.adversarial import children
from tests.adversarial.sentences import SHORTEST
from tests.adversarial.table import Row
from tests.adversarial.victim import FAULTS, MODES

PATIENCE = 180.0  # for one child
RUN_SECONDS = 3.0  # about what a run takes after it is ready: when to kill it
SOON = 5.0  # seconds within which a signal is obeyed between steps; machines may be busy
WHILE_COMPILING = 10.0  # the same after a second signal while programs are compiled


class Child:
    """A victim whose lines can be waited for."""

    def __init__(self, module: str, *arguments: Any) -> None:
        self.process = children.begin(
            module, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.errors: list[str] = []
        self.readers = [
            threading.Thread(target=read, daemon=True) for read in (self._out, self._err)
        ]
        for reader in self.readers:
            reader.start()

    def _out(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def _err(self) -> None:
        self.errors += list(self.process.stderr)

    def line(self, seconds: float = PATIENCE) -> str | None:
        """The next line; None when there is none any more, or not in time."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def answer(self) -> dict[str, Any] | None:
        """The line of JSON at the end."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            line = self.line(deadline - time.monotonic())
            if line is None:
                return None
            if line.startswith("{"):
                return json.loads(line)
        return None

    def end(self) -> None:
        self.process.kill()
        children.finish(self.process, self.readers)

    def said(self) -> str:
        self.readers[1].join(5.0)
        return " ".join(self.errors[-3:]).strip()[-200:]


@functools.cache
def unbroken(mode: str) -> dict[str, Any]:
    child = Child("victim", mode, "-")
    found = child.answer()
    child.end()
    if found is None:
        raise RuntimeError(f"the run that others are compared with failed: {child.said()}")
    return found


def loads(file: Path) -> str | None:
    """Whether what lies there after a kill can be used: the file itself, and the one before."""
    for path in (file, archive.previous(file)):
        if path.exists():
            try:
                archive.read_arrays(path)
            except Exception as error:
                return f"{path.name} cannot be read: {error}"
    return None


def killed(mode: str, kills: int, seed: int, row: Row, signals: Row | None = None) -> None:
    """Kill a run again and again; then its answer is that of the unbroken run."""
    whole, rng = unbroken(mode), random.Random(f"{mode} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.npz"
        for _ in range(kills):
            child = Child("victim", mode, file)
            ready = child.line() == "ready"
            time.sleep(rng.uniform(0, RUN_SECONDS) / 2)
            by = signal.SIGKILL
            if signals is not None and rng.random() < 0.5:
                by = rng.choice([signal.SIGTERM, signal.SIGINT])
            child.process.send_signal(by)
            if by is not signal.SIGKILL and signals is not None:
                signals.add(obeyed(child, by, whole))
            child.end()
            if not ready and child.said():
                row.add(f"{mode}: the resumed run failed: {child.said()}")
            else:
                row.add((fault := loads(file)) and f"{mode}: {fault}")
        child = Child("victim", mode, file)
        found = child.answer()
        child.end()
        row.add(difference(mode, whole, found, child))


def difference(mode: str, whole: Any, found: Any, child: Child) -> str | None:
    if found is None:
        return f"{mode}: the resumed run gave no answer: {child.said()}"
    names = [name for name in whole if whole[name] != found.get(name)]
    return f"{mode}: after kills {', '.join(names)} differ" if names else None


def obeyed(child: Child, by: signal.Signals, whole: Any) -> str | None:
    """Whether the run ended soon after a signal, with an answer that says so."""
    began = time.monotonic()
    found = child.answer()
    took = time.monotonic() - began
    if found is None:
        return f"{by.name}: no answer: {child.said()}"
    if found["status"] == "INTERRUPTED" or found == whole:  # it may have come too late
        return f"{by.name}: {took:.1f} s" if took > SOON else None
    return f"{by.name}: status {found['status']} at step {found.get('steps')}"


def full(mode: str, fault: str) -> str | None:
    """The disk is full from the third look on: a typed error, the old file intact, and on."""
    whole = unbroken(mode)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.npz"
        child = Child("victim", mode, file, fault)
        found = child.answer()
        child.end()
        if found is None:
            return f"{mode}, {fault}: {child.said()}"
        if "error" not in found:
            return f"{mode}, {fault}: nothing was said"
        if len(found["error"]) <= SHORTEST or not found["finite"]:
            return f"{mode}, {fault}: {found}"
        if not file.exists():
            return f"{mode}, {fault}: the checkpoint is gone"
        if wrong := loads(file):
            return f"{mode}, {fault}: {wrong}"
        left = {path.name for path in Path(folder).iterdir()}
        if more := left - {file.name, archive.previous(file).name}:
            return f"{mode}, {fault}: {sorted(more)} were left behind"
        child = Child("victim", mode, file)
        again = child.answer()
        child.end()
        return difference(f"{mode}, {fault}", whole, again, child)


def while_compiling(number: int) -> str | None:
    """A signal while a large program is compiled; a second one if the first was not enough."""
    rng = random.Random(number)
    child = Child("slow_to_compile")
    if child.line() != "solving":
        child.end()
        return f"it did not begin: {child.said()}"
    time.sleep(rng.uniform(0.5, 6.0))
    first = rng.choice([signal.SIGINT, signal.SIGTERM])
    for limit in (SOON, WHILE_COMPILING):
        child.process.send_signal(first)
        try:
            code = child.process.wait(limit)
        except subprocess.TimeoutExpired:
            continue
        child.end()
        crashed = code < 0 and code not in (-signal.SIGINT, -signal.SIGTERM)
        return f"{first.name} while compiling: ended by signal {-code}" if crashed else None
    child.end()
    return f"{first.name} twice while compiling: still there after {WHILE_COMPILING:g} s more"


def attack(kills: int, faults: int, compiling: int) -> list[Row]:
    """About so many kills over all modes, full disks, and signals while compiling."""
    dead = Row("a killed run goes on, to the same answer bit for bit", "kill -9 at random moments")
    dead.how += ", most of them during a save"
    heard = Row("SIGTERM and Ctrl-C end a run with the point reached", f"within {SOON:g} s")
    for mode in MODES:
        killed(mode, max(1, kills // len(MODES)), 0, dead, heard)
    disk = Row("a full disk is a typed error, and the last checkpoint is kept", ", ".join(FAULTS))
    cases = [(mode, fault) for fault in FAULTS for mode in MODES][:faults]
    for mode, fault in cases:
        disk.add(full(mode, fault))
    waits = Row("signals end a process that compiles", "a second signal after 5 s if need be")
    for number in range(compiling):
        waits.add(while_compiling(number))
    return [dead, heard, disk, waits]
