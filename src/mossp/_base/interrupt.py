"""Ctrl-C and SIGTERM as a request that the run reads between chunks.

Python handles a signal between two of its own instructions, so that a signal has to wait while XLA
compiles; and a run that traces long programs does not look at it for minutes. The system's side of
it does not wait: it writes a byte to a pipe, and a thread at the other end says that the signal was
heard, and ends the process at the second one. The thread is one for the process: to start and to
end one for every run would take longer than a short run does on a busy machine.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from mossp._base import crew

Handler = Callable[[int, FrameType | None], object] | int | None  # what signal.signal returns

# Seconds after which a signal that nobody has looked at is answered, and after which a second one
# that has not ended the run ends the process.
PATIENCE = 1.0
FLUSH = b"\0"  # no signal has this number: all that was written before it has been read


class Interrupt:
    """While entered, the first signal is noted; a second Ctrl-C ends the program as usual.

    Only the main thread may set signal handlers; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.noted: str | None = None  # the name of the first signal
        self.agreed: str | None = None  # what the run ends by
        self.looked_at = False  # by the run, which ends then
        self.stopped = False  # whether a callback asked for an end
        self._before: dict[int, Handler] = {}
        self._heard: Heard | None = None

    @property
    def received(self) -> str | None:
        """The name of the signal, for the run; of several processes, if any of them has one."""
        if self.agreed is None and crew.of_any(self.noted is not None):
            self.agreed = self.noted or "a signal to another process"
        self.looked_at = self.looked_at or self.agreed is not None
        return self.agreed

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
            self._heard = Heard(self)
            listener.attend(self._heard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._heard is not None:
            listener.leave(self._heard)
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
        if self.noted is not None:
            raise KeyboardInterrupt
        self.noted = signal.Signals(number).name


class Heard:
    """What one run has heard of signals from the system, and how they are answered."""

    def __init__(self, interrupt: Interrupt) -> None:
        self.interrupt = interrupt
        self.before = -1  # who listened before, by the number of a file
        self._timers: list[threading.Timer] = []
        self._said = False

    def hear(self, byte: bytes) -> None:
        """In the thread that listens."""
        if self.before != -1:  # another listener, such as an event loop
            os.write(self.before, byte)
        if byte[0] not in (signal.SIGINT, signal.SIGTERM):
            return
        second, code = bool(self._timers), 128 + byte[0]
        if second and (self._said or self.interrupt.noted is None):
            os._exit(code)  # the first was not looked at yet
        # Python ends a run at the second one, unless that is busy outside of Python.
        answer = functools.partial(os._exit, code) if second else self._say
        timer = threading.Timer(PATIENCE, answer)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _say(self) -> None:
        if not self.interrupt.looked_at:
            self._said = True
            print(
                "mossp: interrupted; waiting for the compiler. A second signal ends the process "
                "at once.",
                file=sys.stderr,
                flush=True,
            )


class Listener:
    """The pipe to which the system reports signals at once, and the thread at its other end."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):  # a process that is forked has no thread but its own
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._runs: list[Heard] = []  # one inside of the other; the innermost hears
        self._ends: tuple[int, int] | None = None
        self._lock, self._read_on = threading.Lock(), threading.Event()

    def attend(self, run: Heard) -> None:
        if self._ends is None:
            self._ends = os.pipe()
            os.set_blocking(self._ends[1], False)
            threading.Thread(target=self._listen, args=self._ends[:1], daemon=True).start()
        with self._lock:
            self._runs.append(run)
        before = signal.set_wakeup_fd(self._ends[1], warn_on_full_buffer=False)
        run.before = -1 if before == self._ends[1] else before

    def leave(self, run: Heard) -> None:
        assert self._ends is not None
        signal.set_wakeup_fd(self._ends[1] if len(self._runs) > 1 else run.before)
        if run.interrupt.noted is not None:  # what was written for this run is no other's
            self._read_on.clear()
            os.write(self._ends[1], FLUSH)
            self._read_on.wait()
        with self._lock:
            self._runs.remove(run)
        run.close()

    def _listen(self, end: int) -> None:
        while byte := os.read(end, 1):
            if byte == FLUSH:
                self._read_on.set()
                continue
            with self._lock:
                if self._runs:
                    self._runs[-1].hear(byte)


listener = Listener()
