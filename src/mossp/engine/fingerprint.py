"""What a value is made of, as a digest: the same in every process, never an address.

Functions are their code, what they close over, and the globals that they use; objects are what
pickle would make them from. Of a user's own module those of its names count that a function
mentions. Whatever belongs to Python or to an installed package counts by name; of a function in
such a package its code counts, and plain numbers, texts and arrays among its globals.
"""

from __future__ import annotations

import collections
import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp.data import Source

DEEPEST = 100  # levels of containers, objects and functions within each other
PACKAGES = {"mossp", "jax", "jaxlib", "numpy", "scipy", "equinox", *sys.stdlib_module_names}
FOLDERS = {"site-packages", "dist-packages"}
NUMBERS = (bool, int, float, complex, str, bytes)
ARRAYS = (np.ndarray, np.generic, jax.Array)
CONTAINERS = (list, tuple, dict, set, frozenset)
CLASS_NOISE = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"}


def fingerprint(things: Iterable[Any]) -> str:
    """The digest of all of them, in their order.

    Examples
    --------
    >>> def shifted(by):
    ...     return lambda x: x + by
    >>> fingerprint([shifted(1.0)]) == fingerprint([shifted(1.0)])
    True
    >>> fingerprint([shifted(1.0)]) == fingerprint([shifted(2.0)])
    False
    """
    return _Digests().of(tuple(things)).hex()


class _Digests:
    """Digests of values, each made once: what was met before, or holds itself, costs nothing."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, bytes]] = {}  # by identity; the value is kept alive
        self.around: list[int] = []  # what is being made, from the outside in

    def of(self, thing: Any) -> bytes:
        known = self.made.get(id(thing))
        if known is not None:
            return known[1]
        digest = hashlib.sha256(name_of(type(thing)).encode())
        if id(thing) in self.around:  # it holds itself, so many levels up
            digest.update(f" {len(self.around) - self.around.index(id(thing))}".encode())
            return digest.digest()
        if len(self.around) == DEEPEST:
            return digest.digest()
        self.around.append(id(thing))
        content, parts = taken_apart(thing)
        digest.update(content)
        inner = [self.of(part) for part in parts]
        if isinstance(thing, (set, frozenset)):  # which have no order
            inner.sort()
        for part in inner:
            digest.update(part)
        self.around.pop()
        self.made[id(thing)] = thing, digest.digest()
        return digest.digest()


def taken_apart(thing: Any) -> tuple[bytes, list[Any]]:
    """(what is there at once, the values that it holds)."""
    if isinstance(thing, ARRAYS):
        return array_content(thing)
    if thing is None or isinstance(thing, NUMBERS):
        return repr(thing).encode("utf-8", "surrogatepass"), []
    if isinstance(thing, types.CodeType):
        return thing.co_code, [thing.co_names, thing.co_consts]
    if isinstance(thing, types.FunctionType):
        cells = [content(cell) for cell in thing.__closure__ or ()]
        used = globals_of(thing)
        return b"", [thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells, used]
    if isinstance(thing, types.MethodType):
        return b"", [thing.__func__, thing.__self__]
    if isinstance(thing, types.BuiltinFunctionType):  # such as the append of a list
        return name_of(thing).encode(), [thing.__self__]
    if isinstance(thing, types.ModuleType):
        return thing.__name__.encode(), []
    if isinstance(thing, Source) and thing.sequential:  # what it will hold is not known
        return b"", []
    if isinstance(thing, Source) and thing.identity is not None:
        return repr(thing.identity).encode(), []
    if isinstance(thing, type):
        return name_of(thing).encode(), [] if is_installed(thing) else members(thing)
    if isinstance(thing, (dict, types.MappingProxyType)):
        return b"", [part for item in thing.items() for part in item]
    if isinstance(thing, (list, tuple, set, frozenset, collections.deque)):
        return b"", list(thing)
    if hasattr(thing, "__wrapped__"):  # by jax.jit and the like, with what they know besides
        return b"", [thing.__wrapped__, vars(thing) if hasattr(thing, "__dict__") else None]
    return b"", pickled_parts(thing)


def array_content(array: Any) -> tuple[bytes, list[Any]]:
    if not isinstance(array.dtype, np.dtype):  # keys of jax.random
        array = jax.random.key_data(array)
    a = np.asarray(array)
    about = f" {a.dtype.str} {a.shape} ".encode()
    if a.dtype.hasobject:
        return about, a.ravel().tolist()
    return about + hashlib.sha256(np.ascontiguousarray(a).data).digest() if a.size else about, []


def content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def globals_of(function: types.FunctionType) -> list[tuple[str, Any]]:
    """The globals that a function uses, by name; those that it does not have are built in."""
    space, names = function.__globals__, sorted(global_names(function.__code__))
    used = [(name, space[name]) for name in names if name in space]
    if is_installed(function):  # whose functions and objects are known by name
        return [(name, value) for name, value in used if isinstance(value, (*NUMBERS, *ARRAYS))]
    mentioned, seen = sorted(all_names(function.__code__)), set()
    for _, value in used:  # which grows: modules of a package, what they hold
        own = isinstance(value, types.ModuleType) and not _is_package(value.__name__)
        if own and value.__name__ not in seen:
            seen.add(value.__name__)
            used += [(name, vars(value)[name]) for name in mentioned if name in vars(value)]
    return used


def all_names(code: types.CodeType) -> set[str]:
    """Names of globals and of attributes in the code, and in functions within it."""
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(all_names, inner))


@functools.lru_cache(maxsize=1024)
def global_names(code: types.CodeType) -> frozenset[str]:
    """Names that the code, or a function within it, looks up outside of itself."""
    names = {
        i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(names).union(*map(global_names, inner))


def members(kind: type) -> list[Any]:
    """A user's class: what it inherits, and its functions and numbers by name."""
    found = []
    for name in sorted(set(vars(kind)) - CLASS_NOISE):
        value = getattr(kind, name, None)
        if isinstance(value, property):
            value = [value.fget, value.fset, value.fdel]
        plain = isinstance(value, CONTAINERS) and not name.startswith("__")
        if plain or isinstance(value, (types.FunctionType, types.MethodType, *NUMBERS, *ARRAYS)):
            found.append((name, value))
    return [*kind.__bases__, *found]


def pickled_parts(thing: Any) -> list[Any]:
    """What pickle would make it from; its class and its attributes, where pickle refuses."""
    try:
        made = thing.__reduce_ex__(4)
    except Exception:  # locks, open files, and what else lives in this process only
        return [type(thing), getattr(thing, "__dict__", None)]
    if isinstance(made, str):
        return [made]
    make, given, state, *items = (*made, None, None, None)[:5]
    return [make, given, state, *(list(i) for i in items if i is not None)]


def name_of(thing: Any) -> str:
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return f"{getattr(thing, '__module__', None)}.{name}"


def is_installed(thing: Any) -> bool:
    """Whether a function or a class is of Python or of an installed package."""
    return _is_package(getattr(thing, "__module__", None) or "__main__")


@functools.lru_cache(maxsize=1024)
def _is_package(module: str) -> bool:
    if module.partition(".")[0] in PACKAGES:
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not FOLDERS.isdisjoint(Path(file).parts)
