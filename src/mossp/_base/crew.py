"""Several devices, of one process or of many, that run one program on rows of their own.

Every program is run by all of them at the same time (`jax.shard_map` over the axis ROWS of a mesh):
what is divided between them lies in `Divided`, with one entry of a leading axis for each device;
all else is the same everywhere. So is every decision: what depends on a clock, on a signal or on a
user's callback is agreed on, or processes would wait for each other for ever.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mossp._base.types import PyTree

ROWS = "rows"


class Divided(eqx.Module):
    """Arrays with a leading axis of devices; inside of a program each sees its own entry."""

    tree: PyTree

    def mine(self) -> PyTree:
        """What this device has, in a program that is run by all."""
        return jax.tree.map(lambda a: a[0], self.tree)


def is_divided(node: object) -> bool:
    return isinstance(node, Divided)


def mesh_of(devices: Any = None) -> Mesh:
    """All devices of all processes, or those of a mesh, in one row."""
    every = jax.devices() if devices is None else np.asarray(devices.devices).ravel()
    # The devices of a process lie side by side, so that its rows do.
    ordered = sorted(every, key=lambda d: (d.process_index, d.id))
    return Mesh(np.array(ordered), (ROWS,), axis_types=(AxisType.Auto,))


def own_devices(mesh: Mesh) -> list[Any]:
    me = jax.process_index()
    return [d for d in mesh.devices.flat if d.process_index == me]


def processes(mesh: Mesh) -> int:
    return len({d.process_index for d in mesh.devices.flat})


def divided(parts: list[PyTree], mesh: Mesh) -> Divided:
    """What each of this process's devices has, as one entry of what all have together."""
    devices, total = own_devices(mesh), mesh.devices.size

    def join(*leaves: Any) -> jax.Array:
        placed = [
            jax.device_put(np.asarray(leaf)[None], device)
            for leaf, device in zip(leaves, devices, strict=True)
        ]
        sharding = NamedSharding(mesh, PartitionSpec(ROWS))
        shape = (total, *placed[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, placed)

    return Divided(jax.tree.map(join, *parts))


def run_by_all(function: Callable[..., PyTree], mesh: Mesh) -> Callable[..., PyTree]:
    """The function as a program of all devices; to be compiled."""

    def program(*args: PyTree, **kwargs: PyTree) -> PyTree:
        # Inside of jit what is no array is static.
        dynamic, static = eqx.partition((args, kwargs), eqx.is_array)

        def own(dynamic: PyTree) -> PyTree:
            args, kwargs = eqx.combine(dynamic, static)
            return function(*args, **kwargs)

        specs = jax.tree.map(
            lambda leaf: PartitionSpec(ROWS) if is_divided(leaf) else PartitionSpec(),
            dynamic,
            is_leaf=is_divided,
        )
        # Derivatives are taken inside of means, of one device's rows: nothing is to be summed up
        # by JAX's own rule for arrays that are the same everywhere.
        return jax.shard_map(
            own, mesh=mesh, in_specs=(specs,), out_specs=PartitionSpec(), check_vma=False
        )(dynamic)

    return program


def placed(tree: PyTree, mesh: Mesh) -> PyTree:
    """Arrays that are the same everywhere, on every device of the mesh."""
    sharding, devices = NamedSharding(mesh, PartitionSpec()), own_devices(mesh)

    def place(leaf: Any) -> Any:
        if is_divided(leaf) or not isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
            return leaf
        copies = [jax.device_put(leaf, device) for device in devices]
        return jax.make_array_from_single_device_arrays(np.shape(leaf), sharding, copies)

    return jax.tree.map(place, tree, is_leaf=is_divided)


def taken(tree: PyTree) -> PyTree:
    """What a program returned, the same everywhere, as arrays of this process's first device."""
    return jax.tree.map(lambda a: a.addressable_data(0) if isinstance(a, jax.Array) else a, tree)


# What processes tell each other -----------------------------------------------------------------


def summed(arrays: PyTree, mesh: Mesh) -> PyTree:
    """The sums over processes of arrays of the host, in NumPy; all processes call it."""
    if processes(mesh) == 1:
        return jax.tree.map(np.asarray, arrays)
    count = len(own_devices(mesh))
    with jax.enable_x64(True):
        rest = jax.tree.map(lambda a: np.zeros_like(np.asarray(a)), arrays)
        every = divided([arrays, *[rest] * (count - 1)], mesh)
        return jax.tree.map(np.asarray, taken(_total(mesh)(every)))


@functools.lru_cache(maxsize=8)
def _total(mesh: Mesh) -> Callable[[Divided], PyTree]:
    def total(every: Divided) -> PyTree:
        return jax.tree.map(lambda a: jax.lax.psum(a, ROWS), every.mine())

    return jax.jit(run_by_all(total, mesh))


def listed(row: Any, mesh: Mesh) -> np.ndarray:
    """One row of numbers from each process, in their order."""
    values = np.asarray(row, np.float64)
    table = np.zeros((jax.process_count(), *values.shape))
    table[jax.process_index()] = values
    return np.asarray(summed(table, mesh))


working: contextvars.ContextVar[Mesh | None] = contextvars.ContextVar("working", default=None)


LOST = (
    "mossp: another process of this run has ended or cannot be reached, and no result can be had "
    "without it. Start the same command again, with any number of processes: with checkpoint=... "
    "the run goes on from the last one that was saved."
)
# What errors of XLA say when the other end of a connection is gone.
SIGNS = ("Gloo", "NCCL", "MPI", "UNAVAILABLE", "Connection closed", "Connection reset", "heartbeat")


class ProcessLost(RuntimeError):
    """Another process of a run is gone; the message says how to go on."""


@contextlib.contextmanager
def at_work(mesh: Mesh | None) -> Iterator[None]:
    """While a run of several processes goes on: decisions are agreed on, and a loss is said."""
    several = mesh is not None and processes(mesh) > 1
    token = working.set(mesh if several else None)
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if several and any(sign in str(error) for sign in SIGNS):
            raise ProcessLost(LOST) from error
        raise
    finally:
        working.reset(token)


def all_same(value: float) -> bool:
    """Whether all processes have the same value."""
    mesh = working.get()
    if mesh is None:
        return True
    every = listed([value], mesh)
    return bool((every == every[0]).all())


def of_first(value: float) -> float:
    """The first process's value, such as what its clock shows."""
    mesh = working.get()
    if mesh is None:
        return value
    return float(summed(np.float64(value if jax.process_index() == 0 else 0.0), mesh))


def of_any(flag: bool) -> bool:
    """Whether it is true in any process."""
    mesh = working.get()
    return bool(flag) if mesh is None else bool(summed(np.float64(bool(flag)), mesh) > 0)


def is_first() -> bool:
    """Whether this process is the one that prints and writes files."""
    return working.get() is None or jax.process_index() == 0
