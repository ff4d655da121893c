"""Names of a package whose modules are imported when the name is first used (PEP 562).

A package that has all of its public names at once imports all of its modules, most of which a
program never uses. A package says in a table where those are that can wait; for a static checker it
imports them under TYPE_CHECKING, and a test compares the two.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Let nothing be looked for that could be freed: what imports make, stays.

    A full collection goes through all that JAX has made, which takes as long as half of the
    imports of `import mossp` do.

    Examples
    --------
    >>> with without_collections():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def attributes(
    package: str, names: Mapping[str, str], modules: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: names by module, and modules of its own.

    Names stand in one text, with spaces between them.

    Examples
    --------
    >>> import types
    >>> room = sys.modules["room"] = types.ModuleType("room")
    >>> room.__getattr__, room.__dir__ = attributes("room", {"fractions": "Fraction"})
    >>> from room import Fraction
    >>> Fraction(2, 4), "Fraction" in vars(room)
    (Fraction(1, 2), True)
    """
    rooms = modules.split()
    places = {name: module for module, those in names.items() for name in those.split()}

    def find(name: str) -> object:
        if name in rooms:
            return imported(f"{package}.{name}")  # which sets the attribute
        if name not in places:
            error = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(error, name=name, obj=sys.modules[package])
        value = getattr(imported(places[name]), name)
        setattr(sys.modules[package], name, value)  # found without this function from now on
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places, *rooms})

    return find, listed


def imported(module: str) -> types.ModuleType:
    with without_collections():
        return importlib.import_module(module)
