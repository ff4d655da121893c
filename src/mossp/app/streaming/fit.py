"""From a file that is large against memory to a model and its scores.

Rows are read again in every pass, by all processes of a run, each its share of them; which rows are
kept for a test is decided by random numbers of their own. All other things are as in
`mossp.app.fitting.fit`, and so is the model, to rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp import losses
from mossp.app.features import Features
from mossp.app.fitting.decisions import checked_threshold
from mossp.app.fitting.estimator import entry_names, estimator_of
from mossp.app.fitting.fit import as_model
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import as_classes, loss_and_kind
from mossp.app.model import Model
from mossp.app.streaming.blocks import Blocks, blocks_of
from mossp.app.streaming.choosing import chosen_strength
from mossp.app.streaming.encoded import Encoded, Encoding
from mossp.app.streaming.judging import rates_of, scored, threshold_of
from mossp.app.streaming.kept import StreamedRows, kept, share, streamed
from mossp.app.streaming.learning import HELD_OUT, MOST_VALUES, TRAIN, Learnt, Parts, learn
from mossp.app.streaming.progress import RowsBar
from mossp.app.tables import TableError
from mossp.result import Result
from mossp.sklearn.answers import set_result
from mossp.sklearn.choosing import BIC, ONE_ERROR
from mossp.sklearn.formulation import CLASSIFICATION, REGRESSION, loss_of
from mossp.sklearn.inference import check_inference, inference
from mossp.sklearn.paths import solution
from mossp.sklearn.promises import bounds_of

IN_MEMORY = ("objective", "max_features", "scoring")  # options that need the features of all rows
KEPT = ("rate", "parity", "opportunity")  # that need targets, groups and scores of all rows
ALONE = (*KEPT, "inference")  # that are for one process


class Streamed(NamedTuple):
    """A model of a file that was read in blocks, and how it was found."""

    model: Model
    result: Result
    estimator: Any
    names: tuple[str, ...]
    scores: dict[str, dict[str, float]]
    notes: list[str]


def check(request: Request) -> None:
    """Raise ValueError where an option needs all rows in memory."""
    for name in IN_MEMORY:
        if getattr(request, name):
            refuse(name)
    if request.choose == ONE_ERROR and request.chooses_strength:
        raise ValueError(
            "--choose 1se compares folds, but of a file that is read in blocks one fifth is held "
            "out: choose best or bic, or give --no-stream."
        )
    if jax.process_count() > 1:
        asked = [name for name in ALONE if getattr(request, name)]
        asked += ["choose"] * (request.choose == BIC) + ["threshold"] * criterion(request)
        if asked:
            raise ValueError(
                f"--{asked[0]} needs a process that knows the scores of all rows: leave it out, or "
                "start one process only."
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


def criterion(request: Request) -> bool:
    """Whether a threshold is to be found, not given."""
    return request.threshold is not None and isinstance(checked_threshold(request.threshold), str)


def fit(request: Request) -> Streamed:
    """Learn, fit and score, block by block."""
    bounds_of(request.rates)  # a slip in a text is told before a large file is read
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
        if request.threshold is not None and (known is None or len(known) != 2):
            raise ValueError("--threshold is for two classes, and the target has none, or more.")
        make = kept if any(getattr(request, name) is not None for name in KEPT) else streamed
        if request.chooses_strength:
            of_all = kept if request.choose == BIC else make
            lam, why = chosen_strength(estimator, lambda e: rows_of(blocks, learnt, e, bar, of_all),
                                       encoding, request.choose)  # fmt: skip
            estimator.set_params(lam=lam)
            notes.append(f"The strength {lam:.6g} has {why}.")
        rows = rows_of(blocks, learnt, encoding, bar, make)
        if request.inference:
            check_inference(vars(estimator))
        saved = {} if request.checkpoint is None else {"checkpoint": request.checkpoint}
        result = solution({**vars(estimator), **saved}, rows)
        set_result(estimator, result, dataclasses.replace(rows, X=None))
        if request.inference:
            estimator.inference_ = inference(vars(estimator), rows, result)
        model = as_model(request, learnt.features, estimator, loss, {}, {})
        if request.threshold is not None:
            model = dataclasses.replace(model, threshold=threshold_of(request, model, rows))
        scores, confusion = scored(request, model, blocks, parts, bar)
        rates = rates_of(request, estimator, rows, model)
    about = {**model.about, "scores": scores, "confusion": confusion, "rates": rates}
    if request.threshold is not None:
        about["threshold"] = request.threshold
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


def rows_of(
    blocks: Blocks, learnt: Learnt, encoding: Encoding, bar: RowsBar,
    make: Callable[[Encoded], StreamedRows],
) -> StreamedRows:  # fmt: skip
    """The rows that a model is fitted to; the others have the weight 0."""
    count = int(learnt.sizes[list(encoding.kept)].sum())
    if not count:
        raise TableError(f"No row of {blocks.path} is left to fit to: give a smaller --test.")
    weighted = dataclasses.replace(encoding, weight=blocks.rows / count)
    return make(Encoded(blocks, weighted, bar.read))
