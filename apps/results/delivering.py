"""Notices of alerts on their way to those whom their rule tells."""

from __future__ import annotations

from apps.core.delivering import Channel, Courier
from apps.core.events import announce
from apps.results.messages import send_email, send_webhook
from apps.results.models import AlertDelivery

__all__ = ["alert_deliveries_send_due"]

_courier = Courier(
    rows=lambda: AlertDelivery.objects.select_related("notice__rule__query__cluster"),
    send={Channel.EMAIL: send_email, Channel.WEBHOOK: send_webhook},
    announce=lambda delivery: announce(f"results:{delivery.notice.rule.query_id}"),
)


def alert_deliveries_send_due() -> int:
    """Send every notice whose time has come; returns how many arrived."""
    return _courier.send_due()
