"""Loopback ports: which are free, which answer."""

from __future__ import annotations

import socket

__all__ = ["LOOPBACK", "answers", "free_port", "is_free", "owner"]

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(preferred: int | None = None) -> int:
    """The preferred port when it is free, else one that the system picks."""
    if preferred is not None and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def answers(port: int, host: str = LOOPBACK, timeout_s: float = 0.5) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


def owner(port: int) -> str:
    """Who listens there, as " by NAME (process N)"; empty when the system does not say."""
    import psutil  # here, for everything else in this module must work without the environment

    try:
        found = [
            c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.status == "LISTEN"
        ]
        return f" by {psutil.Process(found[0]).name()} (process {found[0]})" if found and found[0] else ""
    except psutil.Error:
        return ""
