"""A run on disk: a file that knows which problem and settings it belongs to.

What is in it is the caller's: arrays, and what JSON can hold, checked against a layout before any
of it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base import archive, layout
from mossp._base.archive import CheckpointError
from mossp._base.types import PyTree

KIND = "mossp checkpoint"


class Mark(NamedTuple):
    """Fingerprints that tell whether a file belongs to a run."""

    whole: str = ""  # of the problem and all settings
    endless: str = ""  # of the same but for the number of steps: such a run may go on for longer


class Saved(NamedTuple):
    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    warning: str  # where the last file was damaged and the one before it was read


def save(path: Path, mark: Mark, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Write a run beside the last one and rename it; `mark` tells of which problem it is."""
    marks = {"fingerprint": mark.whole, "endless": mark.endless}
    archive.save(path, arrays, meta | {"kind": KIND, **marks})


def load(path: Path, mark: Mark, force: bool, expected: dict[str, Any]) -> Saved | None:
    """The run saved there; None if there is none, CheckpointError if it is of another problem.

    A run of other steps is the same run, which goes on for longer, or ends sooner.
    """
    if not (path.exists() or archive.previous(path).exists()):
        return None
    arrays, meta, warning = archive.load(path)
    if meta.get("kind") != KIND:
        raise CheckpointError(f"{path} is not a checkpoint of a run.")
    try:
        layout.check(meta, {"fingerprint": str, "endless": layout.Maybe(str), **expected})
    except layout.LayoutError as error:
        raise foreign(path, error) from None
    same = meta["fingerprint"] == mark.whole or meta.get("endless") == mark.endless
    if not same and not force:
        raise CheckpointError(
            f"{path} comes from another problem or other settings: name another file, or give "
            "resume=False to start anew or resume='force' to go on from it all the same."
        )
    return Saved(arrays, meta, warning)


def foreign(path: Path, error: layout.LayoutError) -> CheckpointError:
    return CheckpointError(f"{path} is not a checkpoint that mossp saved: {error}.")


def flattened(name: str, tree: PyTree) -> dict[str, np.ndarray]:
    """The leaves of a tree under names, as `rebuilt` reads them."""
    return {f"{name}/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def rebuilt(arrays: dict[str, np.ndarray], name: str, like: PyTree) -> PyTree:
    """The tree saved under this name; None if it is absent, or of other shapes or types."""
    leaves, treedef = jax.tree.flatten(like)
    saved = [arrays.get(f"{name}/{i}") for i in range(len(leaves))]
    for a, b in zip(saved, leaves, strict=True):
        if a is None or a.shape != np.shape(b) or a.dtype.kind != np.asarray(b).dtype.kind:
            return None
    return jax.tree.unflatten(treedef, saved)
