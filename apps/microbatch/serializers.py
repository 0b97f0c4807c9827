"""Spark queries, micro-batches and fits as the REST API takes and shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from rest_framework import serializers

from apps.accounts.choices import Scope
from apps.accounts.permissions import scopes_of
from apps.core.addresses import host_of
from apps.core.rest.api import StrictModelSerializer, StrictSerializer
from apps.core.rest.serializers import field_type
from apps.fleet.choices import InputOrigin
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField, NumberField
from apps.microbatch.choices import SparkQueryState
from apps.microbatch.models import SETTINGS, BatchFit, MicroBatch, SparkQuery
from apps.microbatch.progress import MAX_DOCUMENTS
from apps.microbatch.selectors import fit_in_force, spark_query_state
from engine.errors import DocumentError
from engine.fields import Number
from engine.microbatch.settings import SparkChoice

__all__ = [
    "ApplySerializer",
    "BatchFitSerializer",
    "MicroBatchSerializer",
    "OwnProgressSerializer",
    "SparkQuerySerializer",
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
