"""Estimates as the REST API takes and shows them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.rest.api import StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.core.rest.serializers import field_type
from apps.estimates.answers import StoredEstimate, StoredFacts, curves_unpack
from apps.estimates.bases import BaseFacts
from apps.estimates.choices import MeasurementLack
from apps.estimates.models import DocumentEstimate, EstimateRun, NodeEstimate, ObjectiveStatus, QueryEstimate
from apps.estimates.selectors import node_estimates, objectives_by_headroom
from apps.estimates.words import cause_sentence, evidence_words
from engine.estimation.answer import EstimateAnswer
from engine.measurement.causes import LatenessCause

__all__ = [
    "DocumentEstimateSerializer",
    "EstimateCreateSerializer",
    "EstimateRunDetailSerializer",
    "EstimateRunSerializer",
    "ObjectiveStatusSerializer",
    "QueryEstimateSerializer",
    "QueryLatestSerializer",
]


class EstimateCreateSerializer(StrictSerializer):
    """Subject of an estimate: everything that runs in a cluster, or a deployment document. Exactly one of the two."""

    cluster = serializers.CharField(required=False, help_text="Slug of the cluster.")
    document = serializers.JSONField(required=False, help_text="A deployment document, format sluice/deployment.")
    flow_slices = serializers.IntegerField(
        required=False, min_value=1, max_value=16, help_text="Slices per subinterval; only with a document. Default 1."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("cluster" in attrs) == ("document" in attrs):
            raise serializers.ValidationError("give exactly one of cluster and document")
        if "cluster" in attrs and "flow_slices" in attrs:
            raise serializers.ValidationError(
                {"flow_slices": "only with a document; a cluster is estimated at a quarter of its subinterval"}
            )
        return attrs


class CauseSerializer(serializers.Serializer):
    """A cause of lateness."""

    kind = serializers.CharField(
        help_text="stream_away, stream_behind, agent_silent, frames_waiting, agent_starved, source_silent, "
        "watermark_held; of an estimate node_busy or main_wait; of an incident alone engine_away; unexplained."
    )
    subject = serializers.CharField(default="", help_text="The agent, source, node or connection.")
    seconds = serializers.FloatField(default=None, allow_null=True, help_text="That it explains, or lasts.")
    words = serializers.SerializerMethodField()

    def get_words(self, cause: LatenessCause) -> str:
        return cause_sentence(cause)


class ObjectiveStatusSerializer(serializers.ModelSerializer):
    """State of a running query's objective, by what was measured lately and by its newest estimate."""

    cluster = serializers.CharField(source="query.cluster.slug")
    query = serializers.CharField(source="query.name")
    query_id = serializers.IntegerField()
    estimate_s = serializers.FloatField(source="estimate.estimate_s", default=None, allow_null=True)
    low_s = serializers.FloatField(source="estimate.low_s", default=None, allow_null=True)
    high_s = serializers.FloatField(source="estimate.high_s", default=None, allow_null=True)
    lacking = serializers.ChoiceField(
        MeasurementLack.choices, help_text="Why the measurement does not count; empty: it does."
    )
    evidence = serializers.SerializerMethodField(help_text="What the state rests on, in words.")
    causes = CauseSerializer(source="lateness", many=True, help_text="What makes it late, the cause to name first.")

    class Meta:
        model = ObjectiveStatus
        fields = ["id", "cluster", "query", "query_id", "state", "since", "decided_by", "evidence", "statistic"]
        fields += ["bound_s", "value_s", "headroom_share", "measured_s", "measured_at", "results", "results_needed"]
        fields += ["span_s", "left_out", "lacking", "estimate_s", "low_s", "high_s", "causes", "updated_at"]

    def get_evidence(self, status: ObjectiveStatus) -> str:
        return evidence_words(status)


class QueryEstimateSerializer(serializers.ModelSerializer):
    """One query's latency in a run. `state` is that of the estimate by itself."""

    query = serializers.CharField(source="query.name")
    query_id = serializers.IntegerField()
    version = serializers.IntegerField(source="version.number")
    result = StoredRecordField(StoredEstimate)

    class Meta:
        model = QueryEstimate
        fields = [
            "query",
            "query_id",
            "version",
            "statistic",
            "bound_s",
            "estimate_s",
            "low_s",
            "high_s",
            "worst_s",
            "headroom_share",
            "mace_s",
            "state",
            "certainty",
            "result",
        ]


class NodeEstimateSerializer(serializers.ModelSerializer):
    """One server's load and excess in a run."""

    node = serializers.CharField(source="node_name")

    class Meta:
        model = NodeEstimate
        fields = ["server", "node", "mean_load", "peak_load", "excess_s", "excess"]


class EstimateRunSerializer(serializers.ModelSerializer):
    """A run in a list: when, on what, and the facts of the whole cluster."""

    cluster = serializers.CharField(source="cluster.slug")
    result = StoredRecordField(StoredFacts)
    base = StoredRecordField(BaseFacts, allow_null=True, help_text="Null of one that was made before 0.3.0.")

    class Meta:
        model = EstimateRun
        fields = ["id", "cluster", "job", "snapshot", "base", "subinterval_s", "slice_s", "slices", "result"]
        fields += ["duration_s", "created_at"]


class EstimateRunDetailSerializer(EstimateRunSerializer):
    """A run whole: its queries by headroom, its servers by excess."""

    queries = serializers.SerializerMethodField()
    servers = serializers.SerializerMethodField()

    class Meta(EstimateRunSerializer.Meta):
        fields = [*EstimateRunSerializer.Meta.fields, "queries", "servers"]

    @extend_schema_field(QueryEstimateSerializer(many=True))
    def get_queries(self, run: EstimateRun) -> list[dict[str, Any]]:
        return list(QueryEstimateSerializer(objectives_by_headroom(run), many=True).data)

    @extend_schema_field(NodeEstimateSerializer(many=True))
    def get_servers(self, run: EstimateRun) -> list[dict[str, Any]]:
        return list(NodeEstimateSerializer(node_estimates(run), many=True).data)


class QueryLatestSerializer(QueryEstimateSerializer):
    """A query's newest estimate, with what has moved since and, asked for by `?series=1`, its curves."""

    run = serializers.IntegerField(source="run_id")
    snapshot = serializers.CharField(source="run.snapshot")
    created_at = serializers.DateTimeField(source="run.created_at")
    stale = serializers.SerializerMethodField()
    changes = serializers.SerializerMethodField(help_text="What has moved since, in words.")
    status = ObjectiveStatusSerializer(
        source="standing", allow_null=True, help_text="State of its objective, measurement first."
    )
    series = serializers.SerializerMethodField(help_text="time_s, and flow_s: the mean path; null unless asked for.")

    class Meta(QueryEstimateSerializer.Meta):
        fields = [
            *QueryEstimateSerializer.Meta.fields,
            "run",
            "snapshot",
            "created_at",
            "stale",
            "changes",
            "status",
            "series",
        ]

    def get_stale(self, row: QueryEstimate) -> bool:
        return bool(self.context["staleness"].is_stale)

    @field_type(list[str])
    def get_changes(self, row: QueryEstimate) -> list[str]:
        return list(self.context["staleness"].changes)

    @field_type(dict[str, list[float]] | None)
    def get_series(self, row: QueryEstimate) -> dict[str, Any] | None:
        return curves_unpack(row.series) if self.context.get("series") and row.series else None


class DocumentEstimateSerializer(serializers.ModelSerializer):
    """The estimate of a document: the engine's answer whole, null while it is computed."""

    result = StoredRecordField(EstimateAnswer, allow_null=True)

    class Meta:
        model = DocumentEstimate
        fields = ["id", "job", "digest", "flow_slices", "result", "created_at"]
