"""Destinations that the ledger is sent to, for whoever keeps it where no administrator of Sluice can change it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

from django.conf import settings
from django.utils import timezone

from apps.core.messages import Gone, Undelivered
from apps.ledger.chain import CUT
from apps.ledger.models import LedgerMark, ObjectChange
from apps.ledger.syslog import syslog_sender
from apps.ledger.webhook import webhook_sender

__all__ = ["ledger_forward"]

_LIMIT, _BATCH = 10_000, 500
_log = logging.getLogger(__name__)


def ledger_forward() -> int:
    """Send chained changes to each destination that does not have them yet, the oldest first; returns how many.

    One that is away is logged and asked again at the next run, from where it stopped: it gets each change at least
    once, in order.
    """
    syslog = _forward("syslog", settings.LEDGER_SYSLOG, syslog_sender)
    return syslog + _forward("webhook", settings.LEDGER_WEBHOOK, webhook_sender)


def _forward(
    name: str, url: str, sender: Callable[[str], AbstractContextManager[Callable[[Sequence[ObjectChange]], None]]]
) -> int:
    """Send what a destination lacks; its mark says how far it has the ledger."""
    if not url:
        return 0
    mark = LedgerMark.objects.filter(name__in=[name, CUT]).order_by("-number").first()
    number, count = mark.number if mark else 0, 0
    try:
        with sender(url) as send:
            while count < _LIMIT:
                rows = list(ObjectChange.objects.filter(number__gt=number).order_by("number")[:_BATCH])
                if not rows:
                    break
                send(rows)
                number, count = _mark(name, rows[-1]), count + len(rows)
    except (OSError, Undelivered, Gone) as error:
        _log.warning("the ledger is not sent to %s: %s", urlsplit(url).hostname, error)
    return count


def _mark(name: str, last: ObjectChange) -> int:
    """Remember the last change that a destination has; returns its number."""
    assert last.number is not None
    values = {"number": last.number, "hash": last.hash, "at": timezone.now()}
    LedgerMark.objects.update_or_create(name=name, defaults=values)
    return last.number
