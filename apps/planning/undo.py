"""Undo of changes to scenarios."""

from __future__ import annotations

from apps.core.events import announce
from apps.ledger.undo import UndoWay, register_undo
from apps.planning.models import Scenario
from apps.planning.scenarios import scenario_delete, scenario_update

__all__: list[str] = []

register_undo(
    Scenario,
    UndoWay(
        lambda row, fields: scenario_update(scenario=row, **fields),
        lambda row: scenario_delete(scenario=row),
        lambda row: announce(f"scenarios:{row.cluster.slug}"),
    ),
)
