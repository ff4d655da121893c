"""A problem that another process evaluates: one line of JSON asks, one answers.

The families of tests/adversarial are formulas of ours; a peer sees them through this pipe alone.
A line that states a problem begins a run, and the word "stop" ends it. An answer has the value f,
its gradient with noise, the penalty's value and least subgradient, c = (c_E, c_I) and its Jacobian.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


class Stopped(Exception):
    """The gradients are used up."""


class Oracle:
    """One problem, stated by a line."""

    def __init__(self, line: str) -> None:
        self.stated = json.loads(line)
        self.x0 = np.array(self.stated["x0"])
        self.m_E = int(self.stated["equalities"])
        self.slope = np.array(self.stated["slope"])  # s of h = sum s_i |x_i|; 0 without a penalty
        self._last: tuple[bytes, dict[str, Any]] = (b"", {})

    def __call__(self, x: np.ndarray) -> dict[str, Any]:
        """The same point twice is asked for once: SciPy wants c and J one after the other."""
        if self._last[0] != x.tobytes():
            self._last = x.tobytes(), self.anew(x)
        return self._last[1]

    def anew(self, x: np.ndarray) -> dict[str, Any]:
        """With noise of its own, at the same point too."""
        answer = self.ask({"x": [float(v) for v in x]})
        return {k: np.array(v, float) for k, v in answer.items()}

    @staticmethod
    def ask(what: dict[str, Any]) -> dict[str, Any]:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line or line == "stop\n":
            raise Stopped
        return json.loads(line)

    @staticmethod
    def end(x: np.ndarray, said: bool | None) -> None:
        print(json.dumps({"end": [float(v) for v in x], "said": said}), flush=True)


def serve(solve: Callable[[Oracle], None]) -> None:
    """Problem after problem, until the other end is closed."""
    while line := sys.stdin.readline():
        try:
            solve(Oracle(line))
        except Stopped:
            continue
