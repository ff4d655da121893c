"""From a file that is large against memory to a model and its scores.

Rows are read again in every pass, by all processes of a run, each its share of them; which rows are
kept for a test is decided by random numbers of their own. All other things are as in
`mossp.app.fitting.fit`, and so is the model, to rounding.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp import losses
from mossp._base import crew
from mossp.app.features import Features
from mossp.app.fitting.decisions import checked_threshold
from mossp.app.fitting.estimator import entry_names, estimator_of
from mossp.app.fitting.fit import as_model
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import as_classes, loss_and_kind
from mossp.app.model import Model
from mossp.app.streaming.blocks import Blocks, blocks_of
from mossp.app.streaming.encoded import Encoded, Encoding, is_train
from mossp.app.streaming.learning import HELD_OUT, MOST_VALUES, TRAIN, Learnt, Parts, Usable, learn
from mossp.app.streaming.progress import RowsBar
from mossp.app.streaming.scores import Classification, Regression
from mossp.app.tables import TableError, offset_of, target_of
from mossp.data import OnDisk, Sharded
from mossp.data.memory import Part
from mossp.result import Result
from mossp.sklearn.answers import set_result
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, loss_of
from mossp.sklearn.paths import path_of, solution, strengths
from mossp.sklearn.rows import Rows

# Options of `mossp fit` that look at all rows at once.
IN_MEMORY = ("objective", "rate", "rates_margin", "sensitive", "parity", "opportunity", "inference",
             "max_features", "scoring")  # fmt: skip
STRENGTHS = 10  # that are tried where none is given: each takes some ten passes


class Streamed(NamedTuple):
    """A model of a file that was read in blocks, and how it was found."""

    model: Model
    result: Result
    estimator: Any
    names: tuple[str, ...]
    scores: dict[str, dict[str, float]]
    notes: list[str]


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedRows(Rows):
    """Rows that stay on disk, as a linear model takes them."""

    storage: Encoded | None = None

    @property
    def features(self) -> int:
        assert self.storage is not None
        return len(self.storage.encoding.features.names)

    def data(self, targets: np.ndarray) -> Any:
        """As `Rows.data`, of this process's rows."""
        assert self.storage is not None
        first, end = share(self.storage.rows)
        if jax.process_count() == 1:
            return OnDisk.of(self.storage)
        return Sharded(OnDisk.of(Part(self.storage, first, end)))

    def balanced(self) -> Rows:
        """Weights have the mean 1 as they are read."""
        return self


def share(rows: int) -> tuple[int, int]:
    """The rows of this process: from the first to before the second."""
    ends = np.linspace(0, rows, jax.process_count() + 1).astype(int)
    return int(ends[jax.process_index()]), int(ends[jax.process_index() + 1])


def check(request: Request) -> None:
    """Raise ValueError where an option needs all rows in memory."""
    for name in IN_MEMORY:
        if getattr(request, name):
            refuse(name)
    if request.choose != "best" and request.chooses_strength:
        refuse("choose")
    threshold = 0.5 if request.threshold is None else checked_threshold(request.threshold)
    if not isinstance(threshold, float):
        raise ValueError(
            "A criterion for --threshold looks at all rows at once: give a number, or --no-stream."
        )
    if not 0 <= request.test < 1:
        raise ValueError(
            f"--test must be a share of the rows from 0 to below 1, but {request.test:g} was given."
        )


def refuse(name: str) -> None:
    raise ValueError(
        f"--{name.replace('_', '-')} looks at all rows at once, but the file is read in blocks: "
        "leave it out, or give --no-stream."
    )


def fit(request: Request) -> Streamed:
    """Learn, fit and score, block by block."""
    request.check()
    check(request)
    blocks = blocks_of(request.train, request.format, request.target)
    parts = Parts(request.seed, 0.0 if request.test_file is not None else request.test)
    shown = None if jax.process_index() == 0 else False
    with RowsBar(blocks.rows, *share(blocks.rows), shown) as bar:
        learnt = learn(request, blocks, parts, bar.learning)
        many = len(learnt.values) > MOST_VALUES
        loss, classes = loss_and_kind(request, None, learnt.values)  # type: ignore[arg-type]
        if classes and many:
            raise TableError(
                f"The target of {blocks.path} has more than {MOST_VALUES} different values: too "
                "many to be classes. Give --loss."
            )
        known = as_classes(learnt.values) if classes else None
        encoding = encoded_as(request, learnt, loss, known, parts)
        estimator = estimator_of(
            request, learnt.features, loss, classes, 0 if known is None else len(known)
        )
        prepare(estimator, learnt.features, known, request)
        notes = [
            *blocks.notes,
            *learnt.notes,
            f"{request.train} is read in blocks of {blocks.length:,} rows.",
        ]
        if request.chooses_strength:
            lam = chosen_strength(estimator, blocks, learnt, encoding, bar)
            estimator.set_params(lam=lam)
            notes.append(f"The strength {lam:.6g} has the lowest loss on a held-out fifth.")
        rows = rows_of(blocks, learnt, encoding, bar)
        set_result(estimator, solution(vars(estimator), rows), rows)
        model = as_model(request, learnt.features, estimator, loss, {}, {})
        threshold = None if request.threshold is None else float(request.threshold)
        model = dataclasses.replace(model, threshold=threshold)
        scores, confusion = scored(request, model, blocks, parts, bar)
    about = {**model.about, "scores": scores, "confusion": confusion}
    model = dataclasses.replace(model, about=about)
    names = entry_names(learnt.features.names, estimator)
    return Streamed(model, estimator.result_, estimator, names, scores, notes)


def prepare(estimator: Any, features: Features, classes: Any, request: Request) -> None:
    """What `fit` of an estimator finds out about its rows."""
    estimator.n_features_in_ = len(features.names)
    estimator.with_offset_ = request.offset is not None
    if classes is not None:
        if len(classes) < 2:
            raise ValueError(
                "The classifier needs samples of at least 2 classes, but the target has one only."
            )
        estimator.classes_ = classes


def encoded_as(
    request: Request, learnt: Learnt, loss: str, classes: np.ndarray | None, parts: Parts
) -> Encoding:
    """The encoding of training rows, whose weights have the mean 1 over all rows of the file."""
    weights = None
    if request.balanced and classes is not None:
        weights = learnt.counts.sum() / (len(classes) * np.maximum(learnt.counts, 1))
    several = classes is not None and len(classes) > 2
    hinge = isinstance(
        loss_of("logistic" if loss == "softmax" else loss,
                REGRESSION if classes is None else CLASSIFICATION, classes),
        losses.HuberizedHinge,
    )  # fmt: skip
    known = learnt.values[0] if classes is None else classes[0]
    return Encoding(
        request, learnt.features, known, classes, weights, parts, (TRAIN, HELD_OUT), 1.0,
        several and hinge,
    )  # fmt: skip


def rows_of(blocks: Blocks, learnt: Learnt, encoding: Encoding, bar: RowsBar) -> StreamedRows:
    """The rows that a model is fitted to; the others have the weight 0."""
    count = int(learnt.sizes[list(encoding.kept)].sum())
    if not count:
        raise TableError(f"No row of {blocks.path} is left to fit to: give a smaller --test.")
    storage = Encoded(blocks, dataclasses.replace(encoding, weight=blocks.rows / count), bar.read)
    none = np.zeros(0)
    offset = None if encoding.request.offset is None else none
    return StreamedRows(None, none, none, encoding.classes, offset=offset, storage=storage)


def chosen_strength(
    estimator: Any, blocks: Blocks, learnt: Learnt, encoding: Encoding, bar: RowsBar
) -> float:
    """The strength with the lowest mean loss on the rows that are held out."""
    rows = rows_of(blocks, learnt, dataclasses.replace(encoding, kept=(TRAIN,)), bar)
    params, classes = vars(estimator), encoding.classes
    found = path_of(params, rows, strengths(STRENGTHS, params, rows))
    function = loss_of(estimator.loss, REGRESSION if classes is None else CLASSIFICATION, classes)
    total = np.zeros(len(found.results))
    held_out = dataclasses.replace(encoding, kept=(HELD_OUT,))
    first, end = share(blocks.rows)
    for start in range(first, end, blocks.length):
        stop = min(start + blocks.length, end)
        X, y, w, *offset = Encoded(blocks, held_out).read(start, stop)
        for k, result in enumerate(found.results):
            z = X @ result.x["coef"] + result.x.get("intercept", 0.0)
            z = z + offset[0] if offset else z
            total[k] += float(w @ np.asarray(function.rows(z, y), np.float64))
    total = np.asarray(crew.summed(total, crew.mesh_of()))
    return float(found.lams[int(np.argmin(total))])


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
        to.add(model, model.features.matrix(table), y, offset)

    for start, table in blocks.each(*share(blocks.rows)):
        bar.learning(start, "scores")
        train = is_train(parts.of(start, start + table.rows))
        add(sums["train"], table, train)
        if request.test_file is None and request.test:
            add(sums["test"], table, ~train)
    if request.test_file is not None:
        other = blocks_of(request.test_file, request.format, request.target, model.features.as_text)
        for _, table in other.each(*share(other.rows)):
            add(sums["test"], table)
    mesh = crew.mesh_of()
    for each in sums.values():
        each.merge(lambda a: np.asarray(crew.summed(a, mesh)))
    scores = {name: each.result() for name, each in sums.items()}
    confusion = {name: s.confusion for name, s in sums.items() if model.classes is not None}
    return scores, confusion
