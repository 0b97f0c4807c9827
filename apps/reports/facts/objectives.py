"""Objectives now and in the period, and the latency report to the users of a query or a team."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Min, Q

from apps.estimates.answers import curves_unpack
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.estimates.selectors import objectives_by_headroom
from apps.estimates.words import cause_sentence, evidence_words
from apps.fleet.models import Cluster
from apps.queries.choices import ObjectiveState
from apps.queries.models import Query
from apps.reports.models import Report
from engine.arrays import step_maxima

__all__ = ["latency_facts", "objective_facts"]


def objective_facts(
    cluster: Cluster,
    run: EstimateRun | None,
    since: datetime | None,
    until: datetime,
    names: Collection[str] | None = None,
) -> dict[str, Any]:
    """One row for each running query (of `names`, if given), least headroom first, with its counts of the period."""
    if run is None:
        return {"rows": [], "runs": 0, "since": None}
    runs = EstimateRun.objects.filter(cluster=cluster, created_at__lte=until)
    if since is not None:
        runs = runs.filter(created_at__gt=since)
    first = runs.aggregate(first=Min("created_at"))["first"]
    period = _period(runs)
    rows = [_row(row, period.get(row.query_id)) for row in objectives_by_headroom(run)]
    return {
        "rows": [row for row in rows if names is None or row["query"] in names],
        "runs": runs.count(),
        "since": first.isoformat() if first else None,
    }


def _period(runs: Any) -> dict[int, dict[str, Any]]:
    counted = (
        QueryEstimate.objects.filter(run__in=runs)
        .order_by()
        .values("query_id")
        .annotate(
            runs=Count("pk"),
            held=Count("pk", filter=Q(state=ObjectiveState.HOLDS)),
            at_risk=Count("pk", filter=Q(state=ObjectiveState.AT_RISK)),
            broken=Count("pk", filter=Q(state=ObjectiveState.BREACHED)),
            highest_s=Max("estimate_s"),
            first_broken=Min("run__created_at", filter=Q(state=ObjectiveState.BREACHED)),
        )
    )
    return {row["query_id"]: dict(row) for row in counted}


def _row(row: QueryEstimate, period: dict[str, Any] | None) -> dict[str, Any]:
    answer, bottleneck = row.answer, row.answer.bottleneck
    first_broken = (period or {}).get("first_broken")
    standing = row.standing
    return {
        "query": row.query.name,
        "team": row.query.team,
        "version": row.version.number,
        "statistic": row.statistic,
        "bound_s": row.bound_s,
        "estimate_s": row.estimate_s,
        "low_s": row.low_s,
        "high_s": row.high_s,
        "worst_s": row.worst_s,
        "mean_s": answer.mean_s,
        "quantiles": dict(answer.quantiles),
        "headroom_s": row.headroom[0],
        "headroom_share": row.headroom[1],
        "standing": answer.standing.words,
        "measured_s": row.measured_s,
        "evidence": evidence_words(standing) if standing is not None else "",
        "cause": cause_sentence(standing.lateness[0]) if standing is not None and standing.causes else "",
        "resolution_s": answer.resolution_s,
        "state": row.judged_state,
        "bottleneck": (bottleneck.node or bottleneck.server) if bottleneck else "",
        "bottleneck_load": bottleneck.load_peak if bottleneck else None,
        "scheduling": answer.scheduling and answer.scheduling.to_dict(),
        "assumed": sum(entry.evidence == "assumed" for entry in answer.uncovered),
        "period": None
        if period is None
        else {
            "runs": period["runs"],
            "held": period["held"],
            "at_risk": period["at_risk"],
            "broken": period["broken"],
            "highest_s": period["highest_s"],
            "first_broken": first_broken.isoformat() if first_broken else None,
        },
    }


_POINTS = 240


def latency_facts(report: Report, run: EstimateRun | None) -> dict[str, Any]:
    """The queries it is about; what of them does not run is named, too."""
    parameters, cluster = report.definition.parameters, report.definition.cluster
    queries = Query.objects.filter(cluster=cluster)
    queries = (
        queries.filter(name=parameters["query"]) if "query" in parameters else queries.filter(team=parameters["team"])
    )
    names = {query.name: query.get_state_display() for query in queries.order_by("name")}
    objectives = objective_facts(cluster, run, report.covers_from, report.covers_until, set(names))
    known = {row["query"] for row in objectives["rows"]}
    return {
        "subject": parameters,
        "objectives": objectives,
        "absent": [{"query": name, "state": state} for name, state in names.items() if name not in known],
        "curves": {} if run is None else _curves(run, known),
    }


def _curves(run: EstimateRun, names: set[str]) -> dict[str, Any]:
    """The mean path over the stretch, the maximum of each of at most 240 parts."""
    curves = {}
    rows = QueryEstimate.objects.filter(run=run, query__name__in=names, series__isnull=False).select_related("query")
    for row in rows:
        curves[row.query.name] = _thin(curves_unpack(row.series))
    return curves


def _thin(curves: dict[str, list[float]]) -> dict[str, list[float]]:
    """The maximum of each of at most `_POINTS` parts."""
    times = curves["time_s"]
    width = -(-len(times) // _POINTS)
    thin = {"time_s": times[::width]}
    thin["flow_s"] = [round(value, 6) for value in step_maxima(curves["flow_s"], _POINTS).tolist()]
    return thin
