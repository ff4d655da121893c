"""What a fitted model is worth on the rows of a file: scores, decisions and rates."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from mossp._base import crew
from mossp.app.fitting.decisions import checked_threshold, found_threshold
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import as_classes, attributes_of
from mossp.app.model import Model
from mossp.app.streaming.blocks import Blocks, blocks_of
from mossp.app.streaming.encoded import Encoded, is_train
from mossp.app.streaming.kept import StreamedRows, kept, share
from mossp.app.streaming.learning import TEST, Parts, Usable
from mossp.app.streaming.progress import RowsBar
from mossp.app.streaming.scores import Classification, Regression
from mossp.app.tables import offset_of, target_of
from mossp.sklearn.promises import rates_on_rows

NO_TEST = Parts(0, 0.0)  # all rows of a file are for the test


def threshold_of(request: Request, model: Model, rows: StreamedRows) -> float:
    """The threshold that was given, or that the training rows give."""
    given = checked_threshold(str(request.threshold))
    if isinstance(given, float):
        if model.loss.partition(":")[0] == "logistic" and not 0 < given < 1:
            raise ValueError(f"--threshold must lie between 0 and 1, but {given:g} was given.")
        return given
    scores, positive = [], []
    for some in rows.pieces():
        probabilities = model.probabilities(some.X, some.offset)
        scored = model.decision(some.X, some.offset) if probabilities is None else probabilities
        scores.append(np.ravel(scored if probabilities is None else scored[:, 1]))
        positive.append(some.labels > 0)
    return found_threshold(given, np.concatenate(scores), np.concatenate(positive))


def rates_of(
    request: Request, estimator: Any, rows: StreamedRows, model: Model
) -> dict[str, dict[str, float]]:
    """The rates that were bounded: on training rows, and on the others with an interval."""
    reached = getattr(estimator, "rates_", {})
    found = {text: {"train": float(value)} for text, value in reached.items()}
    if not found or not (request.test or request.test_file is not None):
        return found
    source = rows.source
    test = dataclasses.replace(source.encoding, kept=(TEST,))
    blocks = source.blocks
    if request.test_file is not None:
        blocks = blocks_for_test(request, model)
        test = dataclasses.replace(source.encoding, parts=NO_TEST)
    held_out = rates_on_rows(estimator, kept(Encoded(blocks, test)))
    for text, (value, (low, high)) in held_out.items():
        found[text] |= {"test": float(value), "low": float(low), "high": float(high)}
    return found


def blocks_for_test(request: Request, model: Model) -> Blocks:
    return blocks_of(request.test_file, request.format, request.target, model.features.as_text)


def scored(
    request: Request, model: Model, blocks: Blocks, parts: Parts, bar: RowsBar
) -> tuple[dict[str, dict[str, float]], dict[str, list[list[int]]]]:
    """(scores by part of the data, confusion tables), each process on its own rows."""

    def empty() -> Any:
        return Regression() if model.classes is None else Classification(model.classes)

    sums = {"train": empty()}
    if request.test or request.test_file is not None:
        sums["test"] = empty()

    def add(to: Any, whole: Any, among: np.ndarray | None = None) -> None:
        table, _ = Usable(request).of(whole, among)
        if not table.rows:
            return
        y = target_of(table, request.target)
        y = y if model.classes is None else as_classes(y)
        offset = None if request.offset is None else offset_of(table, request.offset)
        z = None
        if request.sensitive is not None:
            z = attributes_of(request, table)[request.sensitive]
        to.add(model, model.features.matrix(table), y, offset, z)

    for start, table in blocks.each(*share(blocks.rows)):
        bar.learning(start, "scores")
        train = is_train(parts.of(start, start + table.rows))
        add(sums["train"], table, train)
        if request.test_file is None and request.test:
            add(sums["test"], table, ~train)
    if request.test_file is not None:
        other = blocks_for_test(request, model)
        for _, table in other.each(*share(other.rows)):
            add(sums["test"], table)
    mesh = crew.mesh_of()
    for each in sums.values():
        each.merge(lambda a: np.asarray(crew.summed(a, mesh)))
    scores = {name: each.result() for name, each in sums.items()}
    confusion = {name: s.confusion for name, s in sums.items() if model.classes is not None}
    return scores, confusion
