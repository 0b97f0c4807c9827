"""Sending what waits to be sent, and trying again what failed.

A delivery is taken by one worker at a time, for as long as its lease lasts. A worker that is killed while it sends
leaves it to the next one: what had been handed over in that very moment is sent again under the same Message-ID or
delivery number, and everything else is sent once.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.core.errors import Conflict
from apps.core.events import announce
from apps.reports.choices import Channel, DeliveryState
from apps.reports.messages import send_email, send_webhook
from apps.reports.models import Delivery
from apps.reports.sending import Gone, Undelivered

__all__ = ["PAUSES_MIN", "deliveries_send_due", "delivery_send_again"]

#: Minutes until the next try after each failure: about a day in all.
PAUSES_MIN = (1, 5, 15, 60, 180, 360, 720)
LEASE = timedelta(minutes=2)
_MOST_AT_ONCE = 200

_OPEN = (DeliveryState.WAITING, DeliveryState.SENDING)
_SEND = {Channel.EMAIL: send_email, Channel.WEBHOOK: send_webhook}
_log = logging.getLogger(__name__)


def deliveries_send_due() -> int:
    """Send every delivery whose time has come; returns how many arrived."""
    sent = 0
    for _ in range(_MOST_AT_ONCE):
        delivery = _take(timezone.now())
        if delivery is None:
            break
        sent += _send(delivery)
    return sent


def delivery_send_again(*, delivery: Delivery) -> Delivery:
    """Try a delivery anew, from the first try on; one that arrived is sent a second time.

    Raises
    ------
    Conflict
        A worker is sending it at this moment.
    """
    now = timezone.now()
    if delivery.state == DeliveryState.SENDING and delivery.next_try_at and delivery.next_try_at > now:
        raise Conflict("It is being sent at this moment.")
    delivery.state, delivery.attempts, delivery.next_try_at = DeliveryState.WAITING, 0, now
    delivery.last_error = ""
    delivery.save()
    announce(f"report:{delivery.report_id}")
    return delivery


def _take(now: datetime) -> Delivery | None:
    """The next delivery that is due, taken: of several workers that see it, one update succeeds."""
    due = Delivery.objects.filter(state__in=_OPEN, next_try_at__lte=now).order_by("next_try_at", "pk")
    for row in due[:10]:
        mine = Delivery.objects.filter(pk=row.pk, state=row.state, next_try_at=row.next_try_at, attempts=row.attempts)
        if mine.update(state=DeliveryState.SENDING, attempts=row.attempts + 1, next_try_at=now + LEASE):
            return Delivery.objects.select_related("report__definition__cluster", "webhook").get(pk=row.pk)
    return None


def _send(delivery: Delivery) -> bool:
    try:
        _SEND[Channel(delivery.channel)](delivery)
    except Undelivered as error:
        _put_off(delivery, str(error))
    except Gone as error:
        _end(delivery, DeliveryState.FAILED, str(error))
    except Exception:
        _log.exception("delivery %s failed unexpectedly", delivery.pk)
        _put_off(delivery, "Something went wrong inside Sluice; the worker's log has it.")
    else:
        _end(delivery, DeliveryState.SENT, "")
        return True
    return False


def _put_off(delivery: Delivery, error: str) -> None:
    if delivery.attempts > len(PAUSES_MIN):
        _end(delivery, DeliveryState.FAILED, f"{error} Given up after {delivery.attempts} tries.")
        return
    pause = timedelta(minutes=PAUSES_MIN[delivery.attempts - 1])
    _store(delivery, state=DeliveryState.WAITING, next_try_at=timezone.now() + pause, last_error=error[:300])


def _end(delivery: Delivery, state: str, error: str) -> None:
    sent_at = timezone.now() if state == DeliveryState.SENT else delivery.sent_at
    _store(delivery, state=state, next_try_at=None, last_error=error[:300], sent_at=sent_at)


@transaction.atomic
def _store(delivery: Delivery, **values: object) -> None:
    """Write what came of this try, unless a later one has begun: then this worker was believed dead."""
    mine = Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.SENDING, attempts=delivery.attempts)
    mine.update(**values, updated_at=timezone.now())
    announce(f"report:{delivery.report_id}")
    announce("reports")
