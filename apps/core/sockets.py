"""Connections of libraries that look names up by themselves: each is checked as it is made.

A URL that was checked may lead elsewhere by a redirect, or by a name that is looked up a second time. Python tells an
audit hook of each connection with the address that it goes to, and a hook that raises prevents it (PEP 578).
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from apps.core.addresses import IPAddress, PrivateAddress

__all__ = ["connections_checked"]

_EVENTS = frozenset({"socket.connect", "socket.sendto"})


@dataclass
class _Watch:
    is_allowed: Callable[[IPAddress], bool]
    refused: list[str] = field(default_factory=list)


_watch: ContextVar[_Watch | None] = ContextVar("watch of connections", default=None)


@contextmanager
def connections_checked(is_allowed: Callable[[IPAddress], bool]) -> Iterator[None]:
    """Within the block this thread connects to addresses that are allowed alone: others are errors of the system.

    Raises
    ------
    PrivateAddress
        At the end of the block, where a connection to another address was refused, whatever the library made of it.
    """
    _install()
    watch = _Watch(is_allowed)
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)
        if watch.refused:
            raise PrivateAddress(watch.refused[0]) from None


@cache
def _install() -> None:
    """Once in a process: a hook cannot be taken away again. Outside of a block it does nothing."""
    sys.addaudithook(_look)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS or (watch := _watch.get()) is None:
        return
    address = arguments[1]
    host = str(address[0]) if isinstance(address, tuple) and address else "a local socket"
    try:
        is_allowed = watch.is_allowed(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        is_allowed = False
    if not is_allowed:
        watch.refused.append(host)
        raise PermissionError(f"connections to {host} are not allowed")  # libraries close their sockets on an OSError
