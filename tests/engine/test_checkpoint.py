"""Checkpoints: nothing is lost, nothing is believed unchecked.

Of the cases in "What must not break": 12 test_damage_is_found_... (and base/test_archive.py); 13
test_resumed_equals_unbroken, test_changes_are_refused and after it (and test_fingerprint.py); 14
test_disk_full_or_read_only, test_folder_that_cannot_be_written; 15 test_signals.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import CheckpointError, Result, Status, losses, schedules
from mossp._base import archive, files
from mossp.solving import prepare as preparing
from mossp.solving import run as running
from tests.children import child
from tests.disks import full_disk, read_only
from tests.engine.runs import LONG, K, problem, same_run, solve, stop_at
from tests.hostile import mutations
from tests.problems import START, A, N, b, bowl, fragile_rows, plane, wide_ball

pytestmark = pytest.mark.slow


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
    monkeypatch.setattr(running, "CHECKPOINT_SECONDS", -1.0)
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


@pytest.mark.parametrize("output", ["last", "best"])
def test_resumed_after_a_signal_between_two_traces(output, tmp_path, monkeypatch):
    """An interrupted run records where it stands; the one that goes on would not have looked."""
    settings = {"method": mossp.MoSSP(momentum=mossp.SVRG(epoch=77)), "output": output}
    whole, file = solve(**settings), tmp_path / "run.npz"
    step = 5 * 77  # a chunk ends at an anchor
    advance = mossp.engine.loop.Loop.advance

    def interrupted(self, at, longest):
        done = advance(self, at, longest)
        if done.position.k == step:
            signal.raise_signal(signal.SIGTERM)
        return done

    monkeypatch.setattr(mossp.engine.loop.Loop, "advance", interrupted)
    broken = solve(checkpoint=file, **settings)
    assert broken.status is Status.INTERRUPTED and broken.steps == step
    assert broken.trace.steps[-1] == step and step not in whole.trace.steps
    monkeypatch.undo()
    same_run(solve(checkpoint=file, **settings), whole)


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
    fragile = mossp.Problem(loss=fragile_rows, data=(noise, target), inequality=wide_ball)
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
    "steps of a schedule that plans them": lambda: (
        problem(),
        {"steps": 2000, "schedule": "theorem"},
    ),
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


def test_a_run_may_go_on_for_more_steps(stopped, tmp_path):
    file = tmp_path / "run.npz"
    file.write_bytes(stopped.read_bytes())
    assert solve(checkpoint=file).steps == K
    longer = solve(checkpoint=file, steps=2 * K)
    assert longer.steps == 2 * K and longer.trace.steps[-1] == 2 * K
    assert longer.gradients == solve(steps=2 * K).gradients
    with pytest.raises(CheckpointError, match=r"has taken 2,000 steps, more than the 1,000"):
        solve(checkpoint=file)
    # With parameters that do not depend on the number of steps it is one run, bit for bit.
    constant = {"schedule": mossp.schedules.Constant(rho=10.0, mu=0.02, alpha=0.1)}
    parted = tmp_path / "parted.npz"
    solve(checkpoint=parted, steps=K // 2, **constant)
    in_parts, whole = solve(checkpoint=parted, **constant), solve(**constant)
    np.testing.assert_array_equal(in_parts.x, whole.x)


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


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "missing"])
def test_damage_is_found_said_and_the_checkpoint_before_is_used(damage, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CHECKPOINT_SECONDS", -1.0)  # save whenever a chunk ends
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


# Trouble with the disk ------------------------------------------------------------------------


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


SOLVES = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.engine import runs as t
def say(progress):
    print("step", progress.step, flush=True)
r = t.solve(steps=t.LONG, checkpoint=sys.argv[2], callback=say)
print("ended", r.status.name, r.steps, r.success, flush=True)
"""


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


def reader_of(monkeypatch, **settings):
    """What `solve` gives to the reader of checkpoints, to be called again and again."""
    calls, real = [], preparing.restore
    monkeypatch.setattr(preparing, "restore", lambda *args: calls.append(args) or real(*args))
    solve(callback=lambda progress: True, **settings)
    monkeypatch.undo()
    _, mark, _, fresh, loop = calls[0]

    def read(file):
        with jax.enable_x64(True):  # as in `solve`
            return real(file, mark, True, fresh, loop)[0]

    return read


@pytest.mark.parametrize("method", ["mossp-r", "auto"])
def test_checkpoints_made_by_hand_are_one_sentence(method, tmp_path, monkeypatch):
    """With "auto" there are polished replicas in the file."""
    file = tmp_path / "run.npz"
    settings = {"method": method, "checkpoint": file, "replicas": 2, "steps": 200}
    solve(**settings)
    read = reader_of(monkeypatch, **settings)
    assert bool(read(file).attempts.found) == (method == "auto")
    refused = 0
    for what in mutations(file, 200, seed=2):
        try:
            read(file)
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


@pytest.mark.skipif(np.dtype("longdouble").itemsize == 8, reason="long double is double here")
@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble"])
def test_numbers_wider_than_ours_are_one_sentence(stopped, tmp_path, dtype):
    """JAX cannot take numbers of 80 bits, of the right kind and shape as they may be."""
    file = tmp_path / "run.npz"
    with np.load(stopped) as saved:
        arrays = {name: saved[name] for name in saved.files if name != archive.CHECKSUM}
    arrays["carry/0"] = arrays["carry/0"].astype(dtype)
    mark = np.frombuffer(archive.checksum(arrays), np.uint8)
    np.savez(file, **arrays, **{archive.CHECKSUM: mark})
    with pytest.raises(CheckpointError, match="is damaged or not a file of mossp"):
        solve(checkpoint=file, resume="force")
    with pytest.raises(CheckpointError, match="could not be read again"):
        archive.write_arrays(file, {"x": arrays["carry/0"]}, {})
