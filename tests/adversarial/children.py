"""Cases in a child process, one line of JSON each: a case that hangs or kills costs that case only.

The child is `python -m tests.adversarial.MODULE ARGUMENTS FIRST COUNT`; it is begun anew after the
case at which it fell silent or died.
"""

from __future__ import annotations

import collections
import json
import os
import queue
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import compiling

ROOT = Path(__file__).resolve().parents[2]
GIGABYTE = 2**30

Report = dict[str, Any]


def environment(**more: str) -> dict[str, str]:
    """Of a child: this package can be imported, and compiled programs are kept."""
    paths = [str(ROOT), *(path for path in sys.path if path)]
    kept = compiling.kept_in(str(ROOT / ".pytest_cache" / "compiled"))
    return {**compiling.QUICKLY, **kept, **os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def limit_memory(most: int) -> None:
    """At most so many bytes of address space from here on."""
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def begin(module: str, *arguments: Any, **options: Any) -> Any:
    """A child that runs a module of this package."""
    command = [sys.executable, "-m", f"tests.adversarial.{module}", *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), **options)


def supervise(
    module: str, arguments: tuple[Any, ...], count: int, patience: float, first: int = 0,
    lost: Callable[[int, str], Report] | None = None,
) -> list[Report]:  # fmt: skip
    """The reports of cases first .. first + count - 1."""
    reports: list[Report] = []
    while len(reports) < count:
        start = first + len(reports)
        child = begin(
            module, *arguments, start, count - len(reports),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        fault = follow(child, reports, count, patience)
        if len(reports) < count:
            number = first + len(reports)
            reports.append(
                lost(number, fault) if lost else {"case": f"number {number}", "fault": fault}
            )
    return reports


def follow(child: Any, reports: list[Report], count: int, patience: float) -> str:
    """Collect lines until the child ends or falls silent; what went wrong, if anything."""
    lines: queue.Queue[str | None] = queue.Queue()
    errors: collections.deque[str] = collections.deque(maxlen=4)

    def read() -> None:
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    readers = [
        threading.Thread(target=read, daemon=True),
        threading.Thread(target=lambda: errors.extend(child.stderr), daemon=True),
    ]
    for reader in readers:
        reader.start()
    fault = ""
    while len(reports) < count:
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            child.kill()
            fault = f"no answer within {patience:.0f} s"
            break
        if line is None:
            readers[1].join(5.0)
            fault = f"the process ended: {' '.join(errors).strip()[-300:]}"
            break
        if line.startswith("{"):
            reports.append(json.loads(line))
    finish(child, readers)
    return f"{fault} (exit code {child.returncode})" if fault else ""


def finish(child: Any, readers: list[threading.Thread]) -> None:
    """Wait for a child that ends or was killed, and close its pipes."""
    child.wait()
    for reader, pipe in zip(readers, (child.stdout, child.stderr), strict=True):
        reader.join(5.0)
        pipe.close()


def report(case: str, fault: str | None) -> None:
    """One line for the supervisor."""
    print(json.dumps({"case": case, "fault": fault}), flush=True)
