"""Compiled programs kept on disk, so that the next process need not compile them again.

JAX looks programs up in one object per process (`jax._src.compilation_cache._cache`), by a key of
their code, the options of the compiler and its version. While a program of ours is looked up or
compiled, and only then, that object is ours: the caller's own programs are not kept, the caller's
settings of JAX are not touched, and where they name a folder, that one is used instead.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from mossp._base import folders
from mossp._base.entries import Entries

try:
    from jax._src import compilation_cache as jax_cache
    from jax._src.config import persistent_cache_min_compile_time_secs as shortest_kept

    AVAILABLE = hasattr(jax_cache, "_cache")
except ImportError:  # another version of JAX: programs are compiled anew in every process
    AVAILABLE = False


# Which folder ---------------------------------------------------------------------------------


class Choice:
    """What this process was told by `cache`; the variable of the environment comes first."""

    folder: str | None = None
    on = False


choice = Choice()
wanted: contextvars.ContextVar[bool] = contextvars.ContextVar("wanted", default=False)


@contextlib.contextmanager
def on_by_default() -> Iterator[None]:
    """Where programs are kept unless the environment says otherwise: estimators, the command."""
    token = wanted.set(True)
    try:
        yield
    finally:
        wanted.reset(token)


def cache(folder: str | os.PathLike[str] | bool | None = None) -> Path | None:
    """Keep compiled programs on disk from now on: a first solve then need not compile them again.

    The command `mossp` and the estimators of `mossp.sklearn` do so by themselves; for all else
    this call or the variable MOSSP_CACHE in the environment (a folder, or "on") asks for it.
    MOSSP_CACHE=off turns it off everywhere.

    Only programs of mossp are kept, at most 256 MB of them; the least recently used are removed
    first. Where JAX has been told of a folder of its own (jax_compilation_cache_dir), that one is
    used as JAX sees fit. A cache is trusted, as code is: keep it where only you can write.

    Parameters
    ----------
    folder : path or bool, optional
        Where. Left out or True: MOSSP_CACHE if it names a folder, else `mossp` in the user's
        folder for caches. False: no longer, unless MOSSP_CACHE is set.

    Returns
    -------
    Path or None
        The folder of this processor and this version of JAX; None where nothing is kept.

    Examples
    --------
    >>> import tempfile, mossp
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = mossp.cache(place)
    ...     off = mossp.cache(False)
    >>> off is None or off != folder
    True
    """
    choice.on, choice.folder = folder is not False, None
    if folder is not None and not isinstance(folder, bool):
        choice.folder = os.path.expanduser(os.fspath(folder))
    entries = entries_in_use()
    return None if entries is None else entries.place


def root_in_use() -> str | None:
    """The folder that the environment, the process or a default asks for; None for none."""
    said = folders.said()
    if said == "off":
        return None
    asked = said or choice.on or wanted.get()
    named = None if said in ("", "on") else said
    return choice.folder or named or (folders.usual() if asked else None)


def entries_in_use() -> Entries | None:
    callers = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if not AVAILABLE or callers is not None:
        return None
    root = root_in_use()
    return None if root is None else entries_of(root)


@functools.cache
def entries_of(root: str) -> Entries:
    return Entries(Path(root) / "programs")


# How JAX comes to use it ------------------------------------------------------------------------


class Current(threading.local):
    """The entries that this thread uses now."""

    entries: Entries | None = None


current = Current()


class Door:
    """What JAX asks for programs: it leads to the entries of the thread that asks, if any."""

    _path = "mossp"  # JAX names it in its log

    def get(self, key: str) -> bytes | None:
        return None if current.entries is None else current.entries.get(key)

    def put(self, key: str, value: bytes) -> None:
        if current.entries is not None:
            current.entries.put(key, value)


class Installation:
    """The door is open for as long as some thread is in `used`."""

    def __init__(self) -> None:
        self.door: Any = Door()
        self._users = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if jax_cache._cache is None:
                jax_cache._cache = self.door

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and jax_cache._cache is self.door:
                jax_cache._cache = None


installation = Installation()


class Used:
    """With this, programs that are compiled come from the disk, or go there."""

    def __init__(self, entries: Entries | None) -> None:
        self.entries = entries

    def __enter__(self) -> None:
        if self.entries is None:
            return
        self.before, current.entries = current.entries, self.entries
        self.kept: Any = shortest_kept(0.0)  # small programs as well; a thread's own setting
        self.kept.__enter__()
        installation.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.entries is None:
            return
        installation.__exit__()
        self.kept.__exit__(None, None, None)
        current.entries = self.before


def used(entries: Entries | None = None) -> Used:
    """The folder in use for what is compiled in this context; for another thread, these entries."""
    return Used(entries or entries_in_use())
