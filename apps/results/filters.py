"""Filters of lists of results, rules and alerts."""

from __future__ import annotations

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
from apps.results.choices import AlertState, Severity

__all__ = ["AlertFilter", "AlertRuleFilter", "ResultFilter"]


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
