"""Saved results: nothing is lost, nothing is believed unchecked."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import mossp
from mossp import CheckpointError, Result, Status
from mossp._base import files
from tests.disks import full_disk
from tests.engine.runs import assert_same, solve, stop_at
from tests.hostile import mutations
from tests.problems import A, b


class Parts(NamedTuple):
    w: np.ndarray
    rest: list


def parts_loss(x, batch):
    v = jnp.concatenate([x["p"].w, x["p"].rest[0], x["bias"][None]])
    return 0.5 * jnp.mean((batch[0] @ v - batch[1]) ** 2)


def named_constraints(x):
    return {"total": x["p"].w.sum() - 1.0, "pair": x["p"].rest[0] - 0.1}


def plain_loss(x, batch):
    return parts_loss({"p": Parts(x["w"], x["rest"]), "bias": x["bias"]}, batch)


def plain_constraints(x):
    return named_constraints({"p": Parts(x["w"], x["rest"])})


def tree_result(**settings):
    start = {"w": np.zeros(3), "rest": [np.zeros(2)], "bias": np.array(0.0)}
    return solve(
        mossp.Problem(loss=plain_loss, data=(A, b), inequality=plain_constraints), start,
        steps=100, **settings,
    )  # fmt: skip


def test_result_round_trip(tmp_path):
    for number, r in enumerate((solve(steps=100), solve(steps=100, replicas=3), tree_result())):
        file = r.save(tmp_path / f"{number}.npz")
        assert_same(Result.load(file), r)
        assert Result.load(str(file)).summary() == r.summary()
    assert set(r.certificate.multipliers["inequality"]) == {"total", "pair"}
    assert solve(x0=Result.load(tmp_path / "0.npz"), steps=50).steps == 50


def test_result_round_trip_of_a_failure(tmp_path):
    """NaN and infinity survive."""
    r = mossp.solve(
        mossp.Problem(loss=lambda x: jnp.log(x[0]), equality=lambda x: x[0] + 1.0), np.ones(2),
        steps=50,
    )  # fmt: skip
    assert r.status is Status.NONFINITE
    assert_same(Result.load(r.save(tmp_path / "r.npz")), r)


def test_result_of_a_named_tuple(tmp_path):
    start = {"p": Parts(np.zeros(3), [np.zeros(2)]), "bias": np.array(0.0)}
    r = solve(mossp.Problem(loss=parts_loss, data=(A, b)), start, steps=50)
    assert isinstance(r.x["p"], Parts)
    back = Result.load(r.save(tmp_path / "r.npz"))
    assert np.array_equal(back.x["p"][0], r.x["p"].w)  # its class is not kept in a file


def test_damaged_results_are_refused(tmp_path):
    result = solve(steps=100)
    file = result.save(tmp_path / "r.npz")
    good = bytearray(file.read_bytes())
    good[good.index(result.x.tobytes())] ^= 0x20
    file.write_bytes(good)
    with pytest.raises(CheckpointError, match="damaged"):
        Result.load(file)
    with pytest.raises(CheckpointError, match="no file"):
        Result.load(tmp_path / "absent.npz")
    stopped = tmp_path / "run.npz"
    solve(checkpoint=stopped, callback=stop_at(300))
    with pytest.raises((ValueError, CheckpointError), match="not a result"):
        Result.load(stopped)


def test_results_made_by_hand_are_one_sentence(tmp_path):
    """Right checksums, wrong contents: every one is a CheckpointError, or a result that reads."""
    first = tree_result()
    file = first.save(tmp_path / "r.npz")
    refused = 0
    for what in mutations(file, 400, seed=1):
        try:
            Result.load(file).summary()
        except CheckpointError as error:
            assert "\n" not in str(error) and "r.npz" in str(error), what
            refused += 1
    assert refused > 200
    assert_same(Result.load(file), first)


def test_saving_replaces_atomically(tmp_path, monkeypatch):
    r = solve(steps=100)
    file = r.save(tmp_path / "r.npz")
    before = file.read_bytes()
    monkeypatch.setattr(files, "open", full_disk, raising=False)
    with pytest.raises(CheckpointError, match="space"):
        solve(steps=50).save(file)
    monkeypatch.undo()
    assert file.read_bytes() == before
