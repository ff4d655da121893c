"""What a command does before a run, and not after it: find what is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def need(what: str, *packages: str) -> None:
    """Raise ImportError if one of the packages is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"{what} needs {' and '.join(missing)}: pip install 'mossp[cli]'")


def check_folder(option: str, folder: Path | None) -> None:
    """Raise ValueError unless a report can be written there; None: there will be no report."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{option} must name a folder, but {folder} is a file.")
    need("A report", "jinja2", "matplotlib")
