"""Whether a file is large against memory, so that it is read block by block."""

from __future__ import annotations

import os
from pathlib import Path

from mossp.app.tables import format_of
from mossp.app.tables.arrays import mapped
from mossp.data.columnar import ARROW, is_columnar, scanned

# A table in memory is held as it was read, as a matrix of float64, and as what is computed with:
# about three times its numbers, and half of what is free is left to others.
SHARE = 1 / 6
# Times the size of a file of text, what its entries take: of LIBSVM, of CSV while it is looked at.
SPARSE_TEXT, TEXT = 3, 4


def is_large(path: Path, format: str | None) -> bool:
    """Whether the numbers of a file take more than a sixth of the memory that is available.

    Of files that can be read in blocks; others never are. Folders and Arrow files always are, since
    they are read in no other way.
    """
    path = Path(path)
    if not path.exists() or not can_stream(path, format):
        return False
    if path.is_dir() or path.suffix.lower() in ARROW:
        return True
    free = available()
    return free is not None and unpacked(path, format) > SHARE * free


def can_stream(path: Path, format: str | None) -> bool:
    """Whether a file is one that can be read in blocks."""
    path = Path(path)
    if is_columnar(path):
        return True
    return path.suffix.lower() != ".gz" and format_of(path, format) != "parquet"


def unpacked(path: Path, format: str | None) -> float:
    """Bytes of the numbers in a file, as float64."""
    if is_columnar(path):
        import polars

        frame = scanned(path)
        rows = frame.select(polars.len()).collect().item()
        return 8.0 * rows * len(frame.collect_schema())
    kind = format_of(path, format)
    if kind == "npy":
        return 8.0 * mapped(path).size
    return (SPARSE_TEXT if kind == "libsvm" else TEXT) * float(path.stat().st_size)


def available() -> float | None:
    """Bytes of memory that this process may still take; None where that is not told."""
    found = [left for left in (_of_system(), _of_group()) if left is not None]
    return min(found, default=None)


def _of_system() -> float | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        told = dict(line.split(":", 1) for line in lines)
        return 1024.0 * int(told["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return None


def _of_group() -> float | None:
    """What the limit of a container leaves."""
    folder = Path("/sys/fs/cgroup")
    try:
        most = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        return None if most == "max" else max(float(most) - used, 0.0)
    except (OSError, ValueError):
        return None


def resident() -> float | None:
    """Bytes of this process that are no file's; None where that is not told."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    except (OSError, StopIteration, ValueError):
        return None
