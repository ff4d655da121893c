"""The functions that a user wrote, at the door: traced as they are now, shapes checked.

What can be found wrong here is found before anything is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mossp._base import keys
from mossp._base.code import Code, Function
from mossp._base.forms import described, digest
from mossp._base.module import Module
from mossp._base.printing import short, warn
from mossp._base.programs import ProgramSet
from mossp._base.structure import with_dtype
from mossp._base.surroundings import refuse_tracers
from mossp._base.tracing import Probed, probe, trace
from mossp._base.types import AnyArray, AnyNumber, AnyVector, DType, PyTree
from mossp.data import PROBED_SIZES
from mossp.regularizers import Regularizer

# A function of the problem at the door: what was traced of it, or a module of our own as it is.
Part: TypeAlias = Probed | Callable[..., PyTree]
AnyPart: TypeAlias = Any  # the same, or the function that programs take

# Equations: a vectorised loss has some ten, a network a hundred. From the first number on a program
# takes a minute to compile, beyond the second it would take hours and all of the memory.
LARGE_PROGRAM, LARGEST_PROGRAM = 1_000, 20_000
TRACER = re.compile(r"\b\w*Tracer\b")  # JAX's classes of arrays without values
LONGEST_REASON = 300  # characters of an error that is quoted


def is_own(thing: object) -> bool:
    """Whether a module is made of this library's parts alone, whose code does not change."""
    if isinstance(thing, eqx.Module):
        library = type(thing).__module__.split(".")[0] == __name__.split(".")[0]
        return library and all(map(is_own, vars(thing).values()))
    if isinstance(thing, dict):
        return all(map(is_own, thing.values()))
    if isinstance(thing, (tuple, list)):
        return all(map(is_own, thing))
    return not callable(thing)


def probe_function(
    what: str,
    function: Callable[..., PyTree],
    arguments: list[tuple[PyTree, ...]],
    dtype: DType,
    about: str,
) -> Part:
    """The function as it is now, traced at these arguments; a module of our own stays as it is."""
    with errors_named(what, about):
        if isinstance(function, eqx.Module) and is_own(function):
            return with_dtype(function, dtype)
        probed = probe(function, arguments, lambda arrays: with_dtype(arrays, dtype))
    refuse_tracers(probed.numbers)
    return probed


def form_of_part(part: Part | None) -> Hashable:
    return part.form if isinstance(part, Probed) else jax.tree.structure(part)


def function_of(part: AnyPart, programs: ProgramSet, name: str) -> AnyPart:
    if not isinstance(part, Probed):
        return part
    # Numbers keep the precision that they have in the user's function.
    numbers = tuple(jnp.asarray(number) for number in part.numbers)
    return Function(part.arrays, numbers, Code(part, programs, name))


def numbers_of(probed: list[Probed]) -> tuple[Hashable, ...]:
    arrays = [a for p in probed for a in (*p.numbers, *jax.tree.leaves(p.arrays))]
    return tuple(digest(a) for a in arrays)


def probe_sampler(function: Callable[..., PyTree], dtype: DType) -> Part:
    key = jax.eval_shape(lambda: keys.jax_keys(keys.generator(0, keys.Purpose.CHECK)))
    sizes = [(key, size) for size in PROBED_SIZES]
    probed = probe_function("The sampler", function, sizes, dtype, "")
    if not isinstance(probed, Probed):
        with errors_named("The sampler", ""):
            jax.eval_shape(lambda key: probed(key, PROBED_SIZES[0]), key)
    return probed


def probe_loss(
    loss: Callable[..., PyTree],
    x0: PyTree,
    x: PyTree,
    batches: list[tuple[PyTree, ...]],
    dtype: DType,
    what: str = "The loss",
) -> Part:
    about = describe(x0, batches[0])
    probed = probe_function(what, loss, [(x, *batch) for batch in batches], dtype, about)
    value = returned(what, probed, about, x, *batches[0])
    if getattr(value, "shape", None) != () or not is_real(value):
        got = type(value).__name__
        if hasattr(value, "shape"):
            got = f"an array of shape {value.shape} and type {value.dtype}"
        raise ValueError(
            f"{what} must return one real number, the mean over the rows of the batch, but it "
            f"returns {got}: use jnp.mean(...)."
        )
    return probed


def probe_constraint(
    what: str, function: Callable[..., PyTree], x: PyTree, batches: list[tuple[PyTree, ...]],
    dtype: DType,
) -> Part:  # fmt: skip
    """A constraint at x, and at batches of two sizes where it looks at rows."""
    about = " at x0" + (describe_batch(batches[0][0]) if batches[0] else "")
    probed = probe_function(what, function, [(x, *batch) for batch in batches], dtype, about)
    shapes = returned(what, probed, about, x, *batches[0])
    values = jax.tree.leaves(shapes)
    if not sum(leaf.size for leaf in values):
        raise TypeError(f"{what} returns nothing: is a `return` missing? It must return c(x).")
    for leaf in values:
        if not is_real(leaf):
            raise TypeError(
                f"{what} must return real numbers c(x), but its type is {leaf.dtype}; write "
                "`x @ x - 1.0`, not `x @ x == 1.0`."
            )
    if len(batches) > 1:
        check_no_row_axis(what, probed, shapes, x, batches)
    return probed


def check_no_row_axis(
    what: str, probed: Part, shapes: PyTree, x: PyTree, batches: list[tuple[PyTree, ...]]
) -> None:
    """Raise ValueError where a constraint returns one value per row instead of their mean."""
    if isinstance(probed, Probed):
        other = probed.traces[1]
        again = jax.tree.unflatten(other.out, other.closed.out_avals)
    else:
        again = shapes_of_own(probed, (x, *batches[1]))
    first, second = ([a.shape for a in jax.tree.leaves(tree)] for tree in (shapes, again))
    if first != second:
        raise ValueError(
            f"{what} must return means over the rows of the batch, but it returns shape {first[0]} "
            f"for one number of rows and {second[0]} for another: use jnp.mean(..., axis=0)."
        )


def is_real(array: AnyArray) -> bool:
    return isinstance(array.dtype, np.dtype) and array.dtype.kind == "f"  # no random keys


def returned(what: str, probed: Part, about: str, *args: PyTree) -> PyTree:
    """Shapes of what a function returns."""
    if isinstance(probed, Probed):
        return probed.out
    with errors_named(what, about):
        return shapes_of_own(probed, args)


def shapes_of_own(module: Callable[..., PyTree], args: tuple[PyTree, ...]) -> PyTree:
    """Shapes of what a module of this library returns; its code does not change: looked up."""
    leaves, treedef = jax.tree.flatten((module, args))
    kinds = tuple((np.shape(leaf), np.dtype(leaf.dtype)) for leaf in leaves)
    out, shapes = _shapes_of_own(treedef, kinds)
    return jax.tree.unflatten(out, shapes)


@functools.lru_cache(maxsize=1024)
def _shapes_of_own(
    treedef: jax.tree_util.PyTreeDef, kinds: tuple[tuple[tuple[int, ...], np.dtype], ...]
) -> tuple[jax.tree_util.PyTreeDef, tuple[PyTree, ...]]:
    leaves = [jax.ShapeDtypeStruct(*kind) for kind in kinds]

    def call(*leaves: AnyArray) -> PyTree:
        module, args = jax.tree.unflatten(treedef, leaves)
        return module(*args)

    shapes, out = jax.tree.flatten(jax.eval_shape(call, *leaves))
    return out, tuple(shapes)


class Maps(Module):
    """h - g and both proximal maps of a regulariser, as one function."""

    reg: Regularizer

    def __call__(self, x: AnyVector, mu: AnyNumber) -> tuple[AnyNumber, AnyVector, AnyVector]:
        return self.reg(x), self.reg.prox_h(x, mu), self.reg.prox_g(x, mu)


def form_of_regularizer(reg: Regularizer, n: int, dtype: DType) -> Hashable:
    """What tells programs apart that use it: nothing more than JAX sees, unless a user wrote it."""
    if is_own(reg):
        return None
    arrays, rest = eqx.partition(reg, eqx.is_array)
    x, mu = jax.ShapeDtypeStruct((n,), dtype), jax.ShapeDtypeStruct((), dtype)

    def all_of_it(arrays: PyTree, x: AnyVector, mu: AnyNumber) -> tuple[AnyArray, ...]:
        r = eqx.combine(arrays, rest)
        return r.h(x), r.g(x), r.prox_h(x, mu), r.prox_g(x, mu), r.subgradient_g(x)

    traced = trace(all_of_it, arrays, x, mu)
    return (traced.form, tuple(map(described, traced.numbers)))


def check_regularizer_fits(reg: Regularizer, n: int, dtype: DType) -> None:
    x, mu = jax.ShapeDtypeStruct((n,), dtype), jax.ShapeDtypeStruct((), dtype)
    maps = Maps(reg)
    with errors_named("The regulariser", " at x0"):
        if is_own(reg):
            _, *vectors = shapes_of_own(maps, (x, mu))
        else:  # a fresh function: JAX remembers what it has seen of an old one
            _, *vectors = jax.eval_shape(lambda x, mu: maps(x, mu), x, mu)
    for shape in (getattr(value, "shape", None) for value in vectors):
        if shape != x.shape:
            raise ValueError(
                f"The regulariser does not fit x, which has {n} entries: a proximal map of "
                f"{type(reg).__name__} returns shape {shape}."
            )


def check_size(probed: list[Probed]) -> bool:
    """Whether the functions are long programs; ValueError where they are far too long."""
    size = sum(p.size for p in probed)
    if size > LARGEST_PROGRAM:
        limit = f"more than the {LARGEST_PROGRAM:,} that can be compiled"
        raise ValueError(said_of_long(probed, limit))
    return size > LARGE_PROGRAM


def warn_of_long(probed: list[Probed], programs: ProgramSet) -> None:
    """Once: a run traces its functions again at its end, and an equal problem compiles nothing."""
    if programs.large and not programs.warned:
        programs.warned = True
        warn(said_of_long(probed, "which takes long to compile"))


def said_of_long(probed: list[Probed], how: str) -> str:
    longest = max(probed, key=lambda p: p.size)
    return (
        f"{longest.origin} is a program of {longest.size:,} operations, {how}: replace loops in "
        "Python by operations on arrays (a sum over an axis, a product of matrices), by jax.vmap "
        "or by jax.lax.map, which are compiled once and not for each round."
    )


def shapes(tree: PyTree, dtype: DType) -> PyTree:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a), dtype), tree)


def describe(x0: PyTree, batch: PyTree) -> str:
    return f" at x0 of shape {listed(x0)}" + describe_batch(batch)


def describe_batch(batch: PyTree) -> str:
    if not jax.tree.leaves(batch):
        return " alone (the problem has no data)"
    return f" on a batch of shapes {listed(batch)}"


def listed(tree: PyTree) -> str:
    return ", ".join(str(tuple(np.shape(a))) for a in jax.tree.leaves(tree))


@contextlib.contextmanager
def errors_named(what: str, about: str) -> Iterator[None]:
    """What goes wrong while a user's function is traced, as an error that names it."""
    try:
        yield
    except jax.errors.JAXTypeError as error:
        raise TypeError(
            f"{what} cannot be traced by JAX: write it with jax.numpy, without NumPy functions or "
            "`if` on values of x."
        ) from error
    except Exception as error:
        reason = TRACER.sub("Array", (str(error).strip().splitlines() or [type(error).__name__])[0])
        message = f"{what} cannot be evaluated{about}: {short(reason, LONGEST_REASON)}"
        raise ValueError(message if message.endswith(".") else f"{message}.") from error
