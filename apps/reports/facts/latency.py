"""The report to the users of a query or of a team: its worst case, and how its objective stands."""

from __future__ import annotations

from typing import Any

from apps.estimates.curves import curves_unpack, thinned
from apps.estimates.models import EstimateRun, QueryEstimate
from apps.queries.models import Query
from apps.reports.facts.objectives import objective_facts
from apps.reports.models import Report

__all__ = ["latency_facts"]

_POINTS = 240


def latency_facts(report: Report, run: EstimateRun | None) -> dict[str, Any]:
    """The queries it is about; what of them does not run is named, too."""
    parameters, cluster = report.definition.parameters, report.definition.cluster
    wanted = Query.objects.filter(cluster=cluster)
    wanted = (
        wanted.filter(name=parameters["query"]) if "query" in parameters else wanted.filter(team=parameters["team"])
    )
    names = {query.name: query.get_state_display() for query in wanted.order_by("name")}
    objectives = objective_facts(cluster, run, report.covers_from, report.covers_until, set(names))
    known = {row["query"] for row in objectives["rows"]}
    return {
        "subject": parameters,
        "objectives": objectives,
        "absent": [{"query": name, "state": state} for name, state in names.items() if name not in known],
        "curves": {} if run is None else _curves(run, known),
    }


def _curves(run: EstimateRun, names: set[str]) -> dict[str, Any]:
    """Estimate and interval over the stretch, the maximum of each of at most 240 parts."""
    found = {}
    rows = QueryEstimate.objects.filter(run=run, query__name__in=names, series__isnull=False).select_related("query")
    for row in rows:
        found[row.query.name] = _thin(curves_unpack(row.series))
    return found


def _thin(curves: dict[str, Any]) -> dict[str, Any]:
    """The maximum of each of at most `_POINTS` parts; of the lower end as well, so that it stays below the upper."""
    times = curves["time_s"]
    width = -(-len(times) // _POINTS)
    thin = {"time_s": times[::width]}
    for name in ("estimate_s", "low_s", "high_s"):
        thin[name] = (
            None if curves[name] is None else [round(value, 6) for value in thinned(curves[name], _POINTS).tolist()]
        )
    return thin
