"""Checkpoints and saved results: nothing is lost, nothing is believed unchecked.

Of the cases in "What must not break": 12 test_kill_during_saves, test_damage_is_found_...,
test_every_flipped_byte_is_noticed; 13 test_resumed_equals_unbroken, test_changes_are_refused and
after it; 14 test_disk_full_..., test_folder_that_cannot_be_written; 15 test_signals.
"""

from __future__ import annotations

import copy
import dataclasses
import errno
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import CheckpointError, Result, Status, losses, schedules
from mossp._base import archive, files
from mossp._base.interrupt import Interrupt
from mossp.engine import checkpoint as saved_run
from mossp.engine.fingerprint import fingerprint as fingerprint_of
from mossp.newton.attempts import Polishing
from tests.hostile import mutations

door = importlib.import_module("mossp.solving.solve")  # `mossp.solve` is the function

N, n, BATCH, K = 200, 6, 16, 1000
rng = np.random.default_rng(0)
A = rng.normal(size=(N, n))
b = A @ np.array([1.0, 0.0, 0.0, 2.0, 0.0, -1.0]) + 0.1 * rng.normal(size=N)
START = np.full(n, 0.3)


def plane(x):
    return x.sum() - 3.0


def problem(**changes):
    given = {"loss": losses.squared, "data": (A, b), "equality": plane}
    return mossp.Problem(**{**given, "regularizer": mossp.L1(0.01), **changes})


def solve(p=None, x0=START, **settings):
    given = {"method": "mossp-r", "steps": K, "batch_size": BATCH, "seed": 0}
    return mossp.solve(p or problem(), x0, **{**given, **settings})


def stop_at(step):
    return lambda progress: progress.step >= step


def same_run(a, c):
    """Bit for bit."""
    assert a.steps == c.steps and a.gradients == c.gradients
    assert np.array_equal(a.xs, c.xs) and np.array_equal(a.funs, c.funs)
    assert np.array_equal(a.violations, c.violations)
    assert_same(a.expectation, c.expectation)
    for name in ("steps", "gradients", "objective", "violation", "proximity"):
        assert np.array_equal(getattr(a.trace, name), getattr(c.trace, name)), name
    assert a.certificate.criticality == c.certificate.criticality
    assert a.status is c.status


# Resuming -------------------------------------------------------------------------------------

RUNS = {
    "P": {"method": "mossp-p"},
    "R, three replicas": {"replicas": 3},
    "R, random": {"output": "random"},
    "R, best, three replicas": {"output": "best", "replicas": 3},
    "R, single": {"dtype": "float32"},
    "SVRG": {"method": mossp.MoSSP(momentum=mossp.SVRG())},
    "SVRG, own epoch, three replicas": {
        "method": mossp.MoSSP(momentum=mossp.SVRG(epoch=77)),
        "replicas": 3,
    },
    "constant": {"schedule": schedules.Constant(rho=5.0, mu=0.02, alpha=0.1)},
}


@pytest.mark.parametrize("name", RUNS)
def test_resumed_equals_unbroken(name, tmp_path):
    settings, file = RUNS[name], tmp_path / "run.npz"
    whole = solve(**settings)
    for step in (1, 300, 620, K - 1):  # stopped again and again
        broken = solve(checkpoint=file, callback=stop_at(step), **settings)
        assert broken.status is Status.STOPPED and step <= broken.steps < K + (step == K - 1)
    resumed = solve(checkpoint=file, **settings)
    same_run(resumed, whole)


def test_resumed_between_two_traces(tmp_path, monkeypatch):
    """Saved wherever a chunk ends, and taken up with chunks of another length."""
    whole = solve(output="random", replicas=3)
    monkeypatch.setattr(door, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(mossp.engine.loop, "FIRST_CHUNK", 7)
    monkeypatch.setattr(mossp.engine.loop, "CHUNK_SECONDS", 0.0)
    saves = []
    real = archive.save

    def save(path, arrays, meta):
        real(path, arrays, meta)
        saves.append(meta["k"])
        if meta["k"] > 410:
            raise KeyboardInterrupt

    monkeypatch.setattr(archive, "save", save)
    file = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        solve(output="random", replicas=3, checkpoint=file)
    assert saves[-1] % 31 and len(saves) > 50
    monkeypatch.undo()
    same_run(solve(output="random", replicas=3, checkpoint=file), whole)


def test_a_finished_run_is_not_run_again(tmp_path):
    file = tmp_path / "run.npz"
    first = solve(checkpoint=file)
    seen = []
    again = solve(checkpoint=file, callback=seen.append)
    same_run(again, first)
    assert not seen


def test_resume_false_starts_anew(tmp_path):
    file = tmp_path / "run.npz"
    solve(checkpoint=file, callback=stop_at(300))
    steps = []
    r = solve(checkpoint=file, resume=False, callback=lambda progress: steps.append(progress.step))
    assert steps[0] < 100
    same_run(r, solve())


def test_lost_replicas_stay_lost(tmp_path):
    """NaN before the break is remembered after it."""
    noise = np.random.default_rng(1).normal(size=(N, 3))
    target = noise @ np.array([0.5, 0.0, 0.0]) + np.random.default_rng(2).normal(size=N)
    fragile = mossp.Problem(loss=breaks, data=(noise, target), inequality=wide)
    settings = {
        "schedule": schedules.Constant(rho=1.0, mu=0.05, alpha=1.0), "method": "mossp-p",
        "steps": 64, "replicas": 8,
    }  # fmt: skip
    start, file = np.array([0.1, 0.2, -0.1]), tmp_path / "run.npz"
    whole = solve(fragile, start, **settings)
    dead = ~np.isfinite(whole.trace.objective[-1])
    assert 0 < dead.sum() < 8
    solve(fragile, start, checkpoint=file, callback=stop_at(50), **settings)
    resumed = solve(fragile, start, checkpoint=file, **settings)
    assert np.array_equal(resumed.xs, whole.xs) and resumed.message == whole.message


def breaks(x, batch):
    return 0.5 * jnp.mean((batch[0] @ x - batch[1]) ** 2) * jnp.where(x[0] > 0.5, jnp.nan, 1.0)


def wide(x):
    return x @ x - 100.0


# What is refused ------------------------------------------------------------------------------


def other_plane(x):
    return x.sum() - 2.0


CHANGED = {
    "lam": lambda: (problem(regularizer=mossp.L1(0.02)), {}),
    "data": lambda: (problem(data=(A, b + 1e-9)), {}),
    "rows": lambda: (problem(data=(A[:199], b[:199])), {}),
    "loss": lambda: (problem(loss=losses.huber), {}),
    "constraint": lambda: (problem(equality=other_plane), {}),
    "kind of constraint": lambda: (problem(equality=None, inequality=plane), {}),
    "seed": lambda: (problem(), {"seed": 1}),
    "steps": lambda: (problem(), {"steps": 2000}),
    "batch_size": lambda: (problem(), {"batch_size": 8}),
    "method": lambda: (problem(), {"method": "mossp-p"}),
    "schedule": lambda: (problem(), {"schedule": "theorem"}),
    "replicas": lambda: (problem(), {"replicas": 2}),
    "x0": lambda: (problem(), {"x0": START + 1e-9}),
    "dtype": lambda: (problem(), {"dtype": "float32"}),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    file = tmp_path_factory.mktemp("stopped") / "run.npz"
    solve(checkpoint=file, callback=stop_at(300))
    return file


@pytest.mark.parametrize("name", CHANGED)
def test_changes_are_refused(name, stopped, tmp_path):
    changed, settings = CHANGED[name]()
    file = tmp_path / "run.npz"
    file.write_bytes(stopped.read_bytes())
    with pytest.raises(CheckpointError, match="resume='force'"):
        solve(changed, checkpoint=file, **settings)
    assert file.read_bytes() == stopped.read_bytes()


def test_what_does_not_decide_the_iterates_may_change(stopped, tmp_path):
    file = tmp_path / "run.npz"
    file.write_bytes(stopped.read_bytes())
    r = solve(checkpoint=file, progress=False, callback=lambda progress: None, seconds=1000.0)
    assert r.steps == K


def test_force_goes_on_all_the_same(stopped, tmp_path):
    file = tmp_path / "run.npz"
    file.write_bytes(stopped.read_bytes())
    steps = []
    r = solve(
        problem(regularizer=mossp.L1(0.02)), checkpoint=file, resume="force",
        callback=lambda progress: steps.append(progress.step),
    )  # fmt: skip
    assert steps[0] > 300 and r.steps == K
    with pytest.raises(CheckpointError, match="shapes"):
        other = mossp.Problem(loss=losses.squared, data=(A[:, :4], b), equality=plane)
        file.write_bytes(stopped.read_bytes())
        solve(other, START[:4], checkpoint=file, resume="force")


def fingerprint(*functions):
    return fingerprint_of(functions)


def test_closures_are_part_of_the_problem():
    def make(radius):
        return lambda x: x @ x - radius

    assert fingerprint(make(1.0)) == fingerprint(make(1.0))
    assert fingerprint(make(1.0)) != fingerprint(make(2.0))
    assert fingerprint(make(np.ones(3))) != fingerprint(make(np.zeros(3)))


def test_default_arguments_are_part_of_the_problem():
    def make(value):
        def constraint(x, radius=value):
            return x @ x - radius

        return constraint

    assert fingerprint(make(1.0)) != fingerprint(make(2.0))


def test_a_callable_object_is_more_than_its_class():
    class Ball:
        def __init__(self, radius):
            self.radius = radius

        def __call__(self, x):
            return x @ x - self.radius

    assert fingerprint(Ball(1.0)) != fingerprint(Ball(2.0))


NESTED = """
def loss(x, batch):
    parts = [(lambda v: v * v)(x[i]) for i in range(2)]
    return sum(parts)
"""


def test_the_same_code_in_another_process_is_the_same_problem():
    """A function inside a function must not be told by its address in memory."""
    spaces = {}, {}
    for space in spaces:
        exec(compile(NESTED, "user.py", "exec"), space)
    assert fingerprint(spaces[0]["loss"]) == fingerprint(spaces[1]["loss"])


# What a function uses without being given it. In a file of its own, so that globals can change.
USES_GLOBALS = """
import logging
import jax
import jax.numpy as jnp
import numpy as np
RADIUS, T, TABLE = 1.0, np.arange(3.0), {"b": [1, 2], "a": 3}
log = logging.getLogger("user")

def loss(x):
    log.debug("called")
    return helper(x) + jitted(x) + deep(x)

def helper(x):
    return jnp.sum((x.T - TARGET()) ** 2) - RADIUS

def TARGET():
    return jnp.asarray(T) if RADIUS else loss  # which leads back to where it came from

@jax.jit
def jitted(x):
    return x @ x * FACTOR

FACTOR = 2.0

def deep(x):
    return (lambda v: [v * s for s in SCALES])(x)

SCALES = {1.5, 2.5}

class Ball:
    __slots__ = ("radius", "names")
    def __init__(self, radius, names):
        self.radius, self.names = radius, frozenset(names)
    def __call__(self, x):
        return x @ x - self.radius * OUTER

OUTER = 1.0
unused = 5
ball = Ball(1.0, ["a", "b"])
"""


def user_module(**changes):
    space = {"__name__": "user"}
    exec(compile(USES_GLOBALS, "user.py", "exec"), space)
    space.update(changes)
    return space


@pytest.mark.parametrize("name, value, told", [
    ("RADIUS", 2.0, True),
    ("RADIUS", 1, True),
    ("T", np.array([0.0, 1.0, 2.0 + 1e-15 * 8]), True),
    ("FACTOR", 3.0, True),  # behind jax.jit
    ("SCALES", {1.5, 3.5}, True),  # in a function within a function
    ("SCALES", {2.5, 1.5}, False),
    ("TARGET", lambda: 0.0, True),
    ("jnp", np, True),  # another module
    ("unused", 6, False),
    ("TABLE", {}, False),
])  # fmt: skip
def test_globals_that_a_function_uses_are_part_of_the_problem(name, value, told):
    before, after = user_module(), user_module(**{name: value})
    assert (fingerprint(before["loss"]) != fingerprint(after["loss"])) is told


def test_slots_sets_and_methods_are_part_of_the_problem():
    space = user_module()
    ball = space["Ball"]
    first = fingerprint(ball(1.0, ["a", "b"]))
    assert first == fingerprint(ball(1.0, ["b", "a"])) == fingerprint(user_module()["ball"])
    assert first != fingerprint(ball(2.0, ["a", "b"])) and first != fingerprint(ball(1.0, ["a"]))
    assert first != fingerprint(user_module(OUTER=2.0)["ball"])  # which its __call__ uses
    for one, other in [({1, 2}, {1, 3}), (frozenset("ab"), frozenset("ac")), ({1}, frozenset({1}))]:
        assert fingerprint(one) != fingerprint(other)


FINGERPRINT = """
import sys
from mossp.engine.fingerprint import fingerprint
space = {"__name__": "user"}
exec(compile(sys.argv[1], "user.py", "exec"), space)
print(fingerprint([space["loss"], space["ball"], {"c", "a", "b"}, frozenset({("x", 1), ("y", 2)})]))
"""


def test_fingerprints_agree_between_processes():
    """Sets come in another order there, and a logger knows other loggers."""
    space = user_module()
    mine = fingerprint(
        space["loss"], space["ball"], {"a", "b", "c"}, frozenset({("y", 2), ("x", 1)})
    )
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FINGERPRINT, USES_GLOBALS],
        env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert process.stdout.strip() == mine, process.stderr


def test_a_fingerprint_takes_no_time_for_what_it_met_before():
    nested = [np.zeros(2**20)]
    for _ in range(30):
        nested = [nested, nested]  # 2^30 paths lead to the array
    began = time.perf_counter()
    fingerprint(nested)
    assert time.perf_counter() - began < 5.0


def bowl(x):
    return 0.5 * jnp.sum((x - 1.0) ** 2)


INNER = {
    "L1 and L1MinusL2 inside Nonnegative": (
        mossp.Nonnegative(mossp.L1(0.1)),
        mossp.Nonnegative(mossp.L1MinusL2(0.1)),
    ),
}


@pytest.mark.parametrize("name", INNER)
def test_an_inner_regulariser_is_part_of_the_problem(name, tmp_path):
    first, second = INNER[name]
    file = tmp_path / "run.npz"
    one, two = (mossp.Problem(bowl, regularizer=reg) for reg in (first, second))
    solve(one, checkpoint=file, callback=stop_at(100))
    with pytest.raises(CheckpointError, match="another problem"):
        solve(two, checkpoint=file)


def ones(key, size):
    return jnp.ones((size, 2))


def twos(key, size):
    return 2.0 * jnp.ones((size, 2))


def nearest_to_samples(x, batch):
    return 0.5 * jnp.mean((x - batch) ** 2)


def test_a_sampler_is_part_of_the_problem(tmp_path):
    file = tmp_path / "run.npz"
    one, two = (mossp.Problem(nearest_to_samples, mossp.Sampler(fn)) for fn in (ones, twos))
    solve(one, np.zeros(2), checkpoint=file, callback=stop_at(100))
    with pytest.raises(CheckpointError, match="another problem"):
        solve(two, np.zeros(2), checkpoint=file)


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


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "missing"])
def test_damage_is_found_said_and_the_checkpoint_before_is_used(damage, tmp_path, monkeypatch):
    monkeypatch.setattr(door, "CHECKPOINT_SECONDS", -1.0)  # save whenever a chunk ends
    file = tmp_path / "run.npz"
    whole = solve()
    solve(checkpoint=file, callback=stop_at(500))
    before = archive.previous(file)
    last, earlier = (archive.read_arrays(path)[1]["k"] for path in (file, before))
    assert earlier < last
    good = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(good[: len(good) // 2])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "flipped":
        place = bytes(good).index(b"NUMPY", len(good) // 2) + 130  # within an array
        good[place] ^= 0x10
        file.write_bytes(good)
    else:
        file.unlink()
    steps = []
    r = solve(checkpoint=file, callback=lambda progress: steps.append(progress.step))
    assert steps[0] > earlier - 100
    assert "run.npz" in r.message and "The checkpoint before it was used" in r.message
    assert np.array_equal(r.xs, whole.xs)


def test_damage_without_an_earlier_checkpoint(tmp_path):
    file = tmp_path / "run.npz"
    file.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(CheckpointError, match="damaged or not a file of mossp"):
        solve(checkpoint=file)
    assert solve(checkpoint=file, resume=False).steps == K


def test_objects_are_not_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'exploded'}",))

    file = tmp_path / "run.npz"
    np.savez(file, __meta__=np.array([Bomb()], dtype=object), __checksum__=np.zeros(32, np.uint8))
    with pytest.raises(CheckpointError):
        archive.read_arrays(file)
    with pytest.raises((CheckpointError, ValueError)):
        Result.load(file)
    with pytest.raises(CheckpointError):
        solve(checkpoint=file)
    assert not (tmp_path / "exploded").exists()


def test_foreign_archives_are_refused(tmp_path):
    file = tmp_path / "run.npz"
    np.savez(file, a=np.ones(3))
    with pytest.raises(CheckpointError, match="checksum"):
        archive.read_arrays(file)
    stored = {"a": np.ones(3)}  # a checksum that fits, and no description
    stored["__checksum__"] = np.frombuffer(archive.checksum(stored), np.uint8)
    np.savez(file, **stored)
    with pytest.raises(CheckpointError):
        archive.read_arrays(file)
    archive.write_arrays(file, {"a": np.ones(3)}, {"kind": "another"})
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        solve(checkpoint=file)


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
    with packed as archive, archive.open("a.npy", "w") as member:
        member.write(header((large // 8,)))
        for _ in range(16):
            member.write(bytes(large // 16))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="would unpack to 268,435,584 bytes"):
            archive.read_arrays(file)
        assert tracemalloc.get_traced_memory()[1] < 2**22
        # Stored, but one entry after the other is the same bytes of the file.
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.npy", header((2**16,)) + bytes(2**19))
            for number in range(500):
                twin = copy.copy(archive.infolist()[0])
                twin.filename = f"{number}.npy"
                archive.filelist.append(twin)
        with pytest.raises(CheckpointError, match="refused"):
            archive.read_arrays(file)
        # An array that claims to be larger than its bytes.
        for shape, descr in [
            ((10**15,), "<f8"),
            ((10**15,), "<U0"),
            ((-1, -8), "|u1"),
            ((8,), "|O"),
        ]:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("a.npy", header(shape, descr) + bytes(8))
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


class FullDisk(io.FileIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk(path, mode="r"):
    return FullDisk(path, mode)


def read_only(path, mode="r"):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.mark.parametrize(("opener", "said"), [(full_disk, "space"), (read_only, "[Rr]ead-only")])
def test_disk_full_or_read_only(opener, said, tmp_path, monkeypatch):
    file = tmp_path / "run.npz"
    solve(checkpoint=file, callback=stop_at(300))
    before = file.read_bytes()
    monkeypatch.setattr(files, "open", opener, raising=False)
    with pytest.raises(CheckpointError, match=said) as caught:
        solve(checkpoint=file, replicas=1)
    monkeypatch.undo()
    r = caught.value.result
    assert isinstance(r, Result) and r.steps == K and np.isfinite(r.x).all()
    assert np.array_equal(r.xs, solve().xs)  # the work is not lost
    assert file.read_bytes() == before
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    same_run(solve(checkpoint=file), solve())


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


def test_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """Found before any work is done."""
    if os.geteuid():
        tmp_path.chmod(0o500)
    else:  # nothing is read-only to root
        monkeypatch.setattr(os, "access", lambda *args, **kwargs: False)
    with pytest.raises((CheckpointError, ValueError), match="writable"):
        solve(checkpoint=tmp_path / "run.npz")


# Processes that die ---------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]

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


def child(code, *args):
    # JAX in a child speaks to this terminal only.
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


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


SOLVES = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.engine import test_checkpoint as t
def say(progress):
    print("step", progress.step, flush=True)
r = t.solve(steps=t.LONG, checkpoint=sys.argv[2], callback=say)
print("ended", r.status.name, r.steps, r.success, flush=True)
"""
LONG = 3_000_000


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_signals(tmp_path):
    """Ctrl-C and SIGTERM, in two processes side by side."""
    files = {number: tmp_path / f"{number.name}.npz" for number in (signal.SIGINT, signal.SIGTERM)}
    children = {number: child(SOLVES, ROOT, file) for number, file in files.items()}
    try:
        for number, process in children.items():
            assert process.stdout.readline().startswith("step")
            process.send_signal(number)
        said = {number: p.communicate(timeout=60) for number, p in children.items()}
    finally:
        for process in children.values():
            process.kill()
    for number, file in files.items():
        out, err = said[number]
        ended = [line.split() for line in out.splitlines() if line.startswith("ended")]
        assert ended, err
        _, status, steps, _ = ended[0]
        assert status == "INTERRUPTED" and 0 < int(steps) < LONG
        assert archive.load(file)[1]["k"] == int(steps)
        # Another process, this one, takes the run up where it was left.
        taken = []
        r = solve(
            steps=LONG, checkpoint=file,
            callback=lambda progress, taken=taken: taken.append(progress.step) or True,
        )  # fmt: skip
        assert r.status is Status.STOPPED and int(steps) < taken[0] <= int(steps) + 2 * 3125


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    solve(steps=40)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with pytest.raises(RuntimeError):
        solve(callback=lambda progress: (_ for _ in ()).throw(RuntimeError()))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_in_the_same_process(tmp_path):
    file = tmp_path / "run.npz"

    sent = []

    def interrupt(progress):
        if progress.step > 300 and not sent:  # a second one would end this process
            sent.append(progress.step)
            os.kill(os.getpid(), signal.SIGINT)

    r = solve(checkpoint=file, callback=interrupt)
    assert r.status is Status.INTERRUPTED and 300 < r.steps < K
    same_run(solve(checkpoint=file), solve())


# Results --------------------------------------------------------------------------------------


class Parts(NamedTuple):
    w: np.ndarray
    rest: list


def parts_loss(x, batch):
    v = jnp.concatenate([x["p"].w, x["p"].rest[0], x["bias"][None]])
    return 0.5 * jnp.mean((batch[0] @ v - batch[1]) ** 2)


def named_constraints(x):
    return {"total": x["p"].w.sum() - 1.0, "pair": x["p"].rest[0] - 0.1}


def plain_loss(x, batch):
    return parts_loss({"p": Parts(x["w"], x["rest"]), "bias": x["bias"]}, batch)


def plain_constraints(x):
    return named_constraints({"p": Parts(x["w"], x["rest"])})


def assert_same(a, c):
    assert type(a) is type(c), (type(a), type(c))
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            assert_same(getattr(a, field.name), getattr(c, field.name))
    elif isinstance(a, dict):
        assert set(a) == set(c)
        for key in a:
            assert_same(a[key], c[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(c)
        for left, right in zip(a, c, strict=True):
            assert_same(left, right)
    elif isinstance(a, np.ndarray):
        assert a.dtype == c.dtype and a.shape == c.shape
        assert np.array_equal(a, c, equal_nan=a.dtype.kind == "f")
    elif isinstance(a, float):
        assert a == c or (np.isnan(a) and np.isnan(c))
    else:
        assert a == c


def tree_result(**settings):
    start = {"w": np.zeros(3), "rest": [np.zeros(2)], "bias": np.array(0.0)}
    return solve(
        mossp.Problem(loss=plain_loss, data=(A, b), inequality=plain_constraints), start,
        steps=100, **settings,
    )  # fmt: skip


def test_result_round_trip(tmp_path):
    for number, r in enumerate((solve(steps=100), solve(steps=100, replicas=3), tree_result())):
        file = r.save(tmp_path / f"{number}.npz")
        assert_same(Result.load(file), r)
        assert Result.load(str(file)).summary() == r.summary()
    assert set(r.certificate.multipliers["inequality"]) == {"total", "pair"}
    assert solve(x0=Result.load(tmp_path / "0.npz"), steps=50).steps == 50


def test_result_round_trip_of_a_failure(tmp_path):
    """NaN and infinity survive."""
    r = mossp.solve(
        mossp.Problem(loss=lambda x: jnp.log(x[0]), equality=lambda x: x[0] + 1.0), np.ones(2),
        steps=50,
    )  # fmt: skip
    assert r.status is Status.NONFINITE
    assert_same(Result.load(r.save(tmp_path / "r.npz")), r)


def test_result_of_a_named_tuple(tmp_path):
    start = {"p": Parts(np.zeros(3), [np.zeros(2)]), "bias": np.array(0.0)}
    r = solve(mossp.Problem(loss=parts_loss, data=(A, b)), start, steps=50)
    assert isinstance(r.x["p"], Parts)
    back = Result.load(r.save(tmp_path / "r.npz"))
    assert np.array_equal(back.x["p"][0], r.x["p"].w)  # its class is not kept in a file


def test_damaged_results_are_refused(tmp_path, stopped):
    result = solve(steps=100)
    file = result.save(tmp_path / "r.npz")
    good = bytearray(file.read_bytes())
    good[good.index(result.x.tobytes())] ^= 0x20
    file.write_bytes(good)
    with pytest.raises(CheckpointError, match="damaged"):
        Result.load(file)
    with pytest.raises(CheckpointError, match="no file"):
        Result.load(tmp_path / "absent.npz")
    with pytest.raises((ValueError, CheckpointError), match="not a result"):
        Result.load(stopped)


def test_results_made_by_hand_are_one_sentence(tmp_path):
    """Right checksums, wrong contents: every one is a CheckpointError, or a result that reads."""
    first = tree_result()
    file = first.save(tmp_path / "r.npz")
    refused = 0
    for what in mutations(file, 400, seed=1):
        try:
            Result.load(file).summary()
        except CheckpointError as error:
            assert "\n" not in str(error) and "r.npz" in str(error), what
            refused += 1
    assert refused > 200
    assert_same(Result.load(file), first)


def taken_up(monkeypatch, **settings):
    """What `solve` gives to the reader of checkpoints, to be called again and again."""
    calls, real = [], saved_run.take_up
    monkeypatch.setattr(saved_run, "take_up", lambda *args: calls.append(args) or real(*args))
    solve(callback=lambda progress: True, **settings)
    monkeypatch.undo()
    (_, watch, mark, _), oracles = calls[0], calls[0][1].oracles

    def take_up(file):
        arrays, extra = saved_run.take_up(file, watch, mark, force=True)
        polishing = Polishing(oracles, 1e-10, Interrupt())
        polishing.take_up(arrays, extra["polishing"])
        return polishing

    return take_up


@pytest.mark.parametrize("method", ["mossp-r", "auto"])
def test_checkpoints_made_by_hand_are_one_sentence(method, tmp_path, monkeypatch):
    """With "auto" there are polished replicas in the file."""
    file = tmp_path / "run.npz"
    settings = {"method": method, "checkpoint": file, "replicas": 2, "steps": 200}
    solve(**settings)
    take_up = taken_up(monkeypatch, **settings)
    assert bool(take_up(file).found) == (method == "auto")
    refused = 0
    for what in mutations(file, 200, seed=2):
        try:
            take_up(file)
        except CheckpointError as error:
            assert "\n" not in str(error) and "run.npz" in str(error), what
            refused += 1
    assert 100 < refused < 200
    for what in mutations(file, 12, seed=3):  # and what is accepted can be gone on from
        archive.previous(file).unlink(missing_ok=True)
        try:
            solve(**settings, resume="force").summary()
        except CheckpointError as error:
            assert "\n" not in str(error), what


def test_saving_replaces_atomically(tmp_path, monkeypatch):
    r = solve(steps=100)
    file = r.save(tmp_path / "r.npz")
    before = file.read_bytes()
    monkeypatch.setattr(files, "open", full_disk, raising=False)
    with pytest.raises(CheckpointError, match="space"):
        solve(steps=50).save(file)
    monkeypatch.undo()
    assert file.read_bytes() == before
