"""All that changes in a solve, as one value: what a checkpoint saves and a resume restores."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from mossp._base import layout
from mossp._base.archive import CheckpointError
from mossp.engine import checkpoint
from mossp.engine.loop import Loop, Position
from mossp.engine.watch import Record
from mossp.newton import attempts
from mossp.newton.attempts import Attempts
from mossp.result import Status


class Ended(enum.Enum):
    """Why the steps of a run ended."""

    START = "the start is a solution already"
    SOLVED = "every replica has arrived"
    STEPS = "all steps are taken"
    TIME = "the time is used up"
    LOST = "every replica diverged or met NaN"
    STREAM = "the stream has ended"
    CALLBACK = "the callback asked for an end"
    SIGNAL = "Ctrl-C or SIGTERM"

    @property
    def status(self) -> Status | None:
        """What a result says of a run that others ended; None where it ended by itself."""
        if self is Ended.SIGNAL:
            return Status.INTERRUPTED
        return Status.STOPPED if self in (Ended.CALLBACK, Ended.STREAM) else None


class State(NamedTuple):
    """A run between two chunks of steps."""

    position: Position  # where its steps stand
    record: Record  # what was seen of them
    attempts: Attempts  # what polishing has found
    proved: np.ndarray  # F per replica of what is proved without polishing; infinite elsewhere
    notes: tuple[str, ...] = ()  # for the message of the result
    ended: Ended | None = None
    compile_seconds: float = 0.0

    @property
    def k(self) -> int:
        return self.position.k

    def noted(self, *notes: str) -> State:
        return self._replace(notes=(*self.notes, *notes))


LAYOUT = {
    "k": int,
    "anchors": int,
    "notes": layout.Each(str),
    "extra": {"seconds": float, "polishing": attempts.LAYOUT},
}


def save(path: Any, mark: checkpoint.Mark, state: State, loop: Loop, seconds: float) -> None:
    """The state in a file, under the fingerprint of its problem and settings."""
    arrays, polishing = state.attempts.saved()
    seen, notes = state.record.saved()
    arrays |= seen | checkpoint.flattened("carry", loop.carry(state.position))
    meta = {
        "k": state.k, "anchors": state.position.anchors, **notes,
        "extra": {"seconds": seconds, "polishing": polishing},
    }  # fmt: skip
    checkpoint.save(path, mark, arrays, meta)


def restore(
    path: Any, mark: checkpoint.Mark, force: bool, fresh: State, loop: Loop
) -> tuple[State, float] | None:
    """(the saved state, the seconds that it took), or None if there is none."""
    saved = checkpoint.load(path, mark, force, LAYOUT)
    if saved is None:
        return None
    arrays, meta, warning = saved
    like = loop.carry(fresh.position)
    carry = checkpoint.rebuilt(arrays, "carry", like)
    if carry is None:
        raise CheckpointError(f"{path} holds arrays of other shapes than this problem's.")
    try:
        if not force and meta["k"] > loop.events.K:
            raise CheckpointError(
                f"{path} has taken {meta['k']:,} steps, more than the {loop.events.K:,} that are "
                "asked for: ask for more, or name another file."
            )
        if not (0 <= meta["k"] <= loop.events.K and 0 <= meta["anchors"] < 2**63):
            raise layout.LayoutError("its step is none of this run")
        record = Record.restored(arrays, meta, like.last)
        polished = Attempts.restored(arrays, meta["extra"]["polishing"], like.last)
    except layout.LayoutError as error:
        raise checkpoint.foreign(path, error) from None
    if warning:
        record = record._replace(notes=(*record.notes, warning))
    position = loop.at(fresh.position, carry, meta["k"], meta["anchors"])
    state = fresh._replace(position=position, record=record, attempts=polished)
    return state, float(meta["extra"]["seconds"])
