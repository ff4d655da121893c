"""What tells one problem from another: all that a function uses, and nothing that it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from typing import ClassVar

import numpy as np
import pytest

from mossp.engine import fingerprint as module
from mossp.engine.fingerprint import fingerprint as fingerprint_of


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


def test_a_fingerprint_takes_no_time_for_what_it_met_before(monkeypatch):
    nested = [np.zeros(2**20)]
    for _ in range(30):
        nested = [nested, nested]  # 2^30 paths lead to the array
    seen, real = [], module.taken_apart

    def counted(thing):
        seen.append(type(thing))
        assert len(seen) < 100
        return real(thing)

    monkeypatch.setattr(module, "taken_apart", counted)
    fingerprint(nested)
    assert seen.count(np.ndarray) == 1 and seen.count(list) == 31


def test_what_a_users_own_module_holds_is_part_of_the_problem():
    """`import settings`, and `settings.radius` in a function; a module within a package, too."""
    settings, package = types.ModuleType("settings"), types.ModuleType("package")
    settings.radius, settings.unused = 1.0, 1.0
    package.settings, settings.package = settings, package  # which lead back to each other
    space = user_module(settings=settings, package=package)
    exec("def near(x): return (lambda v: v @ v - settings.radius)(x)", space)
    exec("def far(x): return x @ x - package.settings.radius", space)
    before = fingerprint(space["near"]), fingerprint(space["far"])
    settings.unused = 2.0
    assert before == (fingerprint(space["near"]), fingerprint(space["far"]))
    settings.radius = 2.0
    assert before[0] != fingerprint(space["near"]) and before[1] != fingerprint(space["far"])


def test_tables_of_classes_and_what_pickle_refuses_are_part_of_the_problem():
    class Table:
        rows: ClassVar = {"a": 1.0}

    class Refuses:
        def __init__(self):
            self.radius = 1.0

        def __reduce__(self):
            raise TypeError("not pickled")

    refuses, view = Refuses(), {"a": 1.0}
    things = (Table, refuses, types.MappingProxyType(view))
    before = [fingerprint(thing) for thing in things]
    Table.rows["a"] = refuses.radius = view["a"] = 2.0
    assert not set(before) & {fingerprint(thing) for thing in things}
