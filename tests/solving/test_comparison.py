"""Several runs side by side, and results that are pleasant to hold."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

import mossp

matplotlib.use("agg")


def ring(**more):
    return mossp.Problem(loss=lambda x: x[0] + x[1], equality=lambda x: x @ x - 2.0, **more)


@pytest.fixture(scope="module")
def found():
    # imba-dc takes no equalities.
    return mossp.compare(ring(), [1, 0], ["auto", "mossp-r", "imba-dc"], steps=2000, tol=1e-3)


def test_a_table_of_methods(found):
    assert list(found.results) == ["auto", "mossp-r"] and "equalit" in found.refused["imba-dc"]
    lines = repr(found).splitlines()
    assert lines[0].split() == ["method", "status", "objective", "violation", "residual",
                                "nonzero", "gradients", "s"]  # fmt: skip
    assert lines[1].split()[:3] == ["auto", "CONVERGED", "-2"] and lines[3].startswith("imba-dc: ")
    alone = mossp.solve(ring(), np.array([1.0, 0.0]), method="mossp-r", steps=2000, tol=1e-3)
    np.testing.assert_array_equal(found.results["mossp-r"].x, alone.x)
    with pytest.raises(ValueError, match="steps must be"):  # what is wrong for all is told
        mossp.compare(ring(), [1.0, 0.0], ["auto", "mossp-r"], steps=0)
    with pytest.raises(TypeError, match="must be a list"):
        mossp.compare(ring(), [1.0, 0.0], "auto")


def test_a_figure_of_several_runs(found, tmp_path):
    figure = found.plot(path=tmp_path / "c.svg")
    assert len(figure.axes) == 6 and "‖x − y‖" in (tmp_path / "c.svg").read_text("utf-8")
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["auto", "mossp-r"]
    runs = list(found.results.values())
    named = mossp.plot(runs, labels=["$a", "b"], path=tmp_path / "d.png")
    assert [t.get_text() for t in named.axes[0].get_legend().get_texts()] == ["$a", "b"]
    free = mossp.solve(mossp.Problem(loss=lambda x: x @ x), [1.0, 2.0], steps=50)
    assert len(mossp.plot([free, free], path=tmp_path / "e.png").axes) == 4
    for wrong, part in (([], "list of Results"), ([1], "list of Results")):
        with pytest.raises(TypeError, match=part):
            mossp.plot(wrong)
    with pytest.raises(ValueError, match="one text for each of the 2"):
        mossp.plot(runs, labels=["a"])


def test_five_lines(found):
    text = repr(found.results["auto"])
    assert len(text.splitlines()) == 5
    for part in ("Result: CONVERGED", "2 of 2 nonzero: [-1., -1.]", "F(x)         -2", "holds at"):
        assert part in text
    assert "does NOT hold" in repr(mossp.solve(ring(), [1.0, 0.0], method="mossp-r", steps=3,
                                               tol=1e-9))  # fmt: skip


def test_a_list_of_numbers_is_a_vector(found):
    result = mossp.solve(ring(), [1, 0], steps=2000, tol=1e-3)
    assert isinstance(result.x, np.ndarray) and result.x.shape == (2,)
    np.testing.assert_array_equal(result.x, found.results["auto"].x)
    assert mossp.stationarity(ring(), [-1, -1]) < 1e-9
