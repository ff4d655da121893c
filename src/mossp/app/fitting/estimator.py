"""The estimator that a request states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mossp._base.units import Units
from mossp.app.features import Features
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import PARTIAL_AUC, PU
from mossp.expressions import parse
from mossp.fairness import DemographicParity, EqualOpportunity
from mossp.regularizers import names
from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, PartialAUCClassifier, PUClassifier
from mossp.sklearn.choosing import BEST, checked_choice


def estimator_of(
    request: Request, features: Features, loss: str, classes: bool, count: int
) -> MoSSPClassifier | MoSSPRegressor | PartialAUCClassifier:
    """The estimator, its constraints read against the names of the features."""
    several = count if classes and count > 2 else None
    if request.regularizer is not None:
        names.find(request.regularizer)
    units = None
    if request.units == "data":
        units = Units(np.array(features.centre), np.array(features.scale))
    inequality: list[Any] = [
        e for t in request.inequalities for e in parse(t, features.names, "<=", several, units)
    ]
    bounds = (("parity", DemographicParity), ("opportunity", EqualOpportunity))
    for option, kind in bounds:
        bound = getattr(request, option)
        if bound is not None:
            if request.sensitive is None or not classes:
                need = "a classification loss" if request.sensitive else "--sensitive COLUMN"
                raise ValueError(f"--{option} needs {need}.")
            inequality.append(kind(bound, attribute=request.sensitive))
    bounded = request.parity is not None or request.opportunity is not None or request.rates
    if request.sensitive is not None and not bounded:
        raise ValueError(
            "--sensitive names a column for --rate, --parity or --opportunity: give a bound."
        )
    checked_choice(request.choose)
    if request.choose != BEST and not request.chooses_strength:
        raise ValueError(
            f"--choose {request.choose} is for a strength that is left open: give --regularizer "
            "without a number, or no --choose."
        )
    if request.offset is not None and several:
        raise ValueError(
            f"--offset is one number a row, but the {count} classes of the target have a score "
            "each: use mossp.sklearn.MoSSPClassifier, whose fit takes one for each."
        )
    if request.rates_margin is not None and not request.rates:
        raise ValueError("--rates-margin is for bounds on rates: give --rate.")
    settings: dict[str, Any] = {
        "loss": "logistic" if loss == "softmax" else loss,
        "max_features": request.max_features,
        "inference": request.inference,
        "equality": [
            e for t in request.equalities for e in parse(t, features.names, "=", several, units)
        ]
        or None,
        "inequality": inequality or None,
        "rates": request.rates or None,
        "rates_margin": request.rates_margin,
        "nonnegative": request.nonnegative,
        "fit_intercept": not request.no_intercept,
        "method": request.method,
        "steps": request.steps,
        "batch_size": request.batch_size,
        "n_starts": request.starts,
        "random_state": request.seed,
        "tol": request.tol,
    }
    if request.regularizer is not None:  # else the default of the estimator
        settings["regularizer"] = request.regularizer
    if request.objective is not None:
        model = PUClassifier if request.objective == PU else PartialAUCClassifier
        taken = set(model().get_params())
        for name, given in (
            ("max_features", request.max_features),
            ("inference", request.inference),
        ):
            if given and name not in taken:
                raise ValueError(
                    f"--{name.replace('_', '-')} is not for --objective {request.objective}: leave "
                    "one of them out."
                )
        kept = {name: value for name, value in settings.items() if name in taken}
    if request.objective == PU:
        return PUClassifier(request.prior, **kept)
    if request.objective == PARTIAL_AUC:
        ends = {
            name: value
            for name in ("max_fpr", "min_fpr")
            if (value := getattr(request, name)) is not None
        }
        return PartialAUCClassifier(**ends, **kept)
    if classes:
        return MoSSPClassifier(**settings, class_weight="balanced" if request.balanced else None)
    if request.balanced:
        raise ValueError("--balanced is for classes, and the target is a number.")
    return MoSSPRegressor(**settings)


def entry_names(features: Sequence[str], estimator: Any) -> tuple[str, ...]:
    """A name for every entry of x: coefficients, then intercepts."""
    classes = getattr(estimator, "classes_", ())
    # Without this parameter, as for a partial AUC, x has none: it is set after the solve.
    solved = estimator.get_params().get("fit_intercept", False)
    each = (*features, *(["intercept"] if solved else []))
    if len(classes) <= 2:
        return each
    return tuple(f"{name} [{c}]" for name in each for c in classes)
