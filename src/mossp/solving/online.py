"""A run that is fed: batches come in calls, at any time, and the run goes on where it was."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from mossp._base.structure import Structure
from mossp._base.types import PyTree
from mossp.data import Stream
from mossp.engine.watch import Record
from mossp.methods import SQPDC, Method, MoSSPAL
from mossp.problem import Problem
from mossp.regularizers import Regularizer
from mossp.solving.arguments import checked
from mossp.solving.automatic import FEW_CONSTRAINTS
from mossp.solving.prepare import Prepared, prepare
from mossp.solving.run import run
from mossp.solving.state import State

FOREVER = 1e12  # seconds


class Queue(Iterator[PyTree]):
    """Batches that wait. Empty, it pauses; an iterator that has ended would be at its end."""

    def __init__(self) -> None:
        self.waiting: deque[PyTree] = deque()

    def __next__(self) -> PyTree:
        if not self.waiting:
            raise StopIteration
        return self.waiting.popleft()


class Online:
    """MoSSP's steps on batches as they come, one step a batch, in the loop that `solve` uses.

    The first batches also serve to measure constants, so that more than one in the first call is
    better. `state` is all that it takes to go on later: give it as `state` to a new one.

    Parameters
    ----------
    method : str or Method
        "auto": sqp-dc with recursive momentum, mossp-al beyond 32 constraints.
    schedule : str or Rule
        One without a horizon: "indexed", or a rule from mossp.schedules.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> rng = np.random.default_rng(0)
    >>> run = Online(lambda x, batch: jnp.mean((batch - x) ** 2), np.zeros(1))
    >>> for _ in range(50):
    ...     run.feed([rng.normal(3.0, 1.0, size=(16, 1)) for _ in range(10)])
    >>> run.steps, bool(abs(run.x[0] - 3) < 0.1)
    (500, True)
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        x0: PyTree,
        *,
        regularizer: Regularizer | None = None,
        equality: Callable[[PyTree], Any] | None = None,
        inequality: Callable[[PyTree], Any] | None = None,
        method: Any = "auto",
        schedule: Any = "indexed",
        seed: int = 0,
        dtype: Any = "float64",
        state: tuple[Any, int] | None = None,
    ) -> None:
        self._queue = Queue()
        self._stream = Stream(self._queue)
        self._parts = {
            "loss": loss, "regularizer": regularizer, "equality": equality,
            "inequality": inequality,
        }  # fmt: skip
        self._x0, self._state = x0, state
        self._settings = {"method": method, "schedule": schedule, "seed": seed, "dtype": dtype}
        self._run: tuple[Prepared, State] | None = None
        self._x64 = np.dtype(dtype) == np.float64
        self.structure = Structure.of(x0)

    def feed(self, batches: Iterable[PyTree]) -> None:
        """One step for each batch; all batches ever given have as many rows as the first."""
        self._queue.waiting.extend(batches)
        if not self._queue.waiting:
            return
        with jax.enable_x64(self._x64):
            prepared, state = self._run or self._begin()
            # Until the queue is empty; what was seen before is forgotten, since feeding never ends.
            fresh = Record.empty(1)._replace(lost=state.record.lost, frozen=state.record.frozen)
            state = run(prepared, state._replace(record=fresh, notes=(), ended=None))
            self._run = prepared, state
            self._state = prepared.loop.carry(state.position), state.k
            self._queue.waiting.clear()  # of batches that a run which met NaN did not take

    def _begin(self) -> tuple[Prepared, State]:
        problem = Problem(data=self._stream, **self._parts)  # type: ignore[arg-type]
        settings = dict(self._settings)
        if settings["method"] == "auto":
            settings["method"] = self._chosen(problem)
        arguments = checked(problem, self._x0, seconds=FOREVER, **settings)
        prepared = prepare(problem, arguments, callers_x64=self._x64)
        state = prepared.initial
        if self._state is not None:
            position = prepared.loop.at(state.position, *self._state, anchors=0)
            state = state._replace(position=position)
        return prepared, state

    def _chosen(self, problem: Problem) -> Method:
        few = problem.oracles(self._x0).m <= FEW_CONSTRAINTS
        return SQPDC() if few else MoSSPAL()

    @property
    def state(self) -> tuple[Any, int] | None:
        """The run as numbers, and its step; None before the first batch."""
        return self._state

    @property
    def steps(self) -> int:
        return 0 if self._state is None else self._state[1]

    @property
    def x(self) -> PyTree:
        """Where the run is."""
        if self._state is None:
            return self._x0
        return self.structure.unravel(np.asarray(self._state[0].state.x[0], np.float64))

    @property
    def finite(self) -> bool:
        """Whether it has not met NaN or infinity."""
        if self._run is not None and self._run[1].record.lost.any():
            return False
        return self._state is None or bool(self._state[0].finite[0])
