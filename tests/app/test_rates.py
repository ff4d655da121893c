"""`mossp fit --rate`: what is asked, reached, printed, kept and shown."""

import csv
import functools
import json

import matplotlib
import numpy as np
import pytest

from mossp.app import cli
from mossp.app.model import Model
from mossp.sklearn import PathCV

pytestmark = pytest.mark.slow

matplotlib.use("agg")
pytest.importorskip("polars", reason="tables are read by polars")
pytest.importorskip("sklearn", reason="`mossp fit` is built on the estimators")

rng = np.random.default_rng(0)
N = 600
SEX = rng.choice(["f", "m"], N)
AGE, MASS = rng.normal(50, 10, N) + 4 * (SEX == "m"), rng.normal(25, 4, N)
LABEL = np.where((AGE - 50) / 10 - (MASS - 25) / 4 + rng.logistic(size=N) > 0.3, "yes", "no")
ASKED = ("fpr <= 0.15", "tpr['the sex'=f] >= 0.45")
FIT = ("fit", "data.csv", "--target", "label", "--regularizer", "l1:0.01", "--exclude", "the sex")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("data.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "body mass", "the sex", "label"])
        rows.writerows(zip(AGE, MASS, SEX, LABEL, strict=True))
    return tmp_path


def run(capsys, *arguments):
    code = cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_rates_are_met_printed_kept_and_shown(capsys, own_folder, monkeypatch):
    monkeypatch.setattr("mossp.app.fitting.page.STRENGTHS", 2)  # each is a search of its own
    rates = [part for text in ASKED for part in ("--rate", text)]
    code, out, err = run(capsys, *FIT, *rates, "--test", "0.25", "--report", "page")
    assert code == 0, err
    model = Model.load("model.mossp")
    kept = model.about["rates"]
    assert list(kept) == list(ASKED)
    assert kept["fpr <= 0.15"]["train"] <= 0.15 + 1e-9
    assert kept[ASKED[1]]["train"] >= 0.45 - 1e-9
    for seen in kept.values():
        assert seen["low"] <= seen["test"] <= seen["high"]
    # All rows together are those of both parts: the false positives must add up.
    X = (np.column_stack([AGE, MASS]) - model.features.centre) / model.features.scale
    decided = model.predict(X) == "yes"
    shares = [kept["fpr <= 0.15"][part] for part in ("train", "test")]
    assert min(shares) - 1e-9 <= decided[LABEL == "no"].mean() <= max(shares) + 1e-9
    page = (own_folder / "page" / "index.html").read_text("utf-8")
    for words in ("fpr &lt;= 0.15", "reached (training rows)", "95 % interval there"):
        assert words in page
    for text in (out, run(capsys, "show", "model.mossp")[1]):
        assert "fpr <= 0.15" in text and "95 % interval" in text
    assert "rate: fpr <= 0.15" in run(capsys, "show", "model.mossp")[1]
    shown = json.loads(run(capsys, "show", "model.mossp", "--json")[1])
    assert shown["rates"]["fpr <= 0.15"] == kept["fpr <= 0.15"]


def test_rates_that_are_not_met_end_with_another_code(capsys, monkeypatch):
    """Here, what is told of a search without success; tests/sklearn has a whole one."""
    monkeypatch.setattr("mossp.sklearn.rates.SHARPENED", 1)
    monkeypatch.setattr("mossp.sklearn.rates.WEAKER", ())
    code, out, err = run(capsys, *FIT, "--rate", "tpr >= 0.99", "--rate", "fpr <= 0.01",
                         "--no-report", "--test", "0")  # fmt: skip
    assert code == 1 and "No coefficients were found whose true rates" in out + err
    model = Model.load("model.mossp")
    assert model.certified is False and "test" not in model.about["rates"]["fpr <= 0.01"]


def test_a_strength_is_chosen_under_rates_and_a_column_is_protected(capsys, monkeypatch):
    monkeypatch.setattr("mossp.app.fitting.fit.FOLDS", 2)
    monkeypatch.setattr("mossp.app.fitting.fit.PathCV", functools.partial(PathCV, lams=3))
    code, *_ = run(capsys, "fit", "data.csv", "--target", "label", "--sensitive", "the sex",
                   "--regularizer", "l1", "--rate", "|selection['the sex'=f] - "
                   "selection['the sex'=m]| <= 0.05", "--no-report", "--test", "0")  # fmt: skip
    model = Model.load("model.mossp")
    assert code == 0 and list(model.features.names) == ["age", "body mass"]
    X = (np.column_stack([AGE, MASS]) - model.features.centre) / model.features.scale
    decided = model.predict(X) == "yes"
    assert abs(decided[SEX == "f"].mean() - decided[SEX == "m"].mean()) <= 0.05 + 1e-9


WRONG = {
    "There is no rate `frp`: did you mean `fpr`?": ("--rate", "frp <= 0.1"),
    "no column 'sex' (did you mean 'the sex'?)": ("--rate", "fpr[sex=f] <= 0.1"),
    "asks for the sex=x": ("--rate", "fpr['the sex'=x] <= 0.1"),
    "contradict each other": ("--rate", "fpr <= 0.1", "--rate", "fpr >= 0.2"),
    "--rates-margin is for bounds on rates": ("--rates-margin", "0.9"),
    "a confidence from 0.5 to below 1": ("--rate", "fpr <= 0.1", "--rates-margin", "90"),
}


@pytest.mark.parametrize(("says", "arguments"), list(WRONG.items()), ids=list(WRONG))
def test_wrong_rates_are_one_sentence(says, arguments, capsys, own_folder):
    code, out, err = run(capsys, *FIT, "--no-report", *arguments)
    assert code == 2 and out == "" and says in err and "Traceback" not in err
    assert not (own_folder / "model.mossp").exists()


def test_a_wrong_rate_has_its_caret(capsys):
    _, _, err = run(capsys, *FIT, "--rate", "0.1 >= frp")
    _, text, caret = err.removeprefix("mossp: ").rstrip("\n").split("\n")
    assert caret.index("^") == text.index("frp")
