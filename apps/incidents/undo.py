"""Undo of changes to the routing of incidents."""

from __future__ import annotations

from typing import Any

from apps.core.errors import Conflict
from apps.incidents.models import IncidentRouting
from apps.incidents.services import incident_routing_update
from apps.ledger.undo import UndoWay, register_undo
from apps.reports.models import Webhook

__all__: list[str] = []


def _update(routing: IncidentRouting, before: dict[str, Any]) -> None:
    present = {name: getattr(routing, name) for name in ("emails", "severity", "keep_days")}
    webhooks = list(routing.webhooks.all())
    if "webhooks" in before:
        keys = before.pop("webhooks")
        webhooks = list(Webhook.objects.filter(pk__in=keys))
        if len(webhooks) < len(keys):
            raise Conflict("A webhook of before is gone.", [("webhooks", "one of before is gone")])
    incident_routing_update(cluster=routing.cluster, webhooks=webhooks, **{**present, **before})


register_undo(IncidentRouting, UndoWay(_update))
