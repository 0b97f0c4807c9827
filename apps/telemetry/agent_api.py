"""REST: agents, enrolment tokens, sources and static tables."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.authentication import TokenAuthentication
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT, HEARTBEAT, SMALL
from apps.core.limits import MAX_HOST_NAME, MAX_KIND, MAX_SHORT_NOTE, MAX_SLUG, MAX_VERSION_TEXT
from apps.core.rest.api import ApiMixin, ReadViewSet, Router, ServiceViewSet, StrictSerializer
from apps.core.rest.serializers import show_row
from apps.fleet.models import Node
from apps.fleet.serializers import ClusterField, InClusterSerializer, NumberField
from apps.telemetry.agent_services import agent_delete, agent_enrol, agent_update, enrolment_create, enrolment_revoke
from apps.telemetry.configs import agent_config
from apps.telemetry.directory import AgentAuthentication, AgentOrScope, AgentPermission
from apps.telemetry.heartbeats import HEARTBEAT_S, HeartbeatAnswer, HeartbeatSerializer, agent_heartbeat
from apps.telemetry.models import Agent, AgentKind, AgentState, EnrolmentToken, StaticTable, TelemetrySource
from apps.telemetry.selectors import (
    AgentFilter,
    EnrolmentFilter,
    SourceFilter,
    TableFilter,
    agent_state,
    agents_listed,
    enrolments_listed,
    sources_listed,
    tables_listed,
)
from apps.telemetry.sources import source_delete, source_upsert, table_delete, table_upsert

__all__ = ["AgentViewSet", "EnrolmentViewSet", "SourceViewSet", "TableViewSet"]


class EnrolmentSerializer(StrictSerializer):
    """An enrolment token without its secret."""

    id = serializers.IntegerField(read_only=True)
    cluster = serializers.CharField(source="cluster.slug", read_only=True)
    note = serializers.CharField(read_only=True)
    prefix = serializers.CharField(read_only=True)
    networks = serializers.ListField(child=serializers.CharField(), read_only=True)
    agent_name = serializers.CharField(read_only=True, help_text="The one agent it is for; empty: new names.")
    uses_left = serializers.IntegerField(read_only=True)
    used = serializers.IntegerField(read_only=True)
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    expires_at = serializers.DateTimeField(read_only=True)
    revoked_at = serializers.DateTimeField(read_only=True)
    last_used_at = serializers.DateTimeField(read_only=True)


class EnrolmentCreateSerializer(StrictSerializer):
    """Request for an enrolment token; `enrolment_create` checks it."""

    cluster = ClusterField()
    note = serializers.CharField(required=False, allow_blank=True, max_length=MAX_SHORT_NOTE)
    uses = serializers.IntegerField(default=1, help_text="How many agents may join with it.")
    expires_at = serializers.DateTimeField(required=False, allow_null=True, help_text="In 24 hours unless given.")
    networks = serializers.ListField(child=serializers.CharField(), default=list, help_text="CIDR; empty: anywhere.")
    agent_name = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=MAX_SLUG,
        help_text="The one agent that may join with it, also one that is known and has lost its secret.",
    )


class EnrolmentCreatedSerializer(EnrolmentSerializer):
    """A new enrolment token with its secret, shown this once."""

    secret = serializers.CharField(read_only=True)


class EnrolSerializer(StrictSerializer):
    """Request of an agent that enrols."""

    token = serializers.CharField(max_length=200, help_text="`sle_…`")
    name = serializers.CharField(max_length=MAX_SLUG)
    old_secret = serializers.CharField(
        max_length=200, allow_blank=True, default="", help_text="Of an agent that is known: its present `sla_…`."
    )
    host = serializers.CharField(max_length=MAX_HOST_NAME, allow_blank=True, default="")
    version = serializers.CharField(max_length=MAX_VERSION_TEXT, allow_blank=True, default="")
    cores = serializers.IntegerField(min_value=1, max_value=1024, default=1)
    capacity_cps = NumberField(required=False, allow_null=True, min_value=1, max_value=1e15)
    kind = serializers.ChoiceField([AgentKind.AGENT.value, AgentKind.RELAY.value], required=False)


class EnrolledSerializer(serializers.Serializer):
    """An enrolled agent: its id and its secret, shown this once."""

    agent = serializers.UUIDField()
    secret = serializers.CharField()
    cluster = serializers.CharField()
    heartbeat_s = serializers.FloatField()


class NodeNameField(serializers.CharField):
    """A node of the agent's cluster by its name."""

    def get_attribute(self, instance: Agent) -> str | None:
        return instance.node.name if instance.node else None


class ParentNameField(serializers.CharField):
    """A relay of the agent's cluster by its name."""

    def get_attribute(self, instance: Agent) -> str | None:
        return instance.parent.name if instance.parent else None


class AgentSerializer(StrictSerializer):
    """An agent: settings, last heartbeat, state and reasons."""

    id = serializers.UUIDField(read_only=True)
    cluster = serializers.CharField(source="cluster.slug", read_only=True)
    name = serializers.CharField(required=False)
    kind = serializers.ChoiceField(AgentKind.choices, required=False)
    node = NodeNameField(required=False, allow_null=True)
    parent = ParentNameField(required=False, allow_null=True, help_text="The relay that it sends to.")
    listen = serializers.CharField(
        required=False, allow_blank=True, help_text="host:port at which a relay takes frames."
    )
    budget_cores = NumberField(required=False, help_text="CPU that it may use, in cores.")
    source_options = serializers.JSONField(
        required=False, help_text="By source: options of its collector that differ at this agent."
    )
    enabled = serializers.BooleanField(required=False)
    state = serializers.SerializerMethodField()
    reasons = serializers.SerializerMethodField()
    notes = serializers.SerializerMethodField()
    host = serializers.CharField(read_only=True)
    version = serializers.CharField(read_only=True)
    cores = serializers.IntegerField(read_only=True)
    capacity_cps = serializers.FloatField(read_only=True)
    config_version = serializers.IntegerField(read_only=True)
    life = serializers.CharField(read_only=True)
    clock_offset_s = serializers.FloatField(read_only=True)
    enrolled_at = serializers.DateTimeField(read_only=True)
    last_seen = serializers.DateTimeField(read_only=True)
    heartbeat = serializers.JSONField(read_only=True)

    def get_state(self, agent: Agent) -> AgentState:
        return agent_state(agent).state

    def get_reasons(self, agent: Agent) -> list[str]:
        return list(agent_state(agent).reasons)

    def get_notes(self, agent: Agent) -> list[str]:
        return list(agent_state(agent).notes)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        cluster, problems = self.instance.cluster_id, {}
        for name, rows in (("node", Node.objects), ("parent", Agent.objects)):
            if not values.get(name):
                values.update({name: None} if name in values else {})
                continue
            value = values[name]
            values[name] = rows.filter(cluster=cluster, name=value).first()
            if values[name] is None:
                problems[name] = f"the cluster has none that is called {value!r}"
        if problems:
            raise serializers.ValidationError(problems)
        return values


class SourceSerializer(InClusterSerializer):
    """A stream of records that agents collect, or that a producer sends."""

    source_id = serializers.CharField()
    kind = serializers.CharField(max_length=MAX_KIND, help_text="Of the collector, or producer.")
    options = serializers.JSONField(required=False)
    time = serializers.CharField(max_length=MAX_SLUG, help_text="The column of event time.")
    columns = serializers.JSONField(help_text='Type by name: {"ts": "timestamp", "rtt_us": "int64"}.')
    lateness_s = NumberField(required=False, help_text="How much older than the newest a record may be.")
    reader_count = serializers.IntegerField(read_only=True, help_text="Live queries that read it.")
    updated_at = serializers.DateTimeField(read_only=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        if self.instance is not None:  # operators and arrivals know it by this name
            fields["source_id"] = serializers.CharField(read_only=True)
        return fields


class StaticTableSerializer(InClusterSerializer):
    """A small table that queries join their records with."""

    name = serializers.CharField()
    columns = serializers.JSONField(help_text='Type by name: {"ip": "string", "tor": "string"}.')
    order = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Columns in the order of a row's cells."
    )
    rows = serializers.JSONField(help_text="A list of rows, each a list of cells.")
    digest = serializers.CharField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        if self.instance is not None:
            fields["name"] = serializers.CharField(read_only=True)
        return fields


class EnrolmentViewSet(ReadViewSet):
    """Tokens that let agents join a cluster. The secret is in the answer that creates one, and nowhere else."""

    queryset = EnrolmentToken.objects.none()
    serializer_class = EnrolmentSerializer
    filterset_class = EnrolmentFilter
    ordering = "-created_at"
    secret_actions = frozenset({"create"})

    def get_queryset(self) -> Any:
        return enrolments_listed()

    @extend_schema(request=EnrolmentCreateSerializer, responses={201: EnrolmentCreatedSerializer})
    def create(self, request: Request) -> Response:
        """Create a token: its secret is shown in this answer only."""
        serializer = EnrolmentCreateSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        token, secret = enrolment_create(user=signed_in_user(request), **serializer.validated_data)
        headers = {"Location": f"/api/v1/enrolment-tokens/{token.pk}"}
        return Response({**EnrolmentSerializer(token).data, "secret": secret}, status=201, headers=headers)

    @extend_schema(request=None, responses=EnrolmentSerializer)
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str | None = None) -> Response:
        """End a token now. Agents that joined with it stay."""
        return Response(EnrolmentSerializer(enrolment_revoke(token=self.get_object())).data)


class AgentViewSet(mixins.DestroyModelMixin, ReadViewSet):
    """Agents. They join with an enrolment token, and then speak for themselves with a secret of their own."""

    body_sizes = {"enrol": SMALL, "heartbeat": HEARTBEAT}
    queryset = Agent.objects.none()
    serializer_class = AgentSerializer
    filterset_class = AgentFilter
    lookup_value_regex = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    ordering = "name"
    etag_actions = ApiMixin.etag_actions | {"config"}
    secret_actions = frozenset({"enrol"})

    def get_queryset(self) -> Any:
        return agents_listed()

    @extend_schema(request=AgentSerializer, responses=AgentSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change its name, budget, place, options or parent, or whether what it sends is taken."""
        agent = self.get_object()
        serializer = self.get_serializer(agent, data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        agent_update(agent=agent, **serializer.validated_data)
        return Response(show_row(agent, self.get_queryset(), self.get_serializer))

    def perform_destroy(self, instance: Agent) -> None:
        agent_delete(agent=instance)

    @extend_schema(request=EnrolSerializer, responses={201: EnrolledSerializer}, auth=[])
    @action(detail=False, methods=["post"], authentication_classes=[], permission_classes=[AllowAny])
    def enrol(self, request: Request) -> Response:
        """Join a cluster with an enrolment token. The answer holds the agent's secret, shown this once."""
        serializer = EnrolSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        joined = agent_enrol(address=request.META.get("REMOTE_ADDR", ""), **serializer.validated_data)
        body = {"agent": str(joined.agent.pk), "secret": joined.secret, "cluster": joined.agent.cluster.slug}
        return Response({**body, "heartbeat_s": HEARTBEAT_S}, status=201)

    @extend_schema(request=HeartbeatSerializer, responses=HeartbeatAnswer)
    @action(
        detail=True,
        methods=["post"],
        authentication_classes=[AgentAuthentication],
        permission_classes=[AgentPermission],
    )
    def heartbeat(self, request: Request, pk: str) -> Response:
        """An agent says how it is; the answer says which configuration is current and how far its frames have come."""
        serializer = HeartbeatSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        document = {**cast(dict[str, object], request.data), **serializer.validated_data}
        return Response(agent_heartbeat(agent_id=pk, report=document).to_dict())

    @extend_schema(responses=OpenApiTypes.OBJECT)
    @action(
        detail=True,
        methods=["get"],
        authentication_classes=[AgentAuthentication, TokenAuthentication, SessionAuthentication],
        permission_classes=[AgentOrScope],
    )
    def config(self, request: Request, pk: str) -> Response:
        """The agent's configuration. Its version grows when its content changes; `If-None-Match` saves the read."""
        return Response(agent_config(self.get_object()))


class SourceViewSet(ServiceViewSet):
    """Streams of records that agents collect or producers send. Queries read them by `source_id`."""

    queryset = TelemetrySource.objects.none()
    serializer_class = SourceSerializer
    filterset_class = SourceFilter
    ordering = "source_id"
    row_keyword = "source"
    service_create = staticmethod(partial(source_upsert, create=True))
    service_delete = staticmethod(source_delete)

    def get_queryset(self) -> Any:
        return sources_listed()

    @staticmethod
    def service_update(*, source: TelemetrySource, **values: Any) -> TelemetrySource:
        return source_upsert(cluster=source.cluster, source_id=source.source_id, **values)


class TableViewSet(ServiceViewSet):
    """Small tables that queries join their records with."""

    body_sizes = {"create": DOCUMENT, "partial_update": DOCUMENT}
    queryset = StaticTable.objects.none()
    serializer_class = StaticTableSerializer
    filterset_class = TableFilter
    ordering = "name"
    row_keyword = "table"
    service_create = staticmethod(partial(table_upsert, create=True))
    service_delete = staticmethod(table_delete)

    def get_queryset(self) -> Any:
        return tables_listed()

    @staticmethod
    def service_update(*, table: StaticTable, **values: Any) -> StaticTable:
        return table_upsert(cluster=table.cluster, name=table.name, **values)


router = Router()
router.register("agents", AgentViewSet, basename="agent")
router.register("enrolment-tokens", EnrolmentViewSet, basename="enrolment-token")
router.register("telemetry-sources", SourceViewSet, basename="telemetry-source")
router.register("static-tables", TableViewSet, basename="static-table")
urlpatterns = router.urls
