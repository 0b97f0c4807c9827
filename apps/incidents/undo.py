"""Undo of changes to the routing of incidents, its channels and silences."""

from __future__ import annotations

from typing import Any

from apps.core.errors import Conflict
from apps.core.events import announce
from apps.incidents.models import IncidentChannel, IncidentRouting, IncidentSilence
from apps.incidents.services import channel_delete, channel_update, incident_routing_update, silence_end
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
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


def _silence_obstacle(change: ObjectChange) -> str:
    is_end = change.action == ChangeAction.CHANGED
    return "A silence that was ended is not resumed: begin another one." if is_end else ""


def _silence_update(silence: IncidentSilence, before: dict[str, Any]) -> None:
    raise Conflict("A silence is ended, and not changed.", code="not_undoable")


register_undo(IncidentRouting, UndoWay(_update))
register_undo(
    IncidentChannel,
    UndoWay(
        lambda row, fields: channel_update(channel=row, **fields),
        lambda row: channel_delete(channel=row),
    ),
)
register_undo(
    IncidentSilence,
    UndoWay(
        _silence_update,
        lambda row: silence_end(silence=row),
        lambda row: announce(f"incidents:{row.cluster.slug}"),
        _silence_obstacle,
    ),
)
