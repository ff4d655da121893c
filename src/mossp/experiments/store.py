"""Finished parts on disk: an interrupted reproduction goes on without repeating them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mossp._base import files

VERSION = 1  # of what a part holds


class Store:
    """JSON files in a folder, by key. A part made with other settings is made again."""

    def __init__(self, folder: Path, settings: Any) -> None:
        self.folder = folder
        text = json.dumps([VERSION, settings], sort_keys=True, default=str)
        self.mark = hashlib.sha256(text.encode()).hexdigest()[:16]

    def path(self, key: str) -> Path:
        safe = "".join(c if c.isalnum() or c in "-._" else "-" for c in key)
        return self.folder / f"{safe}.json"

    def get(self, key: str) -> Any:
        """The part, or None where there is none that can be used."""
        try:
            saved = json.loads(self.path(key).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        usable = isinstance(saved, dict) and saved.get("mark") == self.mark
        return saved.get("part") if usable and saved.get("key") == key else None

    def make(self, key: str, work: Callable[[], Any]) -> Any:
        """The part from disk, or from `work` and then on disk."""
        part = self.get(key)
        if part is None:
            part = work()
            self.folder.mkdir(parents=True, exist_ok=True)
            saved = json.dumps({"mark": self.mark, "key": key, "part": part})
            files.write(self.path(key), saved.encode("utf-8"))
        return part
