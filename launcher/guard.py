"""The runner's side of the reaper: tells it which process groups to end should the runner die without a word."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from launcher.children import spawn

__all__ = ["Guard"]


class Guard:
    """A reaper process on a pipe. The kernel closes the pipe when this process dies, whatever it dies of.

    A pipe works on every POSIX system and lets whole process groups be ended in order; a parent-death signal is Linux
    only, reaches the direct child alone and follows the thread that started it.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaper.py"))]
        self._process = spawn(command, input_=subprocess.PIPE)

    def add(self, leader: int) -> None:
        self._tell(f"+{leader}\n")

    def remove(self, leader: int) -> None:
        self._tell(f"-{leader}\n")

    def close(self) -> None:
        """End the reaper; it ends whatever is still noted first."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a reaper that someone killed must not take the console with it
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
