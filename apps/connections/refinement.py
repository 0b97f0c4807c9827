"""Measured statistics of imported jobs beside those that are stored: what says more replaces them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from apps.fleet.choices import CycleUnit, Evidence
from apps.queries.models import Operator, OperatorInput, QueryVersion
from apps.queries.services import query_announce
from apps.queries.statistics import statistics_update
from engine.document.elements import Batch
from engine.measurement.changes import MeasuredChange, Pace, certain_move, combine_changes, statistic_differs
from engine.measurement.statistics import InputStatistic, estimate_ratio

__all__ = ["has_measured", "state_refine", "statistics_refine"]

_SAMPLED = ("batches", "cost_dispersion", "cost_dispersion_events")


def has_measured(body: Mapping[str, Any]) -> bool:
    """Whether any operator of an imported body was measured."""
    return bool(_measured_inputs(body))


def statistics_refine(
    version: QueryVersion, body: Mapping[str, Any], arrivals: Sequence[MeasuredChange], pace: Pace, now: datetime
) -> bool:
    """Store statistics of a body that say more than a version's, if the pace of estimates lets them through.

    Parameters
    ----------
    arrivals : sequence of MeasuredChange
        What changed at the query's sources; it counts towards the pace.
    """
    measured = _measured_inputs(body)
    records, changes = [], list(arrivals)
    for stored in OperatorInput.objects.filter(operator__version=version).select_related("operator"):
        entry = measured.get((stored.operator.name, stored.position))
        statistic = None if entry is None else _measured_statistic(entry)
        if entry is not None and statistic is not None and _says_more(statistic, stored, now):
            kept = {name: entry[name] for name in _SAMPLED if name in entry} | {"cycle_unit": CycleUnit.CPU_NS.value}
            records.append({"operator": stored.operator.name, "position": stored.position, **kept})
            changes.append(_change_of(statistic, stored))
    if not records or not pace.is_due(combine_changes(changes)):
        return False
    statistics_update(version=version, statistics=records, now=now)
    return True


def state_refine(version: QueryVersion, body: Mapping[str, Any], pace: Pace, now: datetime) -> bool:
    """Store the state that an engine measured where it is another than what is stored, if the pace lets it through.

    What is not told any more stays as it was measured last.
    """
    told = {
        operator["id"]: {key: operator[key] for key in ("state_bytes", "state_on_disk") if key in operator}
        for operator in body["operators"]
    }
    changed, changes = [], []
    for row in version.operators.all():
        news = {key: value for key, value in told.get(row.name, {}).items() if row.extra.get(key) != value}
        if not news:
            continue
        size, known = news.get("state_bytes"), row.extra.get("state_bytes")
        first = known is None or "state_on_disk" in news
        moved = 0.0 if size is None or known is None else abs(size - known) / known if known else float(size > 0.0)
        row.extra = {**row.extra, **news, "state_measured_at": now.isoformat()}
        changed.append(row)
        changes.append(MeasuredChange(first=first, moved=moved))
    if not changed or not pace.is_due(combine_changes(changes)):
        return False
    Operator.objects.bulk_update(changed, ["extra"])
    query_announce(version.query)
    return True


def _measured_inputs(body: Mapping[str, Any]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Inputs of measured operators, by name and position."""
    return {
        (operator["id"], position): entry
        for operator in body["operators"]
        if operator.get("evidence", {}).get("kind") == Evidence.MEASURED
        for position, entry in enumerate(operator["inputs"])
    }


def _measured_statistic(entry: Mapping[str, Any]) -> InputStatistic | None:
    """Statistic of an input with its errors, from its batches; None where it has none."""
    batches = [Batch(**batch) for batch in entry.get("batches", ()) if batch["events"] > 0.0]
    if not batches:
        return None
    events = [batch.events for batch in batches]
    return InputStatistic(
        selectivity=estimate_ratio([batch.outputs for batch in batches], events),
        cycles_per_event=estimate_ratio([batch.cycles for batch in batches], events),
        events=sum(events),
        subintervals=len(batches),
        batches=tuple(batches),
    )


def _says_more(measured: InputStatistic, stored: OperatorInput, now: datetime) -> bool:
    """Whether a measured statistic says more than the stored one."""
    is_measured = stored.evidence == Evidence.MEASURED and stored.measured_at is not None
    return statistic_differs(
        measured,
        selectivity=stored.selectivity,
        cycles_per_event=stored.cycles_per_event or 0.0,
        events=stored.events,
        age_s=(now - stored.measured_at).total_seconds() if is_measured and stored.measured_at else None,
    )


def _change_of(measured: InputStatistic, stored: OperatorInput) -> MeasuredChange:
    """Move of a measured statistic from the stored one."""
    moves = [certain_move(measured.selectivity, stored.selectivity)]
    if stored.cycles_per_event is not None:
        moves.append(certain_move(measured.cycles_per_event, stored.cycles_per_event))
    return MeasuredChange(first=stored.evidence != Evidence.MEASURED, moved=max(moves))
