"""What a solve may spend: its clock, its samples, and whether it was told to stop.

One value is handed down to whatever takes long. Steps ask it between chunks; polishing before every
pass over the data, since one Newton step may cost more than all steps of a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator

from mossp._base import crew
from mossp._base.interrupt import Interrupt

PRODUCT = 2  # gradients that a Hessian-vector product counts as: it is one, differentiated


class UsedUp(Exception):
    """Raised by `Budget.allow`; the message says what was used up."""


class Clock:
    """The seconds of a run, those of an earlier part of it included.

    Examples
    --------
    >>> Clock(spent=2.0).seconds() >= 2.0
    True
    """

    def __init__(self, spent: float = 0.0) -> None:
        self._began = time.perf_counter() - spent

    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def restart(self) -> None:
        self._began = time.perf_counter()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """What is done inside is not counted: compilation, which a user's budget is not about."""
        shown = self.seconds()
        try:
            yield
        finally:
            self._began = time.perf_counter() - shown


@dataclasses.dataclass(frozen=True)
class Budget:
    """A clock, the samples that polishing may cost, and who is told what it does.

    Attributes
    ----------
    clock
        Shared by all copies of a budget.
    interrupt
        Notes signals, and that a callback asked for an end.
    limit
        In seconds.
    samples
        Gradients that polishing may cost per replica, Hessian-vector products included at PRODUCT
        each.
    observer
        Called with what polishing has reached; True asks for an end.

    Examples
    --------
    >>> budget = Budget(samples=100)
    >>> budget.allow(90)
    >>> budget.late
    False
    """

    clock: Clock = dataclasses.field(default_factory=Clock)
    interrupt: Interrupt = dataclasses.field(default_factory=Interrupt)
    limit: float = math.inf
    samples: float = math.inf
    observer: Callable[..., bool] | None = None

    def observed(self, observer: Callable[..., bool] | None) -> Budget:
        """The same budget, whose reports go to this observer."""
        return dataclasses.replace(self, observer=observer)

    def within(self, part: float) -> Budget:
        """Only this part of the time that is left, for what must leave some to others.

        Examples
        --------
        >>> round(Budget(limit=100.0).within(0.5).limit)
        50
        """
        if self.limit == math.inf:
            return self
        now = self.seconds()
        return dataclasses.replace(self, limit=now + part * (self.limit - now))

    def seconds(self) -> float:
        """As the first of all processes has them, where there are several."""
        return crew.of_first(self.clock.seconds())

    @property
    def late(self) -> bool:
        return self.limit < math.inf and self.seconds() >= self.limit

    @property
    def received(self) -> bool:
        """Whether a signal or the callback asks for an end."""
        return self.interrupt.requested

    def allow(self, cost: float) -> None:
        """Raise UsedUp unless there is time, and `cost` samples are within the budget."""
        if self.received:
            raise UsedUp("it was stopped")
        if self.late:
            raise UsedUp("the time was used up")
        if cost > self.samples:
            raise UsedUp("the gradients were used up")

    def report(self, *seen: object) -> None:
        """Tell the observer what is done; it may ask for an end."""
        if self.observer is not None and not self.interrupt.stopped and self.observer(*seen):
            self.interrupt.stop()
