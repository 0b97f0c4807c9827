"""Ledger sent to a syslog server, for whoever keeps it where no administrator of Sluice can change it.

Each chained change is a message of RFC 5424 over TCP or TLS, with its length (RFC 6587, section 3.4.1; RFC 5425).
TCP tells of no receipt: what was on its way when a connection broke is sent again, and numbers tell what came twice.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC
from urllib.parse import urlsplit

from django.conf import settings
from django.utils import timezone

from apps.ledger.chain import CUT
from apps.ledger.choices import ChangeAction
from apps.ledger.models import LedgerMark, ObjectChange
from apps.ledger.recorder import canonical
from apps.ledger.selectors import shown_fields

__all__ = ["DEFAULT_PORTS", "ledger_forward", "syslog_message"]

DEFAULT_PORTS = {"tcp": 601, "tls": 6514}  # RFC 6587 and RFC 5425
_SENT = "syslog"
_LIMIT, _BATCH = 10_000, 500
_TIMEOUT_S = 10.0
_AUDIT, _NOTICE, _WARNING = 13, 5, 4  # RFC 5424, tables 1 and 2
_log = logging.getLogger(__name__)


def ledger_forward() -> int:
    """Send chained changes that the server does not have yet, the oldest first; returns how many.

    A server that is away is logged and asked again at the next run, from where it stopped.
    """
    if not settings.LEDGER_SYSLOG:
        return 0
    mark = LedgerMark.objects.filter(name__in=[_SENT, CUT]).order_by("-number").first()
    number, count = mark.number if mark else 0, 0
    try:
        with _connected(settings.LEDGER_SYSLOG) as connection:
            while count < _LIMIT:
                rows = list(ObjectChange.objects.filter(number__gt=number).order_by("number")[:_BATCH])
                if not rows:
                    break
                connection.sendall(b"".join(map(_framed, rows)))
                number, count = _mark(rows), count + len(rows)
    except OSError as error:
        server = urlsplit(settings.LEDGER_SYSLOG)
        _log.warning("the ledger is not sent to %s: %s", server.hostname, error)
    return count


def syslog_message(change: ObjectChange) -> str:
    """A change as RFC 5424 writes it: facility log audit, refused attempts as warnings, the change itself as JSON.

    Values that are for those who may change them are left out.
    """
    severity = _WARNING if change.action == ChangeAction.REFUSED else _NOTICE
    row = {field.attname: getattr(change, field.attname) for field in ObjectChange._meta.concrete_fields}
    row |= {side: shown_fields(change, row[side], may_change=False) for side in ("before", "after")}
    at = change.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    head = f"<{_AUDIT * 8 + severity}>1 {at} {socket.gethostname()[:255] or '-'} sluice {os.getpid()} ledger -"
    return f"{head} {canonical(row)}"


def _framed(change: ObjectChange) -> bytes:
    message = syslog_message(change).encode()
    return b"%d %s" % (len(message), message)


def _mark(rows: Sequence[ObjectChange]) -> int:
    """Remember how far the server has the ledger; returns the number."""
    last = rows[-1]
    assert last.number is not None
    values = {"number": last.number, "hash": last.hash, "at": timezone.now()}
    LedgerMark.objects.update_or_create(name=_SENT, defaults=values)
    return last.number


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
