"""A share of the hostile files, and the bombs that are quick."""

from __future__ import annotations

import pytest

from tests.adversarial import children, files

pytestmark = pytest.mark.slow


SHARE = {
    "LIBSVM": 200, "CSV": 60, "Parquet": 40, "expression": 200, "model": 40,
    "column name": 8, "result": 80, "checkpoint": 20,
}  # fmt: skip


@pytest.mark.parametrize("kind", SHARE)
def test_hostile_files(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [(number, files.attack_one(kind, number, tmp_path)) for number in range(SHARE[kind])]
    assert not [(number, fault) for number, fault in found if fault]


@pytest.mark.parametrize("name", ["model of 1 GB", "csv.gz of 256 kB"])
def test_bombs(name):
    (found,) = children.supervise("files", ("bomb",), 1, 120.0, files.BOMBS.index(name))
    assert not found["fault"]
