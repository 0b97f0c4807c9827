"""Deliveries: messages that wait to be sent, and their retries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import models, transaction
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from apps.core.addresses import host_of
from apps.core.clock import shared_now
from apps.core.errors import Conflict, SluiceError
from apps.core.limits import MAX_REASON, MAX_URL
from apps.core.messages import Gone, Undelivered

__all__ = ["PAUSES_MIN", "SEND_TASK", "Channel", "Courier", "DeliveryRow", "DeliveryState", "send_soon"]

SEND_TASK = "workers.send_deliveries"
#: Minutes until the next try after each failure: about a day in all.
PAUSES_MIN = (1, 5, 15, 60, 180, 360, 720)
LEASE = timedelta(minutes=2)
_MAX_ATTEMPTS = len(PAUSES_MIN) + 1
_BATCH_LIMIT = 200
_log = logging.getLogger(__name__)


class Channel(models.TextChoices):
    """Channel of a message."""

    EMAIL = "email", "Mail"
    WEBHOOK = "webhook", "Webhook"
    SERVICE = "service", "Channel"  #: of a service such as Alertmanager or Slack; its target is the channel's name


class DeliveryState(models.TextChoices):
    """State of a delivery."""

    WAITING = "waiting", "Waiting"  #: for its first or next try
    SENDING = "sending", "Sending"  #: a worker has it; after the lease it is tried again
    SENT = "sent", "Sent"  #: the other side took it
    FAILED = "failed", "Not sent"  #: given up; "Send again" starts over


_OPEN = (DeliveryState.WAITING, DeliveryState.SENDING)


class DeliveryRow(models.Model):
    """A message on its way to one reader; which message, a subclass says."""

    channel = models.CharField(max_length=8, choices=Channel.choices)
    target = models.CharField(max_length=MAX_URL, help_text="Address of the mail or of the webhook.")
    state = models.CharField(max_length=8, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_try_at = models.DateTimeField(
        null=True, blank=True, db_index=True, help_text="While sending: end of its lease."
    )
    last_error = models.CharField(max_length=MAX_REASON, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        abstract = True

    @property
    def shown_target(self) -> str:
        """Of a webhook only the host."""
        return host_of(self.target) if self.channel == Channel.WEBHOOK else self.target


@dataclass(frozen=True)
class Courier:
    """Sends the deliveries of one model, by a function for each channel that raises `Undelivered` or `Gone`."""

    rows: Callable[[], models.QuerySet[Any]]  #: with what the functions read
    send: Mapping[str, Callable[[Any], None]]
    announce: Callable[[Any], None]  #: tells open pages that a delivery has changed

    def send_due(self) -> int:
        """Send every delivery whose time has come; returns how many arrived."""
        sent = 0
        for _ in range(_BATCH_LIMIT):
            delivery = self._take(shared_now())
            if delivery is None:
                break
            sent += self._send(delivery)
        return sent

    def send_again(self, delivery: Any) -> None:
        """Try a delivery anew, from the first try on; one that arrived is sent a second time.

        Raises
        ------
        Conflict
            A worker is sending it at this moment.
        """
        now = shared_now()
        if delivery.state == DeliveryState.SENDING and delivery.next_try_at and delivery.next_try_at > now:
            raise Conflict("It is being sent at this moment.")
        delivery.state, delivery.attempts, delivery.next_try_at = DeliveryState.WAITING, 0, now
        delivery.last_error = ""
        delivery.save()
        self.announce(delivery)

    def _take(self, now: datetime) -> Any:
        """The next delivery that is due, taken: of several workers that see it, one update succeeds."""
        rows = self.rows().model.objects
        due = rows.filter(state__in=_OPEN, next_try_at__lte=now).order_by("next_try_at", "pk")
        for row in due[:10]:
            mine = rows.filter(pk=row.pk, state=row.state, next_try_at=row.next_try_at, attempts=row.attempts)
            if not mine.update(state=DeliveryState.SENDING, attempts=row.attempts + 1, next_try_at=now + LEASE):
                continue
            taken = self.rows().filter(pk=row.pk).first()  # none where it was deleted in this moment
            if taken is not None and taken.attempts > _MAX_ATTEMPTS:
                self._end(taken, DeliveryState.FAILED, f"Given up after {row.attempts} tries: its worker ended.")
            elif taken is not None:
                return taken
        return None

    def _send(self, delivery: Any) -> bool:
        try:
            self.send[delivery.channel](delivery)
        except Undelivered as error:
            self._put_off(delivery, str(error))
        except Gone as error:
            self._end(delivery, DeliveryState.FAILED, str(error))
        except SluiceError as error:
            self._put_off(delivery, error.message)
        except Exception:
            _log.exception("delivery %s failed unexpectedly", delivery.pk)
            self._put_off(delivery, "Something went wrong inside Sluice; the worker's log has it.")
        else:
            self._end(delivery, DeliveryState.SENT, "")
            return True
        return False

    def _put_off(self, delivery: Any, error: str) -> None:
        if delivery.attempts >= _MAX_ATTEMPTS:
            self._end(delivery, DeliveryState.FAILED, f"{error} Given up after {delivery.attempts} tries.")
            return
        pause = timedelta(minutes=PAUSES_MIN[delivery.attempts - 1])
        self._store(delivery, state=DeliveryState.WAITING, next_try_at=shared_now() + pause, last_error=error[:300])

    def _end(self, delivery: Any, state: str, error: str) -> None:
        sent_at = shared_now() if state == DeliveryState.SENT else delivery.sent_at
        self._store(delivery, state=state, next_try_at=None, last_error=error[:300], sent_at=sent_at)

    @transaction.atomic
    def _store(self, delivery: Any, **values: object) -> None:
        """Write what came of this try, unless a later one has begun: then this worker was believed dead."""
        rows = self.rows().model.objects
        mine = rows.filter(pk=delivery.pk, state=DeliveryState.SENDING, attempts=delivery.attempts)
        mine.update(**values, updated_at=shared_now())
        self.announce(delivery)


def send_soon() -> None:
    """Send what this transaction addressed as soon as it is committed. Beat looks as well: this only saves the wait."""
    transaction.on_commit(_send_task, robust=True)


def _send_task() -> None:
    with suppress(BrokerError, OSError):
        current_app.send_task(SEND_TASK, priority=settings.SCHEDULED_PRIORITY, retry=False)
