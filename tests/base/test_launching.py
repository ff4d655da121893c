"""Signs of life between processes, with a service of the test's own in place of JAX's."""

from __future__ import annotations

import threading

import pytest

from mossp._base import launching
from mossp._base.launching import Watch


class Service:
    """What a process can ask the service that connects all of them."""

    def __init__(self):
        self.kept, self.gone, self.end = {}, False, threading.Event()

    def key_value_set(self, key, value, allow_overwrite=False):
        assert allow_overwrite == key.startswith("mossp/alive/")
        self.kept[key] = value
        if not allow_overwrite:
            self.end.set()

    def blocking_key_value_get(self, key, milliseconds):
        assert self.end.wait(5)

    def key_value_dir_get(self, folder):
        if self.gone:
            raise RuntimeError("UNAVAILABLE: Socket closed")
        return [item for item in self.kept.items() if item[0].startswith(folder)]


@pytest.fixture
def service(monkeypatch):
    made = Service()
    monkeypatch.setattr(launching, "client", lambda: made)
    monkeypatch.setattr(launching, "SIGN", 0.01)
    return made


def ended(watch):
    watch.start()
    watch.join(5)
    return not watch.is_alive()


def test_a_silent_process_is_named(service, capsys):
    service.kept["mossp/alive/1"] = "7"
    assert ended(Watch(2, patience=0.05))
    said = capsys.readouterr().err
    assert "process 1 of this run has given no sign of life" in said
    assert "Start the same command again" in said


def test_the_end_of_the_first_process_is_said(service, capsys):
    service.gone = True
    assert ended(Watch(2, patience=60))
    assert "another process of this run has ended" in capsys.readouterr().err


def test_a_process_that_has_left_is_not_missed(service, capsys):
    service.kept["mossp/alive/1"] = launching.LEFT
    watch = Watch(2, patience=0.02)
    watch.start()
    watch.join(0.2)
    assert watch.is_alive()
    watch.leave()
    assert not (watch.is_alive() or watch.waiting.is_alive()) and not capsys.readouterr().err
    assert service.kept["mossp/alive/0"] == launching.LEFT


def test_open_mpi_5_on_one_host(monkeypatch):
    """Its variables, as mpirun 5.0.11 sets them; JAX knows those of Open MPI 4."""
    assert launching.by_open_mpi_5() is None
    given = {"SIZE": "2", "RANK": "1", "LOCAL_SIZE": "2"}
    for name, value in given.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    assert launching.by_open_mpi_5() is None
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun-host-18165@1")
    address, count, index = launching.by_open_mpi_5()
    host, port = address.split(":")
    assert (host, count, index) == ("127.0.0.1", 2, 1) and 2**16 - 2**12 <= int(port) < 2**16
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun-host-18166@1")
    assert launching.by_open_mpi_5()[0] != address
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
    with pytest.raises(RuntimeError, match="several hosts"):
        launching.by_open_mpi_5()
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    assert launching.by_open_mpi_5() is None
