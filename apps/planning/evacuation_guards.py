"""Guards of evacuations: what ends one that is under way before its time, so that it is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from apps.estimates.choices import DecidedBy
from apps.estimates.models import ObjectiveStatus
from apps.fleet.choices import ABSENT
from apps.planning.choices import EvacuationStepState
from apps.planning.evacuations import stored_plan
from apps.planning.models import Evacuation
from apps.queries.choices import ObjectiveState
from engine.words import listed

__all__ = ["stop_reason"]

_GRACE = timedelta(seconds=60)  # a query that the plan says is late for a time may be so for as much longer
_NAMED = 6
_EMPTIED = (EvacuationStepState.AWAY, EvacuationStepState.RETURNING, EvacuationStepState.BACK)


def stop_reason(run: Evacuation, now: datetime) -> str:
    """Why an evacuation is not begun, or stopped and taken back now; empty while it may go on."""
    if not run.steps.filter(
        state__in=(EvacuationStepState.WAITING, EvacuationStepState.EMPTYING, EvacuationStepState.AWAY)
    ).exists():
        return ""
    return next(_reasons(run, now), "")


def _reasons(run: Evacuation, now: datetime) -> Iterator[str]:
    there = set(run.cluster.nodes.exclude(state__in=ABSENT).values_list("name", flat=True))
    lost = [name for name in run.watched if name not in there]
    if lost:
        yield f"{listed(lost, _NAMED)} went away meanwhile."
    waiting = run.steps.filter(state=EvacuationStepState.WAITING).values_list("nodes", flat=True)
    missing = sorted({name for names in waiting for name in names} - there)
    if missing:
        yield f"{listed(missing, _NAMED)} {'is' if len(missing) == 1 else 'are'} not there any more."
    late = sorted(_measured_late(run, now))
    if late:
        yield f"{listed(late, _NAMED)} {'is' if len(late) == 1 else 'are'} measured late beyond the objective."
    if run.ends_at is not None and now >= run.ends_at and run.steps.exclude(state__in=_EMPTIED).exists():
        yield "Its time ended before the nodes were empty."


def _measured_late(run: Evacuation, now: datetime) -> Iterator[str]:
    """Queries that were measured late since it was confirmed, beyond what it may make late once it has begun."""
    plan = stored_plan(run) if run.begun_at else None
    delays = [delay for step in plan.steps for delay in step.late] if plan is not None else []
    allowed = {delay.query: timedelta(seconds=delay.late_s or 0.0) + _GRACE for delay in delays}
    rows = ObjectiveStatus.objects.filter(
        query__cluster=run.cluster,
        state=ObjectiveState.BREACHED,
        decided_by=DecidedBy.MEASUREMENT,
        since__gte=run.confirmed_at or now,
    )
    for query, since in rows.values_list("query__name", "since"):
        is_accepted = plan is not None and query in plan.breaks
        if not is_accepted and now - since >= allowed.get(query, timedelta(0)):
            yield query
