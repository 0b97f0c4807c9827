"""REST: estimates of clusters, of queries and of documents, their accuracy, and states of objectives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.models import Count, Q
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Missing
from apps.core.reach import AskedOn, caller_now, row_visible
from apps.core.rest.api import ApiMixin, ReadViewSet, Router, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import read_body, show_row
from apps.estimates.accuracy import accuracy_report
from apps.estimates.choices import DecidedBy, RunOrigin
from apps.estimates.models import (
    AccuracyObservation,
    EstimateRun,
    IntervalCalibration,
    ObjectiveStatus,
    UnscoredInterval,
)
from apps.estimates.selectors import (
    AccuracyFilter,
    CalibrationFilter,
    EstimateRunFilter,
    ObjectiveStatusFilter,
    UnscoredFilter,
    objective_statuses,
    query_estimate_latest,
    run_staleness,
)
from apps.estimates.serializers import (
    DocumentEstimateSerializer,
    EstimateCreateSerializer,
    EstimateRunDetailSerializer,
    EstimateRunSerializer,
    ObjectiveStatusSerializer,
    QueryLatestSerializer,
)
from apps.estimates.services import DOCUMENT_ESTIMATE, ESTIMATE
from apps.estimates.simulations import SimulationOutcome, simulation_request
from apps.estimates.summary import (
    KindAccuracy,
    OriginAccuracy,
    accuracy_listed,
    accuracy_origins,
    accuracy_summary,
    calibrations_listed,
    measured_alone,
    unscored_listed,
)
from apps.fleet.serializers import ClusterField, NumberField
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.viewsets import AnswerViewSet, describe_create
from apps.queries.choices import ObjectiveState
from apps.queries.models import Query
from apps.queries.selectors import query_by_name
from engine.measurement.trust import JudgedPrediction

__all__ = [
    "AccuracyViewSet",
    "CalibrationViewSet",
    "DocumentEstimateViewSet",
    "EstimateViewSet",
    "ObjectiveViewSet",
    "QueryEstimateView",
    "SimulationView",
    "UnscoredViewSet",
]


@describe_create("Estimate a cluster, or a document. 202 with a job, or the result with `Prefer: wait=N`.")
class EstimateViewSet(AnswerViewSet):
    """Estimates of clusters, newest first. POST asks for one: 202 with a job, or the result with `Prefer: wait=N`."""

    kind = ESTIMATE
    body_sizes = {"create": DOCUMENT}
    queryset = EstimateRun.objects.none()
    filterset_class = EstimateRunFilter
    serializer_class, detail_class = EstimateRunSerializer, EstimateRunDetailSerializer
    question_class = EstimateCreateSerializer

    def create(self, request: Request) -> Response:
        asked, user = self.asked(request), signed_in_user(request)
        if "document" not in asked:
            return self.answer(request, *ESTIMATE.request(cluster=asked["cluster"], user=user))
        caller_now().check_asked_on(AskedOn.OWN)  # a document is of no cluster, and its estimate whoever's asked for it
        run, job = DOCUMENT_ESTIMATE.request(user=user, **asked)
        rows = DOCUMENT_ESTIMATE.visible()
        return job_response(request, job, lambda _: show_row(run, rows, DocumentEstimateSerializer))


class DocumentEstimateViewSet(ApiMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """The estimate of a document that was posted to `estimates`, kept for seven days."""

    asked_on = AskedOn.NARROWED

    kind = DOCUMENT_ESTIMATE
    queryset = DOCUMENT_ESTIMATE.visible()
    serializer_class = DocumentEstimateSerializer
    scopes = {"GET": Scope.READ}


class ObjectiveSummarySerializer(serializers.Serializer):
    """Objectives by state; `measured` are those that a measurement decided."""

    breached = serializers.IntegerField()
    at_risk = serializers.IntegerField()
    holds = serializers.IntegerField()
    unknown = serializers.IntegerField()
    none = serializers.IntegerField()
    measured = serializers.IntegerField()


class ObjectiveViewSet(ReadViewSet):
    """States of the objectives of running queries, by measurement and estimate: least headroom first."""

    queryset = ObjectiveStatus.objects.none()
    serializer_class = ObjectiveStatusSerializer
    filterset_class = ObjectiveStatusFilter
    ordering = "headroom_share"
    list_actions = ("list", "summary")
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return objective_statuses()

    @extend_schema(responses=ObjectiveSummarySerializer, filters=True)
    @action(detail=False, methods=["get"], pagination_class=None)
    def summary(self, request: Request) -> Response:
        """Count objectives by state, and those that a measurement decided."""
        rows = self.filter_queryset(self.get_queryset()).order_by()
        counts = rows.aggregate(
            measured=Count("pk", filter=Q(decided_by=DecidedBy.MEASUREMENT)),
            **{state.value: Count("pk", filter=Q(state=state)) for state in ObjectiveState},
        )
        return Response(ObjectiveSummarySerializer(counts).data)


class QueryEstimateView(APIView):
    """A query's newest estimate."""

    asked_on = AskedOn.NARROWED

    scopes = {"GET": Scope.READ}

    @extend_schema(
        responses=QueryLatestSerializer,
        parameters=[OpenApiParameter("series", OpenApiTypes.BOOL, description="1: with the curves of the chart.")],
    )
    def get(self, request: Request, pk: int) -> Response:
        query = row_visible(Query.objects.select_related("cluster"), pk=pk)
        row = query_estimate_latest(query)
        if row is None:
            raise Missing(f"Query {query.name} has no estimate: it does not run, or none was computed yet.")
        with_series = request.query_params.get("series", "").lower() in {"1", "true", "yes"}
        context = {"series": with_series, "staleness": run_staleness(row.run)}
        return Response(QueryLatestSerializer(row, context=context).data)


class AccuracySerializer(serializers.ModelSerializer):
    """One interval: the estimate in force, and the latency measured in it."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name")
    error_s = serializers.FloatField(help_text="Expected less observed.")
    parts = serializers.DictField(child=serializers.FloatField(), allow_null=True)
    kinds = serializers.DictField(child=serializers.ListField(child=serializers.FloatField()))

    class Meta:
        model = AccuracyObservation
        fields = ["id", "cluster", "query", "query_id", "version", "estimate", "estimated_at", "starts_at", "ends_at"]
        fields += ["origin", "seed", "statistic", "windowed", "evidence", "expected_s", "low_s", "high_s"]
        fields += ["stated_low_s", "stated_high_s", "lower_factor", "upper_factor", "observed_s", "error_s", "covered"]
        fields += ["disturbed", "set_aside", "windows", "left_out", "parts", "kinds"]


class AccuracyCreateSerializer(StrictSerializer):
    """A run of a query in another engine: the latency measured there, to score the estimate that was in force."""

    cluster = ClusterField()
    query = serializers.CharField()
    origin = serializers.ChoiceField(RunOrigin.choices, help_text="Of the engine that runs it: not live.")
    statistic = serializers.CharField(help_text="Of the query's objective: worst, mean or q0.99.")
    latency_s = NumberField(help_text="That statistic of the latencies measured.")
    ends_at = serializers.DateTimeField(required=False, help_text="End of the stretch; now unless given.")
    duration_s = NumberField(required=False, help_text="Length of the stretch; 30 s unless given.")
    windows = serializers.IntegerField(required=False, help_text="Results measured; 1 unless given.")
    version = serializers.IntegerField(required=False, help_text="Number of the version that ran, if known.")
    work = serializers.DictField(
        child=NumberField(), required=False, help_text="Work measured, cycles per second: {operator: number}."
    )


class CalibrationSerializer(serializers.ModelSerializer):
    """Factors of the intervals of a group of scored runs: a query's, those of a kind, or of an origin."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name", default=None, allow_null=True)
    group = serializers.CharField(help_text="query, kind or origin.")

    class Meta:
        model = IntervalCalibration
        fields = ["id", "cluster", "group", "query", "origin", "statistic", "windowed", "evidence", "lower", "upper"]
        fields += ["scope", "runs", "own_runs", "left_out", "coverage_before", "coverage_after", "width_before"]
        fields += ["width_after", "bias", "trust", "held", "judged", "first_at", "last_at", "since", "until"]
        fields += ["updated_at"]


class _QueryAccuracySerializer(serializers.Serializer):
    query = serializers.CharField(source="query.name")
    origin = serializers.ChoiceField(RunOrigin.choices)
    judged = StoredRecordField(JudgedPrediction)
    calibration = CalibrationSerializer(allow_null=True, help_text="Factors of its next interval, and its trust.")


class AccuracySummarySerializer(serializers.Serializer):
    """Figures of the newest observations that the filters leave, at most 5,000; `more` were left out as older.

    Simulated runs count in `origins` alone, unless `origin=simulated` was asked for.
    """

    origins = serializers.ListField(child=StoredRecordField(OriginAccuracy), help_text="Every origin apart.")
    judged = StoredRecordField(JudgedPrediction)
    more = serializers.IntegerField()
    disturbed = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Intervals left out because the stream processor was warming, away or catching_up.",
    )
    set_aside = serializers.IntegerField(help_text="Intervals that a person set aside, with the reason of a receipt.")
    without_interval = serializers.IntegerField(help_text="Observations that count for bias and error, not coverage.")
    windows_left_out = serializers.IntegerField(help_text="Windows of scored intervals that do not count.")
    queries = _QueryAccuracySerializer(many=True)
    kinds = serializers.ListField(
        child=StoredRecordField(KindAccuracy), help_text="Work by kind of operator, cycles per second."
    )
    calibrations = CalibrationSerializer(many=True, help_text="In force, of kinds and origins.")


class AccuracyViewSet(ReadViewSet):
    """Estimates of running queries against the latency that was measured, newest first.

    Live queries have one row for every 30 seconds; POST scores a query that another engine runs.
    """

    body_sizes = {"create": DOCUMENT}
    queryset = AccuracyObservation.objects.none()
    serializer_class = AccuracySerializer
    filterset_class = AccuracyFilter
    ordering = "-starts_at"
    list_actions = ("list", "summary")
    scopes = {"GET": Scope.READ, "POST": Scope.INGEST}

    def get_queryset(self) -> Any:
        return accuracy_listed()

    @extend_schema(request=AccuracyCreateSerializer, responses={201: AccuracySerializer})
    def create(self, request: Request) -> Response:
        told = read_body(AccuracyCreateSerializer, request)
        query = query_by_name(told.pop("cluster"), told.pop("query"))
        row = accuracy_report(query=query, **told)
        shown = show_row(row, accuracy_listed(), AccuracySerializer)
        return Response(shown, status=201, headers={"Location": f"{request.path}/{row.pk}"})

    @extend_schema(responses=AccuracySummarySerializer, filters=True)
    @action(detail=False, methods=["get"], pagination_class=None)
    def summary(self, request: Request) -> Response:
        """Coverage, bias and calibrations: of each origin, together, by query, by kind of operator."""
        rows = self.filter_queryset(self.get_queryset())
        chosen = rows if "origin" in request.query_params else measured_alone(rows)
        summary = replace(accuracy_summary(chosen), origins=accuracy_origins(rows))
        return Response(AccuracySummarySerializer(summary).data)


class SimulationCreateSerializer(StrictSerializer):
    """A cluster whose running queries are to be simulated."""

    cluster = ClusterField()


class SimulationView(ApiMixin, APIView):
    """Simulations of what runs in a cluster, to score its estimate as runs of the origin `simulated`."""

    asked_on = AskedOn.NARROWED
    scopes = {"POST": Scope.OPERATE}

    @extend_schema(request=SimulationCreateSerializer, responses={200: SimulationOutcome, 202: JobSerializer})
    def post(self, request: Request) -> Response:
        """Simulate a cluster over several seeds. 202 with a job, or the result with `Prefer: wait=N`."""
        asked = read_body(SimulationCreateSerializer, request)
        job = simulation_request(cluster=asked["cluster"], user=signed_in_user(request))
        return job_response(request, job, lambda job: job.result)


class UnscoredSerializer(serializers.ModelSerializer):
    """An interval with results that was not scored."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name")

    class Meta:
        model = UnscoredInterval
        fields = ["id", "cluster", "query", "query_id", "starts_at", "reason", "windows"]


class UnscoredSummarySerializer(serializers.Serializer):
    """Intervals that were not scored, by reason."""

    reasons = serializers.DictField(child=serializers.IntegerField(), help_text="{reason: intervals}.")


class UnscoredViewSet(ReadViewSet):
    """Intervals in which results of a live query came that no estimate was held against, newest first."""

    queryset = UnscoredInterval.objects.none()
    serializer_class = UnscoredSerializer
    filterset_class = UnscoredFilter
    ordering = "-starts_at"
    list_actions = ("list", "summary")
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return unscored_listed()

    @extend_schema(responses=UnscoredSummarySerializer, filters=True)
    @action(detail=False, methods=["get"], pagination_class=None)
    def summary(self, request: Request) -> Response:
        """Count intervals that were not scored, by reason."""
        rows = self.filter_queryset(self.get_queryset()).order_by()
        reasons = dict(rows.values_list("reason").annotate(number=Count("pk")))
        return Response(UnscoredSummarySerializer({"reasons": reasons}).data)


class CalibrationViewSet(ReadViewSet):
    """Factors that intervals are scaled by, newest first: those in force and, `until` a time, their history."""

    queryset = IntervalCalibration.objects.none()
    serializer_class = CalibrationSerializer
    filterset_class = CalibrationFilter
    ordering = "-since"
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return calibrations_listed()


router = Router()
router.register("estimates/documents", DocumentEstimateViewSet, basename="document-estimate")
router.register("accuracy/unscored", UnscoredViewSet, basename="unscored")
router.register("accuracy", AccuracyViewSet, basename="accuracy")
router.register("calibrations", CalibrationViewSet, basename="calibration")
router.register("objectives", ObjectiveViewSet, basename="objective")
router.register("estimates", EstimateViewSet, basename="estimate")

urlpatterns = [
    path("queries/<int:pk>/estimate", QueryEstimateView.as_view(), name="query-estimate"),
    path("accuracy/simulations", SimulationView.as_view(), name="accuracy-simulation"),
    *router.urls,
]
