"""Record of a running engine, by which other commands find and stop it."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

__all__ = ["EngineRecord", "stop_engine"]

_PATIENCE_S = 20.0


@dataclass(frozen=True)
class EngineRecord:
    """An engine that `./sluice engines` started: the process that owns it, and its addresses.

    `born` is that process's time of birth: numbers of processes are used again.
    """

    engine: str
    pid: int
    born: float
    url: str
    ports: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of_this_process(engine: str, url: str, **ports: int) -> EngineRecord:
        return EngineRecord(engine, os.getpid(), psutil.Process().create_time(), url, ports)

    @staticmethod
    def read(path: Path) -> EngineRecord | None:
        """The record of an engine that still runs, or None."""
        try:
            record = EngineRecord(**json.loads(path.read_text()))
            is_same = abs(psutil.Process(record.pid).create_time() - record.born) < 0.1
        except (OSError, ValueError, TypeError, psutil.Error):
            return None
        return record if is_same else None

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))


def stop_engine(path: Path) -> bool | None:
    """Ask the owner of a recorded engine to stop it, and wait; None where none runs, False if it does not end."""
    record = EngineRecord.read(path)
    if record is None:
        return None
    os.kill(record.pid, signal.SIGTERM)
    until = time.monotonic() + _PATIENCE_S
    while EngineRecord.read(path) is not None:
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
