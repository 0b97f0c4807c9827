"""Frames nobody can use: kept for a look, within bounds, and counted."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from spark_jobs.files import write_whole

__all__ = ["Quarantine"]

_MOST_FILES, _MOST_BYTES = 200, 64 * 2**20
_SHOWN = 5


class Quarantine:
    """A folder with the newest frames that were put aside, each beside a text that says why."""

    def __init__(self, folder: Path, most_files: int = _MOST_FILES, most_bytes: int = _MOST_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._most_files, self._most_bytes = folder, most_files, most_bytes
        self._lock = threading.Lock()
        self._last: list[str] = []
        self._number = 0

    def keep(self, data: bytes, reason: str) -> None:
        """Put `data` aside."""
        with self._lock:
            self._number += 1
            name = f"{time.time_ns() // 1000:017d}-{self._number:04d}"
            write_whole(self._folder / f"{name}.slf", data[: self._most_bytes])
            write_whole(self._folder / f"{name}.json", json.dumps({"reason": reason, "bytes": len(data)}).encode())
            self._last = [*self._last, reason][-_SHOWN:]
            self._bound()

    @property
    def last_reasons(self) -> list[str]:
        """Why the last frames of this process were put aside."""
        return list(dict.fromkeys(self._last))

    def _bound(self) -> None:
        kept = sorted(self._folder.glob("*.slf"), reverse=True)
        total = 0
        for number, path in enumerate(kept):
            total += path.stat().st_size
            if number and (number >= self._most_files or total > self._most_bytes):
                path.unlink(missing_ok=True)
                path.with_suffix(".json").unlink(missing_ok=True)
