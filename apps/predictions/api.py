"""REST: predictions of queries that never ran, observed executions, model versions and fine-tunings."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Impossible
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, ReadViewSet, Router
from apps.core.rest.serializers import read_body, show_row
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.viewsets import RunViewSet, describe_create
from apps.predictions.executions import ObservedCosts, execution_report
from apps.predictions.fine_tunings import FINE_TUNING
from apps.predictions.models import FineTuning, ModelVersion, ObservedExecution, Prediction
from apps.predictions.selectors import (
    ExecutionFilter,
    FineTuningFilter,
    ModelFilter,
    PredictionFilter,
    cluster_accuracy,
    executions_visible,
    models_visible,
    predictions_visible,
    query_basis,
)
from apps.predictions.serializers import (
    ExecutionCreateSerializer,
    ExecutionSerializer,
    FineTuningCreateSerializer,
    FineTuningSerializer,
    ModelDetailSerializer,
    ModelSerializer,
    ModelUseSerializer,
    PredictionCreateSerializer,
    PredictionDetailSerializer,
    PredictionSerializer,
)
from apps.predictions.services import model_put_in_force, prediction_request
from apps.queries.models import Query
from apps.queries.selectors import query_by_name, version_current, version_numbered, versions_listed

__all__ = [
    "ExecutionViewSet",
    "FineTuningViewSet",
    "ModelVersionViewSet",
    "PredictionAccuracyView",
    "PredictionViewSet",
    "QueryBasisView",
]


class PredictionViewSet(ReadViewSet):
    """Predicted costs of first placements, newest first. POST predicts a registered query at once."""

    body_sizes = {"create": DOCUMENT}
    queryset = Prediction.objects.none()
    filterset_class = PredictionFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    def get_queryset(self) -> Any:
        rows = predictions_visible()
        return rows.defer(None).defer("trace", "model__weights") if self.action == "retrieve" else rows

    def get_serializer_class(self) -> type:
        if self.action == "create":
            return PredictionCreateSerializer
        return PredictionDetailSerializer if self.action == "retrieve" else PredictionSerializer

    @extend_schema(request=PredictionCreateSerializer, responses={201: PredictionDetailSerializer})
    def create(self, request: Request) -> Response:
        """Predict the costs of a registered query at its first placement."""
        asked = read_body(PredictionCreateSerializer, request)
        query = query_by_name(asked.pop("cluster"), asked.pop("query"))
        number = asked.pop("version", None)
        version = version_numbered(query, number) if number else versions_listed(query).first()
        if version is None:
            raise Impossible(f"Query {query.name} has no version.")
        row = prediction_request(version=version, user=signed_in_user(request), **asked)
        headers = {"Location": f"{request.path}/{row.pk}"}
        return Response(PredictionDetailSerializer(row).data, status=201, headers=headers)


class ExecutionViewSet(ReadViewSet):
    """Executions beside their predictions, newest first. POST tells of a running query, by its stream processor."""

    body_sizes = {"create": DOCUMENT}
    queryset = ObservedExecution.objects.none()
    filterset_class = ExecutionFilter
    scopes = {"GET": Scope.READ, "POST": Scope.INGEST}

    def get_queryset(self) -> Any:
        return executions_visible()

    def get_serializer_class(self) -> type:
        return ExecutionCreateSerializer if self.action == "create" else ExecutionSerializer

    @extend_schema(request=ExecutionCreateSerializer, responses={201: ExecutionSerializer})
    def create(self, request: Request) -> Response:
        """Report the costs of a running query that another stream processor observed."""
        told = read_body(ExecutionCreateSerializer, request)
        query = query_by_name(told.pop("cluster"), told.pop("query"))
        when = {name: told.pop(name) for name in ("ends_at", "duration_s") if name in told}
        row = execution_report(version=version_current(query), costs=ObservedCosts(**told), **when)
        shown = show_row(row, executions_visible(), ExecutionSerializer)
        return Response(shown, status=201, headers={"Location": f"{request.path}/{row.pk}"})


class ModelVersionViewSet(ReadViewSet):
    """Versions of the model: shipped ones, and those fine-tuned on the executions of a cluster."""

    queryset = ModelVersion.objects.none()
    filterset_class = ModelFilter
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}

    def get_queryset(self) -> Any:
        return models_visible()

    def get_serializer_class(self) -> type:
        return ModelDetailSerializer if self.action == "retrieve" else ModelSerializer

    @extend_schema(request=ModelUseSerializer, responses=ModelDetailSerializer)
    @action(detail=True, methods=["post"], url_path="put-in-force")
    def put_in_force(self, request: Request, pk: str) -> Response:
        """Let the version predict for a cluster from now on: a roll-back, or the return to a later one."""
        asked = read_body(ModelUseSerializer, request)
        version = model_put_in_force(cluster=asked["cluster"], version=self.get_object(), user=signed_in_user(request))
        return Response(show_row(version, models_visible(), ModelDetailSerializer))


@describe_create("Fine-tune the model of a cluster. 202 with a job, or the answer with `Prefer: wait=N`.")
class FineTuningViewSet(RunViewSet):
    """Fine-tunings, newest first. POST asks for one: 202 with a job, or the answer with `Prefer: wait=N`."""

    kind = FINE_TUNING
    queryset = FineTuning.objects.none()
    filterset_class = FineTuningFilter
    serializer_class = detail_class = FineTuningSerializer
    question_class = FineTuningCreateSerializer


_CLUSTER = OpenApiParameter("cluster", str, required=True, description="Slug of the cluster.")


class PredictionAccuracyView(ApiMixin, APIView):
    """Errors of predictions: on simulated traces, and of executions predicted before they were observed."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(parameters=[_CLUSTER], responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        return Response(cluster_accuracy(cluster_by_slug(request.query_params.get("cluster", ""))))


class QueryBasisView(ApiMixin, APIView):
    """Basis of a query's latency now: a prediction, or Mace since its costs are known."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        query = row_visible(Query.objects.select_related("cluster", "running_version"), pk=pk)
        version = version_current(query)
        return Response({"query": query.name, "version": version.number, **query_basis(version).as_dict()})


router = Router()
router.register("predictions", PredictionViewSet, basename="prediction")
router.register("observed-executions", ExecutionViewSet, basename="observed-execution")
router.register("model-versions", ModelVersionViewSet, basename="model-version")
router.register("fine-tunings", FineTuningViewSet, basename="fine-tuning")

urlpatterns = [
    path("predictions/accuracy", PredictionAccuracyView.as_view(), name="prediction-accuracy"),
    path("queries/<int:pk>/basis", QueryBasisView.as_view(), name="query-basis"),
    *router.urls,
]
