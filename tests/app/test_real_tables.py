"""Tables as people have them: missing values, dates, other separators, ids, several faults."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pytest

from mossp.app.features import Features
from mossp.app.tables import Table, TableError, TableErrors, numbers_in, read

pl = pytest.importorskip("polars", reason="CSV files need polars")


def frame(**columns) -> Table:
    return Table(Path("memory"), pl.DataFrame(columns))


def again(features: Features) -> Features:
    return Features.from_meta(json.loads(json.dumps(features.to_meta())))


# Missing values ---------------------------------------------------------------------------------


def test_missing_values_are_filled_in_with_an_indicator():
    sklearn = pytest.importorskip("sklearn.impute", reason="what is compared with")
    rng = np.random.default_rng(0)
    age = np.where(rng.random(60) < 0.2, np.nan, rng.normal(40, 9, 60))
    plan = rng.choice(["basic", "pro", "pro", None], 60)
    table = frame(age=age, plan=plan.tolist(), full=np.arange(60.0), y=[0] * 60)
    train = np.arange(40)
    features = Features.learn(table, "y", rows=train, impute=True, standardize=False)
    assert features.names == (
        "age", "age is missing", "plan=basic", "plan=pro", "plan is missing", "full",
    )  # fmt: skip
    imputer = sklearn.SimpleImputer(strategy="median", add_indicator=True).fit(age[train, None])
    X = features.matrix(table)
    np.testing.assert_allclose(X[:, :2], imputer.transform(age[:, None]))
    absent = np.array([p is None for p in plan])
    assert (X[absent, 3] == 1).all() and (X[:, 4] == absent).all()  # pro is the most frequent
    assert again(features) == features
    np.testing.assert_array_equal(again(features).matrix(table), X)
    # Gaps that the training rows did not have: the typical value, and a warning.
    gap = frame(age=[1.0], plan=["pro"], full=[None])
    with pytest.warns(
        UserWarning, match="'full' of memory has 1 missing value, which the training"
    ):
        assert features.matrix(gap)[0, -1] == np.median(np.arange(40))


def test_a_column_without_any_value_cannot_be_filled_in():
    empty = frame(a=[None, None, 1.0], n=[1.0, 2, 3], y=[0, 1, 0])
    with pytest.raises(TableError, match="'a' of memory has no value in the training rows"):
        Features.learn(empty, "y", rows=[0, 1], impute=True)


def test_all_faults_of_all_columns_are_told_at_once():
    table = frame(
        a=[1.0, None, 2.0], b=["x", "y", "z"], c=[1.0, np.inf, 2.0], d=[[1], [2], [3]], n=[1, 2, 3],
        y=[0, 1, 0],
    )  # fmt: skip
    with pytest.raises(TableErrors) as caught:
        Features.learn(table, "y")
    first, *lines, options = str(caught.value).splitlines()
    assert first == "memory has 4 faults:" and len(lines) == 4
    for line, part in zip(
        lines, ("'a' of memory has 1 missing", "'b' of", "1 infinite", "of the type List"),
        strict=True,
    ):  # fmt: skip
        assert part in line
    assert options.endswith(": --missing impute --exclude b --exclude c --exclude d")
    assert Features.learn(table, "y", exclude=list("bcd"), impute=True).names[0] == "a"


# Dates ------------------------------------------------------------------------------------------

DAYS = [datetime.date(2023, 12, 30), datetime.date(2024, 2, 29), datetime.date(2024, 3, 25)]
NOONS = [datetime.datetime(d.year, d.month, d.day, 12) for d in DAYS]
WAYS = {
    "typed": DAYS,
    "iso": [f"{d}" for d in DAYS],
    "german": [d.strftime("%d.%m.%Y") for d in DAYS],
    "short": [d.strftime("%d.%m.%y") for d in DAYS],
    "american": [d.strftime("%m/%d/%Y") for d in DAYS],
    "british": [d.strftime("%d/%m/%Y") for d in DAYS],
}


@pytest.mark.parametrize("way", WAYS)
def test_dates_are_days_since_the_earliest(way):
    table = frame(joined=WAYS[way], y=[0, 1, 0])
    features = Features.learn(table, "y", standardize=False)
    expected = [(d - DAYS[0]).days for d in DAYS]
    assert features.names == ("joined",) and features.matrix(table).ravel().tolist() == expected
    assert features.notes == ["joined is in days since 2023-12-30."]
    assert again(features) == features and not features.plain
    later = frame(joined=[datetime.date(2023, 12, 31)])  # another kind of file
    assert features.matrix(later).tolist() == [[1.0]]


def test_times_of_day_and_time_zones():
    table = frame(
        at=["2024-01-01 12:00", "2024-01-01T13:30:00Z", "2024-01-01 01:00:00+02:00"],
        clock=["0:00", "06:30", "23:59:30"], typed=NOONS, y=[0, 1, 0],
    )  # fmt: skip
    X = Features.learn(table, "y", standardize=False).matrix(table)
    np.testing.assert_allclose(X[:, 0], np.array([36.0, 37.5, 23.0]) / 24)  # since 31 December
    np.testing.assert_allclose(X[:, 1], [0, 6.5, 24 - 1 / 120])
    np.testing.assert_allclose(X[:, 2] % 1, 0.5)


def test_the_order_of_day_and_month_is_asked_for_only_where_it_matters():
    both = frame(a=["1/2/2024", "3/2/2024"], y=[0, 1])
    with pytest.raises(TableError, match="may be day/month or month/day"):
        Features.learn(both, "y")
    for order, apart in (("dmy", 2.0), ("mdy", 60.0)):
        X = Features.learn(both, "y", order=order, standardize=False).matrix(both)
        assert X.ravel().tolist() == [0.0, apart]
    same = frame(a=["2/2/2024", "3/3/2024"], y=[0, 1])
    assert Features.learn(same, "y").names == ("a",)


def test_cyclic_parts():
    table = frame(a=["2024-01-01", "2024-01-08", "2024-07-01 06:00"], n=[1.0, 2, 3], y=[0, 1, 0])
    cycles = {"a": ("year", "week", "day")}
    features = Features.learn(table, "y", cycles=cycles, standardize=False)
    X = features.matrix(table)
    assert features.names[:3] == ("a", "a: sin of year", "a: cos of year")
    np.testing.assert_allclose(X[:, 1:7:2] ** 2 + X[:, 2:7:2] ** 2, 1.0)
    np.testing.assert_allclose(X[0, 3:5], [0, 1], atol=1e-9)  # a Monday
    np.testing.assert_allclose(X[0, 3:5], X[1, 3:5], atol=1e-9)  # a week later
    np.testing.assert_allclose(X[2, 5:7], [1, 0], atol=1e-9)  # a quarter of a day
    assert again(features) == features
    for wrong, part in ({"n": ("year",)}, "needs dates"), ({"a": ("moon",)}, "must be of year"):
        with pytest.raises(TableError, match=part):
            Features.learn(table, "y", cycles=wrong)


def test_dates_with_gaps_and_of_another_form_later():
    table = frame(a=["2024-01-01", None, "2024-01-05", "2024-01-03"], y=[0, 1, 0, 1])
    features = Features.learn(table, "y", impute=True, standardize=False)
    assert features.matrix(table).tolist() == [[0, 0], [2, 1], [4, 0], [2, 0]]
    # Another way is read as well, if there is only one way to read it.
    dotted = frame(a=["1.5.2024", "31.5.2024"])
    iso = frame(a=["2024-05-01", "2024-05-31"])
    np.testing.assert_array_equal(features.matrix(dotted), features.matrix(iso))
    both = frame(a=["1/5/2024", "2/5/2024"])  # in May, or in January and February
    with pytest.raises(TableError, match=r"such as 2024-05-31, as in .* row 1 holds '1/5/2024'"):
        features.matrix(both)


# Separators -------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_and_decimal_commas(separator, tmp_path):
    path = tmp_path / "a.csv"
    lines = ["a;b;c;d", "1,5;1.234,5;x,y;7", "-2;2.000.000;z;8", "3,25e2;;x,y;9"]
    path.write_text("\n".join(lines).replace(";", separator))
    table = read(path)
    assert numbers_in(table, "a").tolist() == [1.5, -2, 325]
    assert numbers_in(table, "b", missing=True).tolist()[:2] == [1234.5, 2e6]
    assert table.frame["c"].to_list() == ["x,y", "z", "x,y"]
    assert numbers_in(table, "d").tolist() == [7, 8, 9] and len(table.notes) == 2
    path.write_text("a;b\n1,5;1.234\n2,5;2.500\n".replace(";", separator))
    with pytest.raises(TableError, match=r"'b' .* holds '1\.234', in a file with decimal commas"):
        read(path)
    path.write_text("a;b\n1.5;1.234\n2.5;2.500\n".replace(";", separator))
    assert numbers_in(read(path), "b").tolist() == [1.234, 2.5]


def test_rows_that_are_left_out_keep_the_numbers_of_the_others():
    table = frame(a=[1.0, None, np.inf], y=[0, 1, 0]).at(np.array([True, False, True]))
    with pytest.raises(TableError, match="first in row 3"):
        Features.learn(table, "y")
