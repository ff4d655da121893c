"""Hostile arguments: taken, or refused by a ValueError or TypeError in a sentence, uncompiled.

`python -m tests.adversarial.inputs FIRST COUNT` tries cases, in an order shuffled once for all.
"""

from __future__ import annotations

import contextlib
import decimal
import fractions
import functools
import os
import random
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import mossp
from tests.adversarial import children
from tests.adversarial.sentences import fault_of
from tests.adversarial.table import Row

SECONDS = 30  # of the processor, for one case, compilation included
PATIENCE = 120.0  # until a process that prints nothing is taken for hung
ADDRESSES = 16 * children.GIGABYTE

compilations: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compilations.append(event) if "backend_compile" in event else None
)


class Odd:
    """An object that has no business here, with a plain name and no address."""

    def __repr__(self) -> str:
        return "Odd()"


def counting() -> Iterator[float]:
    yield from (1.0, 2.0, 3.0)


# Made anew for each case: a generator can be used once.
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "text": lambda: "text",
    "empty text": lambda: "",
    "markup": lambda: "[/red]\x1b[31m\0",
    "long text": lambda: "a" * 5000,
    "bytes": lambda: b"bytes",
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "-1": lambda: -1,
    "0": lambda: 0,
    "0.5": lambda: 0.5,
    "1e308": lambda: 1e308,
    "1e-320": lambda: 1e-320,
    "10**30": lambda: 10**30,
    "-10**30": lambda: -(10**30),
    "10**400": lambda: 10**400,
    "complex": lambda: 1 + 2j,
    "Decimal": lambda: decimal.Decimal("0.5"),
    "Fraction": lambda: fractions.Fraction(1, 2),
    "np.float32 nan": lambda: np.float32("nan"),
    "np.int8": lambda: np.int8(3),
    "np.bool": lambda: np.True_,
    "np.datetime64": lambda: np.datetime64("2024-01-31"),
    "np.str_": lambda: np.str_("text"),
    "empty list": list,
    "empty tuple": lambda: (),
    "empty dict": dict,
    "list of text": lambda: ["a", "b"],
    "ragged list": lambda: [[1.0], [1.0, 2.0]],
    "list of None": lambda: [None, None, None],
    "dict": lambda: {"a": np.ones(3)},
    "dict with numbers as names": lambda: {1: np.ones(3), 2: np.zeros(2)},
    "set": lambda: {1, 2},
    "range": lambda: range(3),
    "generator": counting,
    "function": lambda: len,
    "class": lambda: dict,
    "Odd": Odd,
    "empty array": lambda: np.zeros(0),
    "array without rows": lambda: np.zeros((0, 3)),
    "array of objects": lambda: np.array([Odd(), None, 1.0], object),
    "array of text": lambda: np.array(["a", "b", "c"]),
    "array with nan": lambda: np.array([1.0, np.nan, 2.0]),
    "array with inf": lambda: np.array([1.0, np.inf, 2.0]),
    "array of 1e308": lambda: np.full(3, 1e308),
    "complex array": lambda: np.ones(3, complex),
    "booleans": lambda: np.array([True, False, True]),
    "dates": lambda: np.zeros(3, "datetime64[s]"),
    "records": lambda: np.zeros(3, [("a", float)]),
    "masked": lambda: np.ma.masked_array([1.0, 2.0, 3.0], [True, False, False]),
    "matrix": lambda: np.ones((3, 3)),
    "cube": lambda: np.ones((2, 2, 2)),
    "wrong length": lambda: np.ones(7),
    "sparse": lambda: scipy.sparse.eye(3).tocsr(),
    "zero-dimensional": lambda: np.array(1.0),
    "a key": lambda: jax.random.key(0),
    "a shape": lambda: jax.ShapeDtypeStruct((3,), np.float32),
    "a Problem": lambda: problem(),
    "a regulariser": lambda: mossp.L1(0.1),
}
# What no argument that is a number may be.
NEVER_NUMBERS = ("nan", "text", "complex", "Odd", "class", "np.float32 nan", "array of objects")

DATA = (np.arange(60.0).reshape(20, 3) / 60 - 0.5, np.linspace(-1, 1, 20))
BASE = {"method": "mossp-r", "steps": 20, "trace": 2, "seed": 0}


def problem() -> Any:
    return mossp.Problem(mossp.losses.squared, DATA, mossp.L1(0.1))


def solved(**settings: Any) -> Any:
    given = {"problem": problem(), "x0": np.zeros(3), **BASE, **settings}
    return mossp.solve(given.pop("problem"), given.pop("x0"), **given)


def stated(**parts: Any) -> Any:
    """A problem that is also solved: some of its parts are looked at there."""
    given = {"loss": mossp.losses.squared, "data": DATA, "regularizer": mossp.L1(0.1), **parts}
    return mossp.solve(mossp.Problem(**given), np.zeros(3), **BASE)


def penalised(make: Any, name: str, value: Any) -> Any:
    reg = make(**{name: value})
    return mossp.solve(mossp.Problem(mossp.losses.squared, DATA, reg), np.zeros(3), **BASE)


class Case(NamedTuple):
    name: str
    call: Callable[[Any], Any]
    value: Callable[[], Any]
    refused: bool  # whether nothing but an error will do


NUMBERS = (
    "steps",
    "gradients",
    "seconds",
    "batch_size",
    "replicas",
    "seed",
    "tol",
    "trace",
    "starts",
)
OTHERS = (
    "problem", "x0", "method", "schedule", "output", "dtype", "callback", "progress",
    "checkpoint", "resume", "polish",
)  # fmt: skip
REGULARIZERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "L1": (mossp.L1, ("lam",)),
    "L1MinusL2": (mossp.L1MinusL2, ("lam",)),
    "Ridge": (mossp.Ridge, ("lam",)),
    "ElasticNet": (functools.partial(mossp.ElasticNet, lam=0.1), ("lam", "l1_ratio")),
    "PlusRidge": (functools.partial(mossp.PlusRidge, reg=mossp.L1(0.1), l2=0.1), ("reg", "l2")),
    "CappedL1": (functools.partial(mossp.CappedL1, lam=0.1), ("lam", "theta")),
    "MCP": (functools.partial(mossp.MCP, lam=0.1), ("lam", "gamma")),
    "SCAD": (functools.partial(mossp.SCAD, lam=0.1), ("lam", "a")),
    "LogSum": (functools.partial(mossp.LogSum, lam=0.1), ("lam", "theta")),
    "TransformedL1": (functools.partial(mossp.TransformedL1, lam=0.1), ("lam", "a")),
    "TruncatedL1": (functools.partial(mossp.TruncatedL1, lam=0.1, k=1), ("lam", "k")),
    "TruncatedL1MinusL2": (
        functools.partial(mossp.TruncatedL1MinusL2, lam=0.1, k=1), ("lam", "k"),
    ),
    "Group": (
        functools.partial(mossp.Group, reg=mossp.L1(0.1), groups=[0, 0, 1]), ("reg", "groups"),
    ),
    "Nonnegative": (mossp.Nonnegative, ("reg",)),
    "Box": (
        functools.partial(mossp.Box, reg=mossp.L1(0.1), lower=-1.0, upper=1.0),
        ("reg", "lower", "upper"),
    ),
    "Ball": (functools.partial(mossp.Ball, reg=mossp.L1(0.1), radius=1.0), ("reg", "radius")),
    "Blocks": (mossp.Blocks, ("blocks",)),
    "Weighted": (
        functools.partial(mossp.Weighted, reg=mossp.L1(0.1), weights=np.ones(3)),
        ("reg", "weights"),
    ),
}  # fmt: skip
SCALARS = ("lam", "theta", "gamma", "a", "k", "radius", "lower", "upper")


def inside_jax(transform: str) -> Any:
    """`solve` inside of a transformation, where there are no values."""
    x0 = np.zeros(3)  # of NumPy: an array of zeros in JAX is a program

    def inner(x: Any) -> Any:
        return jnp.sum(mossp.solve(problem(), x, **BASE).x)

    match transform:
        case "jit":
            return jax.jit(inner)(x0)
        case "grad":
            return jax.grad(inner)(x0)
        case _:
            return jax.vmap(inner)(x0[None])


@functools.cache
def cases() -> list[Case]:
    found: list[Case] = []

    def add(name: str, call: Callable[[Any], Any], value: str, number: bool) -> None:
        never = number and value in NEVER_NUMBERS
        found.append(Case(f"{name} = {value}", call, VALUES[value], never))

    for value in VALUES:
        for name in (*NUMBERS, *OTHERS):
            if (name, value) == ("callback", "class"):
                continue  # a callback's own error, here of dict(progress), is its author's
            # Compilation is not stopped by a budget of its own: steps without end need seconds.
            more = {"seconds": 1.0} if name in ("steps", "gradients") else {}
            call = lambda v, name=name, more=more: solved(**{**more, name: v})  # noqa: E731
            add(f"solve: {name}", call, value, name in NUMBERS)
        for name in ("loss", "data", "regularizer", "equality", "inequality"):
            add(f"Problem: {name}", lambda v, name=name: stated(**{name: v}), value, False)
        for kind, (make, parameters) in REGULARIZERS.items():
            for name in parameters:
                call = lambda v, make=make, name=name: penalised(make, name, v)  # noqa: E731
                add(f"{kind}: {name}", call, value, name in SCALARS)
        for name in ("Sampler", "Stream"):
            call = lambda v, name=name: stated(data=getattr(mossp, name)(v))  # noqa: E731
            add(name, call, value, False)
        add("stationarity: x", lambda v: mossp.stationarity(problem(), v), value, False)
        add("restore: x", lambda v: mossp.restore(problem(), v), value, False)
        add("loss that returns", lambda v: stated(loss=lambda x, batch: v), value, False)
        add("constraint that returns", lambda v: stated(equality=lambda x: v), value, False)
    for transform in ("jit", "grad", "vmap"):
        found.append(Case(f"solve inside {transform}", inside_jax, lambda t=transform: t, True))
    random.Random(0).shuffle(found)
    return found


@functools.cache
def warm() -> None:
    """What a process compiles once, for any problem, is no case's doing."""
    stated = problem()  # in single precision, as a user has it
    with jax.enable_x64(True):
        stated.oracles(np.zeros(3))


def attack_one(number: int) -> tuple[str, str | None]:
    """(what was tried, what is wrong with how it was taken)."""
    name, call, make, never = cases()[number]
    value = make()
    warm()
    compilations.clear()
    try:
        with warnings.catch_warnings(), alarm(SECONDS), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            call(value)
    except Exception as error:
        fault = fault_of(error, (ValueError, TypeError))
        # Whether a loss is a mean is seen from its values, which takes a program.
        looked_at = name.startswith("loss that returns")
        if not fault and compilations and not looked_at:
            fault = f"refused after {len(compilations)} compilations: {str(error)[:80]!r}"
        return name, fault
    return name, "it was accepted" if never else None


@contextlib.contextmanager
def alarm(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"no answer within {seconds} s of the processor")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def attack(share: int) -> list[Row]:
    row = Row(
        "wrong arguments are a ValueError or TypeError in a sentence, before compilation",
        f"{len(cases()):,} pairs of an argument and a hostile value",
    )
    count = min(share, len(cases()))
    for found in children.supervise("inputs", (), count, PATIENCE):
        row.add(f"{found['case']}: {found['fault']}" if found["fault"] else None)
    return [row]


if __name__ == "__main__":
    children.limit_memory(ADDRESSES)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        first, count = int(sys.argv[1]), int(sys.argv[2])
        for number in range(first, first + count):
            children.report(*attack_one(number))
