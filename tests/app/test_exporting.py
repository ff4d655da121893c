"""Exported models score as the model does: by JSON, in a database, and in an ONNX runtime."""

from __future__ import annotations

import datetime
import json
import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from mossp.app import cli
from mossp.app.exporting.sql import as_sql
from mossp.app.exporting.terms import scoring_object
from mossp.app.features import Features
from mossp.app.model import Model, ModelError
from mossp.app.tables import Table

pl = pytest.importorskip("polars", reason="tables are read by polars")
rng = np.random.default_rng(0)
N = 40
TABLE = {
    "age": [None if k % 7 == 0 else float(v) for k, v in enumerate(rng.normal(40, 9, N))],
    'it\'s "x"': rng.normal(0, 2, N).tolist(),
    "plan": [[None, "basic", "o'neill", "pro"][k % 4] for k in range(N)],
    "days": rng.uniform(1, 9, N).tolist(),
    "client": [f"C{k}" for k in range(N)],
}


def learnt(dates=False) -> tuple[Features, Table]:
    columns = dict(TABLE)
    if dates:
        columns["joined"] = [f"2024-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(N)]
    table = Table(Path("memory"), pl.DataFrame(columns))
    exclude = ["client", "days"]
    cycles = {"joined": ("year", "week")} if dates else {}
    return Features.learn(table, "days", exclude=exclude, impute=True,
                          cycles=cycles), table  # fmt: skip


def made(kind, loss, classes=None, offset=None, threshold=None, dates=False):
    features, table = learnt(dates)
    rows = 1 if classes is None or len(classes) == 2 else len(classes)
    coef = rng.normal(size=(rows, len(features.names)))
    coef[:, 1] = 0.0
    model = Model(kind, loss, "y", classes, features, coef, rng.normal(size=rows), offset=offset,
                  id=("client",), threshold=threshold)  # fmt: skip
    return model, table


CASES = {
    "squared": ("regressor", "squared"),
    "poisson with an offset": ("regressor", "poisson", None, "log(days)"),
    "two classes": ("classifier", "logistic", ["no", "yes"]),
    "a threshold": ("classifier", "logistic", ["no", "yes"], None, 0.2),
    "hinge": ("classifier", "huberized-hinge", [0, 1]),
    "three classes": ("classifier", "softmax", ["a", "b", "it's"]),
}


def expected(model, table):
    X = model.features.matrix(table)
    offset = None if model.offset is None else np.log(TABLE["days"])
    return model.predict(X, offset), model.probabilities(X, offset)


def by_json(told, row):
    """A scorer in plain Python, from the description alone."""
    scores = list(told["intercept"])
    if told["offset"] is not None:
        scores = [s + math.log(row["days"]) for s in scores]
    for column in told["columns"]:
        value = row[column["column"]]
        missing = column.get("missing", [0.0] * len(scores)) if value is None else None
        value = column["fill"] if value is None else value
        for c in range(len(scores)):
            scores[c] += missing[c] if missing else 0.0
            if column["kind"] == "number":
                scores[c] += column["coefficients"][c] * value
            elif column["kind"] == "levels":
                scores[c] += column["levels"].get(value, [0.0] * len(scores))[c]
            else:
                day = value if isinstance(value, float) else (
                    datetime.date.fromisoformat(value) - datetime.date(1970, 1, 1)
                ).days - column["origin"]  # fmt: skip
                scores[c] += column["coefficients"][c] * day * column["per_day"]
                for cycle in column["cycles"]:
                    angle = 2 * math.pi * (day + column["origin"] + cycle["shift"])
                    angle /= cycle["length"]
                    scores[c] += cycle["sin"][c] * math.sin(angle)
                    scores[c] += cycle["cos"][c] * math.cos(angle)
    return scores


@pytest.mark.parametrize("dates", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_json_says_all_that_a_score_needs(name, dates):
    model, table = made(*CASES[name], dates=dates)
    told = json.loads(json.dumps(scoring_object(model)))
    X = model.features.matrix(table)
    offset = None if model.offset is None else np.log(TABLE["days"])
    scores = model.decision(X, offset).reshape(N, -1)
    rows = table.frame.rows(named=True)
    np.testing.assert_allclose([by_json(told, row) for row in rows], scores, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_a_database_scores_alike(name):
    model, table = made(*CASES[name])
    base = sqlite3.connect(":memory:")
    base.create_function("EXP", 1, math.exp)
    base.create_function("LN", 1, math.log)
    names = ", ".join('"' + column.replace('"', '""') + '"' for column in TABLE)
    base.execute(f'CREATE TABLE "my rows" ({names})')
    marks = ", ".join("?" * len(TABLE))
    base.executemany(
        f'INSERT INTO "my rows" VALUES ({marks})', list(zip(*TABLE.values(), strict=True))
    )
    found = base.execute(as_sql(model, "my rows"))
    header, rows = [part[0] for part in found.description], found.fetchall()
    assert header[:2] == ["client", "prediction"] and [row[0] for row in rows] == TABLE["client"]
    predicted, likely = expected(model, table)
    if model.classes is None:
        np.testing.assert_allclose([row[1] for row in rows], predicted, rtol=1e-9)
    else:
        assert [row[1] for row in rows] == predicted.tolist()
    if likely is not None:
        assert header[2:] == [f"probability of {c}" for c in model.classes]
        np.testing.assert_allclose([row[2:] for row in rows], likely, atol=1e-9)


def test_dates_are_not_for_sql():
    model, _ = made("regressor", "squared", dates=True)
    with pytest.raises(ModelError, match="uses dates"):
        as_sql(model, "rows")


@pytest.mark.parametrize("name", [name for name in CASES if "offset" not in name])
def test_an_onnx_runtime_scores_alike(name):
    pytest.importorskip("onnx", reason="graphs are made by onnx")
    runtime = pytest.importorskip("onnxruntime", reason="what scores a graph")
    from mossp.app.exporting.onnx import as_onnx

    model, table = made(*CASES[name])
    features = model.features
    raw = features.matrix(table) * np.array(features.scale) + np.array(features.centre)
    session = runtime.InferenceSession(as_onnx(model).SerializeToString())
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"X": raw}),
                       strict=True))  # fmt: skip
    predicted, likely = expected(model, table)
    if model.classes is None:
        np.testing.assert_allclose(outputs["variable"][:, 0], predicted, rtol=1e-6)
        return
    assert outputs["label"].tolist() == predicted.tolist()
    if likely is not None:
        np.testing.assert_allclose(outputs["probabilities"], likely, atol=1e-6)


def test_the_command(tmp_path, capsys):
    model, _ = made("classifier", "logistic", ["no", "yes"])
    path = model.save(tmp_path / "m")
    assert cli.main(["export", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["link"] == "logit"
    assert cli.main(["export", str(path), "--out", str(tmp_path / "q.sql"), "--table", "t"]) == 0
    assert 'FROM "t"' in (tmp_path / "q.sql").read_text("utf-8")
    for more, part in ((["--format", "pmml"], "json, sql, onnx"), (["--format", "onnx"], "")):
        assert cli.main(["export", str(path), *more]) == 2
        assert part in capsys.readouterr().err


def test_an_estimator_as_onnx():
    pytest.importorskip("onnx", reason="graphs are made by onnx")
    runtime = pytest.importorskip("onnxruntime", reason="what scores a graph")
    from mossp.sklearn import MoSSPClassifier, MoSSPRegressor, to_onnx

    X = rng.normal(size=(30, 3))
    for model, rows, classes in (
        (MoSSPRegressor("poisson"), 1, None), (MoSSPClassifier(), 1, ["a", "b"]),
        (MoSSPClassifier(), 3, [1, 2, 5]),
    ):  # fmt: skip
        coef, b = rng.normal(size=(rows, 3)), rng.normal(size=rows)
        model.coef_ = coef[0] if classes is None else coef
        model.intercept_ = float(b[0]) if classes is None else b
        model.n_features_in_, model.with_offset_ = 3, False
        if classes is not None:
            model.classes_ = np.array(classes)
        label, *more = runtime.InferenceSession(to_onnx(model).SerializeToString()).run(
            None, {"X": X}
        )
        if classes is None:
            np.testing.assert_allclose(label[:, 0], model.predict(X), rtol=1e-6)
        else:
            assert label.tolist() == model.predict(X).tolist()
            np.testing.assert_allclose(more[0], model.predict_proba(X), atol=1e-6)
