"""What a score is made of, in the units of the data, as an object that JSON holds.

    score_c = intercept_c + offset + sum over columns of

        number    coefficients_c * value
        levels    levels[value]_c, 0 for a level that is not there
        dates     coefficients_c * (days since origin, or hours of the day), and for each cycle
                  sin_c * sin(angle) + cos_c * cos(angle), angle = 2 pi (days + shift) / length
        missing   missing_c where the value is missing, and `fill` in its place in the terms above

Columns whose coefficients are all zero are left out. The link says what becomes of scores:
"identity", "log" (the mean is exp of the score), "logit" (the probability of the second class is
1 / (1 + exp(-score))), "softmax", or "none" (classes by the sign or the largest score).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mossp.app.features.dates import CYCLES, THURSDAY, Dates
from mossp.app.model import LOGARITHMIC, Model

KIND, VERSION = "mossp scoring", 1


def scoring_object(model: Model) -> dict[str, Any]:
    """The model as what JSON can hold: enough to score rows without this library.

    Examples
    --------
    >>> from mossp.app.features import Features
    >>> features = Features((("age", None), ("plan", ("a", "b"))), (40.0, 0, 0), (10.0, 1, 1))
    >>> model = Model("regressor", "squared", "pay", None, features, [[2.0, 0.0, 1.0]], [30.0])
    >>> found = scoring_object(model)
    >>> found["intercept"], [column["column"] for column in found["columns"]]
    ([22.0], ['age', 'plan'])
    >>> found["columns"][1]["levels"]
    {'a': [0.0], 'b': [1.0]}
    """
    raw, intercept = model.raw_coefficients()
    fill = dict(model.features.fill)
    flagged = set(model.features.flagged)
    columns, at = [], 0
    for name, coding in model.features.columns:
        count = len(coding.names(name)) if isinstance(coding, Dates) else (
            1 if coding is None else len(coding)
        )  # fmt: skip
        part = raw[:, at : at + count]
        at += count
        column: dict[str, Any] = {"column": name, **_term(coding, part)}
        if name in fill:
            column["fill"] = fill[name]
        missing = np.zeros(len(raw))
        if name in flagged:
            missing = raw[:, at]
            column["missing"] = missing.tolist()
            at += 1
        if part.any() or missing.any():
            columns.append(column)
    return {
        "kind": KIND,
        "version": VERSION,
        "predicts": model.kind,
        "target": model.target,
        "loss": model.loss,
        "link": link_of(model),
        "classes": None if model.classes is None else model.classes.tolist(),
        "threshold": model.threshold,
        "id": list(model.id),
        "offset": model.offset,
        "intercept": intercept.tolist(),
        "columns": columns,
    }


def link_of(model: Model) -> str:
    """What becomes of the scores."""
    if model.kind == "regressor":
        return "log" if model.loss.partition(":")[0] in LOGARITHMIC else "identity"
    if not model.has_probabilities:
        return "none"
    return "logit" if len(model.coef) == 1 else "softmax"


def _term(coding: Any, part: np.ndarray) -> dict[str, Any]:
    """The kind of a column, and its coefficients, one for each score."""
    if coding is None:
        return {"kind": "number", "coefficients": part[:, 0].tolist()}
    if not isinstance(coding, Dates):
        return {
            "kind": "levels",
            "levels": {level: part[:, k].tolist() for k, level in enumerate(coding)},
        }
    return {
        "kind": "dates", "written": coding.format, "unit": coding.unit,
        "origin": coding.origin, "per_day": coding.per_day, "coefficients": part[:, 0].tolist(),
        "cycles": [
            {
                "cycle": cycle, "length": CYCLES[cycle],
                "shift": THURSDAY if cycle == "week" else 0.0,
                "sin": part[:, 1 + 2 * k].tolist(), "cos": part[:, 2 + 2 * k].tolist(),
            }
            for k, cycle in enumerate(coding.cycles)
        ],
    }  # fmt: skip
