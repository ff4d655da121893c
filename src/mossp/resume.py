"""A run in a file: what is saved, and whether a saved run is this run."""

from __future__ import annotations

import functools
import hashlib
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp import checkpoint
from mossp.checkpoint import CheckpointError
from mossp.data import Stream
from mossp.watch import Watch

KIND = "mossp checkpoint"
DEEPEST = 20  # how far a fingerprint follows what a function or an object holds


def fingerprint(things: list[Any], settings: Any, start: Any) -> str:
    """Of everything that decides the iterates: functions and what they hold, settings, start."""
    digest = hashlib.sha256()
    for thing in [*things, settings, start]:
        feed(digest, thing)
    return digest.hexdigest()


def feed(digest: Any, thing: Any, depth: int = 0) -> None:
    """Add what a value is made of to the digest: the same in every process, never an address."""
    kind = type(thing)
    digest.update(f"{depth} {kind.__module__}.{kind.__qualname__} ".encode())
    parts: list[Any] = []
    if isinstance(thing, (np.ndarray, np.generic, jax.Array)):
        array = np.asarray(thing)
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    elif thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
        digest.update(repr(thing).encode())
    elif isinstance(thing, types.CodeType):
        digest.update(thing.co_code)
        parts = [thing.co_names, thing.co_consts]
    elif isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        parts = [thing.__code__, thing.__defaults__, thing.__kwdefaults__, cells]
    elif isinstance(thing, (types.MethodType, functools.partial)):
        parts = [getattr(thing, name, None) for name in ("__func__", "__self__", "func", "args")]
        parts.append(getattr(thing, "keywords", None))
    elif isinstance(thing, dict):
        parts = [part for item in thing.items() for part in item]
    elif isinstance(thing, (list, tuple)):
        parts = list(thing)
    elif hasattr(thing, "__dict__") and not isinstance(thing, (type, types.ModuleType, Stream)):
        parts = sorted(vars(thing).items())
    else:
        digest.update(getattr(thing, "__qualname__", "").encode())
    if depth < DEEPEST:
        for part in parts:
            feed(digest, part, depth + 1)


def save(
    path: Path, watch: Watch, mark: str, more: dict[str, np.ndarray], extra: dict[str, Any]
) -> None:
    """`more` are arrays, and `extra` what JSON can hold, that the caller wants back."""
    leaves = jax.tree.leaves(watch.loop.carry())
    arrays = more | {f"carry/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    for i, column in enumerate(zip(*watch.history, strict=True)):
        arrays[f"history/{i}"] = np.array(column)
    if watch.best is not None:
        arrays |= {f"best/{i}": leaf for i, leaf in enumerate(jax.tree.leaves(watch.best))}
    arrays["trouble"] = np.stack([watch.lost, watch.diverged])
    arrays |= {f"frozen/{r}": x for r, x in watch.frozen.items()}
    meta = {
        "kind": KIND, "fingerprint": mark, "k": watch.loop.k, "anchors": watch.loop.anchors,
        "notes": watch.notes, "extra": extra,
    }  # fmt: skip
    checkpoint.save(path, arrays, meta)


def take_up(
    path: Path, watch: Watch, mark: str, force: bool
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Put the saved run in place of the fresh one; None if there is none."""
    if not (path.exists() or checkpoint.previous(path).exists()):
        return None
    arrays, meta, warning = checkpoint.load(path)
    if meta.get("kind") != KIND:
        raise CheckpointError(f"{path} is not a checkpoint of a run.")
    if meta["fingerprint"] != mark and not force:
        raise CheckpointError(
            f"{path} comes from another problem or other settings: name another file, or give "
            "resume=False to start anew or resume='force' to go on from it all the same."
        )
    fresh = watch.loop.carry()
    carry = rebuilt(arrays, "carry", fresh)
    if carry is None:
        raise CheckpointError(f"{path} holds arrays of other shapes than this problem's.")
    watch.loop.restart_from(carry, meta["k"], meta["anchors"])
    watch.lost, watch.diverged = (row.copy() for row in arrays["trouble"])
    watch.frozen = {r: arrays[f"frozen/{r}"] for r in np.flatnonzero(watch.lost).tolist()}
    columns = [arrays[f"history/{i}"] for i in range(6)]
    watch.history = [list(row) for row in zip(*columns, strict=True)]
    watch.best = rebuilt(arrays, "best", (watch.first.objective, fresh.last))
    watch.notes = meta["notes"] + ([warning] if warning else [])
    return arrays, meta["extra"]


def rebuilt(arrays: dict[str, np.ndarray], name: str, like: Any) -> Any:
    """The tree saved under this name; None if it is absent or of other shapes."""
    leaves, treedef = jax.tree.flatten(like)
    saved = [arrays.get(f"{name}/{i}") for i in range(len(leaves))]
    if any(a is None or a.shape != np.shape(b) for a, b in zip(saved, leaves, strict=True)):
        return None
    return jax.tree.unflatten(treedef, saved)
