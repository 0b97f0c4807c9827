"""Statistics of operators: learned from subintervals, inherited by new versions of a query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.signals import post_save
from django.utils import timezone

from apps.fleet.choices import Evidence
from apps.measurements.models import OperatorStatistic
from apps.measurements.selectors import Places, PlanOperator, pipeline_operators, plan_operators
from apps.measurements.stream_processor import stream_disturbances
from apps.measurements.subintervals import MAX_LOOKBACK, OperatorWindows, lookback_s, operator_windows, recent_windows
from apps.queries.models import OperatorInput, Query, QueryVersion
from apps.queries.statistics import statistics_update
from apps.telemetry.models import LiveQuery, LiveState
from apps.telemetry.pipelines import executable_of
from engine.measurement.places import block_s, gather_blocks, merge_places, place_shares
from engine.measurement.statistics import (
    MIN_EVENTS,
    MIN_SUBINTERVALS,
    InputStatistic,
    Readiness,
    describe_evidence,
    estimate_statistic,
    judge_readiness,
)
from engine.measurement.variation import ScaleDispersion, measure_costs

__all__ = ["HALF_LIVES", "connect", "statistic_records", "statistics_inherit", "statistics_learn"]


def connect() -> None:
    """Hand statistics on whenever a query gets a version, and when it goes live with a plan."""
    post_save.connect(_version_stored, sender=QueryVersion, dispatch_uid="measurements.inherit.version")
    post_save.connect(_went_live, sender=LiveQuery, dispatch_uid="measurements.inherit.live")


def _version_stored(instance: QueryVersion, created: bool, raw: bool = False, **_: Any) -> None:
    """Its operators are stored after it, in the same transaction."""
    if created and not raw and _known(instance.query_id).exists():
        transaction.on_commit(partial(_inherit_if_executable, instance.pk), robust=True)


def _inherit_if_executable(pk: int) -> None:
    version = QueryVersion.objects.filter(pk=pk).select_related("query").first()
    pipeline = executable_of(version).pipeline if version else None
    if pipeline is not None:
        statistics_inherit(version=version, operators=pipeline_operators(pipeline, pipeline.source_operators))


def _went_live(instance: LiveQuery, raw: bool = False, **_: Any) -> None:
    if not raw and instance.state != LiveState.STOPPED and _known(instance.query_id).exists():
        statistics_inherit(version=instance.version, operators=plan_operators(instance))


def statistics_inherit(*, version: QueryVersion, operators: list[PlanOperator]) -> int:
    """Give inputs that rest on no measurement the statistics of their operators' fingerprints; returns how many."""
    assumed = OperatorInput.objects.filter(operator__version=version).exclude(evidence=Evidence.MEASURED)
    inputs: dict[str, list[OperatorInput]] = defaultdict(list)
    for entry in assumed.select_related("operator"):
        inputs[entry.operator.name].append(entry)
    inputs_by_fingerprint = {
        operator.fingerprint: inputs[operator.name] for operator in operators if operator.name in inputs
    }
    statistics = _known(version.query_id).filter(fingerprint__in=inputs_by_fingerprint)
    records = [
        record for row in statistics for record in statistic_records(row, inputs_by_fingerprint[row.fingerprint])
    ]
    if records:
        statistics_update(version=version, statistics=records)
    return len(records)


def _known(query: int) -> QuerySet[OperatorStatistic]:
    """Statistics of a query that may take the place of an assumption (`engine.measurement.changes.is_usable`)."""
    return OperatorStatistic.objects.filter(query=query, events__gte=MIN_EVENTS, units__gte=MIN_SUBINTERVALS)


def statistic_records(row: OperatorStatistic, inputs: Iterable[OperatorInput]) -> list[dict[str, object]]:
    """A statistic as `statistics_update` takes it.

    An operator that joins two streams is measured over the records of both, so what is found holds for each input.
    """
    record = {"batches": row.batches, "events": row.events, "measured_at": _past(row.last_at).isoformat()}
    if row.cost_dispersion is not None:
        record |= {"cost_dispersion": row.cost_dispersion, "cost_dispersion_events": row.cost_dispersion_events}
    return [
        {"operator": operator_input.operator.name, "position": operator_input.position, **record}
        for operator_input in inputs
    ]


def _past(moment: datetime) -> datetime:
    """A subinterval may end a moment ahead of this clock."""
    return min(moment, timezone.now())


HALF_LIVES = 4.0  # within the lookback: its oldest subinterval weighs 1/16
_MAX_DISPERSION_EVENTS = 1e9  # that a document takes
_RECENT = 12  # subintervals that shares are taken from: load factors may just have been changed


def statistics_learn(
    *, query: Query, places: Places, operators: Sequence[PlanOperator], now: datetime
) -> dict[str, InputStatistic]:
    """Bring the statistics of a query's operators up to date; returns those with a sample, by fingerprint.

    An operator without events keeps what was known of it. `operators` are those of the plan that runs. Only what was
    learned is written within a transaction.
    """
    statistics: dict[str, InputStatistic] = {}
    learned: list[OperatorStatistic] = []
    rows = {row.fingerprint: row for row in OperatorStatistic.objects.filter(query=query)}
    plan = {operator.fingerprint: operator for operator in operators}
    slide_s = max((operator.slide_s for operator in operators if operator.slide_s), default=None)
    stretches = _disturbed(now, slide_s)
    for fingerprint, windows in operator_windows(recent_windows(query, now, slide_s)).items():
        plan_operator = plan.get(fingerprint)
        samples = merge_places(
            windows.windows, places.capacity_cps, stateful=plan_operator is not None and plan_operator.merges
        )
        unit_s = windows.width_s
        if plan_operator is not None and plan_operator.slide_s is not None:
            unit_s = block_s(plan_operator.slide_s, windows.width_s)
            samples = gather_blocks(samples, width_s=windows.width_s, block=unit_s, without=stretches)
        half_life_s = lookback_s(windows.width_s, slide_s) / HALF_LIVES
        measured = estimate_statistic(samples, reference_s=now.timestamp(), half_life_s=half_life_s)
        if measured.events <= 0.0:
            continue
        statistics[fingerprint] = measured
        row = rows.get(fingerprint) or OperatorStatistic(query=query, fingerprint=fingerprint)
        _assign(row, windows, measured, unit_s, now)
        _assign_variation(row, measure_costs(windows.places, windows.windows, places.capacity_cps))
        learned.append(row)
    with transaction.atomic():
        for row in learned:
            row.save()
    return statistics


def _disturbed(now: datetime, slide_s: float | None) -> list[tuple[float, float]]:
    """Spans in which the stream processor was disturbed: windows that closed then were emitted late."""
    if slide_s is None:
        return []
    rows = stream_disturbances(now - MAX_LOOKBACK, now)
    return [(row.begins_at.timestamp(), row.ends_at.timestamp()) for row in rows]


def _assign(
    row: OperatorStatistic, windows: OperatorWindows, statistic: InputStatistic, unit_s: float, now: datetime
) -> None:
    times = sorted(windows.measured)
    seen = describe_evidence(
        times,
        [windows.measured[at_s] for at_s in times],
        events=statistic.events,
        width_s=windows.width_s,
        now_s=now.timestamp(),
    )
    recent = set(times[-_RECENT:])
    judged = _judged(statistic, windows.width_s, unit_s, seen.span_s)
    fields: dict[str, object] = {
        "operator": windows.operator,
        "selectivity": statistic.selectivity.value,
        "selectivity_error": statistic.selectivity.error,
        "cycles_per_event": statistic.cycles_per_event.value,
        "cycles_error": statistic.cycles_per_event.error,
        "events": seen.events,
        "batches": [
            {"events": batch.events, "outputs": batch.outputs, "cycles": batch.cycles} for batch in statistic.batches
        ],
        "first_at": datetime.fromtimestamp(times[0], UTC),
        "last_at": datetime.fromtimestamp(times[-1], UTC) + timedelta(seconds=windows.width_s),
        "units": statistic.subintervals,
        "whole": seen.whole,
        "extrapolated": seen.extrapolated,
        "missing": seen.missing,
        "shares": place_shares([window for window in windows.windows if window.at_s in recent]),
        "ready": judged.ready,
        "reason": judged.reason,
        "more_events": judged.events,
        "more_s": judged.seconds,
        "lacking_since": None if judged.ready else row.lacking_since or now,
    }
    for name, value in fields.items():
        setattr(row, name, value)


def _assign_variation(row: OperatorStatistic, costs: ScaleDispersion | None) -> None:
    row.cost_dispersion = costs.value if costs else None
    row.cost_dispersion_events = min(max(1.0, costs.scale), _MAX_DISPERSION_EVENTS) if costs else None
    row.cost_units, row.cost_unit = (round(costs.count), costs.unit) if costs else (0, "")


def _judged(statistic: InputStatistic, width_s: float, unit_s: float, span_s: float) -> Readiness:
    if unit_s == width_s:
        return judge_readiness(statistic, span_s=span_s, width_s=width_s)
    return judge_readiness(
        statistic, span_s=max(1, statistic.subintervals) * unit_s, width_s=unit_s, unit=f"blocks of {unit_s:g} s"
    )
