"""Incidents as the REST API shows them, and the routing as it takes it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.limits import MAX_NOTE
from apps.core.rest.api import StrictSerializer
from apps.estimates.serializers import CauseSerializer
from apps.incidents.choices import IncidentSeverity
from apps.incidents.models import Incident, IncidentDelivery, IncidentEvent, IncidentQuery, IncidentRouting
from apps.incidents.notices import incident_title
from apps.incidents.services import MAX_KEEP_DAYS
from apps.reports.models import Webhook

__all__ = [
    "IncidentAcknowledgeSerializer",
    "IncidentDetailSerializer",
    "IncidentRoutingSerializer",
    "IncidentSerializer",
]


class IncidentQuerySerializer(serializers.ModelSerializer):
    """A query's part in an incident."""

    query = serializers.CharField(source="query.name")
    query_id = serializers.IntegerField()

    class Meta:
        model = IncidentQuery
        fields = [
            "query",
            "query_id",
            "state",
            "first_at",
            "last_late_at",
            "ended_at",
            "bound_s",
            "worst_s",
            "evidence",
        ]


class IncidentSerializer(serializers.ModelSerializer):
    """An incident in a list."""

    cluster = serializers.CharField(source="cluster.slug")
    title = serializers.SerializerMethodField()
    cause = CauseSerializer()
    acknowledged_by = serializers.CharField(source="acknowledged_by.username", default=None, allow_null=True)
    query_count = serializers.IntegerField()
    late_count = serializers.IntegerField(help_text="Queries that are late still.")
    queries = IncidentQuerySerializer(source="members", many=True)

    class Meta:
        model = Incident
        fields = ["id", "cluster", "title", "state", "severity", "cause", "opened_at", "last_late_at", "resolved_at"]
        fields += ["acknowledged_at", "acknowledged_by", "note", "query_count", "late_count", "queries"]

    def get_title(self, incident: Incident) -> str:
        return incident_title(incident)


class IncidentEventSerializer(serializers.ModelSerializer):
    """An entry of the timeline."""

    query = serializers.CharField(source="query_name")
    by = serializers.CharField(source="user.username", default=None, allow_null=True)

    class Meta:
        model = IncidentEvent
        fields = ["at", "kind", "query", "by", "text"]


class IncidentDeliverySerializer(serializers.ModelSerializer):
    """Delivery of a notice to one recipient. Of a webhook only the host is shown."""

    event = serializers.CharField(source="notice.event")
    target = serializers.CharField(source="shown_target")

    class Meta:
        model = IncidentDelivery
        fields = ["event", "channel", "target", "state", "attempts", "next_try_at", "last_error", "sent_at"]


class IncidentDetailSerializer(IncidentSerializer):
    """An incident with its timeline and what was sent of it."""

    events = IncidentEventSerializer(many=True)
    deliveries = serializers.SerializerMethodField()

    class Meta(IncidentSerializer.Meta):
        fields = [*IncidentSerializer.Meta.fields, "events", "deliveries"]

    def get_deliveries(self, incident: Incident) -> list[dict[str, Any]]:
        rows = [delivery for notice in incident.notices.all() for delivery in notice.deliveries.all()]
        return list(IncidentDeliverySerializer(rows, many=True).data)


class IncidentAcknowledgeSerializer(StrictSerializer):
    """Note of the operator who acknowledged it."""

    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=MAX_NOTE)


class IncidentRoutingSerializer(StrictSerializer):
    """Where a cluster's incidents are reported to. What is left out takes its default."""

    emails = serializers.ListField(child=serializers.CharField(), required=False, help_text="Mailed.")
    webhooks = serializers.PrimaryKeyRelatedField(
        queryset=Webhook.objects.all(),
        many=True,
        required=False,
        pk_field=serializers.UUIDField(),
        help_text="Ids of webhooks of the cluster, which get a signed POST.",
    )
    severity = serializers.ChoiceField(
        IncidentSeverity.choices, required=False, help_text="The least that is reported; critical unless given."
    )
    keep_days = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_KEEP_DAYS,
        help_text="How long resolved ones are kept; 90 unless given.",
    )

    def to_representation(self, routing: IncidentRouting) -> dict[str, Any]:
        webhooks = [str(webhook.pk) for webhook in routing.webhooks.all()] if routing.pk else []
        return {
            "emails": routing.emails,
            "webhooks": webhooks,
            "severity": str(routing.severity),
            "keep_days": routing.keep_days,
        }
