"""From a file of data to a model and its scores."""

from __future__ import annotations

import dataclasses
import datetime
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from mossp.app import tables
from mossp.app.features import Features
from mossp.app.fitting.decisions import confusion, threshold_of
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
    usable,
    warn_of_numbers,
)
from mossp.app.fitting.scores import score
from mossp.app.model import Model
from mossp.result import Result, Status
from mossp.sklearn import PathCV
from mossp.sklearn.choosing import BIC
from mossp.sklearn.promises import bounds_of, rates_on

FOLDS = 5
# What the own loss of a model is called as a score.
SCORED = {"logistic": "log loss", "softmax": "log loss", "squared": "R²"}
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
    notes: list[str]  # what was found out about the file, and what became of it


def fit(request: Request) -> Fitted:
    """Read, split, fit and score. Wrong input is a ValueError of one sentence."""
    bounds_of(request.rates)  # a slip in a text is told before a large file is read
    request.check()
    table = tables.read(request.train, request.format, request.target)
    table, left_out = usable(request, table)
    y = target_or_all_faults(request, table)
    loss, classes = loss_and_kind(request, table, y)
    y = as_classes(y) if classes else as_numbers(y, request, loss)
    rows = np.arange(table.rows)
    train_rows, test_rows = split(request, rows, y if classes else None)
    features = Features.learn(
        table, request.target, rows=train_rows, exclude=excluded_from(table, request),
        standardize=not request.no_standardize, impute=request.missing == "impute",
        cycles=request.cycles, order=request.dates,
    )  # fmt: skip
    notes = [*table.notes, *([left_out] if left_out else []), *features.notes]
    warn_of_numbers(request, table)
    everything = sample(request, table, features, y)
    train, test = everything.at(train_rows), everything.at(test_rows) if len(test_rows) else None
    if request.test_file is not None:
        other, left_out = usable(request, tables.read(request.test_file, request.format))
        notes += [left_out] if left_out else []
        target = tables.target_of(other, request.target)
        target = as_classes(target) if classes else as_numbers(target, request, loss)
        test = sample(request, other, features, target)
    estimator = estimator_of(request, features, loss, classes, len(np.unique(train.y)))
    search = None
    stuck = in_conflict(estimator, train) if request.chooses_strength else None
    if request.chooses_strength and stuck is None:
        search = estimator = PathCV(
            estimator,
            cv=FOLDS,
            choose=request.choose,
            scoring=request.scorer,
            verbose=sys.stderr.isatty(),
        )
    if stuck is None:
        estimator.fit(train.X, train.y, sensitive=train.sensitive, offset=train.offset)
        estimator = estimator if search is None else search.estimator_
    else:
        estimator = stuck
        notes.append("No strength was chosen: no coefficients meet the constraints at any.")
    threshold = None
    if request.threshold is not None:
        if not classes:
            raise ValueError("--threshold is for classes, and the target is a number.")
        threshold = threshold_of(request.threshold, estimator, train)
    parts = {"train": train, **({} if test is None else {"test": test})}
    scores = {name: score(estimator, part, threshold) for name, part in parts.items()}
    tables_of = {
        name: confusion(estimator, part, threshold) for name, part in parts.items() if classes
    }
    rates = rates_of(estimator, test)
    model = as_model(request, features, estimator, loss, scores, rates)
    model = with_decisions(model, request, threshold, tables_of, search)
    names = entry_names(features.names, estimator)
    return Fitted(model, estimator.result_, estimator, names, train, test, search, scores, notes)


def in_conflict(estimator: Any, train: Sample) -> Any:
    """A fit where no coefficients meet the constraints: one, before the many of a search; or None.

    Rates are left out of it.
    """
    constrained = ("equality", "inequality")
    if all(getattr(estimator, name, None) is None for name in constrained):
        return None
    plain = {"rates": None, "rates_margin": None, "inference": False}
    taken = estimator.get_params()
    trial = clone(estimator).set_params(**{name: plain[name] for name in plain if name in taken})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial.fit(train.X, train.y, sensitive=train.sensitive, offset=train.offset)
    return trial if trial.result_.status is Status.INFEASIBLE_STATIONARY else None


def target_or_all_faults(request: Request, table: tables.Table) -> np.ndarray:
    """What is to be predicted; where that is wrong, it is told with what else is."""
    faults = tables.Faults(table.path)
    y = np.zeros(0)
    with faults.kept():
        y = tables.target_of(table, request.target)
    if faults.errors and (request.target is None or table.may_have(request.target)):
        with faults.kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Features.learn(
                table, request.target, exclude=excluded_from(table, request),
                impute=request.missing == "impute", cycles=request.cycles, order=request.dates,
            )  # fmt: skip
    faults.tell()
    return y


def rates_of(estimator: Any, test: Sample | None) -> dict[str, dict[str, float]]:
    """The rates that were bounded: on training rows, and on the others with an interval."""
    reached = getattr(estimator, "rates_", {})
    found = {text: {"train": float(value)} for text, value in reached.items()}
    if test is not None and found:
        held_out = rates_on(estimator, test.X, test.y, test.sensitive, offset=test.offset)
        for text, (value, (low, high)) in held_out.items():
            found[text] |= {"test": float(value), "low": float(low), "high": float(high)}
    return found


def with_decisions(
    model: Model, request: Request, threshold: float | None, tables_of: dict[str, Any], search: Any
) -> Model:
    """The model with its threshold, its confusion tables, and how its strength was chosen."""
    about = {**model.about, "confusion": tables_of}
    if threshold is not None:
        about["threshold"] = str(request.threshold)
    if search is not None:
        strength = {"chosen": search.lam_}
        if hasattr(search, "lam_1se_"):
            strength |= {"best": search.lam_best_, "1se": search.lam_1se_}
        kept = [np.count_nonzero(result.x["coef"]) for result in search.path_.results]
        counts = dict(zip(search.lams_.tolist(), kept, strict=True))
        about["strength"] = strength
        about["nonzeros"] = {name: float(counts[lam]) for name, lam in strength.items()}
        if search.choose != BIC:
            about["scoring"] = request.scorer or SCORED.get(
                model.loss.partition(":")[0], "own loss"
            )
            if request.rates:
                about["scoring"] = "accuracy" if model.classes is not None else "R²"
    return dataclasses.replace(model, threshold=threshold, about=about)


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
    name = estimator.regularizer.partition(":")[0]
    chosen = "" if estimator.lam is None else f"{name}:{estimator.lam:.6g}"
    if request.max_features is not None:
        chosen = f"at most {request.max_features} features"
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
        id=tuple(request.ids),
        about={
            "regularizer": chosen or estimator.regularizer,
            "choose": request.choose if request.chooses_strength else None,
            "equality": request.equalities,
            "inequality": request.inequalities,
            "units": request.units,
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
