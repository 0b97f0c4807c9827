"""Services made of `fake.py`, and readers of their journal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil

from launcher.services import Service
from tests.servers import PATIENCE_S

__all__ = ["alive", "events", "fake", "pids"]

FAKE = Path(__file__).with_name("fake.py")
ROOT = FAKE.parent.parent.parent


def fake(name: str, journal: Path, *options: str, **changed: Any) -> Service:
    """A service that runs the fake; it is ready when it says so."""
    facts: dict[str, Any] = {
        "name": name,
        "command": [sys.executable, "-I", str(FAKE), name, str(journal), *options],
        "env": dict(os.environ),
        "cwd": ROOT,
        "ready_line": f"{name} is ready",
        "stop_steps": ((signal.SIGTERM, PATIENCE_S),),
    }
    return Service(**facts | changed)


def events(journal: Path) -> list[str]:
    """ "NAME EVENT" of every line so far, in order."""
    if not journal.exists():
        return []
    return [" ".join(line.split()[:2]) for line in journal.read_text().splitlines()]


def pids(journal: Path) -> list[int]:
    """Every process that ever wrote, children included."""
    return sorted({int(line.split()[2]) for line in journal.read_text().splitlines()})


def alive(numbers: list[int]) -> list[int]:
    """Those that still run; a zombie that waits for its parent does not."""
    found = []
    for number in numbers:
        try:
            if psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
                found.append(number)
        except psutil.NoSuchProcess:
            continue
    return found
