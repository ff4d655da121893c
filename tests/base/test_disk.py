"""Programs that are kept on disk: where, when, and that no state of the disk stops a solve."""

import os
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

import mossp
from mossp._base import disk, entries, programs

pytestmark = pytest.mark.usefixtures("forgetful")

problem = mossp.Problem(loss=lambda x: x[0], equality=lambda x: x @ x - 1.0)
hits: list[str] = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None
)


@pytest.fixture
def forgetful(monkeypatch):
    """No folder is asked for, by JAX neither, and programs are made anew."""
    before = (
        jax.config.jax_compilation_cache_dir,
        jax.config.jax_persistent_cache_min_compile_time_secs,
    )
    monkeypatch.delenv("MOSSP_CACHE")
    monkeypatch.setattr(disk, "choice", disk.Choice())
    set_jax(None, 1.0)
    forget()
    yield
    set_jax(*before)
    disk.entries_of.cache_clear()


def set_jax(folder, seconds):
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)
    reset_cache()


def forget():
    """As if the process was new: what was compiled, and what is known of folders."""
    programs.store._programs.clear()
    disk.entries_of.cache_clear()
    hits.clear()


def restored():
    """One program, the constraint and its gradient."""
    assert mossp.restore(problem, np.array([0.9, 0.0])).tolist() == [1.0, 0.0]


def kept(folder):
    return sorted(folder.glob(f"programs/*/*{entries.ENDING}"))


def test_the_variable_asks_for_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path))
    restored()
    assert [file.parent.name for file in kept(tmp_path)] == [entries.machine()]
    assert not hits
    forget()
    restored()
    assert len(hits) == 1


def test_a_call_asks_for_a_folder(tmp_path):
    assert mossp.cache(tmp_path) == tmp_path / "programs" / entries.machine()
    restored()
    assert kept(tmp_path)
    assert mossp.cache(False) is None


def test_the_library_keeps_nothing_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    restored()
    assert not list(tmp_path.iterdir())


def test_estimators_keep_programs_in_the_users_folder(tmp_path, monkeypatch):
    from mossp.sklearn import MoSSPRegressor

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    X = np.random.default_rng(0).normal(size=(20, 2))
    MoSSPRegressor(lam=0.1).fit(X, X[:, 0])
    assert kept(tmp_path / "mossp")
    assert disk.entries_in_use() is None  # it ends with the fit


def test_the_command_keeps_programs_in_the_users_folder(tmp_path, monkeypatch):
    pytest.importorskip("typer")
    from mossp.app.cli import main

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = tmp_path / "small.py"
    script.write_text(
        "import mossp\nproblem = mossp.Problem(lambda x: (x - 1) @ (x - 1))\nx0 = [0.0]\n"
    )
    main(["solve", f"{script}:problem", "--out", str(tmp_path / "page")])
    assert kept(tmp_path / "mossp")


@pytest.mark.parametrize("off", ["off", "0", "OFF"])
def test_off_is_off_everywhere(off, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("MOSSP_CACHE", off)
    assert mossp.cache(tmp_path / "mine") is None
    with disk.on_by_default():
        restored()
    assert not list(tmp_path.iterdir())


def test_on_is_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("MOSSP_CACHE", "on")
    restored()
    assert kept(tmp_path / "mossp")


def test_only_our_own_programs_are_kept(tmp_path):
    mossp.cache(tmp_path)
    restored()
    before = kept(tmp_path)
    jax.jit(lambda x: x * 3.0 + 1.0)(np.ones(7))
    assert kept(tmp_path) == before
    assert jax.config.jax_compilation_cache_dir is None
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 1.0


def test_other_threads_are_left_alone(tmp_path):
    """A program of the caller that is compiled while one of ours is."""
    mossp.cache(tmp_path)
    with disk.used():
        thread = threading.Thread(target=lambda: jax.jit(lambda x: x * 5.0 - 1.0)(np.ones(9)))
        thread.start()
        thread.join()
    assert not kept(tmp_path)


def surroundings(folder):
    """Of a child that has no folder but this one."""
    left = {k: v for k, v in os.environ.items() if "CACHE" not in k}
    return {**left, "MOSSP_CACHE": str(folder)}


CALLERS = """
import sys, jax, numpy as np, mossp
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
mossp.restore(mossp.Problem(lambda x: x[0], equality=lambda x: x @ x - 1.0), np.ones(2))
"""


def test_the_callers_own_folder_wins(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    env = surroundings(ours)
    subprocess.run([sys.executable, "-c", CALLERS, str(theirs)], check=True, env=env)
    assert any("constraints_and_jacobian" in file.name for file in theirs.iterdir())
    assert not ours.exists()


LATER = """
import sys, jax, numpy as np, mossp
mossp.restore(mossp.Problem(lambda x: x[0], equality=lambda x: x @ x - 1.0), np.ones(2))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.jit(lambda x: x * 3.0)(np.ones(3))
"""


def test_the_caller_may_choose_a_folder_later(tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    env = surroundings(ours)
    subprocess.run([sys.executable, "-c", LATER, str(theirs)], check=True, env=env)
    assert kept(ours)
    assert list(theirs.iterdir())


@pytest.mark.parametrize("damage", [b"", b"not a program", None])
def test_a_damaged_entry_is_compiled_and_kept_again(damage, tmp_path):
    mossp.cache(tmp_path)
    restored()
    (file,) = kept(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    forget()
    restored()
    assert not hits
    assert (
        entries.digest_of(file.read_bytes()[entries.DIGEST :])
        == file.read_bytes()[: entries.DIGEST]
    )
    forget()
    restored()
    assert hits


def test_an_entry_that_is_no_program_is_compiled_and_kept_again(tmp_path):
    """Its digest is right, and JAX cannot read it: JAX says so, and compiles."""
    mossp.cache(tmp_path)
    restored()
    (file,) = kept(tmp_path)
    whole, wrong = file.read_bytes(), b"of another kind"
    file.write_bytes(entries.digest_of(wrong) + wrong)
    forget()
    with pytest.warns(UserWarning, match="reading persistent compilation cache"):
        restored()
    assert len(file.read_bytes()) > len(whole) // 2


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    mossp.cache(file / "below")
    restored()
    assert file.read_text() == "no folder"
    assert not disk.entries_in_use().writable


def test_a_user_without_a_home(monkeypatch):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert mossp.cache() is None


def test_the_oldest_entries_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "MOST_BYTES", 1000)
    monkeypatch.setattr(entries, "LOOKS", 1)
    few = entries.Entries(tmp_path)
    strange = tmp_path / "of the user.xla"
    strange.write_bytes(bytes(5000))
    for number in range(10):
        few.put(f"program-{number}", bytes(200))
        for place, file in enumerate(sorted(few.place.iterdir())):
            os.utime(file, (place, place))
        if few.get("program-0") is None:  # used again and again
            break
    left = {file.name for file in few.place.iterdir()}
    assert 1 <= len(left) <= 4
    assert "program-0.xla" in left and "program-9.xla" in left
    assert strange.exists()


def test_abandoned_drafts_are_removed(tmp_path):
    few = entries.Entries(tmp_path)
    few.put("first", b"1")
    draft = few.place / ".first.tmp"
    draft.write_bytes(b"half")
    os.utime(draft, (0, 0))
    entries.make_room(tmp_path)
    assert not draft.exists()


def test_another_processor_has_a_folder_of_its_own(monkeypatch):
    here = entries.machine.__wrapped__()
    assert here == entries.machine()
    monkeypatch.setattr(entries, "processor", lambda: ["flags: other"])
    assert entries.machine.__wrapped__() != here
