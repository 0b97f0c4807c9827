"""REST: resource plans."""

from __future__ import annotations

from typing import Any

from drf_spectacular.drainage import set_override
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import read_body
from apps.fleet.serializers import ClusterField
from apps.jobs.api import job_response
from apps.jobs.serializers import JobSerializer
from apps.planning.choices import PlanChoice, PlanEngine
from apps.planning.filters import ResourcePlanFilter
from apps.planning.models import ResourcePlan
from apps.planning.resource_plans.answers import ANSWERS
from apps.planning.resource_plans.questions import PLAN_QUESTIONS
from apps.planning.resource_plans.selectors import (
    resource_plan_by_id,
    resource_plans_visible,
    spark_query_by_number,
)
from apps.planning.resource_plans.services import (
    resource_plan_apply,
    resource_plan_delete,
    resource_plan_request,
)
from apps.queries.selectors import query_by_name
from engine.records import record_fields

__all__ = [
    "ResourcePlanCreateSerializer",
    "ResourcePlanDetailSerializer",
    "ResourcePlanSerializer",
    "ResourcePlanViewSet",
]


class _Input(serializers.JSONField):
    """An input that the question's own record checks, so that every fault of a question is told at once."""


def _inputs() -> dict[str, serializers.Field]:
    """Inputs of both questions that people know by a label, and the parts that are objects."""
    asked = [record_fields(record) for record in PLAN_QUESTIONS.values()]
    made: dict[str, serializers.Field] = {}
    for name, field in {name: field for fields in asked for name, field in fields.items()}.items():
        words = field.words
        if words.label or field.record:
            owners = [engine for engine, fields in zip(PLAN_QUESTIONS, asked, strict=True) if name in fields]
            alone = f"With engine {owners[0]}" if len(owners) == 1 else ""
            label = f"{words.label}, {words.unit}" if words.unit and words.scale == 1 else words.label
            told = ". ".join(part for part in (alone, label, words.help.rstrip(".")) if part)
            made[name] = _Input(required=False, help_text=f"{told}.")
            described = field.kind.schema() if field.kind else {"type": "object" if field.record else "boolean"}
            set_override(made[name], "field", described)
    return made


class ResourcePlanCreateSerializer(StrictSerializer):
    """Request for a resource plan. What is left out comes from the source of the profile, or is the default."""

    cluster = ClusterField()
    engine = serializers.ChoiceField(choices=PlanEngine.choices)
    query = serializers.CharField(required=False, help_text="Name of a query: its statistics give rate and profile.")
    spark_query = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**63 - 1,
        help_text="Number of a Spark query: its newest fit gives the profile.",
    )
    pool = serializers.CharField(required=False, help_text="Nodes of this pool; default that of most nodes.")
    plan = serializers.UUIDField(required=False, help_text="A former plan whose inputs are taken over.")

    def get_fields(self) -> dict[str, serializers.Field]:
        return super().get_fields() | _inputs()


class ResourcePlanApplySerializer(StrictSerializer):
    """Which settings of the answer are taken."""

    choice = serializers.ChoiceField(choices=PlanChoice.choices, required=False, help_text="Default throughput.")


class ResourcePlanSerializer(serializers.ModelSerializer):
    """A resource plan in a list: its question, and its answer in a few numbers."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name", default=None)
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    applied_by = serializers.CharField(source="applied_by.username", default=None)
    basis = serializers.JSONField(help_text="Version, nodes and fit that inputs were taken from.")
    question = serializers.JSONField(help_text="Every input, defaults filled in.")
    origins = serializers.JSONField(help_text="{path: measured, predicted, assumed or default}.")
    facts = serializers.JSONField(help_text="feasible, nodes or executors, max_rate and others; empty while asked.")
    answered_at = serializers.DateTimeField(required=False, allow_null=True)

    class Meta:
        model = ResourcePlan
        fields = ["id", "cluster", "engine", "query", "spark_query", "basis", "question", "origins", "state", "job"]
        fields += ["facts", "model_version", "requested_by", "created_at", "answered_at", "duration_s"]
        fields += ["applied_choice", "applied_at", "applied_by"]


class ResourcePlanDetailSerializer(ResourcePlanSerializer):
    """A resource plan with its answer."""

    result = StoredRecordField(
        *ANSWERS.values(), read_only=True, allow_null=True, help_text="The engine's answer; null while there is none."
    )

    class Meta(ResourcePlanSerializer.Meta):
        fields = [*ResourcePlanSerializer.Meta.fields, "result"]


class ResourcePlanViewSet(
    ApiMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, mixins.DestroyModelMixin, viewsets.GenericViewSet
):
    """Nodes or executors, parallelism and batch intervals for a rate and a latency constraint.

    POST with engine `microbatch` answers at once (201); `stage` is a job: 202, or the answer with `Prefer: wait=N`.
    A constraint that nothing keeps is an answer too: `feasible` is false, with the limit and what would be feasible.
    """

    queryset = ResourcePlan.objects.none()
    serializer_class = ResourcePlanSerializer
    filterset_class = ResourcePlanFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE, "DELETE": Scope.OPERATE}

    def get_queryset(self) -> Any:
        return resource_plans_visible()

    def get_serializer_class(self) -> type:
        return ResourcePlanDetailSerializer if self.action == "retrieve" else ResourcePlanSerializer

    @extend_schema(
        request=ResourcePlanCreateSerializer,
        responses={200: ResourcePlanDetailSerializer, 201: ResourcePlanDetailSerializer, 202: JobSerializer},
    )
    def create(self, request: Request) -> Response:
        """Plan nodes or executors. Micro-batches are answered at once (201), a stage by a job (202, or 200 when waited
        for)."""
        asked = read_body(ResourcePlanCreateSerializer, request)
        row, job = resource_plan_request(user=signed_in_user(request), **_named(asked))
        address = f"/api/v1/resource-plans/{row.pk}"
        if job is None:
            return Response(_shown(row), status=201, headers={"Location": address})
        return job_response(request, job, lambda _: _shown(row), address=address)

    @extend_schema(request=ResourcePlanApplySerializer, responses=ResourcePlanDetailSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str | None = None) -> Response:
        """Take the answer's settings for its Spark query: Sluice's own is set, of another it is noted."""
        asked = read_body(ResourcePlanApplySerializer, request)
        return Response(_shown(resource_plan_apply(row=self.get_object(), user=signed_in_user(request), **asked)))

    def perform_destroy(self, instance: ResourcePlan) -> None:
        resource_plan_delete(row=instance)


def _named(asked: dict[str, Any]) -> dict[str, Any]:
    """The request with rows in place of their names and numbers."""
    cluster = asked["cluster"]
    if "query" in asked:
        asked["query"] = query_by_name(cluster, asked["query"])
    if "spark_query" in asked:
        asked["spark_query"] = spark_query_by_number(cluster, asked["spark_query"])
    if "plan" in asked:
        asked["plan"] = resource_plan_by_id(cluster, asked["plan"])
    return asked


def _shown(row: ResourcePlan) -> Any:
    return ResourcePlanDetailSerializer(resource_plans_visible().get(pk=row.pk)).data
