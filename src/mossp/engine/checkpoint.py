"""A run in a file: what is saved, and whether a saved run is this run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mossp._base import archive, layout
from mossp._base.archive import CheckpointError
from mossp.certificates.certificate import Witness
from mossp.engine.watch import Watch

KIND = "mossp checkpoint"
LAYOUT = {
    "fingerprint": str,
    "k": int,
    "anchors": int,
    "notes": layout.Each(str),
    "extra": {"seconds": float, "polishing": dict},
}


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
    archive.save(path, arrays, meta)


def take_up(
    path: Path, watch: Watch, mark: str, force: bool,
    check_polishing: Callable[[dict[str, np.ndarray], dict[str, Any], Witness], None],
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:  # fmt: skip
    """Put the saved run in place of the fresh one; None if there is none.

    `check_polishing(arrays, saved, like)` raises LayoutError unless what the file holds of
    polishing fits the witnesses of this run.
    """
    if not (path.exists() or archive.previous(path).exists()):
        return None
    arrays, meta, warning = archive.load(path)
    if meta.get("kind") != KIND:
        raise CheckpointError(f"{path} is not a checkpoint of a run.")
    try:
        layout.check(meta, LAYOUT)
        if meta["fingerprint"] != mark and not force:
            raise CheckpointError(
                f"{path} comes from another problem or other settings: name another file, or give "
                "resume=False to start anew or resume='force' to go on from it all the same."
            )
        fresh = watch.loop.carry()
        carry = rebuilt(arrays, "carry", fresh)
        if carry is None:
            raise CheckpointError(f"{path} holds arrays of other shapes than this problem's.")
        if not (0 <= meta["k"] <= watch.loop.events.K and 0 <= meta["anchors"] < 2**63):
            raise layout.LayoutError("its step is none of this run")
        count, n = watch.loop.replicas, fresh.last.x.shape[1]
        trouble = layout.array(arrays, "trouble", "b", (2, count))
        frozen = {
            r: layout.array(arrays, f"frozen/{r}", "f", (n,))
            for r in np.flatnonzero(trouble[0]).tolist()
        }
        length = len(layout.array(arrays, "history/0", "iu", (None,)))
        columns = [
            layout.array(arrays, f"history/{i}", "iuf", (length, *(count,) * (i > 2)))
            for i in range(6)
        ]
        check_polishing(arrays, meta["extra"]["polishing"], fresh.last)
    except layout.LayoutError as error:
        raise CheckpointError(f"{path} is not a checkpoint that mossp saved: {error}.") from None
    watch.loop.restart_from(carry, meta["k"], meta["anchors"])
    watch.lost, watch.diverged = (row.copy() for row in trouble)
    watch.frozen = frozen
    watch.history = [list(row) for row in zip(*columns, strict=True)]
    watch.best = rebuilt(arrays, "best", (watch.first.objective, fresh.last))
    watch.notes = meta["notes"] + ([warning] if warning else [])
    return arrays, meta["extra"]


def rebuilt(arrays: dict[str, np.ndarray], name: str, like: Any) -> Any:
    """The tree saved under this name; None if it is absent, or of other shapes or types."""
    leaves, treedef = jax.tree.flatten(like)
    saved = [arrays.get(f"{name}/{i}") for i in range(len(leaves))]
    for a, b in zip(saved, leaves, strict=True):
        if a is None or a.shape != np.shape(b) or a.dtype.kind != np.asarray(b).dtype.kind:
            return None
    return jax.tree.unflatten(treedef, saved)
