"""Undo of changes to connections."""

from __future__ import annotations

from typing import Any

from apps.connections import services
from apps.connections.models import Connection
from apps.ledger.undo import UndoWay, register_undo

__all__: list[str] = []


def _update(row: Connection, before: dict[str, Any]) -> None:
    paused = before.pop("paused", None)
    if before:
        row = services.connection_update(connection=row, **before)
    if paused is not None:
        (services.connection_pause if paused else services.connection_resume)(connection=row)


register_undo(Connection, UndoWay(_update, lambda row: services.connection_delete(connection=row)))
