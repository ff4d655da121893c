"""A model in a file: bit for bit, or one sentence; and predictions as SciPy would make them."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import scipy.special
from scipy.sparse import csr_matrix

from mossp._base import archive
from mossp.app import cli
from mossp.app.features import Features
from mossp.app.model import Model, ModelError
from tests.hostile import mutations

RNG = np.random.default_rng(0)
COLUMNS = (("Größe", None), ("Stadt", ("Köln", "Ål")), ("n", None))
FEATURES = Features(COLUMNS, (1 / 3, 0.5, 0.25, -1e9), (0.1, 1.0, 5e-5, 1e9))
ABOUT = {"violation": float("nan"), "bound": -float("inf"), "λ": [0.1, None, {"deep": True}]}
X = RNG.normal(size=(40, 4))


def linear(classes=None, loss="squared", rows=1, **changes) -> Model:
    kind = "regressor" if classes is None else "classifier"
    coef, intercept = RNG.normal(size=(rows, 4)), RNG.normal(size=rows)
    parts = {"kind": kind, "loss": loss, "target": "Preis (€)", "classes": classes, "about": ABOUT}
    return Model(**parts | {"features": FEATURES, "coef": coef, "intercept": intercept} | changes)


def identical(a: Model, b: Model) -> bool:
    def parts(m):
        arrays = (m.coef, m.intercept) + (() if m.classes is None else (m.classes,))
        about = json.dumps(m.about, sort_keys=True)  # where NaN equals NaN
        return (
            m.kind, m.loss, m.target, m.features, m.offset, about,
            [(array.dtype, array.shape, array.tobytes()) for array in arrays],
        )  # fmt: skip

    return parts(a) == parts(b)


def refused(path) -> str:
    with pytest.raises(ModelError) as caught:
        Model.load(path)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and str(path) in text, text
    return text


def written(path, arrays=None, **changes):
    """The file of a model with other parts; None takes one away."""
    linear([0, 1], "logistic").save(path)
    stored, meta = archive.read_arrays(path)
    stored = {k: v for k, v in (stored | (arrays or {})).items() if v is not None}
    return archive.write_arrays(path, stored, meta | changes)


# Files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes, loss, rows", [
    (None, "poisson", 1),
    (None, "tweedie:1.3", 1),
    (None, "quantile:0.9", 1),
    (np.array(["naïve", "", "日本語"]), "softmax", 3),
    (np.array(["no", "yes"], object), "logistic", 1),
    (np.array([0, 1], np.int32), "logistic", 1),
    (np.array([-1.5, 2, 1e300]), "huberized-hinge", 3),
    (np.array([False, True]), "huberized-hinge", 1),
    (np.array([False, True], object), "softmax", 2),
])  # fmt: skip
def test_a_file_holds_the_model_bit_for_bit(classes, loss, rows, tmp_path):
    before = linear(classes, loss, rows)
    path = before.save(str(tmp_path / "größe.mossp"))
    after = Model.load(str(path))
    assert identical(before, after) and os.listdir(tmp_path) == [path.name]
    np.testing.assert_array_equal(after.predict(X), before.predict(X))
    if classes is not None:
        assert after.classes.tolist() == classes.tolist() and after.classes.dtype.kind in "biufU"
    linear().save(path)  # over the old one
    assert Model.load(path).loss == "squared"


def test_damage_is_found_wherever_it_is(tmp_path):
    before = linear(["a", "b", "c"], "softmax", 3)
    content = before.save(tmp_path / "m").read_bytes()
    found = 0
    for place in [*range(0, len(content), 97), *range(len(content) - 22, len(content))]:
        for flip in (0xFF, 0x01):
            damaged = bytearray(content)
            damaged[place] ^= flip
            (tmp_path / "d").write_bytes(damaged)
            try:  # some bytes, such as the date of an entry, mean nothing
                assert identical(before, Model.load(tmp_path / "d"))
            except ModelError as error:
                assert str(tmp_path / "d") in str(error) and "\n" not in str(error)
                found += 1
    assert found > len(content) // 97
    for length in range(0, len(content), 199):
        (tmp_path / "d").write_bytes(content[:length])
        assert "is damaged, or not a model of mossp" in refused(tmp_path / "d")


class Exploit:
    def __reduce__(self):
        return os._exit, (1,)


def test_foreign_files(tmp_path):
    path = tmp_path / "m"
    np.savez(tmp_path / "a.npz", coef=np.ones(3))
    np.savez(tmp_path / "p.npz", coef=np.array([Exploit()], object), allow_pickle=True)
    np.save(tmp_path / "a.npy", np.ones(3))
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(Exploit()))
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("coef.npy", pickle.dumps(Exploit()))
    archive.write_arrays(tmp_path / "run", {"x": np.ones(3)}, {"seed": 1})
    for file in list(tmp_path.iterdir()):
        assert "is damaged, or not a model of mossp" in refused(file)
    assert "could not be read: No such file" in refused(path)
    assert "could not be read: Is a directory" in refused(tmp_path)
    if os.geteuid():
        linear().save(path).chmod(0)
        assert "could not be read: Permission denied" in refused(path)


NAN = np.full((1, 4), np.nan)
META = FEATURES.to_meta()


@pytest.mark.parametrize("changes, part", [
    ({"format": 4}, "its format is 4, but only 1 and 2 and 3 are known: update mossp"),
    ({"format": 2}, "damaged, or not a model"),
    ({"format": 2, "offset": 3}, "damaged, or not a model"),
    ({"what": "a path of mossp"}, "is damaged, or not a model"),
    ({"features": None}, "is damaged, or not a model"),
    ({"features": META | {"columns": [[1]]}}, "is damaged, or not a model"),
    ({"features": META | {"scale": [1, 1, 1]}}, "every feature needs one finite centre"),
    ({"features": META | {"scale": [1, 1, 1, "a"]}}, "is damaged, or not a model"),
    ({"kind": "oracle"}, "there is no 'oracle' with the loss 'logistic'"),
    ({"kind": "o" * 450}, "…oooooooooooooooooooo' with the loss"),
    ({"format": "2" * 450}, "…22222222222222222222', but only 1 and 2 and 3 are known"),
    ({"loss": ["logistic"]}, "there is no 'classifier' with the loss ['logistic']"),
    ({"target": 3}, "the target and the offset of a model must be text"),
    ({"about": None}, "about a dict"),
    ({"arrays": {"coef": None}}, "is damaged, or not a model"),
    ({"arrays": {"classes": None}}, "a classifier with 1 rows of coefficients cannot have 0"),
    ({"arrays": {"coef": NAN}}, "the coefficients of a model must be finite"),
    ({"arrays": {"intercept": np.array([np.inf])}}, "the coefficients of a model must be finite"),
    ({"arrays": {"coef": np.array([["a"] * 4])}}, "the coefficients of a model must be numbers"),
    ({"arrays": {"coef": np.ones((1, 3))}}, "needs coef of the shape (rows, 4)"),
    ({"arrays": {"coef": np.ones((0, 4)), "intercept": np.ones(0)}}, "0 rows of coefficients"),
    ({"arrays": {"intercept": np.ones((1, 1))}}, "intercept of (rows,)"),
    ({"arrays": {"classes": np.ones(2)}}, "must be finite and all different"),
    ({"arrays": {"classes": np.array([1, np.nan])}}, "must be finite and all different"),
    ({"arrays": {"classes": np.array([1j, 2])}}, "must be all numbers, all booleans or all text"),
    ({"arrays": {"classes": np.arange(3)}}, "1 rows of coefficients cannot have 3 classes"),
])  # fmt: skip
def test_a_whole_file_with_wrong_contents(changes, part, tmp_path):
    assert part in refused(written(tmp_path / "m", **changes))


def test_models_made_by_hand_are_one_sentence(tmp_path, capsys):
    """Right checksums, wrong contents: refused in a sentence, or shown and predicted with."""
    about = {
        "regularizer": "l1:0.1", "equality": ["sum(x) = 1"], "inequality": [], "parity": 0.1,
        "opportunity": None, "sensitive": "sex", "data": "a.csv", "version": "1", "seed": 0,
        "created": "today", "status": "CONVERGED", "objective": 1.0, "violation": 0.0,
        "certificate": {"criticality": 1e-12, "feasibility": 0.0, "tol": 1e-10, "holds": True},
        "scores": {"train": {"accuracy": 0.9}, "test": {"accuracy": 0.8, "log loss": 0.3}},
    }  # fmt: skip
    path = linear(["a", "b", "c"], "softmax", 3, about=about).save(tmp_path / "m")
    rows = tmp_path / "rows.csv"
    rows.write_text("Größe,Stadt,n\n1,Köln,2\n3,Ål,4\n", "utf-8")
    refused = 0
    for what in mutations(path, 200, seed=3):
        codes = {cli.main(["show", str(path), *more]) for more in ([], ["--json"])}
        codes.add(cli.main(["predict", str(path), str(rows)]))
        out, err = capsys.readouterr()
        assert codes <= {0, 2} and "Traceback" not in err, what
        assert "\x1b" not in out + err and "\0" not in out + err, what
        refused += codes == {2}
        if codes == {2}:
            assert all(line.startswith("mossp: ") for line in err.splitlines()), err
    assert 75 < refused < 200
    assert cli.main(["show", str(linear(["a", "b"], "logistic", about={}).save(path))]) == 0


def test_where_no_model_can_be_written(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")  # stands for /dev/null, which a test must not put at risk
    places = {"": "is a folder", "no/m": "There is no folder", "pipe": "is not a plain file"}
    for place, part in places.items():
        with pytest.raises(ModelError, match=part):
            linear().save(tmp_path / place)
    os.remove(tmp_path / "pipe")
    for about in ({"a": np.float32(1)}, {"a": 1, 2: 3}, {"a": X}):
        with pytest.raises(ModelError, match="m was not written, for JSON cannot"):
            linear(about=about).save(tmp_path / "m")

    def full(*_):
        raise OSError(28, "No space left on device")

    linear().save(tmp_path / "m")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ModelError, match="could not be written: No space left on device"):
        linear().save(tmp_path / "m")
    assert os.listdir(tmp_path) == ["m"] and Model.load(tmp_path / "m")


# Predictions ------------------------------------------------------------------------------------


def test_two_classes_as_in_scipy():
    logistic = linear(["no", "yes"], "logistic")
    scores = X @ logistic.coef[0] + logistic.intercept[0]
    np.testing.assert_allclose(logistic.decision(X), scores)
    np.testing.assert_allclose(logistic.decision(csr_matrix(X)), scores)
    assert logistic.predict(X).tolist() == np.where(scores > 0, "yes", "no").tolist()
    np.testing.assert_allclose(logistic.probabilities(X)[:, 1], scipy.special.expit(scores))
    # Far from 0, without a warning, and with small probabilities that are still there.
    far = linear([0, 1], "logistic", coef=[[1.0, 0, 0, 0]], intercept=[0.0])
    t = np.array([-1e308, -800, -40, 0, 40, 1e308])
    expected = np.column_stack([scipy.special.expit(-t), scipy.special.expit(t)])
    np.testing.assert_allclose(far.probabilities(t[:, None] * [1, 0, 0, 0]), expected, rtol=1e-14)
    assert far.predict(t[:, None] * [1, 0, 0, 0]).tolist() == [0, 0, 0, 0, 1, 1]


def test_several_classes_and_numbers():
    softmax = linear(["a", "b", "c"], "softmax", 3)
    scores = X @ softmax.coef.T + softmax.intercept
    expected = scipy.special.softmax(1000 * scores, axis=1)
    steep = dataclasses.replace(
        softmax, coef=1000 * softmax.coef, intercept=1000 * softmax.intercept
    )
    np.testing.assert_allclose(steep.probabilities(X), expected, rtol=1e-9)
    flat = dataclasses.replace(softmax, coef=np.zeros((3, 4)), intercept=[1e308, -1e308, 0])
    assert flat.probabilities(X[:1]).tolist() == [[1, 0, 0]]
    assert softmax.predict(X).tolist() == [softmax.classes[k] for k in scores.argmax(axis=1)]
    assert linear(["a", "b"], "huberized-hinge").probabilities(X) is None
    assert linear(["a", "b", "c"], "logistic", 3).probabilities(X) is None  # they need not sum to 1
    poisson = linear(loss="poisson")
    np.testing.assert_allclose(poisson.predict(X), np.exp(poisson.decision(X)))
    assert poisson.predict(np.full((1, 4), 1e5) * np.sign(poisson.coef)).tolist() == [np.inf]
    for loss in ("gamma", "tweedie:1.5"):
        model = linear(loss=loss)
        np.testing.assert_allclose(model.predict(X), np.exp(model.decision(X)))
    squared = linear()
    assert squared.predict(X).tolist() == squared.decision(X).tolist()
    assert squared.probabilities(X) is None
    for wrong in (X[:, :3], X[0], np.zeros((2, 5)), 3.0):
        with pytest.raises(ModelError, match="The model has 4 features, but X has the shape"):
            squared.decision(wrong)


def test_an_offset_is_added_and_kept_in_a_file_that_older_versions_refuse(tmp_path):
    plain, o = linear([0, 1], "logistic"), RNG.normal(size=40)
    model = dataclasses.replace(plain, offset="log(Tage)")
    np.testing.assert_allclose(model.decision(X, o), plain.decision(X) + o)
    np.testing.assert_array_equal(model.predict(X, o), (model.decision(X, o) > 0).astype(int))
    np.testing.assert_allclose(
        model.probabilities(X, o)[:, 1], scipy.special.expit(plain.decision(X) + o)
    )
    assert identical(Model.load(model.save(tmp_path / "m")), model)
    assert archive.read_arrays(tmp_path / "m")[1]["format"] == 2
    assert archive.read_arrays(plain.save(tmp_path / "p"))[1]["format"] == 1
    with pytest.raises(ModelError, match=r"adds the offset 'log\(Tage\)': give that of each row"):
        model.predict(X)
    with pytest.raises(ModelError, match="has no offset"):
        plain.predict(X, o)
    with pytest.raises(ModelError, match=r"must have the shape \(40,\)"):
        model.predict(X, o[:3])


def test_raw_coefficients_give_the_same_decision():
    softmax = linear(["a", "b", "c"], "softmax", 3)
    raw = X * FEATURES.scale + FEATURES.centre
    coef, intercept = softmax.raw_coefficients()
    assert (coef.shape, intercept.shape) == ((3, 4), (3,))
    np.testing.assert_allclose(raw @ coef.T + intercept, softmax.decision(X), rtol=1e-6, atol=1e-6)
