"""One process of Sluice: what it is, and one run of it."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launcher.children import end_family, spawn
from launcher.output import Console, LogFile

__all__ = ["Run", "Service"]

_RECENT_LINES = 15


@dataclass(frozen=True)
class Service:
    """What to start, how to tell that it is healthy, how to stop it.

    A service is healthy when `healthy()` is true and, with a `ready_line`, a line of its output matched that pattern.
    `quiet` is a pattern of lines that go to the log file only. `stop_steps` are signals with the seconds each is given;
    what is left then is killed. A service that is not `vital` may crash for ever: it is always started again.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    about: str = ""
    healthy: Callable[[], bool] = field(default=lambda: True)
    ready_line: str | None = None
    quiet: str | None = None
    ready_timeout_s: float = 30.0
    stop_steps: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 4.0),)
    vital: bool = True


class Run:
    """A started service: pumps its output to the log file and, while `loud`, to the console; keeps the last lines."""

    def __init__(self, service: Service, console: Console, log: LogFile, *, loud: bool = True) -> None:
        self.service = service
        self.loud = loud
        self.recent: deque[str] = deque(maxlen=_RECENT_LINES)
        self.started_at = time.monotonic()
        self._console, self._log = console, log
        self._line_seen = service.ready_line is None
        self.process = spawn(service.command, env=service.env, cwd=service.cwd, output=subprocess.PIPE)
        self._pump = threading.Thread(target=self._read, name=f"pump-{service.name}", daemon=True)
        self._pump.start()

    @property
    def ready(self) -> bool:
        return self._line_seen and self.service.healthy()

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        """End it and its children, and take in what they still say."""
        end_family(self.process, self.service.stop_steps)
        self.drain()

    def drain(self) -> None:
        """Wait a moment for the last lines of an ended process."""
        self._pump.join(0.5)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for raw in output:
                self._take(raw.decode(errors="replace").rstrip())

    def _take(self, text: str) -> None:
        service = self.service
        self.recent.append(text)
        self._log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}")
        if self.loud and (service.quiet is None or not re.search(service.quiet, text)):
            self._console.line(service.name, text)
        if service.ready_line is not None and re.search(service.ready_line, text):
            self._line_seen = True
