"""Ledger sent to a webhook as CloudEvents, signed as all webhooks are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from django.conf import settings

from apps.core.addresses import host_of
from apps.core.clock import shared_now
from apps.core.messages import Gone, post_webhook, signature
from apps.core.secrets import SecretLost, unseal_secret
from apps.ledger.models import ADDRESS_PURPOSE, SECRET_PURPOSE, LedgerWebhook, ObjectChange
from apps.ledger.recorder import canonical
from apps.ledger.selectors import change_sent

__all__ = ["WebhookAddress", "post_test", "webhook_in_force", "webhook_sender"]

_AT_ONCE = 100  # events in a request


@dataclass(frozen=True)
class WebhookAddress:
    """The webhook in force: that of the settings (`row`), or the one that the environment names."""

    row: LedgerWebhook | None

    @property
    def host(self) -> str:
        """The part of its address that may be shown."""
        return self.row.shown_address if self.row is not None else host_of(settings.LEDGER_WEBHOOK)

    @property
    def url(self) -> str:
        """Its address as a whole. Raises Gone as `read`."""
        return settings.LEDGER_WEBHOOK if self.row is None else _unsealed(self.row.sealed_address, ADDRESS_PURPOSE)

    def read(self) -> tuple[str, str]:
        """Address and secret.

        Raises
        ------
        Gone
            They were encrypted under another key of the installation.
        OSError
            The file with the secret cannot be read.
        """
        if self.row is None:
            return self.url, Path(settings.LEDGER_WEBHOOK_SECRET_FILE).read_text().strip()
        return self.url, _unsealed(self.row.sealed_secret, SECRET_PURPOSE)


def _unsealed(sealed: str, purpose: str) -> str:
    try:
        return unseal_secret(sealed, purpose)
    except SecretLost as lost:
        raise Gone(f"Address and secret have to be given again: {lost}.") from None


def webhook_in_force() -> WebhookAddress | None:
    """The webhook of the settings before that of the environment; None where there is neither."""
    row = LedgerWebhook.objects.first()
    return WebhookAddress(row) if row is not None or settings.LEDGER_WEBHOOK else None


@contextmanager
def webhook_sender(webhook: WebhookAddress) -> Iterator[Callable[[Sequence[ObjectChange]], None]]:
    """Sender of changes, a hundred in a request at most. Raises as `WebhookAddress.read` and `post_webhook`."""
    url, secret = webhook.read()

    def send(rows: Sequence[ObjectChange]) -> None:
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            _post(url, secret, f"{some[0].number}-{some[-1].number}", list(map(_event, some)))

    yield send


def post_test(webhook: WebhookAddress) -> None:
    """POST an event that is no change, of the type `io.sluice.ledger.test`. Raises as `webhook_sender`."""
    now = shared_now()
    name = f"test-{now.timestamp():.3f}"
    event = {
        "specversion": "1.0",
        "id": name,
        "source": f"{settings.PUBLIC_URL}/ledger",
        "type": "io.sluice.ledger.test",
        "time": now.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": {},
    }
    _post(*webhook.read(), name, [canonical(event)])


def _post(url: str, secret: str, name: str, events: Sequence[str]) -> None:
    """POST a batch of CloudEvents 1.0 (cloudevents.io, HTTP protocol binding, section 3.3)."""
    body = f"[{','.join(events)}]".encode()
    headers = {
        "Content-Type": "application/cloudevents-batch+json",
        "User-Agent": "Sluice",
        "Sluice-Delivery": f"ledger-{name}",
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
