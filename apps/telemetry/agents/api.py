"""REST: agents, enrolment tokens, sources and static tables."""

from __future__ import annotations

from typing import Any, cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.authentication import TokenAuthentication
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT, HEARTBEAT, SMALL
from apps.core.rest.api import ApiMixin
from apps.core.viewsets import ServiceViewSet
from apps.telemetry.agents.directory import AgentAuthentication, AgentOrScope, AgentPermission
from apps.telemetry.agents.heartbeat_serializers import HeartbeatAnswerSerializer, HeartbeatSerializer
from apps.telemetry.agents.heartbeats import HEARTBEAT_S, agent_heartbeat
from apps.telemetry.agents.serializers import (
    AgentSerializer,
    EnrolledSerializer,
    EnrolmentCreatedSerializer,
    EnrolmentCreateSerializer,
    EnrolmentSerializer,
    EnrolSerializer,
    SourceSerializer,
    StaticTableSerializer,
)
from apps.telemetry.agents.services import agent_delete, agent_enrol, agent_update, enrolment_create, enrolment_revoke
from apps.telemetry.configs import agent_config
from apps.telemetry.filters import AgentFilter, EnrolmentFilter, SourceFilter, TableFilter
from apps.telemetry.live.sources import source_delete, source_upsert, table_delete, table_upsert
from apps.telemetry.models import Agent, EnrolmentToken, StaticTable, TelemetrySource
from apps.telemetry.selectors import agents_listed, enrolments_listed, sources_listed, tables_listed

__all__ = ["AgentViewSet", "EnrolmentViewSet", "SourceViewSet", "TableViewSet"]


class EnrolmentViewSet(ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
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


class AgentViewSet(
    ApiMixin,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet,
):
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
        return Response(self.get_serializer(self.get_queryset().get(pk=agent.pk)).data)

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

    @extend_schema(request=HeartbeatSerializer, responses=HeartbeatAnswerSerializer)
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
        says = {**cast(dict[str, Any], request.data), **serializer.validated_data}
        return Response(agent_heartbeat(agent_id=pk, says=says))

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
    service_delete = staticmethod(source_delete)

    def get_queryset(self) -> Any:
        return sources_listed()

    @staticmethod
    def service_update(*, source: TelemetrySource, **values: Any) -> TelemetrySource:
        return source_upsert(cluster=source.cluster, source_id=source.source_id, **values)

    def create_row(self, values: dict[str, Any]) -> TelemetrySource:
        return source_upsert(create=True, **values)


class TableViewSet(ServiceViewSet):
    """Small tables that queries join their records with."""

    body_sizes = {"create": DOCUMENT, "partial_update": DOCUMENT}
    queryset = StaticTable.objects.none()
    serializer_class = StaticTableSerializer
    filterset_class = TableFilter
    ordering = "name"
    row_keyword = "table"
    service_delete = staticmethod(table_delete)

    def get_queryset(self) -> Any:
        return tables_listed()

    @staticmethod
    def service_update(*, table: StaticTable, **values: Any) -> StaticTable:
        return table_upsert(cluster=table.cluster, name=table.name, **values)

    def create_row(self, values: dict[str, Any]) -> StaticTable:
        return table_upsert(create=True, **values)
