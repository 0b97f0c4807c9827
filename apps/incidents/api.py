"""REST: incidents, where they are reported to, and when they are not."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.limits import MAX_NAME, MAX_NOTE, MAX_QUERY_PATH, MAX_REASON, MAX_URL
from apps.core.reach import AskedOn
from apps.core.rest.api import ApiMixin, ReadViewSet, Router, ServiceViewSet, StrictSerializer
from apps.core.rest.serializers import NoticeDeliverySerializer, RowField, read_body, show_row
from apps.estimates.serializers import CauseSerializer
from apps.fleet.selectors import cluster_by_slug
from apps.fleet.serializers import ClusterField
from apps.incidents.channels import MAX_ADDRESS
from apps.incidents.choices import ChannelKind, IncidentCause, IncidentSeverity
from apps.incidents.models import (
    Incident,
    IncidentChannel,
    IncidentDelivery,
    IncidentEvent,
    IncidentQuery,
    IncidentRouting,
    IncidentSilence,
)
from apps.incidents.notices import channel_try, incident_title
from apps.incidents.selectors import (
    IncidentChannelFilter,
    IncidentFilter,
    IncidentSilenceFilter,
    channels_listed,
    incident_in_full,
    incidents_listed,
    routing_of,
    silences_listed,
)
from apps.incidents.services import (
    MAX_KEEP_DAYS,
    channel_create,
    channel_delete,
    channel_update,
    incident_acknowledge,
    incident_done,
    incident_routing_update,
    silence_create,
    silence_end,
)
from apps.reports.models import Webhook

__all__ = []


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
            "measured",
            "unconfirmed_at",
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
    cause = CauseSerializer(source="lateness")
    acknowledged_by = serializers.CharField(source="acknowledged_by.username", default=None, allow_null=True)
    query_count = serializers.IntegerField()
    late_count = serializers.IntegerField(help_text="Queries that are late still.")
    queries = IncidentQuerySerializer(source="members", many=True)

    class Meta:
        model = Incident
        fields = ["id", "cluster", "title", "state", "severity", "measured", "cause", "opened_at", "last_late_at"]
        fields += ["resolved_at", "acknowledged_at", "acknowledged_by", "note", "query_count", "late_count", "queries"]

    def get_title(self, incident: Incident) -> str:
        return incident_title(incident)


class IncidentEventSerializer(serializers.ModelSerializer):
    """An entry of the timeline."""

    query = serializers.CharField(source="query_name")
    by = serializers.CharField(source="user.username", default=None, allow_null=True)

    class Meta:
        model = IncidentEvent
        fields = ["at", "kind", "query", "by", "text"]


class IncidentDeliverySerializer(NoticeDeliverySerializer):
    """Delivery of a notice to one recipient. Of a webhook only the host is shown."""

    class Meta(NoticeDeliverySerializer.Meta):
        model = IncidentDelivery


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


class IncidentDoneSerializer(StrictSerializer):
    """Word of a person on work outside of the console."""

    reason = serializers.CharField(max_length=MAX_NOTE)


class IncidentRoutingSerializer(StrictSerializer):
    """Where a cluster's incidents are reported to. What is left out takes its default."""

    emails = serializers.ListField(child=serializers.CharField(), required=False, help_text="Mailed.")
    webhooks = RowField(
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


class IncidentChannelSerializer(StrictSerializer):
    """A service that is told of incidents. What is written of address and token is never read again."""

    id = serializers.IntegerField(read_only=True)
    cluster = ClusterField()
    name = serializers.CharField(max_length=MAX_NAME)
    kind = serializers.ChoiceField(choices=ChannelKind.choices)
    address = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        max_length=MAX_ADDRESS,
        help_text="URL of the service; of Slack and Teams the webhook's, of others one of Apprise. Not shown again.",
    )
    token = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        max_length=MAX_URL,
        help_text="Integration key of PagerDuty, API key of Opsgenie, else a bearer token. Not shown again.",
    )
    shown_address = serializers.CharField(read_only=True, help_text="The part of the address without a secret.")
    severity = serializers.ChoiceField(IncidentSeverity.choices, required=False, help_text="The least it is told of.")
    group_s = serializers.IntegerField(
        required=False, min_value=0, max_value=3600, help_text="Seconds in which incidents are gathered; 0: at once."
    )
    enabled = serializers.BooleanField(required=False)
    error = serializers.CharField(read_only=True, help_text="Why the last message did not arrive; empty: it did.")
    tried_at = serializers.DateTimeField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class ChannelTestSerializer(serializers.Serializer):
    """Outcome of a test message."""

    arrived = serializers.BooleanField()
    error = serializers.CharField(help_text="Why it did not; empty where it did.")


class IncidentSilenceSerializer(StrictSerializer):
    """A time in which incidents are told to nobody."""

    id = serializers.IntegerField(read_only=True)
    cluster = ClusterField()
    cause_kind = serializers.ChoiceField(
        IncidentCause.choices, required=False, allow_blank=True, help_text="Of this cause alone; empty: of any."
    )
    subject = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=MAX_QUERY_PATH,
        help_text="Of this agent, source, node, engine or query alone; empty: of any.",
    )
    starts_at = serializers.DateTimeField(required=False, help_text="Now unless given.")
    ends_at = serializers.DateTimeField()
    reason = serializers.CharField(max_length=MAX_REASON)
    created_by = serializers.CharField(source="created_by.username", read_only=True, allow_null=True, default=None)
    created_at = serializers.DateTimeField(read_only=True)


class IncidentViewSet(ReadViewSet):
    """Late queries by cause, newest first; one of them with its timeline."""

    queryset = Incident.objects.none()
    filterset_class = IncidentFilter
    ordering = "-opened_at"

    def get_serializer_class(self) -> type:
        return IncidentSerializer if self.action == "list" else IncidentDetailSerializer

    def get_queryset(self) -> Any:
        return incidents_listed() if self.action == "list" else incident_in_full()

    @extend_schema(request=IncidentAcknowledgeSerializer, responses=IncidentDetailSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, pk: str | None = None) -> Response:
        """Say that somebody has seen it. The first who says so is remembered."""
        values = read_body(IncidentAcknowledgeSerializer, request)
        row = incident_acknowledge(incident=self.get_object(), user=signed_in_user(request), **values)
        return Response(show_row(row, incident_in_full(), IncidentDetailSerializer))

    @extend_schema(request=IncidentDoneSerializer, responses=IncidentDetailSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def done(self, request: Request, pk: str | None = None) -> Response:
        """Say that what was mended on paper was done. Queries that are well on paper alone leave at the next round."""
        values = read_body(IncidentDoneSerializer, request)
        row = incident_done(incident=self.get_object(), user=signed_in_user(request), **values)
        return Response(show_row(row, incident_in_full(), IncidentDetailSerializer))


class IncidentRoutingView(ApiMixin, APIView):
    """Mail addresses and webhooks that a cluster's incidents are reported to, and how long these are kept."""

    asked_on = AskedOn.NARROWED

    @extend_schema(responses=IncidentRoutingSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """The routing in force."""
        return Response(IncidentRoutingSerializer(routing_of(cluster_by_slug(slug))).data)

    @extend_schema(request=IncidentRoutingSerializer, responses=IncidentRoutingSerializer)
    def put(self, request: Request, slug: str) -> Response:
        """Replace the routing."""
        cluster = cluster_by_slug(slug)
        routing = incident_routing_update(cluster=cluster, **read_body(IncidentRoutingSerializer, request))
        return Response(IncidentRoutingSerializer(routing).data)


class IncidentChannelViewSet(ServiceViewSet):
    """Services that are told of incidents: Alertmanager, PagerDuty, Opsgenie, CloudEvents, Slack, Teams and others."""

    scopes = {"GET": Scope.OPERATE}
    queryset = IncidentChannel.objects.none()
    serializer_class = IncidentChannelSerializer
    filterset_class = IncidentChannelFilter
    ordering = "name"
    row_keyword = "channel"
    service_create = staticmethod(channel_create)
    service_update = staticmethod(channel_update)
    service_delete = staticmethod(channel_delete)

    def get_queryset(self) -> Any:
        return channels_listed()

    @extend_schema(request=None, responses=ChannelTestSerializer)
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str | None = None) -> Response:
        """Send a message that says it is a test; waits until it arrived, or did not."""
        return Response(channel_try(self.get_object()))


class IncidentSilenceViewSet(ReadViewSet, mixins.DestroyModelMixin):
    """Times in which incidents are told to nobody, the last to end first."""

    queryset = IncidentSilence.objects.none()
    serializer_class = IncidentSilenceSerializer
    filterset_class = IncidentSilenceFilter
    ordering = "-ends_at"

    def get_queryset(self) -> Any:
        return silences_listed()

    @extend_schema(request=IncidentSilenceSerializer, responses={201: IncidentSilenceSerializer})
    def create(self, request: Request) -> Response:
        """Tell nobody for a time. Incidents that are open at its end are told then."""
        values = read_body(IncidentSilenceSerializer, request)
        row = silence_create(user=signed_in_user(request), **values)
        shown = show_row(row, silences_listed(), IncidentSilenceSerializer)
        return Response(shown, status=201, headers={"Location": f"{request.path.rstrip('/')}/{row.pk}"})

    def perform_destroy(self, instance: IncidentSilence) -> None:
        silence_end(silence=instance)


router = Router()
router.register("incident-channels", IncidentChannelViewSet, basename="incident-channel")
router.register("incident-silences", IncidentSilenceViewSet, basename="incident-silence")
router.register("incidents", IncidentViewSet, basename="incident")

urlpatterns = [
    path("clusters/<str:slug>/incident-routing", IncidentRoutingView.as_view(), name="incident-routing"),
    *router.urls,
]
