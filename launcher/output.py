"""Output of the runner: progress, prefixed log lines, failures; and the log files beside it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TextIO

__all__ = ["RotatingLog", "Terminal"]

_COLOURS = ("36", "32", "35", "33", "34")  # cyan, green, magenta, yellow, blue: one per process, in order of appearance
_LOG_BYTES = 5_000_000
_LOG_FILES = 3


class Terminal:
    """Writes whole lines from several threads; colours only on a terminal, and not under NO_COLOR."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._coloured = self._stream.isatty() and not os.environ.get("NO_COLOR")
        self._lock = threading.Lock()
        self._names: list[str] = []

    def line(self, name: str, text: str) -> None:
        """A log line of a process, with its name before it."""
        self._write(f"{self._paint(f'{name:<10}', self._colour(name))} {self._paint('│', '2')} {text}")

    def done(self, name: str, text: str, seconds: float | None = None) -> None:
        """A step of the start that went well."""
        took = "" if seconds is None else self._paint(f"  {seconds:.1f} s", "2")
        self._write(f"  {self._paint('✓', '32')} {name:<10} {text}{took}")

    def begin(self, name: str, text: str) -> None:
        """A step of the start that takes a while."""
        self._write(f"  {self._paint('…', '2')} {name:<10} {self._paint(text, '2')}")

    def note(self, text: str = "") -> None:
        self._write(text)

    def strong(self, text: str) -> None:
        self._write(self._paint(text, "1"))

    def failure(self, text: str) -> None:
        self._write(self._paint(f"sluice: {text}", "31"))

    def _colour(self, name: str) -> str:
        if name not in self._names:
            self._names.append(name)
        return _COLOURS[self._names.index(name) % len(_COLOURS)]

    def _paint(self, text: str, colour: str) -> str:
        return f"\033[{colour}m{text}\033[0m" if self._coloured else text

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                print(text, file=self._stream, flush=True)
            except (OSError, ValueError):  # the terminal is gone; the log files still have everything
                return


class RotatingLog:
    """One process's log, turned over at 5 MB, three old ones kept."""

    def __init__(self, path: Path, max_bytes: int = _LOG_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._handler = RotatingFileHandler(path, maxBytes=max_bytes, backupCount=_LOG_FILES, encoding="utf-8")

    def write(self, text: str) -> None:
        self._handler.emit(logging.makeLogRecord({"msg": text}))

    def close(self) -> None:
        self._handler.close()
