"""Load histories and forecasts as REST takes and shows them. Rules beyond types are the services'."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.limits import DIGEST_LENGTH
from apps.core.rest.api import StrictSerializer
from apps.core.rest.records import StoredRecordField
from apps.fleet.choices import Evidence
from apps.fleet.serializers import ClusterField, InClusterSerializer
from apps.planning.choices import HistoryOrigin
from apps.planning.forecasts.selectors import pools_basis
from apps.planning.forecasts.services import DEFAULT_DAYS, HORIZON_DAYS
from apps.planning.models import Forecast
from apps.queries.serializers import READING_FIELDS, TableReadingSerializer
from engine.forecasts.answer import ForecastAnswer
from engine.words import listed

__all__ = [
    "ForecastCreateSerializer",
    "ForecastSerializer",
    "HistoryCreateSerializer",
    "HistoryExtendSerializer",
    "HistorySerializer",
]


class HistorySerializer(InClusterSerializer):
    """A source's load history without its data."""

    source_id = serializers.CharField(read_only=True)
    origin = serializers.ChoiceField(HistoryOrigin.choices, read_only=True)
    evidence = serializers.ChoiceField(Evidence.choices, read_only=True)
    description = serializers.CharField(read_only=True)
    spec = serializers.JSONField(read_only=True)
    bucket_s = serializers.IntegerField(read_only=True)
    buckets = serializers.IntegerField(read_only=True)
    missing = serializers.IntegerField(read_only=True)
    starts_at = serializers.DateTimeField(read_only=True)
    ends_at = serializers.DateTimeField(read_only=True)
    events = serializers.FloatField(read_only=True)
    mean_eps = serializers.FloatField(read_only=True)
    digest = serializers.CharField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class _FromFileSerializer(TableReadingSerializer):
    file = serializers.FileField(required=False)
    key = serializers.CharField(required=False, help_text="Of an upload that was inspected (arrivals/inspect).")


class HistoryExtendSerializer(_FromFileSerializer):
    """Extension of a history: `file` (in a form) or `key` of an inspected upload."""

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if ("file" in values) == ("key" in values):
            raise serializers.ValidationError("give exactly one of file and key")
        return values


class HistoryCreateSerializer(_FromFileSerializer):
    """A load history from exactly one of `file` (in a form), `key` (of an inspected upload) and `generator`."""

    cluster = ClusterField()
    source_id = serializers.CharField()
    description = serializers.CharField(required=False, allow_blank=True)
    replace = serializers.BooleanField(required=False)
    bucket_s = serializers.IntegerField(
        required=False, help_text="Whole seconds from 60 that divide a day; 3600 unless given."
    )
    generator = serializers.DictField(
        required=False, help_text='{"peak_rate_eps": 900, "weeks": 8, "growth_per_week": 0.02, …}'
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        kinds = [kind for kind in ("file", "key", "generator") if kind in values]
        if len(kinds) != 1:
            names = listed(kinds) or "none of them"
            raise serializers.ValidationError(f"give exactly one of file, key, generator; {names} is given")
        others = sorted(READING_FIELDS & set(values)) if kinds[0] == "generator" else []
        if others:
            raise serializers.ValidationError(dict.fromkeys(others, "has no meaning with generator"))
        return values


class ForecastCreateSerializer(StrictSerializer):
    """A forecast to make."""

    cluster = ClusterField()
    horizon_days = serializers.IntegerField(
        default=DEFAULT_DAYS, help_text=f"Days ahead, {HORIZON_DAYS[0]} to {HORIZON_DAYS[1]}."
    )
    seed = serializers.IntegerField(default=0, help_text="The same histories and seed give the same forecast.")


class ForecastSerializer(serializers.ModelSerializer):
    """A forecast: backtests, dates of violations, probabilities and pools; its curves are at `…/series`."""

    cluster = serializers.CharField(source="cluster.slug")
    snapshot = serializers.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the cluster it was computed on.")
    result = StoredRecordField(ForecastAnswer)
    histories = serializers.JSONField()
    ends_at = serializers.DateTimeField()
    pools_basis = serializers.SerializerMethodField(help_text="What pool sizes rest on, and how the bench's differ.")

    class Meta:
        model = Forecast
        fields = ["id", "cluster", "job", "snapshot", "histories", "bucket_s", "starts_at", "ends_at", "horizon"]
        fields += ["seed", "result", "pools_basis", "duration_s", "created_at"]

    def get_pools_basis(self, row: Forecast) -> str:
        return pools_basis(row)
