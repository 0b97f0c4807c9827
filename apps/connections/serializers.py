"""Connections and imported jobs as the REST API takes and shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.accounts.choices import Scope
from apps.accounts.permissions import scopes_of
from apps.connections.choices import JobEventKind
from apps.connections.models import MAX_POLL_S, MIN_POLL_S, Connection, ImportedJob
from apps.core.addresses import host_of
from apps.core.rest.api import StrictModelSerializer, StrictSerializer
from apps.core.rest.serializers import field_type
from apps.fleet.serializers import ClusterField, NumberField

__all__ = [
    "ConnectionSerializer",
    "FindingSerializer",
    "ImportSettingsSerializer",
    "ImportedJobSerializer",
    "UploadAnswerSerializer",
]

_LEVELS = ("found", "assumed", "missing", "warning")


class FindingSerializer(serializers.Serializer):
    """Something that the last look found, missed, assumed in its place, or warns of."""

    level = serializers.ChoiceField(choices=_LEVELS)
    code = serializers.CharField(help_text="Stable name, such as busy_time_missing.")
    subject = serializers.CharField(help_text="What it is about: empty, a job's name, or job/operator.")
    message = serializers.CharField()


class _CostSerializer(serializers.Serializer):
    """Questions of one round, and their cost to the engine."""

    requests = serializers.IntegerField()
    bytes = serializers.IntegerField()
    seconds = serializers.FloatField()


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
    findings = serializers.SerializerMethodField(help_text="Of the last look.")
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
        fields += ["state", "state_since", "state_words", "engine_version", "findings", "cost", "job_count"]
        fields += ["running_count", "checked_at", "imported_at", "asked_at", "answered_at", "created_at"]
        read_only_fields = ["origin", "state", "state_since", "state_words", "engine_version", "checked_at"]
        read_only_fields += ["imported_at", "asked_at", "answered_at", "created_at"]
        validators: list[Any] = []  # the service names the fault at `name`
        extra_kwargs: dict[str, Any] = {"name": {"validators": []}}  # with all others

    @field_type({"type": "boolean"})
    def get_has_token(self, row: Connection) -> bool:
        return bool(row.sealed_token)

    @field_type(FindingSerializer(many=True))
    def get_findings(self, row: Connection) -> list[dict[str, str]]:
        return list(row.findings or [])

    @field_type(_CostSerializer(allow_null=True))
    def get_cost(self, row: Connection) -> dict[str, Any] | None:
        return row.cost or None

    def to_representation(self, row: Connection) -> dict[str, Any]:
        shown = super().to_representation(row)
        request = self.context["request"]
        if Scope.OPERATE not in scopes_of(request.user, request.auth):
            shown |= {name: host_of(shown[name]) for name in ("url", "prometheus_url")}  # the rest may hold a secret
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
