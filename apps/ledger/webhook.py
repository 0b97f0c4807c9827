"""Ledger sent to a webhook as CloudEvents, signed as all webhooks are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path

from django.conf import settings

from apps.core.messages import post_webhook, signature
from apps.ledger.models import ObjectChange
from apps.ledger.recorder import canonical
from apps.ledger.selectors import change_sent

__all__ = ["webhook_sender"]

_AT_ONCE = 100  # events in a request


@contextmanager
def webhook_sender(url: str) -> Iterator[Callable[[Sequence[ObjectChange]], None]]:
    """Sender of changes, a hundred in a request at most. Raises as `post_webhook`."""
    secret = Path(settings.LEDGER_WEBHOOK_SECRET_FILE).read_text().strip()

    def send(rows: Sequence[ObjectChange]) -> None:
        for begin in range(0, len(rows), _AT_ONCE):
            _post(url, secret, rows[begin : begin + _AT_ONCE])

    yield send


def _post(url: str, secret: str, rows: Sequence[ObjectChange]) -> None:
    """POST changes as a batch of CloudEvents 1.0 (cloudevents.io, HTTP protocol binding, section 3.3)."""
    body = f"[{','.join(map(_event, rows))}]".encode()
    headers = {
        "Content-Type": "application/cloudevents-batch+json",
        "User-Agent": "Sluice",
        "Sluice-Delivery": f"ledger-{rows[0].number}-{rows[-1].number}",
        "Sluice-Signature": signature(secret, int(time.time()), body),
    }
    post_webhook(url, body, headers)


def _event(change: ObjectChange) -> str:
    """A change as an event; its number is the id, by which a receiver knows one that came twice."""
    return canonical(
        {
            "specversion": "1.0",
            "id": str(change.number),
            "source": f"{settings.PUBLIC_URL}/ledger",
            "type": f"io.sluice.ledger.{change.action}",
            "subject": f"{change.kind}/{change.object_id}" if change.object_id else change.kind,
            "time": change.at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "datacontenttype": "application/json",
            "data": change_sent(change),
        }
    )
