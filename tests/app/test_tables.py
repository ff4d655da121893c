"""A user's files: every format gives the same matrix, and every fault is one sentence."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from mossp.app import tables
from mossp.app.features import Features
from mossp.app.tables import Table, TableError, read, target_of, write_predictions

pl = pytest.importorskip("polars", reason="CSV and Parquet files need polars")
preprocessing = pytest.importorskip("sklearn.preprocessing", reason="what is compared with")

ROWS = b"age,town,paid,y\n31,Ulm,true,1.5\n47.5,Bonn,false,-2\n31,Ulm,false,0\n60,Bonn,true,4\n"
X = [[31, 0, 1, 1], [47.5, 1, 0, 0], [31, 0, 1, 0], [60, 1, 0, 1]]
SVM = b"1.5 1:31 3:1 4:1\n-2 1:47.5 2:1\n0 1:31 3:1\n4 1:60 2:1 4:1\n"


def put(path: Path, content: bytes = ROWS) -> Path:
    path.write_bytes(content)
    return path


def parquet(frame) -> bytes:
    frame.write_parquet(buffer := io.BytesIO())
    return buffer.getvalue()


def frame(**columns) -> Table:
    return Table(Path("memory"), pl.DataFrame(columns))


def refusal(act, *arguments, **options) -> str:
    """The one sentence that a call must end with."""
    with pytest.raises(TableError) as caught:
        act(*arguments, **options)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and len(text) < 400, text
    return text


# Reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, content, format", [
    ("a.csv", ROWS, None),
    ("a.CSV", b"\xef\xbb\xbf" + ROWS.replace(b"\n", b"\r\n"), None),
    ("a.csv", ROWS.replace(b"\n", b"\r"), None),
    ("a.csv", b"\n" + ROWS.replace(b",", b" , ").replace(b"\n", b"\n\n"), None),
    ("a.csv", ROWS.replace(b"Ulm", b'"Ulm"').replace(b"true", b"True")[:-1], None),
    ("a.tsv", ROWS.replace(b",", b"\t"), None),
    ("a.csv.gz", gzip.compress(ROWS, mtime=0), None),
    ("a.parquet", parquet(pl.read_csv(io.BytesIO(ROWS))), None),
    ("a.pq", parquet(pl.read_csv(io.BytesIO(ROWS)).cast({"town": pl.Categorical})), None),
    ("a.txt", ROWS.replace(b",", b"\t"), "tsv"),
])  # fmt: skip
def test_the_same_rows_in_every_format(name, content, format, tmp_path):
    table = read(str(put(tmp_path / name, content)), format)
    features = Features.learn(table, "y", standardize=False)
    assert (table.rows, table.columns) == (4, ("age", "town", "paid", "y"))
    assert features.names == ("age", "town=Bonn", "town=Ulm", "paid")
    np.testing.assert_array_equal(features.matrix(table), X)
    assert (features.matrix(table).dtype, target_of(table, "y").dtype) == (np.float64, np.float64)
    assert target_of(table, "y").tolist() == [1.5, -2, 0, 4]
    assert target_of(table, "town").tolist() == ["Ulm", "Bonn", "Ulm", "Bonn"]
    assert target_of(table, "paid").dtype == bool and target_of(table, "town").dtype.kind == "U"


@pytest.mark.parametrize("name", ["a.svm", "a.libsvm", "a.svmlight", "a", "a.gz", "a.svm.gz"])
def test_libsvm(name, tmp_path):
    table = read(put(tmp_path / name, gzip.compress(SVM, mtime=0) if name.endswith("gz") else SVM))
    features = Features.learn(table, None, standardize=False)
    assert features.names == table.columns == ("x1", "x2", "x3", "x4")
    assert isinstance(features.matrix(table), scipy.sparse.csr_matrix)
    np.testing.assert_array_equal(features.matrix(table).toarray(), X)
    assert target_of(table, None).tolist() == [1.5, -2, 0, 4]
    few = Features.learn(table, None, standardize=False, exclude=["x2", "x4"])
    np.testing.assert_array_equal(few.matrix(table).toarray(), np.array(X)[:, [0, 2]])
    # One label only, as in a file to predict, and fewer columns than in training.
    narrow = read(put(tmp_path / "narrow", b"0 1:7 # a\n\n0\n"))
    assert few.matrix(narrow).toarray().tolist() == [[7, 0], [0, 0]]
    wide = read(put(tmp_path / "wide", b"0 6:7\n1\n"))
    assert "has features up to x6, but the training data had only 4" in refusal(few.matrix, wide)


BROKEN = {
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\xef\xbb\xbf \r\n\n", "is empty"),
    "empty.svm": (b"\n", "is empty"),
    "comments.svm": (b"# 1 1:1\n", "is empty"),
    "header.csv": (b"a,b\n\n", "names its columns, but it has no rows"),
    "none.parquet": (parquet(pl.DataFrame({"a": []})), "it has no rows"),
    "short.csv": (b"a,b\n1,2\n3\n", "line 3: the row has 1 value, but the first line names 2 col"),
    "long.csv": (b'a,b\n"1\n",2\n3,4,5\n', "line 4: the row has 3 values"),
    "twice.csv": (b"a,b,a \n1,2,3\n", "two columns called 'a'"),
    "unnamed.csv": (b",b\n0,2\n", "no name for column 1"),
    "open.csv": (b'a,b\n1,"2\n', "line 2: the quotes are not in order"),
    "after.csv": (b'a,b\n1,2\n1,"2"3\n', "line 3: the quotes are not in order"),
    "zip.csv": (b"PK\x03\x04\0\0\0", "line 1: this is another encoding than UTF-8, or a binary"),
    "parquet.csv": (parquet(pl.DataFrame({"a": [1]})), "another encoding than UTF-8, or a binary"),
    "latin.csv": ("a,b\n1,ö\n".encode("latin1"), "line 2: this is another encoding than UTF-8"),
    "utf16.csv": ("a,b\n1,2\n".encode("utf-16"), "line 1: this is another encoding than UTF-8"),
    "cut.parquet": (parquet(pl.DataFrame({"a": [1, 2]}))[:-9], "damaged, cut short or not a Parq"),
    "text.parquet": (ROWS, "damaged, cut short or not a Parquet"),
    "cut.csv.gz": (gzip.compress(ROWS, mtime=0)[:-12], "packed by gzip, but damaged"),
    "bad.csv.gz": (gzip.compress(ROWS, mtime=0)[:20] + b"\xff" * 30, "packed by gzip, but damaged"),
    "bad.svm": (b"1 1:1\n2 0:1\n", "line 2: the index 0 is not positive"),
    "a.xlsx": (b"x", "must be csv, tsv, parquet, npy or libsvm, but its name does not tell"),
}  # fmt: skip


BOMBS = {
    "zeros.csv.gz": b"a,b\n" + b"0,0\n" * 2**21,
    "blank.csv.gz": b"a,b\n1,2\n" + b"\n" * 2**23,
    "line.csv.gz": b"a," * 2**22 + b"b\n",
    "value.tsv.gz": b"a\tb\n1\t" + b"2" * 2**23,
    "nul.csv.gz": bytes(2**23),
    "rows.svm.gz": b"1 1:1\n" * 2**21,
    "row.svm.gz": b"1 1:" + b"1" * 2**23,
    "many.parquet.gz": bytes(2**23),
}


@pytest.mark.parametrize("name", BOMBS)
def test_gzip_may_not_unpack_to_much_more_than_it_is(name, tmp_path, monkeypatch):
    packed = gzip.compress(BOMBS[name], mtime=0)
    assert len(packed) < 2**15
    for reader in ("_csv", "_parquet"):  # nothing of it gets there
        monkeypatch.setattr(tables.reading, reader, None)
    assert "far more than its size suggests: unpack it" in refusal(
        read, put(tmp_path / name, packed)
    )


def test_parquet_of_many_equal_rows(tmp_path):
    """Some kilobytes that would be hundreds of megabytes."""
    rows = pl.select(a=pl.repeat(0.0, 2**24), b=pl.repeat(1, 2**24))
    path = put(tmp_path / "a.parquet", parquet(rows))
    assert path.stat().st_size < 2**17
    assert "16,777,216 rows of 2 columns, far more than its size suggests" in refusal(read, path)
    assert read(put(path, parquet(rows[: 10**6]))).rows == 10**6


def test_gzip_of_an_ordinary_table_is_read(tmp_path):
    zeros = b"a,b,c,d\n" + b"0,0,0,1\n0,0,0,0\n" * 30_000  # a few hundred kilobytes from few
    assert read(put(tmp_path / "a.csv.gz", gzip.compress(zeros))).rows == 60_000


def test_more_columns_than_text_can_have(tmp_path):
    names = ",".join(f"c{j}" for j in range(50_001))
    text = f"{names}\n{'1,' * 50_000}1\n".encode()
    assert "50,001 columns, but text is read up to 50,000" in refusal(
        read, put(tmp_path / "a.csv", text)
    )


def test_columns_that_no_row_has_are_no_features(tmp_path):
    """One index decides how wide the rows are, and nothing may be done for each column."""
    table = read(put(tmp_path / "a.svm", b"1 3:2 10000000:1\n-1 3:4\n1 10000000:5\n"))
    assert table.columns == ("x3", "x10000000") and table.X.shape == (3, 10_000_000)
    tracemalloc.start()
    try:
        features = Features.learn(table, None, standardize=False)
        X = features.matrix(table)
        Features.learn(table, None, exclude=["x7"]).matrix(table)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert features.names == ("x3", "x10000000") and features.width == 10_000_000
    assert X.toarray().tolist() == [[2, 1], [4, 0], [0, 5]]
    # Numbers are those of the file: a column that had no value has no coefficient.
    other = read(put(tmp_path / "b.svm", b"0 2:7 3:1\n0 5:1 10000000:2\n"))
    assert features.matrix(other).toarray().tolist() == [[1, 0], [0, 2]]
    assert Features.from_meta(features.to_meta()) == features
    for columns in ((("x3", None), ("x1", None)), (("x0", None),), (("y", None),)):
        ones = (1.0,) * len(columns)
        assert "in their order" in refusal(Features, columns, ones, ones, 4)
    assert "has no column 'x10000001'" in refusal(
        Features.learn, table, None, exclude=["x10000001"]
    )


def test_long_names_are_cut_in_sentences(tmp_path):
    name = "n" * 450
    table = read(put(tmp_path / "a.csv", f"{name},b\n1,2\n,3\n".encode()))
    for text in (refusal(Features.learn, table, "b"), refusal(target_of, table, "c" * 450)):
        assert len(text) < 400 + len(str(tmp_path)) and "…" in text and "n" * 81 not in text


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_sentence(name, tmp_path):
    content, part = BROKEN[name]
    text = refusal(read, put(tmp_path / name, content))
    assert part in text and str(tmp_path / name) in text


def test_no_file_at_all(tmp_path):
    assert refusal(read, tmp_path / "no.csv") == f"There is no file {tmp_path / 'no.csv'}."
    assert f"{tmp_path} is a folder" in refusal(read, tmp_path, "csv")
    assert "'json' is not one of them" in refusal(read, put(tmp_path / "a.csv"), format="json")
    if os.geteuid():
        put(tmp_path / "a.csv").chmod(0)
        assert "could not be read: Permission denied" in refusal(read, tmp_path / "a.csv")


def test_without_polars(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"needs polars: pip install 'mossp\[cli\]'"):
        read(put(tmp_path / "a.csv"))
    assert read(put(tmp_path / "a.svm", SVM)).rows == 4


VALUES = st.text("a\"',;\n\r#\t 0é", max_size=4)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1))
def test_text_of_every_kind_is_read_as_written(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "kinds.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("p", "q"), *rows])
    expected = [tuple(value.strip() or None for value in row) for row in rows]
    assert read(path).text.rows() == expected


# Features ---------------------------------------------------------------------------------------


def test_standardised_and_one_hot_as_in_sklearn(tmp_path):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(200, 3)) * [1e-3, 1, 1e9] + [5, 0, 1e9]
    town = rng.choice(["Ulm", "Ål", "", "a b", "01"], 200)
    town[town == ""] = "None"
    table = frame(**{f"n{j}": numbers[:, j] for j in range(3)}, town=town, y=numbers[:, 0])
    train = rng.permutation(200)[:150]
    ours = Features.learn(table, "y", rows=train)
    encoder = preprocessing.OneHotEncoder(sparse_output=False).fit(town[train, None])
    raw = np.hstack([numbers, encoder.transform(town[:, None])])
    scaler = preprocessing.StandardScaler().fit(raw[train])
    np.testing.assert_allclose(ours.matrix(table), scaler.transform(raw), rtol=1e-9, atol=1e-9)
    assert list(ours.names[3:]) == [f"town={level}" for level in encoder.categories_[0]]
    sparse = raw * (rng.random(raw.shape) < 0.4)
    sparse[:, 1] = 0.1  # constant and stored
    table = Table(Path("m"), X=scipy.sparse.csr_matrix(sparse), y=raw[:, 0])
    features = Features.learn(table, None, rows=train)
    scaler = preprocessing.StandardScaler(with_mean=False).fit(sparse[train])
    np.testing.assert_allclose(features.scale, scaler.scale_, rtol=1e-9)
    assert set(features.centre) == {0.0} and features.scale[1] == 1
    scaled = features.matrix(table).toarray()
    np.testing.assert_allclose(scaled, scaler.transform(sparse), rtol=1e-9)
    np.testing.assert_array_equal(table.X.toarray(), sparse)  # the table is as it was


def test_constant_huge_and_tiny_columns():
    columns = [[0.1] * 3, [0.3, 0.1 + 0.2, 0.3], [1e308, -1e308, 0.0], [0.0, 4e-200, 0.0]]
    table = frame(**dict(zip("abcd", columns, strict=True)), y=[0] * 3)
    Z = Features.learn(table, "y").matrix(table)
    assert (Z[:, 0] == 0).all() and (abs(Z[:, 1]) < 1e-15).all()
    np.testing.assert_allclose(Z[:, 2:].std(axis=0), 1)
    features = Features.learn(frame(c=[1.0, 1 + 1e-9], y=[0, 1]), "y")
    assert "has values of 'c' that are too large" in refusal(features.matrix, frame(c=[1e305]))


def test_columns_are_found_by_name_and_levels_as_written(tmp_path):
    table = read(put(tmp_path / "a.csv", b"zip,n,y\n01,1,0\n01,2,1\n1,3,0\nx,4,1\nx,4,1\n"))
    with pytest.warns(UserWarning, match=r"'zip' .* 3 features.* since row 4 holds 'x'\."):
        features = Features.learn(table, "y", standardize=False)
    again = read(put(tmp_path / "b.csv", b"extra,n,zip\n2024-01-01,5,01\n?,6,1\n"))  # zip: numbers
    assert features.names == ("zip=01", "zip=1", "zip=x", "n")
    assert features.matrix(again).tolist() == [[1, 0, 0, 5], [0, 1, 0, 6]]
    assert Features.from_meta(json.loads(json.dumps(features.to_meta()))) == features
    unseen = read(put(tmp_path / "c.csv", b"n,zip\n5,2\n6,q\n7,q\n8,x\n"))
    with pytest.warns(UserWarning) as caught:
        assert features.matrix(unseen)[:, :3].tolist() == [[0] * 3] * 3 + [[0, 0, 1]]
    (warning,) = caught
    assert "'zip'" in str(warning.message) and "'q' (2 rows), '2' (1 row)." in str(warning.message)
    assert warning.filename == __file__


def test_levels_are_learnt_from_the_training_rows_only():
    table = frame(a=["p", "q", "p", "q", "r"], n=[1.0, 2, 3, 4, 1e9], y=[0] * 5)
    for rows in ([0, 1, 2, 3], np.array([True] * 4 + [False])):
        features = Features.learn(table, "y", rows=rows)  # without a warning
        assert features.names == ("a=p", "a=q", "n") and features.centre[2] == 2.5
    assert "No row of memory was chosen" in refusal(Features.learn, table, "y", rows=[])


DAY = datetime.date(2024, 2, 29)
REFUSED = {  # a column, and what is said of it
    "missing": ([1.0, None, None], "'missing' of memory has 2 missing values, first in row 2: "),
    "nan": ([1.0, 2.0, float("nan")], "has 1 missing value, first in row 3"),
    "gap": (["a", None, "a"], "'gap' of memory has 1 missing value, first in row 2"),
    "void": ([None] * 3, "has 3 missing values, first in row 1"),
    "infinite": ([1.0, -float("inf"), 2], "has 1 infinite value, first in row 2"),
    "mixed": (["2024-02-29", "01.03.2024", "2023-01-01"], "holds dates, but not all in one way"),
    "both": (["1/2/2024", "3/2/2024", "5/5/2024"], "may be day/month or month/day: say which"),
    "feb": (["2024-02-30", "2024-03-01", "2023-01-01"], "holds dates, but not all in one way"),
    "list": ([[1], [2], [3]], "holds values of the type List, which"),
    "struct": ([{"a": 1}] * 3, "holds values of the type Struct, which"),
    "bytes": ([b"a"] * 3, "holds values of the type Binary, which"),
    "name": (["Ann", "Bo", "Cy"], "has 3 different texts in 3 rows: exclude it (--exclude 'name')"),
    "odd": (["1", "?", "3.5"], "in 3 rows, being text since row 2 holds '?': exclude it"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_column_that_is_refused(name):
    values, part = REFUSED[name]
    table = frame(**{name: values}, n=[1, 2, 3], y=[0, 1, 0])
    assert part in refusal(Features.learn, table, "y")
    assert Features.learn(table, "y", exclude=name).names == ("n",)
    if name not in ("name", "odd"):
        assert f"{name!r} of memory" in refusal(target_of, table, name)


def test_too_many_levels_and_equal_names():
    many = frame(a=[str(k) + "x" for k in range(101)] * 2, y=[0] * 202)
    assert "101 different texts in 202 rows" in refusal(Features.learn, many, "y")
    same = frame(**{"a": ["b", "b"], "a=b": [1, 2], "y": [0, 1]})
    assert "Two features would be called 'a=b'" in refusal(Features.learn, same, "y")
    for centre, scale in (((0.0,), (0.0,)), ((np.nan,), (1.0,)), ((), ())):
        assert "one finite centre" in refusal(Features, (("a", None),), centre, scale)


MANY = frame(**{f"c{j}": [1, 2] for j in range(13)})
LIBSVM = Table(Path("rows"), X=scipy.sparse.csr_matrix(np.eye(2)), y=np.ones(2))
TRAINED = Features.learn(frame(Age=[1, 2], y=[0, 1]), "y")


@pytest.mark.parametrize("act, parts", [
    (lambda: Features.learn(MANY, "C12"), ("'C12' (did you mean 'c12'?)", "'c9' and 3 more.")),
    (lambda: target_of(MANY, "price"), ("memory has no column 'price': it has 'c0', 'c1'",)),
    (lambda: Features.learn(MANY, "c1", exclude=["c2", "d"]), ("no column 'd'",)),
    (lambda: Features.learn(MANY, "c1", exclude=MANY.columns), ("No column of memory is left",)),
    (lambda: Features.learn(frame(y=[1, 2]), "y"), ("No column of memory is left",)),
    (lambda: target_of(MANY, None), ("must be the target (--target): it has 'c0'", "and 3 more")),
    (lambda: Features.learn(LIBSVM, "x1"), ("rows is a LIBSVM file", "leave the target 'x1' out")),
    (lambda: target_of(LIBSVM, "y"), ("rows is a LIBSVM file",)),
    (lambda: TRAINED.matrix(LIBSVM), ("LIBSVM file, but the training data were a table with",)),
    (lambda: Features.learn(LIBSVM, None).matrix(MANY), ("named columns, but the training data",)),
    (lambda: TRAINED.matrix(frame(age=[1])), ("'Age', which the model needs (did you mean 'age'",)),
    (lambda: TRAINED.matrix(frame(Age=["7", "x"])), ("must hold numbers", "row 2 holds 'x'")),
    (lambda: TRAINED.matrix(frame(Age=[DAY])), ("'Age' of memory holds dates or times",)),
    (lambda: TRAINED.matrix(frame(Age=[1, None])), ("has 1 missing value, first in row 2",)),
])  # fmt: skip
def test_what_does_not_fit_is_one_sentence(act, parts):
    text = refusal(act)
    assert all(part in text for part in parts), text


# Writing ----------------------------------------------------------------------------------------


def test_predictions_round_trip(tmp_path, capsys):
    columns = {"class": np.array(["a,b", 'q"', "ü"]), "p": np.array([0.1, 1 / 3, 5e-324])}
    columns |= {"ok": np.array([True, False, True])}
    path = put(tmp_path / "out.csv", b"old")
    (tmp_path / "link.csv").symlink_to(path)
    assert write_predictions(tmp_path / "link.csv", columns) == tmp_path / "link.csv"
    table = read(path)
    for name, values in columns.items():
        np.testing.assert_array_equal(target_of(table, name), values)
    write_predictions(None, columns)
    assert capsys.readouterr().out.encode() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.csv", "out.csv"]
    os.mkfifo(tmp_path / "pipe")  # stands for /dev/null, which a test must not put at risk
    with open(os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
        write_predictions(tmp_path / "pipe", columns)
        assert (tmp_path / "pipe").is_fifo() and pipe.read() == path.read_bytes()
    for wrong in (tmp_path, tmp_path / "no" / "out.csv"):
        assert f"{wrong} could not be written" in refusal(write_predictions, wrong, columns)
