"""Undo of changes to agents, telemetry sources and tables."""

from __future__ import annotations

from typing import Any

from apps.ledger.undo import UndoWay, register_undo
from apps.telemetry.agent_services import agent_update
from apps.telemetry.models import Agent, StaticTable, TelemetrySource
from apps.telemetry.sources import source_delete, source_upsert, table_delete, table_upsert

__all__: list[str] = []


def _source_update(row: TelemetrySource, before: dict[str, Any]) -> None:
    source_upsert(cluster=row.cluster, source_id=row.source_id, **before)


def _table_check(row: StaticTable) -> None:
    """Check a table that is back, as one that is written."""
    table_upsert(cluster=row.cluster, name=row.name, columns=row.columns, order=row.order, rows=row.rows)


register_undo(Agent, UndoWay(lambda row, fields: agent_update(agent=row, **fields)))
register_undo(
    TelemetrySource,
    UndoWay(
        _source_update,
        lambda row: source_delete(source=row),
        lambda row: _source_update(row, {}),
    ),
)
register_undo(
    StaticTable,
    UndoWay(
        lambda row, fields: table_upsert(cluster=row.cluster, name=row.name, **fields),
        lambda row: table_delete(table=row),
        _table_check,
    ),
)
