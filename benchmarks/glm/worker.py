"""Calls in another process, each with a limit on its time.

Solvers in C and in compiled loops cannot be interrupted from Python. So they run in a process that
is ended when a call takes too long; the next call starts a new one. One process serves all solvers
of a comparison, so that their times are ratios of one run.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

START = 120.0  # seconds that a new process may take to start


class NotAvailable(Exception):
    """There is no figure, and the text says why."""


class Worker:
    """A process that is started when it is needed, and again after a call that took too long.

    Parameters
    ----------
    environment : mapping, optional
        Variables that the process sees beside those of this one.
    """

    def __init__(self, **environment: str) -> None:
        self.environment = environment
        self.generation = 0  # how many processes have ended: what they had compiled is lost
        self._process: Any = None
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def call(self, function: Callable[..., Any], *args: Any, limit: float) -> Any:
        """What a function of a module here returns; NotAvailable where it fails or is too slow."""
        if self._process is None:
            self._start()
        self._connection.send((function, args))
        if not self._connection.poll(limit):
            self.end()
            raise NotAvailable(f"more than {limit:.0f} s")
        return self._received()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
            self.generation += 1
        self._process = self._connection = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self.environment))
        self._process.start()
        theirs.close()
        if not self._connection.poll(START):
            self.end()
            raise NotAvailable(f"a process did not start within {START:.0f} s")
        self._received()

    def _received(self) -> Any:
        try:
            good, answer = self._connection.recv()
        except EOFError:
            code = self._process.join() or self._process.exitcode
            self.end()
            raise NotAvailable(f"the process died (exit code {code})") from None
        if not good:
            raise NotAvailable(answer)
        return answer


def serve(connection: Any, environment: dict[str, str]) -> None:
    """Answer calls until the other end is closed."""
    os.environ.update(environment)
    warnings.simplefilter("ignore")  # how far an answer got is measured, not told by warnings
    connection.send((True, None))
    while True:
        try:
            function, args = connection.recv()
        except EOFError:
            return
        try:
            answer = True, function(*args)
        except Exception as error:
            answer = False, f"{type(error).__name__}: {error}".splitlines()[0]
        connection.send(answer)
