"""A bar with step, objective, violation and time left, for those who ask for it."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Bar:
    """Does nothing unless `shown`; needs rich when it is."""

    def __init__(self, total: int, shown: bool) -> None:
        self._progress: Any = None
        if not shown:
            return
        try:
            from rich import console
            from rich import progress as rich_progress
        except ImportError:
            raise ImportError("progress=True needs rich: pip install 'mossp[cli]'.") from None
        self._progress = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("step {task.completed:,.0f} of {task.total:,.0f}"),
            rich_progress.TextColumn("{task.fields[seen]}"),
            rich_progress.TimeRemainingColumn(),
            console=console.Console(stderr=True),
        )
        self._task = self._progress.add_task("solving", total=total, seen="compiling")

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, step: int, objective: float, violation: float, doing: str = "solving") -> None:
        if self._progress is not None:
            seen = f"F = {objective:.6g}  ||c|| = {violation:.1e}"
            self._progress.update(self._task, completed=step, seen=seen, description=doing)
