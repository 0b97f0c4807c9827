"""Transactions are short: work that begins while one is open is told to a listener, wherever it is called from.

SQLite takes one writer at a time, and PostgreSQL holds the rows that were locked: everybody waits for as long as a
transaction is open. A solver of the engine, and a connection to another machine, say so to the audit hooks of Python
(PEP 578) when they begin.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connections

from engine.solvers import SOLVING

__all__ = ["WorkInTransaction", "is_transaction_open", "log_work_in_transactions", "watch_transactions"]

_CONNECT = "socket.connect"
_log = logging.getLogger(__name__)


class WorkInTransaction(RuntimeError):
    """Work was begun while a transaction was open, for which everybody who writes would wait."""


def is_transaction_open() -> bool:
    """Whether this thread has a transaction open on any database; that of a test around all counts for nothing."""
    blocks = chain.from_iterable(each.atomic_blocks for each in connections.all(initialized_only=True))
    return any(not block._from_testcase for block in blocks)


def watch_transactions(listener: Callable[[str], None]) -> None:
    """Tell a listener of each piece of work that begins in a transaction, in words; what it raises prevents the work.

    Connections to the broker and the database are no such work. It holds for the rest of the process: an audit hook
    cannot be taken away.
    """

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == SOLVING:
            work = f"the solver {arguments[0]}"
        elif event == _CONNECT and not _is_own(arguments[1]):
            work = f"a connection to {arguments[1]}"
        else:
            return
        if is_transaction_open():
            listener(work)

    sys.addaudithook(look)


@cache
def log_work_in_transactions() -> None:
    """Log, once in a process, each piece of work that begins in a transaction."""
    watch_transactions(lambda work: _log.warning("%s began while a transaction was open: writers wait for it", work))


def _is_own(address: Any) -> bool:
    """Whether an address is that of a socket of this machine, the broker or the database, by the port."""
    if not isinstance(address, tuple):
        return True
    ports = {urlsplit(settings.REDIS_URL).port or 6379}
    ports |= {int(each["PORT"] or 5432) for each in settings.DATABASES.values() if each.get("HOST")}
    return address[1] in ports
