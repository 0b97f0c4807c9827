"""Reading what was measured of a query's operators, and what is still missing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from apps.measurements.models import OperatorStatistic
from apps.measurements.operators import plan_operators
from apps.queries.models import Query
from apps.telemetry.models import Agent, LiveQuery
from engine.measurement.places import STREAM
from engine.measurement.statistics import MIN_EVENTS, SampleRatio

__all__ = ["OperatorEvidence", "evidence_of_operators", "readiness_text"]

_SILENT = timedelta(minutes=5)


@dataclass(frozen=True)
class OperatorEvidence:
    """One operator of a live query: its statistic, if there is one, and since when it lacks evidence.

    `shares` are by name of the place; errors are half of the 90 % interval.
    """

    operator: str
    statistic: OperatorStatistic | None
    shares: dict[str, float]
    selectivity_half: float | None
    cycles_half: float | None
    lacking_since: datetime | None

    @property
    def ready(self) -> bool:
        return self.statistic is not None and self.statistic.ready

    @property
    def text(self) -> str:
        return readiness_text(self.statistic)


def evidence_of_operators(query: Query) -> list[OperatorEvidence]:
    """Every operator of the pipeline a query runs live, in order; empty for a query that never did."""
    live = LiveQuery.objects.filter(query=query).first()
    if live is None:
        return []
    rows = {row.fingerprint: row for row in OperatorStatistic.objects.filter(query=query)}
    names = {str(pk): name for pk, name in Agent.objects.filter(cluster=query.cluster_id).values_list("pk", "name")}
    names[STREAM] = "stream processor"
    evidence = []
    for plan_operator in plan_operators(live):
        row = rows.get(plan_operator.fingerprint)
        evidence.append(
            OperatorEvidence(
                operator=plan_operator.name,
                statistic=row,
                shares={names.get(place, place): share for place, share in row.shares.items()} if row else {},
                selectivity_half=_half(row.selectivity_error, row) if row else None,
                cycles_half=_half(row.cycles_error, row) if row else None,
                lacking_since=row.lacking_since if row else live.started_at,
            )
        )
    return evidence


def _half(error: float | None, row: OperatorStatistic) -> float | None:
    return SampleRatio(0.0, error, max(0, row.units - 1)).half_width


def readiness_text(row: OperatorStatistic | None) -> str:
    """`ready`, `240 more events, about 3 min`, or that nothing arrives."""
    if row is None:
        return f"no event yet; {MIN_EVENTS} are the least"
    if row.ready:
        return "ready"
    events = "1 more event"
    if row.more_events != 1:
        events = f"{row.more_events:,} more events".replace(",", "\u202f")
    if row.more_s is None or timezone.now() - row.last_at > _SILENT:
        return f"{events}; nothing arrives at present"  # the rate of the sample promises nothing any more
    return f"{events}, {_about(row.more_s)}"


def _about(seconds: float) -> str:
    """About 3 min: nobody needs the seconds of a forecast."""
    if seconds < 55:
        return f"about {max(5, 5 * round(seconds / 5))} s"
    if seconds < 5400:
        return f"about {max(1, round(seconds / 60))} min"
    return f"about {round(seconds / 3600)} h" if seconds < 172_800 else f"about {round(seconds / 86_400)} days"
