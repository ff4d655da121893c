"""The page about a fitted model: scores, ROC curves, the path, and all that a result has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import sklearn.metrics

from mossp._base.printing import short
from mossp.app.fitting.fit import FOLDS, Fitted
from mossp.app.fitting.request import Request
from mossp.app.fitting.scores import one_against_rest
from mossp.app.terminal import choices
from mossp.report import Extra, numbers, write_page
from mossp.report.figures import BLUE, GREY, ORANGE, as_inline_svg, plain
from mossp.result import Status
from mossp.sklearn import PartialAUCClassifier, PUClassifier
from mossp.sklearn.choosing import BEST, BIC, ONE_ERROR
from mossp.sklearn.inference import shown_p
from mossp.sklearn.paths import regularization_path
from mossp.solving.path import Path as Strengths

STRENGTHS = 15  # on a path
CHOSEN = {  # why this strength
    BEST: " It has the highest mean score; the band is one standard error wide on each side.",
    ONE_ERROR: " It is the largest whose mean score is within one standard error, half the width "
    "of the band, of the highest.",
    BIC: " It has the lowest Bayesian information criterion on the training rows.",
}
ROOM = 2.5  # of its figure, in units of the model's largest coefficient


def write_report(fitted: Fitted, request: Request, folder: Path) -> Path:
    """Write a page with coefficients by name, certificate, scores, ROC curves and the path."""
    extras = [asked_part(fitted), scores_part(fitted)]
    if fitted.model.about["confusion"]:
        extras.append(confusion_part(fitted))
    if fitted.model.about["rates"]:
        extras.insert(1, rates_part(fitted))
    if request.inference:
        extras.append(inference_part(fitted))
    stuck = fitted.result.status is Status.INFEASIBLE_STATIONARY  # at every strength
    if fitted.search is not None:
        extras.append(path_part(fitted, fitted.search.path_))
    elif has_strength(fitted) and rates_met(fitted) and not stuck:
        train = fitted.train
        strengths = regularization_path(
            fitted.estimator, train.X, train.y, sensitive=train.sensitive, lams=STRENGTHS,
            offset=train.offset,
        )  # fmt: skip
        extras.append(path_part(fitted, strengths))
    what = f"{request.target or 'the labels'} of {Path(request.train).name}"
    return write_page(
        fitted.result, folder, title=f"A model of {what}", names=fitted.names, extras=extras
    )


def asked_part(fitted: Fitted) -> Extra:
    """The model as it was asked for."""
    model, about = fitted.model, fitted.model.about
    rows = [("loss", model.loss), ("regulariser", about["regularizer"])]
    rows += [] if model.offset is None else [("offset", model.offset)]
    rows += [("equality", text) for text in about["equality"]]
    rows += [("inequality", text) for text in about["inequality"]]
    for kind, what in (("parity", "all rows"), ("opportunity", "rows of the positive class")):
        if about[kind] is not None:
            within = numbers.tolerance(about[kind])
            bound = f"covariance of {about['sensitive']} with the margin within {within}"
            rows.append((kind, f"{bound}, over {what}"))
    if model.classes is not None and len(model.classes) == 2:
        rows.append(("positive coefficients", f"speak for {model.classes[1]}"))
    rows += [("columns", sentence) for sentence in fitted.notes]
    note = "Constraints are on the coefficients below."
    if about["units"] == "data":
        note = "Constraints are on the coefficients in the units of the data, not those below."
    return Extra("What was asked for", ("", ""), rows, [], note)


def has_strength(fitted: Fitted) -> bool:
    """Whether there is a path of strengths to show: paths are of a loss of true labels."""
    other = isinstance(fitted.estimator, (PUClassifier, PartialAUCClassifier))
    fixed = fitted.estimator.regularizer == "none" or fitted.estimator.max_features is not None
    return not (other or fixed)


def rates_met(fitted: Fitted) -> bool:
    """Whether the rates are met, if there are any: else those along a path are hardly."""
    return bool(fitted.result.settings.get("rates", {}).get("met", True))


def rates_part(fitted: Fitted) -> Extra:
    """What was asked of rates, what was reached, and what held-out rows say."""
    about = fitted.model.about
    rows = []
    for asked, seen in about["rates"].items():
        held_out = ["", ""]
        if "test" in seen:
            ends = (numbers.value(seen[end], 4) for end in ("low", "high"))
            held_out = [numbers.value(seen["test"], 4), " to ".join(ends)]
        rows.append((asked, numbers.value(seen["train"], 4), *held_out))
    header = ("asked", "reached (training rows)", "on held-out rows", "95 % interval there")
    note = "The bounds are on the training rows; new rows vary about them."
    if about["rates_margin"] is not None:
        note = (
            "The bounds were tightened so that new rows meet each of them with confidence "
            f"{numbers.fixed(about['rates_margin'], 3)}."
        )
    return Extra("Rates", header, rows, [], note)


def scores_part(fitted: Fitted) -> Extra:
    parts = list(fitted.scores)
    rows = [
        (name, *(numbers.value(fitted.scores[part].get(name, np.nan), 4) for part in parts))
        for name in fitted.scores["train"]
    ]
    counts = [len(s.y) for s in (fitted.train, fitted.test) if s is not None]
    header = (
        "score",
        *(f"{p} ({numbers.counted(n, 'row')})" for p, n in zip(parts, counts, strict=True)),
    )
    shown = fitted.test if fitted.test is not None else fitted.train
    figures = []
    if fitted.model.kind == "classifier":
        curves = one_against_rest(fitted.estimator, shown)
        curves = [curve for curve in curves if 0 < curve[1].sum() < len(curve[1])]
        title = f"ROC curve, {parts[-1]} rows"
        figures.append((title, as_inline_svg(lambda a: draw_roc(a, curves), "roc", title)))
    else:
        title = f"predicted against observed, {parts[-1]} rows"
        predicted = fitted.estimator.predict(shown.X, shown.offset)
        draw = lambda a: draw_predictions(a, shown.y, predicted)  # noqa: E731
        figures.append((title, as_inline_svg(draw, "fit", title)))
    note = "" if fitted.test is not None else "No rows were kept for a test: these flatter."
    return Extra("Scores", header, rows, figures, note)


def confusion_part(fitted: Fitted) -> Extra:
    """Which classes were taken for which, with recall and precision of each."""
    found, classes = fitted.model.about["confusion"], fitted.model.classes
    assert classes is not None
    part = list(found)[-1]
    counts = np.array(found[part])
    recall = np.diag(counts) / np.maximum(counts.sum(axis=1), 1)
    precision = np.diag(counts) / np.maximum(counts.sum(axis=0), 1)
    rows = [
        (str(name), *map(str, row), numbers.value(r, 4), numbers.value(p, 4))
        for name, row, r, p in zip(classes, counts, recall, precision, strict=True)
    ]
    header = (f"{part} rows", *(f"taken for {name}" for name in classes), "recall", "precision")
    note = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in choices(fitted.model))
    return Extra("Decisions", header, rows, [], note)


def inference_part(fitted: Fitted) -> Extra:
    """Standard errors on the support, by the names of the features."""
    found = fitted.estimator.inference_
    rows = [
        (name, numbers.coefficient(c), numbers.value(e, 3), f"{numbers.value(low, 4)} to "
         f"{numbers.value(high, 4)}", shown_p(p))
        for name, c, e, low, high, p in zip(
            support_names(fitted), found.coef, found.standard_errors, found.low, found.high,
            found.p_values, strict=True,
        )
    ]  # fmt: skip
    header = ("coefficient", "standardised", "standard error", "95 % interval", "p value")
    return Extra("Standard errors", header, rows, [], found.note)


def support_names(fitted: Fitted) -> list[str]:
    """Names of the features that the standard errors are of."""
    x = fitted.result.x
    kept = [*(np.ravel(x["coef"]) != 0), *([True] * np.size(x.get("intercept", ())))]
    return [name for name, inside in zip(fitted.names, kept, strict=True) if inside]


def path_part(fitted: Fitted, strengths: Strengths) -> Extra:
    lam = strength_of(fitted)

    def draw(a: Any) -> None:
        strengths.plot(ax=[a], names=fitted.names)
        if lam is not None:
            a.axvline(lam, color=GREY, linewidth=1, linestyle="--")
        # Without a penalty coefficients may be of any size: what is near this model is shown.
        largest = ROOM * max(np.abs(fitted.result.x["coef"]).max(), 1e-3)
        low, high = a.get_ylim()
        if largest > 0:
            a.set_ylim(max(low, -largest), min(high, largest))

    figures = [("entries of x by strength", as_inline_svg(draw, "path", "regularisation path"))]
    note = "The dashed line is the strength of this model."
    if fitted.search is not None:
        folds = fitted.search.choose != BIC
        title = f"score in {FOLDS}-fold cross-validation" if folds else "information criterion"
        figures.append((title, as_inline_svg(lambda a: draw_search(a, fitted.search), "cv", title)))
        note += CHOSEN[fitted.search.choose]
    return Extra("Regularisation path", (), [], figures, note)


def strength_of(fitted: Fitted) -> float | None:
    if fitted.estimator.lam is not None:
        return float(fitted.estimator.lam)
    parameters = fitted.estimator.regularizer.partition(":")[2]
    return float(parameters.split(",")[0]) if parameters else None


def draw_roc(a: Any, curves: list[tuple[Any, np.ndarray, np.ndarray]]) -> None:
    a.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=":")
    for number, (name, truth, margins) in enumerate(curves):
        false, true, _ = sklearn.metrics.roc_curve(truth, margins)
        area = sklearn.metrics.auc(false, true)
        style: dict[str, Any] = {"color": BLUE} if len(curves) == 1 else {"alpha": 0.9}
        label = f"{short(name, 24)}: {numbers.fixed(area, 3)}" if number < 10 else None
        a.plot(false, true, label=label, **style)
    a.set_xlabel("false positive rate")
    a.set_ylabel("true positive rate")
    legend = a.legend(frameon=False, fontsize=8, title="area for class", title_fontsize=8)
    for text in legend.get_texts():  # a dollar sign in the name of a class is no formula
        text.set_parse_math(False)
    plain(a)


def draw_predictions(a: Any, y: np.ndarray, predicted: np.ndarray) -> None:
    ends = [float(min(y.min(), predicted.min())), float(max(y.max(), predicted.max()))]
    a.plot(ends, ends, color=GREY, linewidth=1, linestyle=":")
    some = np.linspace(0, len(y) - 1, min(len(y), 2000)).astype(int)  # a page is not a database
    a.plot(y[some], predicted[some], ".", color=BLUE, markersize=4, alpha=0.6)
    a.set_xlabel("observed")
    a.set_ylabel("predicted")
    plain(a)


def draw_search(a: Any, search: Any) -> None:
    if search.choose == BIC:
        found = search.bic_
    else:
        found = search.scores_.mean(axis=0)
        error = search.scores_.std(axis=0, ddof=1) / np.sqrt(len(search.scores_))
        band = found - error, found + error
        a.fill_between(search.lams_, *band, color=BLUE, alpha=0.2, linewidth=0)
    a.plot(search.lams_, found, color=BLUE, marker="o", markersize=3)
    a.axvline(search.lam_, color=ORANGE, linewidth=1, linestyle="--")
    a.set_xscale("log")
    a.set_xlabel("lam")
    a.set_ylabel("BIC" if search.choose == BIC else "score")
    plain(a)
