"""Own data on the command line: fit, predict, show, and a problem in a Python file."""

import csv
import html
import json
import os

import matplotlib
import numpy as np
import pytest

from mossp.app import cli
from mossp.app.model import Model

pytestmark = pytest.mark.slow


matplotlib.use("agg")
pytest.importorskip("polars", reason="tables are read by polars")
pytest.importorskip("sklearn", reason="`mossp fit` is built on the estimators")

rng = np.random.default_rng(0)
N = 160
AGE, BMI, NOISE = rng.normal(50, 10, N), rng.normal(25, 4, N), rng.normal(size=N)
SEX = np.where(rng.random(N) < 0.5, "f", "m")
MARGIN = (AGE - 50) / 10 - (BMI - 25) / 4 + 0.8 * (SEX == "m") + 0.5 * rng.normal(size=N)
LABEL = np.where(MARGIN > 0, "ill", "well")
COST = 3 * (AGE - 50) / 10 + 0.2 * rng.normal(size=N)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("data.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "body mass", "noise", "sex", "cost", "label"])
        rows.writerows(zip(AGE, BMI, NOISE, SEX, COST, LABEL, strict=True))
    return tmp_path


def run(capsys, *arguments):
    code = cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return code, out, err


BASE = ("fit", "data.csv", "--target", "label", "--exclude", "cost", "--exclude", "sex")
FAST = (*BASE, "--no-report", "--regularizer", "l1:0.02")


def test_fit_predict_and_show_agree(capsys, own_folder):
    code, out, _ = run(capsys, *FAST, "--out", "m", "--test", "0.25")
    assert code == 0 and "✓ CONVERGED" in out and "Model: m" in out
    assert "area under ROC" in out and "age" in out and "mossp-report" not in out
    model = Model.load("m")
    assert model.classes.tolist() == ["ill", "well"] and model.target == "label"
    code, out, _ = run(capsys, "predict", "m", "data.csv")
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0 and len(rows) == N
    right = np.mean([row["prediction"] == label for row, label in zip(rows, LABEL, strict=True)])
    scores = model.about["scores"]
    assert right == pytest.approx(
        0.75 * scores["train"]["accuracy"] + 0.25 * scores["test"]["accuracy"]
    )
    for row in rows[:20]:
        p = [float(row[f"probability of {c}"]) for c in ("ill", "well")]
        assert sum(p) == pytest.approx(1) and (p[1] > 0.5) == (row["prediction"] == "well")
    code, out, _ = run(capsys, "show", "m", "--json")
    shown = json.loads(out)
    assert code == 0 and shown["certificate"]["holds"] is True
    assert shown["standardised"]["age"] == model.coef[0, 0]
    assert shown["coefficients"]["age"] == pytest.approx(model.coef[0, 0] / AGE.std(), rel=0.1)
    assert run(capsys, "show", "m")[1].count("body mass") == 1


@pytest.mark.slow
def test_constraints_in_conflict_are_told_before_a_search(capsys):
    """By names as a person writes them; no strength is chosen where none can help."""
    code, out, err = run(capsys, *BASE, "--no-report", "--inequality", "body mass <= 0",
                         "--inequality", "body mass >= 1")  # fmt: skip
    assert code == 1 and "violated, in" in out and "conflict" in out
    assert "No strength was chosen" in err and "cross-validation" not in out


def test_without_a_target_that_is_told_once(capsys):
    code, _, err = run(capsys, "fit", "data.csv")
    assert code == 2 and err.count("must be the target") == 1


def test_a_rare_class_that_is_hardly_decided_for_calls_for_a_threshold(capsys):
    with open("rare.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["age", "bmi", "rare"])
        rows.writerows(zip(AGE, BMI, np.arange(N) % 12 == 0, strict=True))
    rare = ("fit", "rare.csv", "--target", "rare", "--regularizer", "l1:0.02", "--no-report")
    assert "decides for more" in run(capsys, *rare)[1]
    assert "decides for more" not in run(capsys, *rare, "--threshold", "0.1")[1]


def test_the_model_is_that_of_the_estimator(capsys):
    from mossp.sklearn import MoSSPRegressor

    code, *_ = run(capsys, "fit", "data.csv", "--target", "cost", "--exclude", "label", "--exclude",
                   "sex", "--regularizer", "mcp:0.1,4", "--test", "0", "--no-report")  # fmt: skip
    assert code == 0
    X = np.column_stack([AGE, BMI, NOISE])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = MoSSPRegressor(regularizer="mcp:0.1,4").fit(X, COST)
    found = Model.load("model.mossp")
    np.testing.assert_allclose(found.coef[0], expected.coef_, atol=1e-9)
    assert found.about["scores"]["train"]["R²"] == pytest.approx(expected.score(X, COST))
    raw, intercept = found.raw_coefficients()
    again = np.column_stack([AGE, BMI, NOISE]) @ raw[0] + intercept[0]
    np.testing.assert_allclose(again, expected.predict(X), atol=1e-8)


def test_constraints_by_name_hold(capsys):
    code, out, _ = run(capsys, *FAST, "--equality", "sum(x**2) = 1", "--inequality",
                       'x["body mass"] <= 0.1', "--inequality", "intercept <= 0.05")  # fmt: skip
    model = Model.load("model.mossp")
    assert code == 0 and "feasibility" in out
    assert np.sum(model.coef**2) == pytest.approx(1, abs=1e-9)
    assert model.coef[0, 1] <= 0.1 + 1e-9 and model.intercept[0] <= 0.05 + 1e-9
    assert model.about["inequality"] == ['x["body mass"] <= 0.1', "intercept <= 0.05"]


def test_without_a_strength_it_is_chosen_and_shown_on_the_page(capsys, own_folder):
    code, out, _ = run(capsys, *BASE, "--regularizer", "l1", "--report", "page")
    assert code == 0 and "Report: page/index.html" in out
    page = (own_folder / "page" / "index.html").read_text("utf-8")
    for words in ("ROC curve", "Regularisation path", "cross-validation", "body mass",
                  "criticality", "area under ROC", "test (32 rows)"):  # fmt: skip
        assert words in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert Model.load("model.mossp").about["regularizer"].startswith("l1:0.")


def test_a_strength_chosen_by_bic_and_by_one_standard_error(capsys, own_folder):
    strengths = {}
    for choice in ("best", "1se", "bic"):
        code, *_ = run(capsys, *BASE, "--regularizer", "l1", "--choose", choice, "--report", choice)
        about = Model.load("model.mossp").about
        strengths[choice] = float(about["regularizer"].partition(":")[2])
        assert code == 0 and about["choose"] == choice
    assert strengths["1se"] >= strengths["best"]
    page = (own_folder / "bic" / "index.html").read_text("utf-8")
    assert "lowest Bayesian information criterion" in page and "cross-validation" not in page
    assert "within one standard error" in (own_folder / "1se" / "index.html").read_text("utf-8")
    code, _, err = run(capsys, *FAST, "--choose", "bic")
    assert code == 2 and "--choose bic is for a strength that is left open" in err
    code, _, err = run(capsys, *BASE, "--choose", "aic")
    assert code == 2 and "choose must be one of best, 1se, bic" in err


def test_an_offset_is_no_feature_and_is_needed_to_predict(capsys, own_folder):
    from sklearn.linear_model import PoissonRegressor

    days = np.random.default_rng(3).uniform(1, 30, N)
    visits = np.random.default_rng(4).poisson(0.1 * days * np.exp((AGE - 50) / 20))
    lines = [f"{a},{b},{d},{v}" for a, b, d, v in zip(AGE, BMI, days, visits, strict=True)]
    (own_folder / "visits.csv").write_text("\n".join(["age,bmi,days,visits", *lines]))
    code, out, _ = run(capsys, "fit", "visits.csv", "--target", "visits", "--loss", "poisson",
                       "--offset", "log(days)", "--regularizer", "ridge:0.1")  # fmt: skip
    model = Model.load("model.mossp")
    assert code == 0 and model.features.names == ("age", "bmi") and model.offset == "log(days)"
    assert "and the offset log(days), with the coefficient 1" in out
    assert "log(days)" in (own_folder / "mossp-report" / "index.html").read_text("utf-8")
    code, out, _ = run(capsys, "predict", "model.mossp", "visits.csv")
    found = np.array([float(row["prediction"]) for row in csv.DictReader(out.splitlines())])
    code, *_ = run(capsys, "fit", "visits.csv", "--target", "visits", "--loss", "poisson", "--test",
                   "0", "--offset", "log(days)", "--regularizer", "ridge:0.1")  # fmt: skip
    Z = np.column_stack([AGE, BMI])
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    theirs = PoissonRegressor(alpha=0.1 / days.mean(), tol=1e-10, max_iter=1000)
    theirs.fit(Z, visits / days, sample_weight=days)
    np.testing.assert_allclose(Model.load("model.mossp").coef[0], theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(found, days * theirs.predict(Z), rtol=0.3)
    (own_folder / "few.csv").write_text("age,bmi\n50,20\n")
    code, _, err = run(capsys, "predict", "model.mossp", "few.csv")
    assert code == 2 and "no column 'days'" in err
    (own_folder / "none.csv").write_text("age,bmi,days\n50,20,3\n40,20,0\n")
    code, _, err = run(capsys, "predict", "model.mossp", "none.csv")
    assert code == 2 and "needs positive numbers in the column 'days'" in err and "row 2" in err


def test_gamma_and_tweedie_by_name(capsys, own_folder):
    amounts = np.exp(MARGIN / 2)
    lines = [f"{a},{b},{v}" for a, b, v in zip(AGE, BMI, amounts, strict=True)]
    (own_folder / "amounts.csv").write_text("\n".join(["age,bmi,amount", *lines]))
    asked = ("fit", "amounts.csv", "--target", "amount", "--no-report")
    for loss, deviance in (("gamma", "gamma deviance"), ("tweedie:1.4", "Tweedie deviance")):
        code, out, err = run(capsys, *asked, "--loss", loss, "--regularizer", "elastic-net:0.02")
        assert code == 0 and deviance in out, err
        assert Model.load("model.mossp").predict(np.zeros((1, 2)))[0] > 0
    (own_folder / "zero.csv").write_text("\n".join(["age,bmi,amount", *lines, "50,20,0"]))
    code, _, err = run(capsys, "fit", "zero.csv", *asked[2:], "--loss", "gamma")
    assert code == 2 and "1 of 161 targets are 0: use mossp.losses.tweedie" in err


def test_fairness_narrows_the_gap(capsys):
    gaps = []
    for bound in ([], ["--sensitive", "sex", "--parity", "0.001"]):
        excluded = ("fit", "data.csv", "--target", "label", "--exclude", "cost")
        code, *_ = run(capsys, *excluded, *(bound or ["--exclude", "sex"]), "--no-report",
                       "--regularizer", "l1:0.001", "--test", "0")  # fmt: skip
        model = Model.load("model.mossp")
        X = (np.column_stack([AGE, BMI, NOISE]) - model.features.centre) / model.features.scale
        margin = X @ model.coef[0]
        gaps.append(abs(np.mean((SEX == "m") * (margin - margin.mean()))))
        assert code == 0
    assert gaps[1] <= 0.001 + 1e-9 < gaps[0]


def test_libsvm_and_parquet(capsys, own_folder):
    import polars

    polars.read_csv("data.csv").write_parquet("data.parquet")
    assert run(capsys, "fit", "data.parquet", *FAST[2:], "--out", "p")[0] == 0
    assert run(capsys, *FAST, "--out", "c")[0] == 0
    np.testing.assert_array_equal(Model.load("p").coef, Model.load("c").coef)
    lines = [f"{1 if m > 0 else -1} 1:{a} 3:{b}" for m, a, b in zip(MARGIN, AGE, BMI, strict=True)]
    (own_folder / "data.svm").write_text("\n".join(lines))
    code, *_ = run(
        capsys, "fit", "data.svm", "--no-report", "--regularizer", "l1:0.02", "--out", "s"
    )
    model = Model.load("s")
    assert code == 0 and model.features.names == ("x1", "x3") and model.features.width == 3
    code, out, _ = run(capsys, "predict", "s", "data.svm", "--out", "predictions.csv")
    assert code == 0 and out == "Predictions: predictions.csv\n"
    assert (own_folder / "predictions.csv").read_text().count("\n") == N + 1


EVIL = "[/red]\x1b[31m:apple:$x_{"


def test_names_may_hold_markup_and_escape_sequences(capsys, own_folder):
    """They crashed `fit` after the model was written, and every `show`."""
    text = (own_folder / "data.csv").read_text()
    evil = text.replace("age", f"[/age]{EVIL}").replace("label", f"[b]{EVIL}")
    evil = evil.replace("ill", f"[i]{EVIL}").replace("well", f"[w]{EVIL}")
    (own_folder / "evil.csv").write_text(evil)
    asked = ("fit", "evil.csv", "--target", f"[b]{EVIL}", "--exclude", "cost", "--exclude", "sex",
             "--regularizer", "l1:0.02")  # fmt: skip
    code, out, err = run(capsys, *asked)
    assert code == 0, err
    for said in (out, run(capsys, "show", "model.mossp")[1]):
        assert "\x1b" not in said and "[/age][/red]\\x1b[31m:apple:$x_{" in said
        assert "speak for [b][/red]\\x1b[31m:apple:$x_{ = [w][/red]" in said
    page = (own_folder / "mossp-report" / "index.html").read_text("utf-8")
    assert "\x1b" not in page and "[/age][/red]\\x1b[31m" in page
    code, out, err = run(capsys, "fit", "evil.csv", "--target", "\x1b[31m\0" + "t" * 450)
    assert code == 2 and "\x1b" not in err and len(err) < 400 and err.count("\n") == 1
    code, out, err = run(capsys, "show", "\x1b[31mnothing")
    assert code == 2 and "\x1b" not in err and "\\x1b[31mnothing" in err


def test_one_large_index_is_no_dense_work(capsys, own_folder):
    """This line of 32 bytes kept it busy for more than a minute, at 3 GB."""
    lines = [
        f"{1 if m > 0 else -1} 1:{a:.3f} 3:{b:.3f}"
        for m, a, b in zip(MARGIN, AGE, BMI, strict=True)
    ]
    (own_folder / "wide.svm").write_text("\n".join([*lines, "1 1:50 3:20 10000000:0.5"]))
    fit = ("fit", "wide.svm", "--no-report", "--regularizer", "l1:0.02", "--test", "0")
    code, *_ = run(capsys, *fit)
    model = Model.load("model.mossp")
    assert code == 0 and model.features.names == ("x1", "x3", "x10000000")
    assert os.path.getsize("model.mossp") < 10_000
    assert run(capsys, "predict", "model.mossp", "wide.svm")[0] == 0
    assert run(capsys, "show", "model.mossp")[0] == 0
    code, _, err = run(capsys, *fit, "--inequality", "x[1] <= 0.1", "--inequality", "x3 <= 0.2")
    assert code == 0 and "x[0] in a constraint is x1: names such as x3 keep their numbers" in err
    assert Model.load("model.mossp").coef[0, 1] <= 0.1 + 1e-9


def test_three_classes_and_a_test_file(capsys, own_folder):
    text = (own_folder / "data.csv").read_text().splitlines()
    third = [line.replace("well", "fine") if i % 3 == 0 else line for i, line in enumerate(text)]
    (own_folder / "three.csv").write_text("\n".join(third))
    (own_folder / "more.csv").write_text("\n".join(third[:60]))
    code, out, _ = run(capsys, "fit", "three.csv", *FAST[2:], "--test-file", "more.csv",
                       "--inequality", "x[0, 1] <= 0.1")  # fmt: skip
    model = Model.load("model.mossp")
    assert code == 0 and model.coef.shape == (3, 3) and model.loss == "softmax"
    assert model.coef[1, 0] <= 0.1 + 1e-9 and "class" in out
    code, out, _ = run(capsys, "show", "model.mossp", "--json")
    assert set(json.loads(out)["coefficients"]) == {"fine", "ill", "well"}


WRONG = {
    "Did you mean 'ridge'": (*BASE, "--regularizer", "l2:0.1"),
    "no column 'dys'": (*FAST, "--offset", "log(dys)"),
    "no such file": ("fit", "nowhere.csv", "--target", "label"),
    "no column 'labl' (did you mean 'label'?)": ("fit", "data.csv", "--target", "labl"),
    "must be the target": ("fit", "data.csv"),
    "no column 'nothing'": (*FAST, "--exclude", "nothing"),
    "There is no loss 'logistik'": (*FAST, "--loss", "logistik"),
    "Did you mean 'mcp'": (*FAST, "--regularizer", "mpc:0.1"),
    "numbers are needed": (*FAST, "--regularizer", "l1:abc"),
    "holds text such as": (*FAST, "--loss", "squared"),
    "constrains nothing": (*FAST, "--equality", "1 = 1"),
    "There is no column `agee`": (*FAST, "--inequality", "agee <= 1"),
    "is an inequality": (*FAST, "--equality", "age <= 1"),
    "--test must be": (*FAST, "--test", "1.5"),
    "--parity needs --sensitive": (*FAST, "--parity", "0.1"),
    "There is no folder": (*FAST, "--out", "no/where/m"),
    "no method": (*FAST, "--method", "sgd"),
    "must name a folder": (*BASE, "--report", "data.csv"),
    "There is no file": ("predict", "m", "nowhere.csv"),
    "damaged, or not a model": ("predict", "data.csv", "data.csv"),
    "could not be read": ("show", "nowhere"),
    "Invalid value": (*FAST, "--steps", "many"),
    "FILE.py:NAME": ("solve", "data.csv:problem"),
    "steps must be at least 1": (*FAST, "--steps", "0"),
}


def test_a_model_given_after_its_data_is_told_from_a_damaged_one(capsys, own_folder):
    assert run(capsys, *FAST, "--out", "m")[0] == 0
    code, out, err = run(capsys, "predict", "data.csv", "m")
    assert code == 2 and out == "" and "the model comes first: mossp predict m data.csv" in err


@pytest.mark.parametrize(("says", "arguments"), list(WRONG.items()), ids=list(WRONG))
def test_wrong_input_is_one_sentence_and_nothing_is_overwritten(
    says, arguments, capsys, own_folder
):
    (own_folder / "model.mossp").write_text("precious")
    (own_folder / "m").write_text("x")
    if arguments[0] == "predict" and says.startswith("There is no"):
        assert run(capsys, *FAST, "--out", "m")[0] == 0
    before = {p.name: p.read_bytes() for p in own_folder.iterdir() if p.is_file()}
    code, out, err = run(capsys, *arguments)
    assert code == 2 and out == "" and "Traceback" not in err
    assert err.startswith("mossp: ") and says.replace("no such file", "There is no file") in err
    assert {p.name: p.read_bytes() for p in own_folder.iterdir() if p.is_file()} == before


def test_a_wrong_expression_has_its_caret(capsys):
    code, _, err = run(capsys, *FAST, "--inequality", "age + __import__('os').system('ls') <= 1")
    first, text, caret = err.removeprefix("mossp: ").rstrip("\n").split("\n")
    assert code == 2 and first and text.startswith("age +") and caret.strip() == "^"
    assert caret.index("^") == text.index(".system") and "dot" in first


@pytest.mark.parametrize(("change", "says"), [
    (lambda t: t.replace("ill", "well"), "at least 2 classes"),
    (lambda t: t.replace(f"{AGE[3]}", "NA", 1), "1 missing value, first in row 4"),
    (lambda t: t.replace(f"{AGE[3]}", "inf", 1), "infinite value"),
    (lambda t: t.splitlines()[0] + "\n", "no rows"),
    (lambda t: t.replace("\n", ",1\n", 2).replace(",1\n", "\n", 1), "line 2"),
])  # fmt: skip
def test_bad_data_is_one_sentence(change, says, capsys, own_folder):
    path = own_folder / "data.csv"
    path.write_text(change(path.read_text()))
    code, out, err = run(capsys, *FAST)
    assert code == 2 and not out and says in err and not os.path.exists("model.mossp")


def test_a_model_that_is_cut_short_is_refused(capsys, own_folder):
    assert run(capsys, *FAST)[0] == 0
    whole = (own_folder / "model.mossp").read_bytes()
    (own_folder / "model.mossp").write_bytes(whole[: len(whole) // 2])
    code, out, err = run(capsys, "predict", "model.mossp", "data.csv")
    assert code == 2 and not out and err.count("\n") == 1 and "damaged" in err


def test_a_column_that_is_missing_from_the_rows_to_predict(capsys, own_folder):
    assert run(capsys, *FAST)[0] == 0
    (own_folder / "few.csv").write_text("age,noise\n50,0\n")
    code, out, err = run(capsys, "predict", "model.mossp", "few.csv")
    assert code == 2 and not out and "no column 'body mass', which the model needs" in err


def test_no_certificate_is_exit_code_one_and_said(capsys):
    code, out, err = run(capsys, *FAST, "--method", "mossp-r", "--steps", "5", "--tol", "1e-9")
    assert code == 1 and "✗ BUDGET" in out and "does not hold" in err
    assert "does NOT hold" in run(capsys, "show", "model.mossp")[1]


SCRIPT = """
import jax.numpy as jnp, mossp
names = ["a", "b"]
x0 = [1.0, 0.0]
problem = mossp.Problem(loss=lambda x: x[0] + x[1], equality=lambda x: x @ x - 2.0)
def made():
    return problem, [0.0, 1.0]
def broken():
    return 1 / 0
number = 3
free = mossp.Problem(loss=lambda x: jnp.sum((x - 1) ** 2))
"""


def test_a_problem_in_a_python_file(capsys, own_folder):
    (own_folder / "p.py").write_text(SCRIPT)
    for which in ("p.py:problem", "p.py", "p.py:made"):
        code, out, _ = run(capsys, "solve", which, "--json", "--no-report")
        found = json.loads(out)
        assert code == 0 and found["x"] == pytest.approx({"a": -1.0, "b": -1.0})
    assert run(capsys, "solve", "p.py:problem", "--out", "r")[0] == 0
    assert "p.py:problem" in (own_folder / "r" / "index.html").read_text("utf-8")
    (own_folder / "q.py").write_text("from p import free\n")
    for which, says in {
        "p.py:nothing": "nothing called 'nothing'; its problems are problem, free",
        "p.py:number": "must be a mossp.Problem",
        "p.py:broken": "line 9: ZeroDivisionError",
        "q.py:free": "does not say where to start",
        "gone.py:problem": "There is no file gone.py",
    }.items():
        code, out, err = run(capsys, "solve", which)
        assert code == 2 and not out and says in err and err.count("\n") == 1, which
    (own_folder / "bad.py").write_text("x = (\n")
    code, _, err = run(capsys, "solve", "bad.py")
    assert code == 2 and "line 1: SyntaxError" in err


IMPOSSIBLE = ("--inequality", "age <= -1", "--inequality", "age >= 1")


def test_what_cannot_hold_is_named_and_replaces_no_good_model(capsys, own_folder):
    assert run(capsys, *FAST)[0] == 0
    good = (own_folder / "model.mossp").read_bytes()
    assert run(capsys, "predict", "model.mossp", "data.csv")[2] == ""  # nothing to warn of
    code, out, err = run(capsys, *FAST, *IMPOSSIBLE)
    assert code == 1 and "✗ INFEASIBLE_STATIONARY" in out
    both = "'age <= -1' (violated by 1) and 'age >= 1' (violated by 1) cannot both hold"
    for said in (out, err):  # the verdict, and the warning of the estimator
        assert both in " ".join(said.split())
    assert "model.mossp was not replaced" in err and "--force" in err
    assert (own_folder / "model.mossp").read_bytes() == good
    code, out, err = run(capsys, *FAST, *IMPOSSIBLE, "--force")
    assert code == 1 and "the older one is replaced" in out and "not replaced" not in err
    code, out, err = run(capsys, "predict", "model.mossp", "data.csv")
    assert code == 0 and len(out.splitlines()) == N + 1
    [warning] = err.splitlines()
    assert "did not succeed (INFEASIBLE_STATIONARY)" in warning and "violated by 1.4" in warning
    # A model that is no good is replaced by any other.
    assert run(capsys, *FAST, *IMPOSSIBLE)[0] == 1
    assert "INFEASIBLE_STATIONARY" in run(capsys, "show", "model.mossp")[1]
    code, out, _ = run(capsys, *FAST)
    assert code == 0 and "the older one is replaced" in out


def test_the_page_names_what_cannot_hold(capsys, own_folder):
    script = (
        SCRIPT
        + """
clash = mossp.Problem(
    loss=lambda x: x @ x, inequality=lambda x: {"high": 1.0 - x[0], "low": x[0] + 1.0}
)
"""
    )
    (own_folder / "p.py").write_text(script)
    code, out, _ = run(capsys, "solve", "p.py:clash", "--out", "r")
    both = "'high' (violated by 1) and 'low' (violated by 1) cannot both hold"
    assert code == 1 and both in " ".join(out.split())
    page = (own_folder / "r" / "index.html").read_text("utf-8")
    assert both in html.unescape(page)


def test_a_real_table_in_one_command(capsys, own_folder):
    """Gaps, dates, an id and a limit in the data's own units."""
    start = np.datetime64("2021-01-05")
    lines = ["client;joined;age;plan;label"]
    for i in range(N):
        day = str(start + 3 * i).split("-")[::-1]
        age = "" if i % 17 == 0 else f"{AGE[i]:.2f}".replace(".", ",")
        lines.append(f"C{i};{'.'.join(day)};{age};{SEX[i]};{'' if i == 5 else LABEL[i]}")
    (own_folder / "real.csv").write_text("\n".join(lines))
    asked = ("fit", "real.csv", "--target", "label", "--regularizer", "l1:0.01", "--no-report")
    code, _, err = run(capsys, *asked)
    assert (
        code == 2 and "real.csv has 3 faults" in err and "--missing impute --exclude client" in err
    )
    code, out, err = run(capsys, *asked, "--id", "client", "--missing", "impute", "--units", "data",
                         "--inequality", "age >= -0.01", "--inequality", "plan=m <= 0.1",
                         "--cyclic", "joined:year")  # fmt: skip
    model = Model.load("model.mossp")
    raw = dict(zip(model.features.names, model.raw_coefficients()[0][0], strict=True))
    assert code == 0 and raw["age"] >= -0.01 - 1e-12 and raw["plan=m"] <= 0.1 + 1e-12
    assert raw["age"] == pytest.approx(-0.01)  # it is held back
    assert {"joined: sin of year", "age is missing"} <= set(raw)
    for part in ("1 row of real.csv without a value in 'label'", "decimal commas", "days since"):
        assert part in err
    code, out, _ = run(capsys, "predict", "model.mossp", "real.csv")
    rows = list(csv.DictReader(out.splitlines()))
    assert code == 0 and [row["client"] for row in rows] == [f"C{i}" for i in range(N)]
    assert "units of the data" in run(capsys, "show", "model.mossp")[1]
    code, _, err = run(capsys, *asked, "--id", "client", "--missing", "drop")
    assert code == 0 and "11 rows of real.csv" in err
    code, _, err = run(capsys, *asked, "--missing", "guess")
    assert code == 2 and "--missing must be one of refuse, impute, drop" in err


def test_scoring_and_a_threshold(capsys, own_folder):
    code, out, err = run(capsys, *BASE, "--regularizer", "l1", "--scoring", "average-precision",
                         "--threshold", "recall>=0.9", "--report", "page")  # fmt: skip
    model = Model.load("model.mossp")
    assert code == 0 and 0 < model.threshold < 1, err
    assert model.about["scores"]["train"]["recall"] >= 0.9
    assert model.about["scoring"] == "average_precision" and "1-SE" in out
    assert "taken for well" in out and "recall>=0.9 on the training rows" in out
    page = (own_folder / "page" / "index.html").read_text("utf-8")
    assert "Decisions" in page and "taken for ill" in page
    code, out, _ = run(capsys, "predict", "model.mossp", "data.csv")
    for row in csv.DictReader(out.splitlines()):
        likely = float(row["probability of well"]) > model.threshold
        assert (row["prediction"] == "well") == likely
    for wrong, says in (
        (("--scoring", "acuracy"), "no scoring 'acuracy'"), (("--threshold", "1.5"), "0 and 1"),
        (("--threshold", "often"), "--threshold must be"),
    ):  # fmt: skip
        code, _, err = run(capsys, *BASE, "--no-report", "--regularizer", "l1", *wrong)
        assert code == 2 and says in err
