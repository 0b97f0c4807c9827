"""Folders, loopback ports, and the environment of every child process."""

from __future__ import annotations

import json
import os
import random
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "LOOPBACK",
    "ROOT",
    "UpState",
    "child_environment",
    "free_port",
    "is_port_free",
    "port_answers",
    "port_owner",
    "read_up_state",
    "var_dir",
]


ROOT = Path(__file__).resolve().parent.parent
_SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
LOOPBACK = "127.0.0.1"
_PORTS, _DRAW = range(10_000, 32_768), random.SystemRandom()


def var_dir() -> Path:
    """The folder of data, logs and run files, made when missing."""
    folder = Path(os.environ.get("SLUICE_VAR_DIR") or ROOT / "var").absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # sessions and uploads are private
    return folder


def child_environment(**more: str) -> dict[str, str]:
    """This process's environment with the defaults of every part of Sluice; a variable set outside wins."""
    environment = dict(os.environ)
    # tasks run side by side in processes; threads within one would only compete with its neighbours
    for name in _SINGLE_THREADED:
        environment.setdefault(name, "1")
    environment["PYTHONUNBUFFERED"] = "1"
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(path for path in paths if path not in {"", str(ROOT)})])
    environment["SLUICE_VAR_DIR"] = str(var_dir())
    if "REDIS_URL" not in environment and (state := read_up_state()) is not None:
        environment["REDIS_URL"] = state.redis_url
    return environment | more


@dataclass(frozen=True)
class UpState:
    """State of a running `./sluice up` for other commands in the same folder."""

    pid: int
    url: str
    redis_url: str

    @staticmethod
    def path() -> Path:
        return var_dir() / "run" / "up.json"

    def write(self) -> None:
        self.path().parent.mkdir(parents=True, exist_ok=True)
        self.path().unlink(missing_ok=True)
        # readable by its user alone from the first moment: the URL of a Redis may hold its password
        with os.fdopen(os.open(self.path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(json.dumps(asdict(self)))


def read_up_state() -> UpState | None:
    """The state of the `up` that runs on this var directory, or None when none does."""
    try:
        state = UpState(**json.loads(UpState.path().read_text()))
        os.kill(state.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return state


def is_port_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(preferred: int | None = None) -> int:
    """The preferred port when it is free, else one below those that the system gives to outgoing connections: none of
    them takes it before the server that it is for has started.
    """
    port = preferred or _DRAW.choice(_PORTS)
    while not is_port_free(port):
        port = _DRAW.choice(_PORTS)
    return port


def port_answers(port: int, host: str = LOOPBACK, timeout_s: float = 0.5) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


def port_owner(port: int) -> str:
    """The listening process, as " by NAME (process N)"; empty when the system does not say."""
    import psutil  # here, for everything else in this module must work without the environment

    try:
        pids = [
            c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.status == "LISTEN"
        ]
        return f" by {psutil.Process(pids[0]).name()} (process {pids[0]})" if pids and pids[0] else ""
    except psutil.Error:
        return ""
