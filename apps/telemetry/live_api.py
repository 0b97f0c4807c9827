"""REST: queries on live telemetry."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.core.limits import MAX_VERSION_NUMBER
from apps.core.rest.api import ReadViewSet, Router, StrictSerializer
from apps.core.rest.lists import parse_whole_number
from apps.core.rest.serializers import show_row
from apps.fleet.selectors import cluster_by_slug
from apps.fleet.serializers import ClusterField, NumberField
from apps.queries.models import QueryVersion
from apps.queries.selectors import query_by_name, version_current, version_numbered
from apps.telemetry.live_services import assignment_set, live_delete, live_start, live_stop, live_update
from apps.telemetry.models import LiveQuery, LiveState
from apps.telemetry.pipelines import executable_of
from apps.telemetry.selectors import LiveFilter, agent_named, lives_listed

__all__ = ["LiveViewSet"]

_SETTINGS = (
    'How load factors are found: {} leaves them to the agent, {"method": "fixed", "load_factors": [1, 0.5]} sets them '
    "by hand, 0 to 1 for each operator that may run at a source."
)


_SHED = (
    "Whether agents under overload lose records that are late wherever they are processed; unless given they are sent "
    "to the stream processor."
)


class PartSerializer(StrictSerializer):
    """An agent's assignment in a live query; fields left out stay as they are."""

    agent = serializers.CharField(help_text="Its name.")
    settings = serializers.JSONField(required=False, help_text=_SETTINGS)
    weight = NumberField(required=False, help_text="Share of the agent's budget beside its other queries.")
    enabled = serializers.BooleanField(required=False)


class LiveSerializer(StrictSerializer):
    """A query on live telemetry."""

    id = serializers.IntegerField(read_only=True)
    cluster = serializers.CharField(source="query.cluster.slug", read_only=True)
    query = serializers.CharField(source="query.name", read_only=True)
    version = serializers.IntegerField(source="version.number", read_only=True)
    source = serializers.CharField(source="source.source_id", read_only=True)
    joined = serializers.CharField(
        source="joined.source_id", read_only=True, allow_null=True, help_text="The other stream, where it joins one."
    )
    plan = serializers.CharField(read_only=True)
    state = serializers.ChoiceField(LiveState.choices, read_only=True)
    fault = serializers.CharField(read_only=True)
    source_operators = serializers.IntegerField(read_only=True)
    operators = serializers.SerializerMethodField(help_text="Ids in the order of the data.")
    assignments = serializers.SerializerMethodField()
    retain_s = NumberField(required=False)
    idle_after_s = NumberField(required=False)
    shed_late = serializers.BooleanField(required=False)
    started_at = serializers.DateTimeField(read_only=True)
    stopped_at = serializers.DateTimeField(read_only=True)

    def get_operators(self, live: LiveQuery) -> list[str]:
        return [row["id"] for row in live.pipeline["operators"]]

    def get_assignments(self, live: LiveQuery) -> list[dict[str, Any]]:
        return [
            {
                "agent": part.agent.name,
                "agent_id": str(part.agent_id),
                "settings": part.settings,
                "weight": part.weight,
                "enabled": part.enabled,
            }
            for part in live.assignments.all()
        ]


class LiveStartSerializer(StrictSerializer):
    """Request to run a query on agents."""

    cluster = ClusterField()
    query = serializers.CharField()
    agents = serializers.ListField(child=serializers.CharField(), max_length=10_000, help_text="Their names.")
    settings = serializers.JSONField(required=False, help_text=f"At all of these agents. {_SETTINGS}")
    retain_s = NumberField(required=False)
    idle_after_s = NumberField(required=False)
    shed_late = serializers.BooleanField(required=False, help_text=_SHED)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        cluster = values.pop("cluster")
        values["query"] = query_by_name(cluster, values["query"])
        values["agents"] = [agent_named(cluster, name) for name in dict.fromkeys(values["agents"])]
        return values


class LiveUpdateSerializer(StrictSerializer):
    """Change of a running live query."""

    retain_s = NumberField(required=False)
    idle_after_s = NumberField(required=False)
    shed_late = serializers.BooleanField(required=False, help_text=_SHED)
    assignments = PartSerializer(many=True, required=False)


class PipelineCheckSerializer(serializers.Serializer):
    """Whether a query's version can be executed, and where each operator may run."""

    executable = serializers.BooleanField()
    faults = serializers.ListField(child=serializers.DictField())
    source = serializers.CharField(allow_null=True)
    joined = serializers.CharField(allow_null=True)
    source_operators = serializers.IntegerField(allow_null=True)
    operators = serializers.ListField(child=serializers.DictField())


_CHECK = [
    OpenApiParameter("cluster", str, required=True, description="Slug of the cluster."),
    OpenApiParameter("query", str, required=True, description="Name of the query."),
    OpenApiParameter("version", int, description="Number of a version; the one that runs, or the newest."),
]


class LiveViewSet(mixins.DestroyModelMixin, ReadViewSet):
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
        return show_row(live, self.get_queryset(), LiveSerializer)


def _checked(version: QueryVersion) -> dict[str, object]:
    executable = executable_of(version)
    pipeline = executable.pipeline
    operators = []
    if pipeline is not None:
        for operator, rule in zip(pipeline.operators, pipeline.rules, strict=True):
            document = {"id": operator.id, "kind": operator.kind, "allowed": rule.allowed}
            operators.append({**document, "rule": rule.number, "reason": rule.reason})
    return {
        "executable": not executable.faults,
        "faults": [{"path": fault.path, "message": fault.message} for fault in executable.faults],
        "source": executable.source.source_id if executable.source else None,
        "joined": executable.joined.source_id if executable.joined else None,
        "source_operators": pipeline.source_operators if pipeline else None,
        "operators": operators,
    }


router = Router()
router.register("live-queries", LiveViewSet, basename="live-query")
urlpatterns = router.urls
