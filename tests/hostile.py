"""Files made by hand with right checksums: a real file's description and arrays, mutated."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mossp._base import archive

ODD: list[Any] = [
    None, True, -1, 0, 2**70, 10**400, 1.5, float("nan"), float("inf"), "", "x" * 450, "\x1b[31m",
    "\0", "\ud800", [], [[]], {}, {"a": 1}, [None], ["x"], [["x", None]], {"array": "x"},
]  # fmt: skip
ARRAYS = [
    np.zeros(0), np.zeros((2, 3)), np.full(4, np.nan), np.array("text"), np.array(["a", "b"]),
    np.ones(3, np.int8), np.array(1j), np.zeros((1, 1, 1, 1)), np.array(True), np.array(2.0**1000),
]  # fmt: skip


def mutations(path: Path, count: int, seed: int) -> Iterator[str]:
    """Write `count` mutations of the file over it, one after the other; tells what was done."""
    arrays, meta = archive.read_arrays(path)
    rng = np.random.default_rng(seed)
    for _ in range(count):
        changed, told = dict(arrays), copy.deepcopy(meta)
        done = [mutate(rng, changed, told) for _ in range(rng.integers(1, 3))]
        archive.write_arrays(path, changed, told)
        yield "; ".join(done)
    archive.write_arrays(path, arrays, meta)


def mutate(rng: np.random.Generator, arrays: dict[str, Any], meta: dict[str, Any]) -> str:
    if rng.random() < 0.35 and arrays:
        name = str(rng.choice(sorted(arrays)))
        if rng.random() < 0.25:
            del arrays[name]
            return f"no array {name}"
        wrong = [*ARRAYS, arrays[name][..., None], arrays[name].astype("U8"), arrays[name].ravel()]
        arrays[name] = wrong[rng.integers(len(wrong))]
        return f"array {name}: {arrays[name].dtype} {arrays[name].shape}"
    places = list(inside(meta))
    holder, key = places[rng.integers(len(places))]
    if rng.random() < 0.25:
        del holder[key]
        return f"no {key!r}"
    holder[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])
    return f"{key!r}: {str(holder[key])[:40]!r}"


def inside(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) within."""
    keys = (
        list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    )
    for key in keys:
        yield tree, key
        yield from inside(tree[key])
