"""Figures and the page: whatever the result, they are drawn, and nothing from outside gets in."""

import dataclasses
import os
import sys
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest

import mossp
from mossp import report
from mossp.report import numbers, wording

matplotlib.use("agg")

EVIL = "<script>alert(1)</script>\"'&$x_{"


STEERING = "red\x1b[31m NUL\0 half\ud800 bell\x07 next\x85 turn\u202e"


def test_a_page_holds_nothing_that_a_page_cannot(one, tmp_path):
    """The last of them, half a surrogate pair, could not be written at all."""
    extra = report.Extra(STEERING, (STEERING, ""), [(STEERING, STEERING)], [], STEERING)
    names = [STEERING, "a\nb"]
    path = report.write_page(one, tmp_path, title=STEERING, names=names, extras=[extra])
    text = path.read_text("utf-8")
    assert not set(text) & set(STEERING + "\r") - {c for c in STEERING if c.isprintable()}
    assert r"red\x1b[31m NUL\x00 half\ud800" in text
    figure = report.plot(one, names=names)
    figure.canvas.draw()


@pytest.fixture(scope="module")
def one():
    problem = mossp.Problem(loss=lambda x: x[0] + 0.5 * x[1], equality=lambda x: x @ x - 1.0)
    return mossp.solve(problem, np.array([0.6, 0.8]), steps=400)


@pytest.fixture(scope="module")
def many():
    A = np.random.default_rng(0).normal(size=(64, 5))
    problem = mossp.Problem(
        loss=mossp.losses.squared,
        data=(A, A @ np.array([1.0, -1.0, 0.0, 0.0, 0.0])),
        regularizer=mossp.L1MinusL2(0.05),
        inequality=lambda x: x @ x - 1.0,
    )
    return mossp.solve(problem, np.zeros(5), steps=400, replicas=3, batch_size=8)


@pytest.fixture(scope="module")
def tree():
    """A pytree without constraints."""
    problem = mossp.Problem(loss=lambda x: (x["w"] ** 2).sum() + (x["b"] - 2.0) ** 2)
    return mossp.solve(problem, {"w": np.ones((2, 3)), "b": np.array(0.0)}, steps=200)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(params=["one", "many", "tree"])
def any_result(request):
    return request.getfixturevalue(request.param)


def broken(result):
    """With NaN and infinity wherever a run can leave them."""
    trace = result.trace
    objective, violation = trace.objective.copy(), trace.violation.copy()
    objective[-1:], violation[-1:] = np.nan, np.inf
    nan = float("nan")
    certificate = dataclasses.replace(result.certificate, criticality=nan, feasibility=nan)
    return dataclasses.replace(
        result, fun=nan, violation=nan, success=False, status=mossp.Status.NONFINITE,
        message=mossp.Status.NONFINITE.value, certificate=certificate,
        trace=trace._replace(objective=objective, violation=violation),
    )  # fmt: skip


def first_row(result):
    trace = result.trace
    cut = {name: getattr(trace, name)[:1] for name in trace._fields if name != "rows"}
    return dataclasses.replace(result, trace=trace._replace(**cut))


class Page(HTMLParser):
    """What a page is made of."""

    VOID = {"meta", "br", "hr", "img", "link", "input"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.words = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def read(result, tmp_path, **options):
    path = report.write_page(result, tmp_path / "made" / "here", **options)
    assert path == tmp_path / "made" / "here" / "index.html"
    return Page(path.read_text("utf-8")), path.read_text("utf-8")


# The figure.


def test_plot_draws_a_panel_for_each_part(one, tree):
    assert [a.get_ylabel() for a in report.plot(one).axes] == [
        "objective F(x)",
        "violation ‖c(x)‖",
        "coefficient",
    ]
    assert [a.get_ylabel() for a in report.plot(tree).axes] == ["objective F(x)", "coefficient"]


@pytest.mark.parametrize("change", [lambda r: r, broken, first_row], ids=["whole", "nan", "row"])
def test_plot_is_saved_whatever_the_result(any_result, change, tmp_path):
    path = tmp_path / "figure.png"
    report.plot(change(any_result), path=path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plot_shows_all_replicas(many):
    objective = report.plot(many).axes[0]
    assert len(objective.collections) == 1  # the band
    np.testing.assert_allclose(objective.lines[0].get_ydata(), many.trace.objective.mean(axis=1))


def test_plot_marks_the_returned_point(one):
    objective = report.plot(one).axes[0]
    assert objective.lines[-1].get_xydata().tolist() == [[one.gradients, one.fun]]


def test_plot_draws_on_given_axes(one):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3)
    assert report.plot(one, ax=axes[0]) is figure
    assert axes[0].lines and not axes[1].lines
    report.plot(one, ax=axes)
    assert axes[2].patches
    with pytest.raises(TypeError, match="matplotlib Axes"):
        report.plot(one, ax="here")
    with pytest.raises(ValueError, match="fills 3 Axes"):
        report.plot(one, ax=[*axes, axes[0]])


def test_plot_takes_any_name_as_it_is(one, tmp_path):
    figure = report.plot(one, path=tmp_path / "figure.svg", names=[EVIL, "$\\frac{$"])
    labels = figure.axes[2].get_xticklabels()
    assert [label.get_text() for label in labels] == ["<script>alert(1)<…'&$x_{", "$\\frac{$"]
    assert not any(label.get_parse_math() for label in labels)


def test_plot_with_zero_coefficients_and_zero_violation(one):
    result = dataclasses.replace(
        one, x=np.zeros(2), violation=0.0,
        trace=one.trace._replace(violation=np.zeros_like(one.trace.violation)),
    )  # fmt: skip
    figure = report.plot(result)
    figure.canvas.draw()
    _, violation, coefficients = figure.axes
    assert violation.get_yscale() == "log" and (violation.lines[0].get_ydata() > 0).all()
    assert not coefficients.patches and np.isfinite(coefficients.get_ylim()).all()


def test_without_matplotlib_the_error_names_the_package(one, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"plot needs matplotlib: pip install 'mossp\[plot\]'"):
        report.plot(one)


# The page.


def test_page_says_what_happened(many, tmp_path):
    page, _ = read(many, tmp_path, title="My run", names=list("abcde"))
    assert ("✓ Solved." if many.success else "✗ Not solved") in page.text
    assert many.status.name in page.text
    for words in (
        "My run", numbers.value(many.fun), numbers.residual(many.certificate.criticality),
        "complementarity", "smallest multiplier", "Over all replicas", "How to read this",
        mossp.__version__, "jax", "numpy", "python", numbers.count(many.gradients), "exactly zero",
    ):  # fmt: skip
        assert words in page.text
    assert page.tags.count("svg") == 2


@pytest.mark.parametrize("change", [lambda r: r, broken, first_row], ids=["whole", "nan", "row"])
def test_page_is_one_whole_file_that_fetches_nothing(any_result, change, tmp_path):
    page, text = read(change(any_result), tmp_path)
    assert page.open == []
    assert not {"script", "link", "iframe", "img", "object", "embed"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            assert value.startswith("#"), (tag, name, value)
    assert "http://" not in text and "https://" not in text and "@import" not in text
    assert ("meta", "name", "viewport") in page.attributes
    assert "prefers-color-scheme: dark" in text
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_page_escapes_what_comes_from_outside(one, tmp_path):
    result = dataclasses.replace(
        one, message=EVIL, success=False, settings={**one.settings, EVIL: EVIL, "method": EVIL}
    )
    page, text = read(result, tmp_path, title=EVIL, names=[EVIL, EVIL])
    assert "<script" not in text
    assert "script" not in page.tags
    assert page.text.count("<script>alert(1)</script>") >= 7


def test_page_never_claims_success_without_a_certificate(one, tmp_path):
    page, _ = read(broken(one), tmp_path)
    assert "✗ Not solved" in page.text and "✓ Solved" not in page.text
    assert "NONFINITE" in page.text
    assert "✗ no" in page.text


def test_page_of_a_large_result_shows_the_largest_entries(one, tmp_path):
    result = dataclasses.replace(one, x=np.arange(1000.0))
    page, _ = read(result, tmp_path)
    assert "The 200 largest of 999" in page.text
    assert "x[999]" in page.text and "x[500]" not in page.text


def test_page_is_the_same_for_the_same_result(one, tmp_path):
    assert read(one, tmp_path)[1] == read(one, tmp_path)[1]
    assert os.listdir(tmp_path / "made" / "here") == ["index.html"]


def test_wrong_number_of_names_is_said(one, tmp_path):
    with pytest.raises(ValueError, match="x has 2 entries, but 3 names were given"):
        report.write_page(one, tmp_path, names=["a", "b", "c"])


def test_a_folder_that_cannot_be_made_is_said(one, tmp_path):
    (tmp_path / "file").write_text("here first")
    with pytest.raises(OSError, match=r"report cannot be written into .*file"):
        report.write_page(one, tmp_path / "file")


def test_a_page_that_cannot_be_replaced_leaves_no_draft(one, tmp_path):
    (tmp_path / "index.html").mkdir()
    with pytest.raises(OSError, match="cannot be written"):
        report.write_page(one, tmp_path)
    assert os.listdir(tmp_path) == ["index.html"]


# Words and rows.


def test_rows_agree_with_the_verdict(any_result):
    rows = wording.certificate_rows(any_result)
    needed = [row.holds for row in rows if row.holds is not None]
    assert all(needed) == any_result.certificate.is_kkt(any_result.tol, relative=True)


def test_nan_does_not_hold(one):
    rows = {row.name: row.holds for row in wording.certificate_rows(broken(one))}
    assert rows["criticality"] is False and rows["feasibility"] is False


def test_coefficients_are_named_by_their_place(tree):
    x = {"w": np.array([[0.0, 1.0, -3.0]]), "b": np.array(2.0)}
    entries = wording.coefficients(dataclasses.replace(tree, x=x))
    assert entries == [("w[0, 2]", -3.0), ("b", 2.0), ("w[0, 1]", 1.0)]
