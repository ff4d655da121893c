"""LIBSVM files and data sets: right files, every way to be wrong, and where a set is found."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mossp
from mossp.data import DataError, libsvm, load_data, read_libsvm, sets

sklearn_datasets = pytest.importorskip("sklearn.datasets")
pooch = pytest.importorskip("pooch")

REAL = os.environ.get("MOSSP_DATA")  # before the fixture below hides it
SHAPES = {"a9a": (32561, 123), "phishing": (11055, 68), "australian": (690, 14)}
ENTRIES = {"a9a": 451592, "phishing": 331650, "australian": 9660}
LABELS = {"a9a": (24720, 7841), "phishing": (4898, 6157), "australian": (383, 307)}


@pytest.fixture(autouse=True)
def retrieve(tmp_path, monkeypatch):
    """No network and no home; what would be downloaded is asked of this."""
    for name in ("MOSSP_DATA", "MOSSP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    fake = mock.create_autospec(pooch.retrieve, side_effect=ConnectionError("no route to host"))
    monkeypatch.setattr(pooch, "retrieve", fake)
    return fake


@pytest.fixture
def file(tmp_path):
    return tmp_path / "some.data"


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def refused(path, content, line, **options):
    """The message, after file and line, of the one error that this content must be."""
    with pytest.raises(ValueError) as caught:
        read_libsvm(put(path, content), **options)
    error, where = caught.value, f"{path}, line {line}: " if line else f"{path}: "
    assert (type(error), error.path, error.line) == (DataError, path, line)
    assert str(error).startswith(where)
    assert str(error).endswith(".")
    return str(error)[len(where) :]


def same_as_sklearn(path, X, y):
    theirs, labels = sklearn_datasets.load_svmlight_file(str(path), zero_based=False)
    np.testing.assert_array_equal(y, labels)
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(X, part), getattr(theirs, part))
    assert X.shape == theirs.shape


# Right files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content, rows, labels",
    [
        pytest.param(b"+1 1:+2 2:-3\n-1 +1:-0.5\n", [[2, -3], [-0.5, 0]], [1, -1], id="signs"),
        pytest.param(b"1e0 1:1e-3 2:2.5E+2\n-2.5 1:.5 2:-1.e1\n", [[1e-3, 250], [0.5, -10]],
                     [1, -2.5], id="scientific"),
        pytest.param(b"# a\n1 1:2 # 2:x\n#\n 0 1:3#5:6\n\t# 1 1:nan \xe9\xff\n", [[2], [3]], [1, 0],
                     id="comments"),
        pytest.param(b"\n\n1 1:2\n   \n\t\n-1 1:3\n\n", [[2], [3]], [1, -1], id="blank-lines"),
        pytest.param(b"1 1:2\r\n\r\n-1 2:3\r\n", [[2, 0], [0, 3]], [1, -1], id="crlf"),
        pytest.param(b"1\t1:2\t 3:4\t\n\t-1  2:3 \n", [[2, 0, 4], [0, 3, 0]], [1, -1], id="tabs"),
        pytest.param(b"1 1:2\n-1 2:3", [[2, 0], [0, 3]], [1, -1], id="no-final-newline"),
        pytest.param(b"1\n-1 2:3\n1 # none\n", [[0, 0], [0, 3], [0, 0]], [1, -1, 1], id="empty"),
        pytest.param(b"1 01:2 10:1\n-1", [[2, *[0] * 8, 1], [0] * 10], [1, -1], id="leading-zero"),
        pytest.param(b"1 1:5e-324 2:1.7976931348623157e308\n2 1:1e-999\n3 2:0.1",
                     [[5e-324, np.finfo(float).max], [0, 0], [0, 0.1]], [1, 2, 3], id="extremes"),
    ],
)  # fmt: skip
def test_right_files(content, rows, labels, file):
    X, y = read_libsvm(put(file, content))
    assert X.dtype == y.dtype == np.float64
    np.testing.assert_array_equal(X.toarray(), np.array(rows, float))
    np.testing.assert_array_equal(y, labels)
    same_as_sklearn(file, X, y)


def test_zeros_are_entries_too(file):
    X, _ = read_libsvm(put(file, b"1 1:0 3:-0.0 4:0e5\n-1\n"))
    assert (X.nnz, X.indices.tolist(), X.indptr.tolist()) == (3, [0, 2, 3], [0, 3, 3])
    assert X.shape == (2, 4)


def test_files_without_any_feature(file):
    X, y = read_libsvm(put(file, b"1\n-1\n"))
    assert (X.shape, X.nnz, y.tolist()) == ((2, 1), 0, [1, -1])
    assert read_libsvm(file, features=7)[0].shape == (2, 7)


def test_the_number_of_features(file):
    put(file, b"1 1:1\n-1 3:2\n")
    assert read_libsvm(str(file))[0].shape == (2, 3)
    for features in (3, 5, np.int64(4)):
        assert read_libsvm(file, features)[0].shape == (2, features)
    reason = refused(file, b"1 1:1\n-1 2:1 3:2\n", 2, features=2)
    assert reason == "the index 3 is too large: there are 2 features."
    # Without the number, some index is absurd; with it, the user knows best.
    assert read_libsvm(put(file, b"1 10000000:1\n-1"))[0].shape == (2, 10**7)
    assert "10000001 is too large" in refused(file, b"1 10000001:1\n-1", 1)
    assert read_libsvm(file, 10**8)[0].shape == (2, 10**8)


FINITE = st.floats(allow_nan=False, allow_infinity=False)
WRITTEN = st.sampled_from(["{!r}", "{:.17g}", "{:+.16e}", "{:.16E}"])
ROW = st.tuples(FINITE, st.dictionaries(st.integers(1, 40), FINITE, max_size=6))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(ROW, max_size=8), WRITTEN, st.sampled_from([" ", "\t", "  \t"]),
       st.sampled_from(["\n", "\r\n", "  \n\n", " # 1:2\n"]))  # fmt: skip
@example([(0.0, {40: -0.0, 1: 1e308})], "{!r}", " ", "\n")
def test_every_number_is_read_as_written_and_as_sklearn_does(
    tmp_path_factory, rows, form, gap, end
):
    rows = [*rows, (1.0, {3: 0.1}), (-1.0, {})]
    texts = [
        gap.join([form.format(label), *(f"{j}:{form.format(row[j])}" for j in sorted(row))])
        for label, row in rows
    ]
    path = tmp_path_factory.getbasetemp() / "written.data"
    X, y = read_libsvm(put(path, (end.join(texts) + end).encode()))
    assert y.tolist() == [label for label, _ in rows]
    assert X.data.tolist() == [row[j] for _, row in rows for j in sorted(row)]
    assert X.indices.tolist() == [j - 1 for _, row in rows for j in sorted(row)]
    same_as_sklearn(path, X, y)


# Wrong files ------------------------------------------------------------------------------

BAD = {  # a line, and what the message says of it
    b"1 1:nan": "value of index 1 is 'nan', which is not a finite number",
    b"1 1:2 3:-NaN": "value of index 3 is '-NaN'",
    b"1 2:inf": "'inf'", b"1 2:-Infinity": "'-Infinity'", b"1 2:1e999": "'1e999', which is too",
    b"1 2:-1e309": "'-1e309'", b"1 2:1" + b"0" * 400: "too large", b"nan 1:1": "the label is 'nan'",
    b"-inf 1:1": "the label is '-inf'", b"1e999": "the label is '1e999'",
    b"one 1:1": "the label is 'one'", b"1:1 2:2": "the label is '1:1'", b"1,2 1:1": "'1,2'",
    b"0x1 1:1": "'0x1'", b"1_0 1:1": "'1_0'", b"- 1:1": "'-'", b". 1:1": "'.'", b"1e 1:1": "'1e'",
    b"1.0.0": "'1.0.0'", b"--1": "'--1'", b"1 0:1": "the index 0 is not positive",
    b"1 1:1 0:1": "the index 0 is not positive", b"1 -0:1": "not positive",
    b"1 -3:1": "the index -3 is not positive", b"1 3:1 2:1": "the index 2 comes after 3",
    b"1 1:1 5:1 9:0 5:1": "the index 5 comes after 9", b"1 2:1 2:1": "the index 2 appears twice",
    b"1 2000000000:1": "the index 2000000000 is too large",
    b"1 12345678901234567890:1": "12345678901234567890' is too large",
    b"1 1" + b"0" * 5000 + b":1": "is too large", b"1 3:": "'3:' is not an index:value pair",
    b"1 3": "'3' is not an index:value pair", b"1 :5": "':5' is not an index:value pair",
    b"1 :": "':' is not an index:value pair", b"1 1:2:3": "value of index 1 is '2:3'",
    b"1 1: 2": "'1:' is not", b"1 1 :2": "'1' is not", b"1 1:2,2:3": "'2,2:3'",
    b"1 1:2;": "'2;'", b"1 qid:3 1:1": "index 'qid' is not a whole number",
    b"1 1_0:1": "index '1_0' is not a whole number", b"1 1:1_0": "'1_0', which is not",
    b"1 0x1:1": "index '0x1'", b"1 1:0x1p3": "'0x1p3'", b"1 1.0:2": "index '1.0'",
    b"1 1e0:2": "index '1e0'", b"1 1:1e": "'1e'", b"1 1:1,5": "'1,5'", b"1 1:1f": "'1f'",
    "1 ١:1".encode(): "index '١' is not a whole number", "1 1:٣".encode(): "'٣'",
    b"1 1:\xff": "'�'", b"1 1:1\x1f": "'1\\x1f'", b"1 1:1\0": "NUL byte", b"\0": "NUL byte",
    b"1 # \0": "NUL byte", b"\xef\xbb\xbf1 1:1": "'\\ufeff1'", b"1 1:1\xc2\xa02:1": "'1\\xa02:1'",
    b"1 1:" + b"x" * 99: "'" + "x" * 40 + "…'",
}  # fmt: skip


@pytest.mark.parametrize("bad, says", BAD.items(), ids=map(ascii, BAD))
def test_the_first_bad_line_is_the_one_named(bad, says, file):
    good, worse = b"# head\n\n1 1:1 2:2\n0 3:1\n", b"\n1 7:worse\n\0\n"
    for content in (bad, bad + b"\r\n-1 1:1\n", bad + worse):
        if not content.startswith(b"\xef\xbb\xbf"):  # a byte order mark there is another matter
            assert says in refused(file, content, 1)
        assert says in refused(file, good + content, 5)
        assert says in refused(file, good.replace(b"\n", b"\r\n") + content, 5)
        assert says in refused(file, good + content, 5, features=9)


@pytest.mark.parametrize(
    "content, line, says",
    [
        (b"", None, "the file is empty"),
        (b"\n \r\n\t\n", None, "the file is empty"),
        (b"# 1 1:1\n\n  # -1 1:1", None, "the file is empty"),
        (b"1 1:1\n1 2:1\n# -1 1:1\n+1.0\n\n# end\n", 4, "all 3 labels are 1"),
        (b"\n-1 1:1", 2, "two classes"),
        (b"0 1:1\n-0 1:2\n", 2, "two classes"),
        (b"\xef\xbb\xbf1 1:1\n-1 1:2\n", 1, "byte order mark"),
        (b"\xef\xbb\xbf", 1, "byte order mark"),
        ("1 1:1\n-1 1:2\n".encode("utf-16"), 1, "UTF-16"),
        (b"\xfe\xff" + "1 1:1\n".encode("utf-16-be"), 1, "UTF-16"),
        ("1 1:1\n-1 1:2\n".encode("utf-16-le"), 1, "NUL byte"),
        (bytes(range(256)), 1, "NUL byte"),
        (b"\x1f\x8b\x08\x08_h\n", 1, "the label is"),
        (b"<!DOCTYPE html>\n<html>\n", 1, "the label is '<!DOCTYPE'"),
        (b"1 1:1\r-1 1:2\r", 1, "'-1' is not an index:value pair"),
    ],
)
def test_files_that_are_wrong_as_a_whole(content, line, says, file):
    assert says in refused(file, content, line)


def test_very_long_lines(file, monkeypatch):
    monkeypatch.setattr(libsvm, "LONGEST_LINE", 20)
    assert read_libsvm(put(file, b"1 1:1 # 456789012345\n-1 1:234567890123456"))[1].size == 2
    assert "longer than 20 bytes" in refused(
        file, b"1 1:1 # 456789012345\n-1 1:2345678901234567", 2
    )


def test_what_is_no_file(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError, match="There is no file"):
            read_libsvm(path)


def mutated(content, rng):
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at, end = np.sort(rng.integers(0, len(content) + 1, 2))
        byte = rng.choice(list(b"0123456789::..+-eE##_xn  \t\r\n\n\0\x0b\xff\xef"))
        new = bytes([byte if rng.random() < 0.8 else rng.integers(256)])
        match rng.integers(5):
            case 0 | 1:
                content[at : at + 1] = new
            case 2:
                content[at:at] = new
            case 3:  # leave something out, or cut the end off
                del content[at : min(end, at + 5) if rng.random() < 0.8 else None]
            case 4:
                content[at:at] = content[at:end]
    return bytes(content)


def test_damaged_files_are_read_or_refused_at_the_first_bad_line(file):
    valid = b"# x\n+1 1:0.5 3:2e-1 10:7\r\n-1 2:1 # y\n\n1\n-1 1:-3 2:0\n+1 4:1.25E2 5:1\t6:.5\n"
    rng, read = np.random.default_rng(0), 0
    for _ in range(600):
        content = mutated(valid, rng)
        try:
            X, y = read_libsvm(put(file, content))
        except DataError as error:
            lines = content.split(b"\n")
            if error.line is None:
                assert all(not line.split(b"#")[0].strip() for line in lines)
                continue
            assert 1 <= error.line <= len(lines)
            assert str(error).startswith(f"{file}, line {error.line}: ")
            refused(file, b"\n".join(lines[: error.line]), error.line)
            try:
                read_libsvm(put(file, b"\n".join(lines[: error.line - 1])))
            except DataError as before:
                assert "two classes" in str(before) or before.line is None
        else:
            read += 1
            assert np.isfinite(X.data).all() and np.isfinite(y).all() and np.unique(y).size > 1
            same_as_sklearn(file, X, y)
    assert 100 < read < 500
    for size in (1, 10, 1000):
        for _ in range(30):
            with pytest.raises(DataError):
                read_libsvm(put(file, rng.bytes(size)))


# Data sets --------------------------------------------------------------------------------

TINY = b"+1 1:1 2:0\n-1 2:3\n-1\n"


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(sets.KNOWN, "tiny", sets.Known(3, 2, 3, {-1.0: 2, 1.0: 1}))


def test_any_path(file, monkeypatch, retrieve):
    put(file, TINY)
    monkeypatch.chdir(file.parent)
    for name in (file, str(file), file.name, Path(file.name), f"./{file.name}"):
        data = load_data(name)
        assert (data.name, data.path) == ("some.data", Path(name))
        assert data.X.toarray().tolist() == [[1, 0], [0, 3], [0, 0]]
        assert data.y.tolist() == [1, -1, -1]
    retrieve.assert_not_called()


@pytest.mark.parametrize("low, high", [(b"0", b"1"), (b"1", b"2"), (b"-1", b"+1"), (b"-2", b"-.5")])
def test_two_labels_become_minus_one_and_one(low, high, file):
    put(file, high + b" 1:1\n" + low + b" 1:2\n" + low + b" 1:3\n")
    np.testing.assert_array_equal(load_data(file).y, [1.0, -1.0, -1.0])


def test_other_numbers_of_classes_are_refused(file):
    with pytest.raises(DataError, match=r"some\.data: it has 3 different labels") as caught:
        load_data(put(file, b"1 1:1\n2 1:1\n3 1:1\n"))
    assert (caught.value.path, caught.value.line) == (file, None)
    with pytest.raises(DataError, match=r"some\.data, line 2: all 2 labels"):
        load_data(put(file, b"1 1:1\n1 1:1\n"))


@pytest.mark.parametrize("name", ["a8a", "A9A", "", "no/such/file", "."])
def test_unknown_names(name, retrieve):
    with pytest.raises(
        FileNotFoundError, match=r"a9a, phishing, australian, or a LIBSVM file"
    ) as e:
        load_data(name)
    assert f"There is no data set {name!r}" in str(e.value)
    retrieve.assert_not_called()


@pytest.mark.parametrize("name", SHAPES)
def test_sets_of_the_right_size_are_taken_and_others_refused(name, tmp_path):
    (rows, features), low = SHAPES[name], LABELS[name][0]
    each, more = divmod(ENTRIES[name], rows)
    pairs = [f"{j}:1".encode() for j in range(1, features + 1)]
    tail = lambda i: b" ".join(pairs[features - each - (i < more) :])  # noqa: E731
    minus = b"0 " if name == "phishing" else b"-1 "
    lines = [(minus if i < low else b"+1 ") + tail(i) + b"\n" for i in range(rows)]
    data = load_data(name, put(tmp_path / name, b"".join(lines)).parent)
    assert (data.name, data.X.shape, data.X.nnz) == (name, SHAPES[name], ENTRIES[name])
    assert (np.sum(data.y == -1), np.sum(data.y == 1)) == LABELS[name]
    put(tmp_path / name, b"".join(lines[:-1]))
    with pytest.raises(DataError, match=f"not the data set {name}: it has rows {rows - 1}"):
        load_data(name, tmp_path)


@pytest.mark.parametrize(
    "old, new, says",
    [
        (b"-1\n", b"-1\n-1\n", "it has rows 4, where 3 is right"),
        (b"2:3", b"3:3", "it has features 3, where 2 is right"),
        (b"-1\n", b"-1 1:0\n", "it has entries 4, where 3 is right"),
        (b"-1\n", b"+1\n", "it has labels {-1.0: 1, 1.0: 2}, where {-1.0: 2, 1.0: 1} is right"),
        (b"-1", b"0", "it has labels {0.0: 2, 1.0: 1}"),
    ],
)
def test_a_wrong_file_in_the_cache_is_refused(
    old, new, says, tiny, tmp_path, monkeypatch, retrieve
):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path))
    path = put(tmp_path / "data" / "tiny", TINY.replace(old, new))
    with pytest.raises(DataError) as caught:
        load_data("tiny")
    assert f"{path}: this is not the data set tiny: {says}" in str(caught.value)
    assert caught.value.path == path
    retrieve.assert_not_called()


@pytest.mark.parametrize("own", [True, False])
def test_the_order_of_places(own, tiny, tmp_path, monkeypatch, retrieve):
    folder, given_, home = tmp_path / "folder", tmp_path / "given", tmp_path / "home/.cache"
    monkeypatch.setenv("MOSSP_DATA", str(given_))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    cache = tmp_path / "xdg" / "mossp" / "data"
    put(home / "mossp" / "data" / "tiny", TINY)
    if own:
        put(cache / "tiny", b"not this one")
        monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "own"))
        cache = tmp_path / "own" / "data"
    for place in (folder, given_, cache):
        put(place / "tiny", TINY)
    assert load_data("tiny", folder).path == load_data("tiny", str(folder)).path == folder / "tiny"
    assert load_data("tiny").path == given_ / "tiny"
    (folder / "tiny").unlink()
    with pytest.raises(FileNotFoundError, match="no file tiny in .*folder"):
        load_data("tiny", folder)
    (given_ / "tiny").unlink()
    assert load_data("tiny").path == cache / "tiny"
    for value in ("", str(tmp_path / "nowhere")):
        monkeypatch.setenv("MOSSP_DATA", value)
        assert load_data("tiny").path == cache / "tiny"
    for name in ("MOSSP_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "")
    assert load_data("tiny").path == home / "mossp" / "data" / "tiny"
    retrieve.assert_not_called()


def serve(content):
    def retrieve(url, known_hash, fname, path, progressbar):
        return str(put(Path(path) / fname, content))

    return retrieve


def test_a_download_goes_to_the_cache_and_happens_once(tiny, tmp_path, monkeypatch, retrieve):
    monkeypatch.setenv("MOSSP_CACHE", str(tmp_path / "own"))
    retrieve.side_effect = serve(TINY)
    for _ in range(2):
        data = load_data("tiny")
        assert data.path == tmp_path / "own" / "data" / "tiny"
        assert data.y.tolist() == [1, -1, -1]
    retrieve.assert_called_once()
    assert retrieve.call_args.args == (
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/tiny",
    )


def test_a_page_in_place_of_the_file_is_refused(tiny, tmp_path, retrieve):
    retrieve.side_effect = serve(b"<html>\nPlease log in.\n")
    with pytest.raises(DataError) as caught:
        load_data("tiny")
    assert f"{tmp_path / 'home/.cache/mossp/data/tiny'}, line 1: " in str(caught.value)


def test_without_a_network(tiny, tmp_path, retrieve):
    with pytest.raises(OSError, match="tiny could not be downloaded") as caught:
        load_data("tiny")
    for part in ("(ConnectionError)", f"put the file into {tmp_path / 'home/.cache/mossp/data'}",
                 "MOSSP_DATA", sets.SITE + "tiny"):  # fmt: skip
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, ConnectionError)
    retrieve.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        load_data("tiny")


def test_without_pooch(tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    cache = tmp_path / "home/.cache/mossp/data"
    with pytest.raises(ImportError, match=r"pip install 'mossp\[cli\]'") as caught:
        load_data("tiny")
    assert f"put the file into {cache}" in str(caught.value)
    put(cache / "tiny", TINY)
    assert load_data("tiny").path == cache / "tiny"


def test_unit_rows_leave_zeros_alone(file):
    data = load_data(put(file, b"1 1:3 2:-4\n-1\n-1 1:0 2:0\n1 2:1e-3\n"))
    rows, y = data.unit_rows()
    np.testing.assert_allclose(rows, [[0.6, -0.8], [0, 0], [0, 0], [0, 1]], rtol=1e-15)
    np.testing.assert_array_equal(y, [1, -1, -1, 1])
    np.testing.assert_array_equal(data.X.toarray(), [[3, -4], [0, 0], [0, 0], [0, 1e-3]])


@pytest.mark.parametrize("name", SHAPES)
def test_the_real_sets(name, monkeypatch, retrieve):
    if not REAL or not (Path(REAL) / name).is_file():
        pytest.skip(f"MOSSP_DATA names no folder with the file {name}")
    monkeypatch.setenv("MOSSP_DATA", REAL)
    data = load_data(name)
    assert (data.X.shape, data.X.nnz, data.path) == (SHAPES[name], ENTRIES[name], Path(REAL, name))
    assert (np.sum(data.y == -1), np.sum(data.y == 1)) == LABELS[name]
    lengths = np.linalg.norm(data.unit_rows()[0], axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, rtol=1e-14)
    retrieve.assert_not_called()


def test_the_error_is_a_value_error():
    assert issubclass(mossp.data.DataError, ValueError)
