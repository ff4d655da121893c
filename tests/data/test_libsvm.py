"""LIBSVM files and data sets: right files, every way to be wrong, and where a set is found."""

from __future__ import annotations

import os
import pickle
import re
import runpy
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mossp.data import DataError, libsvm, load_data, read_libsvm, sets

sklearn_datasets = pytest.importorskip("sklearn.datasets")
pooch = pytest.importorskip("pooch")
REAL = os.environ.get("MOSSP_DATA")  # before the fixture below hides it
TINY = b"2 1:1 2:0\n1 2:3\n1\n"  # a known set, in these tests


@pytest.fixture(autouse=True)
def retrieve(tmp_path, monkeypatch):
    """No network and no home; what would be downloaded is asked of this."""
    for name in ("MOSSP_DATA", "MOSSP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setitem(sets.KNOWN, "tiny", sets.Known(3, 2, 3, {1.0: 2, 2.0: 1}))
    fake = mock.create_autospec(pooch.retrieve, side_effect=ConnectionError("no route to host"))
    monkeypatch.setattr(pooch, "retrieve", fake)
    return fake


@pytest.fixture
def file(tmp_path):
    """A path to write to: the one where the cache would hold "tiny"."""
    return tmp_path / "home/.cache/mossp/data/tiny"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def refused(path, content, line, **options):
    """The reason, without file and line, of the one error that this content must be."""
    with pytest.raises(ValueError) as caught:
        read_libsvm(put(path, content), **options)
    error, where = caught.value, f"{path}, line {line}: " if line else f"{path}: "
    assert (type(error), error.path, error.line) == (DataError, path, line)
    assert str(error).startswith(where)
    return str(error)[len(where) :]


def same_as_sklearn(path, X, y):
    theirs, labels = sklearn_datasets.load_svmlight_file(str(path), zero_based=False)
    assert (X.shape, X.dtype, y.dtype) == (theirs.shape, np.float64, np.float64)
    np.testing.assert_array_equal(y, labels)
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(X, part), getattr(theirs, part))


@pytest.mark.parametrize("content, rows, labels", [
    (b"+1 1:+2 2:-3\n-1 +1:-0.5\n", [[2, -3], [-0.5, 0]], [1, -1]),
    (b"1e0 1:1e-3 2:2.5E+2\n-2.5 1:.5 2:-1.e1\n", [[1e-3, 250], [0.5, -10]], [1, -2.5]),
    (b"# a\n1 1:2 # 2:x\n#\n 0 1:3#5:6\n\t# 1 1:nan \xe9\xff\n", [[2], [3]], [1, 0]),
    (b"\n\n1 1:2\n   \n\t\n-1 1:3\n\n", [[2], [3]], [1, -1]),
    (b"1 1:2\r\n\r\n-1 2:3\r\n", [[2, 0], [0, 3]], [1, -1]),
    (b"1\t1:2\t 3:4\t\n\t-1  2:3 ", [[2, 0, 4], [0, 3, 0]], [1, -1]),
    (b"1\n-1 2:3\n1 # none\n", [[0, 0], [0, 3], [0, 0]], [1, -1, 1]),
    (b"1\n-1", [[0], [0]], [1, -1]),
    (b"1 01:2 5:1\n-1 1:0 6:-0.0", [[2, 0, 0, 0, 1, 0], [0] * 6], [1, -1]),
    (b"1 1:5e-324\n2 1:1e-999\n3 1:1.7e308", [[5e-324], [0], [1.7e308]], [1, 2, 3]),
])  # fmt: skip
def test_right_files(content, rows, labels, file):
    X, y = read_libsvm(put(file, content))
    np.testing.assert_array_equal(X.toarray(), np.array(rows, float))
    np.testing.assert_array_equal(y, labels)
    assert X.nnz == len(re.findall(rb":", re.sub(rb"#.*", b"", content)))  # zeros are entries too
    same_as_sklearn(file, X, y)


def test_the_number_of_features(file):
    put(file, b"1 1:1\n-1 3:2\n")
    for features in (3, 5, np.int64(4)):
        assert read_libsvm(str(file), features)[0].shape == (2, features)
    assert "3 is too large: there are 2 features" in refused(file, b"1\n-1 2:1 3:2", 2, features=2)
    # Without the number, an index may be absurd; with it, the user knows best.
    assert read_libsvm(put(file, b"1 10000000:1\n-1"))[0].shape == (2, 10**7)
    assert "10000001 is too large" in refused(file, b"1 10000001:1\n-1", 1)
    assert read_libsvm(file, 10**8)[0].shape == (2, 10**8)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ENDS = st.sampled_from(["\n", " \r\n", "\t# 1:2\n\n"])
LINES = st.lists(st.tuples(NUMBERS, st.dictionaries(st.integers(1, 40), NUMBERS), ENDS))


@settings(derandomize=True, deadline=None)
@given(LINES, st.sampled_from(["{!r}", "{:.17g}", "{:+.16E}"]), st.sampled_from([" ", "\t "]))
def test_random_files_are_read_as_sklearn_does(tmp_path_factory, lines, form, gap):
    text = ""
    for label, row, end in [*lines, (1.0, {3: 0.1}, "\n"), (-1.0, {}, "")]:
        pairs = [f"{j}:{form.format(row[j])}" for j in sorted(row)]
        text += gap.join([form.format(label), *pairs]) + end
    path = put(tmp_path_factory.getbasetemp() / "random.data", text.encode())
    same_as_sklearn(path, *read_libsvm(path))


NOT_NUMBERS = "nan -NaN inf -Infinity 1_0 0x1p3 1e . - --1 1.0.0 1,5 1f one 1:2 ٣ 1\x1f 1\xa02"
NOT_INDICES = ("qid", "1_0", "0x1", "1.0", "1e0", "١", "nan", "+")
BAD = {  # a line, and what the message says of it
    **{f"1 1:1 2:{v}": f"value of index 2 is {v!r}, which is not" for v in NOT_NUMBERS.split(" ")},
    **{f"{v} 1:1": f"the label is {v!r}, which is not a finite" for v in NOT_NUMBERS.split(" ")},
    **{f"1 {j}:1": f"the index {j!r} is not a whole number" for j in NOT_INDICES},
    **{f"1 {pair} 4:1": f"{pair!r} is not an index:value pair" for pair in ("3:", "3", ":5", ":")},
    **{f"1 {i}:1": f"the index {int(i)} is not positive" for i in ("0", "-0", "-3")},
    "1 2:1e999": "'1e999', which is too large", "-1e309 1:1": "the label is '-1e309', which is too",
    "1 2:1" + "0" * 400: "too large", "1 1:2:3": "value of index 1 is '2:3'", "1 1:\0": "NUL byte",
    "1 3:1 2:1": "the index 2 comes after 3", "1 1:1 5:1 9:0 5:1": "the index 5 comes after 9",
    "1 2:1 2:1": "the index 2 appears twice", "1 2000000000:1": "index 2000000000 is too large",
    "1 12345678901234567890:1": "'12345678901234567890' is too large", "1 # \0": "NUL byte",
    "1 1" + "0" * 5000 + ":1": "is too large", "1 1:" + "x" * 99: "'" + "x" * 40 + "…'",
}  # fmt: skip


@pytest.mark.parametrize("bad, says", BAD.items(), ids=[ascii(bad)[:40] for bad in BAD])
def test_the_first_bad_line_is_the_one_named(bad, says, file):
    bad, good = bad.encode(), b"# head\n\n1 1:1 2:2\n0 3:1\n"
    for content in (bad, bad + b"\r\n-1 1:1\n", bad + b"\n1 7:worse\n\0\n"):
        assert says in refused(file, content, 1)
        assert says in refused(file, good.replace(b"\n", b"\r\n") + content, 5)
        assert says in refused(file, good + content, 5, features=9)


@pytest.mark.parametrize("content, line, says", [
    (b"", None, "the file is empty"), (b"\n \r\n\t\n", None, "the file is empty"),
    (b"# 1 1:1\n\n  # -1 1:1", None, "the file is empty"),
    (b"1 1:1\n1 2:1\n# -1 1:1\n+1.0\n\n# end\n", 4, "all 3 labels are 1"),
    (b"0 1:1\n-0 1:2\n", 2, "two classes"), (b"\xef\xbb\xbf1 1:1\n-1 1:2", 1, "byte order mark"),
    (b"\n\xef\xbb\xbf1 1:1\n", 2, "the label is '\\ufeff1'"), (b"\xff\xfe1\0\n\0", 1, "UTF-16"),
    (b"\xfe\xff\x001\0\n", 1, "UTF-16"), (b"1\0\n\0", 1, "NUL byte"),
    (bytes(range(256)), 1, "NUL byte"), (b"0 1:1 0:1\n", 1, "the index 0 is not positive"),
    (b"\x1f\x8b\x08\x08_h\n", None, "packed by gzip, but damaged"), (b"1 1:1\n0 1:\xff", 2, "'�'"),
    (b"1 1:1\r-1 1:2\r", 1, "'-1' is not an index:value pair"),
])  # fmt: skip
def test_files_that_are_wrong_as_a_whole(content, line, says, file):
    assert says in refused(file, content, line)


def test_very_long_lines(file, monkeypatch):
    monkeypatch.setattr(libsvm, "LONGEST_LINE", 20)
    assert read_libsvm(put(file, b"1 1:1 # 45678901234\n-1 1:234567890123456"))[1].size == 2
    assert "longer than 20 bytes" in refused(file, file.read_bytes() + b"7", 2)


def mutated(content, rng):
    for _ in range(rng.integers(1, 4)):
        at, end = np.sort(rng.integers(0, len(content) + 1, 2))
        new = bytes([rng.choice([*b"0123456789::..+-eE#_n  \t\r\n\n\0\x0b", *rng.bytes(6)])])
        # Change a byte, insert one, leave three out, double a piece, cut the end off.
        ways = (at, new, at + 1), (at, new, at), (at, b"", at + 3), (end, b"", at), (end, b"", 9**9)
        stop, between, start = ways[rng.integers(5)]
        content = content[:stop] + between + content[start:]
    return content


def test_damaged_files_are_read_or_refused_at_the_first_bad_line(file):
    valid = b"# x\n+1 1:0.5 3:2e-1 10:7\r\n-1 2:1 # y\n\n1\n-1 1:-3 2:0\n+1 4:1.25E2 5:1\t6:.5\n"
    rng, right = np.random.default_rng(0), 0
    for _ in range(400):
        content = mutated(valid, rng)
        try:
            X, y = read_libsvm(put(file, content))
        except DataError as error:
            lines = content.split(b"\n")
            last = error.line or len(lines)
            assert str(error).endswith(refused(file, b"\n".join(lines[:last]), error.line))
            read_libsvm(put(file, b"\n".join([*lines[: last - 1], b"1", b"-1"])))
        else:
            right += 1
            same_as_sklearn(file, X, y)
    assert 50 < right < 350


def test_any_path_and_no_other_name(file, monkeypatch, retrieve):
    monkeypatch.chdir(put(file, TINY).parent)
    for name in (file, str(file), "./tiny"):
        data = load_data(name)
        assert (data.name, data.path, data.y.tolist()) == ("tiny", Path(name), [1, -1, -1])
        assert data.X.toarray().tolist() == [[1, 0], [0, 3], [0, 0]]
    for name in ("a8a", "A9A", "", "no/such/file", "."):
        with pytest.raises(
            FileNotFoundError, match=r"a9a, phishing, australian, .* path"
        ) as caught:
            load_data(name)
        assert f"There is no data set {name!r}" in str(caught.value)
        with pytest.raises(FileNotFoundError, match="There is no file"):
            read_libsvm(name)
    retrieve.assert_not_called()


@pytest.mark.parametrize("low, high", [(b"0", b"1"), (b"1", b"2"), (b"-1", b"+1"), (b"-2", b"-.5")])
def test_two_classes_become_minus_one_and_one_and_three_are_refused(low, high, file):
    put(file, high + b" 1:1\n" + low + b" 1:2\n" + low + b" 1:3\n")
    np.testing.assert_array_equal(load_data(file).y, [1.0, -1.0, -1.0])
    assert read_libsvm(put(file, file.read_bytes() + b"7 1:1"))[1][-1] == 7
    with pytest.raises(DataError, match=r"tiny: it has 3 different labels"):
        load_data(file)


def test_unit_rows_leave_zeros_alone(file):
    data = load_data(put(file, b"1 1:3 2:-4\n-1\n-1 1:0 2:0\n1 2:1e-3\n"))
    rows, y = data.unit_rows()
    np.testing.assert_allclose(rows, [[0.6, -0.8], [0, 0], [0, 0], [0, 1]], rtol=1e-15)
    np.testing.assert_array_equal(y, [1, -1, -1, 1])


@pytest.mark.parametrize("name, rows, columns, entries, low", [
    ("a9a", 32561, 123, 451592, 24720), ("phishing", 11055, 68, 331650, 4898),
    ("australian", 690, 14, 9660, 383),
])  # fmt: skip
def test_the_real_sets(name, rows, columns, entries, low, monkeypatch):
    assert sets.KNOWN[name][:3] == (rows, columns, entries)
    if not REAL or not (Path(REAL) / name).is_file():
        pytest.skip(f"MOSSP_DATA names no folder with the file {name}")
    monkeypatch.setenv("MOSSP_DATA", REAL)
    _, X, y, path = load_data(name)
    assert (X.shape, X.nnz, path) == ((rows, columns), entries, Path(REAL) / name)
    assert (np.sum(y == -1), np.sum(y == 1)) == (low, rows - low)


@pytest.mark.parametrize("old, new, says", [
    (b"1\n", b"1\n1\n", "it has rows 4, where 3 is right"),
    (b"2:3", b"3:3", "it has features 3, where 2 is right"),
    (b"1\n", b"1 1:0\n", "it has entries 4, where 3 is right"),
    (b"1\n", b"2\n", "it has labels {1.0: 1, 2.0: 2}, where {1.0: 2, 2.0: 1} is right"),
    (b"\n1", b"\n0", "it has labels {0.0: 2, 2.0: 1}"),
])  # fmt: skip
def test_a_wrong_file_in_the_cache_is_refused(old, new, says, file, retrieve):
    put(file, TINY.replace(old, new))
    with pytest.raises(DataError) as caught:
        load_data("tiny")
    assert f"{file}: this is not the data set tiny: {says}" in str(caught.value)
    retrieve.assert_not_called()


def test_the_order_of_places(tmp_path, file, monkeypatch, retrieve):
    folder = put(tmp_path / "folder" / "tiny", TINY).parent
    inside = {"MOSSP_DATA": "tiny", "MOSSP_CACHE": "data/tiny", "XDG_CACHE_HOME": "mossp/data/tiny"}
    for name, rest in inside.items():
        monkeypatch.setenv(name, str(tmp_path / name))
        put(tmp_path / name / rest, TINY)
    monkeypatch.chdir(put(file, TINY).parents[1])
    put(Path("tiny"), TINY)  # the working folder is none of the places
    assert load_data("tiny", folder).path == load_data("tiny", str(folder)).path == folder / "tiny"
    (folder / "tiny").unlink()
    with pytest.raises(FileNotFoundError, match=f"no file tiny in {re.escape(str(folder))}"):
        load_data("tiny", folder)
    for name, rest in inside.items():
        assert load_data("tiny").path == tmp_path / name / rest
        monkeypatch.setenv(name, "")  # as if unset
    assert load_data("tiny").path == file
    monkeypatch.setenv("MOSSP_DATA", str(folder))  # has none
    assert load_data("tiny").path == file
    retrieve.assert_not_called()


def test_a_download_goes_to_the_cache_and_is_checked(tmp_path, monkeypatch, retrieve):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("MOSSP_DATA", str(tmp_path / "data"))
    retrieve.side_effect = lambda *_, path, fname, **__: str(put(Path(path) / fname, TINY))
    for _ in range(2):
        name, X, y, path = load_data("tiny")
        assert (name, X.shape, y.tolist()) == ("tiny", (3, 2), [1, -1, -1])
        assert path == tmp_path / "own" / "data" / "tiny"
    site = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
    assert [call.args for call in retrieve.call_args_list] == [(site + "tiny",)]
    with pytest.raises(DataError, match=r"australian: this is not the data set australian"):
        load_data("australian")


def test_without_a_network(file, retrieve):
    with pytest.raises(OSError, match="tiny could not be downloaded") as caught:
        load_data("tiny")
    for part in (sets.SITE + "tiny", "ConnectionError", f"file into {file.parent}", "MOSSP_DATA"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, ConnectionError)
    retrieve.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        load_data("tiny")


def test_without_pooch(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    runpy.run_path(sets.__file__)  # can be imported
    with pytest.raises(ImportError, match=r"pip install 'mossp\[cli\]'") as caught:
        load_data("tiny")
    assert f"put the file into {file.parent}" in str(caught.value)
    assert load_data("tiny", put(file, TINY).parent).path == load_data("tiny").path == file


# What the reader must not do --------------------------------------------------------------------


def test_a_long_damaged_number_is_refused_at_once(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"1 1:" + b"1" * 10**6 + b"x\n-1 1:1\n")
    with pytest.raises(DataError, match="not a finite number"):
        read_libsvm(path)


def test_an_error_survives_a_process(tmp_path):
    error = pickle.loads(pickle.dumps(DataError("it is odd", tmp_path / "a", 3)))
    assert (error.line, error.path) == (3, tmp_path / "a")
    assert str(error).endswith("a, line 3: it is odd.")


@pytest.mark.parametrize("features", [0, -3, 3.0, True, 2**31, "3"])
def test_features_must_be_a_whole_number(tmp_path, features):
    (tmp_path / "f").write_bytes(b"1 1:1\n-1\n")
    with pytest.raises(ValueError, match="features must be a whole number"):
        read_libsvm(tmp_path / "f", features)


def test_names_are_strings_and_folders_hold_other_files_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "australian").write_bytes(b"1 1:1\n-1 1:2\n")
    assert load_data(Path("australian")).X.shape == (2, 1)
    (tmp_path / "mine").write_bytes(b"1 1:1\n-1 1:2\n")
    assert load_data("mine", tmp_path).name == "mine"


def test_unit_rows_of_huge_and_tiny_values(tmp_path):
    (tmp_path / "wide").write_bytes(b"1 1:3e200 2:4e200\n-1 1:3e-200 2:4e-200\n-1\n")
    X, _ = load_data(tmp_path / "wide").unit_rows()
    np.testing.assert_allclose(X, [[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]], rtol=1e-15)
