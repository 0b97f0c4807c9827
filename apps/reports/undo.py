"""Undo of changes to reports, their schedules, and webhooks."""

from __future__ import annotations

from typing import Any

from apps.core.errors import Conflict
from apps.core.events import announce
from apps.ledger.undo import UndoWay, register_undo
from apps.reports import services
from apps.reports.models import ReportDefinition, ReportSchedule, Webhook

__all__: list[str] = []


def _definition_update(row: ReportDefinition, before: dict[str, Any]) -> None:
    keys = before.get("webhooks")
    if keys is not None:
        before["webhooks"] = list(Webhook.objects.filter(pk__in=keys))
        if len(before["webhooks"]) < len(keys):
            raise Conflict("A webhook of before is gone.", [("webhooks", "one of before is gone")])
    services.definition_update(definition=row, **before)


def _schedule_update(row: ReportSchedule, before: dict[str, Any]) -> None:
    rule, time_zone = before.get("rule", row.rule), before.get("time_zone", row.time_zone)
    services.schedule_set(definition=row.definition, rule=rule, time_zone=time_zone)


def _announce(row: object) -> None:
    announce("reports")


register_undo(
    ReportDefinition,
    UndoWay(_definition_update, lambda row: services.definition_delete(definition=row), _announce),
)
register_undo(
    ReportSchedule,
    UndoWay(
        _schedule_update,
        lambda row: services.schedule_remove(schedule=row),
        lambda row: services.schedule_resume(definition=row.definition),
    ),
)
register_undo(
    Webhook,
    UndoWay(
        lambda row, fields: services.webhook_update(webhook=row, **fields),
        lambda row: services.webhook_delete(webhook=row),
        _announce,
    ),
)
