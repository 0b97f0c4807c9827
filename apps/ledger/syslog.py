"""Ledger sent to a syslog server, for whoever keeps it where no administrator of Sluice can change it.

Each chained change is a message of RFC 5424 over TCP or TLS, with its length (RFC 6587, section 3.4.1; RFC 5425).
TCP tells of no receipt: what was on its way when a connection broke is sent again, and numbers tell what came twice.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from urllib.parse import urlsplit

from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.recorder import canonical
from apps.ledger.selectors import change_sent

__all__ = ["DEFAULT_PORTS", "syslog_message", "syslog_sender"]

DEFAULT_PORTS = {"tcp": 601, "tls": 6514}  # RFC 6587 and RFC 5425
_TIMEOUT_S = 10.0
_AUDIT, _NOTICE, _WARNING = 13, 5, 4  # RFC 5424, tables 1 and 2


@contextmanager
def syslog_sender(url: str) -> Iterator[Callable[[Sequence[ObjectChange]], None]]:
    """Sender of changes over one connection. Raises OSError where the server does not take them."""
    with _connected(url) as connection:
        yield lambda rows: connection.sendall(b"".join(map(_framed, rows)))


def syslog_message(change: ObjectChange) -> str:
    """A change as RFC 5424 writes it: facility log audit, refused attempts as warnings, the change itself as JSON.

    Values that are for those who may change them are left out.
    """
    severity = _WARNING if change.action == ChangeAction.REFUSED else _NOTICE
    at = change.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = f"<{_AUDIT * 8 + severity}>1 {at} {socket.gethostname()[:255] or '-'} sluice {os.getpid()} ledger -"
    return f"{head} {canonical(change_sent(change))}"


def _framed(change: ObjectChange) -> bytes:
    message = syslog_message(change).encode()
    return b"%d %s" % (len(message), message)


def _connected(url: str) -> socket.socket:
    server = urlsplit(url)
    address = (server.hostname or "", server.port or DEFAULT_PORTS[server.scheme])
    connection = socket.create_connection(address, _TIMEOUT_S)
    if server.scheme != "tls":
        return connection
    try:
        return ssl.create_default_context().wrap_socket(connection, server_hostname=server.hostname)
    except BaseException:
        connection.close()
        raise
