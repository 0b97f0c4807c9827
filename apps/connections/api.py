"""REST: connections to engines, their checks, imports, refreshes and uploads, and the jobs that were imported."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.urls import URLPattern, URLResolver
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import scopes_of, signed_in_user
from apps.connections import services
from apps.connections.choices import JobEventKind
from apps.connections.looks import RoundCost
from apps.connections.models import MAX_POLL_S, MIN_POLL_S, Connection, ImportedJob
from apps.connections.selectors import ConnectionFilter, ImportedJobFilter, connections_listed, jobs_listed
from apps.connections.uploads import upload_store
from apps.core.addresses import server_of
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Malformed
from apps.core.rest.api import ReadViewSet, Router, ServiceViewSet, StrictModelSerializer, StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import field_type, read_body
from apps.fleet.serializers import ClusterField, NumberField
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job
from engine.connectors.finding_groups import FindingKind
from engine.connectors.picture import Finding

__all__ = ["ConnectionViewSet", "ImportedJobViewSet"]


class ConnectionSerializer(StrictModelSerializer):
    """A connection with its state, findings and costs. The token is written only."""

    cluster = ClusterField(help_text="Slug of the cluster.")
    token = serializers.CharField(
        write_only=True, required=False, allow_blank=True, max_length=4096, help_text="Bearer token; never shown again."
    )
    has_token = serializers.SerializerMethodField(help_text="Whether a token is sent.")
    job_names = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        max_length=200,
        help_text="Names or ids of the jobs to import; empty: every job that runs.",
    )
    poll_interval_s = NumberField(
        required=False, help_text=f"Seconds between rounds, {MIN_POLL_S:g} to {MAX_POLL_S:g}; 15 unless given."
    )
    operators = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        max_length=1000,
        help_text="Of a Prometheus: [{name, rate, reads, cost, outputs, kind, parallelism, place}].",
    )
    findings = serializers.ListField(child=StoredRecordField(Finding), read_only=True, help_text="Of the last look.")
    finding_kinds = serializers.ListField(
        child=StoredRecordField(FindingKind),
        read_only=True,
        help_text="Findings by kind with counts, those that change the answer first.",
    )
    cost = serializers.SerializerMethodField(help_text="Of a round; null before the first.")
    job_count = serializers.IntegerField(read_only=True, help_text="Jobs that were imported.")
    running_count = serializers.IntegerField(read_only=True, help_text="Of these, running.")

    class Meta:
        model = Connection
        fields = ["id", "cluster", "name", "engine", "origin", "url", "token", "has_token", "verify_tls", "ca_pem"]
        fields += [
            "job_names",
            "latency_metric",
            "latency_query",
            "lag_query",
            "prometheus_url",
            "operators",
            "poll_interval_s",
        ]
        fields += ["state", "state_since", "state_words", "engine_version", "findings", "finding_kinds"]
        fields += ["cost", "job_count"]
        fields += ["running_count", "checked_at", "imported_at", "asked_at", "answered_at", "created_at"]
        read_only_fields = ["origin", "state", "state_since", "state_words", "engine_version", "checked_at"]
        read_only_fields += ["imported_at", "asked_at", "answered_at", "created_at"]
        validators: list[Any] = []  # the service names the fault at `name`
        extra_kwargs: dict[str, object] = {"name": {"validators": []}}  # with all others

    @field_type({"type": "boolean"})
    def get_has_token(self, row: Connection) -> bool:
        return bool(row.sealed_token)

    @field_type(StoredRecordField(RoundCost, allow_null=True))
    def get_cost(self, row: Connection) -> Any:
        return row.cost or None

    def to_representation(self, row: Connection) -> dict[str, Any]:
        shown = super().to_representation(row)
        request = self.context["request"]
        if Scope.OPERATE not in scopes_of(request.user, request.auth):
            shown |= {name: server_of(shown[name]) for name in ("url", "prometheus_url")}  # the rest may hold a secret
        return shown


class _JobEventSerializer(serializers.Serializer):
    """A change of the job that was recognised."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=JobEventKind.choices)
    words = serializers.CharField()


class ImportedJobSerializer(serializers.ModelSerializer):
    """A job of an engine and the query that it is here, joined on the engine's own ids."""

    connection = serializers.CharField(source="connection.name")
    cluster = serializers.CharField(source="connection.cluster.slug")
    query = serializers.CharField(source="query.name")
    version = serializers.IntegerField(source="version.number", default=None, allow_null=True)
    vertices = serializers.DictField(child=serializers.CharField(), help_text="{operator: id of its vertex}.")
    places = serializers.DictField(child=serializers.CharField(), help_text="{node: id of its place}.")
    events = _JobEventSerializer(many=True)

    class Meta:
        model = ImportedJob
        fields = ["id", "cluster", "connection", "query", "version", "engine_id", "name", "state", "shape", "vertices"]
        fields += ["places", "settings", "events", "versions_seen", "restarts_seen", "started_at", "seen_at"]
        fields += ["measured_at"]


class _ImportObjectiveSerializer(StrictSerializer):
    """An objective of latency."""

    statistic = serializers.CharField(max_length=8, help_text="worst, mean or q0.99.")
    bound_s = NumberField(help_text="Seconds.")


class ImportSettingsSerializer(StrictSerializer):
    """Jobs to import, and objectives of them."""

    objectives = serializers.DictField(
        child=_ImportObjectiveSerializer(), required=False, help_text="{job: {statistic, bound_s}}; * is for every job."
    )
    jobs = serializers.ListField(
        child=serializers.CharField(max_length=200),
        required=False,
        max_length=200,
        help_text="Names or ids, in place of the connection's own choice.",
    )


class UploadAnswerSerializer(serializers.Serializer):
    """Outcome of an upload of answers."""

    rounds = serializers.IntegerField(help_text="Rounds of questions that it holds.")
    answers = serializers.IntegerField(help_text="Answers in all rounds.")
    bytes = serializers.IntegerField(help_text="Unpacked.")


_JOB_ANSWER = {200: ConnectionSerializer, 202: JobSerializer}
_FILE = {"multipart/form-data": {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}}


class ConnectionViewSet(ServiceViewSet):
    """Connections to engines."""

    body_sizes = {"upload": DOCUMENT}
    queryset = Connection.objects.none()
    serializer_class = ConnectionSerializer
    filterset_class = ConnectionFilter
    ordering = "name"
    row_keyword = "connection"
    creator_keyword = "user"
    service_create = staticmethod(services.connection_create)
    scopes = {"import_jobs": Scope.ADMIT}
    service_update = staticmethod(services.connection_update)
    service_delete = staticmethod(services.connection_delete)

    def get_queryset(self) -> Any:
        return connections_listed()

    @extend_schema(request=None, responses=_JOB_ANSWER, filters=False)
    @action(detail=True, methods=["post"])
    def check(self, request: Request, pk: str | None = None) -> Response:
        """Look at what the engine answers: what was found, is missing, is assumed, and what asking costs it.

        No pool, node, query or statistic is stored by it.
        """
        connection = self.get_object()
        job = services.connection_check(connection=connection, user=signed_in_user(request))
        return self._answer(request, connection, job)

    @extend_schema(request=ImportSettingsSerializer, responses=_JOB_ANSWER, filters=False)
    @action(detail=True, methods=["post"], url_path="import", url_name="import")
    def import_jobs(self, request: Request, pk: str | None = None) -> Response:
        """Turn the engine's jobs into running queries with measured statistics. Repeated, it changes what changed."""
        values = read_body(ImportSettingsSerializer, request)
        connection = self.get_object()
        job = services.connection_import(connection=connection, user=signed_in_user(request), **values)
        return self._answer(request, connection, job)

    @extend_schema(request=None, responses=_JOB_ANSWER, filters=False)
    @action(detail=True, methods=["post"])
    def refresh(self, request: Request, pk: str | None = None) -> Response:
        """Ask once more now, outside the schedule."""
        connection = self.get_object()
        job = services.connection_refresh(connection=connection, user=signed_in_user(request))
        return self._answer(request, connection, job)

    @extend_schema(request=None, responses=ConnectionSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str | None = None) -> Response:
        """Ask nothing more until it is resumed."""
        return Response(self._shown(services.connection_pause(connection=self.get_object())))

    @extend_schema(request=None, responses=ConnectionSerializer, filters=False)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str | None = None) -> Response:
        """Ask again from now on."""
        return Response(self._shown(services.connection_resume(connection=self.get_object())))

    @extend_schema(
        request={**_FILE, "application/json": OpenApiTypes.OBJECT}, responses=UploadAnswerSerializer, filters=False
    )
    @action(detail=True, methods=["post"], parser_classes=[MultiPartParser])
    def upload(self, request: Request, pk: str | None = None) -> Response:
        """Take the engine's answers as a file, in place of those before; a check or an import reads them then."""
        file = request.FILES.get("file")
        if file is None:
            message = "file is missing; allowed: a zip, JSON or text of the engine's answers"
            raise Malformed(f"{message}.", [("file", message)])
        return Response(UploadAnswerSerializer(asdict(upload_store(connection=self.get_object(), file=file))).data)

    def _answer(self, request: Request, connection: Connection, job: Job) -> Response:
        address = f"/api/v1/connections/{connection.pk}"
        return job_response(request, job, lambda _: self._shown(connection), address=address)


class ImportedJobViewSet(ReadViewSet):
    """Jobs of engines that are queries here."""

    queryset = ImportedJob.objects.none()
    serializer_class = ImportedJobSerializer
    filterset_class = ImportedJobFilter
    ordering = "name"
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return jobs_listed()


router = Router()
router.register("connections", ConnectionViewSet, basename="connection")
router.register("imported-jobs", ImportedJobViewSet, basename="imported-job")

urlpatterns: list[URLPattern | URLResolver] = list(router.urls)
