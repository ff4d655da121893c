"""What a solve may spend: its clock, its samples, and whether it was told to stop.

One object is handed down to whatever takes long. Steps look at it between chunks; polishing before
every pass over the data, since one Newton step may cost more than all steps of a run.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from mossp.interrupt import Interrupt

PRODUCT = 2  # gradients that a Hessian-vector product counts as: it is one, differentiated


class UsedUp(Exception):
    """Raised by `Budget.allow`; the message says what was used up."""


class Budget:
    """A clock that runs, the samples that polishing may cost, and a report of what it does.

    seconds   on the clock, which `start` sets: compilation before a run is not counted
    samples   gradients that polishing may cost per replica, Hessian-vector products included at
              PRODUCT each

    >>> budget = Budget(samples=100)
    >>> budget.allow(90)
    >>> budget.late
    False
    """

    def __init__(
        self, interrupt: Interrupt | None = None, seconds: float = math.inf,
        samples: float = math.inf, report: Callable[..., bool] | None = None,
    ) -> None:  # fmt: skip
        self.interrupt = interrupt or Interrupt()
        self.limit, self.samples, self._report = seconds, samples, report
        self.stopped = False  # by the callback
        self.start(0.0)

    def start(self, spent: float) -> None:
        """The clock shows `spent` seconds now."""
        self._clock = time.perf_counter() - spent

    def seconds(self) -> float:
        return time.perf_counter() - self._clock

    @property
    def late(self) -> bool:
        return self.seconds() >= self.limit

    @contextlib.contextmanager
    def within(self, part: float) -> Iterator[None]:
        """Only this part of the time that is left, for what must leave some to others.

        >>> budget = Budget(seconds=100.0)
        >>> with budget.within(0.5):
        ...     round(budget.limit)
        50
        >>> budget.limit
        100.0
        """
        limit, now = self.limit, self.seconds()
        self.limit = now + part * (limit - now)
        try:
            yield
        finally:
            self.limit = limit

    @property
    def received(self) -> bool:
        """Whether a signal or the callback asks for an end."""
        return self.stopped or self.interrupt.received is not None

    def allow(self, cost: float) -> None:
        """UsedUp unless there is time, and `cost` samples are within the budget."""
        if self.received:
            raise UsedUp("it was stopped")
        if self.late:
            raise UsedUp("the time was used up")
        if cost > self.samples:
            raise UsedUp("the gradients were used up")

    def report(self, *seen: Any) -> None:
        """Tells those who look on what is done; they may ask for an end."""
        if self._report is not None and not self.stopped:
            self.stopped = self._report(*seen)
