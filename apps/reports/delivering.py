"""Reports on their way to their readers."""

from __future__ import annotations

from apps.core.delivering import Channel, Courier
from apps.core.events import announce
from apps.reports.messages import send_email, send_webhook
from apps.reports.models import Delivery

__all__ = ["deliveries_send_due", "delivery_send_again"]


def _announce(delivery: Delivery) -> None:
    announce(f"report:{delivery.report_id}")
    announce("reports")


_courier = Courier(
    rows=lambda: Delivery.objects.select_related("report__definition__cluster", "webhook"),
    send={Channel.EMAIL: send_email, Channel.WEBHOOK: send_webhook},
    announce=_announce,
)


def deliveries_send_due() -> int:
    """Send every delivery whose time has come; returns how many arrived."""
    return _courier.send_due()


def delivery_send_again(*, delivery: Delivery) -> Delivery:
    """Try a delivery anew, from the first try on; one that arrived is sent a second time.

    Raises
    ------
    Conflict
        A worker is sending it at this moment.
    """
    _courier.send_again(delivery)
    return delivery
