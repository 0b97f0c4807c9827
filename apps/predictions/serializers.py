"""Predictions, executions, models and fine-tunings over REST. Rules beyond types are the services'."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.limits import MAX_NOTE
from apps.core.rest.api import StrictSerializer
from apps.core.rest.serializers import field_type
from apps.fleet.serializers import ClusterField, NumberField
from apps.predictions.choices import TargetMetric
from apps.predictions.models import FineTuning, ModelVersion, ObservedExecution, Prediction
from engine.costream.weights import read_card
from engine.errors import EngineError

__all__ = [
    "ExecutionCreateSerializer",
    "ExecutionSerializer",
    "FineTuningCreateSerializer",
    "FineTuningSerializer",
    "ModelDetailSerializer",
    "ModelSerializer",
    "ModelUseSerializer",
    "PredictionCreateSerializer",
    "PredictionDetailSerializer",
    "PredictionSerializer",
]


class PredictionCreateSerializer(StrictSerializer):
    """A question for the first placement of a registered query."""

    cluster = ClusterField()
    query = serializers.CharField()
    version = serializers.IntegerField(required=False, min_value=1, help_text="Which version; default the newest.")
    target = serializers.ChoiceField(
        TargetMetric.choices, required=False, help_text="Metric to choose by: T, Lp or Le (default)."
    )
    placement = serializers.DictField(
        child=serializers.CharField(), required=False, help_text="{operator: node}; the rest is chosen."
    )


class PredictionSerializer(serializers.ModelSerializer):
    """A prediction in a list."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name")
    version = serializers.IntegerField(source="version.number")
    model = serializers.SerializerMethodField(help_text="Name of the model version.")
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    placement = serializers.DictField(child=serializers.CharField(), help_text="{operator: node} that was chosen.")
    costs = serializers.DictField(
        help_text="Costs of the chosen candidate: mean, low and high of the interval at `level`; votes."
    )

    class Meta:
        model = Prediction
        fields = ["id", "cluster", "query", "version", "model", "purpose", "target", "state", "placement", "costs"]
        fields += ["candidates", "elapsed_s", "requested_by", "created_at"]

    def get_model(self, row: Prediction) -> str | None:
        return None if row.model is None else str(row.model)


class PredictionDetailSerializer(PredictionSerializer):
    """A prediction whole: reason, candidates for a plot, heuristics, hosts, what is outside the domain, the card."""

    answer = serializers.JSONField()

    class Meta(PredictionSerializer.Meta):
        fields = [*PredictionSerializer.Meta.fields, "answer"]


class ExecutionSerializer(serializers.ModelSerializer):
    """An observed execution beside what was predicted. Null: not observed."""

    cluster = serializers.CharField(source="cluster.slug")
    query = serializers.CharField(source="query.name")
    version = serializers.IntegerField(source="version.number")
    model = serializers.SerializerMethodField(help_text="Name of the model version that predicted.")
    prediction = serializers.UUIDField(source="prediction_id")
    predicted = serializers.DictField()

    class Meta:
        model = ObservedExecution
        fields = ["id", "cluster", "query", "version", "prediction", "model", "origin", "starts_at", "ends_at"]
        fields += ["predicted", "throughput_eps", "processing_latency_s", "end_to_end_latency_s", "backpressure"]
        fields += ["success", "q_throughput", "q_processing_latency", "q_end_to_end_latency", "created_at"]

    def get_model(self, row: ObservedExecution) -> str | None:
        return None if row.model is None else str(row.model)


class ExecutionCreateSerializer(StrictSerializer):
    """Costs of a running query as its stream processor observed them. What is left out was not observed."""

    cluster = ClusterField()
    query = serializers.CharField()
    ends_at = serializers.DateTimeField(required=False, help_text="End of the stretch; now unless given.")
    duration_s = NumberField(required=False, help_text="Length of the stretch; 240 s unless given.")
    throughput_eps = NumberField(required=False, allow_null=True, help_text="Events/s that arrived at the sinks.")
    processing_latency_s = NumberField(required=False, allow_null=True, help_text="Mean, without waits at a broker.")
    end_to_end_latency_s = NumberField(required=False, allow_null=True, help_text="Mean.")
    backpressure = serializers.BooleanField(required=False, allow_null=True)
    success = serializers.BooleanField(required=False, allow_null=True)


class ModelSerializer(serializers.ModelSerializer):
    """A version of the model."""

    cluster = serializers.CharField(source="cluster.slug", default=None, help_text="Null: a shipped one.")
    name = serializers.CharField(source="__str__", help_text="Origin and number.")
    parent = serializers.IntegerField(source="parent_id", allow_null=True)
    line = serializers.SerializerMethodField(help_text="The card's sentence: what it was trained on.")
    observed = serializers.SerializerMethodField(help_text="Executions of its cluster that it was tuned on.")
    created_by = serializers.CharField(source="created_by.username", default=None)

    class Meta:
        model = ModelVersion
        fields = ["id", "cluster", "name", "number", "origin", "state", "digest", "parent", "line", "observed"]
        fields += ["created_by", "created_at", "in_force_at"]

    def get_line(self, row: ModelVersion) -> str:
        try:
            return read_card(row.card).line
        except EngineError as error:
            return f"Its card cannot be read: {error}"

    def get_observed(self, row: ModelVersion) -> int:
        return int(row.card.get("observed", 0))


class ModelDetailSerializer(ModelSerializer):
    """A version with its whole card."""

    card = serializers.JSONField()

    class Meta(ModelSerializer.Meta):
        fields = [*ModelSerializer.Meta.fields, "card"]


class ModelUseSerializer(StrictSerializer):
    """Where a version is to predict from now on."""

    cluster = ClusterField()


class FineTuningCreateSerializer(StrictSerializer):
    """A request to train the model of a cluster further."""

    cluster = ClusterField()
    note = serializers.CharField(required=False, allow_blank=True, max_length=MAX_NOTE)


class FineTuningSerializer(serializers.ModelSerializer):
    """A fine-tuning and the guard's judgement."""

    cluster = serializers.CharField(source="cluster.slug")
    job = serializers.UUIDField(source="job_id", allow_null=True)
    base = serializers.IntegerField(source="base_id", allow_null=True, help_text="Id of the version it began from.")
    model = serializers.IntegerField(source="model_id", allow_null=True, help_text="Id of the version that it made.")
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    errors = serializers.SerializerMethodField(help_text="Of both on the executions held out: before and after.")

    class Meta:
        model = FineTuning
        fields = ["id", "cluster", "job", "state", "message", "note", "base", "model", "observations", "held_out"]
        fields += ["errors", "requested_by", "created_at"]

    @field_type(dict[str, Any])
    def get_errors(self, row: FineTuning) -> dict[str, Any]:
        return dict(row.result)
