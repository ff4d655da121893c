"""Files that appear whole: written beside the old one under a name of their own, then renamed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

STALE = 3600.0  # seconds; no file takes an hour to write: whoever began an older draft has died
SHOWN = 40  # characters of a file's name in that of its draft, which must not become too long


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` if nothing is raised.

    Its draft has a random name and is created exclusively: threads, processes and containers that
    write to one path never meet, and the last one wins. A symbolic link is followed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     with replacing(path) as file:
    ...         _ = file.write(b"whole")
    ...     path.read_text(), os.listdir(folder)
    ('whole', ['a.txt'])
    """
    place = Path(os.path.realpath(path))
    draft = draft_beside(place)
    file = open(draft, "xb")  # noqa: SIM115, closed below, before it is renamed or removed
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, place)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    with contextlib.suppress(OSError):
        remove_stale_drafts(place)


def write(path: Path, content: bytes | memoryview) -> Path:
    """Write a file: complete under its name, or as it was before."""
    with replacing(path) as file:
        file.write(content)
    return path


def keep_as(path: Path, other: Path) -> None:
    """Let what is in `path` be found under `other`, too; `path` itself is never missing.

    Only where the file system has links.
    """
    place = Path(os.path.realpath(path))
    draft = draft_beside(place)
    with contextlib.suppress(OSError):
        os.link(place, draft)  # a second name
        os.replace(draft, other)
    with contextlib.suppress(OSError):
        draft.unlink()  # two names of one file do not replace each other


def draft_beside(place: Path) -> Path:
    return place.with_name(f".{place.name[:SHOWN]}.{secrets.token_hex(8)}.tmp")


def remove_stale_drafts(place: Path) -> None:
    """Remove what processes that were killed have left of this file."""
    pattern = re.compile(re.escape(f".{place.name[:SHOWN]}.") + r"[0-9a-f]{16}\.tmp")
    # By the clock of the file system, which need not be that of this machine.
    oldest = place.stat().st_mtime - STALE
    with os.scandir(place.parent) as entries:
        drafts = [e for e in entries if pattern.fullmatch(e.name)]
    for draft in drafts:
        with contextlib.suppress(FileNotFoundError):  # another writer was quicker
            if draft.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(draft.path)
