"""Files of compiled programs: whole, for this machine, and not too many.

An entry is written beside its name and renamed, and begins with a digest of the rest: one that is
torn or damaged is removed, to be compiled again. Nothing here raises: where the folder cannot be
written to, nothing is kept.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
from pathlib import Path

import jax
import jaxlib

from mossp._base.files import STALE, draft_beside

MOST_BYTES = 2**28  # of all entries together: some 5,000 programs
KEPT = 0.75  # of these, after the oldest have been removed
LOOKS = 64  # entries that a process writes before it looks again how many there are
ENDING = ".xla"
DIGEST = 16  # bytes


@functools.cache
def machine() -> str:
    """A name for this processor and this JAX: programs are compiled for both."""
    parts = [jax.__version__, jaxlib.__version__, platform.machine(), platform.processor()]
    parts += [str(os.cpu_count()), *processor()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def processor() -> list[str]:
    """Its model and what it can do, where Linux tells."""
    told = []
    with contextlib.suppress(OSError, UnicodeDecodeError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if not line.strip():
                break  # the other cores
            if re.match(r"(vendor_id|cpu family|model|flags|Features|CPU [a-z]+)\b", line):
                told.append(line.strip())
    return told


class Entries:
    """Programs by their keys, in the folder of this machine in `root`."""

    def __init__(self, root: Path) -> None:
        self.root, self.place = root, root / machine()
        self.writable, self.written = True, 0

    def get(self, key: str) -> bytes | None:
        path = self._path_of(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if digest_of(content[DIGEST:]) != content[:DIGEST]:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the oldest are removed first
        return content[DIGEST:]

    def put(self, key: str, value: bytes) -> None:
        if not self.writable:
            return
        path = self._path_of(key)
        draft = draft_beside(path)
        try:
            self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(digest_of(value) + value)
            os.replace(draft, path)
            if self.written % LOOKS == 0:
                make_room(self.root)
        except OSError:
            self.writable = False  # until the process ends, which then compiles as ever
            with contextlib.suppress(OSError):
                draft.unlink()
        self.written += 1

    def _path_of(self, key: str) -> Path:
        return self.place / (re.sub(r"[^\w.-]", "_", key)[-150:] + ENDING)


def digest_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST).digest()


def make_room(root: Path) -> None:
    """Remove the entries that were not used for longest, of all machines and versions of JAX."""
    files = []
    for folder in root.iterdir():
        if re.fullmatch(r"[0-9a-f]{16}", folder.name) and folder.is_dir():
            files += [f for f in folder.iterdir() if f.name.endswith((ENDING, ".tmp"))]
    known = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            stat = file.stat()
            known.append((stat.st_mtime, stat.st_size, file))
    known.sort(key=lambda entry: entry[0])
    newest = known[-1][0] if known else 0.0
    size = sum(entry[1] for entry in known)
    most = MOST_BYTES if size <= MOST_BYTES else KEPT * MOST_BYTES
    for changed, length, file in known:
        abandoned = file.name.endswith(".tmp") and changed < newest - STALE
        if size > most or abandoned:
            with contextlib.suppress(OSError):
                file.unlink()
                size -= length
