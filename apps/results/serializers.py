"""Results, rules and alerts as the REST API takes and shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.accounts.choices import Scope
from apps.accounts.permissions import scopes_of
from apps.core.addresses import host_of
from apps.core.limits import MAX_NOTE
from apps.core.rest.api import StrictModelSerializer, StrictSerializer
from apps.core.rest.serializers import field_type
from apps.queries.models import Query
from apps.results.models import Alert, AlertDelivery, AlertRule, ResultWindow
from apps.results.rows import rows_json, table_in

__all__ = [
    "AcknowledgeSerializer",
    "AlertRuleSerializer",
    "AlertSerializer",
    "ResultRowsSerializer",
    "ResultSerializer",
    "RuleSecretSerializer",
]


class ResultSerializer(serializers.ModelSerializer):
    """A window without its rows."""

    version = serializers.IntegerField(source="version_number", allow_null=True)
    missing = serializers.ListField(child=serializers.CharField())
    recovered = serializers.DictField(child=serializers.IntegerField(), help_text="Records by agent that left them.")

    class Meta:
        model = ResultWindow
        fields = ["window_us", "width_us", "revision", "version", "plan", "complete", "missing", "recovered"]
        fields += ["late", "early", "records", "row_count", "batch"]
        fields += ["closing_epoch_at", "emitted_at", "latency_s", "received_at"]


class ResultRowsSerializer(ResultSerializer):
    """A window with its rows."""

    columns = serializers.SerializerMethodField(help_text="{name: type}.")
    rows = serializers.SerializerMethodField(help_text="[{column: value}].")

    class Meta(ResultSerializer.Meta):
        fields = [*ResultSerializer.Meta.fields, "columns", "rows"]

    @field_type(dict[str, str])
    def get_columns(self, row: ResultWindow) -> dict[str, str]:
        return {field.name: str(field.type) for field in table_in(row.body).schema}

    @field_type(list[dict[str, Any]])
    def get_rows(self, row: ResultWindow) -> list[dict[str, Any]]:
        return list(rows_json(table_in(row.body)))


class AlertRuleSerializer(StrictModelSerializer):
    """A rule with what it says now."""

    query = serializers.PrimaryKeyRelatedField(queryset=Query.objects.all(), help_text="Number of the query.")
    cluster = serializers.CharField(source="query.cluster.slug", read_only=True)
    firing_count = serializers.IntegerField(read_only=True)
    emails = serializers.ListField(child=serializers.CharField(), required=False, help_text="Mailed.")
    webhooks = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Told by a signed POST. Who may not operate sees their hosts.",
    )

    class Meta:
        model = AlertRule
        fields = ["id", "cluster", "query", "name", "column", "comparison", "threshold", "for_windows", "where"]
        fields += ["severity", "enabled", "emails", "webhooks", "firing_count", "fault", "unlisted", "evaluated_at"]
        fields += ["created_at", "updated_at"]
        read_only_fields = ["fault", "unlisted", "evaluated_at", "created_at", "updated_at"]
        validators: list[Any] = []  # the service names the fault at `name`

    def to_representation(self, row: AlertRule) -> dict[str, Any]:
        shown = super().to_representation(row)
        request = self.context["request"]
        if Scope.OPERATE not in scopes_of(request.user, request.auth):
            shown["webhooks"] = [host_of(url) for url in row.webhooks]
        return shown

    def validate_query(self, query: Query) -> Query:
        if self.instance is not None and self.instance.query_id != query.pk:
            raise serializers.ValidationError("a rule stays with its query; make another one")
        return query


class RuleSecretSerializer(serializers.Serializer):
    """Key that signs a rule's messages to webhooks."""

    secret = serializers.CharField()


class _NoticeSerializer(serializers.ModelSerializer):
    """Delivery of a notice to one recipient. Of a webhook only the host is shown."""

    event = serializers.CharField(source="notice.event")
    target = serializers.CharField(source="shown_target")

    class Meta:
        model = AlertDelivery
        fields = ["event", "channel", "target", "state", "attempts", "next_try_at", "last_error", "sent_at"]


class AlertSerializer(serializers.ModelSerializer):
    """An alert with the rule it belongs to."""

    cluster = serializers.CharField(source="rule.query.cluster.slug")
    query = serializers.CharField(source="rule.query.name")
    query_id = serializers.IntegerField(source="rule.query_id")
    rule_name = serializers.CharField(source="rule.name")
    severity = serializers.CharField(source="rule.severity")
    acknowledged_by = serializers.CharField(source="acknowledged_by.username", default=None, allow_null=True)
    group = serializers.DictField()
    deliveries = _NoticeSerializer(many=True, read_only=True)

    class Meta:
        model = Alert
        fields = ["id", "cluster", "query", "query_id", "rule", "rule_name", "severity", "group", "state"]
        fields += ["opened_at", "opened_window_us", "opened_value", "last_window_us", "last_value", "worst_value"]
        fields += ["resolved_at", "resolved_by", "resolved_value", "acknowledged_at", "acknowledged_by", "note"]
        fields += ["deliveries"]


class AcknowledgeSerializer(StrictSerializer):
    """Note of the operator who acknowledged it."""

    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_NOTE)
