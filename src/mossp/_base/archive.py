"""Files that survive: written beside the old one and renamed, checked when read, never pickle."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import warnings
import zipfile
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np

from mossp._base import files
from mossp._base.types import HostArray, Json, PyTree

META, CHECKSUM = "__meta__", "__checksum__"
PLAIN = "biufcSU"  # kinds of arrays: numbers and text
WIDEST = {"f": 8, "c": 16}  # bytes of a number; JAX cannot take those of 80 bits
MOST_ARRAYS = 100_000
# Names, centres and scales of a million features take a tenth of this.
LARGEST_META = 2**29
DEEPEST_META = 100  # levels; a tree of arrays takes two for each of its own


class CheckpointError(Exception):
    """A checkpoint could not be written, read, or does not belong to this run.

    `result` is the run's result so far when writing failed in the middle of one, and `state` the
    state that it is made from.
    """

    result: object = None
    state: PyTree = None


def previous(path: Path) -> Path:
    """Where the checkpoint before the last one is kept."""
    place = Path(os.path.realpath(path))  # beside the file itself, if the path is a link to it
    return place.with_name(place.name + ".previous")


def write_arrays(path: Path, arrays: dict[str, HostArray], meta: dict[str, Json]) -> Path:
    """Arrays and JSON in one .npz file: complete under its name, or not there at all."""
    stored = {name: np.asarray(a) for name, a in arrays.items()}
    text = json.dumps(meta, sort_keys=True).encode()
    if not (all(is_plain(a.dtype) for a in stored.values()) and can_be_read(text)):
        raise CheckpointError(f"{path} was not written, since it could not be read again.")
    stored[META] = np.frombuffer(text, np.uint8)
    stored[CHECKSUM] = np.frombuffer(checksum(stored), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **stored)  # type: ignore[arg-type]
    try:
        files.write(path, buffer.getbuffer())
    except OSError as error:
        raise CheckpointError(f"{path} could not be written: {error.strerror}.") from error
    return path


def read_arrays(path: Path) -> tuple[dict[str, HostArray], dict[str, Json]]:
    """What `write_arrays` wrote, with every byte checked. Headers are read before any data."""
    try:
        with open(path, "rb") as file, warnings.catch_warnings(action="ignore"):
            check_archive(file)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise CheckpointError(f"There is no file {path}.") from None
    except Exception as error:  # there are as many as ways to damage an archive
        raise CheckpointError(f"{path} is damaged or not a file of mossp: {error}") from error
    given = arrays.pop(CHECKSUM, None)
    if given is None or META not in arrays or given.tobytes() != checksum(arrays):
        raise CheckpointError(f"{path} is damaged: its checksum does not match its contents.")
    try:
        meta = described(arrays.pop(META).tobytes())
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is not a file of mossp: its description is not.") from None
    return arrays, meta


def check_archive(file: BinaryIO) -> None:
    """Raise ValueError unless all that the archive holds is stored in it, arrays of plain types.

    We pack nothing, so that no array of ours is larger than the file that it comes from.
    """
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
        unpacked = sum(entry.file_size for entry in entries)
        if packed or unpacked > size:
            raise ValueError(f"it would unpack to {unpacked:,} bytes, which is refused.")
        if len({entry.filename for entry in entries}) != len(entries) or len(entries) > MOST_ARRAYS:
            raise ValueError("it holds two arrays of one name, or too many.")
        for entry in entries:
            with archive.open(entry) as member:
                check_header(member, entry.file_size)


def check_header(member: IO[bytes], length: int) -> None:
    """Raise ValueError unless an array of a plain type fills the rest of this many bytes."""
    if np.lib.format.read_magic(member) != (1, 0):
        raise ValueError("it holds an array in a form that mossp does not write.")
    shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    possible = is_plain(dtype) and all(n >= 0 for n in shape)
    if not possible or math.prod(shape) * dtype.itemsize != length - member.tell():
        raise ValueError("it holds an array that is not as large as it says.")


def is_plain(dtype: np.dtype) -> bool:
    return dtype.kind in PLAIN and 0 < dtype.itemsize <= WIDEST.get(dtype.kind, math.inf)


def can_be_read(text: bytes) -> bool:
    try:
        described(text)
    except (ValueError, RecursionError):
        return False
    return True


def described(text: bytes) -> dict[str, Json]:
    """The description in a file; a ValueError if it is none of ours."""
    if len(text) > LARGEST_META:
        raise ValueError("It is too long.")
    meta = json.loads(text)
    if not isinstance(meta, dict):
        raise ValueError("It is not a table.")
    level: list[Json] = [meta]
    for _ in range(DEEPEST_META):
        level = [
            part
            for inner in level
            for part in (inner.values() if isinstance(inner, dict) else inner)
            if isinstance(part, (dict, list))
        ]
        if not level:
            return meta
    raise ValueError("It is nested too deeply.")


def checksum(arrays: dict[str, HostArray]) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        a = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {a.dtype.str} {a.shape} ".encode())
        digest.update(a.data if a.size else b"")
    return digest.digest()


def save(path: Path, arrays: dict[str, HostArray], meta: dict[str, Json]) -> None:
    """A checkpoint; the one before it is kept beside it."""
    if path.exists():
        files.keep_as(path, previous(path))  # without links there is one, which is still atomic
    write_arrays(path, arrays, meta)


def load(path: Path) -> tuple[dict[str, HostArray], dict[str, Json], str]:
    """(arrays, meta, a message if the last checkpoint was damaged and the one before is used)."""
    try:
        return *read_arrays(path), ""
    except CheckpointError as error:
        if not previous(path).exists():
            raise
        arrays, meta = read_arrays(previous(path))
        return arrays, meta, f"{error} The checkpoint before it was used."
