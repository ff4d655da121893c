"""Bounds on rows: values against plain counting, and what cannot be meant there."""

import itertools
import re

import numpy as np
import pytest
import sklearn.metrics as metrics

from mossp import rates
from mossp.rates.binding import bind
from mossp.rates.bounded import LOSS, OWN

N = 400


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    columns = {
        "sex": rng.choice(["F", "M"], N, p=[0.3, 0.7]),
        "age": rng.choice([20, 30, 40], N),
        "part time": rng.random(N) < 0.5,
        "job": rng.choice(np.array(["a b", "c"], object), N),
    }
    return columns, rng.integers(0, 2, N), rng.integers(0, 2, N), rng.random(N)


def counted(name, y, d, w):
    """The rate by scikit-learn's confusion matrix, or by hand."""
    tn, fp, fn, tp = metrics.confusion_matrix(y, d, sample_weight=w, labels=[False, True]).ravel()
    return {
        "selection": (tp + fp) / (tn + fp + fn + tp),
        "tpr": tp / (tp + fn),
        "fpr": fp / (fp + tn),
        "tnr": tn / (fp + tn),
        "fnr": fn / (tp + fn),
        "precision": tp / (tp + fp),
        "accuracy": (tp + tn) / (tn + fp + fn + tp),
    }[name]


NAMES = ("selection", "tpr", "fpr", "tnr", "fnr", "precision", "accuracy")
GROUPS = {
    "": lambda c: np.ones(N, bool),
    "sex=F": lambda c: c["sex"] == "F",
    "age=30": lambda c: c["age"] == 30,
    "age=30.0": lambda c: c["age"] == 30,
    "'part time'=true, sex=M": lambda c: c["part time"] & (c["sex"] == "M"),
    "job='a b'": lambda c: c["job"] == "a b",
}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("of", ["", "yes", "class=no"])
def test_rates_of_two_classes_are_those_counted(people, name, group, of):
    columns, y, d, w = people
    text = f"{name}[{', '.join(filter(None, [of, group]))}]".replace("[]", "")
    positive = 0 if "no" in of else 1
    mask = GROUPS[group](columns)
    expected = counted(name, y[mask] == positive, d[mask] == positive, w[mask])
    bound = bind([rates.parse(f"{text} <= 0.25")], y, ["no", "yes"], w, columns)
    (value,) = bound.values(d).values()
    assert value == pytest.approx(expected, abs=1e-12)
    assert bound.excess(d) == pytest.approx([expected - 0.25], abs=1e-12)
    other = bind([rates.parse(f"{text} >= 0.25")], y, ["no", "yes"], w, columns)
    assert other.excess(d) == pytest.approx([0.25 - expected], abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_rates_of_three_classes_are_of_one_against_the_rest(name):
    rng = np.random.default_rng(1)
    y, d, w = rng.integers(0, 3, N), rng.integers(0, 3, N), rng.random(N)
    classes = ["setosa", "versicolor", "virginica"]
    for number, of in enumerate(classes):
        bound = bind([rates.parse(f"{name}[{of}] >= 0.1")], y, classes, w)
        expected = counted(name, y == number, d == number, w)
        assert list(bound.values(d).values()) == pytest.approx([expected], abs=1e-12)
    if name == "accuracy":
        bound = bind([rates.accuracy() >= 0.1], y, classes, w)
        assert bound.kinds == (OWN,)
        expected = metrics.accuracy_score(y, d, sample_weight=w)
        assert list(bound.values(d).values()) == pytest.approx([expected], abs=1e-12)
    else:
        with pytest.raises(ValueError, match=rf"name it, as in {name}\[virginica\]"):
            bind([rates.parse(f"{name} >= 0.1")], y, classes, w)


def test_sums_and_absolute_values(people):
    columns, y, d, w = people
    text = "0.5 * |tpr[sex=F] - tpr[sex=M]| + |fpr - 0.1| - 2 * selection[age=20] + 1 <= 0.5"
    bound = bind([rates.parse(text)], y, ["no", "yes"], w, columns, check=False)
    rate = lambda name, m: counted(name, y[m] == 1, d[m] == 1, w[m])  # noqa: E731
    gap = rate("tpr", columns["sex"] == "F") - rate("tpr", columns["sex"] == "M")
    young = rate("selection", columns["age"] == 20)
    expected = 0.5 * abs(gap) + abs(rate("fpr", np.ones(N, bool)) - 0.1) - 2 * young + 1
    assert bound.values(d)[text] == pytest.approx(expected)
    assert len(bound.rows) == 4
    assert bound.excess(d).max() == pytest.approx(expected - 0.5)  # the largest of the four


def test_mean_losses(people):
    columns, y, d, w = people
    losses = np.random.default_rng(2).random(N)
    texts = ["mean loss <= 0.5", "mean loss[sex=F] <= 0.5", "mean loss[class=no] <= 0.5"]
    bound = bind([rates.parse(t) for t in texts], y, ["no", "yes"], w, columns)
    masks = [np.ones(N, bool), columns["sex"] == "F", y == 0]
    expected = [np.average(losses[m], weights=w[m]) for m in masks]
    assert bound.kinds == (LOSS,) * 3
    assert list(bound.values(None, losses).values()) == pytest.approx(expected)
    with pytest.raises(ValueError, match="needs the loss of every row"):
        bound.values(d)
    number = bind([rates.mean_loss(sex="F") <= 0.5], None, None, w, columns)
    assert list(number.values(None, losses).values()) == pytest.approx(expected[1:2])


def test_an_equality_holds_up_to_one_row(people):
    _, y, d, _ = people
    ones = np.ones(N)
    share = metrics.recall_score(y, d)
    grain = 1 / (y == 1).sum()
    for distance, holds in ((0.9, True), (-0.9, True), (1.1, False), (-1.1, False)):
        bound = bind([rates.tpr() == share + distance * grain], y, ["no", "yes"], ones)
        assert bound.grains(d) == pytest.approx([grain, grain])
        assert (bound.excess(d) <= 1e-12).all() == holds


def test_rows_without_weight_do_not_count(people):
    columns, y, d, w = people
    kept = columns["age"] != 20
    weights = np.where(kept, w, 0.0)
    texts = ["precision[sex=F] >= 0.2", "tpr >= 0.2"]
    some = bind([rates.parse(t) for t in texts], y, [0, 1], weights, columns)
    cut = {name: values[kept] for name, values in columns.items()}
    less = bind([rates.parse(t) for t in texts], y[kept], [0, 1], w[kept], cut)
    assert some.values(d) == pytest.approx(less.values(d[kept]))
    assert some.grains(d) == pytest.approx(less.grains(d[kept]))
    with pytest.raises(ValueError, match="has no rows"):
        bind([rates.tpr(age=20) >= 0.1], y, [0, 1], weights, columns)


def test_a_precision_of_no_rows_is_none_and_breaks_no_bound(people):
    _, y, _, w = people
    bound = bind([rates.precision() >= 0.9], y, ["no", "yes"], w)
    nobody = np.zeros(N, int)
    assert np.isnan(bound.values(nobody)["precision >= 0.9"])
    assert bound.excess(nobody).tolist() == [-np.inf]


# What cannot be meant -----------------------------------------------------------------------------

WRONG = {
    "tpr[sx=F] >= 0.1": "names the column `sx`, which is not there: did you mean `sex`?",
    "tpr[colour=F] >= 0.1": "which is not there: there are sex, age, part time, job.",
    "tpr[sex=f] >= 0.1": "asks for sex=f, but there are F, M: did you mean `F`?",
    "tpr[age=31] >= 0.1": "asks for age=31, but there are 20, 30, 40",
    "tpr[yess] >= 0.1": "names the class `yess`, but there are no, yes: did you mean `yes`?",
    "tpr[class=7] >= 0.1": "names the class `7`, but there are no, yes.",
    "tpr[no, yes] >= 0.1": "names two classes",
    "tpr[sex=F, age=20] >= 0.1": "has no rows: no row with a weight has all of this.",
    "tpr[sex=M] >= 0.1": "`tpr[sex=M]` has no rows: no row of its group is of the class yes.",
    "fpr[sex=F, yes] >= 0.1": "has no rows: no row of its group is not of the class yes.",
    "mean loss[sex=M, class=yes] <= 0.1": "has no rows: none of its rows is of that class.",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_the_rows_do_not_have_is_said(people, text):
    columns, y, _, _ = people
    columns = {**columns, "age": np.where(columns["sex"] == "F", 30, columns["age"])}
    y = (columns["sex"] == "F").astype(int)  # all women are of class 1, nobody else is
    with pytest.raises(ValueError) as caught:
        bind([rates.parse(text)], y, ["no", "yes"], np.ones(N), columns)
    assert WRONG[text] in str(caught.value)


def test_a_value_alone_may_be_of_the_attribute_without_a_name():
    y, z, d = np.array([0, 1, 1, 0]), np.array(["f", "f", "m", "m"]), np.array([0, 1, 0, 1])
    by_value = bind([rates.parse("tpr[f] >= 0.1")], y, ["no", "yes"], np.ones(4), {"sensitive": z})
    assert by_value.values(d) == {"tpr[f] >= 0.1": 1.0}
    numbers = bind([rates.parse("mean loss[f] <= 1")], None, None, np.ones(4), {"sensitive": z})
    assert numbers.values(None, np.arange(4.0)) == {"mean loss[f] <= 1": 0.5}
    with pytest.raises(ValueError, match="both a class and a value of sensitive: write class=1"):
        bind([rates.parse("tpr[1] >= 0.1")], y, [0, 1], np.ones(4), {"sensitive": y})
    with pytest.raises(ValueError, match="but the target is a number: name a column"):
        bind([rates.parse("mean loss[f] <= 1")], None, None, np.ones(4))
    with pytest.raises(ValueError, match="there are none: give fit"):
        bind([rates.parse("tpr[sex=f] >= 0.1")], y, [0, 1], np.ones(4))


def test_an_array_without_a_name_has_the_one_that_rates_call_it_by():
    y, z, d = np.array([0, 1, 1, 0]), np.array(["f", "f", "m", "m"]), np.array([0, 1, 0, 1])
    columns = {"sensitive": z, "age": np.arange(4)}
    texts = ["tpr[sex=f] >= 0.1", "fpr[sex=m] <= 1"]
    bound = bind([rates.parse(text) for text in texts], y, ["no", "yes"], np.ones(4), columns)
    assert bound.values(d) == {"tpr[sex=f] >= 0.1": 1.0, "fpr[sex=m] <= 1": 1.0}
    wrong = {
        "tpr[race=f] >= 0.1": "one array without a name, which `sex` stands for. Give a data frame",
        "tpr[agee=1] >= 0.1": "did you mean `age`?",
        "tpr[sex=x] >= 0.1": "asks for sex=x, but there are f, m.",
    }
    for text, said in wrong.items():
        bounds = [rates.parse("tpr[sex=f] >= 0.1"), rates.parse(text)]
        with pytest.raises(ValueError, match=re.escape(said)):
            bind(bounds, y, ["no", "yes"], np.ones(4), columns)


def test_wrong_columns_and_targets():
    y = np.array([0, 1, 1, 0])
    with pytest.raises(ValueError, match="one value for each of the 4 rows, but it has 3"):
        bind([rates.tpr(sex="F") >= 0.1], y, [0, 1], np.ones(4), {"sex": ["F", "M", "F"]})
    with pytest.raises(ValueError, match="is about decisions, but the target is a number"):
        bind([rates.tpr() >= 0.1], None, None, np.ones(4))
    with pytest.raises(ValueError, match="names a class, but the target is a number"):
        bind([rates.mean_loss(class_="x") <= 0.1], None, None, np.ones(4))


# Contradictions -----------------------------------------------------------------------------------

AGAINST = [
    (["fpr <= 0.1", "fpr >= 0.2"], "`fpr <= 0.1` and `fpr >= 0.2` contradict each other"),
    (["tpr >= 0.9", "fpr <= 0.5", "fnr >= 0.2"], "`tpr >= 0.9` and `fnr >= 0.2` contradict"),
    (["tpr[sex=F] >= 0.9", "tpr[sex=M] >= 0.9", "tpr <= 0.8"], "contradict one another"),
    (["tpr >= 0.9", "selection <= 0.2"], "contradict each other"),
    (["accuracy >= 0.95", "tnr <= 0.5"], "contradict each other"),
    (["precision >= 0.9", "tpr >= 0.5", "fpr >= 0.5"], "contradict"),
    (["|tpr[sex=F] - tpr[sex=M]| <= 0.1", "tpr[sex=F] - tpr[sex=M] = 0.5"], "contradict"),
    (["tpr[no] >= 0.9", "fpr[yes] >= 0.5"], "`tpr[no] >= 0.9` and `fpr[yes] >= 0.5` contradict"),
    (["selection - tpr >= 0.6"], "`selection - tpr >= 0.6` cannot be met by any decisions"),
]


@pytest.mark.parametrize(("texts", "sentence"), AGAINST, ids=[t[0][0] for t in AGAINST])
def test_contradictions_are_found_before_anything_is_solved(people, texts, sentence):
    columns, y, _, _ = people
    with pytest.raises(ValueError) as caught:
        bind([rates.parse(t) for t in texts], y, ["no", "yes"], np.ones(N), columns)
    assert sentence in str(caught.value)


def test_contradictions_of_three_classes():
    y = np.repeat([0, 1, 2], 10)
    texts = ["selection[a] >= 0.5", "selection[b] >= 0.4", "selection[c] >= 0.2"]
    with pytest.raises(ValueError, match="contradict one another"):
        bind([rates.parse(t) for t in texts], y, ["a", "b", "c"], np.ones(30))
    bind([rates.parse(t) for t in texts[:2]], y, ["a", "b", "c"], np.ones(30))


def test_nothing_that_some_decisions_reach_is_refused():
    """Bounds made from the rates of random decisions are met by these, and so are no mistake."""
    rng = np.random.default_rng(3)
    groups = {"z": rng.choice(["a", "b", "c"], 30), "u": rng.choice(["d", "e"], 30)}
    terms = [f"{n}[{g}]" for n in NAMES for g in ("z=a", "z=b", "u=d", "z=c, u=e")]
    for trial in range(60):
        y, d = rng.integers(0, 2, 30), rng.integers(0, 2, 30)
        chosen = rng.choice(terms, 4, replace=False)
        bounds = []
        for text, sign in zip(chosen, itertools.cycle(["<=", ">="])):
            try:
                only = bind([rates.parse(f"{text} <= 1")], y, [0, 1], np.ones(30), groups)
            except ValueError as error:
                assert "has no rows" in str(error)
                continue
            (value,) = only.values(d).values()
            if not np.isnan(value):
                bounds.append(rates.parse(f"{text} {sign} {value!r}"))
        found = bind(bounds, y, [0, 1], np.ones(30), groups)
        assert (found.excess(d) <= 1e-9).all(), trial


def test_held_out_rows_may_lack_a_group(people):
    columns, y, d, w = people
    bounds = [rates.tpr(sex="F") >= 0.1, rates.tpr(sex="M") >= 0.1, rates.tpr(sex="X") >= 0.1]
    men = columns["sex"] == "M"
    cut = {name: values[men] for name, values in columns.items()}
    values = list(bind(bounds, y[men], [0, 1], w[men], cut, check=False).values(d[men]).values())
    assert np.isnan(values[0]) and np.isfinite(values[1]) and np.isnan(values[2])
