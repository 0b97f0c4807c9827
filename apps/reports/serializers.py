"""Reports as the REST API takes and shows them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.limits import MAX_NAME, MAX_TIME_ZONE, MAX_URL
from apps.core.rest.api import StrictSerializer
from apps.core.rest.problems import StoredProblemSerializer
from apps.fleet.serializers import ClusterField
from apps.reports.choices import ReportKind
from apps.reports.deliveries import api_links
from apps.reports.lifecycle import report_facts
from apps.reports.models import Delivery, Report, ReportDefinition, Webhook
from apps.reports.selectors import schedule_sentence

__all__ = [
    "DefinitionSerializer",
    "DeliverySerializer",
    "PreviewSerializer",
    "ReportDetailSerializer",
    "ReportSerializer",
    "RunSerializer",
    "ScheduleSerializer",
    "SecretSerializer",
    "WebhookSerializer",
]


class WebhookSerializer(StrictSerializer):
    """An address that is told of finished reports. Its secret is shown once, when it is made or renewed."""

    id = serializers.UUIDField(read_only=True)
    cluster = ClusterField()
    name = serializers.CharField(max_length=MAX_NAME)
    url = serializers.CharField(max_length=MAX_URL, help_text="http or https; private networks only by setting.")
    sends_decisions = serializers.BooleanField(
        required=False, default=False, help_text="Whether it is told of decisions applied to imported queries."
    )
    definition_count = serializers.IntegerField(read_only=True, default=0)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def validate_cluster(self, cluster: Any) -> Any:
        return _kept(self.instance, cluster)


class SecretSerializer(WebhookSerializer):
    """A webhook with what its messages are signed with."""

    secret = serializers.SerializerMethodField()

    @extend_schema_field(serializers.CharField())
    def get_secret(self, row: Webhook) -> str:
        return str(self.context["secret"])


class DefinitionSerializer(StrictSerializer):
    """A report as somebody wants it."""

    id = serializers.IntegerField(read_only=True)
    cluster = ClusterField()
    kind = serializers.ChoiceField(choices=ReportKind.choices)
    name = serializers.CharField(max_length=MAX_NAME)
    parameters = serializers.DictField(
        required=False, help_text="Provisioning: sections, horizon_days, growth (0.6 is +60 %). Latency: query or team."
    )
    formats = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="What mails carry: html, pdf, csv, json."
    )
    emails = serializers.ListField(child=serializers.CharField(), required=False)
    webhooks = serializers.PrimaryKeyRelatedField(many=True, queryset=Webhook.objects.all(), required=False)
    enabled = serializers.BooleanField(required=False)
    schedule = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    @extend_schema_field(serializers.IntegerField(allow_null=True, help_text="Number in report-schedules."))
    def get_schedule(self, row: ReportDefinition) -> int | None:
        schedule = getattr(row, "schedule", None)
        return schedule.pk if schedule is not None else None

    def validate_cluster(self, cluster: Any) -> Any:
        return _kept(self.instance, cluster)

    def validate_kind(self, kind: Any) -> Any:
        if self.instance is not None and kind != self.instance.kind:
            raise serializers.ValidationError("this field cannot be changed")
        return kind


def _kept(instance: Any, cluster: Any) -> Any:
    if instance is not None and cluster != instance.cluster:
        raise serializers.ValidationError("this field cannot be changed")
    return cluster


class PreviewSerializer(StrictSerializer):
    """A calendar rule in a time zone."""

    rule = serializers.DictField(
        help_text='Such as {"every": "week", "days": ["mon"], "at": "07:00"}; every is day, week, month, year, hours '
        "or rrule."
    )
    time_zone = serializers.CharField(max_length=MAX_TIME_ZONE, help_text="Such as Europe/Berlin.")


class ScheduleSerializer(PreviewSerializer):
    """Schedule of a definition. POST again to replace it."""

    id = serializers.IntegerField(read_only=True)
    definition = serializers.PrimaryKeyRelatedField(queryset=ReportDefinition.objects.all())
    sentence = serializers.SerializerMethodField()
    next_at = serializers.DateTimeField(read_only=True, allow_null=True)
    last_due_at = serializers.DateTimeField(read_only=True, allow_null=True)

    @extend_schema_field(serializers.CharField())
    def get_sentence(self, row: Any) -> str:
        return schedule_sentence(row)

    def validate_definition(self, definition: Any) -> Any:
        if self.instance is not None and definition != self.instance.definition:
            raise serializers.ValidationError("this field cannot be changed")
        return definition


class RunSerializer(serializers.Serializer):
    """One due time to come."""

    at = serializers.DateTimeField(help_text="The instant.")
    clock = serializers.CharField(help_text="The time of the clock that the rule names.")
    note = serializers.CharField(allow_blank=True, help_text="Where the clock jumps over that time.")


class DeliverySerializer(serializers.ModelSerializer):
    """A report on its way to one reader. Of a webhook only the host is told: the rest often holds a secret."""

    target = serializers.CharField(source="shown_target")

    class Meta:
        model = Delivery
        fields = ["id", "channel", "target", "state", "attempts", "next_try_at", "last_error", "sent_at"]


class ReportSerializer(serializers.ModelSerializer):
    """A report and where its files are."""

    definition = serializers.IntegerField(source="definition_id")
    name = serializers.CharField(source="definition.name")
    kind = serializers.CharField(source="definition.kind")
    cluster = serializers.CharField(source="definition.cluster.slug")
    job = serializers.UUIDField(source="job_id", allow_null=True)
    requested_by: Any = serializers.SlugRelatedField(slug_field="username", read_only=True)
    error = StoredProblemSerializer(read_only=True, allow_null=True)
    links = serializers.SerializerMethodField()

    class Meta:
        model = Report
        fields = [
            "id",
            "definition",
            "name",
            "kind",
            "cluster",
            "job",
            "state",
            "trigger",
            "due_at",
            "missed",
            "covers_from",
            "covers_until",
            "finding",
            "requested_by",
            "error",
            "links",
            "created_at",
            "written_at",
        ]
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_links(self, row: Report) -> dict[str, str]:
        return api_links(row)


class ReportDetailSerializer(ReportSerializer):
    """A report with its facts and deliveries."""

    facts = serializers.SerializerMethodField()
    deliveries = DeliverySerializer(many=True, read_only=True)

    class Meta(ReportSerializer.Meta):
        fields = [*ReportSerializer.Meta.fields, "deliveries", "facts"]
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": True, "nullable": True})
    def get_facts(self, row: Report) -> dict[str, Any] | None:
        return report_facts(row)
