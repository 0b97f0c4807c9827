"""REST: Spark queries that are watched, their micro-batches, progress of them, refits and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from django.db.models import Model
from django.urls import URLPattern, URLResolver, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.choices import Scope
from apps.accounts.permissions import scopes_of, signed_in_user
from apps.core.addresses import host_of
from apps.core.body_sizes import DOCUMENT
from apps.core.reach import AskedOn, row_visible
from apps.core.rest.api import ApiMixin, Router, ServiceViewSet, StrictModelSerializer, StrictSerializer
from apps.core.rest.parsers import StrictJSONParser, check_shape
from apps.core.rest.serializers import field_type, read_body
from apps.fleet.choices import InputOrigin
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField, NumberField
from apps.microbatch import services
from apps.microbatch.fits import fit_refit
from apps.microbatch.models import SETTINGS, BatchFit, MicroBatch, SparkQuery, SparkQueryState
from apps.microbatch.progress import MAX_DOCUMENTS, ProgressAnswer, documents_of, own_progress_ingest, progress_ingest
from apps.microbatch.selectors import (
    MicroBatchFilter,
    SparkQueryFilter,
    fit_in_force,
    spark_queries_listed,
    spark_query_state,
)
from engine.errors import DocumentError
from engine.kinds import Number
from engine.microbatch.progress_text import ProgressText
from engine.microbatch.settings import SparkChoice

__all__ = [
    "ApplySerializer",
    "BatchFitSerializer",
    "MicroBatchSerializer",
    "MicroBatchViewSet",
    "OwnProgressSerializer",
    "OwnProgressView",
    "ProgressParser",
    "SparkQuerySerializer",
    "SparkQueryViewSet",
]


@dataclass(frozen=True)
class _Settings(SparkChoice):
    """Settings as rows hold them: rows of a batch are whole."""

    TITLE: ClassVar[str] = "settings"

    max_rows_per_trigger: Annotated[int, Number(least=1, most=10**15, whole=True)] | None = None


_OTHERS = {"executors": 1, "cores_per_executor": 1, "input_partitions": 1, "shuffle_partitions": 1, "trigger_s": 0.0}


class SettingsField(serializers.DictField):
    """Settings of a Spark query; a text is no number, and a fraction no whole number."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        try:
            settings = _Settings.parse({**_OTHERS, **data} if isinstance(data, Mapping) else data)
        except DocumentError as error:
            faults = {fault.path or "settings": [fault.message] for fault in error.faults}
            raise serializers.ValidationError(faults) from None
        return {name: getattr(settings, name) for name in data}

    def to_representation(self, value: Any) -> dict[str, Any]:
        return dict(value)


class BatchFitSerializer(serializers.ModelSerializer):
    """Fixed time F and time per row k of batches, and what they rest on."""

    settings = serializers.DictField(source="setting_values", help_text="Under which the micro-batches ran.")
    is_told_apart = serializers.BooleanField(
        source="model.is_told_apart", help_text="Whether the batches differed enough in size to tell F from k."
    )

    class Meta:
        model = BatchFit
        fields = ["fixed_s", "per_row_s", "sd_s", "batches", "least_rows", "most_rows", "is_told_apart"]
        fields += ["first_at", "since", "reason", "settings"]


class SparkQuerySerializer(StrictModelSerializer):
    """A Spark query with its settings, the fit in force and its drift."""

    cluster = ClusterField(queryset=Cluster.objects.all(), allow_null=True, help_text="Null: the stream processor.")
    settings = SettingsField(source="setting_values", required=False, help_text=f"By name: {', '.join(SETTINGS)}.")
    setting_origins = serializers.SerializerMethodField(help_text="{setting: measured, assumed or default}.")
    constraint_s = NumberField(required=False, allow_null=True, help_text="Latency constraint, seconds.")
    state = serializers.SerializerMethodField()
    fit = serializers.SerializerMethodField(help_text="The fit in force; null until there is one.")
    batch_count = serializers.IntegerField(read_only=True)
    last_batch_at = serializers.DateTimeField(read_only=True, allow_null=True)
    applied_by = serializers.CharField(source="applied_by.username", default=None, read_only=True)

    class Meta:
        model = SparkQuery
        fields = ["id", "cluster", "name", "origin", "url", "spark_name", "settings", "setting_origins"]
        fields += ["settings_since", "constraint_s", "statistic", "auto_refit", "wanted_trigger_s", "applied_by"]
        fields += ["applied_at", "state", "fault", "reported_at", "batch_count", "last_batch_at", "fit"]
        fields += ["drift_share", "drift_bias", "drifting_since", "created_at"]
        read_only_fields = ["settings_since", "wanted_trigger_s", "applied_at", "fault", "reported_at"]
        read_only_fields += ["drift_share", "drift_bias", "drifting_since", "created_at"]
        validators: list[Any] = []  # the service names the fault at `name`

    @field_type({"type": "object", "additionalProperties": {"enum": list(InputOrigin.values)}})
    def get_setting_origins(self, row: SparkQuery) -> dict[str, str]:
        return {name: row.setting_origin(name).value for name in SETTINGS}

    @field_type({"type": "string", "enum": list(SparkQueryState.values)})
    def get_state(self, row: SparkQuery) -> str:
        return spark_query_state(row).value

    @field_type(BatchFitSerializer(allow_null=True))
    def get_fit(self, row: SparkQuery) -> dict[str, Any] | None:
        fit = fit_in_force(row)
        return None if fit is None else dict(BatchFitSerializer(fit).data)

    def validate_cluster(self, cluster: Cluster | None) -> Cluster | None:
        if self.instance is None and cluster is None:
            raise serializers.ValidationError("cluster is null; allowed: the slug of a cluster")
        return self._same("cluster", cluster)

    def validate_origin(self, origin: str) -> str:
        return self._same("origin", origin)

    def _same(self, name: str, value: Any) -> Any:
        if self.instance is not None and getattr(self.instance, name) != value:
            raise serializers.ValidationError(f"{name} of a query that is watched stays; watch another one instead")
        return value

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        return values | values.pop("setting_values", {})

    def to_representation(self, row: SparkQuery) -> dict[str, Any]:
        shown = super().to_representation(row)
        request = self.context["request"]
        if row.url and Scope.OPERATE not in scopes_of(request.user, request.auth):
            shown["url"] = host_of(row.url)  # the rest may hold a secret
        return shown


class MicroBatchSerializer(serializers.ModelSerializer):
    """A micro-batch, measured and predicted."""

    parts_s = serializers.DictField(child=serializers.FloatField(), help_text="Seconds by part, such as addBatch.")
    state = serializers.ListField(child=serializers.DictField(), help_text="Figures of each stateful operator.")

    class Meta:
        model = MicroBatch
        fields = ["run_id", "batch", "begins_at", "rows", "rows_per_s", "duration_s", "predicted_s", "parts_s"]
        fields += ["state", "event_lag_s", "trigger_s", "is_warm_up", "received_at"]


class OwnQueryField(SettingsField):
    """The stream processor and its settings; null ones are not known."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if name != "name" and value is not None}
        return super().to_internal_value(data)


class OwnProgressSerializer(StrictSerializer):
    """Progress of the stream processor, and the settings it runs with."""

    query = OwnQueryField(help_text="Its name and settings, those of a Spark query.")
    progress = serializers.ListField(child=serializers.JSONField(), max_length=MAX_DOCUMENTS)


class ApplySerializer(StrictSerializer):
    """Settings of a plan that are to be in force, or are from now on."""

    settings = SettingsField(allow_empty=False)


class ProgressParser(StrictJSONParser):
    """Progress of Spark as it is written: JSON, or lines of it, whose numbers Spark may also write as 6.9E8."""

    def read(self, data: bytes, max_values: int) -> Any:
        check_shape(data, max_values)
        return documents_of(data)


class _LinesParser(ProgressParser):
    media_type = "application/x-ndjson"


class _TextParser(ProgressParser):
    media_type = "text/plain"


_BODIES = dict.fromkeys(("application/json", "application/x-ndjson", "text/plain"), OpenApiTypes.OBJECT)


class SparkQueryViewSet(ServiceViewSet):
    """Spark queries that are watched."""

    body_sizes = {"progress": DOCUMENT}
    queryset = SparkQuery.objects.none()
    serializer_class = SparkQuerySerializer
    filterset_class = SparkQueryFilter
    ordering = "name"
    row_keyword = "query"
    creator_keyword = "user"
    service_create = staticmethod(services.spark_query_create)
    scopes = {"progress": Scope.INGEST}
    service_delete = staticmethod(services.spark_query_delete)

    def get_queryset(self) -> Any:
        return spark_queries_listed()

    @staticmethod
    def service_update(*, query: SparkQuery, **values: Any) -> Model:
        for fixed in ("cluster", "origin"):
            values.pop(fixed, None)
        return services.spark_query_update(query=query, **values)

    @extend_schema(request=_BODIES, responses=ProgressAnswer, filters=False)
    @action(detail=True, methods=["post"], parser_classes=[ProgressParser, _LinesParser, _TextParser])
    def progress(self, request: Request, pk: str | None = None) -> Response:
        """Take in StreamingQueryProgress: one object, a list, or lines. Repeated micro-batches change nothing."""
        query = self.get_object()
        text = request.data if isinstance(request.data, ProgressText) else documents_of(b"")  # there was no body
        answer = progress_ingest(query=query, documents=text.documents, unread=text.left_out)
        return Response(answer.to_dict())

    @extend_schema(request=None, responses=BatchFitSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def refit(self, request: Request, pk: str | None = None) -> Response:
        """Fit fixed time and time per row anew to the newest 20 micro-batches under the present settings."""
        return Response(BatchFitSerializer(fit_refit(query=self.get_object(), user=signed_in_user(request))).data)

    @extend_schema(request=ApplySerializer, responses=SparkQuerySerializer, filters=False)
    @action(detail=True, methods=["post"])
    def apply(self, request: Request, pk: str | None = None) -> Response:
        """Apply settings. The stream processor changes its trigger; of other queries it is noted that you did."""
        values = read_body(ApplySerializer, request)["settings"]
        row = services.settings_apply(query=self.get_object(), user=signed_in_user(request), **values)
        return Response(self._shown(row))


class MicroBatchViewSet(ApiMixin, mixins.ListModelMixin, viewsets.GenericViewSet):
    """Micro-batches of a Spark query, newest first."""

    asked_on = AskedOn.NARROWED

    queryset = MicroBatch.objects.none()
    serializer_class = MicroBatchSerializer
    filterset_class = MicroBatchFilter
    ordering = "-begins_at"
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        query = row_visible(SparkQuery.objects.all(), pk=self.kwargs["query_pk"])
        return MicroBatch.objects.filter(query=query)


class OwnProgressView(ApiMixin, APIView):
    """Progress of the stream processor."""

    body_sizes = {"POST": DOCUMENT}
    scopes = {"POST": Scope.INGEST}

    @extend_schema(request=OwnProgressSerializer, responses=ProgressAnswer)
    def post(self, request: Request) -> Response:
        """Take in progress of Sluice's own stream processor; the answer names the trigger interval that is wanted."""
        values = read_body(OwnProgressSerializer, request)
        answer = own_progress_ingest(documents=values["progress"], settings=values["query"])
        return Response(answer.to_dict())


router = Router()
router.register("spark-queries", SparkQueryViewSet, basename="spark-query")

urlpatterns: list[URLPattern | URLResolver] = [
    path(
        "spark-queries/<int:query_pk>/batches", MicroBatchViewSet.as_view({"get": "list"}), name="spark-query-batches"
    ),
    path("stream-processor/progress", OwnProgressView.as_view(), name="stream-processor-progress"),
    *router.urls,
]
