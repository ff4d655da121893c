"""What a command does before a run, and not after it: find what is missing, set up JAX's cache."""

from __future__ import annotations

import importlib.util
import os
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


def keep_compiled_programs() -> Path | None:
    """Let JAX keep what it compiles, so that the next run starts at once; where, or None.

    The folder is $MOSSP_CACHE, or mossp/jax in the user's cache. One that cannot be written to is
    no reason to stop.
    """
    import jax

    own, base = os.environ.get("MOSSP_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(own) if own else Path(base or Path.home() / ".cache") / "mossp" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder
