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
from collections.abc import Callable, Hashable
from typing import Any

import jax

# Programs in all sets together, some 6,000 memory maps and 300 MB: a problem has 12 to 25 programs,
# each of 60 maps and 3 MB.
MOST_PROGRAMS = 100
# A function with so many sets of its own keeps arriving new, which is said.
MANY_SETS = 12


class ProgramSet:
    """The programs of one problem; dropped, it frees them."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.bound: tuple[Any, ...] | None = None  # numbers that had to be compiled in
        self._jitted: dict[Callable[..., Any], Any] = {}

    def program(self, function: Callable[..., Any], options: dict[str, Any]) -> Any:
        if function not in self._jitted:
            # JAX shares programs between two jits of one function: this one is a new function.
            @functools.wraps(function)
            def fresh(*args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

            self._jitted[function] = jax.jit(fresh, **options)
        return self._jitted[function]

    def check(self, oracles: Any) -> None:
        """Programs into which numbers were compiled serve these numbers alone."""
        if self.bound is not None and self.bound != oracles.numbers():
            raise RuntimeError(
                "Two runs at the same time use functions that differ in numbers which depend on "
                "the size of the batch: run one after the other."
            )

    def __len__(self) -> int:
        return sum(jitted._cache_size() for jitted in self._jitted.values())


class Store:
    """Sets by key, the least recently used first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._sets: collections.OrderedDict[Hashable, ProgramSet] = collections.OrderedDict()
        self._made: collections.Counter[str] = collections.Counter()
        self._said = False
        self._lock = threading.RLock()

    def get(self, key: Hashable, numbers: Callable[[], tuple[Any, ...]], origin: str) -> ProgramSet:
        """The set of this key; `numbers` are the user's own, `origin` says where they come from."""
        with self._lock:
            found = self._sets.get(key)
            if found is not None and found.bound not in (None, numbers()):
                key = (key, numbers())
                found = self._sets.get(key)
            if found is None:
                found = self._sets[key] = ProgramSet(key)
                self._made[origin] += 1
                self._drop(origin)
            self._sets.move_to_end(key)
            return found

    def _drop(self, origin: str) -> None:
        dropped = False
        while len(self._sets) > 1 and sum(map(len, self._sets.values())) > self.most:
            self._sets.popitem(last=False)
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

    def clear(self) -> None:
        with self._lock:
            self._sets.clear()


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
