"""Reading results, rules and alerts, and filters of their lists."""

from __future__ import annotations

import pyarrow as pa
from django.db.models import Case, Count, IntegerField, Q, QuerySet, Value, When

from apps.core.filters import (
    BooleanFilter,
    ChoiceFilter,
    ListFilter,
    NumberFilter,
    PresenceFilter,
    TextFilter,
    TimeFilter,
    sort_paths,
)
from apps.fleet.models import Cluster
from apps.queries.models import Query
from apps.results.models import Alert, AlertRule, AlertState, ResultWindow, Severity
from apps.results.rows import table_in
from apps.telemetry.models import KnownPlan, LiveQuery
from engine.dataflow import Pipeline
from engine.dataflow.types import PipelineDocument
from engine.errors import EngineError

__all__ = [
    "AlertFilter",
    "AlertRuleFilter",
    "ResultFilter",
    "alert_rules_listed",
    "alerts_firing",
    "alerts_listed",
    "alerts_with_notices",
    "pipeline_of",
    "result_latest",
    "result_schema",
    "results_listed",
    "results_recent",
]

_BY_SEVERITY = Case(
    *(When(rule__severity=value, then=Value(place)) for place, value in enumerate(Severity.values)),
    output_field=IntegerField(),
)


def results_listed() -> QuerySet[ResultWindow]:
    """Windows, newest first, without their rows."""
    return ResultWindow.objects.select_related("query__cluster").defer("body")


def result_latest(query: Query) -> ResultWindow | None:
    """The newest window, of whatever plan."""
    return ResultWindow.objects.filter(query=query).order_by("-window_us", "-pk").first()


def results_recent(query: Query, plan: str, count: int) -> list[ResultWindow]:
    """The newest windows of one plan with their rows, oldest first."""
    rows = ResultWindow.objects.filter(query=query, plan=plan).order_by("-window_us")[:count]
    return list(rows)[::-1]


def pipeline_of(query: Query, plan: str) -> PipelineDocument | None:
    """The pipeline document of a plan that ran for a query."""
    name = f"{query.cluster.slug}/{query.name}"
    return KnownPlan.objects.filter(query=name, digest=plan).values_list("pipeline", flat=True).first()


def result_schema(query: Query) -> pa.Schema | None:
    """The columns of the results: of the plan that runs, else of the newest window; None while neither is known."""
    live = LiveQuery.objects.filter(query=query).first()
    if live is not None and live.pipeline:
        try:
            return Pipeline.parse(live.pipeline).output_schema
        except EngineError:
            pass  # an older release understood it; its results still say what they hold
    row = result_latest(query)
    return table_in(row.body).schema if row is not None else None


def alert_rules_listed() -> QuerySet[AlertRule]:
    """Rules with their query and `firing_count`."""
    firing = Count("alerts", filter=Q(alerts__state=AlertState.FIRING))
    return AlertRule.objects.select_related("query__cluster").annotate(firing_count=firing)


def alerts_listed() -> QuerySet[Alert]:
    """Alerts, newest first, with their rule and query."""
    return Alert.objects.select_related("rule__query__cluster", "acknowledged_by")


def alerts_with_notices(rows: QuerySet[Alert]) -> QuerySet[Alert]:
    """Alerts with their notices and deliveries."""
    return rows.prefetch_related("fired_notice__deliveries__notice", "resolved_notice__deliveries__notice")


def alerts_firing(cluster: Cluster) -> QuerySet[Alert]:
    """Alerts that fire now: not acknowledged first, then by severity, then the newest."""
    rows = alerts_listed().filter(rule__query__cluster=cluster, state=AlertState.FIRING)
    seen = Case(When(acknowledged_at=None, then=Value(0)), default=Value(1), output_field=IntegerField())
    return rows.order_by(seen, _BY_SEVERITY, "-opened_at")


class ResultFilter(ListFilter):
    """`?complete=true&plan=3f…`."""

    complete = BooleanFilter(label="Whether every agent had reported")
    plan = TextFilter(label="Digest of the pipeline")
    window_us = NumberFilter(whole=True, label="Start of the window")
    emitted_at = TimeFilter()
    latency_s = NumberFilter()
    sorts = sort_paths("window_us", "emitted_at", "received_at", "latency_s", "records")


class AlertRuleFilter(ListFilter):
    """`?cluster=eu-1&query=3&enabled=true`."""

    cluster = TextFilter("query__cluster__slug", label="Slug of the cluster")
    query = NumberFilter("query_id", whole=True, label="Number of the query")
    name = TextFilter(label="Its name")
    severity = ChoiceFilter(choices=Severity.choices)
    enabled = BooleanFilter(label="Whether it is evaluated")
    sorts = sort_paths("name", "severity", "created_at", "evaluated_at", cluster="query__cluster__slug")


class AlertFilter(ListFilter):
    """`?cluster=eu-1&query=3&rule=7&state=firing&severity=critical&acknowledged=false`."""

    cluster = TextFilter("rule__query__cluster__slug", label="Slug of the cluster")
    query = NumberFilter("rule__query_id", whole=True, label="Number of the query")
    rule = NumberFilter("rule_id", whole=True, label="Number of the rule")
    state = ChoiceFilter(choices=AlertState.choices)
    severity = ChoiceFilter("rule__severity", choices=Severity.choices)
    acknowledged = PresenceFilter("acknowledged_at", label="Whether somebody has seen it")
    opened_at = TimeFilter()
    resolved_at = TimeFilter()
    sorts = sort_paths("opened_at", "resolved_at", "acknowledged_at", "state", severity="rule__severity")
