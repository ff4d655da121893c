"""Files that are read in blocks: the same model as in memory, and what is told of faults."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from mossp.app import cli
from mossp.app.commands.fit import in_blocks
from mossp.app.features import Features
from mossp.app.fitting.fit import fit as in_memory
from mossp.app.fitting.request import Request
from mossp.app.fitting.rows import usable
from mossp.app.model import Model
from mossp.app.standardization import moments, sparse_moments
from mossp.app.streaming import blocks, columns, memory, text
from mossp.app.streaming import fit as streaming_fit
from mossp.app.streaming.fit import fit
from mossp.app.streaming.learning import TEST, Moments, Parts, learn
from mossp.app.streaming.medians import medians
from mossp.app.streaming.page import write_report
from mossp.app.streaming.progress import RowsBar
from mossp.app.tables import TableError, read, written
from tests.app.test_tables import BROKEN

pl = pytest.importorskip("polars", reason="Parquet files are read by polars")

N = 700
rng = np.random.default_rng(3)
NUMBERS = rng.normal(size=(N, 4)) * [1, 10, 0.1, 1] + [0, 100, 0, 1e4]
COLOUR = rng.choice(["blue", "green", "red"], N)
SCORE = NUMBERS[:, 0] - 0.1 * (NUMBERS[:, 1] - 100) + (COLOUR == "red")


def quiet(done, doing):
    pass


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("streaming") / "rows.parquet"
    columns = {f"c{j}": NUMBERS[:, j] for j in range(4)}
    yes = np.where(SCORE + rng.logistic(size=N) > 0, "yes", "no")
    spent = SCORE + rng.normal(size=N)
    frame = pl.DataFrame(
        {**columns, "colour": COLOUR, "same": np.ones(N), "spent": spent, "y": yes}
    )
    frame.write_parquet(path, row_group_size=100)
    return path


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)  # as short as they may be: 64 rows


def fitted(file, out, *options) -> Model:
    arguments = ["fit", str(file), "--out", str(out), "--no-report", *options]
    assert cli.main(arguments) == 0
    return Model.load(out)


def same(one: Model, other: Model) -> None:
    np.testing.assert_allclose(one.features.centre, other.features.centre, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(one.features.scale, other.features.scale, rtol=1e-13)
    np.testing.assert_allclose(one.coef, other.coef, atol=1e-9)
    np.testing.assert_allclose(one.intercept, other.intercept, atol=1e-9)
    assert one.features.names == other.features.names
    for name, value in one.about["scores"]["train"].items():
        np.testing.assert_allclose(value, other.about["scores"]["train"][name], rtol=1e-9)
    assert one.about["confusion"] == other.about["confusion"]


def test_same_model_and_predictions_as_in_memory(file, tmp_path, short_blocks, capsys):
    options = ["--target", "y", "--exclude", "spent", "--regularizer", "l1-l2:0.01", "--test", "0"]
    whole = fitted(file, tmp_path / "whole.mossp", *options, "--no-stream")
    streamed = fitted(file, tmp_path / "streamed.mossp", *options, "--stream")
    same(streamed, whole)
    assert "in blocks of 64 rows" in capsys.readouterr().err
    texts = []
    for how in ("--stream", "--no-stream"):
        out = tmp_path / f"{how}.csv"
        arguments = ["predict", str(tmp_path / "whole.mossp"), str(file), "--out", str(out)]
        assert cli.main([*arguments, "--id", "colour", how]) == 0
        texts.append(out.read_text())
    assert texts[0] == texts[1]
    assert texts[0].count("\n") == N + 1


ROWS = b"age,town,paid,y\n31,Ulm,true,1.5\n47.5,Bonn,false,-2\n31,Ulm,NA,0\n060,Bonn,true,4\n"
TEXTS = {
    "plain": ROWS,
    "no last end": ROWS[:-1],
    "others' ends, and a mark before": b"\xef\xbb\xbf" + ROWS.replace(b"\n", b"\r\n"),
    "blank lines": b"\n" + ROWS.replace(b",", b" , ").replace(b"\n", b"\n\n"),
    "quotes": ROWS.replace(b"Bonn,true", b'"Bonn, ""or""\nso",True'),
    "a quoted name": ROWS.replace(b"age", b'"age\nat last"'),
    "two kinds of ends": ROWS + b"1,a,true,4\r2,b,false,5\r\n",
    "decimal commas": ROWS.replace(b",", b";").replace(b".", b","),
    "text after numbers": ROWS + b"old,Ulm,false,1\n",
    "numbers after truth": ROWS + b"31,Ulm,0,1\n",
}


@pytest.fixture
def short_pieces(monkeypatch, tmp_path):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(text, "PIECE", 20)
    monkeypatch.setattr(text, "ENTRIES", 1)


@pytest.mark.parametrize("name", TEXTS)
def test_text_in_pieces_is_read_as_it_is_whole(name, tmp_path, short_pieces):
    path = tmp_path / "rows.csv"
    path.write_bytes(TEXTS[name])
    whole, found = read(path), blocks.blocks_of(path)
    frame = pl.concat([table.frame for _, table in found.each()])
    assert frame.equals(whole.frame) and frame.schema == whole.frame.schema
    assert found.notes == whole.notes
    some = blocks.blocks_of(path, written=whole.columns[:1]).table(0, whole.rows)
    assert some.text.equals(whole.text.select(whole.columns[0]))
    assert written(some, whole.columns[0])[3] == "060"
    assert written(some, "town")[0] == "Ulm"


@pytest.mark.parametrize("name", [name for name in BROKEN if name.endswith(".csv")])
def test_faults_of_text_are_told_as_they_are_whole(name, tmp_path, short_pieces):
    content, message = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError) as caught:
        blocks.blocks_of(path)
    assert message in str(caught.value)
    assert not list((tmp_path / "cache" / "rows").iterdir())  # nothing is left of it


def test_lines_without_an_end(tmp_path, short_pieces, monkeypatch):
    monkeypatch.setattr(text, "LONGEST", 64)
    path = tmp_path / "rows.csv"
    for content, line in ((b"a,b\r" * 40, 1), (ROWS + b'1,"' + b"a" * 99, 6)):
        path.write_bytes(content)
        with pytest.raises(TableError, match=f"line {line}: the line has more than"):
            blocks.blocks_of(path)


def test_a_file_of_text_is_converted_once_and_again_when_it_changes(
    tmp_path, short_pieces, monkeypatch
):
    made, convert = [], text.convert
    monkeypatch.setattr(text, "convert", lambda *a: (made.append(a), convert(*a)))
    path = tmp_path / "rows.csv"
    path.write_bytes(ROWS)
    assert [blocks.blocks_of(path).rows for _ in range(2)] == [4, 4] and len(made) == 1
    path.write_bytes(ROWS + b"1,a,true,4\n")
    assert blocks.blocks_of(path).rows == 5 and len(made) == 2


def as_csv(file, tmp_path):
    path = tmp_path / "rows.csv"
    pl.read_parquet(file).write_csv(path)
    return path, []


def as_records(file, tmp_path):
    path = tmp_path / "rows.npy"
    frame = pl.read_parquet(file)
    kinds = [(n, "U5" if frame[n].dtype == pl.String else ">f8") for n in frame.columns]
    np.save(path, np.array(frame.rows(), kinds))
    return path, []


@pytest.mark.slow
@pytest.mark.parametrize("made", [as_csv, as_records])
def test_other_formats_give_the_same_model(made, file, tmp_path, short_blocks, monkeypatch):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "cache"))
    options = ["--target", "y", "--exclude", "spent", "--regularizer", "l1-l2:0.01", "--test", "0"]
    path, more = made(file, tmp_path)
    whole = fitted(file, tmp_path / "whole.mossp", *options, "--no-stream")
    same(fitted(path, tmp_path / "a.mossp", *options, *more, "--stream"), whole)
    same(fitted(path, tmp_path / "b.mossp", *options, *more, "--no-stream"), whole)
    texts = []
    for given, how in ((file, "--no-stream"), (path, "--stream")):
        out = tmp_path / f"{how}.csv"
        arguments = ["predict", str(tmp_path / "a.mossp"), str(given), "--out", str(out)]
        assert cli.main([*arguments, "--id", "colour", how]) == 0
        texts.append(out.read_text())
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_an_array_with_its_target_beside_it(tmp_path, short_blocks):
    np.save(tmp_path / "X.npy", NUMBERS.astype(np.float32))
    np.save(tmp_path / "y.npy", (SCORE > 0).astype(np.int8))
    options = ["--target", str(tmp_path / "y.npy"), "--regularizer", "l1:0.01", "--test", "0"]
    one = fitted(tmp_path / "X.npy", tmp_path / "a.mossp", *options, "--stream")
    same(one, fitted(tmp_path / "X.npy", tmp_path / "b.mossp", *options, "--no-stream"))
    assert one.features.names == ("x1", "x2", "x3", "x4") and one.classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 2, 2)), "one or two axes"),
        (np.zeros((3, 2), complex), "must hold numbers"),
        (np.zeros((0, 2)), "no rows"),
        (np.zeros(3, [("a", "f8", 2)]), "must hold numbers"),
        (np.array([{}]), "damaged, cut short or no array of numbers"),
    ],
)
def test_arrays_that_are_no_tables(array, message, tmp_path):
    np.save(tmp_path / "a.npy", array)
    for act in (read, blocks.blocks_of):
        with pytest.raises(TableError, match=message):
            act(tmp_path / "a.npy")


def test_targets_of_other_lengths(tmp_path):
    np.save(tmp_path / "X.npy", NUMBERS)
    np.save(tmp_path / "y.npy", NUMBERS[:5, 0])
    with pytest.raises(TableError, match="one value for each of the 700 rows"):
        read(tmp_path / "X.npy", target=str(tmp_path / "y.npy"))
    with pytest.raises(TableError, match="There is no file"):
        read(tmp_path / "X.npy", target="nowhere.npy")


def test_features_from_blocks_are_those_of_the_table(file, short_blocks):
    request = Request(file, "y")
    learnt = learn(request, blocks.blocks_of(file), Parts(0, 0.0), quiet)
    whole = Features.learn(read(file), "y")
    assert learnt.features.columns == whole.columns
    np.testing.assert_allclose(learnt.features.centre, whole.centre, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(learnt.features.scale, whole.scale, rtol=1e-13)
    assert learnt.values.tolist() == ["no", "yes"]
    assert learnt.counts.sum() == N


def with_gaps() -> pl.DataFrame:
    draw = np.random.default_rng(5)

    def gaps(values, part=0.1):
        return [None if draw.random() < part else value for value in values]

    return pl.DataFrame(
        {
            "a": gaps(draw.normal(size=300)),
            "b": gaps(draw.integers(0, 5, 300).astype(float)),
            "c": gaps(draw.choice(["u", "v", "w"], 300)),
            "d": gaps([f"{d:02}/{m:02}/2024" for d, m in draw.integers(1, 13, (300, 2))]),
            "e": draw.normal(size=300),
            "y": gaps(draw.choice(["no", "yes"], 300), 0.05),
        }
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_gaps_and_dates_in_blocks(suffix, missing, tmp_path, short_blocks, monkeypatch):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "cache"))
    path = tmp_path / f"gaps.{suffix}"
    frame = with_gaps()
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    request = Request(path, "y", missing=missing, dates="dmy", cyclic=["d:year"])
    table, note = usable(request, read(path))
    whole = Features.learn(
        table, "y", impute=missing == "impute", cycles=request.cycles, order="dmy"
    )
    found = learn(request, blocks.blocks_of(path), Parts(0, 0.0), quiet)
    assert found.features.columns == whole.columns
    assert (found.features.fill, found.features.flagged) == (whole.fill, whole.flagged)
    np.testing.assert_allclose(found.features.centre, whole.centre, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.features.scale, whole.scale, rtol=1e-12)
    assert found.notes == [note, *whole.notes]
    assert found.sizes.sum() == table.rows


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["impute", "drop"])
def test_rows_without_a_value_count_nothing(missing, tmp_path, short_blocks):
    path = tmp_path / "gaps.parquet"
    with_gaps().write_parquet(path)
    options = ["--target", "y", "--missing", missing, "--dates", "dmy", "--test", "0",
               "--regularizer", "l1:0.01"]  # fmt: skip
    same(
        fitted(path, tmp_path / "a.mossp", *options, "--stream"),
        fitted(path, tmp_path / "b.mossp", *options, "--no-stream"),
    )


def test_medians_of_blocks():
    draw = np.random.default_rng(7)
    for count in (1, 2, 7, 300):
        X = draw.normal(size=(count, 3)) * 10.0 ** draw.integers(-5, 5, (count, 3))
        X[draw.random(X.shape) < 0.3] = np.nan
        X[0] = 0.0
        found = medians(
            lambda X=X: (X[k : k + 50] for k in range(0, len(X), 50)), (~np.isnan(X)).sum(axis=0)
        )
        np.testing.assert_array_equal(found, np.nanmedian(X, axis=0))


def test_texts_beyond_what_is_remembered(tmp_path, short_blocks, monkeypatch):
    """Of very many numbers the one that is none is still told."""
    monkeypatch.setattr(columns, "MOST_KEPT", 64)
    path = tmp_path / "bad.parquet"
    for values, message in (
        ([*map(str, range(290)), "?", *["1"] * 9], "holds '\\?' in row 291"),
        ([f"a{i}" for i in range(300)], "has more than 64 different texts in 64 rows"),
    ):
        pl.DataFrame({"c": values, "y": [0, 1] * 150}).write_parquet(path)
        with pytest.raises(TableError, match=message):
            learn(Request(path, "y"), blocks.blocks_of(path), Parts(0, 0.0), quiet)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_moments_in_blocks(kind):
    X = rng.normal(size=(333, 5)) * [1e-9, 1, 1e200, 1, 0] + [0, 1e8, 0, 0, 3]
    expected = moments
    if kind == "sparse":
        X = scipy.sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0))
        expected = sparse_moments
    found = Moments()
    for start in range(0, 333, 50):
        found.add(X[start : start + 50])
    for ours, theirs in zip(found.result(), expected(X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_the_split_does_not_depend_on_blocks():
    parts = Parts(5, 0.3)
    every = parts.of(0, 200_000)
    pieces = [parts.of(a, min(a + 7_777, 200_000)) for a in range(0, 200_000, 7_777)]
    assert (np.concatenate(pieces) == every).all()
    assert abs((every == TEST).mean() - 0.3) < 0.01
    assert (Parts(6, 0.3).of(0, 1000) != every[:1000]).any()


def test_in_blocks_by_size(file, tmp_path, monkeypatch):
    numbers = 8 * N * 8
    for free, answer in ((6.5 * numbers, False), (5.5 * numbers, True), (None, False)):
        monkeypatch.setattr(memory, "available", lambda free=free: free)
        assert in_blocks(Request(file, "y"), 1) is answer
        assert in_blocks(Request(file, "y", stream=True), 1)
        assert not in_blocks(Request(file, "y", stream=False), 1)
        assert in_blocks(Request(file, "y"), 2)
    with pytest.raises(ValueError, match="one process"):
        in_blocks(Request(file, "y", stream=False), 2)
    monkeypatch.setattr(memory, "available", lambda: 1e6)
    for name, content, answer in (("a.csv", 40_000, False), ("b.csv", 50_000, True)):
        (tmp_path / name).write_bytes(b"1" * content)  # four times as much while it is looked at
        assert in_blocks(Request(tmp_path / name, "y"), 1) is answer
    packed = tmp_path / "rows.csv.gz"
    assert not in_blocks(Request(packed, "y"), 1)
    for request, processes in ((Request(packed, "y", stream=True), 1), (Request(packed, "y"), 4)):
        with pytest.raises(ValueError, match="is packed: unpack it first"):
            in_blocks(request, processes)


def test_memory_is_told():
    assert memory.available() is None or memory.available() > 0
    assert memory.resident() is None or 1e6 < memory.resident() < 1e12


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("c0", [1.0, None, *[2.0] * 98], "'c0' .* has 1 missing value, first in row 2"),
        ("c0", [*[1.0] * 69, float("inf"), *[2.0] * 30], "1 infinite value, first in row 70"),
        ("c0", ["1/2/2024"] * 100, "which may be day/month or month/day"),
        ("c0", [*["1/2/2024"] * 99, "31/31/2024"], "dates, but not all in one way"),
        ("c0", [f"a{i}" for i in range(100)], "has 100 different texts in 100 rows"),
        ("c0", [*map(str, range(90)), "?", *["1"] * 9], "holds '\\?' in row 91, where nearly all"),
        ("c0", [None, *["a"] * 99], "1 missing value, first in row 1"),
    ],
)
def test_faults_are_told_with_their_rows(column, values, message, tmp_path, short_blocks):
    path = tmp_path / "bad.parquet"
    pl.DataFrame({column: values, "c1": np.arange(100.0), "y": [0, 1] * 50}).write_parquet(path)
    with pytest.raises(TableError, match=message):
        learn(Request(path, "y"), blocks.blocks_of(path), Parts(0, 0.0), quiet)


@pytest.mark.parametrize(
    "options",
    [{"objective": "pu"}, {"scoring": "accuracy"}, {"max_features": 3}, {"choose": "1se"}],
)
def test_what_needs_all_rows_is_refused(file, options):
    with pytest.raises(ValueError, match="--no-stream"):
        fit(Request(file, "y", **options))


KEPT = {
    "rates": ["--rate", "fpr <= 0.1", "--rate", "tpr[colour=red] >= 0.6"],
    "parity": ["--sensitive", "colour", "--parity", "0.01"],
    "opportunity": ["--sensitive", "colour", "--opportunity", "0.02"],
    "threshold": ["--threshold", "recall>=0.8"],
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", KEPT)
def test_what_looks_at_all_rows_gives_the_same_model(asked, file, tmp_path, short_blocks):
    options = ["--target", "y", "--exclude", "spent", "--regularizer", "l1:0.01", "--test", "0"]
    options += KEPT[asked]
    one = fitted(file, tmp_path / "a.mossp", *options, "--stream")
    other = fitted(file, tmp_path / "b.mossp", *options, "--no-stream")
    same(one, other)
    np.testing.assert_allclose(one.threshold or 0.5, other.threshold or 0.5, rtol=1e-9)
    for seen, expected in zip(
        one.about["rates"].values(), other.about["rates"].values(), strict=True
    ):
        assert seen == pytest.approx(expected)


@pytest.mark.slow
def test_standard_errors_and_rates_of_rows_in_blocks(file, tmp_path, short_blocks):
    request = Request(file, "y", exclude=["spent"], regularizer="l1:0.01", inference=True, test=0.0)
    streamed, whole = fit(request), in_memory(request)
    ours, theirs = streamed.estimator.inference_, whole.estimator.inference_
    np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-7, atol=1e-12)
    write_report(streamed, request, tmp_path / "page")
    assert "Standard errors" in (tmp_path / "page" / "index.html").read_text()
    bounded = dataclasses.replace(request, inference=False, rate=["fpr <= 0.1"], test=0.3)
    seen = fit(bounded).model.about["rates"]["fpr <= 0.1"]
    assert seen["train"] <= 0.1 and seen["low"] <= seen["test"] <= seen["high"]


@pytest.mark.slow
def test_a_strength_is_chosen_by_information(file, tmp_path, short_blocks):
    options = ["--target", "y", "--exclude", "spent", "--choose", "bic", "--test", "0", "--stream"]
    model = fitted(file, tmp_path / "a.mossp", *options)
    assert 0 < np.count_nonzero(model.coef) < 8


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint(file, tmp_path, short_blocks, monkeypatch, capsys):
    options = ["--target", "y", "--exclude", "spent", "--regularizer", "l1-l2:0.01", "--test", "0"]
    kept = ["--checkpoint", str(tmp_path / "run.npz")]
    whole = fitted(file, tmp_path / "a.mossp", *options, "--stream")

    def interrupted(params, rows):
        params["checkpoint"].write_bytes(b"")
        raise KeyboardInterrupt

    arguments = ["fit", str(file), "--out", str(tmp_path / "b.mossp"), "--no-report"]
    with monkeypatch.context() as patched:
        patched.setattr(streaming_fit, "solution", interrupted)
        assert cli.main([*arguments, *options, *kept, "--stream"]) == 130
    assert "the same command goes on from" in capsys.readouterr().err
    (tmp_path / "run.npz").unlink()
    for _ in range(2):  # the second from the end of the first
        same(fitted(file, tmp_path / "b.mossp", *options, *kept, "--stream"), whole)
    assert cli.main([*arguments, *options, *kept, "--no-stream"]) == 2
    assert "--checkpoint is for" in capsys.readouterr().err


def test_several_processes_know_their_own_rows_only(file, monkeypatch):
    monkeypatch.setattr("jax.process_count", lambda: 2)
    for options in ({"rate": ["fpr <= 0.1"]}, {"inference": True}, {"threshold": "f1"}):
        with pytest.raises(ValueError, match="start one process only"):
            fit(Request(file, "y", **options))


@pytest.mark.slow
def test_numbers_with_an_offset_and_a_constraint(file, tmp_path, short_blocks):
    options = ["--target", "spent", "--exclude", "y", "--regularizer", "l1:0.05", "--test", "0",
               "--offset", "c2", "--inequality", "c0 <= 0.5"]  # fmt: skip
    same(
        fitted(file, tmp_path / "a.mossp", *options, "--stream"),
        fitted(file, tmp_path / "b.mossp", *options, "--no-stream"),
    )


@pytest.mark.slow
def test_sparse_rows_of_three_classes(tmp_path, short_blocks, monkeypatch):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "cache"))
    lines = []
    for _ in range(400):
        places, values = np.sort(rng.choice(12, 4, replace=False)), rng.normal(size=4)
        label = np.digitize(values[places < 4].sum() + 0.3 * rng.normal(), [-0.5, 0.5])
        entries = " ".join(f"{j + 1}:{v:.6f}" for j, v in zip(places, values, strict=True))
        lines.append(f"{label} {entries}\n")
    path = tmp_path / "rows.svm"
    path.write_text("".join(lines))
    options = ["--loss", "logistic", "--regularizer", "l1:0.01", "--test", "0", "--balanced"]
    same(
        fitted(path, tmp_path / "a.mossp", *options, "--stream"),
        fitted(path, tmp_path / "b.mossp", *options, "--no-stream"),
    )


@pytest.mark.slow
def test_a_strength_is_chosen_by_rows_that_are_held_out(file, tmp_path, short_blocks):
    model = fitted(file, tmp_path / "a.mossp", "--target", "y", "--exclude", "spent", "--stream")
    assert model.about["regularizer"].startswith("l1:")
    assert model.about["scores"]["test"]["accuracy"] > 0.65
    counts = np.array(model.about["confusion"]["test"])
    assert 0.12 * N < counts.sum() < 0.28 * N


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes speak to each other by Gloo")
def test_two_processes_as_mpirun_starts_them(file, tmp_path):
    """By the variables of Open MPI, from which JAX finds the other process, on 127.0.0.1."""
    options = ["--target", "y", "--exclude", "spent", "--regularizer", "l1-l2:0.01", "--test", "0"]
    job = random.SystemRandom().randrange(2**12) * 2**12  # the port follows from it
    jobs = []
    for rank in "01":
        found = {
            "OMPI_MCA_orte_hnp_uri": f"{job}.0;tcp://127.0.0.1:1", "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        }  # fmt: skip
        command = [sys.executable, "-m", "mossp.app.cli", "fit", str(file), "--no-report"]
        jobs.append(
            subprocess.Popen(
                [*command, "--out", str(tmp_path / "both.mossp"), *options],
                env={**os.environ, **found}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True,
            )
        )  # fmt: skip
    ends = [job.communicate(timeout=200) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], ends[0][1][-1500:] + ends[1][1][-1500:]
    assert "CONVERGED" in ends[0][0]
    assert "CONVERGED" not in ends[1][0] + ends[1][1]  # the first one prints
    whole = fitted(file, tmp_path / "whole.mossp", *options, "--no-stream")
    same(Model.load(tmp_path / "both.mossp"), whole)


def test_a_bar_counts_the_rows_of_a_pass(capsys):
    bar = RowsBar(100, 40, 80, shown=True)
    with bar:
        bar.learning(64, "looking at columns")
        for start, stop in ((40, 60), (0, 20), (60, 80), (40, 60)):  # one of a mini-batch
            bar.read(start, stop)
        task = bar.bar._progress.tasks[0]
        assert (task.description, task.completed, task.total) == ("fitting, pass 2", 20, 40)
        assert task.fields["detail"].startswith("memory") or memory.resident() is None
    assert "row 20 of 40" in capsys.readouterr().err


def test_folders_and_files_that_are_not_there(file, tmp_path):
    assert in_blocks(Request(file.parent, "y"), 1)
    assert not in_blocks(Request(tmp_path / "none.parquet", "y"), 1)
    assert blocks.blocks_of(file.parent).rows == N
