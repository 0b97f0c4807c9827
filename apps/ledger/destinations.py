"""Destinations that the ledger is sent to, for whoever keeps it where no administrator of Sluice can change it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.core.clock import shared_now
from apps.core.limits import MAX_REASON
from apps.core.messages import Gone, Undelivered
from apps.ledger.chain import CUT
from apps.ledger.models import LedgerMark, LedgerWebhook, ObjectChange
from apps.ledger.syslog import syslog_sender
from apps.ledger.webhook import WebhookAddress, post_test, webhook_in_force, webhook_sender
from engine.redaction import redact_text

__all__ = ["Sending", "changes_unsent", "ledger_forward", "webhook_forget", "webhook_forward", "webhook_try"]

_WEBHOOK = "webhook"  # the mark of how far the webhook has the ledger
_LIMIT, _BATCH = 10_000, 500
_log = logging.getLogger(__name__)
Sender = AbstractContextManager[Callable[[Sequence[ObjectChange]], None]]


@dataclass(frozen=True)
class Sending:
    """Result of sending to a destination: how many changes arrived, and why no more did; None: nothing was to send."""

    count: int
    error: str | None


def ledger_forward() -> int:
    """Send chained changes to each destination that does not have them yet, the oldest first; returns how many.

    One that is away is logged and asked again at the next run, from where it stopped: it gets each change at least
    once, in order.
    """
    count = webhook_forward().count
    if settings.LEDGER_SYSLOG:
        host = urlsplit(settings.LEDGER_SYSLOG).hostname or ""
        count += _forward("syslog", host, lambda: syslog_sender(settings.LEDGER_SYSLOG), _LIMIT).count
    return count


def webhook_forward(limit: int = _LIMIT) -> Sending:
    """Send to the webhook in force what it lacks, and keep at that of the settings what came of it."""
    webhook = webhook_in_force()
    if webhook is None:
        return Sending(0, None)
    sending = _forward(_WEBHOOK, webhook.host, lambda: webhook_sender(webhook), limit, lambda: _is_in_force(webhook))
    _keep(webhook, sending.error, has_arrived=sending.count > 0)
    return sending


def _is_in_force(webhook: WebhookAddress) -> bool:
    """Whether the ledger is still posted to the address of a webhook."""
    now = webhook_in_force()
    return now is not None and now.url == webhook.url


def webhook_try() -> Sending:
    """Post a test to the webhook in force, and keep at that of the settings what came of it."""
    webhook, error = webhook_in_force(), ""
    if webhook is None:
        return Sending(0, None)
    try:
        post_test(webhook)
    except (OSError, Undelivered, Gone) as failure:
        error = redact_text(str(failure))
    _keep(webhook, error, has_arrived=not error)
    return Sending(0, error)


def changes_unsent() -> int:
    """Number of chained changes that the webhook does not have yet."""
    return ObjectChange.objects.filter(number__gt=_number(_WEBHOOK)).count()


def webhook_forget() -> None:
    """Have another address get all that is kept; in the transaction that changes it."""
    LedgerMark.objects.update_or_create(name=_WEBHOOK, defaults={"number": 0, "hash": "", "at": timezone.now()})


def _keep(webhook: WebhookAddress, error: str | None, *, has_arrived: bool) -> None:
    if webhook.row is None or error is None:
        return
    now = shared_now()
    values = {"tried_at": now, "error": error[:MAX_REASON], "failures": F("failures") + 1 if error else 0}
    LedgerWebhook.objects.filter(sealed_address=webhook.row.sealed_address).update(
        **values, **({"sent_at": now} if has_arrived else {})
    )


def _number(name: str) -> int:
    """The last change that a destination has, or that retention has removed."""
    mark = LedgerMark.objects.filter(name__in=[name, CUT]).order_by("-number").first()
    return mark.number if mark else 0


def _forward(
    name: str, host: str, sender: Callable[[], Sender], limit: int, is_in_force: Callable[[], bool] = lambda: True
) -> Sending:
    """Send what a destination lacks; its mark says how far it has the ledger. One that is replaced gets no more."""
    number, count = _number(name), 0
    if not ObjectChange.objects.filter(number__gt=number).exists():
        return Sending(0, None)
    try:
        with sender() as send:
            while count < limit:
                rows = list(ObjectChange.objects.filter(number__gt=number).order_by("number")[:_BATCH])
                if not rows:
                    break
                send(rows)
                count += len(rows)
                if not _mark(name, rows[-1], is_in_force):
                    break
                number = rows[-1].number or number
    except (OSError, Undelivered, Gone) as error:
        _log.warning("the ledger is not sent to %s: %s", host, error)
        return Sending(count, redact_text(str(error)))
    return Sending(count, "")


@transaction.atomic
def _mark(name: str, last: ObjectChange, is_in_force: Callable[[], bool]) -> bool:
    """Remember the last change that a destination has; whether it is still the one that the mark is of.

    Who replaces the destination sets the mark back, and waits for its row as this does: what is looked at here holds
    until the mark is written.
    """
    mark, _ = LedgerMark.objects.select_for_update().get_or_create(name=name, defaults={"number": 0, "hash": ""})
    if not is_in_force():
        return False
    mark.number, mark.hash, mark.at = last.number or 0, last.hash, timezone.now()
    mark.save()
    return True
