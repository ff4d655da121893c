"""`mossp fit --objective`: positive and unlabelled rows, and partial AUC."""

import csv

import matplotlib
import numpy as np
import pytest

from mossp.app import cli
from mossp.app.model import Model

pytestmark = pytest.mark.slow

matplotlib.use("agg")
pytest.importorskip("polars", reason="tables are read by polars")
pytest.importorskip("sklearn", reason="`mossp fit` is built on the estimators")
estimators = pytest.importorskip("mossp.sklearn")

rng = np.random.default_rng(0)
N = 300
ROWS = rng.normal(size=(N, 3))
TRUTH = (ROWS[:, 0] + 0.5 * ROWS[:, 1] + 0.4 * rng.normal(size=N) > 0.5).astype(int)
KNOWN = TRUTH * (rng.random(N) < 0.5)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("data.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "truth", "known"])
        writer.writerows(zip(*ROWS.T, TRUTH, KNOWN, strict=True))


def run(capsys, *arguments):
    code = cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_positive_and_unlabelled_rows(capsys):
    code, _, err = run(
        capsys, "fit", "data.csv", "--target", "known", "--exclude", "truth", "--objective", "pu",
        "--prior", TRUTH.mean(), "--no-report", "--out", "m",
    )  # fmt: skip
    assert code == 0, err
    model = Model.load("m")
    predicted = model.predict(model.features.matrix(table()))
    assert np.mean(predicted == TRUTH) > 0.85
    shown = " ".join(run(capsys, "show", "m")[1].split())
    assert "positive and unlabelled" in shown
    assert "count the unlabelled rows (known = 0) as negative" in shown


@pytest.mark.parametrize(
    "objective, options, estimator",
    [
        ("pu", ("--target", "known", "--exclude", "truth", "--prior", 0.4),
         estimators.PUClassifier(0.4)),
        ("partial-auc", ("--target", "truth", "--exclude", "known"),
         estimators.PartialAUCClassifier()),
    ],
)  # fmt: skip
def test_what_is_left_out_is_as_the_estimator_has_it(capsys, objective, options, estimator):
    asked = ("fit", "data.csv", "--objective", objective, *options, "--test", 0, "--no-report")
    code, _, err = run(capsys, *asked, "--out", "m")
    assert code == 0, err
    model = Model.load("m")
    X = (ROWS - ROWS.mean(axis=0)) / ROWS.std(axis=0)  # as the command standardises
    alike = estimator.fit(X, KNOWN if objective == "pu" else TRUTH)
    assert model.about["regularizer"] == alike.regularizer
    np.testing.assert_allclose(model.coef, alike.coef_, rtol=1e-6)
    code, _, err = run(capsys, *asked, "--out", "sparse", "--regularizer", "l1")
    assert code == 0, err
    assert Model.load("sparse").about["regularizer"] == "l1"
    assert not np.allclose(Model.load("sparse").coef, alike.coef_, rtol=1e-3)


def table():
    from mossp.app import tables

    return tables.read("data.csv", None)


def test_partial_auc(capsys):
    code, out, err = run(
        capsys, "fit", "data.csv", "--target", "truth", "--exclude", "known", "--objective",
        "partial-auc", "--max-fpr", 0.2, "--out", "m", "--report", "page",
    )  # fmt: skip
    assert code == 0, err  # the page, too, whose x has no intercept
    assert "partial AUC" in out
    code, out, _ = run(capsys, "predict", "m", "data.csv")
    assert code == 0 and "probability" not in out
    assert "from 0 to 0.2" in run(capsys, "show", "m")[1]


@pytest.mark.parametrize(
    "options, sentence",
    [
        (("--prior", 0.3), "--prior is for --objective pu"),
        (("--objective", "pv"), "pv"),
        (("--objective", "pu", "--max-fpr", 0.1), "are for --objective partial-auc"),
        (("--objective", "partial-auc", "--loss", "logistic"), "takes no --loss"),
    ],
)
def test_options_that_do_not_fit_together(capsys, options, sentence):
    code, _, err = run(capsys, "fit", "data.csv", "--target", "truth", *options)
    assert code != 0 and sentence in err
