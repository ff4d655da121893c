"""How the command ends: its exit codes, and the one sentence of an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from mossp.app import terminal

SUCCESS, NOT_CERTIFIED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
TOO_EARLY = -1  # interrupted before there was a result; not an exit code
NO_RESULT = "Interrupted before there was a result."


def fail(sentence: str, code: int = WRONG_INPUT, verbatim: bool = False) -> int:
    """Say what is wrong on one line, or as it is if `verbatim`; the exit code."""
    sentence = sentence if verbatim else " ".join(sentence.split())
    terminal.say(f"mossp: {sentence}", sys.stderr)
    return code


def code_of(result: Any) -> int:
    """The exit code for a result."""
    if result.status.name == "INTERRUPTED":
        return INTERRUPTED
    return SUCCESS if result.success else NOT_CERTIFIED


def leaving(sentence: str) -> Callable[..., None]:
    """A handler of Ctrl-C that ends at once; the run itself has a handler of its own.

    An exception does not do it: raised while JAX compiles, it may be swallowed, or Python may crash
    on its way out.
    """

    def leave(*_: Any) -> None:
        os.write(2, f"\nmossp: {sentence}\n".encode())
        os._exit(INTERRUPTED)

    return leave


leave = leaving(NO_RESULT)
