"""Compiled programs, kept for as long as they are likely to be used again, and no longer.

Every compiled program takes memory, and some of the 65,530 memory maps that Linux gives a process:
a process that compiles for each of its solves would end in a crash. Programs of one problem are a
set, which belongs to what was traced of the problem (`_base.tracing`): an equal problem finds its
programs ready. Of many sets, those that were used last are kept.

`compiled` is `jax.jit` for a function whose first argument is, or has, the oracles of a problem.
"""

from __future__ import annotations

import collections
import functools
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

import jax

from mossp._base import crew, disk
from mossp._base.printing import warn
from mossp._base.types import PyTree

Program = Callable[..., PyTree]
Options = dict[str, Any]  # of jax.jit
Numbers = tuple[Hashable, ...]  # by their bits

# Programs in all sets together, some 6,000 memory maps and 300 MB: a problem has 12 to 25 programs,
# each of 60 maps and 3 MB.
# MOSSP_PROGRAMS in the environment allows for more, where many problems take turns.
MOST_PROGRAMS = int(os.environ.get("MOSSP_PROGRAMS", "100"))
# One set may have more: a problem that is solved by many methods, or with data of many lengths.
MOST_OF_ONE_SET = 500
# Long programs are compiled without costly optimisations, in half the time.
QUICKLY = {"compiler_options": {"xla_backend_optimization_level": 0}}
# A function with so many sets of its own is new every time, which is warned of.
MANY_SETS = 20


class HasPrograms(Protocol):
    """What programs need to know of the oracles."""

    def numbers(self) -> Numbers: ...

    @property
    def mesh(self) -> Any: ...

    @property
    def reads(self) -> bool: ...

    @property
    def failure(self) -> Exception | None: ...


class ProgramSet:
    """The name of the programs of one problem. It does not hold them: the store does.

    (It is a part of the oracles, and so of what JAX remembers of every program: one that held the
    programs could never be freed.)
    """

    def __init__(self, store: Store, origin: str, large: bool) -> None:
        self.origin, self.large = origin, large
        self.warned = False  # that they take long to compile
        self.bound: Numbers | None = None  # numbers that had to be compiled in
        self._store = weakref.ref(store)

    def program(self, function: Program, options: Options, mesh: Any = None) -> Program:
        """The compiled function; run by all devices of a mesh where there is one."""
        store = self._store()
        assert store is not None, "the store of programs is gone"
        jitted, key = store.programs_of(self), (function, mesh)
        if key not in jitted:
            whole = function if mesh is None else crew.run_by_all(function, mesh)

            # JAX shares programs between two jits of one function: this one is a new function.
            @functools.wraps(function)
            def fresh(*args: PyTree, **kwargs: PyTree) -> PyTree:
                return whole(*args, **kwargs)

            quickly: Options = QUICKLY if self.large else {}
            jitted[key] = jax.jit(fresh, **options, **quickly)
        return jitted[key]

    def check(self, oracles: HasPrograms) -> None:
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
        self._programs: collections.OrderedDict[ProgramSet, dict[Hashable, Any]]
        self._programs = collections.OrderedDict()
        self._made: collections.Counter[str] = collections.Counter()
        self._said = False
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """Compiled programs."""
        every = (jitted for programs in self._programs.values() for jitted in programs.values())
        return sum(jitted._cache_size() for jitted in every)

    def get(
        self,
        key: Hashable,
        numbers: Callable[[], Numbers],
        origin: str,
        large: bool = False,
    ) -> ProgramSet:
        """The set of this key; `numbers` are the user's own, `origin` says where they come from."""
        with self._lock:
            found = self._names.get(key)
            if found is not None and found.bound not in (None, numbers()):
                key = (key, numbers())
                found = self._names.get(key)
            if found is None:
                found = self._names[key] = ProgramSet(self, origin, large)
            self._drop(found)
            return found

    def programs_of(self, name: ProgramSet) -> dict[Hashable, Any]:
        """What was compiled for this set; nothing, if it has been dropped."""
        with self._lock:
            if name not in self._programs:
                self._programs[name] = {}
                self._made[name.origin] += 1
            self._programs.move_to_end(name)
            return self._programs[name]

    def _drop(self, name: ProgramSet) -> None:
        """Make room before this set is used."""
        dropped = False
        for other in list(self._programs):
            if len(self) > (self.most if other is not name else MOST_OF_ONE_SET):
                del self._programs[other]
                dropped = True
        made = self._made[name.origin]
        if dropped and not self._said and made >= MANY_SETS:
            self._said = True
            warn(
                f"{name.origin} was compiled {made} times, because it was a different program each "
                "time, and earlier programs are dropped now: pass what varies as data, as numbers "
                "or arrays in the function (these need no new program), or as the leaves of an "
                "equinox module or a jax.tree_util.Partial."
            )


store = Store(MOST_PROGRAMS)


class Tree:
    """How leaves make up an argument: a static part of a program, hashed once."""

    def __init__(self, treedef: jax.tree_util.PyTreeDef) -> None:
        self.treedef, self._hash = treedef, hash(treedef)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Tree) and self.treedef == other.treedef)


class Known(NamedTuple):
    """What every call of a program asks oracles, which do not change: found once."""

    leaves: list[Any]
    tree: Tree
    mesh: Any
    reads: bool
    codes: list[Any]  # of the user's functions


_known: dict[int, tuple[weakref.ref[Any], Known]] = {}


def known_of(oracles: Any) -> Known:
    """It takes longer to take oracles apart than a short program runs."""
    key = id(oracles)
    if key not in _known:
        leaves, treedef = jax.tree.flatten(oracles)
        known = Known(leaves, Tree(treedef), oracles.mesh, oracles.reads, oracles.codes)
        _known[key] = weakref.ref(oracles, lambda _: _known.pop(key, None)), known
    return _known[key][1]


def compiled(function: Any = None, waits: bool = True, **options: Any) -> Any:
    """jax.jit of a function of oracles (or of what has them as its `oracles`).

    Where rows are read while it runs, what went wrong with them is raised here. That takes waiting
    for its end; without `waits` the error is raised by the program that is called next.
    """
    if function is None:
        return functools.partial(compiled, waits=waits, **options)

    def on_leaves(tree: Tree, leaves: list[Any], *args: PyTree, **kwargs: PyTree) -> PyTree:
        return function(jax.tree.unflatten(tree.treedef, leaves), *args, **kwargs)

    on_leaves.__name__, on_leaves.__qualname__ = function.__name__, function.__qualname__
    numbers = options.get("static_argnums", ())
    numbers = (numbers,) if isinstance(numbers, int) else numbers
    apart = options | {"static_argnums": (0, *(number + 1 for number in numbers))}

    @functools.wraps(function)
    def call(first: Any, *args: PyTree, **kwargs: PyTree) -> PyTree:
        oracles = getattr(first, "oracles", first)
        programs: ProgramSet = oracles.programs
        programs.check(oracles)
        known = known_of(oracles)
        with disk.used():
            if known.mesh is None:
                leaves, tree = known.leaves, known.tree
                if first is not oracles:
                    leaves, treedef = jax.tree.flatten(first)
                    tree = Tree(treedef)
                result = programs.program(on_leaves, apart)(tree, leaves, *args, **kwargs)
            else:
                program = programs.program(function, options, known.mesh)
                first, args, kwargs = crew.placed((first, args, kwargs), known.mesh)
                result = crew.taken(program(first, *args, **kwargs))
        if known.reads:
            jax.block_until_ready(result if waits else ())
            if oracles.failure is not None:
                raise oracles.failure
        if programs.bound is None and any(code.inlined for code in known.codes):
            programs.bound = oracles.numbers()
        return result

    return call
