"""Child processes in sessions of their own, ended as whole families, and the reaper that outlives the runner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["ReaperPipe", "end_family", "family_lives", "spawn"]


_PR_SET_PDEATHSIG = 1


def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None) if sys.platform == "linux" else None
    except OSError:
        return None


_LIBC = _libc()  # loaded here: between fork and exec nothing may be loaded any more


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output: int | IO[bytes] = subprocess.DEVNULL,
    input_: int = subprocess.DEVNULL,
    tied: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process as the leader of its own session: a Ctrl-C in the terminal does not reach it.

    `tied` has the kernel kill it when the calling thread ends (Linux only): for helpers that need no orderly stop.
    """
    return subprocess.Popen(
        list(command),
        env=None if env is None else dict(env),
        cwd=cwd,
        stdin=input_,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent if tied else None,
    )


def family_lives(leader: int) -> bool:
    """Whether any process of the group that `leader` leads is still there."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signal_family(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return


def end_family(
    process: subprocess.Popen[bytes],
    steps: Sequence[tuple[signal.Signals, float]] = ((signal.SIGTERM, 3.0),),
) -> int | None:
    """Ask the leader to stop, step by step (signal, seconds to wait), then kill the rest of its family."""
    for number, wait_s in steps:
        if process.poll() is not None:
            break
        process.send_signal(number)
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
    _signal_family(process.pid, signal.SIGKILL)
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:  # in the kernel, on a dead disk for example: nothing more can be done here
        return None
    until = time.monotonic() + 1.0
    while family_lives(process.pid) and time.monotonic() < until:
        time.sleep(0.01)
    return process.returncode


class ReaperPipe:
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
        """End the reaper; it first ends the groups still noted."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a reaper that someone killed must not take the console with it
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
