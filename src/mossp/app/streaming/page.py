"""The page about a model of a file that was read in blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mossp.app.fitting.page import asked_part, confusion_part, inference_part, rates_part
from mossp.app.fitting.request import Request
from mossp.app.streaming.fit import Streamed
from mossp.report import Extra, numbers, write_page


def write_report(fitted: Streamed, request: Request, folder: Path) -> Path:
    """Write a page with coefficients by name, certificate and scores: what needs no row."""
    given: Any = fitted  # the parts that are used look at the model and its notes
    extras = [asked_part(given), scores_part(fitted)]
    if fitted.model.about["confusion"]:
        extras.append(confusion_part(given))
    if fitted.model.about["rates"]:
        extras.insert(1, rates_part(given))
    if request.inference:
        extras.append(inference_part(given))
    what = f"{request.target or 'the labels'} of {Path(request.train).name}"
    return write_page(
        fitted.result, folder, title=f"A model of {what}", names=fitted.names, extras=extras
    )


def scores_part(fitted: Streamed) -> Extra:
    parts = list(fitted.scores)
    rows = [
        (name, *(numbers.value(fitted.scores[part].get(name, np.nan), 4) for part in parts))
        for name in fitted.scores["train"]
    ]
    return Extra("Scores", ("score", *(f"{part} rows" for part in parts)), rows, [], "")
