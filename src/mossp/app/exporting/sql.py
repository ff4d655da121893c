"""A model as one query, in the SQL that databases share: CASE, COALESCE, EXP and LN."""

from __future__ import annotations

from typing import Any

from mossp._base.printing import quoted
from mossp.app.exporting.terms import scoring_object
from mossp.app.model import Model, ModelError
from mossp.app.tables.columns import LOGARITHM


def as_sql(model: Model, table: str) -> str:
    """A query that scores the rows of a table: ids, prediction and probabilities.

    Parameters
    ----------
    model : Model
        Without dates, which every database reads in its own way.
    table : str
        The name of the table, whose columns are called as in the training data.

    Examples
    --------
    >>> from mossp.app.features import Features
    >>> features = Features((("age", None),), (0.0,), (1.0,))
    >>> print(as_sql(Model("regressor", "squared", "pay", None, features, [[2.0]], [30.0]), "rows"))
    SELECT "score_0" AS "prediction"
    FROM (
      SELECT *,
        30.0 + 2.0 * "age" AS "score_0"
      FROM "rows"
    ) AS "scored"
    """
    told = scoring_object(model)
    dates = [column["column"] for column in told["columns"] if column["kind"] == "dates"]
    if dates:
        raise ModelError(
            f"The model uses dates ({quoted(dates[0])}), which every database reads in its own "
            "way: export it as JSON, or fit with days that the table has as numbers."
        )
    count = len(told["intercept"])
    scores = [
        f"{score(told, c)} AS {name(f'score_{c}')}" for c in range(count)
    ]  # fmt: skip
    chosen = [name(column) for column in told["id"]]
    chosen += [f"{value} AS {name(called)}" for called, value in outputs(told).items()]
    listed = ",\n    ".join(scores)
    return (
        "SELECT " + ",\n  ".join(chosen) + "\nFROM (\n  SELECT *,\n    " + listed
        + f"\n  FROM {name(table)}\n) AS {name('scored')}"
    )  # fmt: skip


def score(told: dict[str, Any], c: int) -> str:
    """The score of one class, or the only one."""
    parts = [number(told["intercept"][c])]
    if told["offset"] is not None:
        inside = LOGARITHM.fullmatch(told["offset"])
        parts.append(f"LN({name(inside[1].strip())})" if inside else name(told["offset"]))
    for column in told["columns"]:
        value = name(column["column"])
        if "missing" in column and column["missing"][c]:
            price = number(column["missing"][c])
            parts.append(f"CASE WHEN {value} IS NULL THEN {price} ELSE 0.0 END")
        if "fill" in column:
            fill = column["fill"]
            value = f"COALESCE({value}, {text(fill) if isinstance(fill, str) else number(fill)})"
        if column["kind"] == "number" and column["coefficients"][c]:
            parts.append(f"{number(column['coefficients'][c])} * {value}")
        if column["kind"] == "levels":
            prices = {level: price[c] for level, price in column["levels"].items() if price[c]}
            cases = " ".join(f"WHEN {text(k)} THEN {number(v)}" for k, v in prices.items())
            parts += [f"CASE {value} {cases} ELSE 0.0 END"] * bool(cases)
    return "\n      + ".join(parts) if len(parts) > 2 else " + ".join(parts)


def outputs(told: dict[str, Any]) -> dict[str, str]:
    """The columns of the answer, by name."""
    scores, classes = [name(f"score_{c}") for c in range(len(told["intercept"]))], told["classes"]
    if told["link"] in ("identity", "log"):
        return {"prediction": scores[0] if told["link"] == "identity" else f"EXP({scores[0]})"}
    if len(scores) == 1:
        (score_,) = scores
        sigmoid = f"1.0 / (1.0 + EXP(-{score_}))"
        if told["link"] == "none":
            cut = 0.0 if told["threshold"] is None else told["threshold"]
            return {"prediction": two(f"{score_} > {number(cut)}", classes), "margin": score_}
        cut = 0.5 if told["threshold"] is None else told["threshold"]
        return {
            "prediction": two(f"{sigmoid} > {number(cut)}", classes),
            f"probability of {classes[0]}": f"1.0 / (1.0 + EXP({score_}))",
            f"probability of {classes[1]}": sigmoid,
        }
    cases = [
        f"WHEN {' AND '.join(f'{mine} >= {other}' for other in scores if other != mine)} "
        f"THEN {value_of(which)}"
        for mine, which in zip(scores, classes, strict=True)
    ]
    found = {"prediction": f"CASE {' '.join(cases)} END"}
    if told["link"] == "softmax":
        for mine, which in zip(scores, classes, strict=True):
            total = " + ".join(f"EXP({other} - {mine})" for other in scores if other != mine)
            found[f"probability of {which}"] = f"1.0 / (1.0 + {total})"
    return found


def two(condition: str, classes: list[Any]) -> str:
    return f"CASE WHEN {condition} THEN {value_of(classes[1])} ELSE {value_of(classes[0])} END"


def value_of(which: Any) -> str:
    if isinstance(which, bool):
        return "TRUE" if which else "FALSE"
    return text(which) if isinstance(which, str) else repr(which)


def name(column: str) -> str:
    """A name as SQL writes it: in double quotes, those in it doubled."""
    return '"' + column.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def number(value: float) -> str:
    """A number with all of its digits; brackets keep a minus apart from what is before it."""
    return repr(float(value)) if value >= 0 else f"({float(value)!r})"
