"""A child process of Python."""

from __future__ import annotations

import subprocess
import sys


def child(code, *args):
    # JAX in a child speaks to this terminal only.
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
