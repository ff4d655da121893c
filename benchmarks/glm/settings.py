"""What the command line decides, for every table."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """How large, how long, and who takes part."""

    quick: bool
    limit: float  # seconds for one call
    sets: tuple[str, ...]
    solvers: tuple[str, ...]
    cache: str  # folder for the programs that ours keeps on disk, empty at the start

    @property
    def parts(self) -> tuple[float, ...]:
        """lam_max divided by these."""
        return (10.0,) if self.quick else (10.0, 100.0)

    @property
    def runs(self) -> int:
        return 2 if self.quick else 5


def flag(short: bool) -> str:
    return "  SHORT" if short else ""


def number(value: float | None, form: str) -> str:
    """The number, or N/A in as many places."""
    text = "N/A" if value is None else format(value, form)
    width = "".join(c for c in form.partition(".")[0] if c.isdigit())
    return text.rjust(int(width or 0))
