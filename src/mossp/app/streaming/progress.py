"""How far a pass over a file is: rows done, the time left, and the memory that is used."""

from __future__ import annotations

import sys
from types import TracebackType

from mossp._base.progress import Bar
from mossp.app.streaming.memory import resident

GB = 1e9


class RowsBar:
    """A bar that is drawn anew in every pass; on standard error, if that is a terminal.

    Parameters
    ----------
    rows : int
        Of the file.
    first, end : int
        The rows of this process, to which the model is fitted.
    shown : bool, optional
        Whether there is a bar; if left out, where standard error is a terminal.
    """

    def __init__(self, rows: int, first: int, end: int, shown: bool | None = None) -> None:
        self.first, self.end = first, end
        self.bar = Bar(rows, sys.stderr.isatty() if shown is None else shown, unit="row")
        self.passes, self.expected = 0, 0

    def learning(self, done: int, doing: str) -> None:
        """Rows that were looked at before the fit."""
        self.bar.show(done, doing, detail())

    def read(self, start: int, stop: int) -> None:
        """Rows that are being read for the fit; those of mini-batches are not counted."""
        if start == self.first:
            self.passes += 1
        elif start != self.expected:
            return
        self.expected = stop
        done, total = stop - self.first, self.end - self.first
        self.bar.show(done, f"fitting, pass {self.passes}", detail(), total)

    def __enter__(self) -> RowsBar:
        self.bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.bar.__exit__(kind, error, trace)


def detail() -> str:
    """What is told besides the rows."""
    used = resident()
    return "" if used is None else f"memory {used / GB:.2f} GB"
