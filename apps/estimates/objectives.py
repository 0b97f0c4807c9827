"""States of objectives: judged when estimates or measurements arrive, and stored for lists to filter by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.dispatch import Signal

from apps.core.clock import shared_now
from apps.core.events import announce
from apps.estimates.causes import ChainReports, estimate_causes, measured_causes
from apps.estimates.choices import DecidedBy
from apps.estimates.latencies import STATISTIC, latencies_measured
from apps.estimates.models import ObjectiveStatus, QueryEstimate
from apps.estimates.selectors import run_latest
from apps.fleet.models import Cluster
from apps.queries.choices import ObjectiveState, QueryState
from apps.queries.models import Query
from engine.latency_state import KNOWN, LatencyStanding
from engine.measurement.causes import LatenessCause
from engine.measurement.objectives import JudgedObjective, MeasuredLatency, judge_objective

__all__ = ["objectives_judged", "objectives_refresh", "objectives_refresh_all"]

#: Sent with `cluster` and `now` after the objectives of a cluster were judged and stored.
objectives_judged = Signal()
_LATE = (ObjectiveState.BREACHED, ObjectiveState.AT_RISK)
_MOVED = 0.1  # of what was measured: open pages are told of no less
_WRITTEN = [field.name for field in ObjectiveStatus._meta.fields if field.name not in {"id", "query"}]
_COMPARED = [name for name in _WRITTEN if name not in {"since", "updated_at"}]


def objectives_refresh_all(now: datetime | None = None) -> int:
    """Judge the objectives of every cluster; returns how many states changed."""
    return sum(objectives_refresh(cluster, now=now) for cluster in Cluster.objects.all())


@transaction.atomic
def objectives_refresh(cluster: Cluster, now: datetime | None = None) -> int:
    """Judge the objectives of a cluster's running queries by what is known now; returns how many states changed.

    A query of which neither a measurement nor an estimate speaks has no status.
    """
    present = now or shared_now()
    # one at a time: of two that judge at once, the later must not count the state from its own beginning
    Cluster.objects.select_for_update(no_key=True).filter(pk=cluster.pk).first()
    run = run_latest(cluster)
    estimates = {row.query_id: row for row in run.queries.defer("series", "result")} if run is not None else {}
    queries = list(Query.objects.filter(cluster=cluster, state=QueryState.RUNNING))
    before = {row.query_id: row for row in ObjectiveStatus.objects.filter(query__cluster=cluster)}
    measured = latencies_measured(queries, present)
    judged = [
        row
        for query in queries
        if (row := _status(query, estimates.get(query.pk), measured[query.pk], before.get(query.pk), present))
    ]
    _add_causes(cluster, judged, present)
    _store(judged, before)
    changed = sum(_state(before.get(row.query_id)) != row.state for row in judged)
    if changed or any(_has_moved(row, before.get(row.query_id)) for row in judged):
        announce(f"cluster:{cluster.slug}")
    transaction.on_commit(partial(objectives_judged.send, Cluster, cluster=cluster, now=present), robust=True)
    return changed


def _status(
    query: Query,
    estimate: QueryEstimate | None,
    measured: MeasuredLatency,
    before: ObjectiveStatus | None,
    now: datetime,
) -> ObjectiveStatus | None:
    bound_s = query.objective_bound_s or None
    if estimate is not None and estimate.statistic != (query.objective_statistic or STATISTIC):
        estimate = None  # the objective was changed since: what was estimated is of another statistic
    judged = judge_objective(
        bound_s,
        estimate.estimate_s if estimate else None,
        _high_s(estimate, bound_s) if estimate else None,
        LatencyStanding(estimate.certainty) if estimate else KNOWN,
        measured,
    )
    if judged is None:
        return None
    is_same = before is not None and before.state == judged.state
    return ObjectiveStatus(
        query=query,
        estimate=estimate,
        since=before.since if before is not None and is_same else now,
        statistic=query.objective_statistic or STATISTIC,
        bound_s=bound_s,
        updated_at=now,
        **_judged_fields(judged, bound_s),
        **_measured_fields(measured),
    )


def _high_s(estimate: QueryEstimate, bound_s: float | None) -> float | None:
    """Upper end of an estimate; infinite where it would hold by itself, and is at risk by the policy in force."""
    within = estimate.high_s is None or bound_s is None or estimate.high_s <= bound_s
    lacks = within and estimate.state == ObjectiveState.AT_RISK and estimate.bound_s == bound_s
    return math.inf if lacks else estimate.high_s


def _judged_fields(judged: JudgedObjective, bound_s: float | None) -> dict[str, Any]:
    return {
        "state": judged.state,
        "decided_by": judged.decided_by,
        "value_s": judged.value_s,
        "headroom_share": judged.headroom_share(bound_s),
    }


def _measured_fields(measured: MeasuredLatency) -> dict[str, Any]:
    return {
        "measured_s": measured.value_s,
        "measured_at": None if measured.newest_at_s is None else datetime.fromtimestamp(measured.newest_at_s, UTC),
        "results": measured.results,
        "results_needed": measured.needed,
        "span_s": measured.span_s if measured.results else 0.0,
        "left_out": measured.left_out,
        "lacking": measured.lacking,
    }


def _add_causes(cluster: Cluster, rows: list[ObjectiveStatus], now: datetime) -> None:
    """The causes of those that are late, or may be."""
    late = [row for row in rows if row.state in _LATE]
    if not late:
        return
    estimates = QueryEstimate.objects.filter(pk__in=[row.estimate_id for row in late if row.estimate_id])
    results = dict(estimates.values_list("pk", "result"))
    chain = ChainReports(cluster, now)
    for row in late:
        result = results.get(row.estimate_id) or {}
        causes = (
            measured_causes(chain, row.query, row.measured_s or 0.0, result)
            if row.decided_by == DecidedBy.MEASUREMENT
            else estimate_causes(result, row.value_s or 0.0, row.statistic)
        )
        row.causes = [_cause_document(cause) for cause in causes]


def _cause_document(cause: LatenessCause) -> dict[str, Any]:
    return {name: value for name, value in asdict(cause).items() if value not in (None, "")}


def _store(rows: list[ObjectiveStatus], before: Mapping[int, ObjectiveStatus]) -> None:
    """Write those that differ, and drop those of queries that neither run nor are known of."""
    gone = before.keys() - {row.query_id for row in rows}
    ObjectiveStatus.objects.filter(query__in=gone).delete()
    changed = [row for row in rows if _differs(row, before.get(row.query_id))]
    ObjectiveStatus.objects.bulk_create(
        changed, update_conflicts=True, unique_fields=["query"], update_fields=_WRITTEN, batch_size=500
    )


def _differs(row: ObjectiveStatus, before: ObjectiveStatus | None) -> bool:
    if before is None:
        return True
    return any(getattr(row, _attribute(name)) != getattr(before, _attribute(name)) for name in _COMPARED)


def _attribute(name: str) -> str:
    return "estimate_id" if name == "estimate" else name


def _state(row: ObjectiveStatus | None) -> str:
    return "" if row is None else row.state


def _has_moved(row: ObjectiveStatus, before: ObjectiveStatus | None) -> bool:
    """Whether what pages show of a query is another by so much that they should show it anew."""
    if before is None or row.lacking != before.lacking or _kinds(row) != _kinds(before):
        return True
    return abs((row.measured_s or 0.0) - (before.measured_s or 0.0)) > _MOVED * (before.measured_s or 0.0)


def _kinds(row: ObjectiveStatus) -> list[tuple[str, str]]:
    return [(cause["kind"], cause.get("subject", "")) for cause in row.causes]
