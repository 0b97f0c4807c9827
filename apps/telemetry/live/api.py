"""REST: queries on live telemetry."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.limits import MAX_VERSION_NUMBER
from apps.core.rest.api import ApiMixin
from apps.core.rest.lists import parse_whole_number
from apps.fleet.selectors import cluster_by_slug
from apps.queries.models import QueryVersion
from apps.queries.selectors import query_by_name, version_current, version_numbered
from apps.telemetry.filters import LiveFilter
from apps.telemetry.live.pipelines import executable_of
from apps.telemetry.live.serializers import (
    LiveSerializer,
    LiveStartSerializer,
    LiveUpdateSerializer,
    PipelineCheckSerializer,
)
from apps.telemetry.live.services import assignment_set, live_delete, live_start, live_stop, live_update
from apps.telemetry.models import LiveQuery
from apps.telemetry.selectors import agent_named, lives_listed

__all__ = ["LiveViewSet"]

_CHECK = [
    OpenApiParameter("cluster", str, required=True, description="Slug of the cluster."),
    OpenApiParameter("query", str, required=True, description="Name of the query."),
    OpenApiParameter("version", int, description="Number of a version; the one that runs, or the newest."),
]


class LiveViewSet(
    ApiMixin,
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet,
):
    """Queries that run on live telemetry."""

    queryset = LiveQuery.objects.none()
    serializer_class = LiveSerializer
    filterset_class = LiveFilter
    ordering = "pk"

    def get_queryset(self) -> Any:
        return lives_listed()

    @extend_schema(request=LiveStartSerializer, responses={201: LiveSerializer})
    def create(self, request: Request) -> Response:
        """Run an admitted query on what some agents collect. 422 names the operators that cannot be executed."""
        serializer = LiveStartSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        live = live_start(**serializer.validated_data)
        return Response(self._shown(live), status=201, headers={"Location": f"{request.path}/{live.pk}"})

    @extend_schema(request=LiveUpdateSerializer, responses=LiveSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change settings of load factors, weights, agents, or how long late records and agents are waited for."""
        live = self.get_object()
        serializer = LiveUpdateSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = dict(serializer.validated_data)
        with transaction.atomic():
            for part in values.pop("assignments", ()):
                agent = agent_named(live.query.cluster, part.pop("agent"))
                assignment_set(live=live, agent=agent, **part)
            if values:
                live_update(live=live, **values)
        return Response(self._shown(live))

    def perform_destroy(self, instance: LiveQuery) -> None:
        live_delete(live=instance)

    @extend_schema(request=None, responses=LiveSerializer)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: str | None = None) -> Response:
        """End the live run. The query stays admitted; what agents still hold of the run is taken in."""
        return Response(self._shown(live_stop(live=self.get_object())))

    @extend_schema(parameters=_CHECK, responses=PipelineCheckSerializer, filters=False)
    @action(detail=False, methods=["get"], pagination_class=None, filterset_class=None)
    def check(self, request: Request) -> Response:
        """Whether a query could run on live telemetry, and which of its operators may run at a source, or why not."""
        parameters = request.query_params
        query = query_by_name(cluster_by_slug(parameters.get("cluster", "")), parameters.get("query", ""))
        number = parameters.get("version")
        version = (
            version_current(query)
            if number is None
            else version_numbered(query, parse_whole_number(number, "version", 1, MAX_VERSION_NUMBER))
        )
        return Response(_checked(version))

    def _shown(self, live: LiveQuery) -> Any:
        return LiveSerializer(self.get_queryset().get(pk=live.pk)).data


def _checked(version: QueryVersion) -> dict[str, Any]:
    executable = executable_of(version)
    pipeline = executable.pipeline
    operators = []
    if pipeline is not None:
        for operator, rule in zip(pipeline.operators, pipeline.rules, strict=True):
            says = {"id": operator.id, "kind": operator.kind, "allowed": rule.allowed}
            operators.append({**says, "rule": rule.number, "reason": rule.reason})
    return {
        "executable": not executable.faults,
        "faults": [{"path": fault.path, "message": fault.message} for fault in executable.faults],
        "source": executable.source.source_id if executable.source else None,
        "joined": executable.joined.source_id if executable.joined else None,
        "source_operators": pipeline.source_operators if pipeline else None,
        "operators": operators,
    }
