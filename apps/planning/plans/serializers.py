"""Comparisons as the REST API takes and shows them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.limits import MAX_PLAN_KEY
from apps.core.rest.api import StrictSerializer
from apps.core.rest.serializers import field_type
from apps.planning.choices import PlanPlacement
from apps.planning.models import PlanComparison

__all__ = [
    "PlanAdoptSerializer",
    "PlanAdoptedSerializer",
    "PlanCompareSerializer",
    "PlanComparisonDetailSerializer",
    "PlanComparisonSerializer",
    "PlansSerializer",
]


class PlanCompareSerializer(StrictSerializer):
    """Parameters of a comparison."""

    versions = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        required=False,
        min_length=1,
        help_text="Numbers of versions; the running one and the newest unless given.",
    )
    capacity_cps = serializers.FloatField(
        required=False, allow_null=True, help_text="Judge on one node of this capacity instead of within the cluster."
    )
    hop_cycles = serializers.FloatField(
        required=False, default=0.0, help_text="Cycles an event spends in a queue between operators; 0: not known."
    )
    places = serializers.ChoiceField(PlanPlacement.choices, required=False, default=PlanPlacement.KEEP)


class PlanComparisonSerializer(serializers.ModelSerializer):
    """A comparison in a list."""

    query = serializers.CharField(source="query.name")
    query_id = serializers.IntegerField()
    cluster = serializers.CharField(source="query.cluster.slug")
    finding = serializers.SerializerMethodField(help_text="kind, key, seconds, more_events, words; null without one.")
    adopted = serializers.SerializerMethodField(help_text="Number of the version that a plan of it became.")
    versions = serializers.ListField(child=serializers.IntegerField())

    class Meta:
        model = PlanComparison
        fields = ["id", "cluster", "query", "query_id", "job", "state", "reason", "message", "versions", "running"]
        fields += ["capacity_cps", "hop_cycles", "places", "snapshot", "finding", "recommended", "adopted"]
        fields += ["created_at", "finished_at"]

    @field_type(dict[str, Any] | None)
    def get_finding(self, row: PlanComparison) -> dict[str, Any] | None:
        return (row.result or {}).get("finding")

    @field_type(int | None)
    def get_adopted(self, row: PlanComparison) -> int | None:
        return row.adopted.number if row.adopted else None


class PlanComparisonDetailSerializer(PlanComparisonSerializer):
    """A comparison with its ranking, its plans, the rules applied and not applied, and the newest test for drift."""

    result = serializers.JSONField()
    drift = serializers.JSONField()

    class Meta(PlanComparisonSerializer.Meta):
        fields = [*PlanComparisonSerializer.Meta.fields, "drift", "drift_at", "result"]


class PlansSerializer(serializers.Serializer):
    """The alternatives of a query, and the newest ranking of them."""

    query = serializers.CharField()
    versions = serializers.ListField(child=serializers.IntegerField(), help_text="Numbers, newest first.")
    running = serializers.IntegerField(allow_null=True)
    under_way = serializers.UUIDField(allow_null=True, help_text="Comparison that is being made.")
    latest = PlanComparisonDetailSerializer(allow_null=True)


class PlanAdoptSerializer(StrictSerializer):
    """Choice of the plan that becomes a version."""

    plan = serializers.CharField(max_length=MAX_PLAN_KEY, help_text="Its key in the ranking, such as r1.")
    comparison = serializers.UUIDField(required=False, help_text="The newest with a ranking unless given.")


class PlanAdoptedSerializer(serializers.Serializer):
    """The version a plan became, and what to send to `admissions` to preview it."""

    version = serializers.IntegerField()
    note = serializers.CharField()
    admission = serializers.JSONField(help_text="Body for POST admissions.")
