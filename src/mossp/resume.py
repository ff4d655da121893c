"""A run in a file: what is saved, and whether a saved run is this run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp import checkpoint
from mossp.checkpoint import CheckpointError
from mossp.watch import Watch

KIND = "mossp checkpoint"


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
