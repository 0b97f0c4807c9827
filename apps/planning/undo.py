"""Undo of changes to scenarios and events."""

from __future__ import annotations

from typing import Any

from apps.core.events import announce
from apps.ledger.undo import UndoWay, register_undo
from apps.planning.events import event_delete, event_update
from apps.planning.models import PlannedEvent, Scenario
from apps.planning.scenarios import scenario_delete, scenario_update

__all__: list[str] = []


def _event_update(row: PlannedEvent, before: dict[str, Any]) -> None:
    if before.get("owner") is not None:
        before["owner"] = before["owner"].username  # as people give it
    event_update(event=row, **before)


register_undo(
    PlannedEvent,
    UndoWay(
        _event_update,
        lambda row: event_delete(event=row),
        lambda row: announce(f"planned-events:{row.cluster.slug}"),
    ),
)
register_undo(
    Scenario,
    UndoWay(
        lambda row, fields: scenario_update(scenario=row, **fields),
        lambda row: scenario_delete(scenario=row),
        lambda row: announce(f"scenarios:{row.cluster.slug}"),
    ),
)
