"""From a file of data to a model and its scores."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mossp.app import tables
from mossp.app.features import Features
from mossp.app.fitting.estimator import entry_names, estimator_of
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import (
    Sample,
    as_classes,
    as_numbers,
    excluded_from,
    loss_and_kind,
    sample,
    split,
    warn_of_numbers,
)
from mossp.app.fitting.scores import score
from mossp.app.model import Model
from mossp.result import Result
from mossp.sklearn import PathCV
from mossp.sklearn.promises import bounds_of, rates_on

FOLDS = 5
RANGE = ("prior_", "max_fpr", "min_fpr")  # numbers of a task that a model tells


class Fitted(NamedTuple):
    """A model, how it was found, and what it is worth."""

    model: Model
    result: Result
    estimator: Any
    names: tuple[str, ...]  # of the entries of the result's x
    train: Sample
    test: Sample | None
    search: Any  # the PathCV that chose the strength, if one did
    scores: dict[str, dict[str, float]]  # by part of the data


def fit(request: Request) -> Fitted:
    """Read, split, fit and score. Wrong input is a ValueError of one sentence."""
    bounds_of(request.rates)  # a slip in a text is told before a large file is read
    table = tables.read(request.train, request.format)
    y = tables.target_of(table, request.target)
    loss, classes = loss_and_kind(request, table, y)
    y = as_classes(y) if classes else as_numbers(y, request, loss)
    rows = np.arange(table.rows)
    train_rows, test_rows = split(request, rows, y if classes else None)
    features = Features.learn(
        table, request.target, rows=train_rows, exclude=excluded_from(table, request),
        standardize=not request.no_standardize,
    )  # fmt: skip
    warn_of_numbers(request, table)
    everything = sample(request, table, features, y)
    train, test = everything.at(train_rows), everything.at(test_rows) if len(test_rows) else None
    if request.test_file is not None:
        other = tables.read(request.test_file, request.format)
        target = tables.target_of(other, request.target)
        target = as_classes(target) if classes else as_numbers(target, request, loss)
        test = sample(request, other, features, target)
    estimator = estimator_of(request, features, loss, classes, len(np.unique(train.y)))
    search = None
    if request.chooses_strength:
        search = estimator = PathCV(
            estimator, cv=FOLDS, choose=request.choose, verbose=sys.stderr.isatty()
        )
    estimator.fit(train.X, train.y, sensitive=train.sensitive, offset=train.offset)
    estimator = estimator if search is None else search.estimator_
    scores = {"train": score(estimator, train)}
    if test is not None:
        scores["test"] = score(estimator, test)
    rates = rates_of(estimator, test)
    model = as_model(request, features, estimator, loss, scores, rates)
    names = entry_names(features.names, estimator)
    return Fitted(model, estimator.result_, estimator, names, train, test, search, scores)


def rates_of(estimator: Any, test: Sample | None) -> dict[str, dict[str, float]]:
    """The rates that were bounded: on training rows, and on the others with an interval."""
    reached = getattr(estimator, "rates_", {})
    found = {text: {"train": float(value)} for text, value in reached.items()}
    if test is not None and found:
        held_out = rates_on(estimator, test.X, test.y, test.sensitive, offset=test.offset)
        for text, (value, (low, high)) in held_out.items():
            found[text] |= {"test": float(value), "low": float(low), "high": float(high)}
    return found


def as_model(
    request: Request,
    features: Features,
    estimator: Any,
    loss: str,
    scores: dict[str, Any],
    rates: dict[str, Any],
) -> Model:
    from mossp import __version__

    result = estimator.result_
    classes = getattr(estimator, "classes_", None)
    several = classes is not None and len(classes) > 2
    name = request.regularizer.partition(":")[0]
    chosen = "" if estimator.lam is None else f"{name}:{estimator.lam:.6g}"
    certificate = {
        "criticality": result.certificate.criticality,
        "feasibility": result.certificate.feasibility,
        "tol": result.tol,
        "holds": bool(result.success),
    }
    return Model(
        kind="regressor" if classes is None else "classifier",
        loss="softmax" if several and loss.startswith("logistic") else loss,
        target=request.target,
        classes=classes,
        features=features,
        coef=np.atleast_2d(estimator.coef_),
        intercept=np.atleast_1d(estimator.intercept_),
        offset=request.offset,
        about={
            "regularizer": chosen or request.regularizer,
            "choose": request.choose if request.chooses_strength else None,
            "equality": request.equalities,
            "inequality": request.inequalities,
            "rates": rates,
            "rates_margin": request.rates_margin,
            "parity": request.parity,
            "opportunity": request.opportunity,
            "sensitive": request.sensitive,
            "task": request.objective,
            **{name: float(getattr(estimator, name)) for name in RANGE if hasattr(estimator, name)},
            "certificate": {
                k: v if isinstance(v, bool) else float(v) for k, v in certificate.items()
            },
            "status": result.status.name,
            "message": result.message,
            "objective": float(result.fun),
            "violation": float(result.violation),
            "scores": scores,
            "method": str(result.settings["method"]),
            "seed": request.seed,
            "data": Path(request.train).name,
            "version": __version__,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
