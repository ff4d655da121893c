"""Several processes as one run: they find each other, and notice when one of them is gone.

The runtime is JAX's own (`jax.distributed`); what is added is a short heartbeat, an address that is
bound only where it is told, and a sentence when the run is lost: JAX ends a process by a message
of its own and an abort.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from typing import Any, NamedTuple

import jax

from mossp._base.crew import LOST, SIGNS

HEARTBEAT = 10  # seconds without a sign of life after which a process is taken for dead
END = "mossp/end"  # a key that a process sets for itself when it ends
WAITING = 30 * 24 * 3600 * 1000  # milliseconds
LEAVING = 2.0  # seconds


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
        return Processes(0, 1)
    jax.distributed.initialize(
        address, count, index, coordinator_bind_address=bind or (address if index == 0 else None),
        heartbeat_timeout_seconds=heartbeat, shutdown_timeout_seconds=heartbeat,
        initialization_timeout=timeout,
    )  # fmt: skip
    watching = threading.Thread(target=watch, name="mossp-watches", daemon=True)
    watching.start()
    atexit.register(leave, watching)  # before JAX takes its leave
    return Processes(jax.process_index(), jax.process_count())


def launcher_found() -> bool:
    """Whether JAX knows the launcher that this process was started by."""
    from jax._src.clusters import ClusterEnv

    usual = (kind for kind in ClusterEnv._cluster_types if not kind.opt_in_only_method)
    return any(kind.is_env_present() for kind in usual)


def watch() -> None:
    """Wait for this process's own end: the wait fails when the first process, or the run, does."""
    try:
        client().blocking_key_value_get(f"{END}/{jax.process_index()}", WAITING)
    except Exception as error:
        if any(sign in str(error) for sign in SIGNS):
            print(LOST, file=sys.stderr, flush=True)


def leave(watching: threading.Thread) -> None:
    """Let the thread that waits come to its end, which it would not survive later."""
    with contextlib.suppress(Exception):  # where the run is lost there is nobody to tell
        client().key_value_set(f"{END}/{jax.process_index()}", "now")
    watching.join(LEAVING)


def client() -> Any:
    """Of the service that connects the processes."""
    from jax._src.distributed import global_state

    return global_state.client
