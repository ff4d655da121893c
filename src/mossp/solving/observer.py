"""Those who look on while a run goes on: the progress bar and the user's callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from mossp._base import crew
from mossp._base.budget import Clock
from mossp._base.progress import Bar
from mossp._base.structure import Structure
from mossp._base.types import PyTree

REPORT_SECONDS = 1.0  # between two reports of what polishing does


class Progress(NamedTuple):
    """What a callback sees; it may stop the run by returning True or raising StopIteration."""

    step: int
    gradients: int
    seconds: float
    x: PyTree  # every replica: a leading axis
    objective: np.ndarray
    violation: np.ndarray
    doing: str = "steps"  # or "polishing": x is then what that has reached


class Observer:
    """Hands what a run has reached to the bar and to the callback, in the caller's precision."""

    def __init__(
        self, bar: Bar, callback: Callable[[Progress], Any] | None, structure: Structure,
        callers_x64: bool,
    ) -> None:  # fmt: skip
        self.bar, self.structure = bar, structure
        self._callback, self._x64 = callback, callers_x64
        self._last_report = Clock()

    def show(self, k: int, F: float, violation: float, doing: str = "solving") -> None:
        """On the bar."""
        self.bar.show(k, doing, f"F = {F:.6g}  ||c|| = {violation:.1e}")

    @property
    def due(self) -> bool:
        """Whether the last report is long enough ago for another one while polishing."""
        return crew.of_any(self._last_report.seconds() >= REPORT_SECONDS)

    def asks_for_end(self, progress: Progress) -> bool:
        """Whether the callback, called with x as a vector per replica, wants the run to end."""
        if self._callback is None:
            self._last_report.restart()
            return False
        return crew.of_any(self._answer(progress))

    def _answer(self, progress: Progress) -> bool:
        assert self._callback is not None
        progress = progress._replace(x=each_replica(self.structure, progress.x))
        with jax.enable_x64(self._x64):
            try:
                answer = self._callback(progress)
                return isinstance(answer, (bool, np.bool_)) and bool(answer)
            except StopIteration:
                return True
            finally:
                self._last_report.restart()


def each_replica(structure: Structure, xs: Any) -> PyTree:
    """x of every replica, in the user's structure with a leading axis."""
    each = [structure.unravel(x) for x in np.asarray(xs, np.float64)]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *each)
