"""Undo of changes to queries and arrivals."""

from __future__ import annotations

from typing import Any

from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.undo import UndoWay, register_undo
from apps.queries.arrivals import services as arrivals
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Query
from apps.queries.services import placement_move, query_delete, query_revived, query_stop, query_update

__all__: list[str] = []


def _query_obstacle(change: ObjectChange) -> str:
    """Reason of changes that would let a query run again: that is for an admission, as for a new one."""
    if change.action != ChangeAction.CHANGED:
        return ""
    before, after = change.before or {}, change.after or {}
    if "newest_version" in after:
        return "A version is kept as it is; an admission of the earlier one puts it back into force."
    if before.get("running_version") is not None:
        return "It ran before; what runs is admitted: ask for its admission again."
    if QueryState.QUEUED in {before.get("state"), after.get("state")}:
        return "It waited for capacity; its request for admission is withdrawn, or made again."
    return ""


def _query_update(query: Query, before: dict[str, Any]) -> None:
    """Fields of before: a query that did not run is stopped, operators move back, the rest is an edit."""
    if "running_version" in before:
        query_stop(query=query)
        return
    placement = before.pop("placement", None)
    if placement is not None:
        placement_move(query=query, placement=placement)
    if {"objective_statistic", "objective_bound_s"} & set(before):
        statistic = before.pop("objective_statistic", query.objective_statistic)
        bound_s = before.pop("objective_bound_s", query.objective_bound_s)
        before["objective"] = {"statistic": statistic, "bound_s": bound_s} if statistic else None
    if before:
        query_update(query=query, **before)


def _arrivals_update(row: ArrivalSeries, before: dict[str, Any]) -> None:
    """Put back what is stated of the events, and whose it is; other events are put back as a row."""
    owner = {name: before[name] for name in ("team", "labels") if name in before}
    if owner:
        arrivals.arrivals_owner_update(arrivals=row, **owner)
    if "event_fields" in before:
        arrivals.arrivals_fields_update(arrivals=row, event_fields=before["event_fields"])
    if {"dispersion", "dispersion_step_s"} & set(before):
        arrivals.arrivals_dispersion_update(
            arrivals=row,
            dispersion=before.get("dispersion", row.dispersion),
            dispersion_step_s=before.get("dispersion_step_s", row.dispersion_step_s),
        )


register_undo(
    Query,
    UndoWay(
        _query_update,
        lambda row: query_delete(query=row),
        lambda row: query_revived(query=row),
        _query_obstacle,
    ),
)
register_undo(
    ArrivalSeries,
    UndoWay(
        _arrivals_update,
        lambda row: arrivals.arrivals_delete(arrivals=row),
        lambda row: arrivals.arrivals_revived(arrivals=row),
    ),
)
