"""Archives: damage is noticed, disks that are full or read-only, writers that are killed.

Of the cases in "What must not break": 12 test_kill_during_saves and
test_every_flipped_byte_is_noticed; 14 test_disk_full_at_the_last_moment.
"""

from __future__ import annotations

import copy
import errno
import os
import signal
import threading
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from mossp import CheckpointError, Result
from mossp._base import archive, files
from tests.children import child

# Damage ---------------------------------------------------------------------------------------

ARRAYS = {"carry/0": np.arange(6.0), "history/1": np.ones((3, 2)), "empty": np.zeros((0, 4))}


def test_round_trip(tmp_path):
    file = archive.write_arrays(tmp_path / "a.npz", ARRAYS, {"k": 7, "text": "é"})
    arrays, meta = archive.read_arrays(file)
    assert meta == {"k": 7, "text": "é"} and set(arrays) == set(ARRAYS)
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    assert os.listdir(tmp_path) == ["a.npz"]


def test_every_flipped_byte_is_noticed(tmp_path):
    file = archive.write_arrays(tmp_path / "a.npz", ARRAYS, {"k": 7})
    good = file.read_bytes()
    bad = tmp_path / "b.npz"
    for place in range(len(good)):
        for bits in (0x01, 0xFF):
            bad.write_bytes(good[:place] + bytes([good[place] ^ bits]) + good[place + 1 :])
            try:
                arrays, meta = archive.read_arrays(bad)
            except CheckpointError:
                continue
            # A byte that carries nothing, such as a date in the archive.
            assert meta == {"k": 7} and set(arrays) == set(ARRAYS)
            for name, a in ARRAYS.items():
                assert arrays[name].dtype == a.dtype and np.array_equal(arrays[name], a)


def test_every_truncation_is_noticed(tmp_path):
    file = archive.write_arrays(tmp_path / "a.npz", ARRAYS, {"k": 7})
    good = file.read_bytes()
    for length in range(0, len(good), 7):
        file.write_bytes(good[:length])
        with pytest.raises(CheckpointError):
            archive.read_arrays(file)


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    deep: list = []
    for _ in range(200):
        deep = [deep]
    for arrays, meta in [({"a": np.array([None])}, {}), ({}, {"deep": deep})]:
        with pytest.raises(CheckpointError, match="could not be read again"):
            archive.write_arrays(tmp_path / "a.npz", arrays, meta)
    assert not os.listdir(tmp_path)


def header(shape, descr="<f8"):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (117 - len(text)) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_archives_that_unpack_to_more_than_they_are_are_refused(tmp_path):
    """A megabyte became a gigabyte. Nothing of it is read."""
    file, large = tmp_path / "run.npz", 2**28
    packed = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
    with packed, packed.open("a.npy", "w") as member:
        member.write(header((large // 8,)))
        for _ in range(16):
            member.write(bytes(large // 16))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="would unpack to 268,435,584 bytes"):
            archive.read_arrays(file)
        assert tracemalloc.get_traced_memory()[1] < 2**22
        # Stored, but one entry after the other is the same bytes of the file.
        with zipfile.ZipFile(file, "w") as packed:
            packed.writestr("a.npy", header((2**16,)) + bytes(2**19))
            for number in range(500):
                twin = copy.copy(packed.infolist()[0])
                twin.filename = f"{number}.npy"
                packed.filelist.append(twin)
        with pytest.raises(CheckpointError, match="refused"):
            archive.read_arrays(file)
        # An array that claims to be larger than its bytes.
        for shape, descr in [
            ((10**15,), "<f8"),
            ((10**15,), "<U0"),
            ((-1, -8), "|u1"),
            ((8,), "|O"),
        ]:
            with zipfile.ZipFile(file, "w") as packed:
                packed.writestr("a.npy", header(shape, descr) + bytes(8))
            with pytest.raises(CheckpointError, match="not a file of mossp"):
                archive.read_arrays(file)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", [
    b"[1]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 500 + b"1" + b"}" * 500,
    b'{"a": ' + b"9" * 5000 + b"}",
])  # fmt: skip
def test_descriptions_that_are_none(text, tmp_path):
    stored = {archive.META: np.frombuffer(text, np.uint8)}
    stored[archive.CHECKSUM] = np.frombuffer(archive.checksum(stored), np.uint8)
    np.savez(tmp_path / "a.npz", **stored)
    with pytest.raises(CheckpointError, match="not a file of mossp"):
        archive.read_arrays(tmp_path / "a.npz")
    with pytest.raises(CheckpointError):
        Result.load(tmp_path / "a.npz")


# Trouble with the disk ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_disk_full_at_the_last_moment(name, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = archive.write_arrays(tmp_path / "a.npz", ARRAYS, {"k": 7})
    before = file.read_bytes()
    monkeypatch.setattr(os, name, fail)
    with pytest.raises(CheckpointError, match="space"):
        archive.save(file, ARRAYS, {"k": 8})
    monkeypatch.undo()
    assert file.read_bytes() == before
    assert not [each for each in os.listdir(tmp_path) if each.endswith(".tmp")]


def test_writers_of_one_file_do_not_meet(tmp_path, monkeypatch):
    """Threads, and containers in which every process has the same number."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    file, failed = tmp_path / "run.npz", []

    def write(number):
        try:
            for k in range(20):
                archive.save(file, {"a": np.full(20_000, number)}, {"k": k, "by": number})
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for path in (file, archive.previous(file)):
        arrays, meta = archive.read_arrays(path)
        assert (arrays["a"] == meta["by"]).all()
    assert sorted(os.listdir(tmp_path)) == ["run.npz", "run.npz.previous"]


def test_what_killed_writers_leave_is_cleared_away(tmp_path):
    file = tmp_path / "run.npz"
    long_ago = time.time() - 2 * files.STALE
    dead, alive = (files.draft_beside(file) for _ in range(2))
    others = [tmp_path / name for name in (".run.npz.tmp", ".run.npz.notes.tmp", "run.npz.0.tmp")]
    for path in (dead, alive, *others):
        path.write_bytes(b"half")
    for path in (dead, *others):
        os.utime(path, (long_ago, long_ago))
    archive.save(file, ARRAYS, {"k": 7})
    assert not dead.exists() and alive.exists() and all(path.exists() for path in others)


def test_a_link_is_followed(tmp_path):
    disk, home = tmp_path / "disk", tmp_path / "home"
    disk.mkdir()
    home.mkdir()
    link = home / "run.npz"
    link.symlink_to(disk / "run.npz")
    for k in (1, 2):
        archive.save(link, ARRAYS, {"k": k})
    assert link.is_symlink() and os.listdir(home) == ["run.npz"]
    assert sorted(os.listdir(disk)) == ["run.npz", "run.npz.previous"]
    assert archive.read_arrays(disk / "run.npz")[1] == {"k": 2}
    (disk / "run.npz").write_bytes(b"damaged")
    assert archive.load(link)[1] == {"k": 1}


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(errno.EPERM, "no links here")

    file = archive.write_arrays(tmp_path / "a.npz", ARRAYS, {"k": 7})
    monkeypatch.setattr(os, "link", fail)
    archive.save(file, ARRAYS, {"k": 8})
    assert archive.load(file)[1] == {"k": 8}


# Processes that die ---------------------------------------------------------------------------


SAVES = """
import sys
import numpy as np
from pathlib import Path
from mossp._base import archive
path, k = Path(sys.argv[1]), 0
while True:
    k += 1
    archive.save(path, {"a": np.full(200_000, float(k))}, {"k": k})
    print(k, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_kill_during_saves(tmp_path):
    file = tmp_path / "run.npz"
    for turn, pause in enumerate((0.0, 0.004, 0.011)):
        process = child(SAVES, file)
        for _ in range(3 + turn):
            assert process.stdout.readline().strip()
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        printed = process.stdout.read().split()
        process.stdout.close()
        process.stderr.close()
        arrays, meta, warning = archive.load(file)
        assert warning == ""  # the file itself is never half written
        assert (arrays["a"] == meta["k"]).all()
        assert not printed or meta["k"] >= int(printed[-1])
        if archive.previous(file).exists():
            assert archive.read_arrays(archive.previous(file))[1]["k"] <= meta["k"]
