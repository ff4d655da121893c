"""The table of constraints: values, bounds, slacks, and multipliers as prices."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

import mossp
from mossp import Result
from mossp.certificates.conditions import _sides, conditions
from mossp.report import constraint_rows, write_page

matplotlib.use("agg")


def limits(x):
    return {"x[0] <= 1": x[0] - 1.0, "x[1] >= 0.5": 0.5 - x[1], "pair": x[:2] - 3.0}


def bounded(first=1.0, **more):
    """min (x - 2)' (x - 2) with x_0 <= first: x = (first, 2)."""
    return mossp.Problem(
        loss=lambda x: (x - 2.0) @ (x - 2.0),
        inequality=lambda x: limits(x) | {"x[0] <= 1": x[0] - first}, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result():
    return mossp.solve(bounded(), np.zeros(2))


def test_values_slacks_and_states(result):
    found = {one.text: one for one in conditions(result.certificate, result.tol)}
    assert set(found) == {"x[0] <= 1", "x[1] >= 0.5", "pair[0]", "pair[1]"}
    first, second = found["x[0] <= 1"], found["x[1] >= 0.5"]
    assert (first.value, first.bound, first.state) == (pytest.approx(1), 1.0, "active")
    assert (second.value, second.bound, second.slack) == pytest.approx((2.0, 0.5, 1.5))
    assert second.state == "slack" and second.multiplier == 0
    assert found["pair[0]"].value == pytest.approx(-2) and found["pair[1]"].bound == 0


def test_a_multiplier_is_what_a_bound_costs(result):
    rows, price = constraint_rows(result)
    moved = mossp.solve(bounded(1.0 + 1e-4), np.zeros(2))
    multiplier = conditions(result.certificate, result.tol)[1].multiplier
    by_name = {one.text: one.multiplier for one in conditions(result.certificate, result.tol)}
    assert (result.fun - moved.fun) / 1e-4 == pytest.approx(by_name["x[0] <= 1"], rel=1e-3)
    assert rows[0].text == "x[0] <= 1" and rows[0].state == "active" and multiplier >= 0
    assert price == "One more unit of the bound of x[0] <= 1 would buy about 2 of the objective."


def test_what_conflicts_is_marked():
    clash = mossp.Problem(
        loss=lambda x: x @ x, inequality=lambda x: {"x[0] >= 1": 1 - x[0], "x[0] <= -1": x[0] + 1}
    )
    result = mossp.solve(clash, np.zeros(2))
    rows, price = constraint_rows(result)
    assert [row.state for row in rows] == ["violated, in conflict"] * 2 and price == ""
    assert "violated" in result.summary()


def test_summary_page_and_file(result, tmp_path):
    text = result.summary()
    assert "x[0] <= 1    active    value 1, slack" in text and "multiplier 2" in text
    page = write_page(result, tmp_path).read_text("utf-8")
    assert "<h2>Constraints</h2>" in page and "would buy about 2 of the objective" in page
    back = Result.load(result.save(tmp_path / "r.npz"))
    assert back.summary() == text
    free = mossp.solve(mossp.Problem(loss=lambda x: x @ x), np.ones(2))
    assert constraint_rows(free) == ([], "") and "constraints\n" not in free.summary()


def test_relations_inside_of_quotes_are_none():
    assert _sides('x["plan=pro"] <= 0.2') == ['x["plan=pro"] ', "<=", " 0.2"]
    assert _sides("norm") == ["norm"]


@pytest.mark.parametrize("group", ["sex=F", "class=lo, 'marital status'=single", "'a]b'=1"])
def test_relations_inside_of_groups_are_none(group):
    assert _sides(f"tpr[{group}] >= 0.8") == [f"tpr[{group}] ", ">=", " 0.8"]
    assert _sides(f"|tpr[{group}] - tpr[x=1]| <= 0.02")[1:] == ["<=", " 0.02"]


def test_the_intercept_stands_apart(tmp_path):
    pytest.importorskip("sklearn", reason="a linear model")
    from mossp.sklearn import MoSSPRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    model = MoSSPRegressor(lam=0.01).fit(X, X[:, 0] + 100.0)
    page = write_page(model.result_, tmp_path, names=["a", "b", "shift"]).read_text("utf-8")
    bars = page[page.index("<h2>Coefficients</h2>") : page.index("<h2>Settings</h2>")]
    assert 'width: 100.0%"' in bars.split("shift")[0] and "width" not in bars.split("shift")[1]
