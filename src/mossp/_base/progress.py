"""A bar that shows how much is done, what is at work and the time left, for those who ask."""

from __future__ import annotations

from typing import Any


class Bar:
    """Does nothing unless `shown`; needs rich when it is. It is drawn on standard error.

    Parameters
    ----------
    total : int
        How much there is to do.
    shown : bool
        Whether there is a bar at all.
    unit : str
        "step" for "step 3 of 10"; else "3/10".
    """

    def __init__(self, total: int, shown: bool, unit: str = "") -> None:
        self.total = total
        self._progress: Any = None
        if not shown:
            return
        try:
            from rich import console, progress
        except ImportError:
            raise ImportError("progress=True needs rich: pip install 'mossp[cli]'.") from None
        done = f"{unit} {{task.completed:,.0f}} of {{task.total:,.0f}}"
        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn(done) if unit else progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[detail]}"),
            progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=total, detail="")

    def show(self, done: float, doing: str, detail: str = "", total: float | None = None) -> None:
        """Show how much is done, what is being done, and what is known of it so far.

        `total` says how much there is to do of this, where it is not the same all along.
        """
        if self._progress is not None:
            self._progress.update(
                self._task, completed=done, description=doing, detail=detail,
                total=self.total if total is None else total,
            )  # fmt: skip

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()
