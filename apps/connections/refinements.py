"""Statistics, state, triggers and doubts of an imported query, refined by what its engine tells now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.fleet.choices import CostEvidence, CycleUnit
from apps.queries.models import Operator, OperatorInput, QueryVersion
from apps.queries.services import query_announce
from apps.queries.statistics import statistics_update
from engine.connectors.answers import number_of
from engine.connectors.document import UNCOUNTED, BodyDocument, InputDocument, OperatorDocument
from engine.document.elements import Batch
from engine.measurement.changes import MATERIAL, MeasuredChange, Pace, certain_move, combine_changes, statistic_differs
from engine.measurement.statistics import InputStatistic, estimate_ratio

__all__ = [
    "checkpoints_refine",
    "doubts_refine",
    "has_measured",
    "state_refine",
    "statistics_refine",
    "triggers_refine",
    "windows_refine",
]


_STATE = ("state_bytes", "state_on_disk")
_CHECKPOINT = ("interval_s", "pause_s", "duration_s")
_SHORT_S = 0.01  # by which times of checkpoints may move
_SHARE_MOVE = 0.11  # two steps, by which parts of a cost may move
_TRIGGER = ("interval_s", "overhead_s")
_MIN_MOVE = 0.02  # of a selectivity without a sample in batches
_KEPT = (CostEvidence.ASSUMED, CostEvidence.MEASURED)  # costs that stay where an engine tells none
_SAMPLED = ("batches", "cost_dispersion", "cost_dispersion_events")


def has_measured(body: BodyDocument) -> bool:
    """Whether any operator of an imported body was measured."""
    return any(operator["evidence"]["kind"] == CostEvidence.MEASURED for operator in body["operators"])


def statistics_refine(
    version: QueryVersion, body: BodyDocument, arrivals: Sequence[MeasuredChange], pace: Pace, now: datetime
) -> bool:
    """Store statistics of a body that say more than a version's, if the pace of estimates lets them through.

    `arrivals`: what changed at the query's sources; it counts towards the pace.
    """
    told = {
        (operator["id"], position): (operator, entry)
        for operator in body["operators"]
        for position, entry in enumerate(operator["inputs"])
    }
    records, changes = [], list(arrivals)
    for stored in OperatorInput.objects.filter(operator__version=version).select_related("operator"):
        operator, entry = told.get((stored.operator.name, stored.position), (None, None))
        news = _news_of(stored, operator, entry, now)
        if news is not None:
            records.append({"operator": stored.operator.name, "position": stored.position, **news.fields})
            changes.append(news.change)
    if not records or not pace.is_due(combine_changes(changes)):
        return False
    statistics_update(version=version, statistics=records, now=now)
    return True


def state_refine(version: QueryVersion, body: BodyDocument, pace: Pace, now: datetime) -> bool:
    """Store the state that an engine measured where it is another than what is stored, if the pace lets it through.

    What is not told any more stays as it was measured last.
    """
    told = {operator["id"]: operator for operator in body["operators"]}
    changed, changes = [], []
    for row in version.operators.all():
        own = told.get(row.name, OperatorDocument())
        news = {key: value for key, value in own.items() if key in _STATE and row.extra.get(key) != value}
        if not news:
            continue
        size, known = own.get("state_bytes") if "state_bytes" in news else None, row.extra.get("state_bytes")
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


def triggers_refine(version: QueryVersion, body: BodyDocument) -> bool:
    """Store the interval and overhead of triggers where one of them is materially another than what is stored."""
    told = {operator["id"]: operator.get("trigger") for operator in body["operators"]}
    changed = []
    for row in version.operators.all():
        trigger = told.get(row.name)
        if trigger and _is_moved(trigger, row.extra.get("trigger") or {}):
            row.extra = {**row.extra, "trigger": trigger}
            changed.append(row)
    Operator.objects.bulk_update(changed, ["extra"])
    if changed:
        query_announce(version.query)
    return bool(changed)


def windows_refine(version: QueryVersion, body: BodyDocument) -> None:
    """Store the load of windows that a version's statistics, which were stored just now, were measured at."""
    told = {operator["id"]: operator.get("window") or {} for operator in body["operators"]}
    changed = []
    for row in version.operators.all():
        events, window = told.get(row.name, {}).get("measured_events"), row.extra.get("window")
        if window and events and events != window.get("measured_events"):
            row.extra = {**row.extra, "window": {**window, "measured_events": events}}
            changed.append(row)
    Operator.objects.bulk_update(changed, ["extra"])


def checkpoints_refine(version: QueryVersion, body: BodyDocument, pace: Pace) -> bool:
    """Store what checkpoints do to operators where it is another than what is stored, if the pace lets it through."""
    told = {operator["id"]: dict(operator.get("checkpoint") or {}) for operator in body["operators"]}
    changed, changes = [], []
    for row in version.operators.all():
        stored, news = dict(row.extra.get("checkpoint") or {}), told.get(row.name, {})
        first = bool(news) != bool(stored) or news.get("commits") != stored.get("commits")
        moves_s = [_move_s(_times(news, key), _times(stored, key)) for key in _CHECKPOINT]
        if not first and not any(moves_s):
            continue
        row.extra = {key: value for key, value in row.extra.items() if key != "checkpoint"}
        row.extra |= {"checkpoint": news} if news else {}
        changed.append(row)
        changes.append(MeasuredChange(first=first, moved=max(moves_s) / (_times(news or stored, "interval_s")[0])))
    if not changed or not pace.is_due(combine_changes(changes)):
        return False
    Operator.objects.bulk_update(changed, ["extra"])
    query_announce(version.query)
    return True


def _times(checkpoint: Mapping[str, Any], key: str) -> list[float]:
    """Times of checkpoints under a key; those that are not told are none at all."""
    value = checkpoint.get(key) or [0.0] * 3
    return [float(part) for part in (value if isinstance(value, list) else [value] * 3)]


def _move_s(news: Sequence[float], stored: Sequence[float]) -> float:
    """The largest move of a time, as far as it is more than single checkpoints differ by."""
    pairs = zip(news, stored, strict=True)
    return max(abs(new - old) if abs(new - old) > MATERIAL * old + _SHORT_S else 0.0 for new, old in pairs)


def _is_moved(told: Mapping[str, object], stored: Mapping[str, object]) -> bool:
    pairs = [[number_of(trigger.get(key)) or 0.0 for trigger in (told, stored)] for key in _TRIGGER]
    return any(abs(new - old) > MATERIAL * old for new, old in pairs)


def doubts_refine(version: QueryVersion, body: BodyDocument) -> bool:
    """Store what is not understood of operators now, whether they were watched for long enough, and on quiet hosts.

    One whose results are counted, or were before, is in doubt no longer.
    """
    told = {operator["id"]: operator for operator in body["operators"]}
    changed = []
    for row in version.operators.prefetch_related("inputs"):
        entries = list(row.inputs.all())
        is_known = all(_is_counted(entry) for entry in entries)
        is_predicted = any(entry.evidence == CostEvidence.PREDICTED for entry in entries)
        is_measured = any(entry.evidence == CostEvidence.MEASURED for entry in entries)
        own = told.get(row.name, OperatorDocument())
        doubts = [part for part in own.get("unread", []) if part != UNCOUNTED or not is_known]
        now = {
            "unread": doubts,
            "waits_outside": own.get("waits_outside") or row.extra.get("waits_outside"),  # a person may know, too
            "measured_s": own.get("measured_s"),
            "cost_by": own.get("cost_by") if is_predicted else None,
            "quiet_share": own.get("quiet_share") if is_measured else None,
            "marginal_cost": _settled(own.get("marginal_cost"), row.extra.get("marginal_cost"))
            if is_measured
            else None,
        }
        kept = {key: value for key, value in row.extra.items() if key not in now}
        kept |= {key: value for key, value in now.items() if value not in ([], None)}
        if row.name in told and kept != row.extra:
            row.extra = kept
            changed.append(row)
    if changed:
        Operator.objects.bulk_update(changed, ["extra"])
        query_announce(version.query)
    return bool(changed)


def _settled(news: Mapping[str, float] | None, stored: Mapping[str, float] | None) -> Mapping[str, float] | None:
    """A marginal cost as it is stored, unless other loads told it or it is another by more than rounds differ by."""
    if not news or not stored or (news["loads"] > 1) != (stored["loads"] > 1):
        return news
    return stored if all(abs(news[end] - stored[end]) <= _SHARE_MOVE for end in ("share", "low", "high")) else news


def _is_counted(stored: OperatorInput) -> bool:
    """Whether results of an input were counted, be its cost known or not."""
    return stored.selectivity > 0.0 and (stored.evidence == CostEvidence.MEASURED or bool(stored.events))


@dataclass(frozen=True)
class _StatisticNews:
    """Fields of a statistic that says more than the stored one, and by how much it moves."""

    fields: Mapping[str, object]
    change: MeasuredChange


def _news_of(
    stored: OperatorInput, operator: OperatorDocument | None, entry: InputDocument | None, now: datetime
) -> _StatisticNews | None:
    """News of an input by its body; None where the stored statistic says as much, or more."""
    if operator is None or entry is None:
        return None
    if UNCOUNTED in operator.get("unread", ()) and _is_counted(stored):
        return None  # it is worth more, though older
    kind = str(operator["evidence"]["kind"])
    if kind == CostEvidence.UNKNOWN or (kind != CostEvidence.MEASURED and _keeps_cost(stored)):
        return _news_of_unknown(stored, operator, entry)
    statistic = _measured_statistic(entry)
    if statistic is None or not _says_more(statistic, stored, kind, now):
        return None
    kept = {name: value for name, value in entry.items() if name in _SAMPLED}
    fields = {**kept, "cycle_unit": CycleUnit.CPU_NS.value, "evidence": kind}
    return _StatisticNews(fields, _change_of(statistic, stored, kind))


def _news_of_unknown(stored: OperatorInput, operator: OperatorDocument, entry: InputDocument) -> _StatisticNews | None:
    """News of an input whose cost the engine does not tell: its selectivity counts.

    A cost that was measured before, or that a person assumed, stays as it is; one that was predicted is dropped.
    """
    events = round(float(str(operator["evidence"].get("events", 0.0))))
    keeps_cost = _keeps_cost(stored)
    is_first = not keeps_cost and (stored.evidence != CostEvidence.UNKNOWN or stored.cycles_per_event is not None)
    was, selectivity = stored.selectivity, entry["selectivity"]
    moved = abs(selectivity - was) / was if was else float(selectivity > 0.0)
    if not is_first and (not events or moved <= _MIN_MOVE):
        return None
    if keeps_cost:
        told = _with_cost_kept(stored, selectivity, events)
    else:
        told = {"selectivity": selectivity, "events": events} if events else {}
        told["evidence"] = CostEvidence.UNKNOWN.value
    return _StatisticNews(told, MeasuredChange(first=is_first, moved=moved))


def _keeps_cost(stored: OperatorInput) -> bool:
    """Whether an input has a cost that only one that is measured replaces."""
    return stored.evidence in _KEPT and stored.cycles_per_event is not None


def _with_cost_kept(stored: OperatorInput, selectivity: float, events: int) -> dict[str, object]:
    """Another selectivity of an input beside its cost, whose sample and time stay those of the cost."""
    fields: dict[str, object] = {"selectivity": selectivity, "evidence": stored.evidence}
    if stored.measured_at is not None:
        fields["measured_at"] = stored.measured_at.isoformat()
    if not stored.batches:
        return fields if stored.evidence == CostEvidence.MEASURED else {**fields, "events": events}
    factor = selectivity / stored.selectivity if stored.selectivity else 0.0
    fields["batches"] = [
        {**batch, "outputs": batch["outputs"] * factor if factor else batch["events"] * selectivity}
        for batch in stored.batches
    ]
    noise = {name: getattr(stored, name) for name in _SAMPLED if name != "batches"}
    return fields | {name: value for name, value in noise.items() if value is not None}


def _measured_statistic(entry: InputDocument) -> InputStatistic | None:
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


def _says_more(measured: InputStatistic, stored: OperatorInput, kind: str, now: datetime) -> bool:
    """Whether a sampled statistic of a kind says more than the stored one."""
    is_measured = stored.evidence == kind and stored.measured_at is not None
    return statistic_differs(
        measured,
        selectivity=stored.selectivity,
        cycles_per_event=stored.cycles_per_event or 0.0,
        events=stored.events,
        age_s=(now - stored.measured_at).total_seconds() if is_measured and stored.measured_at else None,
    )


def _change_of(measured: InputStatistic, stored: OperatorInput, kind: str) -> MeasuredChange:
    """Move of a sampled statistic of a kind from the stored one."""
    moves = [certain_move(measured.selectivity, stored.selectivity)]
    if stored.cycles_per_event is not None:
        moves.append(certain_move(measured.cycles_per_event, stored.cycles_per_event))
    return MeasuredChange(first=stored.evidence != kind, moved=max(moves))
