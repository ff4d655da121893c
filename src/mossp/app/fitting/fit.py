"""From a file of data to a model and its scores."""

from __future__ import annotations

import dataclasses
import datetime
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split

from mossp import losses
from mossp._base import naming
from mossp._base.printing import quoted, short
from mossp.app import tables
from mossp.app.features import Features
from mossp.app.fitting.scores import Sample, score
from mossp.app.model import Model
from mossp.app.tables import Table, TableError
from mossp.expressions import parse
from mossp.fairness import DemographicParity, EqualOpportunity
from mossp.regularizers.names import NAMES as REGULARIZERS
from mossp.result import Result
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PathCV

CLASSIFICATION = ("logistic", "huberized-hinge", "softmax")
FEW_CLASSES = 2  # different numbers that are taken for classes, where no loss says more
FOLDS = 5
NUMBERED = re.compile(r"\bx\s*\[\s*[-:\d]")  # a coefficient by number, in a constraint


@dataclasses.dataclass(frozen=True)
class Request:
    """What `mossp fit` was asked."""

    train: Path
    target: str | None = None
    loss: str | None = None
    regularizer: str = "l1"
    equality: Sequence[str] = ()
    inequality: Sequence[str] = ()
    nonnegative: bool = False
    intercept: bool = True
    balanced: bool = False
    sensitive: str | None = None
    parity: float | None = None
    opportunity: float | None = None
    exclude: Sequence[str] = ()
    standardize: bool = True
    test: float = 0.2
    test_file: Path | None = None
    format: str | None = None
    method: str = "auto"
    steps: int | None = None
    batch_size: int | None = None
    starts: int = 1
    seed: int = 0
    tol: float | None = None


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
    table = tables.read(request.train, request.format)
    y = tables.target_of(table, request.target)
    loss, classes = loss_and_kind(request, table, y)
    y = as_classes(y) if classes else as_numbers(y, request, loss)
    rows = np.arange(table.rows)
    train_rows, test_rows = split(request, rows, y if classes else None)
    exclude = [*request.exclude, *([request.sensitive] if request.sensitive else [])]
    features = Features.learn(
        table, request.target, rows=train_rows, exclude=exclude, standardize=request.standardize
    )
    warn_of_numbers(request, table)
    everything = sample(request, table, features, y)
    train, test = everything.at(train_rows), everything.at(test_rows) if len(test_rows) else None
    if request.test_file is not None:
        other = tables.read(request.test_file, request.format)
        target = tables.target_of(other, request.target)
        target = as_classes(target) if classes else as_numbers(target, request, loss)
        test = sample(request, other, features, target)
    estimator = stated(request, features, loss, classes, len(np.unique(train.y)))
    search = None
    if ":" not in request.regularizer and request.regularizer != "none":
        search = estimator = PathCV(estimator, cv=FOLDS, verbose=sys.stderr.isatty())
    estimator.fit(train.X, train.y, sensitive=train.z)
    estimator = estimator if search is None else search.estimator_
    scores = {"train": score(estimator, train)}
    if test is not None:
        scores["test"] = score(estimator, test)
    model = as_model(request, features, estimator, loss, scores)
    names = entry_names(features.names, estimator)
    return Fitted(model, estimator.result_, estimator, names, train, test, search, scores)


# What the data are ------------------------------------------------------------------------------


def loss_and_kind(request: Request, table: Table, y: np.ndarray) -> tuple[str, bool]:
    """(the loss, whether it is of classes): as asked, or as the target suggests."""
    if request.loss is not None:
        naming.find(request.loss, losses.NAMES, "loss")
        name = request.loss.partition(":")[0].strip()
        return request.loss, name in CLASSIFICATION
    if y.dtype.kind in "Ub" or len(np.unique(y)) <= FEW_CLASSES:
        return "logistic", True
    return "squared", False


def as_classes(y: np.ndarray) -> np.ndarray:
    """Whole numbers as such: they are written as 1, not as 1.0."""
    return y.astype(np.int64) if y.dtype.kind == "f" and (y == np.round(y)).all() else y


def as_numbers(y: np.ndarray, request: Request, loss: str) -> np.ndarray:
    if y.dtype.kind in "U":
        raise TableError(
            f"The loss {loss} needs numbers, but the target {quoted(request.target)} holds text "
            f"such as {quoted(y.tolist()[0])}: use --loss logistic."
        )
    return y.astype(float)


def warn_of_numbers(request: Request, table: Table) -> None:
    """Columns that no row has are no features, and x[3] counts features."""
    width = 0 if table.X is None else table.X.shape[1]
    numbered = any(NUMBERED.search(text) for text in (*request.equality, *request.inequality))
    if numbered and width > len(table.columns):
        warnings.warn(
            f"{width - len(table.columns)} of the {width} columns of {table.path} have no value in "
            f"any row and are no features, so that x[0] in a constraint is {table.columns[0]}: "
            "names such as x3 keep their numbers.",
            stacklevel=2,
        )


def sample(request: Request, table: Table, features: Features, y: np.ndarray) -> Sample:
    z = None
    if request.sensitive is not None:
        z = tables.target_of(table, request.sensitive)
    return Sample(features.matrix(table), y, z)


def split(
    request: Request, rows: np.ndarray, classes: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit to and rows to test with, classes in equal shares."""
    if not 0 <= request.test < 1:
        raise ValueError(
            f"--test must be a share of the rows from 0 to below 1, but {request.test:g} was given."
        )
    if request.test == 0 or request.test_file is not None:
        return rows, rows[:0]
    if len(rows) < 5:
        raise ValueError(f"{len(rows)} rows are too few to keep some for a test: use --test 0.")
    if classes is not None:
        names, counts = np.unique(classes, return_counts=True)
        if counts.min() < 2:
            raise ValueError(
                f"The class {short(names[counts.argmin()])} has one row only, which cannot be both "
                "fitted to and tested with: use --test 0."
            )
    try:
        train, test = train_test_split(
            rows, test_size=request.test, random_state=request.seed, stratify=classes
        )
    except ValueError as error:
        raise ValueError(f"The rows cannot be split: {error} Use --test 0.") from error
    return np.sort(train), np.sort(test)


# The estimator ----------------------------------------------------------------------------------


def stated(
    request: Request, features: Features, loss: str, classes: bool, count: int
) -> MoSSPClassifier | MoSSPRegressor:
    """The estimator, its constraints read against the names of the features."""
    several = count if classes and count > 2 else None
    naming.find(request.regularizer, REGULARIZERS, "regulariser")
    inequality: list[Any] = [
        e for t in request.inequality for e in parse(t, features.names, "<=", several)
    ]
    bounds = (("parity", DemographicParity), ("opportunity", EqualOpportunity))
    for option, kind in bounds:
        bound = getattr(request, option)
        if bound is not None:
            if request.sensitive is None or not classes:
                need = "a classification loss" if request.sensitive else "--sensitive COLUMN"
                raise ValueError(f"--{option} needs {need}.")
            inequality.append(kind(bound))
    if request.sensitive is not None and request.parity is None and request.opportunity is None:
        raise ValueError("--sensitive names a column for --parity or --opportunity: give a bound.")
    settings: dict[str, Any] = {
        "loss": "logistic" if loss == "softmax" else loss,
        "regularizer": request.regularizer,
        "equality": [e for t in request.equality for e in parse(t, features.names, "=", several)]
        or None,
        "inequality": inequality or None,
        "nonnegative": request.nonnegative,
        "fit_intercept": request.intercept,
        "method": request.method,
        "steps": request.steps,
        "batch_size": request.batch_size,
        "n_starts": request.starts,
        "random_state": request.seed,
        "tol": request.tol,
    }
    if classes:
        return MoSSPClassifier(**settings, class_weight="balanced" if request.balanced else None)
    if request.balanced:
        raise ValueError("--balanced is for classes, and the target is a number.")
    return MoSSPRegressor(**settings)


def entry_names(features: Sequence[str], estimator: Any) -> tuple[str, ...]:
    """A name for every entry of x: coefficients, then intercepts."""
    classes = getattr(estimator, "classes_", ())
    each = (*features, *(["intercept"] if estimator.fit_intercept else []))
    if len(classes) <= 2:
        return each
    return tuple(f"{name} [{c}]" for name in each for c in classes)


def as_model(
    request: Request, features: Features, estimator: Any, loss: str, scores: dict[str, Any]
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
        about={
            "regularizer": chosen or request.regularizer,
            "equality": list(request.equality),
            "inequality": list(request.inequality),
            "parity": request.parity,
            "opportunity": request.opportunity,
            "sensitive": request.sensitive,
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
