"""The folder for what can be made or fetched again: what the user says, else what is usual."""

from __future__ import annotations

import os
import sys

VARIABLE = "MOSSP_CACHE"  # a folder, or one of these words
OFF = ("0", "off", "no", "false")
ON = ("1", "on", "yes", "true")


def said() -> str:
    """What MOSSP_CACHE says: "off", "on", a folder, or nothing at all."""
    value = os.environ.get(VARIABLE, "").strip()
    if value.lower() in OFF:
        return "off"
    return "on" if value.lower() in ON else os.path.expanduser(value)


def named() -> str | None:
    """The folder that MOSSP_CACHE names, if it names one."""
    value = said()
    return None if value in ("", "on", "off") else value


def usual() -> str | None:
    """`mossp` where this platform has its caches; None for a user without a home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return os.path.join(given, "mossp")
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return os.path.join(os.environ["LOCALAPPDATA"], "mossp", "cache")
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        return None
    caches = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
    return os.path.join(home, *caches, "mossp")
