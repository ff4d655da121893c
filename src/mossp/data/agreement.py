"""The forms of rows that fit all processes, which must have rows of one kind."""

from __future__ import annotations

import hashlib
from typing import Any

from mossp._base import crew
from mossp.data.forms import Dense, Form, Sparse
from mossp.data.memory import Part
from mossp.data.storage import Storage


def agreed_forms(storage: Storage, parts: list[Part], length: int, mesh: Any) -> tuple[Form, ...]:
    """Of this process's rows, whose devices have these parts, in blocks of so many rows.

    Sparse rows get the width and the number of further segments that is enough for all.
    """
    forms = storage.forms(length)
    about = [kind_of(form) for form in forms]
    digest = hashlib.sha256(repr((about, str(storage.treedef))).encode()).digest()
    seen = crew.listed([int.from_bytes(digest[:6], "big")], mesh)
    if (seen != seen[0]).any():
        raise ValueError(
            "The processes have rows of different kinds: give each of them the same arrays, with "
            f"the same columns and types; this one has {about}."
        )
    return tuple(
        form if isinstance(form, Dense) else agreed_sparse(leaf, form, parts, length, mesh)
        for leaf, form in enumerate(forms)
    )


def agreed_sparse(leaf: int, form: Sparse, parts: list[Part], length: int, mesh: Any) -> Sparse:
    width = int(crew.listed([form.width], mesh).max())
    found = [
        Sparse.of(part.entry_counts(leaf), form.columns, form.dtype, length, width)
        for part in parts
    ]
    own = [form.columns, max(f.further for f in found), max(f.segments for f in found)]
    columns, further, segments = (int(n) for n in crew.listed(own, mesh).max(axis=0))
    return Sparse(columns, form.dtype, width, further, segments)


def kind_of(form: Form) -> tuple[Any, ...]:
    """What must agree between processes."""
    return ("sparse", form.dtype) if isinstance(form, Sparse) else (form.shape, form.dtype)
