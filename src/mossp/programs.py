"""Compiled programs, kept for as long as they are likely to be used again, and no longer.

Every compiled program takes memory, and some of the 65,530 memory maps that Linux gives a process:
a process that compiles for each of its solves would end in a crash. Programs of one problem are a
set, which belongs to what was traced of the problem (`mossp.tracing`): an equal problem finds its
programs ready. Of many sets, those that were used last are kept.

`compiled` is `jax.jit` for a function whose first argument is, or has, the oracles of a problem.
"""

from __future__ import annotations

import collections
import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import jax

# Programs in all sets together, some 6,000 memory maps and 300 MB: a problem has 12 to 25 programs,
# each of 60 maps and 3 MB.
MOST_PROGRAMS = 100
# A function with so many sets of its own keeps arriving new, which is said.
MANY_SETS = 20


class ProgramSet:
    """The name of the programs of one problem. It does not hold them: the store does.

    (It is a part of the oracles, and so of what JAX remembers of every program: one that held the
    programs could never be freed.)
    """

    def __init__(self, key: Hashable, store: Store) -> None:
        self.key = key
        self.bound: tuple[Any, ...] | None = None  # numbers that had to be compiled in
        self._store = weakref.ref(store)

    def program(self, function: Callable[..., Any], options: dict[str, Any]) -> Any:
        store = self._store()
        assert store is not None, "the store of programs is gone"
        jitted = store.programs_of(self)
        if function not in jitted:
            # JAX shares programs between two jits of one function: this one is a new function.
            @functools.wraps(function)
            def fresh(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            jitted[function] = jax.jit(fresh, **options)
        return jitted[function]

    def check(self, oracles: Any) -> None:
        """Programs into which numbers were compiled serve these numbers alone."""
        if self.bound is not None and self.bound != oracles.numbers():
            raise RuntimeError(
                "Two runs at the same time use functions that differ in numbers which depend on "
                "the size of the batch: run one after the other."
            )


class Store:
    """Programs by set, the least recently used set first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._names: weakref.WeakValueDictionary[Hashable, ProgramSet]
        self._names = weakref.WeakValueDictionary()  # those in use, or with programs
        self._programs: collections.OrderedDict[ProgramSet, dict[Any, Any]]
        self._programs = collections.OrderedDict()
        self._made: collections.Counter[str] = collections.Counter()
        self._said = False
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """Compiled programs."""
        every = (jitted for programs in self._programs.values() for jitted in programs.values())
        return sum(jitted._cache_size() for jitted in every)

    def get(self, key: Hashable, numbers: Callable[[], tuple[Any, ...]], origin: str) -> ProgramSet:
        """The set of this key; `numbers` are the user's own, `origin` says where they come from."""
        with self._lock:
            found = self._names.get(key)
            if found is not None and found.bound not in (None, numbers()):
                key = (key, numbers())
                found = self._names.get(key)
            if found is None:
                self._made[origin] += 1
                self._drop(origin)
                found = self._names[key] = ProgramSet(key, self)
            return found

    def programs_of(self, name: ProgramSet) -> dict[Any, Any]:
        """What was compiled for this set; nothing, if it has been dropped."""
        with self._lock:
            found = self._programs.setdefault(name, {})
            self._programs.move_to_end(name)
            return found

    def _drop(self, origin: str) -> None:
        dropped = False
        while self._programs and len(self) > self.most:
            self._programs.popitem(last=False)
            dropped = True
        if dropped and not self._said and self._made[origin] > MANY_SETS:
            self._said = True
            warnings.warn(
                f"{origin} was compiled {self._made[origin]} times, because it was a different "
                "program each time, and earlier programs are dropped now: pass what varies as "
                "data, as numbers or arrays in the function (these need no new program), or as the "
                "leaves of an equinox module or a jax.tree_util.Partial.",
                stacklevel=6,
            )


store = Store(MOST_PROGRAMS)


def compiled(function: Any = None, **options: Any) -> Any:
    """jax.jit of a function of oracles (or of what has them as its `oracles`)."""
    if function is None:
        return functools.partial(compiled, **options)

    @functools.wraps(function)
    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        oracles = getattr(first, "oracles", first)
        programs: ProgramSet = oracles.programs
        programs.check(oracles)
        result = programs.program(function, options)(first, *args, **kwargs)
        if programs.bound is None and any(code.inlined for code in oracles.codes):
            programs.bound = oracles.numbers()
        return result

    return call
