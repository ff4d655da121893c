"""Several processes as one run: they find each other, and notice when one of them is gone.

The runtime is JAX's own (`jax.distributed`); what is added is a short heartbeat, an address that is
bound only where it is told, and a sentence when the run is lost: JAX ends a process by a message
of its own and an abort.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import zlib
from typing import Any, NamedTuple

import jax

from mossp._base.crew import LOST

HEARTBEAT = 10  # seconds without a sign of life after which a process is taken for dead
# Signs of life, by which the sentence comes so many seconds before JAX's own end.
ALIVE, LEFT, SIGN, BEFORE = "mossp/alive/", "left", 1.0, 4
LEAVING = 2 * SIGN
END, WAITING = "mossp/end/", 30 * 24 * 3600 * 1000  # milliseconds


class Processes(NamedTuple):
    """Which process this is, and of how many."""

    process: int
    processes: int


def distributed(
    address: str | None = None, count: int | None = None, index: int | None = None, *,
    bind: str | None = None, heartbeat: int = HEARTBEAT, timeout: int = 300,
) -> Processes:  # fmt: skip
    """Make this process one of several that run one program, each with rows of its own.

    Call it before anything else of JAX or mossp, in every process, and give `mossp.Sharded` rows
    as data. Under SLURM, Open MPI and the like, everything is found by JAX itself; without such a
    launcher, and without arguments, the process stays alone.

    Parameters
    ----------
    address : str, optional
        "host:port" of the first process, at which the others find it.
    count, index : int, optional
        How many processes there are, and which of them this one is, from 0 on.
    bind : str, optional
        "host:port" that the first process listens at; `address` unless told. (JAX alone would
        listen at all interfaces; it still does where it finds the address by itself.)
    heartbeat : int
        Seconds without a sign of life after which a process is taken for dead, and all others end.
    timeout : int
        Seconds that processes wait for each other at the start.

    Returns
    -------
    Processes
        (process, processes): which one this is, and how many there are.

    Examples
    --------
    >>> import mossp
    >>> mossp.distributed()  # no launcher: one process
    Processes(process=0, processes=1)
    """
    given = (address, count, index)
    if jax.distributed.is_initialized():
        return Processes(jax.process_index(), jax.process_count())
    if address is None and any(value is not None for value in given):
        raise ValueError("distributed needs an address with count and index: 'host:port'.")
    if address is not None and (count is None or index is None):
        raise ValueError("distributed needs count and index with an address.")
    if address is None and not launcher_found():
        found_here = by_open_mpi_5()
        if found_here is None:
            return Processes(0, 1)
        address, count, index = found_here
    jax.distributed.initialize(
        address, count, index, coordinator_bind_address=bind or (address if index == 0 else None),
        heartbeat_timeout_seconds=heartbeat, shutdown_timeout_seconds=heartbeat,
        initialization_timeout=timeout,
    )  # fmt: skip
    found = Processes(jax.process_index(), jax.process_count())
    watch = Watch(found.processes, max(heartbeat - BEFORE, heartbeat / 2))
    watch.start()
    atexit.register(watch.leave)  # before JAX takes its leave
    return found


def launcher_found() -> bool:
    """Whether JAX knows the launcher that this process was started by."""
    from jax._src.clusters import ClusterEnv

    usual = (kind for kind in ClusterEnv._cluster_types if not kind.opt_in_only_method)
    return any(kind.is_env_present() for kind in usual)


def by_open_mpi_5() -> tuple[str, int, int] | None:
    """(address, count, index) under mpirun of Open MPI 5, which JAX does not know; None elsewhere.

    All processes must be on this host: of other hosts its variables do not tell.
    """
    size, index = (os.environ.get(f"OMPI_COMM_WORLD_{name}", "") for name in ("SIZE", "RANK"))
    job = os.environ.get("PMIX_NAMESPACE", "")
    if not (size.isdigit() and index.isdigit() and job) or int(size) < 2:
        return None
    if os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") != size:
        raise RuntimeError(
            "Open MPI 5 does not tell the processes of several hosts where the first one is: give "
            "mossp.distributed(address, count, index), or start them by srun or by Open MPI 4."
        )
    # As JAX does for Open MPI 4: one of the highest ports, by the number of the job.
    port = 2**16 - 2**12 + zlib.crc32(job.encode()) % 2**12
    return f"127.0.0.1:{port}", int(size), int(index)


class Watch(threading.Thread):
    """Gives signs of life, and says when another process gives none any more.

    JAX does so as well, and ends this process then by an abort: the sentence must come before.
    """

    def __init__(self, processes: int, patience: float) -> None:
        super().__init__(name="mossp-watches", daemon=True)
        self.processes, self.patience = processes, patience
        self.ended = threading.Event()
        self.seen: dict[int, tuple[str, float]] = {}  # the last sign of each process, and when
        # The end of the first process, which all others speak to, is no matter of seconds: JAX
        # ends this one at once. A wait for what never comes fails in the same moment.
        self.waiting = threading.Thread(target=self.wait, name="mossp-waits", daemon=True)
        self._said = threading.Lock()

    def start(self) -> None:
        self.waiting.start()
        super().start()

    def wait(self) -> None:
        try:
            client().blocking_key_value_get(f"{END}{jax.process_index()}", WAITING)
        except Exception:
            self.say(LOST)

    def say(self, sentence: str) -> None:
        """Once, and not where the process is at its end anyway."""
        if not self.ended.is_set() and self._said.acquire(blocking=False):
            sys.stderr.write(f"{sentence}\n")
            sys.stderr.flush()

    def run(self) -> None:
        turn = 0
        while not self.ended.is_set():
            turn += 1
            try:
                silent = self.silent(turn)
            except Exception:
                return self.say(LOST)
            if silent:
                return self.say(
                    f"mossp: process {silent} of this run has given no sign of life for "
                    f"{self.patience:.0f} s.\n{LOST}"
                )
            self.ended.wait(SIGN)

    def silent(self, turn: int) -> str:
        """The number of a process without a sign of life; "" where there is none."""
        tell(str(turn))
        now = time.monotonic()
        signs = dict(client().key_value_dir_get(ALIVE))
        for number in set(range(self.processes)) - {jax.process_index()}:
            sign = signs.get(f"{ALIVE}{number}", "")
            before, when = self.seen.setdefault(number, (sign, now))
            if sign != before:
                self.seen[number] = sign, now
            elif sign != LEFT and now - when > self.patience:
                return str(number)
        return ""

    def leave(self) -> None:
        """At the end of the process, which the threads would not survive."""
        self.ended.set()
        with contextlib.suppress(Exception):  # where the run is lost there is nobody to tell
            tell(LEFT)
            client().key_value_set(f"{END}{jax.process_index()}", LEFT)
        for thread in (self, self.waiting):
            thread.join(LEAVING)


def tell(sign: str) -> None:
    client().key_value_set(f"{ALIVE}{jax.process_index()}", sign, allow_overwrite=True)


def client() -> Any:
    """Of the service that connects the processes."""
    from jax._src.distributed import global_state

    return global_state.client
