"""Filters of lists of results, rules and alerts."""

from __future__ import annotations

import django_filters

from apps.results.choices import AlertState, Severity
from apps.results.models import Alert, AlertRule, ResultWindow

__all__ = ["AlertFilter", "AlertRuleFilter", "ResultFilter"]


class ResultFilter(django_filters.FilterSet):
    """`?complete=true&plan=3f…`."""

    complete = django_filters.BooleanFilter(label="Whether every agent had reported")
    plan = django_filters.CharFilter(label="Digest of the pipeline")

    class Meta:
        model = ResultWindow
        fields = ["complete", "plan"]


class AlertRuleFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=3&enabled=true`."""

    cluster = django_filters.CharFilter(field_name="query__cluster__slug", label="Slug of the cluster")
    query = django_filters.NumberFilter(field_name="query_id", label="Number of the query")
    enabled = django_filters.BooleanFilter(label="Whether it is evaluated")

    class Meta:
        model = AlertRule
        fields = ["cluster", "query", "enabled"]


class AlertFilter(django_filters.FilterSet):
    """`?cluster=eu-1&query=3&rule=7&state=firing&severity=critical&acknowledged=false`."""

    cluster = django_filters.CharFilter(field_name="rule__query__cluster__slug", label="Slug of the cluster")
    query = django_filters.NumberFilter(field_name="rule__query_id", label="Number of the query")
    rule = django_filters.NumberFilter(field_name="rule_id", label="Number of the rule")
    state = django_filters.ChoiceFilter(choices=AlertState.choices)
    severity = django_filters.MultipleChoiceFilter(field_name="rule__severity", choices=Severity.choices)
    acknowledged = django_filters.BooleanFilter(
        field_name="acknowledged_at", lookup_expr="isnull", exclude=True, label="Whether somebody has seen it"
    )

    class Meta:
        model = Alert
        fields = ["cluster", "query", "rule", "state", "severity", "acknowledged"]
