"""The strength of a regulariser, where it is left open, for rows that are read in blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mossp._base import crew
from mossp.app.streaming.encoded import Encoded, Encoding
from mossp.app.streaming.kept import StreamedRows, share
from mossp.app.streaming.learning import HELD_OUT, TRAIN
from mossp.sklearn.choosing import BIC, bayesian_information, by_information
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, loss_of
from mossp.sklearn.paths import path_of, strengths

STRENGTHS = 10  # that are tried: each takes some ten passes


def chosen_strength(
    estimator: Any, rows_of: Callable[[Encoding], StreamedRows], encoding: Encoding, choice: str
) -> tuple[float, str]:
    """(the strength, what it has of all that were tried)."""
    params, classes = vars(estimator), encoding.classes
    loss = loss_of(estimator.loss, REGRESSION if classes is None else CLASSIFICATION, classes)
    if choice == BIC:
        rows = rows_of(encoding)
        found = path_of(params, rows, strengths(STRENGTHS, params, rows))
        criterion = bayesian_information(found, loss, rows)
        best = by_information(criterion, np.ones(len(criterion), bool))
        return float(found.lams[best]), "the lowest information criterion (BIC)"
    rows = rows_of(dataclasses.replace(encoding, kept=(TRAIN,)))
    found = path_of(params, rows, strengths(STRENGTHS, params, rows))
    blocks = rows.source.blocks
    total = np.zeros(len(found.results))
    held_out = Encoded(blocks, dataclasses.replace(encoding, kept=(HELD_OUT,)))
    first, end = share(blocks.rows)
    for start in range(first, end, blocks.length):
        X, y, w, *offset = held_out.read(start, min(start + blocks.length, end))
        for k, result in enumerate(found.results):
            z = X @ result.x["coef"] + result.x.get("intercept", 0.0)
            z = z + offset[0] if offset else z
            total[k] += float(w @ np.asarray(loss.rows(z, y), np.float64))
    total = np.asarray(crew.summed(total, crew.mesh_of()))
    return float(found.lams[int(np.argmin(total))]), "the lowest loss on a held-out fifth"
