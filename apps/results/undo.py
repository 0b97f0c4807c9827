"""Undo of changes to alert rules."""

from __future__ import annotations

from apps.ledger.undo import UndoWay, register_undo
from apps.results import services
from apps.results.models import AlertRule

__all__: list[str] = []

register_undo(
    AlertRule,
    UndoWay(
        lambda row, fields: services.alert_rule_update(rule=row, **fields),
        lambda row: services.alert_rule_delete(rule=row),
        lambda row: services.alert_rule_update(rule=row),
    ),
)
