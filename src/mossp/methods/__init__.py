"""One method a file, and the table of their names."""

from __future__ import annotations

from collections.abc import Callable

from mossp.methods.base import Method
from mossp.methods.mossp import MoSSP
from mossp.momentum import Polyak, Recursive

METHODS: dict[str, Callable[[], Method]] = {
    "mossp-p": lambda: MoSSP(momentum=Polyak()),
    "mossp-r": lambda: MoSSP(momentum=Recursive()),
}

__all__ = ["METHODS", "Method", "MoSSP"]
