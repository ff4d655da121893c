"""Ctrl-C and SIGTERM as a request that the run reads between chunks.

Python handles a signal between two of its own instructions, so that a signal has to wait while XLA
compiles. The system's side of it does not wait: it writes a byte to a pipe, and a thread at the
other end says that the signal was heard, and ends the process at the second one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

Handler = Callable[[int, FrameType | None], object] | int | None  # what signal.signal returns

PATIENCE = 1.0  # seconds after which a signal that was not handled is answered


class Interrupt:
    """While active, the first signal is noted; a second Ctrl-C ends the program as usual.

    Only the main thread may set signal handlers; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None  # the name of the first signal
        self.stopped = False  # whether a callback asked for an end
        self._before: dict[int, Handler] = {}
        self._pipe: Pipe | None = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
            self._pipe = Pipe(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pipe is not None:
            self._pipe.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self) -> None:
        """As a signal does, for a callback."""
        self.stopped = True

    @property
    def requested(self) -> bool:
        """Whether anyone asked for an end."""
        return self.stopped or self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name


class Pipe:
    """Where the system reports signals at once, and the thread that listens there."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        signal.set_wakeup_fd(self._before)
        os.close(self._write)  # ends the thread
        self._thread.join()
        os.close(self._read)

    def _listen(self) -> None:
        answer: threading.Timer | None = None
        while byte := os.read(self._read, 1):
            if self._before != -1:  # another listener, such as an event loop
                os.write(self._before, byte)
            if byte[0] not in (signal.SIGINT, signal.SIGTERM):
                continue
            if answer is not None and self._interrupt.received is None:
                os._exit(128 + byte[0])  # the second one, and the first was not handled yet
            answer = threading.Timer(PATIENCE, self._say)
            answer.daemon = True
            answer.start()

    def _say(self) -> None:
        if self._interrupt.received is None:
            print(
                "mossp: interrupted; waiting for the compiler. A second signal ends the process "
                "at once.",
                file=sys.stderr,
                flush=True,
            )
