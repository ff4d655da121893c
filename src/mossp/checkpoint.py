"""Files that survive: written beside the old one and renamed, checked when read, never pickle."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from mossp import files

META, CHECKSUM = "__meta__", "__checksum__"
LARGEST = 64 * 2**30  # bytes that a file may claim to unpack to


class CheckpointError(Exception):
    """A checkpoint could not be written, read, or does not belong to this run.

    `result` is the run's result so far when writing failed in the middle of one.
    """

    result: Any = None


def previous(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    place = Path(os.path.realpath(path))  # beside the file itself, if the path is a link to it
    return place.with_name(place.name + ".previous")


def write_arrays(path: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Path:
    """Arrays and JSON in one .npz file: complete under its name, or not there at all."""
    stored = {name: np.asarray(a) for name, a in arrays.items()}
    stored[META] = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), np.uint8)
    stored[CHECKSUM] = np.frombuffer(checksum(stored), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **stored)  # type: ignore[arg-type]
    try:
        with files.replacing(path) as file:
            file.write(buffer.getbuffer())
    except OSError as error:
        raise CheckpointError(f"{path} could not be written: {error.strerror}.") from error
    return path


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `write_arrays` wrote, with every byte checked."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > LARGEST:
            raise CheckpointError(f"{path} would unpack to {size} bytes, which is refused.")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise CheckpointError(f"There is no file {path}.") from None
    except CheckpointError:
        raise
    except Exception as error:  # there are as many as ways to damage an archive
        raise CheckpointError(f"{path} is damaged or not a file of mossp: {error}") from error
    given = arrays.pop(CHECKSUM, None)
    if given is None or META not in arrays or given.tobytes() != checksum(arrays):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its contents.")
    return arrays, json.loads(arrays.pop(META).tobytes())


def checksum(arrays: dict[str, np.ndarray]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        a = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {a.dtype.str} {a.shape} ".encode())
        digest.update(a.data if a.size else b"")
    return digest.digest()


def save(path: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """A checkpoint; the one before it is kept beside it."""
    if path.exists():
        keep = previous(path)
        place = Path(os.path.realpath(path))
        draft = files.draft_beside(place)
        try:
            os.link(place, draft)  # a second name: `path` is never missing
            os.replace(draft, keep)
        except OSError:
            pass  # a file system without links keeps one checkpoint, which is still atomic
        with contextlib.suppress(OSError):
            draft.unlink()  # two names of one file do not replace each other
    write_arrays(path, arrays, meta)


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """(arrays, meta, a sentence if the last checkpoint was damaged and the one before is used)."""
    try:
        return *read_arrays(path), ""
    except CheckpointError as error:
        if not previous(path).exists():
            raise
        arrays, meta = read_arrays(previous(path))
        return arrays, meta, f"{error} The checkpoint before it was used."
