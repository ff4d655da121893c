"""What the targets of every ready loss must be: data = (A, b), one finite number per row."""

from __future__ import annotations

import numpy as np

from mossp._base.types import AnyArray, Batch, HostArray, PyTree

# How many distinct labels an error message shows before it stops.
_LABELS_SHOWN = 4


def pair(batch: Batch) -> tuple[AnyArray, AnyArray]:
    """(A, b), or a ValueError that says what was given instead."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        given = f"{len(batch)} parts" if isinstance(batch, tuple | list) else type(batch).__name__
        raise ValueError(
            f"A ready loss needs data = (A, b), features and labels, but it was given {given}: "
            "pass a pair, or write your own loss(x, batch)."
        )
    return batch[0], batch[1]


def checked_target(name: str, batch: Batch, x: PyTree, several: bool = False) -> HostArray:
    """Return b as NumPy after the checks that every loss shares."""
    A, b = pair(batch)
    b = np.asarray(b)
    if b.dtype.kind not in "biuf":
        raise ValueError(
            f"The {name} loss needs real numbers as labels, but b has dtype {b.dtype}: encode the "
            "labels as numbers first."
        )
    shape = np.shape(A) if getattr(A, "shape", None) is None else tuple(A.shape)
    if len(shape) != 2:
        raise ValueError(
            f"The {name} loss needs A of shape (rows, features), but A has shape {shape}."
        )
    if b.ndim != 1 and not (several and b.ndim == 2):
        remedy = ": use y.ravel()" if b.size == shape[0] else ""
        raise ValueError(
            f"The {name} loss needs one label for each row of A, but b has shape {b.shape}{remedy}."
        )
    if b.shape[0] != shape[0]:
        raise ValueError(
            f"The {name} loss needs one label for each row of A, but A has {shape[0]} rows and b "
            f"has {b.shape[0]}."
        )
    bad = ~np.isfinite(b)
    if bad.any():
        row = int(np.argwhere(bad)[0, 0])
        raise ValueError(
            f"The {name} loss needs finite labels, but {int(bad.sum())} of {b.size} are NaN or "
            f"infinite, the first in row {row}: remove or repair those rows."
        )
    if x is not None and np.ndim(x) > 0 and np.shape(x)[0] != shape[1]:
        raise ValueError(
            f"A has {shape[1]} features, but x has shape {np.shape(x)}: the first axis of x must "
            f"have length {shape[1]}."
        )
    return b


def listed(labels: HostArray) -> str:
    """Write a few distinct labels for a person: `0 and 1`, `1, 2, 3, 4 and 6 others`."""
    texts = [f"{float(label):g}" for label in labels[:_LABELS_SHOWN]]
    rest = labels.size - len(texts)
    if rest:
        return f"{', '.join(texts)} and {rest} other{'s' if rest > 1 else ''}"
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
