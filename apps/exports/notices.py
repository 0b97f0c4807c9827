"""Notices of applied decisions: addressed when a decision is applied, sent as signed webhooks."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

from django.conf import settings

from apps.admission.decisions import admission_applied
from apps.admission.models import AdmissionRequest
from apps.core.clock import shared_now
from apps.core.deliveries import Channel, Courier, send_soon
from apps.core.errors import SluiceError
from apps.core.events import announce
from apps.core.messages import Gone, post_signed
from apps.exports.models import DecisionDelivery, DecisionNotice
from apps.exports.services import admission_export
from apps.reports.deliveries import webhook_secret
from apps.reports.models import Webhook

__all__ = ["connect", "decision_deliveries_send_due", "decision_notices_purge"]

_log = logging.getLogger(__name__)
_RETENTION = timedelta(days=90)


def connect() -> None:
    """Called once, when the app is ready: whoever applies a decision need not know its notices."""
    admission_applied.connect(_applied, dispatch_uid="exports.notify")


def _applied(sender: Any, *, request: AdmissionRequest, **_: Any) -> None:
    decision_notify(request)


def decision_notify(request: AdmissionRequest) -> bool:
    """Address an applied decision to the cluster's webhooks that ask for it; False where nobody is told.

    Called inside the transaction that applies it. A query that was not imported has nothing to export.
    """
    hooks = {hook.url: hook for hook in Webhook.objects.filter(cluster=request.cluster, sends_decisions=True)}
    if not hooks:
        return False
    try:
        export = admission_export(request).to_dict()
    except SluiceError as error:
        _log.info("decision %s is not sent: %s", request.pk, error.message)
        return False
    facts = {
        "admission": {
            "id": str(request.pk),
            "query": request.query.name,
            "version": request.version.number,
            "verdict": request.verdict,
            "overridden": request.overridden,
            "source": request.source,
            "decided_by": request.decided_by.username if request.decided_by else None,
        },
        "export": json.loads(json.dumps(export)),
    }
    now = shared_now()
    notice = DecisionNotice.objects.create(request=request, facts=facts, created_at=now)
    DecisionDelivery.objects.bulk_create(
        [
            DecisionDelivery(notice=notice, channel=Channel.WEBHOOK, target=url, webhook=hook, next_try_at=now)
            for url, hook in hooks.items()
        ]
    )
    send_soon()
    return True


def send_webhook(delivery: DecisionDelivery) -> None:
    """Raises as `post_signed`, and `Gone` where the webhook was deleted."""
    if delivery.webhook is None:
        raise Gone("The webhook was deleted.")
    secret = webhook_secret(delivery.webhook)
    post_signed(delivery.target, _message(delivery), number=f"decision-{delivery.pk}", secret=secret)


def _message(delivery: DecisionDelivery) -> dict[str, object]:
    notice = delivery.notice
    cluster = notice.request.cluster.slug
    return {
        "event": "decision.applied",
        "delivery": delivery.pk,
        "at": notice.created_at.isoformat(),
        "cluster": cluster,
        **notice.facts,
        "links": {
            "page": f"{settings.PUBLIC_URL}/c/{cluster}/admission/{notice.request_id}/",
            "self": f"{settings.PUBLIC_URL}/api/v1/admissions/{notice.request_id}",
            "export": f"{settings.PUBLIC_URL}/api/v1/admissions/{notice.request_id}/export",
        },
    }


_courier = Courier(
    rows=lambda: DecisionDelivery.objects.select_related("notice__request__cluster", "webhook"),
    send={Channel.WEBHOOK: send_webhook},
    announce=lambda delivery: announce(f"admission:{delivery.notice.request_id}"),
)


def decision_deliveries_send_due() -> int:
    """Send every notice whose time has come; returns how many arrived."""
    return _courier.send_due()


def decision_notices_purge() -> int:
    """Delete old notices with their deliveries; returns how many rows."""
    return DecisionNotice.objects.filter(created_at__lt=shared_now() - _RETENTION).delete()[0]
